#!/bin/bash
# SPDX-License-Identifier: MIT
# Real agents that train together, from the first step to the merged model; what a user can ask of
# them meanwhile, and how they leave.
# shellcheck source-path=SCRIPTDIR source=flock_lib.sh
. "${srcdir:-.}/tests/integration/flock_lib.sh"

# ---- four agents, to the end

together() {
	local all=(t0 t1 t2 t3) name
	settings t 400
	enter t t0
	check "an agent trains" ready t0 || return
	for name in t1 t2 t3; do enter t $name --seed "$(seed_of t0)"; done
	check "three more" ready t1 t2 t3 || return
	check "all exchange" await "${all[@]}" -- exchanges.outcomes.exchanged\>=3 \
		training.loss\>=0 partners.candidates=3
	for name in t0 t3; do
		check "$name answers as the schema says" "$ctl" schema "$schema" "$dir/$name.sock"
	done
	for name in "${all[@]}"; do
		check "$name ends by itself" ended "$name"
		check "with the run's last sample" total_reached "$name"
		check "its merged model is written" test -s "$dir/$name.run/final.safetensors"
		check "its checkpoint is whole" whole_checkpoint "$name"
	done
	check "all four models are as good" alike t 20 "${all[@]}"
}

# The run's clock at its end, by what it prints.
total_reached() {
	cat "$dir/$1.out"
	[ "$(sed -nE 's/^trained [0-9]+ samples of the run.s ([0-9]+);.*/\1/p' "$dir/$1.out")" \
		-ge 800000 ]
}

# ---- leaving, whatever is under way

leaving() {
	settings l 1e6
	enter l l0 --leave-seconds 8
	check "an agent that will leave" ready l0 || return
	enter l l1 --seed "$(seed_of l0)"
	enter l l2 --seed "$(seed_of l0)"
	check "two more" ready l1 l2 || return
	check "exchange" await l0 l1 l2 -- exchanges.outcomes.exchanged\>=2
	check "one is asked to" "$dunlin" leave --socket "$dir/l2.sock"
	check "and ends" leaves l2
	check "the others know" await l0 l1 -- "${id[l2]}:state=left"
	signal INT l1
	check "another is interrupted" leaves l1
	check "the last one knows, too" await l0 -- "${id[l1]}:state=left"
	enter_rogue l ROGUE_MUTE=commit l3 --seed "$(seed_of l0)"
	check "a partner that never commits" ready l3 || return
	check "leaves an exchange open" await l0 -- exchanges.state=committed
	signal TERM l0
	check "which keeps nobody" leaves l0
	check "for long" not_said l0 'longer than agent.leave_seconds'
	enter_rogue l ROGUE_DRIP=400 l4 --seed "$(seed_of l3)"
	check "one that sends drop by drop" ready l4 || return
	enter l l5 --seed "$(seed_of l4)" --leave-seconds 8
	check "meets another" ready l5 || return
	check "who waits for it" await l5 -- exchanges.state=moving "exchanges.peer=${id[l4]}"
	signal TERM l5
	check "but not when it leaves" leaves l5
	check "nor for long" not_said l5 'longer than agent.leave_seconds'
	check "the rest leave" all_leave
}
leaves() { ended "$1" && whole_checkpoint "$1"; }

# ---- ways to exchange, and their bounds

# The mode is the run's, the format each agent's own.
modes() {
	local mode
	settings m 1e6
	for mode in push pull; do
		enter m "$mode" --exchange $mode
		check "an agent that can only $mode" ready "$mode" || return
		enter m "$mode-fp32" --exchange $mode --wire fp32 --seed "$(seed_of "$mode")"
		check "one more, that sends fp32" ready "$mode-fp32" || return
		check "both begin exchanges, and take the other's" await "$mode" "$mode-fp32" -- \
			exchanges.begun\>=1 exchanges.taken\>=1
		check "$mode, bf16" has_exchanged "$mode" \
			"\"ours\":true,\"mode\":\"$mode\",\"format\":\"bf16\""
		check "fp32 by its own wish" has_exchanged "$mode-fp32" \
			"\"ours\":true,\"mode\":\"$mode\",\"format\":\"fp32\""
		check "bf16 by the other's" has_exchanged "$mode-fp32" \
			"\"ours\":false,\"mode\":\"$mode\",\"format\":\"bf16\""
		check "both leave" all_leave
	done
}
# has_exchanged NAME PATTERN: such an exchange comes about, sooner or later.
has_exchanged() {
	local end=$((SECONDS + patience))
	until "$dunlin" exchanges --json --max 128 --socket "$dir/$1.sock" 2>/dev/null |
		grep -qE "$2,\"final\":false,\"outcome\":\"exchanged\""; do
		[ $SECONDS -lt $end ] && kill -0 "${pid[$1]}" || return 1
		sleep 0.1
	done
}

bounds() {
	settings b 1e6
	enter b b0 --gate always --upload-cap 20000
	check "an agent with a cap" ready b0 || return
	enter b b1 --gate always --upload-cap 20000 --seed "$(seed_of b0)"
	check "another" ready b1 || return
	check "exchange as much as it allows" await b0 b1 -- \
		exchanges.outcomes.exchanged\>=30
	check "and stay under it" under_cap b0 20000
	check "both" under_cap b1 20000
	check "they leave" all_leave

	enter b b2 --gate budget --exchanges-per-second 4
	check "an agent with a budget" ready b2 || return
	enter b b3 --gate budget --exchanges-per-second 4 --seed "$(seed_of b2)"
	check "another" ready b3 || return
	check "spend it" await b2 b3 -- exchanges.outcomes.exchanged\>=30
	check "and hardly more" budget_kept b2 4
	check "both" budget_kept b3 4
	check "they leave" all_leave
}
# A bucket of two seconds, and one exchange of slack; sealing adds a little to each.
under_cap() {
	get "$1" exchanges.bytes_sent uptime_s | tr '\n' ' ' |
		awk -v cap="$2" '{ print; exit !($1 <= 1.1 * cap * ($2 + 2) + 8000) }'
}
# Two buckets of eight tokens are there to begin with.
budget_kept() {
	get "$1" exchanges.outcomes.exchanged uptime_s | tr '\n' ' ' |
		awk -v rate="$2" '{ print; exit !($1 <= 1.5 * rate * $2 + 20) }'
}

# ---- one stands still

stall() {
	local step
	settings s 1e6
	enter s s0
	check "an agent" ready s0 || return
	enter s s1 --seed "$(seed_of s0)"
	enter s s2 --seed "$(seed_of s0)"
	check "two more" ready s1 s2 || return
	check "exchange" await s0 s1 s2 -- exchanges.outcomes.exchanged\>=5
	signal STOP s2
	step=$(get s0 training.step)
	check "one stands still, the others train on" await s0 s1 -- \
		"training.step>=$((step + 3000))"
	check "and exchange with each other" await s0 s1 -- \
		exchanges.outcomes.exchanged\>="$(($(get s0 exchanges.outcomes.exchanged) + 5))"
	signal CONT s2
	check "it goes on" await s2 -- training.phase=training
	check "and exchanges again" await s2 -- \
		exchanges.outcomes.exchanged\>="$(($(get s2 exchanges.outcomes.exchanged) + 5))"
	check "all leave" all_leave
}

# ---- nobody can dial some of them

hidden() {
	settings h 1e6
	enter h h0
	check "an agent that can be dialled" ready h0 || return
	enter h h1 --no-dialable --seed "$(seed_of h0)"
	check "one that cannot" ready h1 || return
	check "exchanges in both roles" await h1 -- exchanges.begun\>=2 exchanges.taken\>=2
	check "and so does its partner" await h0 -- exchanges.begun\>=2 exchanges.taken\>=2 \
		"training.step>=4000"
	enter h h2 --no-dialable --seed "$(seed_of h0)"
	check "another" ready h2 || return
	check "joins late" await h2 -- training.joined=true exchanges.outcomes.exchanged\>=1
	check "all leave" all_leave
}

# ---- agents that do not know each other: what each trains on

orders() {
	settings o 1e6
	enter o o0 --stop-after 50
	enter o o1 --stop-after 50
	check "an agent ends after 50 steps" ended o0
	check "another one, of the same config" ended o1
	check "they have trained on other images" differ "$(losses o0)" "$(losses o1)"
	rm -f "$dir/o0/progress" # or its learning rate goes on from there
	state=$dir/o0 enter o o2 --stop-after 50
	check "the first one, anew" ended o2
	check "trains on the same images again" test "$(losses o2)" = "$(losses o0)"
	state=$dir/o0 enter o o2 --stop-after 10
	check "and goes on" ended o2
	check "in its own order" not_said o2 'another order'
	enter o o1 --stop-after 10 --out "$dir/o2.run"
	check "another one can take over its folder" ended o1
	check "and says that its order begins" said o1 'another order of the images'
}

losses() { sed -nE 's/.*"event":"step".*"loss":([^,]*),.*/\1/p' "$dir/$1.run/metrics.jsonl"; }
differ() { [ -n "$1" ] && [ -n "$2" ] && [ "$1" != "$2" ]; }

for s in together leaving modes bounds stall hidden orders; do scenario $s; done
finish

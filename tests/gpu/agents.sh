#!/bin/bash
# SPDX-License-Identifier: MIT
# Whole agents: one trains on the GPU, one on the CPU, and they are one flock. The GPU agent writes
# checkpoints, goes on from one, and ends when its device fails; what the two have merged is as good
# on either backend. On the stand-in an agent's exit code also says whether it saw anything wrong.
# shellcheck source=tests/gpu/lib.sh
. "${srcdir:?}/tests/gpu/lib.sh"
# shellcheck source=tests/integration/flock_lib.sh
. "$srcdir/tests/integration/flock_lib.sh"
# shellcheck disable=SC2034 # lib.sh uses it
patience=150

gpu=(DUNLIN_PLUGIN_DIR="$builddir")
if [ "$real" != 1 ]; then
	gpu+=(LD_LIBRARY_PATH="$builddir/tests/gpu/lib" GPU_STRICT=1 GPU_CUDNN="$cudnn"
		GPU_DEVICES="$srcdir/tests/gpu/devices")
fi
# enter_gpu PREFIX NAME ARGUMENTS...
enter_gpu() {
	# shellcheck disable=SC2034 # begin uses it
	local before=("${gpu[@]}")
	enter "$@" --device cuda:0
}

# same_on_both PREFIX FILE: loss and accuracy, to all digits that are printed but the last.
same_on_both() {
	local on out=()
	for on in plain cuda:0; do
		out+=("$(env "${gpu[@]}" "$dunlin" eval --config "$dir/$1.json" --device $on \
			--json "$2")")
	done
	printf '%s\n' "${out[@]}"
	printf '%s\n' "${out[@]}" | awk '
		{
			match($0, /"loss": *[0-9.e+-]+/)
			loss[NR] = substr($0, RSTART, RLENGTH); sub(/.*: */, "", loss[NR])
			match($0, /"accuracy": *[0-9.e+-]+/)
			acc[NR] = substr($0, RSTART, RLENGTH); sub(/.*: */, "", acc[NR])
		}
		END {
			d = loss[1] - loss[2]
			exit !(NR == 2 && loss[1] > 0 && d * d <= 1e-8 * loss[1] * loss[1] &&
				acc[1] == acc[2] && acc[1] > 0)
		}'
}

on_the_gpu() { get "$1" training.device | grep '^cuda:0 '; }
newest() { find "$dir/$1.run" -name 'checkpoint-*.safetensors' | sort | tail -n 1; }

# distances NAME: of its exchanges that came about, a line each.
distances() {
	"$dunlin" exchanges --socket "$dir/$1.sock" --json --max 128 | tr '{' '\n' |
		sed -nE '/"outcome": *"exchanged"/s/.*"distance": *([0-9.e+-]+).*/\1/p'
}
# as_far A B: of each exchange the two know the same distance, but perhaps of the newest ones.
as_far() {
	distances "$1" >"$dir/far.$1" && distances "$2" >"$dir/far.$2" || return
	awk '
		NR == FNR { b[NR] = $1; n = NR; next }
		{
			all++
			for (i = 1; i <= n; i++) {
				d = $1 - b[i]
				if (d * d <= 1e-10 * $1 * $1) { same++; break }
			}
		}
		END { print same + 0 " of " all + 0; exit !(all >= 3 && same >= all - 2) }
	' "$dir/far.$2" "$dir/far.$1"
}

mixed() {
	settings m 1e6
	enter m mc --gate always
	check "an agent on the CPU" ready mc || return
	enter_gpu m mg --seed "$(seed_of mc)" --gate always
	check "an agent on the GPU" ready mg || return
	check "it trains there" on_the_gpu mg
	check "they exchange" await mc mg -- exchanges.outcomes.exchanged\>=3 training.loss\>=0
	check "as far from each other as both have measured" as_far mg mc
	check "it writes a checkpoint" "$dunlin" checkpoint --socket "$dir/mg.sock"
	signal TERM mg
	check "it leaves" ended mg
	check "its checkpoint is whole" whole_checkpoint mg
	check "and as good on both backends" same_on_both m "$(newest mg)"
	enter_gpu m mg --seed "$(seed_of mc)" --resume --gate always
	check "it goes on" ready mg || return
	check "from the checkpoint" await_log 'resum|going on|continu' mg
	check "and they exchange again" await mg -- exchanges.outcomes.exchanged\>=2
	check "both leave" all_leave
}

# A peer that sends the same for ever is known by the sketch of it, a poisoner by what is no number.
bad_peers() {
	settings b 1e6
	enter_rogue b ROGUE_POISON=stale bs --gate always
	enter_rogue b ROGUE_POISON=nan bn --gate always
	check "two bad agents" ready bs bn || return
	enter_gpu b bg --seed "$(seed_of bs)" --seed "$(seed_of bn)" --gate always
	check "one on the GPU" ready bg || return
	# Three times in a row would be quarantine; a slow agent may be too near by then.
	check "it finds out who stands still" await_log \
		"$(of exchange bs): broken, [a-z]+: invalid value" bg
	check "and who sends no numbers" await_log \
		"$(of quarantine bn): sent numbers that are not finite" bg
	check "all leave" all_leave
}

# To the merged model.
to_the_end() {
	local name
	settings e 60
	enter_gpu e eg
	check "an agent on the GPU, first" ready eg || return
	enter e ec --seed "$(seed_of eg)"
	check "one on the CPU" ready ec || return
	for name in eg ec; do
		check "$name ends by itself" ended $name
		check "its merged model is written" test -s "$dir/$name.run/final.safetensors"
		check "and as good on both backends" same_on_both e \
			"$dir/$name.run/final.safetensors"
	done
}

# A device that is gone for good, some thousand calls after the start, of which many try the state
# that it takes. Nobody has written a checkpoint until then.
device_fails() {
	local before=("${gpu[@]}")
	settings f 1e6
	enter f fc
	check "an agent on the CPU" ready fc || return
	gpu+=(GPU_FAIL=12000+)
	enter_gpu f fg --seed "$(seed_of fc)"
	gpu=("${before[@]}")
	check "one whose device will fail" ready fg || return
	check "says so, and ends with a code of its own" ended fg 7
	check "it names the call" said fg 'cuda:0.*(cuda|cublas|cudnn)[A-Z]'
	check "it has left, the other one sees" await_log "$(of left fg)" fc
	check "what was in the host's memory is written" said fg \
		'a checkpoint of step [1-9][0-9]* is written from the copy'
	check "and whole" whole_checkpoint fg
	check "as good on both backends" same_on_both f "$(newest fg)"
	before=()
	enter f fg --seed "$(seed_of fc)" --resume
	check "it goes on without the device" ready fg || return
	check "from there" await_log 'resumed .*step [1-9]' fg
	check "both leave" all_leave
}

# told WORDS VARIABLE=VALUE... DEVICE: it does not train, and says why in these words.
told() {
	local out device=${*: -1}
	if out=$(env "${gpu[@]}" "${@:2:$#-2}" "$dunlin" train --config "$dir/n.json" \
		--out "$dir/n.run" --device "$device" 2>&1); then
		echo "it trains on $device"
		return 1
	fi
	echo "$out"
	[[ $out == *"$1"* ]] && [ ! -e "$dir/n.run" ]
}
# cpu_instead WORDS VARIABLE=VALUE...: auto trains on the CPU, and says why.
cpu_instead() {
	env "${gpu[@]}" "${@:2}" "$dunlin" train --config "$dir/n.json" --out "$dir/n.run" \
		--device auto 2>&1 | tee "$dir/n.said"
	grep -F "$1" "$dir/n.said" | grep -w cpu && rm -r "$dir/n.run"
}

not_to_be_had() {
	settings n 1
	check "a GPU that is not there" told "there is no cuda:9, only 1 GPU" cuda:9
	check "one that is too old" told "compute capability 7.0; 7.5 is the least" \
		GPU_ARCH=70 cuda:0
	check "is no reason for auto not to train" cpu_instead "7.5 is the least" GPU_ARCH=70
	local old=DUNLIN_PLUGIN_DIR=$builddir/tests/gpu/old
	check "a plugin of another version" told "not a backend of this version" "$old" cuda:0
	check "neither" cpu_instead "not a backend of this version" "$old"
	check "a name that is none" told 'must be auto, cpu, plain, cuda or cuda:N' cuda:x
}

scenario mixed
scenario bad_peers
scenario to_the_end
if [ "$real" != 1 ]; then
	scenario device_fails
	scenario not_to_be_had
fi
finish

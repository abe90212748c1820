#!/bin/bash
# SPDX-License-Identifier: MIT
# Real agents with a bad one among them (tests/attack/rogue): it dies in the middle of an exchange,
# or is of another run. The others train on, and say what they met. One is only of a later version.
# shellcheck source-path=SCRIPTDIR source=flock_lib.sh
. "${srcdir:-.}/tests/integration/flock_lib.sh"

# ---- one that dies

# dying PREFIX DEATH...: two survivors, and partners that die one after the other (ROGUE_DIE).
dying() {
	local p=$1 death n=0
	shift
	settings "$p" 1e6
	enter "$p" "${p}0"
	check "$p: an agent" ready "${p}0" || return
	enter "$p" "${p}1" --seed "$(seed_of "${p}0")"
	check "$p: another" ready "${p}1" || return
	for death in "$@"; do
		n=$((n + 1))
		enter_rogue "$p" "ROGUE_DIE=$death" "${p}d$n" --seed "$(seed_of "${p}$((n % 2))")"
		check "$p: one dies: $death" ended "${p}d$n" 137
	done
	check "$p: the survivors know" await "${p}0" "${p}1" -- peers.alive=1
	check "$p: and exchange with each other" await "${p}0" "${p}1" -- \
		exchanges.outcomes.exchanged\>="$(($(get "${p}0" exchanges.begun) +
			$(get "${p}1" exchanges.begun) + 3))" training.phase=training
}
survive() { # survive PREFIX
	check "$1: they leave" all_leave
	check "$1: with all their parameters" whole_checkpoint "${1}0"
	check "$1: both" whole_checkpoint "${1}1"
}

# Before its END is out nobody can have committed to anything.
early_offering() {
	dying eo offered,offer,1 preparing,offer,1 moving,offer,2 ending,offer,1 \
		offered,offer,2,late preparing,offer,1,late moving,offer,1,late || return
	check "eo: nothing is one-sided" await eo0 eo1 -- exchanges.one_sided=0
	survive eo
}
early_taking() {
	dying et preparing,take,1 moving,take,1 ending,take,2 preparing,take,1,late \
		moving,take,1,late || return
	check "et: nothing is one-sided" await et0 et1 -- exchanges.one_sided=0
	survive et
}
# Later it may be, and then it is counted.
late_offering() {
	dying lo ending,offer,1,late committed,offer,1 committed,offer,2,late applying,offer,1 \
		applying,offer,1,late acking,offer,1 acking,offer,1,late || return
	survive lo
}
late_taking() {
	dying lt ending,take,1,late committed,take,1 committed,take,2,late applying,take,1 \
		applying,take,1,late acking,take,1 acking,take,1,late || return
	check "lt: what was one-sided is counted" one_sided lt0 lt1
	survive lt
}
one_sided() { # by at least one of them, and its log says so
	local name sum=0 said=0
	for name in "$@"; do
		sum=$((sum + $(get "$name" exchanges.one_sided)))
		said=$((said + $(grep -c '"msg":"one-sided ' "$dir/$name.log")))
	done
	echo "$sum counted, $said said"
	[ $sum -ge 1 ] && [ $sum = $said ]
}

# ---- one of another run

unlike() {
	settings w 1e6
	settings x 1e6 25
	sed -i 's/"run": "x"/"run": "w"/' "$dir/x.json"
	enter w w0
	check "an agent" ready w0 || return
	enter w w2 --seed "$(seed_of w0)" --run other
	enter_rogue w ROGUE_MANIFEST=count w5 --seed "$(seed_of w0)"
	enter_rogue w ROGUE_MANIFEST=formats w7 --seed "$(seed_of w0)"
	check "one of another run, and two that say what is not so" ready w2 w5 w7 || return
	local i seed words=('' 'the model differs \(model\)' 'the run.s name differs \(gossip.run\)'
		'the run.s samples differ.*\(train.epochs, data\)'
		'the initial weights differ \(train.seed or run.init_from\)'
		'the parameters differ.*\(model\)'
		'the optimizer differs: theirs adamw, ours sgd \(train.optimizer\)'
		'no wire format is common \(gossip.wire\)')
	seed=$(seed_of w0)
	enter x w1 --seed "$seed" --join-seconds 1
	enter w w3 --seed "$seed" --join-seconds 1 --epochs 500000
	enter w w4 --seed "$seed" --join-seconds 1 --train-seed 2
	enter w w6 --seed "$seed" --join-seconds 1 --optimizer adamw
	for i in 1 3 4 6; do
		check "w$i, unlike all others, ends: a setting is wrong" ended "w$i" 3
		id[w$i]=$(sed -n '1s/^dunlin //p' "$dir/w$i.out")
	done
	for i in 1 2 3 4 5 6 7; do
		check "w0 says of w$i: ${words[i]}" await_log "$(of unlike "w$i"): ${words[i]}" w0
	done
	for i in 1 3 4; do
		check "and w$i of w0" said "w$i" "$(of unlike w0): ${words[i]}"
	done
	check "and w2 of w0" await_log "$(of unlike w0): ${words[2]}" w2
	check "nobody has averaged with another" await w0 w2 -- exchanges.outcomes.exchanged=0
	check "those who need not end train" await w0 w2 -- training.phase=training \
		training.step\>=100
	check "and leave" all_leave
}

# ---- one of a later version, which says more than the others know

later() {
	settings v 1e6
	enter v v0
	check "an agent of today" ready v0 || return
	enter_rogue v ROGUE_LATER=1 v1 --seed "$(seed_of v0)"
	check "one of a later version" ready v1 || return
	enter v v2 --seed "$(seed_of v1)"
	check "one of today that seeks the later one" ready v2 || return
	check "they are one flock, and exchange" await v0 v1 v2 -- peers.alive=2 \
		exchanges.outcomes.exchanged\>=3
	crash v1
	check "the later one is missed" await v0 v2 -- "${id[v1]}:state=dead"
	enter v v3 --seed "$(seed_of v0)"
	check "one of today that has never met it" ready v3 || return
	check "hears of it from others, in its own words" await v3 -- "${id[v1]}:state=dead" \
		peers.alive=2
	check "the rest leave" all_leave
}

# ---- one that closes what was kept

cut() {
	settings c 1e6
	enter c c0
	check "an agent that keeps connections" ready c0 || return
	enter_rogue c ROGUE_CUT=1 c1 --seed "$(seed_of c0)"
	check "one that closes them at the next use" ready c1 || return
	check "the first dials anew each time" await c0 -- exchanges.begun\>=4 \
		net.streams_dialled\>=4
	check "and loses no exchange by it" await c0 -- exchanges.outcomes.broken=0 \
		exchanges.outcomes.timeout=0 exchanges.outcomes.bad=0
	check "c: they leave" all_leave
}

for s in early_offering early_taking late_offering late_taking unlike later cut; do
	scenario $s
done
finish

#!/bin/bash
# SPDX-License-Identifier: MIT
# Real agents that come late, come back, or were apart: whose state they take, what becomes of them
# when the donor dies, drips or lies, and how two flocks become one.
# shellcheck source-path=SCRIPTDIR source=flock_lib.sh
. "${srcdir:-.}/tests/integration/flock_lib.sh"

# ---- late, and again

late() {
	settings j 1e6
	enter j j0
	check "an agent" ready j0 || return
	enter j j1 --seed "$(seed_of j0)"
	check "another" ready j1 || return
	check "have trained for a while" await j0 j1 -- training.step\>=3000 training.loss\<=0.3
	enter j j2 --seed "$(seed_of j0)"
	check "a third" ready j2 || return
	check "takes a peer's state" await j2 -- training.joined=true exchanges.adoptions=1
	check "is as good from its first steps on" await j2 -- training.loss\<=0.5
	check "and exchanges" await j2 -- exchanges.outcomes.exchanged\>=3

	check "a checkpoint" "$dunlin" checkpoint --socket "$dir/j2.sock"
	crash j2
	enter j j2 --seed "$(seed_of j0)" --stale 1
	check "killed, it starts again" ready j2 || return
	check "from its checkpoint, not far behind" await j2 -- training.resumed=true \
		training.joined=false training.phase=training exchanges.outcomes.exchanged\>=1
	crash j2
	check "the flock goes on without it" await j0 -- \
		"training.clock>=$(($(get j0 training.clock) + 400000))"
	enter j j2 --seed "$(seed_of j0)" --stale 0.0001
	check "far behind" ready j2 || return
	check "it takes a peer's state again" await j2 -- training.resumed=true \
		training.joined=true
	check "all leave" all_leave
}

# ---- the donor is slow, and dies

donor_dies() {
	settings d 1e6
	enter_rogue d ROGUE_DRIP=1500 d0
	check "a slow donor" ready d0 || return
	enter d d1 --seed "$(seed_of d0)"
	check "one that leaves for a while" ready d1 || return
	check "with a state of its own" await d1 -- training.step\>=3000
	signal TERM d1
	check "and a checkpoint" ended d1
	enter d d2 --seed "$(seed_of d0)"
	check "a joiner" ready d2 || return
	check "gets words, one by one" await d2 -- training.phase=joining training.join.total\>=1
	enter d d1 --seed "$(seed_of d0)" --stale 1
	check "the other is back" ready d1 || return
	check "the joiner knows" await d2 -- "${id[d1]}:state=alive"
	crash d0
	check "the donor dies, and the join succeeds" await d2 -- training.joined=true \
		training.phase=training
	check "from the other" await_log "join: the state of ${id[d1]:0:12}" d2
	check "all leave" all_leave
}

# ---- the donor lies

# liar PREFIX KIND: three honest ones, a donor whose gifts are bad, and a joiner that asks it first.
liar() {
	local p=$1
	settings "$p" 1e6
	enter "$p" "${p}0"
	check "$2: an agent" ready "${p}0" || return
	enter "$p" "${p}1" --seed "$(seed_of "${p}0")"
	enter_rogue "$p" "ROGUE_GIFT=$2" "${p}9" --seed "$(seed_of "${p}0")"
	check "$2: another, and a liar" ready "${p}1" "${p}9" || return
	check "$2: they train" await "${p}0" "${p}1" "${p}9" -- training.step\>=3000 \
		exchanges.outcomes.exchanged\>=5
	enter_rogue "$p" "ROGUE_DONOR=${id[${p}9]}" "${p}2" --seed "$(seed_of "${p}0")"
	check "$2: a joiner that asks the liar first" ready "${p}2" || return
	check "$2: joins" await "${p}2" -- training.joined=true training.phase=training
	check "$2: from another" await_log \
		"join: the state of (${id[${p}0]:0:12}|${id[${p}1]:0:12})" "${p}2"
	"$2" "${p}2" "${id[${p}9]}"
	check "$2: all leave" all_leave
}
# A joiner that knows too few sketches, or stood still, refuses what it gets and accuses nobody.
random() {
	check "random: what the liar gave is refused" await_log \
		"join: what ${2:0:12} gave (is no model of this flock|has a loss of)" "$1"
}
nan() {
	check "nan: the liar is quarantined" await "$1" -- partners.in_quarantine\>=1 \
		"partners.quarantined.0.id=$2" \
		"partners.quarantined.0.reason=gave a state with numbers that are not finite"
}
lies() {
	liar g random
	liar n nan
}

# ---- two flocks that were apart

apart() {
	local all=(a0 a1 b0 b1) name
	settings a 1400 # time to see that they are apart, and to adopt, on a busy machine
	enter a a0
	enter a b0
	check "two flocks" ready a0 b0 || return
	enter a a1 --seed "$(seed_of a0)"
	enter a b1 --seed "$(seed_of b0)"
	check "of two" ready a1 b1 || return
	check "that train apart" await "${all[@]}" -- peers.alive=1 exchanges.outcomes.exchanged\>=3
	train='' begin bridge --listen 127.0.0.1:0 --seed "$(seed_of a0)" --seed "$(seed_of b0)"
	check "somebody knows both" ready bridge || return
	check "they are one" await "${all[@]}" -- peers.alive=4
	for name in "${all[@]}"; do check "$name ends by itself" ended "$name"; done
	check "their models are alike" alike a 20 "${all[@]}"
	check "the bridge leaves" all_leave
}

for s in late donor_dies lies apart; do scenario $s; done
finish

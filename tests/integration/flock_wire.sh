#!/bin/bash
# SPDX-License-Identifier: MIT
# Real agents whose parameters travel modulo a lattice: by default, and in mod4 and mod8, where one
# of the agents is killed; the first meetings are in bf16; an agent that wants another format is met
# in its own.
# shellcheck source-path=SCRIPTDIR source=flock_lib.sh
. "${srcdir:-.}/tests/integration/flock_lib.sh"

# has NAME PATTERN: such an exchange comes about, sooner or later.
has() {
	local end=$((SECONDS + patience))
	until "$dunlin" exchanges --json --max 128 --socket "$dir/$1.sock" 2>/dev/null |
		grep -qE "$2"; do
		[ $SECONDS -lt $end ] && kill -0 "${pid[$1]}" || return 1
		sleep 0.1
	done
}

lattice() {
	local w=$1 all=("$1a" "$1b" "$1c") name
	local taken="\"format\":\"$1\",\"final\":false,\"outcome\":\"exchanged\""
	settings "$w" 250
	enter "$w" "${w}a" --wire "$w"
	check "an agent of $w" ready "${w}a" || return
	enter "$w" "${w}b" --wire "$w" --seed "$(seed_of "${w}a")"
	enter "$w" "${w}c" --wire bf16 --seed "$(seed_of "${w}a")"
	enter "$w" "${w}d" --wire "$w" --seed "$(seed_of "${w}a")"
	check "three more, one of them of bf16" ready "${w}b" "${w}c" "${w}d" || return
	check "exchange in bf16 first" has "${w}b" "${taken/$w/bf16}"
	check "then in $w" has "${w}b" "$taken"
	check "which the one of bf16 takes" has "${w}c" "$taken"
	check "and offers bf16 itself" has "${w}c" '"ours":true,"mode":"pair","format":"bf16"'
	signal KILL "${w}d"
	for name in "${all[@]}"; do
		check "$name ends by itself" ended "$name"
		check "its merged model is written" test -s "$dir/$name.run/final.safetensors"
	done
	check "all models are as good" alike "$w" 20 "${all[@]}"
}
# Who says nothing sends 8 bits, and says why.
default() {
	settings default 1e6
	enter default d0
	check "an agent that says nothing of the format" ready d0 || return
	enter default d1 --seed "$(seed_of d0)"
	enter default d2 --exchange push --run one-way
	check "two more, one of them of a run of its own" ready d1 d2 || return
	check "they exchange in mod8" has d1 '"format":"mod8","final":false,"outcome":"exchanged"'
	check "and tell it" await d0 d1 -- exchanges.wire.format=mod8 exchanges.wire.why=packs
	check "in words, too" in_words d1 'mod8: gossip.wire is auto'
	check "who pushes sends bf16" await d2 -- exchanges.wire.format=bf16 \
		exchanges.wire.why=one-way
}
in_words() { "$dunlin" status --socket "$dir/$1.sock" | grep -q "^wire  *$2"; }

mod4() { lattice mod4; }
mod8() { lattice mod8; }

# It is honest until it sends records that fit nothing: too many blocks wrap, both give the exchange
# up, and go on in bf16, where what it sends is seen.
liar() {
	local name
	settings liar 250
	enter_rogue liar ROGUE_POISON=random,20 l9 --wire mod4
	check "an agent that will lie" ready l9 || return
	for name in l0 l1 l2; do enter liar $name --wire mod4 --seed "$(seed_of l9)"; done
	check "three that do not" ready l0 l1 l2 || return
	check "they exchange in mod4" has l0 '"format":"mod4","final":false,"outcome":"exchanged"'
	check "a lie ends an exchange" has l0 '"format":"mod4","final":false,"outcome":"broken"'
	for name in l0 l1 l2; do check "$name ends by itself" ended "$name"; done
	check "their models are as good" alike liar 50 l0 l1 l2
}

for s in default mod4 mod8 liar; do scenario $s; done
finish

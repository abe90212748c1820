#!/bin/bash
# SPDX-License-Identifier: MIT
# Real agents that were away while the others trained: stopped, and continued when the others have
# finished and stay, or when all of them are gone; and one that was never in doubt.
# shellcheck source-path=SCRIPTDIR source=flock_lib.sh
. "${srcdir:-.}/tests/integration/flock_lib.sh"

# A run must last for seconds, in which agents start and find each other, and need not last longer
# where steps are slow, as they are with sanitizers. So its epochs are as many as take so much time
# of a CPU; what else runs on the machine does not matter.
settings t 40
TIMEFORMAT=%U
cpu_ms=$({
	time "$dunlin" train --config "$dir/t.json" --out "$dir/t.run" >"$dir/t.out" 2>&1
} 2>&1) || exit 99
cpu_ms=$((10#${cpu_ms//[!0-9]/} + 1))
epochs() { echo $(($1 * 40 / cpu_ms)); } # MILLISECONDS

# away PREFIX STAY NAME...: agents of a run exchange, and somebody who does not train knows them.
# The first one stops early and is noticed to be missing; the others go on to the end of the run,
# and stay for so long.
away() {
	local p=$1 name
	settings "$p" "$(epochs 3000)" # an exchange may be doubted, and comes again a second later
	train='' begin "${p}w" --listen 127.0.0.1:0
	check "a witness" ready "${p}w" || return
	for name in "${@:3}"; do
		enter "$p" "$name" --seed "$(seed_of "${p}w")" --join-seconds 3 \
			--stay-seconds "$([ "$name" = "$3" ] && echo 0 || echo "$2")"
		check "an agent" ready "$name" || return
	done
	check "they exchange" await "${@:3}" -- exchanges.outcomes.exchanged\>=3
	signal STOP "$3"
	check "one stands still, and is missed" await "${p}w" -- "${id[$3]}:state!=alive"
	check "the others end the run" await_log '"msg":"weights: ' "${@:4}"
}

# The others have finished, and stay.
stay() {
	away s 600 s1 s0 s2 || return
	signal CONT s1
	check "it goes on, and knows" await_log '"msg":"stale: ' s1
	check "it takes a peer's state" await_log '"msg":"joined in ' s1
	check "and ends with a result" ended s1
	check "that is the flock's" alike s 20 s0 s1 s2
	crash s0 # told to leave, the two might end by themselves at that moment
	crash s2
	check "the witness leaves" all_leave
}

# All who trained are gone; the witness has heard of their samples.
gone() {
	away g 0 g1 g0 || return
	check "and leave" ended g0
	check "as the witness knows" await gw -- "${id[g0]}:state=left"
	signal CONT g1
	check "it ends with code 10" ended g1 10
	check "in words" said g1 'no peer is left to take the result from'
	check "without a result" test ! -e "$dir/g1.run/final.safetensors"
	check "with its checkpoint" whole_checkpoint g1
	enter g g1 --seed "$(seed_of gw)" --join-seconds 1
	check "started again, it says the same" ended g1 10
	check "and writes none again" test ! -e "$dir/g1.run/final.safetensors"
	enter g g2 --seed "$(seed_of gw)" --join-seconds 1
	check "nor has one that comes for the first time" ended g2 10
	check "anything to write" test ! -e "$dir/g2.run/final.safetensors"
	check "the witness leaves" all_leave
}

# Its partner leaves while they are in touch: what is left is for it to train.
left() {
	settings l "$(epochs 2000)" # a peer looks for 0.7 s before it trains
	enter l l0
	check "an agent" ready l0 || return
	enter l l1 --seed "$(seed_of l0)"
	check "another" ready l1 || return
	check "they exchange" await l0 l1 -- exchanges.outcomes.exchanged\>=3
	signal TERM l1
	check "one leaves" ended l1
	check "the other ends the run alone" ended l0
	check "with a result" test -s "$dir/l0.run/final.safetensors"
}

for s in stay gone left; do scenario $s; done
finish

#!/bin/bash
# SPDX-License-Identifier: MIT
# Agents with all of their threads: two train and exchange, one more joins, and all leave; two
# others train to the end. Short, so that ThreadSanitizer can watch whole agents (make check-tsan);
# what it finds makes an agent's exit status 66.
# shellcheck source-path=SCRIPTDIR source=flock_lib.sh
. "${srcdir:-.}/tests/integration/flock_lib.sh"

pair() {
	local name
	settings p 1e6
	enter p p0
	check "an agent" ready p0 || return
	enter p p1 --seed "$(seed_of p0)"
	check "another" ready p1 || return
	check "exchange" await p0 p1 -- exchanges.outcomes.exchanged\>=12 training.step\>=500
	check "over one connection" await p0 -- net.streams_accepted\<=4 net.streams_dialled\<=4
	check "a checkpoint meanwhile" "$dunlin" checkpoint --socket "$dir/p0.sock"
	enter p p2 --seed "$(seed_of p0)"
	check "a third" ready p2 || return
	check "joins by a peer's state, and exchanges" await p2 -- training.joined=true \
		exchanges.outcomes.exchanged\>=3
	check "one is paused" "$dunlin" pause --socket "$dir/p1.sock"
	check "and resumed" "$dunlin" resume --socket "$dir/p1.sock"
	check "all leave" all_leave
	for name in p0 p1 p2; do check "$name: nothing was found" not_said $name Sanitizer; done
}

# To the end of a run, with its merge rounds.
short() {
	local name
	settings s 200
	enter s s0
	check "an agent with an end" ready s0 || return
	enter s s1 --seed "$(seed_of s0)"
	check "another" ready s1 || return
	check "one ends by itself" ended s0
	check "the other, too" ended s1
	check "their models are written" test -s "$dir/s0.run/final.safetensors" -a \
		-s "$dir/s1.run/final.safetensors"
	for name in s0 s1; do check "$name: nothing was found" not_said $name Sanitizer; done
}

# Libuv closes sockets by a bare system call and the C library opens folders by another: the
# sanitizer, which sees neither, takes a folder for the socket that had its number before.
echo 'race:closedir' >"$dir/tsan"
export TSAN_OPTIONS="suppressions=$dir/tsan ${TSAN_OPTIONS:-}"
for s in pair short; do scenario $s; done
finish

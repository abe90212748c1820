#!/bin/bash
# SPDX-License-Identifier: MIT
# An agent that may have 128 descriptors, and 110 sessions under as many ids that say nothing: it
# goes on training with a peer, writes checkpoints, answers its socket, and takes newcomers. Also
# that its process dumps no core, and that its keys are in memory that no core has.
# shellcheck source-path=SCRIPTDIR source=flock_lib.sh
. "${srcdir:-.}/tests/integration/flock_lib.sh"
attack=$(realpath "${builddir:-.}/tests/attack/attack") || exit 99
mkdir "$dir/many"

# Soft 100, hard 128: the first is raised.
few() {
	local a
	settings d 1e6
	before=(bash -c 'ulimit -Sn 100 && ulimit -Hn 128 && exec "$@"' few)
	enter d d0
	before=()
	check "an agent with 128 descriptors" ready d0 || return
	check "which it may all use" grep -qE 'open files +128 +128 ' "/proc/${pid[d0]}/limits"
	check "no core dumps" grep -qE 'core file size +0 +0 ' "/proc/${pid[d0]}/limits"
	check "memory that no dump has" dont_dump "${pid[d0]}"
	enter d d1 --seed "$(seed_of d0)"
	check "a peer" ready d1 || return
	check "they exchange" await d0 d1 -- exchanges.outcomes.exchanged\>=3
	"$attack" sessions "${port[d0]}" "$dir/flock.key" "$dir/many" 110 "$dir/many" \
		>"$dir/sessions.log" 2>&1 &
	a=$! pid[sessions]=$!
	: >"$dir/running/$a"
	check "110 sessions are opened" await_log '^# 110 sessions' sessions
	note "$(get d0 net.connections) connections"
	check "a checkpoint is written" "$dunlin" checkpoint --socket "$dir/d0.sock"
	enter d d2 --seed "$(seed_of d0)"
	check "a newcomer" ready d2 || return
	check "is taken, and exchanges" await d2 -- exchanges.outcomes.exchanged\>=1 peers.alive\>=2
	check "the others go on" await d0 -- \
		exchanges.outcomes.exchanged\>=$(($(get d0 exchanges.outcomes.exchanged) + 3))
	check "no descriptor was missing" not_said d0 'Too many open files|EMFILE'
	kill -USR1 "$a"
	check "all sessions were opened" wait "$a"
	rm -f "$dir/running/$a"
	unset 'pid[sessions]'
	check "all leave" all_leave
}
# Keys are in memory of sodium_malloc, which is advised so.
dont_dump() { grep -E '^VmFlags:.* dd( |$)' "/proc/$1/smaps" | grep -vq ' io '; }

scenario few
finish

#!/bin/bash
# SPDX-License-Identifier: MIT
# `dunlin leave` returns when the process of the agent has ended: it can be started again at once.
# shellcheck source-path=SCRIPTDIR source=flock_lib.sh
. "${srcdir:-.}/tests/integration/flock_lib.sh"

# An agent is held up at its very end, when its connections are closed: the last lines that it
# prints do not fit into the pipe that it prints to.
held_up() {
	local waits agent
	settings h 1000
	mkfifo "$dir/h0.out"
	exec {pipe}<>"$dir/h0.out"
	enter h h0
	agent=${pid[h0]}
	check "an agent" ready h0 || return
	dd if=/dev/zero of="$dir/h0.out" bs=4096 oflag=nonblock 2>/dev/null
	{
		"$dunlin" leave --socket "$dir/h0.sock" >"$dir/leave.out" 2>&1
		echo $? >"$dir/leave.code"
		! alive "$agent" || echo yes >"$dir/leave.alive"
	} &
	waits=$!
	check "is told to leave, and leaves its flock" await_log 'left the flock' h0
	check "its socket is gone" gone "$dir/h0.sock"
	cat <&$pipe >/dev/null &
	: >"$dir/running/$!"
	wait $waits
	check "leave went well" test "$(cat "$dir/leave.code")" = 0
	check "and says so" grep -qx 'h0 has left its flock' "$dir/leave.out"
	check "after the end of the agent's process" test ! -e "$dir/leave.alive"
	check "which was a good one" ended h0
}
# alive PROCESS: it runs; one that nobody has waited for yet does not.
alive() { grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status"; }
gone() {
	local end=$((SECONDS + patience))
	while [ -e "$1" ]; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.02
	done
}

# What a service manager or a script does.
again() {
	settings a 1000
	enter a a0
	check "an agent that trains" ready a0 || return
	local bad=0
	for _ in 1 2 3; do
		"$dunlin" leave --socket "$dir/a0.sock" >/dev/null || bad=1
		wait "${pid[a0]}" || bad=1
		rm -f "$dir/running/${pid[a0]}"
		enter a a0
		ready a0 || bad=1
	done
	check "leaves and starts three times, without a pause" test $bad = 0
	check "leaves" all_leave
}

for s in held_up again; do scenario $s; done
finish

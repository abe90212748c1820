#!/bin/bash
# SPDX-License-Identifier: MIT
# Signals at any moment, one or several; and disks that are full when something has to be written.
# A process hangs here when it writes to a pipe that nobody reads, and only then.
# A small disk is a mount, which nobody else is to see.
if [ -z "${SIGNALS_MOUNTS:-}" ] && [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
	exec env SIGNALS_MOUNTS=yes unshare -m "$BASH" "$0"
fi
# shellcheck source-path=SCRIPTDIR source=flock_lib.sh
. "${srcdir:-.}/tests/integration/flock_lib.sh"

# has_mask FIELD FILE: SIGHUP, SIGINT and SIGTERM are in that mask of /proc/PID/status.
has_mask() {
	local mask
	mask=$(sed -n "s/^$1:[[:space:]]*//p" "$2" 2>/dev/null)
	[ $((0x0$mask & 0x4003)) = $((0x4003)) ]
}
# Until signals do to this process what they do to dunlin, no more what they do to any program.
takes_signals() {
	local end=$((SECONDS + patience))
	until has_mask SigBlk "/proc/$1/status" || has_mask SigCgt "/proc/$1/status"; do
		[ $SECONDS -lt $end ] && kill -0 "$1" 2>/dev/null || return 1
	done
}

# full_pipe NAME FD: a pipe without room for a single byte, held open.
full_pipe() {
	mkfifo "$dir/$1" && eval "exec $2<>\"$dir/$1\"" && fill_pipe "$1"
}
fill_pipe() {
	dd if=/dev/zero of="$dir/$1" oflag=nonblock bs=4096 2>/dev/null
	dd if=/dev/zero of="$dir/$1" oflag=nonblock bs=1 2>/dev/null
	return 0
}

train() { # train NAME ARGUMENTS...
	"$dunlin" train --config "$dir/$1.json" --out "$dir/$1.run" "${@:2}" \
		>"$dir/$1.out" 2>"$dir/$1.log" </dev/null &
	pid[$1]=$!
	: >"$dir/running/$!"
}

# ---- train, at random moments

moments() {
	local seed=${SEED:-$RANDOM} i
	settings m 1e6 200
	note "the moments are of SEED=$seed"
	RANDOM=$seed
	for i in {1..12}; do
		rm -rf "$dir/m.run"
		# oneDNN's generated code is what a signal may hurt.
		train m --device cpu --deterministic --threads $((i % 2 + 1))
		takes_signals "${pid[m]}" || note "it never took signals"
		sleep "0.$(printf '%03d' $((RANDOM % 500)))"
		if [ "$i" = 12 ]; then
			check "no signal reaches the thread that computes" \
				has_mask SigBlk "/proc/${pid[m]}/task/${pid[m]}/status"
		fi
		signal TERM m
		check "signal $i: exit 0, a whole checkpoint" leaves m || return
	done
}
leaves() { ended "$1" && whole_checkpoint "$1"; }

# ---- the same signal twice

# twice NAME: the second between the signals is what counts, whatever the process does meanwhile; a
# busy machine may make the first one late, so others follow.
twice() {
	local end=$((SECONDS + patience))
	signal TERM "$1"
	sleep 1.1
	while signal INT "$1" 2>/dev/null && [ $SECONDS -lt $end ]; do sleep 0.2; done
	ended "$1" 8
}
later() {
	settings l 1e6
	full_pipe l-events 9
	train l --metrics "$dir/l-events"
	check "training hangs" takes_signals "${pid[l]}"
	check "a second signal, a second later, ends it at once" twice l
	check "and it says so" said l 'stopped at once'

	enter l l0 --metrics "$dir/l-events"
	check "an agent whose learner hangs" ready l0 || return
	check "ends at once, too" twice l0
}

at_once() {
	settings o 1e6
	enter o o0
	check "an agent" ready o0 || return
	check "trains" await o0 -- training.step\>=1
	# Stopped, so that both are there before either is served.
	signal STOP o0
	signal INT o0
	signal TERM o0
	signal CONT o0
	check "a signal that comes twice at once is one" leaves o0
}

# ---- while it starts: the log hangs at a warning about its state

early() {
	local name
	settings e 1e6
	full_pipe e-log 9
	for name in e0 e1; do
		mkdir -m 700 "$dir/$name"
		echo damaged >"$dir/$name/peers.json"
		"$dunlin" agent --name $name --state-dir "$dir/$name" --socket "$dir/$name.sock" \
			--key "$key" --train --listen 127.0.0.1:0 --config "$dir/e.json" \
			--out "$dir/$name.run" --log-format json >"$dir/$name.out" \
			2>"$dir/e-log" </dev/null 9>&- &
		pid[$name]=$!
		: >"$dir/running/$!"
		: >"$dir/$name.log"
		check "$name is starting" takes_signals "${pid[$name]}" || return
	done
	signal HUP e0
	signal TERM e1
	check "SIGTERM ends an agent that is starting" ended e1
	cat <&9 >"$dir/e0.log" &
	: >"$dir/running/$!"
	check "SIGHUP does not" ready e0 || return
	signal TERM e0
	check "what it started is whole" ended e0
}

# ---- a disk without room

disk=$dir/small
fill_disk() { dd if=/dev/zero of="$disk/$1/filler" bs=4096 2>/dev/null; }
on_disk() { # on_disk NAME: a folder with room for some checkpoints.
	mkdir -p "$disk/$1" && mount -t tmpfs -o size=256k,mode=700 none "$disk/$1"
}
# shellcheck disable=SC2317 # called by lib.sh
extra_clean_up() {
	local d
	for d in "$disk"/*/; do umount "$d" 2>/dev/null; done
}

full() {
	local name
	settings f 1e6
	for name in f0 f1; do
		on_disk $name
		enter f $name --out "$disk/$name"
		check "$name" ready $name || return
		check "$name trains" await $name -- training.step\>=1
		fill_disk $name
	done
	signal TERM f0
	check "without room for its last checkpoint an agent ends with 1" ended f0 1
	check "and says why" said f0 'not written to.*small/f0: make room'
	"$dunlin" leave --socket "$dir/f1.sock" >/dev/null 2>&1
	check "also when it is asked to leave" ended f1 1

	settings g 2
	for name in g0 g1; do
		on_disk $name
		fill_disk $name
		enter g $name --out "$disk/$name"
	done
	check "without room for the run's result" await_log 'final.safetensors.*No space' g0
	rm "$disk/g0/filler"
	check "it is tried again" ended g0
	check "until it is written" "$dunlin" inspect "$disk/g0/final.safetensors"
	check "or given up, with 1" ended g1 1
	on_disk h
	settings h 2
	fill_disk h
	check "train ends with 1, too" exits 1 'No space' "$dunlin" train --config "$dir/h.json" \
		--out "$disk/h"
}
exits() { # exits CODE WORDS COMMAND...
	"${@:3}" >"$dir/exits.log" 2>&1
	[ $? = "$1" ] && grep -q "$2" "$dir/exits.log"
}

# Time that is over: the learner hangs, and what it has trained is not written.
slow() {
	settings s 1e6
	mkfifo "$dir/s-events"
	exec 9<>"$dir/s-events"
	enter s s0 --metrics "$dir/s-events" --leave-seconds 1
	check "an agent that will have no time" ready s0 || return
	while read -t "$patience" -r line <&9 && [[ $line != *'"event":"step"'* ]]; do :; done
	check "has made a step" await s0 -- training.step\>=1
	fill_pipe s-events
	signal TERM s0
	check "ends with 1 when --leave-seconds are over" ended s0 1
	check "and says what is missing" said s0 'not written to'
}

for s in moments later at_once early slow; do scenario $s; done
not_full() { echo "ok - a full disk # SKIP to mount a small one wants root"; }
if [ -n "${SIGNALS_MOUNTS:-}" ]; then scenario full; else scenario not_full; fi
finish

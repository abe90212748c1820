#!/bin/bash
# SPDX-License-Identifier: MIT
# guest.sh [SCENARIO...]: PyTorch scripts as guests of real agents. They train together and end in
# agreement, keep their sum, are killed at messages, hang, lose their agent, have numbers that are
# none; and somebody sends what no script sends. TAP.
# Needs PyTorch: Debian's python3-torch, or PYTHON= of an environment that has it.
# shellcheck source-path=SCRIPTDIR source=lib.sh
python=${PYTHON:-}
for p in ${python:-python3 /usr/bin/python3}; do
	python=$p
	! why=$("$p" -c 'import sys, torch; assert sys.version_info >= (3, 9)' 2>&1) || break
done
if [ -n "$why" ]; then
	echo "1..0 # SKIP $python (python3-torch, or PYTHON=): ${why##*$'\n'}"
	exit 0
fi
. "${srcdir:-.}/tests/integration/lib.sh"
here=$(realpath "${srcdir:-.}") || exit 99
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
new_key "$dir/flock.key" || exit 99
train=train
declare -A script
more=()

# host NAME SEED-OPTIONS...: an agent that waits for a script.
host() {
	begin "$1" --listen 127.0.0.1:0 --guest --run "${1%%[0-9]*}" --out "$dir/$1.run" \
		--merge-seconds 40 --stay-seconds 1 --leave-seconds 10 "${more[@]}" "${@:2}"
}
# attach NAME NAME=VALUE...: its script; or the example, with its arguments.
attach() {
	# The agent has its socket when it listens there.
	until [ -S "$dir/$1.guest" ] || ! kill -0 "${pid[$1]}" 2>/dev/null; do sleep 0.02; done
	if [ "$2" = example ]; then
		set -- "$1" "$here/deploy/examples/fashion.py" --agent "$dir/$1.guest" "${@:3}"
	else
		set -- "$1" "$here/tests/integration/guest_train.py" "$here/deploy/python" \
			"$dir/$1.guest" "${@:2}"
	fi
	PYTHONPATH=$here/deploy/python "$python" "${@:2}" >"$dir/$1.script" 2>&1 </dev/null &
	script[$1]=$!
	: >"$dir/running/$!"
}
# both NAME SEED-OF OPTIONS...: an agent, seeded by the other one unless that is "", and its script.
both() {
	host "$1" ${2:+--seed "127.0.0.1:${port[$2]##*:}"} && attach "$1" "${@:3}" && ready "$1"
}
# over NAME [CODE]: its script ends so.
over() {
	local code p=${script[$1]}
	wait "$p"
	code=$?
	rm -f "$dir/running/$p"
	[ $code = "${2:-0}" ] && return
	echo "the script of $1: code $code"
	cat "$dir/$1.script"
	return 1
}
# told NAME PATTERN: until its script has said that.
told() {
	local end=$((SECONDS + patience))
	until grep -qE -e "$2" "$dir/$1.script"; do
		if [ $SECONDS -ge $end ] || ! kill -0 "${script[$1]}" 2>/dev/null; then break; fi
		sleep 0.05
	done
	grep -qE -e "$2" "$dir/$1.script" || { cat "$dir/$1.script" && return 1; }
}
# holds EXPRESSION NAME...: of python, with what the scripts said: s[i]["finished"]["merges"], …
holds() {
	local expression=$1
	shift
	"$python" - "$expression" "${@/#/$dir/}" <<'END'
import json, sys
s = []
for name in sys.argv[2:]:
    s.append({})
    for line in open(name + ".script"):
        if line.startswith("{"):
            said = json.loads(line)
            first = next(iter(said))
            s[-1][first] = said
            said.update(said.pop(first))
if not eval("(" + sys.argv[1] + ")"):
    sys.exit(f"{sys.argv[1]}\n" + "\n".join(map(str, s)))
END
}

# Three whose weights begin apart train on to the end of the run: one model, better than a guess,
# and the storage of their parameters is where it was.
three() {
	local name more=(--gate every --every 8)
	both t0 "" seed=1 budget=100000 evaluate=1 check=1 || return
	both t1 t0 seed=2 budget=100000 evaluate=1
	both t2 t0 seed=3 budget=100000
	check "three scripts end" eval 'over t0 && over t1 && over t2'
	for name in t0 t1 t2; do check "$name: its agent too" ended $name; done
	check "late ones took the first one's weights" \
		holds 's[0]["attached"]["adoptions"] == 0 and s[1]["attached"]["adoptions"] == 1 and
			s[2]["attached"]["adoptions"] == 1' t0 t1 t2
	check "they exchanged" holds 'all(x["finished"]["merges"] >= 10 for x in s)' t0 t1 t2
	check "the run is theirs together" \
		holds '100000 <= sum(x["finished"]["samples"] for x in s) < 120000 and
			all(x["finished"]["samples"] < 90000 for x in s)' t0 t1 t2
	check "they finished, and agree" \
		holds 'all(x["finished"]["finished"] for x in s) and
			max(x["finished"]["length"] for x in s) -
			min(x["finished"]["length"] for x in s) < 1e-3' t0 t1 t2
	check "the model is good" holds 'all(x["finished"]["accuracy"] > 70 for x in s)' t0 t1 t2
	check "no parameter has moved in memory" \
		holds 'all(x["finished"]["stayed"] for x in s)' t0 t1 t2
	check "the weights are written" "$dunlin" inspect "$dir/t0.run/final.safetensors"
}

# With rate 0 the sum over all stays, whatever they exchange: parameters are told as bf16 and are
# fp32, so that only the rounding of an addition is left.
still() {
	local name more=(--gate every --every 4)
	both r0 "" seed=1 budget=400000 still=1 pause_ms=0 || return
	both r1 r0 seed=2 budget=400000 still=1 pause_ms=0
	both r2 r0 seed=3 budget=400000 still=1 pause_ms=0
	check "three that do not learn end" eval 'over r0 && over r1 && over r2'
	check "they exchanged a lot" \
		holds 'sum(x["finished"]["merges"] for x in s) >= 300' r0 r1 r2
	check "and have one sum" \
		holds 'abs(sum(x["finished"]["sum"] for x in s) -
			sum(x["attached"]["sum"] for x in s)) < 1e-4' r0 r1 r2
	check "which has moved each of them" \
		holds 'all(abs(x["finished"]["sum"] - x["attached"]["sum"]) > 0.1 for x in s)' \
		r0 r1 r2
	for name in r0 r1 r2; do check "$name ends" ended $name; done
}

# Killed before and after each request, once with others that hold the socket: the agent says
# goodbye, and the others train on.
killed() {
	local name step
	both k0 "" seed=1 budget=1000000000 || return
	both k1 k0 seed=2 budget=1000000000 die_at=before-2 fork=2
	both k2 k0 seed=3 budget=1000000000 die_at=after-2
	both k3 k0 seed=4 budget=1000000000 die_at=after-1
	host k4 --seed "127.0.0.1:${port[k0]##*:}"
	attach k4 seed=5 budget=1000000000 die_at=before-5
	for name in k1 k2 k3 k4; do check "$name: the script is killed" over $name 137; done
	for name in k1 k2 k3 k4; do check "$name: its agent says goodbye" ended $name; done
	for name in k1 k2 k3; do
		check "k0 has heard of $name" await k0 -- "${id[$name]}:state=left"
	done
	check "k0 is paused" "$dunlin" pause --socket "$dir/k0.sock"
	check "and waits" await k0 -- training.phase=paused
	step=$(get k0 training.step)
	both k5 k0 seed=6 budget=1000000000
	check "a fresh one joins by its state" await k5 -- training.joined=true training.step\>=20
	check "meanwhile k0 has trained nothing" [ "$(get k0 training.step)" -le $((step + 1)) ]
	check "k0 goes on" "$dunlin" resume --socket "$dir/k0.sock"
	check "and trains" await k0 -- training.step\>=$((step + 20))
	check "and they exchange" await k5 -- exchanges.outcomes.exchanged\>=3
	kill -USR1 "${script[k5]}"
	check "leaves early" over k5
	check "and its agent with it" ended k5
	kill -TERM "${script[k0]}"
	check "k0 trained all the time" ended k0
}

# The agent is killed and comes back; then the script hangs for a while, and has numbers that are
# none.
broken() {
	both b0 "" seed=1 budget=1000000000 || return
	before=(DUNLIN_TEST_STALL_MS=700)
	both b1 b0 seed=2 budget=1000000000 pause_ms=1 stop_at=1500 nan_at=2000
	before=()
	check "two exchange" await b1 -- exchanges.outcomes.exchanged\>=3
	check "one agent is killed" crash b1
	check "its script is told, and trains on" told b1 'log the agent is gone'
	before=(DUNLIN_TEST_STALL_MS=700)
	host b1 --seed "127.0.0.1:${port[b0]##*:}"
	before=()
	check "an agent is there again" ready b1
	check "the script has found it" told b1 'log the agent is there again'
	check "they exchange again" await b1 -- exchanges.outcomes.exchanged\>=1 training.step\>=100
	check "the script is stopped" told b1 '"stopping"'
	check "its agent says that it hangs" await_log 'stalled: the training script' b1
	check "and takes no offers" await b1 -- training.phase=paused
	kill -CONT "${script[b1]}"
	check "it goes on" await b1 -- training.phase=training
	check "numbers that are none are refused" await_log 'not finite' b1
	check "the script is told" told b1 'log .*not finite'
	check "they do not reach the other" not_said b0 quarantine
	kill -TERM "${script[b0]}" "${script[b1]}"
	check "all end" eval 'ended b0 && ended b1'
}

# As nobody, where we are root; else there is none to try.
another_user() {
	if [ "$(id -u)" != 0 ] || [ ! -x /usr/bin/python3 ]; then return 0; fi
	chmod 711 "$dir"
	chmod 666 "$1"
	setpriv --reuid 65534 --clear-groups /usr/bin/python3 -I -c '
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.settimeout(20)
s.connect(sys.argv[1])
answer = s.recv(4096)
sys.exit(0 if b"another user" in answer else str(answer))' "$1"
}

# Whoever comes to the socket and is no script is refused, and a real one still gets in.
hostile() {
	host h0
	until [ -S "$dir/h0.guest" ]; do sleep 0.02; done
	check "what no script says is refused" "$python" - "$here/deploy/python/dunlin_flock" \
		"$dir/h0.guest" <<'END'
import os, random, socket, struct, sys
sys.path.insert(0, sys.argv[1])
import wire

def hello(n=1, total=1000, run=""):
    return wire.hello(1, 3, False, n, total, 32, 0, 0, 0, 0.1, 0.9, run, "x")

def come(*messages):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(20)
    s.connect(sys.argv[2])
    try:
        for m in messages:
            s.send(m)
    except OSError:
        pass
    try:
        answer = s.recv(4096)
    except ConnectionResetError:  # it has not read all
        answer = s.recv(4096)
    assert answer and answer[0] == wire.REFUSED, answer
    return wire.read(answer)[1][1]

rng = random.Random(1)
print(come(b"\0"), come(rng.randbytes(100)), come(hello(), b"\x02"), sep="\n")
print(come(hello(n=70000)))
assert "run" in come(hello(run="another"), *wire.tensors([(0, "w", (2, 2))]))
assert "large" in come(hello(), *wire.tensors([(0, "w", (1 << 40, 1 << 40))]))
assert "machine" in come(hello(), *wire.tensors([(0, "w", (1 << 16, 1 << 17))]))
assert "32768" in come(rng.randbytes(40000))
for _ in range(40):  # one byte is another
    b = bytearray(hello(n=2) if rng.random() < 0.5 else next(wire.tensors([(0, "w", (2, 2))])))
    b[rng.randrange(len(b))] ^= 1 << rng.randrange(8)
    come(bytes(b), b"", rng.randbytes(rng.randrange(60)))
END
	check "its socket is the user's alone" [ "$(stat -c %a "$dir/h0.guest")" = 600 ]
	check "another user is refused, even if it could come" another_user "$dir/h0.guest"
	attach h0 seed=1 budget=1600 evaluate=1
	check "a script is served" over h0
	check "and its run ended" holds 's[0]["finished"]["finished"] and
		s[0]["finished"]["adoptions"] == 0' h0
	check "the agent ends" ended h0
}

# What is in deploy/examples works, at a small size. Alone: a second one would have to load PyTorch
# before the first has made its few steps.
example() {
	local small=(--images 1600 --tests 300 --epochs 2 --batch 32)
	if [ ! -e /usr/share/datasets/fashion-mnist ]; then
		echo "ok - the example # SKIP dataset-fashion-mnist is not installed"
		return
	fi
	both e0 "" example "${small[@]}" || return
	check "the example ends" over e0
	check "and has learned" told e0 '[3-9][0-9]\.[0-9]* % after merging'
	check "its agent ends" ended e0
}

[ $# -gt 0 ] || set -- three still killed broken hostile example
for s; do scenario "$s"; done
finish

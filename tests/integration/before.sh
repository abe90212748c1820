#!/bin/bash
# SPDX-License-Identifier: MIT
# What is asked before an agent starts, or without knowing which one: `agent --dry-run`, `plan` and
# `ls`, against real agents.
# shellcheck source-path=SCRIPTDIR source=flock_lib.sh
. "${srcdir:-.}/tests/integration/flock_lib.sh"

# field NAME FILE: the number or text of that name, in one line of JSON.
field() { sed -E "s/.*\"$1\":\"?([^,\"}]*).*/\1/" "$2"; }

# rehearse CODE PATTERN ARGUMENTS...: a start that is only tried ends so, and says so.
rehearse() {
	local code=$1 pattern=$2 got out=$dir/rehearse.$BASHPID
	shift 2
	"$dunlin" agent --dry-run --config "$dir/d.json" --name new --state-dir "$dir/new" \
		--socket "$dir/new.sock" --key "$dir/flock.key" --listen 127.0.0.1:0 "$@" \
		>"$out" 2>&1
	got=$?
	cat "$out"
	[ $got = "$code" ] && grep -qE "$pattern" "$out" && [ ! -e "$dir/new" ] &&
		[ ! -e "$dir/new.sock" ]
}
listing() { find "$dir/d0" "$dir/d0.run" -printf '%p %T@ %s %m\n' | sort; }

dry_run() {
	settings d 1e6
	check "a start is tried" rehearse 0 'all checks passed; nothing was bound or written'
	check "as JSON" rehearse 0 '"ok":true.*"id":null.*"run_samples":2000000000' --json
	check "a setting that is wrong" rehearse 3 'agent.owner: ' --owner nonsense
	cp "$dir/flock.key" "$dir/open.key" && chmod 644 "$dir/open.key"
	check "a key that others can read" rehearse 3 'chmod 600' --key "$dir/open.key"
	check "data that are not there" rehearse 4 'nowhere' --train-images "$dir/nowhere"
	check "a device that is not there" rehearse 7 'nonsense' --device nonsense
	check "an owner, and no certificate" rehearse 3 'ask the owner for an invite' \
		--owner "$("$dunlin" keygen --owner --out "$dir/d.owner" | tail -1)"
	enter d d0
	check "an agent" ready d0 || return
	check "its port" rehearse 1 'is in use' --listen "127.0.0.1:${port[d0]}"
	check "its port for all addresses" rehearse 1 'is in use' --listen ":${port[d0]}"
	check "its state" rehearse 1 'another agent runs with this state' --state-dir "$dir/d0"
	check "its results" rehearse 1 'folder of results' --out "$dir/d0.run"
	check "it writes a checkpoint" "$dunlin" checkpoint --socket "$dir/d0.sock"
	signal TERM d0
	check "it leaves" ended d0
	listing >"$dir/before"
	check "its state and checkpoint are found" rehearse 0 "from .*/d0.run/checkpoint-" \
		--state-dir "$dir/d0" --out "$dir/d0.run"
	check "those of another model are not taken" rehearse 5 'model|differ' --model mlp \
		--state-dir "$dir/d0" --out "$dir/d0.run"
	listing >"$dir/after"
	check "nothing there has changed" diff "$dir/before" "$dir/after"
}

# What it tells is what an agent then has.
plan() {
	local p=$dir/plan.json
	settings p 1e4
	check "a plan" "$dunlin" plan --config "$dir/p.json" --agents 4 --bandwidth 10 --json
	"$dunlin" plan --config "$dir/p.json" --agents 4 --bandwidth 10 --json >"$p"
	enter p p0
	check "an agent" ready p0 || return
	check "has as many parameters" test "$(field parameters "$p")" = \
		"$(get p0 training.parameters)"
	check "it makes steps" await p0 -- training.step\>=100
	"$dunlin" ledger --socket "$dir/p0.sock" --max 1 --json >"$dir/ledger.json"
	check "and saves as many bytes by each" test "$(field saved "$dir/ledger.json")" = \
		$(($(field steps "$dir/ledger.json") * $(field exchange_bytes "$p")))
	check "and its run has as many samples" test "$(field run_samples "$p")" = \
		"$(get p0 training.total)"
	check "which are so many steps of four agents" test "$(field steps "$p")" = 156250
	check "words for people" grep -qE '^run +20000000 samples: 312500 steps for each of 2' \
		<("$dunlin" plan --config "$dir/p.json")
	check "adamw takes one vector more" test $((2 * $(field optimizer "$p"))) = \
		"$("$dunlin" plan --config "$dir/p.json" --optimizer adamw --json |
			field optimizer -)"
	check "steps of 10 ms make hours" grep -q '"exchanges_hour":72000,' \
		<("$dunlin" plan --config "$dir/p.json" --gate every --every 10 --step-ms 10 --json)
	check "without them nothing is made up" grep -q '"exchanges_hour":null,' \
		<("$dunlin" plan --config "$dir/p.json" --gate every --every 10 --json)
	"$dunlin" plan --config "$dir/p.json" --bandwidth -3 2>/dev/null
	check "a bandwidth that is none" test $? = 2
	check "all leave" all_leave
}

listed() { # NAME RUN PHASE SOCKET
	local agent="\"name\":\"$1\",\"run\":\"$2\",\"phase\":\"$3\""
	"$dunlin" ls --json | tee "$dir/said.ls" | tr '{' '\n' |
		grep -q "$agent,\"pid\":[0-9]*,\"socket\":\"$4\"" ||
		{ cat "$dir/said.ls" && false; }
}
list() {
	settings l 1e6
	enter l l0
	check "an agent" ready l0 || return
	train='' start l1
	cd "$dir" || return
	"$dunlin" agent --name l2 --state-dir "$dir/l2" --socket l2.sock --no-train \
		--key "$dir/flock.key" --listen 127.0.0.1:0 >l2.out 2>l2.log </dev/null &
	pid[l2]=$! && : >"$dir/running/$!"
	check "one with a relative socket" ready l2 || return
	check "the first is listed" listed l0 l training "$dir/l0.sock"
	check "one that does not train" listed l1 '' membership "$dir/l1.sock"
	check "the relative one" listed l2 '' membership "/proc/${pid[l2]}/cwd/l2.sock"
	check "for people" grep -qE "^l0 +l +training +${pid[l0]}  $dir/l0.sock$" <("$dunlin" ls)
	signal TERM l1
	check "one leaves" ended l1
	"$dunlin" ls --json >"$dir/later.ls"
	check "and is not listed" not_listed
	check "all leave" all_leave
}
not_listed() { ! grep -F "$dir/l1.sock" "$dir/later.ls"; }

for s in dry_run plan list; do scenario $s; done
finish

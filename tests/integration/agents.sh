#!/bin/bash
# SPDX-License-Identifier: MIT
# Real agents on loopback: they find each other, notice who is gone and who is back, and say clearly
# why somebody is not let in.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "${srcdir:-.}/tests/integration/lib.sh"

new_key "$dir/flock.key" || exit 99
new_key "$dir/other.key" || exit 99

# ---- sixteen agents, and most of what can happen to them

flock() {
	local i all=(a1) seed joins
	check "a first agent" start a0 || return
	seed=127.0.0.1:${port[a0]}
	eval "joins=($(sed -n 's/^join from elsewhere:  dunlin agent //p' "$dir/a0.out"))"
	key='' begin a1 --listen 127.0.0.1:0 "${joins[@]}"
	check "a second, started by the line that the first has printed" ready a1
	check "joins it" await a1 a0 -- peers.alive=1
	for i in {2..15}; do begin "a$i" --listen 127.0.0.1:0 --seed "$seed" && all+=("a$i"); done
	check "14 more" ready "${all[@]}"
	check "16 agents find each other through one seed" await a0 "${all[@]}" -- peers.alive=15

	# One stands still; meanwhile others crash.
	local stopped=$SECONDS rest=(a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 a10 a11 a12)
	signal STOP a15
	crash a14
	crash a13
	check "everybody notices two crashes and one that stands still" \
		await "${rest[@]}" -- "${id[a13]}:state=dead" "${id[a14]}:state=dead" \
		"${id[a15]}:state=dead" peers.alive=12
	check "and says so" await_log "$(of failed a15)" "${rest[@]}"

	local old=${id[a13]} old14=${id[a14]} generation
	generation=$(get a0 "$old:generation")
	begin a13 --listen 127.0.0.1:0 --seed "$seed"
	rm -r "$dir/a14"
	begin a14 --listen 127.0.0.1:0 --seed "$seed"
	check "two start again, one without its state" ready a13 a14
	check "with its state it is the same" test "${id[a13]}" = "$old"
	check "without, another" test "${id[a14]}" != "$old14"
	check "everybody knows both, and not the one that is gone" \
		await "${rest[@]}" -- "$old:state=alive" "$old:generation>=$((generation + 1))" \
		"${id[a14]}:state=alive" "$old14:state=dead" peers.alive=14

	# The time that it stands still for is what is tested here.
	while [ $SECONDS -lt $((stopped + 30)) ]; do sleep 0.2; done
	signal CONT a15
	check "after 30 s of standing still it is back everywhere" \
		await "${rest[@]}" a13 a14 -- "${id[a15]}:state=alive" peers.alive=15
	check "it knows that it stood still" await_log '"msg":"time-jump' a15
	check "and sees everybody" await a15 -- peers.alive=15

	rest+=(a13 a14 a15)
	check "one is asked to leave" "$dunlin" leave --socket "$dir/a12.sock"
	check "its process ends" ended a12
	unset 'rest[12]'
	check "everybody knows that it left" await "${rest[@]}" -- "${id[a12]}:state=left"
	check "by its own word" none_said "$(of '(suspect|failed)' a12)" "${rest[@]}"

	# Nobody is needed: not the seed either.
	crash a0
	unset 'rest[0]'
	check "the seed is dead, and everybody knows" \
		await "${rest[@]}" -- "${id[a0]}:state=dead" peers.alive=13
	crash a11
	unset 'rest[11]'
	check "without a seed the next crash is noticed alike" \
		await "${rest[@]}" -- "${id[a11]}:state=dead" peers.alive=12
	signal TERM a10
	check "another leaves" ended a10
	begin a10 --listen 127.0.0.1:0 --seed "$seed"
	check "a dead seed keeps nobody out who knows the others" ready a10
	check "everybody has it back" await "${rest[@]}" -- peers.alive=12 peers.left=1
	begin a16 --listen 127.0.0.1:0 --seed "127.0.0.1:${port[a5]}"
	check "and any agent is a seed" ready a16
	check "to the whole flock" await a16 "${rest[@]}" -- peers.alive=13
	check "all leave, with code 0" all_leave
}

# ---- one state directory, one key

lock() {
	check "the owner of a state directory" start l0 || return
	state=$dir/l0 begin l1 --listen 127.0.0.1:0
	check "a second agent in it ends with an error" fails l1
	check "that says what to do" said l1 '--name'
	check "the first lives on" await l0 -- peers.alive=0
	check "and leaves" all_leave
}

same_key() {
	check "an agent" start k0 || return
	check "leaves its state behind" all_leave
	cp -a "$dir/k0" "$dir/k1"
	check "a peer of both" start k2
	check "two agents with one key" start k0 --seed "127.0.0.1:${port[k2]}"
	check "start" start k1 --seed "127.0.0.1:${port[k2]}"
	# The news of a raised generation may have to wait for a whole-state exchange, and twice.
	check "both are told that it was copied, and what to do" await_log \
		'"msg":"same-key .* identity was copied, .* remove identity.key' k0 k1
	crash k1
	check "when one is gone the other is alive" await k2 -- "${id[k0]}:state=alive"
	check "the rest leave" all_leave
}

# ---- nobody can dial some of them

undialable() {
	check "an agent that can be dialled" start u0 || return
	local seed=127.0.0.1:${port[u0]}
	for i in 1 2 3; do begin "u$i" --listen 127.0.0.1:0 --seed "$seed" --no-dialable; done
	check "three that cannot" ready u1 u2 u3
	check "they all see each other" await u0 u1 u2 u3 -- peers.alive=3 peers.suspect=0
	check "and say what they are" await u0 u2 u3 -- "${id[u1]}:dialable=false"
	crash u3
	check "one that crashes is missed" await u0 u1 u2 -- "${id[u3]}:state=dead"
	check "the others are not" await u0 u1 u2 -- peers.alive=2
	check "nor were they for a moment" none_said "$(of failed u1)" u0 u2
	check "they leave" all_leave
}

# ---- versions

versions() {
	before=(DUNLIN_TEST_PROTOCOL=1-1)
	check "an agent of protocol 1" start v1 || return
	before=(DUNLIN_TEST_PROTOCOL=2-2)
	check "one of protocol 2 that seeks the first" start v2 --seed "127.0.0.1:${port[v1]}"
	check "is refused, in words" await_log 'protocol.*upgrade' v2
	before=(DUNLIN_TEST_PROTOCOL=1-2)
	check "one of both" start v12 --seed "127.0.0.1:${port[v1]}" \
		--seed "127.0.0.1:${port[v2]}"
	before=()
	check "talks with both" await v12 -- "${id[v1]}:state=alive" "${id[v2]}:state=alive"
	check "and both with it" await v1 v2 -- "${id[v12]}:state=alive"
	check "all three are one flock" await v1 v2 v12 -- peers.alive=2
	check "all leave" all_leave
}

# ---- what a dialler says that is not let in

refusals() {
	check "an agent" start r0 || return
	local seed=127.0.0.1:${port[r0]}
	check "one of another flock" start_stranger r1 --seed "$seed"
	check "is told what silence means" await_log 'wrong key.*compare the key files' r1
	check "one that leaves" start r2
	local gone=${port[r2]}
	signal TERM r2
	check "leaves" ended r2
	check "a port where nobody listens" start r3 --seed "127.0.0.1:$gone"
	check "is told from that" await_log "127.0.0.1:$gone: connection refused.*check the port" r3
	check "a name that is none" start r4 --seed "no-such-host.invalid:13865"
	check "is told too" await_log 'no-such-host.invalid.*cannot be resolved' r4
	check "a stranger is nobody's peer" await r0 r1 r3 -- peers.alive=0
	check "all leave" all_leave
}

# ---- lists

lists() {
	: >"$dir/block"
	check "an agent with a block-list" start b0 --block "$dir/block" || return
	local seed=127.0.0.1:${port[b0]}
	check "a peer" start b1 --seed "$seed"
	check "another" start b2 --seed "$seed"
	check "they are together" await b0 b1 b2 -- peers.alive=2
	check "with a session" await b0 -- "${id[b1]}:connected=true"
	echo "not an id" >"$dir/block"
	signal HUP b0
	check "a broken list changes nothing" await_log 'block.*line 1' b0
	check "the session stands" await b0 -- "${id[b1]}:connected=true" "${id[b1]}:state=alive"
	echo "${id[b1]} # b1" >"$dir/block"
	signal HUP b0
	check "a list that names a peer cuts its session" await b0 -- "${id[b1]}:connected=false"
	check "it is told why" await_log 'not on (my|the) list|block' b1
	check "what another says of it is not heard" await b0 -- net.news_forbidden\>=1 \
		"${id[b1]}:state=dead"
	check "others are not touched" await b0 -- "${id[b2]}:state=alive"
	# With whom a session is made is chance while there is a choice.
	signal TERM b2
	check "one of them leaves" ended b2
	: >"$dir/block"
	signal HUP b0
	check "taken off the list the other comes back" await b0 -- \
		"${id[b1]}:state=alive" "${id[b1]}:connected=true"
	echo "${id[b1]}" >"$dir/allow"
	check "an agent with an allow-list" start b3 --allow "$dir/allow" \
		--seed "127.0.0.1:${port[b1]}"
	check "has a session with who is on it" await b3 -- "${id[b1]}:connected=true"
	check "one that is not" start b4 --seed "127.0.0.1:${port[b3]}"
	check "is told so" await_log 'not on my list' b4
	check "another, whom its peer knows" start b5 --seed "127.0.0.1:${port[b1]}"
	check "its peer does" await b1 -- "${id[b5]}:state=alive"
	check "is not heard of" await b3 -- net.news_forbidden\>=1
	check "nor is the first" none_said "$(of joined b4)|$(of joined b5)" b3
	check "all leave" all_leave
}

start_stranger() { key=$dir/other.key start "$@"; }
none_said() { # none_said PATTERN NAME...
	local name bad=0
	for name in "${@:2}"; do not_said "$name" "$1" || bad=1; done
	return $bad
}
fails() { # fails NAME: it ends by itself, and not well.
	! ended "$1" 0 >/dev/null
}

for s in flock lock same_key undialable versions refusals lists; do scenario $s; done
finish

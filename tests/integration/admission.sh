#!/bin/bash
# SPDX-License-Identifier: MIT
# A flock with an owner: agents with a certificate train together; the secret alone, another owner's
# invite, too many agents of one invite, an expired or a revoked certificate make no member.
# shellcheck source-path=SCRIPTDIR source=flock_lib.sh
. "${srcdir:-.}/tests/integration/flock_lib.sh"

# owner NAME: a new owner's key; its public half is in ${owner[NAME]}.
declare -A owner
owner() {
	owner[$1]=$("$dunlin" keygen --owner --out "$dir/$1.owner" | tail -1)
	[ -n "${owner[$1]}" ]
}
# invite OWNER LABEL AGENTS [DATE [FLAGS...]]
invite() {
	rm -f "$dir/$2.invite"
	"$dunlin" certify --owner-key "$dir/$1.owner" --label "$2" --agents "$3" \
		--expires "${4:-2099-12-31}" --out "$dir/$2.invite" "${@:5}" >/dev/null
}
owner o && owner x || exit 99
train='' # but for those of a run
o=(--owner "${owner[o]}")

# refuses NAME PATTERN ARGUMENTS...: such an agent ends with code 3, and says so.
refuses() {
	local name=$1 pattern=$2
	shift 2
	begin "$name" --listen 127.0.0.1:0 "$@"
	ended "$name" 3 && said "$name" "$pattern"
}

# Two of them train; one has only the secret, and one another owner's invite.
trains() {
	invite o lab 3 && invite x foreign 3
	settings t 1e6
	local train=train
	enter t t0 "${o[@]}" --invite "$dir/lab.invite"
	check "an agent with a certificate" ready t0 || return
	enter t t1 --seed "$(seed_of t0)" "${o[@]}" --invite "$dir/lab.invite"
	check "another" ready t1 || return
	check "exchange parameters" await t0 t1 -- exchanges.outcomes.exchanged\>=5
	train=''
	check "an agent with the secret alone" start t2 --seed "$(seed_of t0)" || return
	check "hears why it is no member" await_log 'no certificate of this flock' t2
	check "one with another owner's invite" start t3 --seed "$(seed_of t0)" \
		--owner "${owner[x]}" --invite "$dir/foreign.invite" || return
	check "takes nobody, and says why" await_log 'not admitted: no certificate of this flock' t3
	local n
	n=$(get t0 exchanges.outcomes.exchanged)
	check "the others go on" await t0 -- exchanges.outcomes.exchanged\>=$((n + 5))
	check "and know one peer, no more" await t0 t1 -- peers.alive=1 peers.dead=0
	check "neither was ever one" not_said t0 "$(of joined t2)|$(of joined t3)"
	check "all leave" all_leave
}

# An invite states what its agents may train: who is faster counts for no more.
rated() {
	invite o fast 1 && invite o slow 1 2099-12-31 --rate 10
	settings q 4000
	local train=train
	enter q q0 "${o[@]}" --invite "$dir/fast.invite"
	check "an agent without a stated rate" ready q0 || return
	enter q q1 --seed "$(seed_of q0)" "${o[@]}" --invite "$dir/slow.invite"
	check "one with a rate of 10 samples a second" ready q1 || return
	check "is faster, and told to be capped" await_log "$(of capped q1)" q0
	check "the other one is not" not_said q1 "$(of capped q0)"
	check "all leave" all_leave
}

# What is wrong with an agent's own certificate is told before it is heard by anybody.
own() {
	invite o own 1 && invite x strange 1
	check "no invite" refuses n0 'ask the owner for an invite' "${o[@]}"
	check "an invite of another owner" refuses n1 'is forged, or another owner' "${o[@]}" \
		--invite "$dir/strange.invite"
	check "no owner" refuses n2 'needs the owner.s public key' --invite "$dir/own.invite"
	check "an owner that is none" refuses n3 'agent.owner: ' --owner dunlin-owner-1:abc
	chmod 644 "$dir/strange.invite"
	check "an invite that others can read" refuses n4 'chmod 600' "${o[@]}" \
		--invite "$dir/strange.invite"
	"$dunlin" revoke own --owner-key "$dir/o.owner" --out "$dir/own.revoked" >/dev/null
	check "a revoked label" refuses n5 'is revoked by the owner' "${o[@]}" \
		--invite "$dir/own.invite" --revoked "$dir/own.revoked"
	"$dunlin" revoke own --owner-key "$dir/x.owner" --out "$dir/x.revoked" >/dev/null
	check "another owner's list" refuses n6 'not signed by this owner' "${o[@]}" \
		--invite "$dir/own.invite" --revoked "$dir/x.revoked"
	check "an agent" start n7 "${o[@]}" --invite "$dir/own.invite" || return
	signal TERM n7
	check "leaves" ended n7
	check "and needs no invite when it is back" start n7 "${o[@]}"
	check "all leave" all_leave
}

# A member whose invite ends is dropped, and cannot start again.
expires() {
	local life
	invite o long 2
	check "an agent" start e0 "${o[@]}" --invite "$dir/long.invite" || return
	for life in 5 15 45 135; do # a busy machine needs long for the beginning
		is_member_for $life && break
	done
	check "one with an invite that ends soon is a member" test $life != 135
	check "until its end" await e0 -- "${id[e1]}:state=dead" peers.alive=0
	check "it is told" await_log 'not a member any more: the certificate has expired' e1
	crash e1
	check "and does not start again" refuses e1 'label brief has expired' "${o[@]}"
	check "nor does a new one" refuses e2 'label brief has expired' "${o[@]}" \
		--invite "$dir/brief.invite"
	check "all leave" all_leave
}

is_member_for() {
	invite o brief 1 "$(date -u -d "@$(($(date +%s) + $1))" +%Y-%m-%dT%H:%M:%SZ)"
	begin e1 --listen 127.0.0.1:0 --seed "127.0.0.1:${port[e0]}" "${o[@]}" \
		--invite "$dir/brief.invite"
	patience=$1 ready e1 2>/dev/null &&
		patience=$1 await e0 -- "${id[e1]}:state=alive" 2>/dev/null && return
	kill -KILL "${pid[e1]}" 2>/dev/null
	wait "${pid[e1]}"
	rm -rf "$dir/running/${pid[e1]}" "$dir/e1"
	return 1
}

# A list that one agent has is soon everybody's, and stays.
revoked() {
	local seed
	invite o many 9
	check "an agent" start r0 "${o[@]}" --invite "$dir/many.invite" || return
	seed=127.0.0.1:${port[r0]}
	"$dunlin" revoke "$(printf '%064d' 1)" --owner-key "$dir/o.owner" --out "$dir/list" \
		>/dev/null
	check "one with a list" start r1 --seed "$seed" "${o[@]}" --invite "$dir/many.invite" \
		--revoked "$dir/list" || return
	check "two more" start r2 --seed "$seed" "${o[@]}" --invite "$dir/many.invite" || return
	check "and one" start r3 --seed "$seed" "${o[@]}" --invite "$dir/many.invite" || return
	check "find each other" await r0 r1 r2 r3 -- peers.alive=3
	"$dunlin" revoke "${id[r3]}" --owner-key "$dir/o.owner" --out "$dir/list" >/dev/null
	signal HUP r1
	check "one is revoked: nobody has it any more" \
		await r0 r1 r2 -- "${id[r3]}:state=dead" peers.alive=2
	check "it hears so" await_log 'revoked by the owner' r3
	check "the list is kept" await_file "$dir/r2/revoked"
	cp "$dir/list" "$dir/list.old" && rm "$dir/list"
	"$dunlin" revoke "${id[r3]}" "$(printf '%064d' 2)" --owner-key "$dir/o.owner" \
		--out "$dir/list" >/dev/null
	signal HUP r1
	check "a list that was begun anew is passed on" await_list r2
	cp "$dir/list.old" "$dir/list"
	signal HUP r1
	check "an older one is told" await_log 'is not in force, since a later one' r1
	crash r3
	check "its own folder has it too, or its peers tell it" start_or_refused r3 "$seed"
	check "the others stay as they are" await r0 r1 r2 -- peers.alive=2
	check "all leave" all_leave
}
await_file() {
	local end=$((SECONDS + patience))
	until [ -s "$1" ]; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.05
	done
}
# await_list NAME: until it has kept the owner's newest list.
await_list() {
	local end=$((SECONDS + patience))
	until cmp -s "$dir/list" "$dir/$1/revoked"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.05
	done
}
start_or_refused() {
	begin "$1" --listen 127.0.0.1:0 --seed "$2" "${o[@]}"
	await_log 'revoked by the owner' "$1" || return
	kill -KILL "${pid[$1]}" 2>/dev/null
	wait "${pid[$1]}"
	rm -f "$dir/running/${pid[$1]}"
	unset "pid[$1]"
}

# Of six agents with an invite for three, three count, for all of them the same: the lowest ids.
sybils() {
	local i all=() low seed
	invite o few 3 && invite o base 1
	check "an agent" start s0 "${o[@]}" --invite "$dir/base.invite" || return
	seed=127.0.0.1:${port[s0]}
	for i in 1 2 3 4 5 6; do
		begin "s$i" --listen 127.0.0.1:0 --seed "$seed" "${o[@]}" --invite "$dir/few.invite"
		all+=("s$i")
	done
	check "six with an invite for three" ready "${all[@]}" || return
	low=$(for i in "${all[@]}"; do echo "${id[$i]} $i"; done | sort | head -3)
	mapfile -t low < <(cut -d' ' -f2 <<<"$low")
	check "the three lowest are members" await s0 -- peers.alive=3 \
		"${id[${low[0]}]}:state=alive" "${id[${low[1]}]}:state=alive" \
		"${id[${low[2]}]}:state=alive"
	check "for each other too" await "${low[@]}" -- peers.alive=3
	for i in "${all[@]}"; do
		[[ " ${low[*]} " == *" $i "* ]] ||
			check "$i hears why not" await_log 'as many agents as it may' "$i"
	done
	crash "${low[0]}"
	check "one dies, and another takes its place" await s0 -- peers.alive=3 \
		"${id[${low[0]}]}:state=dead"
	check "all leave" all_leave
}

for s in trains rated own expires revoked sybils; do scenario $s; done
finish

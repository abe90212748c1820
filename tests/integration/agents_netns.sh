#!/bin/bash
# SPDX-License-Identifier: MIT
# Agents in network namespaces, where links can be cut: whole or in one direction, a firewall that
# lets nobody in, IPv6, IPv4 and IPv6 at once. Everything is done with iproute2 alone:
#
#     a wire cut       the link between two bridges is taken down
#     one direction    a false, permanent neighbour: frames to it go to nobody
#     a firewall       a rule that sends what comes in for a port into a black hole
#
# Each scenario has namespaces of its own, named after this process, that are removed at the end.
if [ "$(id -u)" != 0 ]; then
	echo "1..0 # SKIP network namespaces want root"
	exit 0
fi
if ! command -v ip >/dev/null; then
	echo "1..0 # SKIP iproute2 is not installed"
	exit 0
fi
space=dunlin$$
if ! ip netns add "$space-try" 2>/dev/null; then
	echo "1..0 # SKIP this machine makes no network namespaces"
	exit 0
fi
ip netns del "$space-try"
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "${srcdir:-.}/tests/integration/lib.sh"

# shellcheck disable=SC2317 # called by lib.sh
extra_clean_up() {
	local n
	ip netns list | sed -n "s/^\($space-[a-z0-9]*\).*/\1/p" | while read -r n; do
		ip netns del "$n"
	done
}

# hub NAME: a bridge in a namespace.
hub() {
	ip netns add "$space-$1" && ip -n "$space-$1" link add switch type bridge &&
		ip -n "$space-$1" link set switch up
}
# plug HUB HOST NUMBER: a namespace with the addresses 10.77.0.NUMBER and fd77::NUMBER.
plug() {
	ip netns add "$space-$2" &&
		ip link add "$2" netns "$space-$1" type veth peer name eth netns "$space-$2" &&
		ip -n "$space-$1" link set "$2" master switch up &&
		ip -n "$space-$2" addr add "10.77.0.$3/24" dev eth &&
		ip -n "$space-$2" addr add "fd77::$3/64" dev eth nodad &&
		ip -n "$space-$2" link set lo up && ip -n "$space-$2" link set eth up
}
# join HUB HUB: a wire between them, named after the second.
join() {
	ip link add "$2" netns "$space-$1" type veth peer name wire netns "$space-$2" &&
		ip -n "$space-$1" link set "$2" master switch up &&
		ip -n "$space-$2" link set wire master switch up
}
# deaf FROM NUMBER: what FROM sends to that host is lost, though not the other way; hears: undone.
deaf() {
	ip -n "$space-$1" neigh replace "10.77.0.$2" lladdr 02:00:00:00:00:fe nud permanent dev eth
}
hears() { ip -n "$space-$1" neigh del "10.77.0.$2" dev eth; }
# wall HOST PORT: TCP and UDP that come in for this port are lost.
wall() {
	ip -n "$space-$1" rule add pref 100 lookup local && ip -n "$space-$1" rule del pref 0 &&
		ip -n "$space-$1" rule add pref 10 iif eth ipproto tcp dport "$2" blackhole &&
		ip -n "$space-$1" rule add pref 11 iif eth ipproto udp dport "$2" blackhole
}
# at HOST: the next agents run there.
at() { before=(ip netns exec "$space-$1"); }

new_key "$dir/flock.key" || exit 99

partition() {
	check "two networks and a wire" wires || return
	local i left=(p1 p2 p3) right=(p4 p5 p6) seeds=()
	for i in 1 2 3 4 5 6; do
		at "p$i"
		begin "p$i" --listen "10.77.0.$i:0" "${seeds[@]}"
		[ "$i" != 1 ] || {
			check "an agent" ready p1
			seeds=(--seed "10.77.0.1:${port[p1]}")
		}
	done
	check "three on each side" ready "${left[@]}" "${right[@]}"
	check "they are one flock" await "${left[@]}" "${right[@]}" -- peers.alive=5
	ip -n "$space-hubl" link set hubr down
	check "without the wire each side sees itself alone" \
		await "${left[@]}" "${right[@]}" -- peers.alive=2 peers.dead=3
	ip -n "$space-hubl" link set hubr up
	check "with it they are one again" \
		await "${left[@]}" "${right[@]}" -- peers.alive=5 peers.dead=0 peers.suspect=0
	check "all leave" all_leave
}
wires() {
	local i
	hub hubl && hub hubr && join hubl hubr || return 1
	for i in 1 2 3; do plug hubl "p$i" "$i" || return 1; done
	for i in 4 5 6; do plug hubr "p$i" "$i" || return 1; done
}

one_way() {
	check "a network" hub hubo || return
	local i seeds=() all=(o1 o2 o3 o4 o5)
	for i in 1 2 3 4 5; do
		plug hubo "o$i" "$i"
		at "o$i"
		begin "o$i" --listen "10.77.0.$i:0" "${seeds[@]}"
		[ "$i" != 1 ] || {
			check "an agent" ready o1
			seeds=(--seed "10.77.0.1:${port[o1]}")
		}
	done
	check "four more" ready "${all[@]}"
	check "they are one flock" await "${all[@]}" -- peers.alive=4
	# A pair of them has trouble: the others see to it that nobody is taken for dead.
	deaf o2 3
	check "who does not reach a peer that others reach says so" \
		await_log "$(of unreachable o3)" o2
	check "and takes it for alive" await "${all[@]}" -- peers.alive=4 peers.dead=0
	hears o2 3
	check "until it is reached again" await_log "$(of reachable o3)" o2
	check "nobody was taken for dead" none_failed "${all[@]}"
	# One hears everybody, and nobody hears it.
	for i in 1 2 3 4; do deaf o5 $i; done
	check "who is not heard is taken for dead" \
		await o1 o2 o3 o4 -- "${id[o5]}:state=dead" peers.alive=3
	for i in 1 2 3 4; do hears o5 $i; done
	check "and is back when it is heard" \
		await "${all[@]}" -- peers.alive=4 peers.dead=0 peers.suspect=0
	check "all leave" all_leave
}
none_failed() {
	local name bad=0
	for name in "$@"; do not_said "$name" '"msg":"failed ' || bad=1; done
	return $bad
}

firewall() {
	check "a network" hub hubf || return
	local i
	for i in 1 2 3; do plug hubf "f$i" "$i"; done
	at f1
	check "an agent" begin_and_ready f1 --listen 10.77.0.1:0
	local seed=10.77.0.1:${port[f1]}
	at f2
	check "another" begin_and_ready f2 --listen 10.77.0.2:0 --seed "$seed"
	# Its port must be known before its wall is built: it starts alone.
	at f3
	check "a third, which starts alone" begin_and_ready f3 --listen 10.77.0.3:0 --no-dialable
	local closed=${port[f3]}
	check "ends" all_leave_of f3
	check "and gets a firewall that lets nobody in" wall f3 "$closed"
	check "comes again" begin_and_ready f3 --listen "10.77.0.3:$closed" --no-dialable \
		--seed "$seed"
	check "everybody sees everybody" await f1 f2 f3 -- peers.alive=2 peers.suspect=0
	crash f2
	check "the one behind the firewall sees a crash" await f1 f3 -- "${id[f2]}:state=dead"
	at f2
	check "and a return" begin_and_ready f2 --listen 10.77.0.2:0 --seed "$seed"
	check "of all by all" await f1 f2 f3 -- peers.alive=2 peers.suspect=0
	check "it was never taken for dead" not_said f1 "$(of failed f3)"
	crash f3
	check "until it was" await f1 f2 -- "${id[f3]}:state=dead"
	check "all leave" all_leave
}
begin_and_ready() { begin "$@" && ready "$1"; }
all_leave_of() { signal TERM "$1" && ended "$1"; }

six() {
	check "a network" hub hubs || return
	local i seeds=() all=(s1 s2 s3 s4)
	for i in 1 2 3 4; do
		plug hubs "s$i" "$i"
		at "s$i"
		begin "s$i" --listen "[fd77::$i]:0" "${seeds[@]}"
		[ "$i" != 1 ] || {
			check "an agent on IPv6" ready s1
			seeds=(--seed "[fd77::1]:${port[s1]}")
		}
	done
	check "its line to join" grep -qF -- "--seed '[fd77::1]:${port[s1]}'" "$dir/s1.out"
	check "three more" ready "${all[@]}"
	check "they are one flock" await "${all[@]}" -- peers.alive=3
	crash s1
	check "and notice a crash" await s2 s3 s4 -- "${id[s1]}:state=dead" peers.alive=2
	check "all leave" all_leave
}

no_ports() {
	check "a network" hub hubn || return
	plug hubn n1 1
	plug hubn n2 2
	at n1
	check "an agent that is given no port" begin_and_ready n1 --advertise 10.77.0.1
	at n2
	check "and one that takes any, with a seed that has none" \
		begin_and_ready n2 --listen :0 --advertise 10.77.0.2 --seed 10.77.0.1
	check "meet at the default port" await n2 -- "${id[n1]}:addr=10.77.0.1:13865"
	check "and peers are told the port that is listened on" \
		await n1 -- "${id[n2]}:addr=10.77.0.2:${port[n2]}"
	check "both leave" all_leave
}

# Without settings an agent hears both families, and tells both addresses if it has them.
stacks() {
	if [ ! -e /proc/net/if_inet6 ]; then
		check "both families # SKIP this machine has no IPv6" true
		return
	fi
	check "a network" hub hubd || return
	local i all=(d1 d2 d3 d4)
	for i in 1 2 3 4; do plug hubd "d$i" "$i"; done
	ip -n "$space-d2" addr del fd77::2/64 dev eth
	ip -n "$space-d3" addr del 10.77.0.3/24 dev eth
	at d1
	check "an agent with IPv4 and IPv6" begin_and_ready d1
	local p=${port[d1]}
	check "tells peers both addresses" await d1 -- "addrs.0=10.77.0.1:$p" \
		"addrs.1=[fd77::1]:$p"
	check "and so does its line to join" \
		grep -qF -- "--seed 10.77.0.1:$p --seed '[fd77::1]:$p'" "$dir/d1.out"
	at d2
	check "one with IPv4 alone" begin_and_ready d2 --seed "10.77.0.1:$p"
	at d3
	check "one with IPv6 alone" begin_and_ready d3 --seed "[fd77::1]:$p"
	check "find it" await d2 d3 -- "${id[d1]}:state=alive"
	check "and it finds them" await d1 -- "${id[d2]}:addr=10.77.0.2:$p" \
		"${id[d3]}:addr=[fd77::3]:$p" peers.alive=2
	at d4
	check "one that names an address where nobody is, first" begin_and_ready d4 \
		--advertise "10.77.0.99:$p" --advertise "[fd77::4]:$p" --seed "10.77.0.1:$p"
	check "is reached by its other one" await d1 d3 -- "${id[d4]}:addr=[fd77::4]:$p" \
		"${id[d4]}:state=alive"
	check "all know all" await "${all[@]}" -- peers.alive=3
	for i in 2 3 4; do
		check "d$i was never taken for dead" not_said d1 "$(of failed "d$i")"
	done
	crash d4
	check "until it was" await d1 d3 -- "${id[d4]}:state=dead"
	check "all leave" all_leave
}

for s in partition one_way firewall six no_ports stacks; do scenario $s; done
finish

#!/bin/bash
# SPDX-License-Identifier: MIT
# A flock of five, one of which is attacked in every way that we could think of (tests/attack). What
# is asked after each attack: does the agent withstand it, are the others left in peace, do all
# probes go on as if nothing were, and does memory stay within its bound? Figures are printed.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "${srcdir:-.}/tests/integration/lib.sh"
attack=$(realpath "${builddir:-.}/tests/attack/attack") || exit 99

# What the victim may take in memory at its worst, beyond what it took before. Sanitizers keep freed
# memory for a while.
bound_kb=32768
case "${BUILD_FLAGS-}" in *-fsanitize*) bound_kb=524288 ;; esac

new_key "$dir/flock.key" || exit 99
new_key "$dir/other.key" || exit 99
mkdir "$dir/attackers"
bystanders=(b1 b2 b3 b4)

memory() { awk -v key="$1:" '$1 == key { print $2 }' "/proc/${pid[v]}/status"; }
failed_probes() {
	local name
	for name in v "${bystanders[@]}"; do
		get "$name" membership.probes_failed
	done | tr '\n' ' '
}

attacks() {
	local base probes key_file=$dir/flock.key
	check "a victim" start v || return
	local name
	for name in "${bystanders[@]}"; do
		begin "$name" --listen 127.0.0.1:0 --seed "127.0.0.1:${port[v]}"
	done
	check "four bystanders" ready "${bystanders[@]}"
	check "one flock" await v "${bystanders[@]}" -- peers.alive=4
	base=$(memory VmRSS)
	probes=$(failed_probes)
	note "the victim takes $base kB"

	hit "an honest session" honest
	hit "another flock's key gets silence" wrong-key
	hit "a first message replayed" replay
	hit "a bit flipped at every byte between two agents" proxy
	hit "a bit flipped at every byte that is sent" flip-sent
	hit "a bit flipped at every byte that is received" flip-received
	hit "a cut at every byte" cut
	check "none of these holds a slot" await v -- net.half_open=0
	hit "messages that are bombs, from an insider" bombs
	hit "floods, from an insider" floods
	hit "forged news, from an insider" forge "${id[b1]}" "${id[b2]}"
	check "three bad signatures are enough" await v -- net.news_forged=3
	hit "a flood of forged news, from an insider" forge-flood 2
	check "costs three signatures more" await v -- net.news_forged=6 \
		'net.news_unverified>=1000'
	check "the forged are not believed" await v "${bystanders[@]}" -- peers.alive=4 \
		peers.suspect=0 peers.dead=0 peers.left=0 clock=0
	local before_noise
	before_noise=$(get v net.datagrams_refused)
	hit "1,000 datagrams of noise a second" noise 3 1000 "${id[b1]}"
	note "$(($(get v net.datagrams_refused) - before_noise)) datagrams refused"
	check "which were seen and refused" \
		await v -- "net.datagrams_refused>=$((before_noise + 2000))"
	under_siege slow n1
	under_siege half-open n2

	hit "a false accusation, properly signed" accuse "${id[b1]}" \
		"$(get v "${id[b1]}:generation")" "$(get v "${id[b1]}:incarnation")"
	check "is refuted" await_log '"msg":"refuted' b1
	check "and nobody is dead for it" not_said v "$(of failed b1)"
	check "all are alive" await v "${bystanders[@]}" n1 n2 -- peers.alive=6 peers.suspect=0 \
		peers.dead=0
	note "loop lag of the victim: $(get v loop.lag_us_p99 loop.lag_us_max | paste -sd/) us" \
		"(p99/max), $(get v loop.slow_callbacks) callbacks over 5 ms"
	check "all leave" all_leave
}

# hit NAME ATTACK ARGUMENTS...: one attack, and what came of it.
hit() {
	local what=$1 how=$2
	shift 2
	[ "$how" != wrong-key ] || key_file=$dir/other.key
	check "$what" "$attack" "$how" "${port[v]}" "$key_file" "$dir/attackers" "$@"
	grep '^#' "$dir/said.$BASHPID"
	key_file=$dir/flock.key
	[ "$how" = accuse ] || peace "$what"
}

# under_siege ATTACK NAME: an attack that goes on until the agent is rid of it, and during which an
# agent joins.
under_siege() {
	local half most=0 a end=$((SECONDS + patience))
	"$attack" "$1" "${port[v]}" "$dir/flock.key" "$dir/attackers" >"$dir/$1.out" 2>&1 &
	a=$!
	: >"$dir/running/$a"
	begin "$2" --listen 127.0.0.1:0 --seed "127.0.0.1:${port[v]}"
	check "$1: strangers hold slots" await v -- 'net.half_open>=50'
	until [ "${half:-1}" = 0 ] || [ $SECONDS -ge $end ]; do
		half=$(get v net.half_open)
		[ "${half:-0}" -le "$most" ] || most=$half
	done
	check "$1: not for long" test "${half:-1}" = 0
	kill -USR1 "$a" 2>/dev/null
	check "$1: all are got rid of" wait "$a"
	rm -f "$dir/running/$a"
	sed 's/^[^#]/# &/' "$dir/$1.out"
	note "$1: at most $most half-open connections at a time, of 320 allowed"
	check "$1: within the limit" test "$most" -le 320
	check "$1: an agent joins meanwhile" ready "$2"
	check "$1: and finds everybody" await "$2" -- "peers.alive>=5"
	peace "$1"
}

# Nobody was harmed: no probe failed, nobody was suspected, memory is within its bound.
peace() {
	local now
	now=$(failed_probes)
	note "failed probes $now; resident $(memory VmRSS) kB, at most $(memory VmHWM) kB"
	check "$1: all probes on time" test "$now" = "$probes"
	check "$1: nobody was suspected" nobody_said '"msg":"(suspect|failed|unreachable) '
	check "$1: memory" test $(($(memory VmHWM) - base)) -le "$bound_kb"
	probes=$now
}
nobody_said() {
	local name bad=0
	for name in v "${bystanders[@]}"; do not_said "$name" "$1" || bad=1; done
	return $bad
}

scenario attacks
finish

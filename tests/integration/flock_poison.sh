#!/bin/bash
# SPDX-License-Identifier: MIT
# Real agents with a bad one among them (tests/attack/rogue): what it sends is
# poison. It is found out, and the others' models are as good as if it had not been there.
# shellcheck source-path=SCRIPTDIR source=flock_lib.sh
. "${srcdir:-.}/tests/integration/flock_lib.sh"

# poison PREFIX KIND [REASON]: a poisoner and three agents; the reason is why it is quarantined. It
# is there first, so that what it sends is from the beginning of the run.
poison() {
	local p=$1 name all=()
	settings "$p" "$epochs"
	enter_rogue "$p" "ROGUE_POISON=$2" "${p}9"
	check "$2: a poisoner" ready "${p}9" || return
	all=("${p}0" "${p}1" "${p}2")
	for name in "${all[@]}"; do enter "$p" "$name" --seed "$(seed_of "${p}9")"; done
	check "$2: three agents" ready "${all[@]}" || return
	if [ -n "${3:-}" ]; then
		check "$2: it is found out" \
			await_log "\"msg\":\"quarantine ${id[${p}9]:0:12}: $3" "${p}0"
		check "$2: and status says so" get_quarantined "${p}0" "$3"
	fi
	for name in "${all[@]}"; do check "$2: $name ends by itself" ended "$name"; done
	check "$2: their models are alike, and as good as without it" alike "$p" 200 \
		"${all[@]}" clean0
	signal TERM "${p}9" 2>/dev/null
	ended "${p}9" >/dev/null
}
get_quarantined() {
	local said
	said=$(get "$1" partners.quarantined.0.reason)
	echo "$said"
	[[ $said =~ $2 ]]
}
epochs=1600
grep -q __asan_init "$dunlin" && epochs=500 # its steps take their time
not_finite() {
	poison pn nan 'sent numbers that are not finite'
	poison pi inf 'sent numbers that are not finite'
}
far() {
	poison ph huge 'sent something else than was agreed'
	poison pf flip 'sent something else than was agreed'
}
off() {
	poison pr random 'sent something else than was agreed'
	# This problem is solved within a second: what is stale by then is near, and does no harm.
	poison ps stale
}

# What they are compared with.
clean() {
	settings clean $epochs
	enter clean clean0
	ready clean0 || return
	enter clean clean1 --seed "$(seed_of clean0)"
	enter clean clean2 --seed "$(seed_of clean0)"
	ended clean0 && ended clean1 && ended clean2
}

check "a run without a bad one" clean >"$dir/clean.tap"
scenarios+=(clean) && : >"$dir/clean.stderr"
for s in not_finite far off; do scenario $s; done
finish

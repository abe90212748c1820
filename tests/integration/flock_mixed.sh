#!/bin/bash
# SPDX-License-Identifier: MIT
# Agents that are not alike: one is slower than the others, or each has other data. Nobody waits for
# the slow one, and the merged model knows what all of them have seen.
# shellcheck source-path=SCRIPTDIR source=flock_lib.sh
. "${srcdir:-.}/tests/integration/flock_lib.sh"

# Nobody is told to adopt, to stay away, or taken for bad, who is only slow or different.
at_peace() {
	local name bad=0
	for name; do
		grep -E '"warn".*"msg":"(apart|quarantine|bad|stale)' "$dir/$name.log" && bad=1
	done
	return $bad
}
own_samples() { sed -nE 's/^trained ([0-9]+) samples of the run.*/\1/p' "$dir/$1.out"; }

slower() {
	local all=(s0 s1 s2) name
	settings s 400
	enter s s0
	check "an agent" ready s0 || return
	enter s s1 --seed "$(seed_of s0)"
	enter_rogue s ROGUE_SLOW=30 s2 --seed "$(seed_of s0)"
	check "another, and one that is many times slower" ready s1 s2 || return
	check "all exchange" await "${all[@]}" -- exchanges.outcomes.exchanged\>=3
	for name in "${all[@]}"; do check "$name ends by itself" ended "$name"; done
	check "nobody has waited for the slow one" unequal
	check "nor quarrelled with it" at_peace "${all[@]}"
	check "all models are as good" alike s 20 "${all[@]}"
}

# It rests, so that on busy cores it is rather less slow than it was told to be.
unequal() {
	local slow name
	slow=$(own_samples s2)
	for name in s0 s1; do
		echo "$name: $(own_samples $name), the slow one: $slow"
		[ "$slow" -gt 0 ] && [ "$(own_samples $name)" -ge $((slow * 2)) ] || return 1
	done
}

# By Dirichlet shares: each has little of some of the labels.
other_data() {
	local all=(d0 d1 d2) name k=0 skewed=(--partition label --parts 3 --alpha 0.3)
	settings d 150 200 # long enough for the others to come, on a busy machine
	enter d d0 "${skewed[@]}" --part 0
	check "an agent with data of its own" ready d0 || return
	for name in d1 d2; do
		enter d $name "${skewed[@]}" --part $((k += 1)) --seed "$(seed_of d0)"
	done
	check "two more with other data" ready d1 d2 || return
	check "all exchange" await "${all[@]}" -- exchanges.outcomes.exchanged\>=3
	for name in "${all[@]}"; do check "$name ends by itself" ended "$name"; done
	check "nobody is taken for bad" at_peace "${all[@]}"
	check "all models are as good" alike d 20 "${all[@]}"
}

for s in slower other_data; do scenario $s; done
finish

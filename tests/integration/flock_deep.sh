#!/bin/bash
# SPDX-License-Identifier: MIT
# Models with many weight tensors: agents exchange them and give them to joiners. Up to 32 groups of
# layers are clipped by themselves, one of them for the biases; so the counts are those around it.
# shellcheck source-path=SCRIPTDIR source=flock_lib.sh
. "${srcdir:-.}/tests/integration/flock_lib.sh"

# deep TENSORS: dense layers, so many, each with a bias. The last one is in the settings already.
deep() {
	local p=w$1 i units=4
	for ((i = 2; i < $1; i++)); do units+='}, {"type": "dense", "units": 4'; done
	settings "$p" 1e6 "$units"
	enter "$p" "${p}a"
	check "$1 weight tensors: an agent" ready "${p}a" || return
	check "$1: trains" await "${p}a" -- training.step\>=200
	enter "$p" "${p}b" --seed "$(seed_of "${p}a")"
	check "$1: a joiner" ready "${p}b" || return
	check "$1: takes its state" await "${p}b" -- training.joined=true
	check "$1: they exchange" await "${p}a" "${p}b" -- exchanges.outcomes.exchanged\>=1
	check "$1: both leave" all_leave
}
deep_30() { deep 30; }
deep_31() { deep 31; }
deep_32() { deep 32; }
deep_40() { deep 40; }

for s in deep_30 deep_31 deep_32 deep_40; do scenario $s; done
finish

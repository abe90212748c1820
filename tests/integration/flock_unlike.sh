#!/bin/bash
# SPDX-License-Identifier: MIT
# Real agents whose settings do not fit: a newcomer that nobody can train with ends and names the
# settings, other runs are only named.
# shellcheck source-path=SCRIPTDIR source=flock_lib.sh
. "${srcdir:-.}/tests/integration/flock_lib.sh"

# ---- a newcomer with other settings

newcomer() {
	settings n 1e6
	enter n n0
	check "n: an agent" ready n0 || return
	enter n n1 --seed "$(seed_of n0)"
	check "n: and one like it" ready n1 || return
	check "n: train" await n0 n1 -- peers.alive=1 exchanges.outcomes.exchanged\>=1
	enter n n2 --seed "$(seed_of n0)" --join-seconds 1 --optimizer adamw --exchange push
	check "n: one with another optimizer and mode ends, a setting is wrong" ended n2 3
	check "n: it names all that differs" said n2 \
		'every peer of the run .*: train.optimizer, gossip.exchange; set them'
	check "n: of each peer" said n2 "$(of unlike n0): the optimizer differs: theirs sgd, ours \
adamw \(train.optimizer\); the exchange mode differs: theirs pair, ours push \(gossip.exchange\)"
	check "n: two were heard" said n2 "$(of unlike n1): the optimizer differs"
	check "n: and keeps nothing" test -z "$(find "$dir/n2.run" -name '*.safetensors')"
	enter n n3 --seed "$(seed_of n0)" --join-seconds 1 --run other --optimizer adamw
	check "n: one of another run" ready n3
	check "n: names the others" await_log "$(of unlike n0): the run's name differs" n3
	check "n: and trains" await n3 -- training.phase=training training.step\>=100
	check "n: nobody else was stopped" await n0 n1 -- training.phase=training
	check "n: they leave" all_leave
}

# The first of a run, which had nobody to look for, is not stopped by one that comes.
only_peer() {
	settings o 1e6
	enter o o0
	check "o: an agent" ready o0 || return
	enter o o1 --seed "$(seed_of o0)" --join-seconds 1 --epochs 7
	check "o: the only peer is unlike: it ends" ended o1 3
	check "o: and says in what" said o1 'every peer of the run .*: train.epochs, data; set'
	check "o: the first trains on" await o0 -- training.phase=training training.step\>=200
	check "o: and leaves" all_leave
}

for s in newcomer only_peer; do scenario $s; done
finish

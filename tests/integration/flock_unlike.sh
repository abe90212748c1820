#!/bin/bash
# SPDX-License-Identifier: MIT
# Real agents whose settings, folders or identities do not fit: a newcomer that nobody can train
# with ends and names the settings, other runs only are named, a checkpoint of another run is
# refused, and what an agent has trained stays that agent's.
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

# ---- folders and identities

# again NAME CODE ARGUMENTS...: on the folder of f0, which ends at once.
again() {
	enter f "$1" --out "$dir/f0.run" --stop-after 1 "${@:3}"
	ended "$1" "$2"
}
folder() {
	settings f 1e6
	enter f f0 --stop-after 500
	check "f: an agent trains" ended f0 || return
	cp -a "$dir/f0" "$dir/f1" # one identity
	check "f: its folder is not for another run" again f1 5 --run another
	check "f: which is said" said f1 'of the run .*\(gossip.run\): choose another --out'
	check "f: nor for another budget and optimizer" again f1 5 --epochs 3 --optimizer adamw
	check "f: which is said" said f1 '\(train.epochs, data, train.optimizer\): choose'
	check "f: nor for train" not_train
	check "f: another way to exchange is no other run" again f1 0 --exchange push
	check "f: it is resumed" said f1 'step 500, 16000 samples of our own'
}
not_train() {
	"$dunlin" train --config "$dir/f.json" --out "$dir/f0.run" --resume --stop-after 1 \
		>"$dir/not_train" 2>&1
	[ $? = 5 ] && grep -q 'written by "dunlin agent"' "$dir/not_train"
}

# A new identity goes on with the parameters; what they cost stays the old one's.
heir() {
	settings h 1e6
	enter h h0 --stop-after 500
	check "h: an agent trains" ended h0 || return
	check "h: so many" printed h0 'trained 16000 samples of the run.s 16000;'
	enter h h1 --out "$dir/h0.run" --stop-after 100
	check "h: another goes on with its folder" ended h1
	check "h: from its step, without its samples" said h1 'step 500, 0 samples of our own'
	check "h: they count once" printed h1 'trained 3200 samples of the run.s 19200;'
	check "h: its checkpoint is of a later step" test -e \
		"$dir/h0.run/checkpoint-000000000600.safetensors"
	enter h h1 --out "$dir/h0.run" --stop-after 100
	check "h: it comes back" ended h1
	check "h: and knows whose is what" printed h1 'trained 6400 samples of the run.s 22400;'
	# Whose key is removed begins anew in the same state directory, too.
	rm "$dir/h1/identity.key"
	enter h h1 --out "$dir/h0.run" --stop-after 100
	check "h: with a new key it is another agent" ended h1
	check "h: with samples of its own" printed h1 'trained 3200 samples of the run.s 25600;'
}
printed() { grep -E -e "$2" "$dir/$1.out"; }

for s in newcomer only_peer folder heir; do scenario $s; done
finish

#!/bin/bash
# SPDX-License-Identifier: MIT
# The control socket of living agents, by the program's own commands and against its schema, which a
# second implementation checks too, where there is one.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "${srcdir:-.}/tests/integration/lib.sh"
schema=$(realpath "${srcdir:-.}/agent/control/control.schema.json") || exit 99
unit=$(realpath "${builddir:-.}/tests/agent") || exit 99
python=${PYTHON:-python3}

new_key "$dir/flock.key" || exit 99

# ask NAME SUBCOMMAND...: what it prints goes to $dir/NAME.said, its errors too.
ask() { "$dunlin" "$2" --socket "$dir/$1.sock" "${@:3}" >"$dir/$1.said" 2>&1; }
# says NAME PATTERN SUBCOMMAND...: it ends well and prints that; fails CODE the same for its errors.
says() { ask "$1" "${@:3}" && grep -E -e "$2" "$dir/$1.said"; }
fails() {
	local code
	ask "$2" "${@:4}"
	code=$?
	cat "$dir/$2.said"
	[ $code = "$1" ] && grep -qE -e "$3" "$dir/$2.said"
}
forms() { "$ctl" schema "$schema" "$dir/$1.sock" "${@:2}"; }

# ---- an agent that only keeps membership

member() {
	local cmd
	check "an agent that does not train" start m || return
	check "answers as the schema says" forms m
	check "says so" says m '^health   no peers yet' status
	for cmd in pause resume checkpoint ledger exchanges; do
		check "cannot $cmd" fails 1 m 'this agent does not train \(--no-train\)' "$cmd"
	done
	check "with --json too" fails 1 m '^\{"ok":false,"error":"this agent' pause --json
	check "a wrong --max" fails 2 m 'from 1 to 512, not "0"' ledger --max 0
	check "no more than are kept" fails 2 m 'from 1 to 128, not "129"' exchanges --max 129
	check "an empty --max" fails 2 m 'needs a value: --max N' exchanges --max
	check "the answer to leave too" forms m leave
	check "it ends" ended m
	check "nobody answers" fails 9 m 'no agent answers' ledger
}

# ---- two that train

# 256 images of 8 x 8 in 4 classes, with nothing in them to learn, and nothing is: with a rate of 0
# no model moves, so that it does not matter how old what one agent knows of the other is.
make_data() {
	{ printf '\0\0\10\3\0\0\1\0\0\0\0\10\0\0\0\10' && seq 10000 | head -c 16384; } \
		>"$dir/images"
	{ printf '\0\0\10\1\0\0\1\0' && for _ in {1..64}; do printf '\0\1\2\3'; done; } \
		>"$dir/labels"
	cat >"$dir/train.json" <<-END
		{"model": {"layers": [{"type": "flatten"}, {"type": "dense", "units": 4}]},
		 "data": {"train_images": "$dir/images", "train_labels": "$dir/labels",
		          "test_images": "$dir/images", "test_labels": "$dir/labels"},
		 "train": {"epochs": 1000000, "batch": 16, "lr": 0}, "run": {"threads": 1}}
	END
}

checkpoints() { [ "$(find "$dir/$1.run" -name 'checkpoint-*' | wc -l)" -ge "$2" ]; }

trainers() {
	local n train=train step
	make_data
	check "an agent that trains" \
		start t1 --config "$dir/train.json" --out "$dir/t1.run" || return
	check "and another" start t2 --config "$dir/train.json" --out "$dir/t2.run" \
		--seed "127.0.0.1:${port[t1]}" || return
	check "exchange with each other" await t1 t2 -- exchanges.outcomes.exchanged\>=1 \
		training.phase=training training.loss\>=0 partners.deadlines.0.exchanged\>=1
	for n in t1 t2; do
		check "$n answers as the schema says" forms $n
		check "$n trains on" await $n -- training.phase=training
	done
	check "status, for people" says t1 '^training training, step [1-9]' status
	check "the gate" says t1 '^gate     significance, Δ .* / δ .*, LSSR 0\.' status
	check "the run" says t1 '^run      .* % done: [0-9]* of 256000000 samples' status
	check "ledger" says t1 '^ *[0-9]+ .* (local|significant|owed|warm-up|silence) ' ledger
	check "--max" says t1 '^\{"ok":true,"entries":\[\{[^}]*\}\]\}$' ledger --max 1 --json
	check "exchanges" says t1 " ${id[t2]:0:12} .* exchanged " exchanges --max 128

	check "pause" says t1 '^paused after step [0-9]+' pause
	check "stops it" await t1 -- training.phase=paused
	step=$(get t1 training.step)
	check "a checkpoint while it is paused" says t1 "^checkpoint of step .*t1.run$" checkpoint
	check "is there" checkpoints t1 1
	check "and again, at the same step" says t1 "^\{\"step\":$step,.*\"count\":" \
		checkpoint --json
	check "it made no step meanwhile" test "$(get t1 training.step)" = "$step"
	check "resume" says t1 '^training continues at step [0-9]+' resume
	check "it trains on" await t1 -- training.phase=training "training.step>=$((step + 1))"
	check "the answer to leave is as the schema says" forms t1 leave
	check "it ends" ended t1
	check "all leave, with code 0" all_leave
}

# ---- a second opinion on the schema, and on every answer that the unit tests provoke

second_opinion() {
	local why t said=$dir/replies
	if ! why=$("$python" -c 'from jsonschema import Draft202012Validator' 2>&1); then
		echo "ok - a second opinion # SKIP $python: ${why##*$'\n'}"
		return
	fi
	for t in test_control test_control_acts test_control_flock; do
		check "$t" env srcdir="${srcdir:-.}" DUNLIN_TEST_REPLIES="$said" "$unit/$t"
	done
	check "python's jsonschema thinks the same of every answer" \
		"$python" - "$schema" "$said" <<-'END'
			import json, sys
			from jsonschema import Draft202012Validator as V
			schema = json.load(open(sys.argv[1]))
			V.check_schema(schema)
			whole, forms = V(schema), {}
			lines = open(sys.argv[2]).read().splitlines()
			for line in lines:
			    kept = json.loads(line)
			    name = kept["form"]
			    if name not in forms:
			        form = {"$defs": schema["$defs"], "$ref": "#/$defs/" + name}
			        forms[name] = V(form)
			    forms[name].validate(kept["value"])
			wanted = {n for n in schema["$defs"] if n.endswith("_reply")}
			assert wanted <= set(forms), wanted - set(forms)
			kept["value"]["stranger"] = 1
			assert not whole.is_valid(kept["value"]) and len(lines) > 50
		END
}

scenario member
scenario trainers
scenario second_opinion
finish

# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# For scripts whose agents train together: lib.sh, a small data set, and words for what a flock
# does. The model is tiny and on the plain backend with one thread, so steps take microseconds; how
# long a run takes is set by its epochs. Agents of a scenario have names that begin alike, and its
# settings are in $dir/PREFIX.json (see `settings`).
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "${srcdir:-.}/tests/integration/lib.sh"
rogue=$(realpath "${builddir:-.}/tests/attack/rogue") || exit 99
# shellcheck disable=SC2034 # the scripts use it
schema=$(realpath "${srcdir:-.}/agent/control/control.schema.json") || exit 99
train=train

# bytes FORMAT NUMBERS...: as octal escapes for printf %b.
octal() { awk -v n="$1" 'BEGIN { printf "\\0%03o\\0%03o", int(n / 256), n % 256 }'; }

# make_data NAME COUNT SEED: images of 8 x 8 in 4 classes, the label's pair of rows a little lighter
# than the noise.
make_data() {
	local n
	n=$(octal "$2")
	{
		printf '%b' "\\0\\0\\010\\03\\0\\0$n\\0\\0\\0\\010\\0\\0\\0\\010"
		printf '%b' "$(awk -v n="$2" -v seed="$3" 'BEGIN {
			srand(seed)
			for (i = 0; i < n; i++)
				for (p = 0; p < 64; p++)
					printf "\\0%03o", \
						rand() * 200 + (int(p / 16) == i % 4 ? 45 : 0)
		}')"
	} >"$dir/$1-images"
	{
		printf '%b' "\\0\\0\\010\\01\\0\\0$n"
		printf '%b' "$(awk -v n="$2" 'BEGIN {
			for (i = 0; i < n; i++)
				printf "\\0%03o", i % 4
		}')"
	} >"$dir/$1-labels"
}
make_data train 2000 1
make_data test 2000 2
new_key "$dir/flock.key" || exit 99

# settings PREFIX EPOCHS [UNITS]: of a run.
settings() {
	cat >"$dir/$1.json" <<-END
		{"model": {"layers": [{"type": "flatten"}, {"type": "dense", "units": ${3:-24}},
		           {"type": "relu"}, {"type": "dense", "units": 4}]},
		 "data": {"train_images": "$dir/train-images", "train_labels": "$dir/train-labels",
		          "test_images": "$dir/test-images", "test_labels": "$dir/test-labels"},
		 "train": {"epochs": $2, "batch": 32, "lr": 0.02},
		 "run": {"threads": 1, "device": "plain", "eval_epochs": 100},
		 "gossip": {"run": "$1", "merge_seconds": 40, "stay_seconds": 2}}
	END
}

# enter PREFIX NAME ARGUMENTS...: an agent of the run, on loopback; it does not wait.
enter() {
	begin "$2" --listen 127.0.0.1:0 --config "$dir/$1.json" --out "$dir/$2.run" "${@:3}"
}
# enter_rogue PREFIX "ROGUE_X=…" NAME ARGUMENTS...: the same for one that is not what it seems.
enter_rogue() {
	local dunlin=$rogue before
	read -ra before <<<"$2"
	enter "$1" "$3" "${@:4}"
}

# Of the test set, in hundredths of a percent, by the weights that an agent has written.
accuracy() {
	"$dunlin" eval --config "$dir/$1.json" --device plain --threads 1 \
		"$dir/$2.run/final.safetensors" |
		sed -nE 's/.*accuracy ([0-9]+)\.([0-9]+)%.*/\1\2/p' | head -1 | sed 's/^0*//'
}

# alike PREFIX HUNDREDTHS NAME...: their accuracies are that near to each other, and well over
# chance.
alike() {
	local name a low=10000 high=0
	for name in "${@:3}"; do
		a=$(accuracy "$1" "$name")
		echo "$name: ${a:-none}"
		[ -n "$a" ] || return 1
		[ "$a" -ge "$low" ] || low=$a
		[ "$a" -le "$high" ] || high=$a
	done
	[ $((high - low)) -le "$2" ] && [ "$low" -ge 5000 ]
}

# The checkpoint of an agent that has ended is whole, and every number in it finite.
whole_checkpoint() {
	local newest
	newest=$(find "$dir/$1.run" -name 'checkpoint-*.safetensors' | sort | tail -n 1)
	[ -n "$newest" ] || { echo "no checkpoint" && return 1; }
	"$dunlin" inspect "$newest" && [ -z "$(find "$dir/$1.run" -name '*.damaged')" ]
}

seed_of() { echo "127.0.0.1:${port[$1]}"; }

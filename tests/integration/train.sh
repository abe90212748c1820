#!/bin/bash
# SPDX-License-Identifier: MIT
# Trains a small model on small data, made here, with the real program: resume is bit-equal after a
# stop, a kill -9 and a damaged file; signals, divergence and wrong files end as documented.
set -u
dunlin=${DUNLIN:-./dunlin}
[ -x "$dunlin" ] || { echo "1..0 # SKIP there is no $dunlin"; exit 0; }
tmp=$(mktemp -d "${TMPDIR:-/tmp}/dunlin-train-XXXXXX") || exit 1
child=
trap '[ -n "$child" ] && kill -9 "$child" 2>/dev/null; rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
unset DUNLIN_CONFIG
# Some hundred bytes of parameters per step: more than two threads only wait for each other.
export DUNLIN_THREADS=2

n=0
ok() { # ok STATUS NAME [FILE shown on failure]
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2"
		[ -n "${3:-}" ] && sed 's/^/# /' "$3"
	fi
}

# Reads the assertion's words as a command.
is() { # is NAME COMMAND...
	local name=$1
	shift
	"$@" >is.log 2>&1
	ok $? "$name" is.log
}

# COUNT images of SIDE x SIDE in 4 classes: the label's pair of rows is lit, under noise.
make_data() { # make_data NAME COUNT SIDE SEED
	local text
	text=$(awk -v n="$2" -v side="$3" -v seed="$4" 'BEGIN {
		srand(seed)
		printf "\\0\\0\\010\\003\\0\\0\\%03o\\%03o", n / 256, n % 256
		printf "\\0\\0\\0\\%03o\\0\\0\\0\\%03o", side, side
		for (i = 0; i < n; i++)
			for (y = 0; y < side; y++)
				for (x = 0; x < side; x++)
					printf "\\%03o", \
						rand() * 120 + (int(y / 2) == i % 4 ? 90 : 0)
	}' | sed 's/\\\([0-9]\)/\\0\1/g')
	printf '%b' "$text" >"$1-images"
	text=$(awk -v n="$2" 'BEGIN {
		printf "\\0\\0\\010\\001\\0\\0\\%03o\\%03o", n / 256, n % 256
		for (i = 0; i < n; i++)
			printf "\\%03o", i % 4
	}' | sed 's/\\\([0-9]\)/\\0\1/g')
	printf '%b' "$text" >"$1-labels"
}
make_data train 500 8 1
make_data test 90 8 2
make_data narrow 90 6 3

# The same images as NumPy writes them.
make_npy() { # make_npy TYPE SHAPE < ELEMENTS
	local dict="{'descr': '$1', 'fortran_order': False, 'shape': $2, }"
	printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "$dict"
	cat
}
mkdir arrays
for part in train test; do
	count=$(($(stat -c %s $part-labels) - 8))
	tail -c +17 $part-images | make_npy "|u1" "($count, 8, 8)" >arrays/x_$part.npy
	tail -c +9 $part-labels | make_npy "|u1" "($count,)" >arrays/y_$part.npy
done

# 400 samples to train on, 25 steps an epoch, 200 in all. Dropout and augmentation are on, so that
# a resume that forgets either is noticed.
cat >run.json <<'JSON'
{
	"model": {"layers": [
		{"type": "conv2d", "units": 4, "kernel": 3, "pad": 1}, {"type": "relu"},
		{"type": "max_pool", "kernel": 2}, {"type": "flatten"},
		{"type": "dense", "units": 16}, {"type": "relu"},
		{"type": "dropout", "p": 0.2}, {"type": "dense", "units": 4}
	]},
	"data": {
		"train_images": "train-images", "train_labels": "train-labels",
		"test_images": "test-images", "test_labels": "test-labels",
		"validation": 0.2, "augment": {"shift": 1, "flip": true}
	},
	"train": {"epochs": 8, "batch": 16, "lr": 0.02, "warmup_epochs": 1},
	"run": {"deterministic": true, "keep": 3}
}
JSON
train() { "$dunlin" train --config run.json "$@"; }

# "step loss" of each step event; a resumed run repeats some, which must be equal and fall together.
losses() {
	sed -n 's/.*"event":"step".*"step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/p' "$1" | sort -un
}

newest() { find "$1" -name 'checkpoint-*.safetensors' | sort | tail -n 1; }

# --- a run from begin to end

train --out straight >out.log 2>err.log
ok $? "a run ends well" err.log
# shellcheck disable=SC2016
is "its test accuracy is well above chance" \
	awk '/accuracy/ { sub(".*accuracy ", ""); exit ($1 + 0 > 60 ? 0 : 1) }' out.log
is "it names its weights" grep -q '^weights: straight/final.safetensors$' out.log
is "eight evaluations of either set" \
	test "$(grep -c '"event":"eval".*"set":"validation"' straight/metrics.jsonl)/$(
		grep -c '"event":"eval".*"set":"test"' straight/metrics.jsonl)" = 8/8
is "the last three checkpoints and the best are kept" \
	test "$(cd straight && echo *.safetensors)" = "best.safetensors \
checkpoint-000000000150.safetensors checkpoint-000000000175.safetensors \
checkpoint-000000000200.safetensors final.safetensors"
train --out again >/dev/null 2>&1
is "the same config gives the same bits" cmp straight/final.safetensors again/final.safetensors
train --out arrays.run --data arrays >/dev/null 2>err.log
is "so do the same images as NumPy's arrays" \
	cmp straight/final.safetensors arrays.run/final.safetensors
train --out other --train-seed 2 >/dev/null 2>&1
is "another seed gives others" bash -c '! cmp -s straight/final.safetensors other/final.safetensors'

# --- stop and resume

train --out half --stop-after 100 >out.log 2>err.log
ok $? "a run stops after 100 steps" err.log
is "and says where" grep -q 'stopped at step 100 of 200' out.log
is "without final weights" test ! -e half/final.safetensors
printf '{"event":"step","time":17' >>half/metrics.jsonl
train --out half --resume >out.log 2>err.log
ok $? "it resumes" err.log
is "100 + stop + resume + 100 gives the same parameters" \
	cmp straight/final.safetensors half/final.safetensors
is "and the same state of the optimiser" \
	cmp straight/checkpoint-000000000200.safetensors half/checkpoint-000000000200.safetensors
losses straight/metrics.jsonl >straight.losses
losses half/metrics.jsonl >half.losses
is "and the same losses" cmp straight.losses half.losses
is "of which there are eight" test "$(wc -l <straight.losses)" = 8
is "a torn line of the metrics is cut off" \
	test "$(grep -vc '^{.*}$' half/metrics.jsonl)" = 0
train --out half --resume >out.log 2>err.log
ok $? "a run that is done resumes to its summary" err.log
is "which is the same" grep -q '^test loss' out.log

for args in "--optimizer adamw --lr 0.002" "--accumulate 3" "--no-deterministic"; do
	name=${args//[^a-z]/}
	# shellcheck disable=SC2086
	train --out "$name" $args --checkpoint-steps 30 --keep 100 >/dev/null 2>&1
	mkdir "$name-half"
	cp "$name/checkpoint-000000000030.safetensors" "$name-half/"
	# shellcheck disable=SC2086
	train --out "$name-half" --resume $args >/dev/null 2>err.log
	is "resume is bit-equal with $args" \
		cmp "$name/final.safetensors" "$name-half/final.safetensors"
done

# --- killed while writing checkpoints

# kill -0 would also find a child that has ended and was not waited for.
running() { [ "$(jobs -r)" ]; }
kills=0 torn=0
mkdir killed
for round in 1 2 3 4 5 6 7 8; do
	"$dunlin" train --config run.json --out killed --checkpoint-steps 1 --resume \
		>/dev/null 2>>killed.log &
	child=$!
	if [ $((round % 2)) = 0 ]; then
		# The moment a checkpoint is being written.
		until compgen -G 'killed/*.tmp' >/dev/null || ! running; do :; done
	else
		# Some moment after a new one was written.
		before=$(newest killed)
		until [ "$(newest killed)" != "$before" ] || ! running; do :; done
		for ((i = RANDOM % 400; i > 0; i--)); do :; done
	fi
	kill -9 $child 2>/dev/null
	wait $child 2>/dev/null
	[ $? = 137 ] && kills=$((kills + 1))
	child=
	compgen -G 'killed/*.tmp' >/dev/null && torn=$((torn + 1))
done
echo "# killed $kills times, $torn times in the middle of a file"
is "killed at least three times" test $kills -ge 3
train --out killed --resume >/dev/null 2>>killed.log
ok $? "it resumes after kill -9" killed.log
is "and ends with the same parameters" cmp straight/final.safetensors killed/final.safetensors
losses killed/metrics.jsonl >killed.losses
is "and the same losses" cmp straight.losses killed.losses
is "nothing half written is left" bash -c "! compgen -G 'killed/*.tmp'"
is "no whole checkpoint was taken for damaged" bash -c "! grep damaged killed.log"

# --- a damaged checkpoint

mkdir damaged
c150=checkpoint-000000000150.safetensors
c175=checkpoint-000000000175.safetensors
cp straight/$c150 straight/$c175 damaged/
printf 'damage' | dd of=damaged/$c175 bs=1 seek=2500 conv=notrunc 2>dd.log
train --out damaged --resume >/dev/null 2>err.log
ok $? "a damaged checkpoint does not stop a resume" err.log
is "it is named" grep -q "$c175: damaged" err.log
is "the one before it is taken" grep -q 'resumed damaged/checkpoint-000000000150' err.log
is "and the end is the same" cmp straight/final.safetensors damaged/final.safetensors
mkdir hopeless
head -c 3000 straight/$c175 >hopeless/$c175
train --out hopeless --resume --stop-after 1 >/dev/null 2>err.log
ok $? "without a whole one it starts anew" err.log
is "and says so" grep -q 'starting anew' err.log

# --- signals. The metrics go through a pipe, so that a step can be waited for.

mkfifo events
start_long() { # start_long OUT
	"$dunlin" train --config run.json --out "$1" --epochs 100000 --metrics events \
		>out.log 2>err.log &
	child=$!
	exec 9<>events
	while read -t 60 -r line <&9 && [[ $line != *'"event":"step"'* ]]; do :; done
}
for signal in INT TERM; do
	start_long "signal-$signal"
	kill -$signal $child
	wait $child
	ok $? "SIG$signal ends a run with exit code 0" err.log
	child=
	exec 9>&-
	told=$(sed -n 's/.*, \(.*\); --resume.*/\1/p' out.log)
	is "after a checkpoint of the step it names" test "$(newest "signal-$signal")" = "$told"
	is "which is whole" "$dunlin" inspect "$(newest "signal-$signal")"
done
start_long twice
# Stopped, so that both are there before either is served.
kill -STOP $child
kill -TERM $child
kill -INT $child
kill -CONT $child
wait $child
ok $? "a signal that comes twice at once is one" err.log
child=
exec 9>&-
is "after a whole checkpoint" "$dunlin" inspect "$(newest twice)"
start_long locked
train --out locked --resume >/dev/null 2>lock.log
is "a second trainer in the folder is refused" test $? = 1
is "with the reason" grep -q 'another dunlin' lock.log
kill -TERM $child
wait $child
child=
exec 9>&-

# --- divergence

mkdir diverged
cp straight/$c150 diverged/
train --out diverged --resume --lr 1e9 >/dev/null 2>err.log
is "a loss that is not finite ends with code 6" test $? = 6
is "the last good checkpoint is named" \
	grep -q 'last good checkpoint is diverged/checkpoint-' err.log
good=$(sed -n 's/.*last good checkpoint is //p' err.log)
is "it is the newest, and whole" test "$good" = "$(newest diverged)"
is "as inspect finds too" "$dunlin" inspect "$good"
is "there are no final weights" test ! -e diverged/final.safetensors
is "the older one is untouched" \
	cmp straight/$c150 diverged/$c150
is "what to try is told" grep -q -e '--lr' err.log

# --- weights

c200=checkpoint-000000000200.safetensors
"$dunlin" export straight/$c200 exported.safetensors >/dev/null 2>err.log
ok $? "export" err.log
is "it equals the final weights" cmp straight/final.safetensors exported.safetensors
"$dunlin" export exported.safetensors exported.safetensors >/dev/null 2>&1
is "export does not write over its own source" test $? = 2
train --out straight --resume 2>/dev/null | head -n 1 >summary.log
"$dunlin" eval --config run.json exported.safetensors >out.log 2>err.log
is "eval gives what the run ended with" cmp summary.log out.log
"$dunlin" eval --config run.json --model mlp straight/$c200 >out.log 2>err.log
is "also of a checkpoint, whatever model the config names" cmp summary.log out.log
"$dunlin" eval --config run.json --json exported.safetensors >out.log 2>err.log
is "eval --json" grep -Eq \
	'^\{"loss":[0-9.e+-]+,"accuracy":[0-9.e+-]+,"correct":[0-9]+,"count":90\}$' out.log
is "eval agrees with the last line of the metrics" \
	test "$(sed 's/.*"loss":\([0-9.]\{8\}\).*/\1/' out.log)" = "$(grep '"set":"test"' \
		straight/metrics.jsonl | tail -n 1 | sed 's/.*"loss":\([0-9.]\{8\}\).*/\1/')"
"$dunlin" inspect straight/best.safetensors >out.log 2>err.log
ok $? "inspect knows a checkpoint" err.log
is "and tells its kind" grep -q '^checkpoint: ' out.log
best=$(sed -n 's/.*"best_step": "\([0-9]*\)"/\1/p' out.log)
grep '"set":"validation"' straight/metrics.jsonl |
	sed 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*/\2 \1/' | sort -g >sorted.log
is "the best is the one with the lowest validation loss" \
	test "$best" = "$(head -n 1 sorted.log | cut -d' ' -f2)"
shows() { # shows PATTERN ARGUMENTS OF INSPECT
	local pattern=$1
	shift
	"$dunlin" inspect "$@" | grep -q "$pattern"
}
is "inspect --json" shows '"kind":"weights".*"finite":true}$' --json exported.safetensors
is "inspect of images" shows '^IDX images: 500x8x8,' train-images
is "inspect of labels" shows '"labels":{"0":23,"1":23,"2":22,"3":22}' --json test-labels
train --out from --init-from exported.safetensors --lr 1e-30 --epochs 1 >out.log 2>err.log
is "init-from begins with those weights" \
	test "$(head -n 1 out.log)" = "$(head -n 1 summary.log)"

# --- a gpt, out to the layout of Hugging Face and in again

for i in $(seq 200); do echo "line $i of a text"; done >text.txt
small=(--model gpt --gpt-layers 1 --gpt-width 16 --data text.txt --batch 4)
gpt() { "$dunlin" train "${small[@]}" --gpt-heads 2 --context 16 "$@"; }
is "a gpt trains" gpt --out gpt --stop-after 3
"$dunlin" export "$(newest gpt)" gpt.safetensors >/dev/null 2>&1
is "and is exported" "$dunlin" export --layout huggingface gpt.safetensors theirs
is "with its config.json" grep -q '"n_positions": 16,' theirs/config.json
is "as a folder that can be exported back" "$dunlin" export theirs back.safetensors
"$dunlin" eval --data text.txt gpt.safetensors >ours.log 2>&1
"$dunlin" eval --data text.txt theirs >theirs.log 2>&1
is "evaluates the same" cmp ours.log theirs.log
is "which is a result" grep -q '^test loss [0-9.]*, perplexity' theirs.log
sampled() { "$dunlin" sample --tokens 20 --random-seed 3 --prompt line "$1" 2>err.log; }
text=$(sampled back.safetensors)
is "writes something" test -n "$text"
is "and the same" test "$text" = "$(sampled theirs)"
is "begins a run, also of shorter samples" \
	gpt --out shorter --init-from theirs --context 8 --stop-after 1

# --- wrong files, and the exit codes that tell them apart

code() { # code WANTED WORDS NAME COMMAND...
	local want=$1 words=$2 name=$3 got
	shift 3
	"$@" >out.log 2>err.log
	got=$?
	n=$((n + 1))
	if [ $got = "$want" ] && grep -q -e "$words" err.log; then
		echo "ok $n - $name: code $want"
	else
		echo "not ok $n - $name: code $got, wanted $want and \"$words\""
		sed 's/^/# /' err.log
	fi
}
head -c 1000 train-images >short-images
sed 's/"type": "dense", "units": 4}/"type": "dense", "units": 5}/' run.json >five.json
sed 's/"kernel": 3, "pad": 1/"kernel": 30/' run.json >large.json
code 4 short-images "truncated data" train --out x --train-images short-images
code 4 none-images "missing data" train --out x --train-images none-images
code 4 swapped "swapped files" train --out x --train-images train-labels --train-labels train-images
code 4 narrow-images "a test set of another shape" \
	train --out x --test-images narrow-images --test-labels narrow-labels
code 4 narrow-images "eval on data of another shape" "$dunlin" eval --config run.json \
	--test-images narrow-images --test-labels narrow-labels exported.safetensors
code 3 "train.batch: 401 samples.*only 400 to train" "a batch larger than the data" \
	train --out x --batch 401
code 3 "only 100 to train on in this part" "a batch larger than a part" \
	train --out x --batch 101 --partition shard --parts 4
code 3 "train.batch: 64 samples.*448 with train.accumulate.*only 400" \
	"an accumulated batch larger than the data" train --out x --batch 64 --accumulate 7
"$dunlin" keygen --out flock.key >/dev/null
code 3 "train.batch: 401 samples.*only 400 to train" "an agent's batch, too" \
	timeout 60 "$dunlin" agent --config run.json --key flock.key --listen 127.0.0.1:0 \
	--state-dir state --socket agent.sock --out x --batch 401
code 3 conv "an impossible model" "$dunlin" train --config large.json --out x
code 2 --resume "a used folder" train --out straight
code 5 model "resume with another model" train --out straight --resume --model mlp
code 5 optimizer "resume with another optimizer" train --out straight --resume --optimizer adamw
code 5 "training samples" "resume with other data" train --out straight --resume --validation 0.1
code 0 train.batch "resume with another batch" \
	train --out half --resume --batch 8 --epochs 9 --stop-after 1
code 5 missing "weights of another model" train --out x --init-from exported.safetensors --model mlp
code 5 train-images "weights that are none" train --out x --init-from train-images
code 5 damaged "damaged weights" train --out x --init-from damaged/$c175.damaged
code 5 damaged "eval of a damaged checkpoint" \
	"$dunlin" eval --config run.json damaged/$c175.damaged
code 4 short-images "eval on truncated data" \
	"$dunlin" eval --config run.json --test-images short-images exported.safetensors
code 5 none "eval of a missing file" "$dunlin" eval --config run.json none.safetensors
code 5 none "inspect of a missing file" "$dunlin" inspect none.safetensors
code 4 short-images "inspect of truncated data" "$dunlin" inspect short-images
code 5 neither "inspect of something else" "$dunlin" inspect run.json
code 5 damaged "inspect of a damaged checkpoint" \
	"$dunlin" inspect damaged/$c175.damaged
code 5 none "export of a missing file" "$dunlin" export none.safetensors y.safetensors
code 1 nowhere "export to nowhere" "$dunlin" export exported.safetensors nowhere/y.safetensors
code 5 "no GPT-2" "export of another model in that layout" \
	"$dunlin" export --layout huggingface exported.safetensors x
code 2 "dunlin or huggingface" "export in a layout that is none" \
	"$dunlin" export --layout torch exported.safetensors x
code 2 "checkpoint itself" "export over its own source" \
	"$dunlin" export --layout huggingface theirs theirs
cp -r theirs copy
code 2 "copy/model.safetensors is in" "export over a file of the source" \
	"$dunlin" export theirs/../copy copy/model.safetensors
code 2 "copy/config.json is in" "over its config.json" "$dunlin" export copy copy/config.json
code 2 "config.json of the checkpoint" "also by the name of its file" \
	"$dunlin" export copy/model.safetensors copy/config.json
echo '{"weight_map": {}}' >copy/model.safetensors.index.json
code 2 "copy/shard is in" "over a file of an index" \
	"$dunlin" export copy/model.safetensors.index.json copy/shard
rm copy/model.safetensors.index.json
code 2 "copy is in, or is, the folder" "into the folder of the source" \
	"$dunlin" export --layout huggingface copy/model.safetensors copy
is "none of which changes the source" diff -r theirs copy
is "another folder in it is one" "$dunlin" export --layout huggingface copy copy/in
mkdir -p half/model.safetensors && cp theirs/config.json half
code 1 half/model.safetensors "export that cannot write the weights" \
	"$dunlin" export --layout huggingface copy half
is "leaves no config.json that was there" test ! -e half/config.json
code 5 "h.0.attn: 2 heads, but the model here has 4" "weights of other heads" \
	"$dunlin" train "${small[@]}" --gpt-heads 4 --context 16 --out x --init-from theirs
code 5 "embed.position: 16x16, not 17x16" "weights of too few positions" \
	"$dunlin" train "${small[@]}" --gpt-heads 2 --context 17 --out x --init-from theirs
sed -i 's/"layer_norm_epsilon": 1e-05/"layer_norm_epsilon": 1e-06/' copy/config.json
taken() { "$dunlin" train "${small[@]}" --gpt-heads 2 --context 16 "$@" --init-from copy; }
code 5 "ln_1: eps 1e-06, but the model here has 1e-05" "weights of another eps" taken --out x
rm copy/config.json
code 0 "copy: no config.json is with it" "weights that say less are taken, with a warning" \
	taken --out less --stop-after 1
head -c 900 theirs/model.safetensors >cut.safetensors
mv cut.safetensors theirs/model.safetensors
code 5 "theirs/model.safetensors: truncated" "a damaged folder" "$dunlin" eval theirs
is "a refused start leaves no folder" test ! -e x

# --- an agent alone evaluates what train does

code 0 "validation: loss .* accuracy .* of 100" "an agent evaluates what is held out" \
	timeout 60 "$dunlin" agent --config run.json --key flock.key --listen 127.0.0.1:0 \
	--state-dir state --socket agent.sock --out alone --epochs 2 --merge-seconds 1 \
	--stay-seconds 0
is "says how the best was" grep -q '^best validation loss .* alone/best.safetensors$' out.log
is "and keeps it" test -e alone/best.safetensors

# --- where memory cannot be made executable

deny=${builddir:-.}/tests/integration/no_exec_memory
dense='[{"type": "flatten"}, {"type": "dense", "units": 16}, {"type": "relu"},
	{"type": "dense", "units": 4}]'
sed "/\"layers\": \[/,/^\t\]},/c \\\t\"model\": {\"layers\": $(tr -d '\n' <<<"$dense")}," \
	run.json >dense.json
if "$deny" 2>deny.log; then
	code 7 "conv1: memory cannot be made executable.*MemoryDenyWriteExecute" \
		"a convolution names the cause" "$deny" "$dunlin" train --config run.json --out y
	code 0 "cpu (OpenBLAS: no executable memory" "dense layers train" \
		"$deny" "$dunlin" train --config dense.json --out dense --stop-after 10
	sed 's/"deterministic": true/"deterministic": false/' dense.json >timed.json
	"$dunlin" train --config timed.json --out timed --stop-after 10 >/dev/null 2>&1
	code 0 "resumed timed/" "also from a checkpoint of a machine that allows it" \
		"$deny" "$dunlin" train --config timed.json --out timed --resume --stop-after 10
	code 0 "^device  plain" "the plain device needs no such memory" \
		"$deny" "$dunlin" train --config run.json --out plain --device plain --stop-after 5
else
	ok 0 "memory that is not executable # SKIP $(head -n 1 deny.log)"
fi

# --- a text

if [ -w /dev/full ]; then
	yes 'a text of some bytes' 2>/dev/null | head -c 2000 >text.txt
	"$dunlin" train --model gpt --gpt-layers 1 --gpt-width 8 --gpt-heads 1 --data text.txt \
		--context 8 --batch 4 --epochs 0.1 --device cpu --out text >text.log 2>&1
	is "a gpt learns a text" test -e text/final.safetensors
	# Enough for an age: timeout would say 124.
	sample_to_full() {
		timeout 60 "$dunlin" sample text/final.safetensors --tokens 900000000 >/dev/full
	}
	code 1 "write to stdout: No space left" "nobody takes a sample, and it ends" sample_to_full
else
	ok 0 "nobody takes a sample, and it ends # SKIP no /dev/full"
fi

# --- a control group with half of a core's time

has_quota() { # has_quota GROUP: makes it
	[ "$(nproc)" -gt 1 ] && mkdir "$1" && if [ -e "$1/cpu.cfs_quota_us" ]; then
		echo 50000 >"$1/cpu.cfs_quota_us"
	else
		echo "50000 100000" >"$1/cpu.max"
	fi
}
# Bash forks for a group of commands: 0 is its own process.
within() { # within GROUP COMMAND...
	(echo 0 >"$1/cgroup.procs" && shift && exec env -u DUNLIN_THREADS "$@")
}
group=/sys/fs/cgroup/cpu
[ -d $group ] || group=/sys/fs/cgroup
group=$group/dunlin-test-$$
if has_quota $group 2>quota.log && within $group true 2>>quota.log; then
	code 0 "1 thread), limited by the CPU quota" "threads follow the CPU quota" \
		within $group "$dunlin" train --config run.json --out quota --stop-after 1
else
	ok 0 "threads follow the CPU quota # SKIP one core, or no control group can be made here"
fi
rmdir $group 2>/dev/null

echo "1..$n"

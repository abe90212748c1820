#!/bin/bash
# SPDX-License-Identifier: MIT
# dunlin simulate as a user meets it, on small data made here: from init to a page that compares two
# methods, the same bits for any number of threads, stop and resume, and what wrong input says.
srcdir=$(realpath "${srcdir:-.}") || exit 99
# shellcheck source=tests/integration/lib.sh
. "$srcdir/tests/integration/lib.sh"
cd "$dir" || exit 99

# COUNT images of 8 x 8 in 4 classes: the label's pair of rows is lit, under noise.
make_data() { # make_data NAME COUNT SEED
	local text
	text=$(awk -v n="$2" -v seed="$3" 'BEGIN {
		srand(seed)
		printf "\\0\\0\\010\\003\\0\\0\\%03o\\%03o", n / 256, n % 256
		printf "\\0\\0\\0\\010\\0\\0\\0\\010"
		for (i = 0; i < n; i++)
			for (y = 0; y < 8; y++)
				for (x = 0; x < 8; x++)
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
make_data train 400 1
make_data test 80 2

# The example that init writes, for this data and four agents: each expression changes a line.
"$dunlin" simulate init example.json || exit 99
layers='{"type": "flatten"}, {"type": "dense", "units": 16}, {"type": "relu"}'
edit() { # edit FILE SED-ARGUMENTS...
	sed -e "s/\"mlp\"/{\"layers\": [$layers, {\"type\": \"dense\", \"units\": 4}]}/" \
		-e 's/\("train_images": \).*/\1"train-images",/' \
		-e 's/\("train_labels": \).*/\1"train-labels",/' \
		-e 's/\("test_images": \).*/\1"test-images",/' \
		-e 's/\("test_labels": \).*/\1"test-labels",/' \
		-e 's/"batch": 64/"batch": 10/' -e 's/"lr": 0.05/"lr": 0.02/' \
		-e 's/"count": 8/"count": 4/' -e 's/"noise": 0/"noise": 0.2/' \
		-e 's/"every": 20/"every": 5/' -e 's/"points": 20/"points": 5/' \
		-e 's/"seeds": 1/"seeds": 2/' "${@:2}" example.json >"$1" || exit 99
}
for method in bsp gossip_pair dunlin; do
	edit $method.json -e "s/\"kind\": \"gossip_pair\"/\"kind\": \"$method\"/" \
		-e "s/\"name\": \"scenario\"/\"name\": \"of $method\"/"
done

# exits CODE PATTERN COMMAND...: with that code, and says that, on stdout or stderr.
exits() {
	local code=$1 pattern=$2 log=$dir/exits.$BASHPID is
	shift 2
	"$@" >"$log" 2>&1 </dev/null
	is=$?
	cat "$log"
	echo "exit code $is"
	[ $is = "$code" ] && grep -qE -e "$pattern" "$log"
}
sim() { "$dunlin" simulate "$@"; }
# What a run took in real time is the only part of a result that differs.
bits() { sed 's/"real_s":[^,}]*//' "$1"; }
same_bits() { cmp <(bits "$1") <(bits "$2"); }
differ() { ! same_bits "$1" "$2"; }

# shellcheck disable=SC2317 # called by scenario, here and below
runs() {
	local method
	for method in bsp gossip_pair dunlin; do
		check "$method: --check" exits 0 \
			"of $method: $method, 4 agents, 1108 parameters, 400 steps in all, 2 runs" \
			sim --check $method.json
		check "$method: a run" exits 0 "of $method +$method +2 +(9[0-9]|100)\." \
			sim $method.json --out $method --threads 1
		cp "$dir/exits.$BASHPID" $method.log
		check "$method: result" \
			grep -q '^{"format":"dunlin-simulate-1"' $method/result.jsonl
		check "$method: page" grep -q '</html>' $method/report.html
		check "$method: a trace of each seed" test -s $method/trace-1.jsonl -a \
			-s $method/trace-2.jsonl
		sim $method.json --json --threads 2 >$method.2
		check "$method: two threads give the same bits" \
			same_bits $method/result.jsonl $method.2
		sim $method.json --json --threads 2 --seed 7 >$method.7
		check "$method: another seed gives others" differ $method.2 $method.7
	done
	check "all-reduce in both formats" \
		grep -qE '^of bsp: all-reduce of fp32: .* in .*, the run .*; of bf16: ' bsp.log
	check "--measure prints a scenario" exits 0 '"step_ms": 0\.[0-9]+' sim --measure bsp.json
	sim --measure bsp.json >measured.json
	check "which is one" exits 0 '^of bsp: bsp, 4 agents' sim --check measured.json
	check "--check keeps nothing" test ! -e result.jsonl
	check "init keeps a file that is there" exits 1 'example.json: File exists' \
		sim init example.json

	check "--compare" exits 0 '^of bsp ' sim --compare bsp gossip_pair --out both.html
	check "has one table, and both formats of all-reduce" exits 0 '^4$' bash -c \
		"'$dunlin' simulate --compare bsp gossip_pair | wc -l"
	check "and one page of both" grep -q 'of bsp.*of gossip_pair' <(tr -d '\n' <both.html)
	check "--compare of a file that is none" exits 1 'example.json:1: ' \
		sim --compare bsp example.json
	check "--compare of a folder that is not there" exits 1 'nowhere: No such file' \
		sim --compare bsp nowhere
}

# shellcheck disable=SC2317
wrong() {
	edit key.json -e 's/"batch"/"bacth"/' -e 's/"every"/"evrey"/'
	check "a misspelt key" exits 3 'key.json:[0-9]+: .*did you mean "train.batch"' sim key.json
	check "each of them" exits 3 'key.json:[0-9]+: .*did you mean "method.every"' sim key.json
	edit range.json -e 's/"count": 4/"count": 0/'
	check "a number out of range" exits 3 'agents.count: ' sim --check range.json
	check "a file that is not there" exits 3 'nowhere.json: No such file' sim nowhere.json
	edit data.json -e 's/train-images/nowhere-images/'
	check "missing data" exits 4 'nowhere-images: .*No such file' sim data.json
	check "missing data, --check" exits 4 'nowhere-images: .*No such file' sim --check data.json
	check "--resume without a folder" exits 2 'needs --out' sim data.json --resume

	edit few.json -e 's/"epochs": 10/"epochs": 1/'
	sim few.json --out few >few.log 2>&1
	cp -r few few.before
	check "a folder that has results" exits 1 'few has results already: --resume' \
		sim bsp.json --out few
	check "which stay as they were" diff -r few few.before
	check "a folder of another scenario" exits 1 'results of another scenario' \
		sim bsp.json --out few --resume
	check "which stays, too" diff -r few few.before

	# A name is nobody's path and nobody's markup.
	mkdir -p deep/er
	edit deep/er/evil.json -e 's/"epochs": 10/"epochs": 1/' \
		-e 's#"name": "scenario"#"name": "../../x<script>alert(1)</script>"#' \
		-e 's#"\(train\|test\)-#"../../\1-#'
	check "a name like a path" exits 0 '^[.][.]/[.][.]/x<script>' \
		env -C deep/er "$dunlin" simulate evil.json --out out
	check "is not one" exits 0 '^(deep/er/(evil.json|out/[^/]*) ){5}$' bash -c \
		"find . -path ./running -prune -o \( -path '*/er/*' -o -name '*script*' \) \
			-type f -printf '%P ' && find /tmp -maxdepth 1 -name 'x<script>*'"
	check "nor markup" exits 0 '^0$' bash -c \
		"tr '\n' ' ' <deep/er/out/report.html | grep -c '<script>alert' || true"
	check "but shown" grep -q 'x&lt;script&gt;alert' deep/er/out/report.html
	edit bell.json -e 's/"name": "scenario"/"name": "a\\u001b[31m"/'
	check "a name that drives a terminal" exits 3 'name: must have no control' \
		sim --check bell.json
}

# The trace of the second seed goes through a pipe, so that its first line can be waited for, and a
# run that is not read from stops before its end.
# shellcheck disable=SC2317
stopped() {
	local p line=
	edit long.json -e 's/"kind": "gossip_pair"/"kind": "dunlin"/' \
		-e 's/"epochs": 10/"epochs": 100/'
	sim long.json --json --threads 1 >straight.out 2>straight.log
	mkdir half
	mkfifo half/trace-2.jsonl
	"$dunlin" simulate long.json --out half --threads 1 >half.out 2>half.log </dev/null &
	p=$!
	: >running/$p
	# shellcheck disable=SC2094 # a pipe
	exec 8<>half/trace-2.jsonl 9<half/trace-2.jsonl
	IFS= read -r -t 60 line <&9
	kill -INT $p
	exec 8>&- # the program alone writes now: the end of the trace is its own
	cat <&9 >/dev/null
	exec 9<&-
	wait $p
	check "SIGINT ends a run with code 0" test $? = 0
	rm -f running/$p half/trace-2.jsonl
	check "a trace was begun" test "${line:0:1}" = "{"
	check "it says how to go on" grep -q 'stopped; --resume goes on' half.log
	check "the first seed is whole, the second is not" exits 0 '^true false $' bash -c \
		"sed -n 's/^{\"run\":.*\"complete\":\([a-z]*\).*/\1/p' half/result.jsonl |
			tr '\n' ' '"
	check "--resume goes on" exits 0 '^scenario +dunlin +2 ' sim long.json --out half --resume
	check "only with what is missing" test -s half/trace-2.jsonl
	check "to the bits of a run that was not stopped" same_bits half/result.jsonl straight.out
	check "and has nothing left to do" exits 0 '^scenario +dunlin +2 ' \
		sim long.json --out half --resume
}

# shellcheck disable=SC2317
examples() {
	local file name files='"train_images": "train-images", "train_labels": "train-labels"'
	files+=', "test_images": "test-images", "test_labels": "test-labels"'
	for file in "$srcdir"/deploy/scenarios/*.json; do
		name=${file##*/}
		sed "s#^\( *\)\"data\": {.*#\1\"data\": {$files},#" "$file" >"of-$name"
		if grep -q '"train": false' "$file"; then
			check "scenarios/$name runs without data" exits 0 ' [0-9.]+ [MGT]B ' \
				sim "$file" --out "without-$name"
			check "and says that nothing was trained" \
				grep -q 'nothing was trained' "without-$name/report.html"
			check "nor can it be measured" exits 3 'no step to measure' \
				sim --measure "$file"
			continue
		fi
		check "deploy/scenarios/$name reads this data" grep -q '"train-images"' "of-$name"
		check "deploy/scenarios/$name is valid" exits 0 'memory about .* MB; time about' \
			sim --check "of-$name"
	done
}

scenario runs
scenario wrong
scenario stopped
scenario examples
finish

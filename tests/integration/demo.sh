#!/bin/bash
# SPDX-License-Identifier: MIT
# deploy/demo with a program that is built already, in a short run; interrupted; and its plots and
# table from a small log.
set -u
dunlin=$(realpath "${DUNLIN:-./dunlin}") || exit 99
srcdir=$(realpath "${srcdir:-.}") || exit 99
dir=$(mktemp -d "${TMPDIR:-/tmp}/dunlin.XXXXXX") || exit 99
demo='' n=0 patience=${PATIENCE:-300}
# shellcheck disable=SC2317 # called by the trap
clean_up() {
	[ -z "$demo" ] || { kill -TERM "$demo" && wait "$demo"; } 2>/dev/null
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
mkdir "$dir/tmp"
cd "$dir" || exit 99

# check NAME COMMAND...: one result; what the command says follows a failure.
check() {
	local name=$1
	shift
	n=$((n + 1))
	if "$@" >"$dir/said" 2>&1; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name"
		sed 's/^/# /' "$dir/said"
	fi
}
skip() { n=$((n + 1)) && echo "ok $n - $1 # SKIP $2"; }

# ---- plots and table

# A log of two agents, one of whose names is not fit for XML.
{
	head='time name state phase reason step samples clock total loss lr samples_per_s accuracy'
	head+=' accuracy_step local_accuracy merged_accuracy peers change delta lssr local_steps'
	head+=' distance consensus begun taken bytes_sent bytes_received net_bytes_sent saved_bytes'
	echo "$head"
	for t in 0 1 2 3; do
		echo "10$t.5 a up training local $t 64 64 900 0.$((9 - t)) - -" \
			"0.8$t 1 - - 1 - - - $t 1 - 1 $t $((t * 1000000)) 0 500000 $((t * 9000000))"
		[ $t = 0 ] || echo "10$t.5 <b&\"> up training local $t 32 64 900 - - - -" \
			"- - - 1 - - - $t 1 - 0 0 0 0 0 -"
	done
	echo "104.5 a gone finished local 4 128 64 900 99 - - 0.9 1 0.91 0.92 1 - - -" \
		"4 1 - 1 4 4000000 0 500000 45000000"
} | tr ' ' '\t' >small.tsv
printf '102.0\tan <event>\n99\tbefore it all\n' >events.tsv
printf 'a\tfinished\n<b&">\tleft\n' >fates

plot() { # plot NAME FILE
	"$dunlin" plot --title 'a & b' --events events.tsv --y "$1" --out "$2" small.tsv
}
well_formed() {
	if command -v xmllint >/dev/null; then
		xmllint --noout "$1"
	else
		python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$1"
	fi
}
has() { grep -E -e "$2" "$1" || { cat "$1" && false; }; }
count() { # count N PATTERN FILE
	grep -cE -e "$2" "$3"
	[ "$(grep -cE -e "$2" "$3")" = "$1" ]
}
line='class="l k[0-9] d[0-9]" d="M[0-9.]+ [0-9.]+[^"]*"><title>' # of an agent; not of the legend
plot loss loss.svg 2>err
check "a plot" test -s loss.svg -a ! -s err
check "of the one agent that has a loss" count 1 "$line" loss.svg
check "with its four points, the last not that of its end" \
	has loss.svg 'd="M[0-9.]+ [0-9.]+(L[0-9.]+ [0-9.]+){3}"><title>a</title>'
check "the event, but none from before" count 1 'class="mark"' loss.svg
plot bytes_sent+net_bytes_sent bytes.svg
check "a plot of a sum" count 2 "$line" bytes.svg
check "in its unit" has bytes.svg 'bytes_sent\+net_bytes_sent \(MB\)'
check "names are escaped" has bytes.svg '>&lt;b&amp;&quot;&gt;<'
plot loss,accuracy page.html
check "a page of two plots" count 2 '</svg>' page.html
if command -v xmllint >/dev/null || command -v python3 >/dev/null; then
	check "well-formed" well_formed loss.svg
	check "both of them" well_formed bytes.svg
else
	skip "well-formed" "neither xmllint nor python3"
fi
plot nothing none.svg 2>err
check "a column that is not there" test $? = 4
check "is named" has err 'no column nothing'
check "and nothing is written" test ! -e none.svg
mkdir two
{
	echo '{"event":"start","time":100,"step":0}'
	echo '{"event":"step","time":101,"step":1,"loss":0.9}'
	echo '{"event":"step","time":102,"step":2,"loss":0.5}'
	echo '{"event":"eval","time":103,"step":2,"accuracy":0.8,"loss":0.4}'
	printf '{"event":"step","time":104,"st'
} >two/metrics.jsonl
"$dunlin" plot --x step --out metrics.svg two/metrics.jsonl
check "a plot of metrics, whose last line is torn" \
	has metrics.svg 'd="M[0-9.]+ [0-9.]+L[0-9.]+ [0-9.]+"><title>two</title>'

awk -F'\t' -f "$srcdir/deploy/table.awk" fates small.tsv >table 2>err
check "a table" test $? = 0
check "of what was said last" has table \
	'^a +finished +91\.00 % +92\.00 % +128 +5 +4 +4\.5 MB +45\.0 MB$'
printf 'a\tfinished\t91.5\t93\n' >told
check "or told at the end" eval "awk -F'\t' -f '$srcdir/deploy/table.awk' told small.tsv |
	grep -E '^a +finished +91\.50 % +93\.00 % '"
check "also by the one that left" has table '^<b&"> +left +- +- +32 +0 +3 +0\.0 MB +0\.0 MB$'
check "and all together" has table '^all +160 +4\.5 MB +45\.0 MB$'
check "in words" has table '10 times what was sent$'
printf 'c\tlost\n' >>fates
code() { # code N COMMAND...: it ends with that
	local found
	"${@:2}"
	found=$?
	[ $found = "$1" ]
}
check "an agent that nobody saw is missed" \
	code 1 awk -F'\t' -f "$srcdir/deploy/table.awk" fates small.tsv

# ---- the whole of it

check "wrong usage" code 2 "$srcdir/deploy/demo" --nonsense
check "a folder with something in it is left alone" \
	code 1 env DEMO_PROGRAM="$dunlin" "$srcdir/deploy/demo" "$dir"

# Those that work in our temporary folder.
left_behind() { grep -lsF -- "$dir/tmp/" /proc/[0-9]*/cmdline && return 1 || return 0; }
nothing_left() { left_behind && [ -z "$(ls -A "$dir/tmp")" ]; }
run_demo() { # run_demo FOLDER: in the background
	: >"$1.txt"
	TMPDIR=$dir/tmp DEMO_PROGRAM=$dunlin DEMO_MODEL=mlp DEMO_EPOCHS=${2:-8} \
		"$srcdir/deploy/demo" "$dir/$1" >"$1.txt" 2>&1 </dev/null &
	demo=$!
}
await_line() { # await_line FILE PATTERN
	local end=$((SECONDS + patience))
	until grep -qE -e "$2" "$1"; do
		if [ $SECONDS -ge $end ] || ! kill -0 "$demo" 2>/dev/null; then
			grep -qE -e "$2" "$1" && return
			cat "$1"
			return 1
		fi
		sleep 0.05
	done
}
ended() { # ended CODE FILE
	local code
	wait "$demo"
	code=$?
	demo=
	cat "$2"
	[ $code = "$1" ]
}

data=$("$dunlin" config show --config "$srcdir/deploy/fashion.json" |
	sed -n 's/.*"\(train\|test\)_[a-z]*": *"\([^"]*\)".*/\2/p')
for file in $data; do
	[ -e "$file" ] && continue
	skip "a short run" "no $file"
	echo "1..$n"
	exit 0
done

run_demo whole
check "a short run ends well" ended 0 whole.txt
for words in 'one has begun' 'two and three have joined' 'one, the first, is killed' \
	'four is started' 'three is told to leave' 'ended with code 0' 'all samples are trained'; do
	check "it tells: $words" has whole.txt "^[0-9]+:[0-9][0-9]  .*$words"
done
check "a killed agent is gone from the view" has whole.txt '^one +gone '
check "the table" has whole.txt '^one +killed '
check "the agent that left, with its last accuracy" has whole.txt '^three +left +[0-9.]+ %\* +- '
check "one that finished, and the merged model" \
	has whole.txt '^two +finished +[0-9.]+ % +[0-9.]+ % +[1-9]'
check "the last line is the folder" test "$(tail -n 1 whole.txt)" = "$dir/whole"
check "four lines of loss" count 4 "$line" whole/loss.svg
check "four of bytes" count 4 "$line" whole/bytes.svg
check "five events" count 5 'class="mark"' whole/bytes.svg
check "a page of four plots" count 4 '</svg>' whole/report.html
check "weights of those that finished" test -s whole/two/final.safetensors -a \
	-s whole/four/final.safetensors
check "nothing is left running, nor lying about" nothing_left

run_demo cut 1000
check "another one" await_line cut.txt 'two and three have joined'
kill -TERM "$demo"
check "is interrupted" ended 130 cut.txt
check "and says so" has cut.txt '^interrupted; .* is in '"$dir/cut"'$'
check "nothing is left of it" nothing_left

# Ctrl-C, as a terminal gives it; a shell that was started without it cannot hear it.
# shellcheck disable=SC2094 # what is said is read while it is written
typed() {
	: >typed.txt
	{
		end=$((SECONDS + patience))
		until grep -q 'one has begun' typed.txt || [ $SECONDS -ge $end ]; do
			sleep 0.05
		done
		printf '\003'
	} | TMPDIR=$dir/tmp DEMO_PROGRAM=$dunlin DEMO_MODEL=mlp DEMO_EPOCHS=1000 \
		SHELL=$BASH script -qfec \
		"'$srcdir/deploy/demo' '$dir/typed'; echo \"code \$?\"" /dev/null >typed.txt 2>&1
	has typed.txt '^code 130'
}
ignored=0x$(sed -n 's/^SigIgn:[[:space:]]*//p' /proc/self/status)
if ((ignored & 2)) || ! script -qec true /dev/null </dev/null >/dev/null 2>&1; then
	skip "Ctrl-C" "no script(1), or no SIGINT"
else
	check "Ctrl-C" typed
	check "leaves nothing behind" nothing_left
fi
echo "1..$n"

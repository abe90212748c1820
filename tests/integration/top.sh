#!/bin/bash
# SPDX-License-Identifier: MIT
# dunlin top, watching real agents that train, stand still, are killed and leave.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "${srcdir:-.}/tests/integration/lib.sh"

new_key "$dir/flock.key" || exit 99

# 256 images of 8 x 8 in 4 classes, with nothing in them to learn.
make_data() {
	{ printf '\0\0\10\3\0\0\1\0\0\0\0\10\0\0\0\10' && seq 10000 | head -c 16384; } \
		>"$dir/images"
	{ printf '\0\0\10\1\0\0\1\0' && for _ in {1..64}; do printf '\0\1\2\3'; done; } \
		>"$dir/labels"
	cat >"$dir/train.json" <<-END
		{"model": {"layers": [{"type": "flatten"}, {"type": "dense", "units": 4}]},
		 "data": {"train_images": "$dir/images", "train_labels": "$dir/labels",
		          "test_images": "$dir/images", "test_labels": "$dir/labels"},
		 "train": {"epochs": 1000000, "batch": 16}, "run": {"threads": 1}}
	END
}

# seen PATTERN FILE: waits until a line of the file has it, and shows that line.
seen() {
	local end=$((SECONDS + patience))
	until grep -m 1 -aE -e "$1" "$2"; do
		if [ $SECONDS -ge $end ]; then
			echo "never seen \"$1\", but"
			tail -n 20 "$2"
			return 1
		fi
		sleep 0.05
	done
}
lines() { grep -acE -e "$1" "$2"; }
# more PATTERN FILE N: until there are more than N such lines.
more() {
	local end=$((SECONDS + patience))
	until [ "$(lines "$1" "$2")" -gt "$3" ]; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.05
	done
}

# ---- all that can become of an agent

watched() {
	local out=$dir/view log=$dir/log.tsv n tab=$'\t'
	make_data
	check "agents" start w1 || return
	local seed=127.0.0.1:${port[w1]}
	begin w2 --listen 127.0.0.1:0 --seed "$seed"
	train=train begin w3 --listen 127.0.0.1:0 --seed "$seed" --config "$dir/train.json" \
		--out "$dir/w3.run"
	check "three of them, one trains" ready w2 w3
	mkfifo "$dir/notes"
	"$dunlin" top --notes --until-gone --every 1 --log "$log" "$dir"/w{1,2,3,4}.sock \
		<"$dir/notes" >"$out" 2>&1 &
	pid[view]=$!
	: >"$dir/running/$!"
	exec 5>"$dir/notes"
	check "a member is a row" seen '^w1 +member +- +- ' "$out"
	check "and another" seen '^w2 +member +- ' "$out"
	check "one that trains, with its run and its gate" \
		seen '^w3 +training +[1-9][0-9]* +[0-9.]+ .* [0-9.]+% +2 .*/0\.35 +[a-z-]+ ' "$out"
	check "one that is not there" seen '^w4 +absent +- ' "$out"
	check "there are headings" seen '^NAME +PHASE +STEP +LOSS +ACC +RUN +PEERS' "$out"
	check "no terminal, no escapes" test "$(lines $'\033' "$out")" = 0

	printf 'a note \033[31m\nand ano' >&5
	check "notes are shown, and escaped" seen '^a note \\u001b\[31m$' "$out"
	check "half a line is not" test "$(lines '^and ano' "$out")" = 0
	echo ther >&5
	check "until it is whole" seen '^and another$' "$out"

	signal STOP w2
	check "one that stands still is silent" seen '^w2 +silent ' "$out"
	n=$(lines "^[0-9.]+${tab}w3${tab}up" "$log")
	check "and holds up nobody" more "^[0-9.]+${tab}w3${tab}up" "$log" $((n + 2))
	check "that is in the log" seen "^[0-9.]+${tab}w2${tab}silent" "$log"
	n=$(lines '^w2 +member ' "$out")
	signal CONT w2
	check "it is back" more '^w2 +member ' "$out" "$n"

	signal STOP w2
	crash w1
	check "a killed one is gone" seen '^w1 +gone ' "$out"
	crash w2
	check "also one that stood still" seen '^w2 +gone ' "$out"
	begin w4 --listen 127.0.0.1:0 --seed "127.0.0.1:${port[w3]}"
	check "one comes late" ready w4
	check "and is shown" seen '^w4 +member ' "$out"
	exec 5>&-
	n=$(lines '^w4 ' "$out")
	check "the end of the notes is not the end" more '^w4 ' "$out" "$n"
	signal TERM w3
	signal TERM w4
	check "the last two leave" ended w3
	check "with code 0" ended w4
	check "that is the end" ended view
	check "the last rows say so" last_rows "$out"
	check "every line of the log has its columns" awk -F'\t' 'NR == 1 { n = NF; next }
		NF != n { print; bad = 1 } END { exit bad || n != 32 || NR < 10 }' "$log"
	for n in w1 w2 w3 w4; do
		check "the log has the end of $n once" test \
			"$(lines "^[0-9.]+${tab}$n${tab}gone" "$log")" = 1
	done
	check "steps never go down" steps_grow "$log"
}
steps_grow() {
	awk -F'\t' '$2 == "w3" && $6 != "-" { bad = bad || $6 < last; last = $6; n++ }
		END { exit bad || n < 3 }' "$1"
}
last_rows() {
	tail -n 5 "$1"
	[ "$(tail -n 5 "$1" | grep -cE '^w[1-4] +gone ')" = 4 ]
}

# ---- a terminal

# script(1) starts $SHELL, and one that is no bash ends with the Ctrl-C that its child has heard.
# on_terminal FILE COMMAND: runs it on one of 60 columns, and types Ctrl-C when it has drawn twice.
# shellcheck disable=SC2094 # what is drawn is read while it is written
on_terminal() {
	local out=$1
	: >"$out"
	{
		seen $'\033\\[2A' "$out" >/dev/null
		printf '\003'
	} | SHELL=$BASH script -qfec "stty rows 24 cols 60; $2; echo \"code \$?\"" /dev/null \
		>"$out" 2>&1
}
terminal() {
	local out=$dir/tty
	if ! script -qec true /dev/null </dev/null >/dev/null 2>&1; then
		echo "ok - a terminal # SKIP no script(1)"
		return
	fi
	check "an agent to look at" start y1 || return
	check "on a terminal" on_terminal "$out" "'$dunlin' top '$dir/y1.sock'"
	check "it is drawn over itself" test "$(lines $'\033\\[2A\r\033\\[J' "$out")" -ge 1
	check "with colours" test "$(lines $'\033\\[1mNAME' "$out")" -ge 1
	check "in 60 columns" narrow "$out"
	check "Ctrl-C ends it well" seen '^(\^C)?code 0' "$out"
	check "without colours" on_terminal "$out" "NO_COLOR=1 '$dunlin' top '$dir/y1.sock'"
	check "there are none" test "$(lines $'\033\\[[0-9;]*m' "$out")" = 0
	check "Ctrl-C ends that too" seen '^(\^C)?code 0' "$out"
	check "a terminal that can do nothing" dumb "$out"
	check "it leaves" all_leave
}
narrow() {
	grep -a 'y1 ' "$1"
	LC_ALL=C sed $'s/\033\\[[0-9;]*[A-Za-z]//g; s/\r//g; s/[\200-\277]//g' "$1" |
		awk 'length($0) > 59 { print; bad = 1 }
			/^NAME  *PHASE  *STEP  *LOSS  *ACC  *RUN *$/ { n++ }
			END { exit bad || !n }'
}
# shellcheck disable=SC2094
dumb() {
	: >"$1"
	{
		seen 'y1 +member' "$1" >/dev/null
		printf '\003'
	} | SHELL=$BASH script -qfec "TERM=dumb '$dunlin' top '$dir/y1.sock'" /dev/null >"$1" 2>&1
	! grep -a $'\033' "$1"
}

# ---- what is wrong

# says CODE PATTERN ARGUMENTS...: it ends with this code and these words on stderr.
says() {
	local code
	"$dunlin" top "${@:3}" >/dev/null 2>"$dir/words" </dev/null
	code=$?
	cat "$dir/words"
	[ $code = "$1" ] && grep -qE -e "$2" "$dir/words"
}
wrong() {
	local many=() i
	for ((i = 0; i < 65; i++)); do many+=("$dir/$i.sock"); done
	check "nobody is there" says 9 'no agent answers at .*/nobody.sock' "$dir/nobody.sock"
	check "nor by name" says 9 'no agent answers at .*/x/agent.sock' --state-dir "$dir/x"
	check "no such time" says 2 '--every must be from 1 to 86400 seconds, not "0.5"' --every 0.5
	check "no time at all" says 2 'not "nan"' --every nan
	check "more than can be watched" says 2 'unexpected argument ".*64.sock"' "${many[@]}"
	check "an agent" start e1 || return
	check "a log that cannot be" says 1 '/none/log: No such file' --log "$dir/none/log" \
		--socket "$dir/e1.sock"
	if [ -w /dev/full ]; then
		check "a log that is full" says 1 'write /dev/full: No space' --log /dev/full \
			--socket "$dir/e1.sock"
		check "a stdout that is full" full_stdout
	fi
	check "it leaves" all_leave
}
full_stdout() {
	local code
	"$dunlin" top --socket "$dir/e1.sock" >/dev/full 2>"$dir/words" </dev/null
	code=$?
	cat "$dir/words"
	[ $code = 1 ] && grep -q 'write to stdout: No space' "$dir/words"
}

scenario watched
scenario terminal
scenario wrong
finish

#!/bin/bash
# SPDX-License-Identifier: MIT
# The lines that an agent prints to be pasted do join it: elsewhere, and on this machine.
# shellcheck source-path=SCRIPTDIR source=flock_lib.sh
. "${srcdir:-.}/tests/integration/flock_lib.sh"
mkdir "$dir/bin" && ln -s "$dunlin" "$dir/bin/dunlin" || exit 99

# paste FROM WHERE NAME: the line of that agent, run by a shell in a new home. The agent that it
# starts is ours as NAME; what it calls itself is printed in its greeting.
paste() {
	local line home=$dir/$3.home
	line=$(sed -n "s/^join $2: *//p" "$dir/$1.out")
	note "$3: $line"
	mkdir -p "$home"
	# A machine of its own would have the default port free; here it may be anybody's.
	env "${before[@]}" PATH="$dir/bin:$PATH" HOME="$home" XDG_STATE_HOME="$home/state" \
		XDG_RUNTIME_DIR="$home" DUNLIN_LISTEN=127.0.0.1:0 DUNLIN_LOG_FORMAT=json \
		DUNLIN_THREADS=1 \
		sh -c "exec $line" >"$dir/$3.out" 2>"$dir/$3.log" </dev/null &
	pid[$3]=$!
	: >"$dir/running/$!"
	line=${line#* --name }
	[ "$2" = 'on this machine' ] || line=agent
	ln -s "$home/dunlin/${line%% *}.sock" "$dir/$3.sock"
	ready "$3"
}
exchange() { await "$@" -- exchanges.outcomes.exchanged\>=2 partners.unlike=0; }

# Everything by flags and in the environment.
flags() {
	before=(DUNLIN_RUN="all by flags")
	begin f0 --listen 127.0.0.1:0 --model mlp --epochs 3e4 --batch 16 --lr 0.01 --train-seed 7 \
		--optimizer adamw --no-nesterov --wire fp32 --gate every --every 10 \
		--train-images "$dir/train-images" --train-labels "$dir/train-labels" \
		--test-images '' --test-labels= --threads 1 --out "$dir/f0.run"
	check "an agent that was told all by flags" ready f0 || return
	before=()
	check "one that is started by its line" paste f0 'from elsewhere' f1 || return
	check "exchanges with it" exchange f0 f1
	check "another on this machine" paste f0 'on this machine' f2 || return
	check "is named after it" grep -q '^agent f1 ' "$dir/f2.out"
	check "and exchanges" exchange f2
	check "all leave" all_leave
}

# A config that holds what is one agent's own, too, and flags that change the run.
both() {
	settings b 1e6
	{
		printf '{"agent": {"name": "heron", "keys": ["%s"], ' "$dir/flock.key"
		printf '"state_dir": "%s", "socket": "%s"},' "$dir/b0" "$dir/b0.sock"
		tail -c +2 "$dir/b.json"
	} >"$dir/own.json"
	"$dunlin" agent --config "$dir/own.json" --listen 127.0.0.1:0 --epochs 1e5 --run b2 \
		>"$dir/b0.out" 2>"$dir/b0.log" </dev/null &
	pid[b0]=$!
	: >"$dir/running/$!"
	check "an agent with a config and flags" ready b0 || return
	check "one beside it, by its line" paste b0 'on this machine' b1 || return
	check "is named after it" grep -q '^agent heron2 ' "$dir/b1.out"
	check "exchanges with it" exchange b0 b1
	check "all leave" all_leave
}

for s in flags both; do scenario $s; done
finish

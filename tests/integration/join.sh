#!/bin/bash
# SPDX-License-Identifier: MIT
# One string to join: `dunlin invite` prints a token, `dunlin join` makes an agent of it; and what
# is wrong with a token, or with who uses it, is told in words.
# shellcheck source-path=SCRIPTDIR source=flock_lib.sh
. "${srcdir:-.}/tests/integration/flock_lib.sh"

# The data of a run, without its secret: what a joiner has on its own machine.
data=(--train-images "$dir/train-images" --train-labels "$dir/train-labels"
	--test-images "$dir/test-images" --test-labels "$dir/test-labels")
here=("${data[@]}" --listen 127.0.0.1:0 --device plain --threads 1)

# invite NAME FLAGS...: a token of that agent.
invite() { "$dunlin" invite --socket "$dir/$1.sock" "${@:2}"; }

# joins NAME ARGUMENTS...: dunlin join, as an agent of ours; its stdin is kept.
joins() {
	local name=$1
	shift
	"$dunlin" join --name "$name" --state-dir "$dir/$name" --socket "$dir/$name.sock" \
		--log-format json --log-level debug "${here[@]}" "$@" \
		>"$dir/$name.out" 2>"$dir/$name.log" <&0 &
	pid[$name]=$!
	: >"$dir/running/$!"
}
exchange() { await "$@" -- exchanges.outcomes.exchanged\>=2 partners.unlike=0; }
mode() { [ "$(stat -c %a "$1")" = 600 ] || stat "$1"; }

# fails CODE PATTERN ARGUMENTS...: dunlin join ends so, and says so; nothing is left behind.
fails() {
	local code=$1 pattern=$2 got n=$dir/fails.$BASHPID
	shift 2
	"$dunlin" join --name bad --state-dir "$n" --socket "$n.sock" "${here[@]}" "$@" \
		>"$n.out" 2>"$n.err"
	got=$?
	cat "$n.out" "$n.err"
	grep -qE "$pattern" "$n.err" && [ $got = "$code" ] &&
		[ ! -e "$n/flock.key" ] && [ ! -e "$n/config.json" ]
}

# The secret is in no log, output or config, and no token that has it.
no_secret() {
	local secret
	secret=$(sed 's/^dunlin-flock-1://' "$dir/flock.key")
	! grep -lF -e "${secret:0:40}" "$@" && ! grep -lF -e "$(cat "$dir/t.token")" "$@"
}

trains() {
	settings t 1e6
	enter t t0
	check "an agent" ready t0 || return
	check "prints a token into a file" invite t0 --out "$dir/t.token"
	check "that others cannot read" mode "$dir/t.token"
	invite t0 --out "$dir/t.token" 2>/dev/null
	check "and writes over none" test $? = 1
	joins t1 --yes --token-file "$dir/t.token"
	check "one joins by it" ready t1 || return
	check "exchanges" exchange t1
	check "has the run's settings" grep -q '"lr": 0.02' "$dir/t1/config.json"
	check "shows them" grep -q '"lr": 0.02' "$dir/t1.out"
	check "and keeps the secret for itself" mode "$dir/t1/flock.key"
	check "and its config" mode "$dir/t1/config.json"
	joins t2 --yes <"$dir/t.token"
	check "another joins by stdin" ready t2 || return
	check "exchanges" exchange t2
	eval "line=($(sed -n 's/^join by a token: *dunlin join //p' "$dir/t1.out"))"
	joins t3 --yes "${line[@]}"
	check "another by the line that the second prints" ready t3 || return
	check "exchanges" exchange t3
	check "no secret is shown" no_secret "$dir"/t?.out "$dir"/t?.log "$dir"/t?/config.json
	signal TERM t1
	check "the second leaves" ended t1
	"$dunlin" agent --config "$dir/t1/config.json" >"$dir/t1.out" 2>"$dir/t1.log" </dev/null &
	pid[t1]=$! && : >"$dir/running/$!"
	check "and comes back by its config alone" ready t1 || return
	check "exchanges" exchange t1
	check "a token by JSON" grep -qE '"secret":false.*"seeds":\["127.0.0.1:1","127' \
		<(invite t1 --json --no-secret --seed 127.0.0.1:1)
	check "all leave" all_leave
}

refuses() {
	local token plain other
	settings r 1e6
	enter r r0
	check "an agent of a run" ready r0 || return
	token=$(invite r0) plain=$(invite r0 --no-secret)
	new_key "$dir/other.key"
	check "a token that is cut" fails 3 'damaged' --yes <<<"${token:0:90}"
	check "one that is none" fails 3 'should begin with dunlin1' --yes <<<"hello"
	check "one of a later version" fails 3 'another version' --yes <<<"dunlin2${token:7}"
	check "the key in its place" fails 3 'no token' --yes <"$dir/flock.key"
	check "a secret among the arguments" fails 2 'everybody on this machine' --yes "$token"
	echo "$token" >"$dir/open.token" && chmod 644 "$dir/open.token"
	check "a file that others can read" fails 3 'chmod 600' --yes --token-file "$dir/open.token"
	check "no secret at all" fails 3 'give its key file, --key' --yes "$plain"
	check "the key of another flock" fails 3 'of another flock' --yes "$plain" \
		--key "$dir/other.key"
	check "a flag that the run contradicts" fails 3 '^dunlin: --lr: the run has another' \
		--yes --lr 0.5 <<<"$token"
	check "nobody to ask" fails 2 'say --yes' <<<"$token"
	other=$(invite r0 --seed 127.0.0.1:1 --json | sed 's/.*"token":"\([^"]*\)".*/\1/')
	signal TERM r0 && ended r0
	check "nobody there" fails 9 'no agent at the token.s addresses answers' --yes <<<"$other"
	begin r1 --listen "127.0.0.1:${port[r0]}" --config "$dir/r.json" --out "$dir/r1.run" \
		--epochs 77
	check "an agent of another run at the address" ready r1 || return
	check "is found out" fails 3 'are of another run' --yes <<<"$token"
	token=$(invite r1)
	make_data few 1000 3
	check "other data are found out" fails_later "$token"
	check "all leave" all_leave
}
# The settings are the run's, its data are not: told before anybody hears of the agent.
fails_later() {
	local code n=$dir/later
	"$dunlin" join --name later --state-dir "$n" --socket "$n.sock" "${here[@]}" --yes \
		--train-images "$dir/few-images" --train-labels "$dir/few-labels" \
		>"$n.out" 2>"$n.err" <<<"$1"
	code=$?
	cat "$n.err"
	[ $code = 3 ] && ! grep -q 'listening on' "$n.out" &&
		grep -q "this is not the run of the token: the run's samples differ" "$n.err"
}

# A state folder of one flock does not become another's.
foreign() {
	settings f 1e6
	enter f f0
	check "an agent" ready f0 || return
	joins f1 --yes < <(invite f0)
	check "is joined" ready f1 || return
	check "one of the same name is refused" \
		fails_as f1 1 'another agent runs with this state' "$(invite f0)" --yes
	signal TERM f1 && ended f1
	new_key "$dir/second.key"
	key=$dir/second.key begin f2 --listen 127.0.0.1:0 --config "$dir/f.json" \
		--out "$dir/f2.run"
	check "an agent of another flock" ready f2 || return
	check "which it cannot join" fails_as f1 3 'choose another --name' "$(invite f2)" --yes
	check "its secret is the old one" cmp "$dir/flock.key" "$dir/f1/flock.key"
	check "all leave" all_leave
}
fails_as() { # NAME CODE PATTERN TOKEN FLAGS...
	local code
	joins f9 --name "$1" --state-dir "$dir/$1" --socket "$dir/f9.sock" "${@:5}" <<<"$4"
	wait "${pid[f9]}"
	code=$?
	rm -f "$dir/running/${pid[f9]}"
	unset "pid[f9]"
	cat "$dir/f9.log"
	[ $code = "$2" ] && grep -qE "$3" "$dir/f9.log"
}

owned() {
	local owner token
	owner=$("$dunlin" keygen --owner --out "$dir/o.owner" | tail -1)
	for label in lab brief; do
		"$dunlin" certify --owner-key "$dir/o.owner" --label $label --agents 3 \
			--expires 2099-12-31 --out "$dir/$label.invite" >/dev/null
	done
	settings o 1e6
	enter o o0 --owner "$owner" --invite "$dir/lab.invite"
	check "an agent of a flock with an owner" ready o0 || return
	check "a token without an invite" fails 3 'ask the owner for an invite' --yes \
		< <(invite o0)
	joins o1 --yes < <(invite o0 --invite "$dir/brief.invite")
	check "one with an invite" ready o1 || return
	check "exchanges" exchange o1
	check "and keeps it for itself" mode "$dir/o1/invite"
	"$dunlin" certify --owner-key "$dir/o.owner" --label late --agents 1 \
		--expires "$(date -u -d "@$(($(date +%s) + 3))" +%Y-%m-%dT%H:%M:%SZ)" \
		--out "$dir/late.invite" >/dev/null
	if token=$(invite o0 --invite "$dir/late.invite"); then
		while invite o0 --invite "$dir/late.invite" >/dev/null 2>&1; do sleep 0.2; done
		check "one that has expired" fails 3 'label late has expired' --yes <<<"$token"
	fi
	invite o0 --invite "$dir/late.invite" >/dev/null 2>&1
	check "nor is a token made of it" test $? = 3
	check "it leaves" leaves_o1
	token=$(invite o0 --invite "$dir/lab.invite")
	check "nobody to ask" fails_as o1 2 'say --yes' "$token"
	check "its invite is the old one" kept_o1
	new_key "$dir/third.key"
	key=$dir/third.key begin o2 --listen 127.0.0.1:0 --config "$dir/o.json" \
		--out "$dir/o2.run" --owner "$owner" --invite "$dir/lab.invite"
	check "an agent of another flock" ready o2 || return
	token=$(invite o2 --invite "$dir/lab.invite")
	check "which it cannot join" fails_as o1 3 'choose another --name' "$token" --yes
	check "its invite is the old one" kept_o1
	check "all leave" all_leave
}

leaves_o1() {
	signal TERM o1 && ended o1 && mkdir "$dir/kept" &&
		cp "$dir/o1/invite" "$dir/o1/certificate" "$dir/kept"
}
kept_o1() {
	cmp "$dir/kept/invite" "$dir/o1/invite" && [ ! -e "$dir/o1/invite.new" ] &&
		cmp "$dir/kept/certificate" "$dir/o1/certificate"
}

# The token is typed at a prompt that does not show it, and two questions are answered.
asks() {
	local token out=$dir/asks.out
	command -v script >/dev/null || { echo "ok - questions # SKIP no script(1)" && return; }
	settings a 1e6
	enter a a0
	check "an agent" ready a0 || return
	token=$(invite a0)
	mkdir "$dir/idx"
	for s in train t10k; do
		cp "$dir/${s/t10k/test}-images" "$dir/idx/$s-images-idx3-ubyte"
		cp "$dir/${s/t10k/test}-labels" "$dir/idx/$s-labels-idx1-ubyte"
	done
	mkfifo "$dir/keys"
	script -qefc "exec $dunlin join --name a1 --state-dir $dir/a1 --socket $dir/a1.sock \
		--listen 127.0.0.1:0 --device plain --threads 1" /dev/null \
		<"$dir/keys" >"$out" 2>&1 &
	pid[script]=$! && : >"$dir/running/$!"
	exec 7>"$dir/keys"
	answer 'token: ' "$token" && answer 'data: ' "$dir/idx" && answer '\[y/N\] ' y
	check "what is asked is answered" ready_a1
	grep -qF "${token:0:60}" "$out"
	check "the token is not shown" test $? = 1
	check "the data are those that were named" grep -qF "\"path\": \"$dir/idx\"" \
		"$dir/a1/config.json"
	check "and it leaves" "$dunlin" leave --socket "$dir/a1.sock"
	exec 7>&-
	ended script
	check "all leave" all_leave
}
answer() { # PROMPT TEXT
	local end=$((SECONDS + patience))
	until grep -qa "$1" "$dir/asks.out"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.05
	done
	printf '%s\n' "$2" >&7
}
ready_a1() { await a1 -- exchanges.outcomes.exchanged\>=1 || { cat "$dir/asks.out" && false; }; }

for s in trains refuses foreign owned asks; do scenario $s; done
finish

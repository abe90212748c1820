#!/bin/bash
# SPDX-License-Identifier: MIT
# The command line as a user meets it: exit codes, where output goes, what the messages say.
set -u
dunlin=${DUNLIN:-./dunlin} srcdir=${srcdir:-.}
dunlin=$(realpath "$dunlin") srcdir=$(realpath "$srcdir")
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 99
for name in ${!DUNLIN_*}; do unset "$name"; done

tests=0
# verdict NAME STATUS: one TAP line; what the last run printed follows a failure.
verdict()
{
	tests=$((tests + 1))
	if [ "$2" = 0 ]; then
		echo "ok $tests - $1"
	else
		echo "not ok $tests - $1"
		sed 's/^/# out: /' out
		sed 's/^/# err: /' err
		echo "# status: $status"
	fi
}
run()
{
	"$dunlin" "$@" >out 2>err </dev/null
	status=$?
}
# expect NAME STATUS [PATTERN OF STDERR [PATTERN OF STDOUT]]: about the last run; an empty pattern
# wants nothing there.
expect()
{
	local bad=0
	[ "$status" = "$2" ] || bad=1
	if [ $# -ge 3 ]; then
		if [ -n "$3" ]; then grep -q -- "$3" err || bad=1; elif [ -s err ]; then bad=1; fi
	fi
	if [ $# -ge 4 ]; then
		if [ -n "$4" ]; then grep -q -- "$4" out || bad=1; elif [ -s out ]; then bad=1; fi
	fi
	verdict "$1" $bad
}

run
expect "no subcommand" 2 'Try .dunlin --help.' ''
run --help
expect "help on stdout" 0 '' '^  train '
cp out help
run help
expect "help is --help" 0 '' 'Exit codes'
cmp -s out help
verdict "both say the same" $?
run --version
expect "version" 0 '' '^dunlin [0-9]'
run trian
expect "unknown subcommand" 2 'unknown subcommand "trian"; did you mean "train"?' ''
for sub in train eval export inspect data config keygen certify revoke agent status peers leave; do
	run "$sub" --help
	expect "$sub --help" 0 '' "^Usage: dunlin $sub"
done

run train --lerning-rate 1
expect "unknown flag" 2 'unknown flag --lerning-rate; did you mean --lr?' ''
run train --lr
expect "flag without a value" 2 '--lr needs a value' ''
run train --out --resume
expect "a flag is no value" 2 '--out needs a value' ''
run train --lr fast
expect "flag of the wrong type" 2 '--lr: must be a number, not "fast"' ''
run train --batch=0
expect "flag out of range" 2 '--batch: 0 is out of range, 1 to' ''
run train --no-lr
expect "only switches have --no-" 2 'unknown flag --no-lr' ''
run train --no-flip=yes
expect "--no- takes no value" 2 '--no-flip takes no value' ''
run eval --lr 1 x
expect "a flag of another subcommand" 2 '--lr is not a flag of this subcommand' ''
run train extra
expect "argument too many" 2 'unexpected argument "extra"' ''
run export one
expect "argument missing" 2 'needs CHECKPOINT OUT' ''

run keygen
expect "keygen wants a place" 2 'needs --out FILE' ''
run keygen --out flock.key
expect "keygen" 0 '' '^flock.key: the secret of flock [0-9a-f]'
! grep -q dunlin-flock-1 out && grep -qxE 'dunlin-flock-1:[A-Za-z0-9_-]{48}' flock.key
verdict "keygen writes the secret and does not show it" $?
[ "$(stat -c %a flock.key)" = 600 ]
verdict "for its owner alone" $?
cp flock.key before.key
run keygen --out flock.key
expect "a secret is never overwritten" 1 'flock.key is there already' ''
cmp -s flock.key before.key
verdict "and stays as it was" $?
run keygen --out nowhere/flock.key
expect "no folder for it" 1 'create nowhere/flock.key: No such file' ''
run keygen --out -
expect "keygen --out -" 0 '' '^dunlin-flock-1:'
! cmp -s out flock.key
verdict "another each time" $?
"$dunlin" keygen --out - >/dev/full 2>err
[ $? = 1 ] && grep -q 'No space' err
verdict "a secret that cannot be printed" $?

run keygen --owner --out owner.key
expect "keygen --owner" 0 '' '^dunlin-owner-1:[A-Za-z0-9_-]*$'
[ "$(stat -c %a owner.key)" = 600 ] && grep -qxE 'dunlin-ownerkey-1:[A-Za-z0-9_-]{48}' owner.key
verdict "an owner's key is for its owner alone" $?
run certify --owner-key owner.key --label lab --agents 3 --out lab.invite
expect "certify wants a date" 2 'needs --expires' ''
run certify --owner-key owner.key --label lab --agents 3 --expires 2027-02-30 --out lab.invite
expect "a date that is none" 2 'expires: "2027-02-30" is no date' ''
run certify --owner-key owner.key --label lab --agents 3 --expires 2020-02-20 --out lab.invite
expect "a date that is over" 2 'expires: 2020-02-20 is over' ''
run certify --owner-key owner.key --label 'a b' --agents 3 --expires 2099-12-31 --out lab.invite
expect "a label that is none" 2 'a label has 1 to 31 characters' ''
run certify --owner-key flock.key --label lab --agents 3 --expires 2099-12-31 --out lab.invite
expect "a key that is no owner's" 3 'it should begin with dunlin-ownerkey-1:' ''
run certify --owner-key owner.key --label lab --agents 3 --expires 2099-12-31 --out lab.invite
expect "certify" 0 '' 'label lab for 3 agents, until 2100-01-01 00:00:00 UTC'
[ "$(stat -c %a lab.invite)" = 600 ]
verdict "an invite is for its owner alone" $?
run revoke lab --owner-key owner.key --out revoked
expect "revoke" 0 '' 'a new list, which takes the place of every earlier one'
expect "and what it has" 0 '' 'revoked: version [0-9]*, 1 revoked'
version=$(sed -n 's/.*: version \([0-9]*\),.*/\1/p' out)
run revoke "$(printf '%064d' 7)" lab --owner-key owner.key --out revoked
expect "revoke adds to the list" 0 '' 'revoked: version [0-9]*, 2 revoked'
run revoke other --owner-key owner.key --out begun
expect "a list that is begun anew" 0 '' 'begun: a new list'
[ "$(sed -n 's/.*: version \([0-9]*\),.*/\1/p' out)" -gt "$version" ]
verdict "is later than the one that was lost" $?
run revoke a:b --owner-key owner.key --out revoked
expect "neither a label nor an id" 3 '"a:b" is no id, which has 64 digits: a label has' ''
run keygen --owner --out other.key
run revoke lab --owner-key other.key --out revoked
expect "another owner's list" 3 'not signed by this owner' ''

run config init
expect "config init" 0 '' '"train_images"'
run config init c.json
expect "config init FILE" 0 '' ''
run config init c.json
expect "an existing file is left alone" 1 'c.json already exists; --force' ''
run config init --out d.json --lr 0.25
cmp -s c.json d.json
[ $? = 1 ] && grep -q '"lr": 0.25' d.json
verdict "init writes what flags say" $?
run config init --force c.json --lr 0.5
grep -q '"lr": 0.5' c.json
verdict "--force overwrites" $?
run config init --force /dev/null
expect "but nothing that is no file" 1 'not a regular file' ''
run config init nowhere/c.json
expect "no such folder" 1 'nowhere/c.json: No such file' ''
run config show c.json
expect "config show" 0 '' '"lr": 0.5'
cp out shown
run config show --config shown
cmp -s out shown
verdict "what show prints reads back to the same" $?
DUNLIN_THREADS=3 run config show --threads 5
expect "flag over environment" 0 '' '"threads": 5'
DUNLIN_THREADS=3 DUNLIN_CONFIG=c.json run config show
grep -q '"threads": 3' out && grep -q '"lr": 0.5' out
verdict "environment over file, which it can name" $?
DUNLIN_THREADS=many run config show
expect "environment wrong" 3 'DUNLIN_THREADS: must be a whole number, not "many"' ''
run config
expect "config wants an action" 2 'needs init|check|show' ''
run config chek
expect "unknown action" 2 'did you mean check' ''

cat >wrong.json <<'END'
{
  "model": {"layers": [{"type": "conv2d", "units": 3, "kernal": 3}]},
  "train": {
    "lerning_rate": 0.1, // unknown
    "batch": 0,
    "nesterov": "yes"
  }
}
END
cat >want <<'END'
wrong.json:2: model: layer 1 (conv2d): unknown key "kernal"; did you mean "kernel"?
wrong.json:4: unknown key "train.lerning_rate"; did you mean "train.lr"?
wrong.json:5: train.batch: 0 is out of range, 1 to 1048576
wrong.json:6: train.nesterov: must be true or false, not a string
END
run config check wrong.json
expect "config check" 3 'lerning' ''
cmp -s err want
verdict "all that is wrong, with lines" $?
run train --config wrong.json
expect "train tells the same" 3 'wrong.json:5: train.batch' ''
run train --config nofile.json
expect "no config file" 3 'nofile.json: No such file' ''
echo '{"data": {"train_images": "none.gz"}}' >nodata.json
run config check nodata.json
expect "config check wants the data" 4 'data.train_images: none.gz: No such file' ''

echo '{"data": {"train_images": "none.gz"},
	"train": {"batch": 0}}' >both.json
run config check both.json
expect "data and settings at once" 3 'both.json:1: data.train_images: none.gz: No such file' ''
grep -q 'both.json:2: train.batch' err
verdict "each with its line" $?

# Two black 4x4 images and their labels, as IDX.
{ printf '\0\0\10\3\0\0\0\2\0\0\0\4\0\0\0\4'; head -c 32 /dev/zero; } >images
printf '\0\0\10\1\0\0\0\2\0\1' >labels
small='"data": {"train_images": "images", "train_labels": "labels",
	"test_images": "", "test_labels": ""}'
echo "{$small, \"model\": {\"layers\": [{\"type\": \"flatten\"},
	{\"type\": \"dense\", \"units\": 2}]}}" >fine.json
run config check fine.json
expect "a config that is fine" 0 '' '^fine.json is fine$'
echo "{$small, \"model\": {\"layers\": [{\"type\": \"conv2d\", \"units\": 2, \"kernel\": 9},
	{\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": 2}]}}" >large.json
run config check large.json
expect "a model that does not fit the data" 3 'large.json:.*model: layer 1 (conv2d' ''

sed 's/"test_images": "", "test_labels": ""/"test_images": "other", "test_labels": "labels"/' \
	fine.json >other.json
{ printf '\0\0\10\3\0\0\0\2\0\0\0\5\0\0\0\4'; head -c 40 /dev/zero; } >other
run config check other.json
expect "a test set of another shape" 4 'data.test_images: the images have another size' ''

# Agents. State and sockets stay in our folder.
export XDG_STATE_HOME=$dir/state XDG_RUNTIME_DIR=$dir/run
run status
expect "no agent" 9 'no agent answers at .*/run/dunlin/agent.sock: start one' ''
run leave --socket x.sock
expect "no agent at that socket" 9 'no agent answers at x.sock' ''
run agent
expect "an agent needs a key" 3 'agent.keys: .*--key FILE; .dunlin keygen' ''
run agent --key none.key
expect "a key that is not there" 3 'agent.keys: .*none.key' ''
"$dunlin" keygen --out k.key >/dev/null
run agent --key k.key --name a/b --listen 80 --seed heron:
expect "an agent's settings" 3 'agent.name: may only have letters' ''
grep -q 'agent.listen: "80": write a port alone with a colon' err &&
	grep -q 'agent.seeds: "heron:": the port after the colon is missing' err
verdict "all of them at once" $?
run agent --key k.key --key k.key --key k.key --key k.key
expect "keys too many" 2 '--key: must not have more than 3 items' ''
for told in 0.0.0.0:1 '[::]:1' 239.1.2.3:1 '[ff02::1]' 0.0.0.0 127.0.0.1:0; do
	# One that is not refused would run on.
	timeout 20 "$dunlin" agent --key k.key --listen 127.0.0.1:0 --advertise "$told" --no-train \
		>out 2>err </dev/null
	status=$?
	case $told in *:0) why='nobody can dial port 0' ;; *) why='not the address of one' ;; esac
	expect "peers cannot be told $told" 3 "agent.advertise: .*$why" ''
done
run agent --key k.key --interface no-such
expect "no such interface" 3 'agent.interface: there is no network interface "no-such"' ''
run agent --key k.key --listen 127.0.0.1:1 --interface lo
expect "interface and host" 3 'agent.interface: agent.listen names a host already' ''
echo 12 >list
run agent --key k.key --allow list
expect "a list that is wrong" 3 'list: line 1: an id has 64 digits' ''
run agent --key k.key --gate budget
expect "a budget without a target" 3 'gossip.gate: "budget" needs gossip.exchanges_per_second' ''
run agent --key k.key --listen 127.0.0.1:0 --config fine.json --batch 2 --gate budget \
	--bytes-per-day 1
expect "a budget for less than an exchange" 3 'gossip.bytes_per_day: 1 bytes are not enough' ''
run agent --key k.key --delta 1000001
expect "the range of delta" 2 '--delta: 1000001 is out of range, 0 to 1000000' ''
DUNLIN_TEST_PROTOCOL=3-2 run agent --key k.key
expect "protocol versions of a test" 3 'DUNLIN_TEST_PROTOCOL: wants two numbers' ''
DUNLIN_SEEDS=a:1,b: run agent --key k.key
expect "seeds of the environment" 3 'agent.seeds: "b:": the port' ''
DUNLIN_SEEDS=a:1,b: run agent --key k.key --seed '[::1]:' --seed c:
grep -q '"\[::1\]:"' err && grep -q '"c:"' err && ! grep -q '"b:"' err
verdict "a flag replaces them, and may be repeated" $?
run train --train-seed heron:13865
expect "a seed that is none" 2 '--train-seed: must be a whole number' ''
run sample none.safetensors --tokens 1073741824
expect "as many tokens as can be" 5 'none.safetensors: ' ''
run sample none.safetensors --tokens 1073741825
expect "too many tokens" 2 'from 1 to 1073741824, not' ''
run agent --print-limits
expect "limits" 0 '' '^LIMIT_CONFIG_BYTES  *1048576  bytes of a config'
mkdir open && chmod 777 open
run agent --key k.key --state-dir open
expect "a state folder that others may write to" 1 'chmod go-w' ''
: >plain
run agent --key k.key --listen 127.0.0.1:0 --socket plain
expect "a socket's path that is taken" 1 'plain is there and is not a socket' ''
run agent --key k.key --listen 192.0.2.1:0
expect "an address that is not ours" 1 '192.0.2.1' ''

"$dunlin" agent --key k.key --listen 127.0.0.1:0 >agent.out 2>agent.err </dev/null &
agent=$!
trap 'kill "$agent" 2>/dev/null; rm -rf "$dir"' EXIT
for ((i = 0; i < 600; i++)); do
	grep -q '^join' agent.out && break
	kill -0 "$agent" 2>/dev/null || break
	sleep 0.05
done
grep -qE '^join from elsewhere:  dunlin agent --key k.key --seed 127.0.0.1:[1-9][0-9]*$' agent.out
verdict "it says how to join it" $?
run status
expect "status" 0 '' '^peers    0 alive'
[ "$(sed -n 's/^dunlin //p' agent.out)" = "$(sed -n 's/^id *//p' out)" ]
verdict "the same id" $?
run status --json
expect "status --json" 0 '' '^{"ok":true,"name":"agent","id":"[0-9a-f]\{64\}",.*}$'
run peers
expect "peers" 0 '' '^no peers yet$'
run peers --json
expect "peers --json" 0 '' '^{"ok":true,"peers":\[\]}$'
[ "$(stat -c %a run/dunlin run/dunlin/agent.sock state/dunlin/agent | xargs)" = "700 600 700" ]
verdict "socket and state are the owner's" $?
run agent --key k.key --listen 127.0.0.1:0
expect "one agent of a name" 1 "another agent runs with this state, process $agent: .*--name" ''
run agent --key k.key --listen 127.0.0.1:0 --state-dir second --socket run/dunlin/agent.sock
expect "one agent at a socket" 1 'an agent answers at run/dunlin/agent.sock' ''
taken=$(sed -n 's/.*listening on //p' agent.out)
run agent --key k.key --name other --no-train --listen "$taken"
expect "a port that is taken" 1 "$taken is in use: choose another port with --listen, or :0" ''
run leave
expect "leave" 0 '' '^agent has left its flock$'
wait "$agent"
status=$?
expect "and it ended well" 0
[ ! -e run/dunlin/agent.sock ]
verdict "its socket is gone" $?
run status
expect "nobody is left" 9 'no agent answers' ''
trap 'rm -rf "$dir"' EXIT

if [ -w /dev/full ]; then
	"$dunlin" config init >/dev/full 2>err
	status=$?
	: >out
	expect "a full disk is noticed" 1 'write to stdout: No space left'
else
	tests=$((tests + 1))
	echo "ok $tests - a full disk is noticed # SKIP no /dev/full"
fi
"$dunlin" --version >&- 2>err
status=$?
expect "a closed stdout is noticed" 1 'write to stdout'
"$dunlin" agent --key k.key --name closed --listen 127.0.0.1:0 >&- 2>err </dev/null
status=$?
expect "an agent that cannot greet" 1 'write to stdout'
grep -qx '[0-9]*' state/dunlin/closed/.lock
verdict "writes nothing into other files instead" $?

mkdir shards
head -c 1000 /dev/zero | tr '\0' a >shards/a.txt
cp shards/a.txt shards/b.txt
run data check --data 'shards/*.txt'
expect "data check" 0 '' '^train: 2 files, 1800 tokens of .* 256, the largest is 97; 12 samples'
grep -q '^test: none' out
verdict "without a test set" $?
run data check --data shards --data-format bytes --context 10 --json
expect "data check --json" 0 '' '^{"train":{.*"tokens":1800,.*},"test":{"samples":18,.*}}$'
run data check --data shards/a.txt --data-format tokens16 --classes 20000
expect "the first damage" 4 'a.txt: token 0 (counted from 0), at byte 0, is 24929: the voc' ''
run data check --data 'shards/*.bin'
expect "a pattern of nothing" 4 'shards/\*.bin: no file has a name like this' ''
run data look
expect "an action that is none" 2 'unknown action "look": needs check' ''

# The completion, asked as bash would.
complete_at()
{
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
	_dunlin
	printf '%s\n' "${COMPREPLY[@]}" >out
	: >err
	status=0
}
compopt() { :; }
# shellcheck disable=SC1091
. "$srcdir/deploy/dunlin.bash"
complete_at "$dunlin" tr
expect "completes subcommands" 0 '' '^train$'
complete_at "$dunlin" train --opt
expect "completes flags" 0 '' '^--optimizer$'
complete_at "$dunlin" train --optimizer ''
expect "completes choices" 0 '' '^adamw$'
complete_at "$dunlin" train --optimizer = ad
expect "completes choices behind =" 0 '' '^adamw$'
complete_at "$dunlin" train --no-res
expect "completes switches" 0 '' '^--no-resume$'
complete_at "$dunlin" config ch
expect "completes actions" 0 '' '^check$'
complete_at "$dunlin" agent --profile ''
expect "completes an agent's choices" 0 '' '^wan$'
complete_at "$dunlin" status --so
expect "completes flags of status" 0 '' '^--socket$'
complete_at "$dunlin" train --config fin
expect "completes files" 0 '' '^fine.json$'

echo "1..$tests"

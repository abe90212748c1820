# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# For scripts that run real agents: they are started on ports of their own choice, watched through
# their logs and control sockets, and ended by their own process ids, whatever happens.
#
# A script is made of scenarios, functions that run side by side, each in a shell of its own with
# agents of its own, since most of the time is spent waiting for somebody to notice something. Every
# wait ends with the event or, much later, with a failure; nothing is slept for, nothing is timed.
#
#     scenario one     its checks are printed by finish, numbered, in the order of the scenarios
#     scenario two
#     finish

set -u
dunlin=$(realpath "${DUNLIN:-./dunlin}") || exit 99
ctl=$(realpath "${builddir:-.}/tests/integration/ctl") || exit 99
for name in ${!DUNLIN_*}; do unset "$name"; done
patience=${PATIENCE:-300} # seconds until an event is given up: a busy machine needs many
dir=$(mktemp -d "${TMPDIR:-/tmp}/dunlin.XXXXXX") || exit 99
mkdir "$dir/running" # files named by process ids that are ours to end

# shellcheck disable=SC2034 # the scripts use them
declare -A pid id port
scenarios=() scenario_pids=()

# shellcheck disable=SC2317 # called by the trap
clean_up() {
	local p
	for p in "${scenario_pids[@]}"; do kill -KILL "$p" 2>/dev/null; done
	for p in "$dir"/running/*; do
		[ -e "$p" ] || continue
		kill -KILL "${p##*/}" 2>/dev/null
	done
	wait 2>/dev/null
	if declare -F extra_clean_up >/dev/null; then extra_clean_up; fi
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

scenario() {
	scenarios+=("$1")
	# Without a job's notice when an agent is killed.
	"$1" >"$dir/$1.tap" 2>"$dir/$1.stderr" &
	scenario_pids+=($!)
}

# Waits for all scenarios, and prints what they have found as TAP.
finish() {
	local s n=0 line
	for s in "${scenario_pids[@]}"; do wait "$s"; done
	scenario_pids=()
	for s in "${scenarios[@]}"; do
		while IFS= read -r line; do
			case $line in
			'ok '* | 'not ok '*)
				n=$((n + 1))
				printf '%s %d - %s\n' "${line%% - *}" "$n" "${line#* - }"
				;;
			*) printf '%s\n' "$line" ;;
			esac
		done <"$dir/$s.tap"
		# Bash speaks of agents that were killed; anything else is a mistake in a script.
		grep -vE ' (Killed|Terminated) |^$' "$dir/$s.stderr" | sed 's/^/# /'
	done
	echo "1..$n"
}

note() { printf '# %s\n' "$*"; }

# check NAME COMMAND...: one result; what the command says follows a failure.
check() {
	local name=$1 said=$dir/said.$BASHPID
	shift
	if "$@" >"$said" 2>&1; then
		echo "ok - $name"
	else
		echo "not ok - $name"
		sed 's/^/# /' "$said"
		return 1
	fi
}

# begin NAME ARGUMENTS...: starts an agent, and does not wait. What is put before the command
# (variables, an `ip netns exec`), its key file ("": none) and its state directory may be set.
# Without train=train it keeps membership alone.
before=() key=$dir/flock.key state= train=
begin() {
	local name=$1
	shift
	[ ! -e "$dir/$name.log" ] || mv "$dir/$name.log" "$dir/$name.log.old"
	env "${before[@]}" "$dunlin" agent --name "$name" --state-dir "${state:-$dir/$name}" \
		--socket "$dir/$name.sock" ${key:+--key "$key"} --log-format json \
		--log-level debug "--${train:-no-train}" "$@" \
		>"$dir/$name.out" 2>"$dir/$name.log" </dev/null &
	pid[$name]=$!
	: >"$dir/running/$!"
}

# ready NAME...: until they answer; their ids and ports are known then.
ready() {
	local name
	for name in "$@"; do
		if ! await "$name" -- 'id!='; then
			sed "s/^/$name: /" "$dir/$name.log" >&2
			return 1
		fi
		id[$name]=$("$ctl" get "$dir/$name.sock" id)
		port[$name]=$("$ctl" get "$dir/$name.sock" listen)
		port[$name]=${port[$name]##*:}
	done
}

# start NAME ARGUMENTS...: begin on loopback, and ready.
start() { begin "$1" --listen 127.0.0.1:0 "${@:2}" && ready "$1"; }

# await NAME... -- CONDITION...: as in ctl.c, at all of these agents.
await() {
	local sockets=()
	while [ "$1" != -- ]; do sockets+=("$dir/$1.sock") && shift; done
	"$ctl" await "$patience" "${sockets[@]}" "$@"
}

# get NAME FIELD...
get() { "$ctl" get "$dir/$1.sock" "${@:2}"; }

# said NAME PATTERN: its log has it already.
said() { grep -qE -e "$2" "$dir/$1.log"; }
not_said() { ! grep -E -e "$2" "$dir/$1.log"; }

# of EVENT NAME: the pattern of a log line by which an agent tells of another.
of() { printf '"msg":"%s %s\\b' "$1" "${id[$2]:0:12}"; }

# await_log PATTERN NAME...: until a line of each of their logs has it. An agent's own end ends this
# too.
await_log() {
	local pattern=$1 name end=$((SECONDS + patience))
	shift
	for name in "$@"; do
		until said "$name" "$pattern"; do
			if [ $SECONDS -ge $end ] || ! kill -0 "${pid[$name]}" 2>/dev/null; then
				said "$name" "$pattern" && break
				echo "$name never said \"$pattern\" but"
				tail -20 "$dir/$name.log"
				return 1
			fi
			sleep 0.05
		done
	done
}

# Signals, by name of the agent. After `ended` its process id is nobody's.
signal() { kill "-$1" "${pid[$2]}"; }
ended() { # ended NAME [CODE]: waits for its end, which must have this code.
	local code p=${pid[$1]} end=$((SECONDS + patience))
	while kill -0 "$p" 2>/dev/null; do
		if [ $SECONDS -ge $end ]; then
			echo "$1 does not end"
			kill -KILL "$p"
			break
		fi
		sleep 0.02
	done
	wait "$p"
	code=$?
	rm -f "$dir/running/$p"
	unset "pid[$1]"
	[ $code = "${2:-0}" ] || {
		echo "$1 ended with code $code, not ${2:-0}"
		tail -30 "$dir/$1.log"
		return 1
	}
}
crash() { signal KILL "$1" && ended "$1" 137; }

# Everybody who is left says goodbye and ends with code 0; a sanitizer's findings are other codes.
all_leave() {
	local name bad=0
	for name in "${!pid[@]}"; do signal TERM "$name"; done
	for name in "${!pid[@]}"; do ended "$name" || bad=1; done
	return $bad
}

# new_key FILE: a flock of its own.
new_key() { "$dunlin" keygen --out "$1" >/dev/null; }

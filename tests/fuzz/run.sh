#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs every fuzz target, one TAP line each: over its seeds, and with FUZZ_SECONDS (needs
# --enable-fuzz) that long on inputs of its own. What it finds stays in the build folder, fuzz-NAME.
set -u
srcdir=${srcdir:?run by make check or make fuzz} builddir=${builddir:?}
read -ra targets <<<"${FUZZ_TARGETS:-}"
seconds=${FUZZ_SECONDS:-0}

if [ ${#targets[@]} = 0 ]; then
	echo "1..0 # SKIP no fuzz targets"
	exit 0
fi
echo "1..${#targets[@]}"

# run_one NUMBER TARGET: its TAP lines are in $work/NUMBER.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
run_one() {
	local i=$1 target=$2 name=${2##*/fuzz_} rc runs args
	local seeds=$srcdir/tests/fuzz/corpus/$name dict=$srcdir/tests/fuzz/fuzz_$name.dict
	local files=("$seeds"/*) found=$builddir/fuzz-$name log=$work/$i.log
	if [ ! -e "${files[0]}" ]; then
		echo "$seeds has no seeds" >"$log"
		false
	elif [ "$seconds" = 0 ]; then
		"$builddir/$target" "${files[@]}" >"$log" 2>&1
	else
		mkdir -p "$found"
		args=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -verbosity=0)
		args+=(-print_final_stats=1 -artifact_prefix="$found/")
		[ -e "$dict" ] && args+=(-dict="$dict")
		"$builddir/$target" "${args[@]}" "$found" "$seeds" >"$log" 2>&1
	fi
	rc=$?
	if [ $rc = 0 ]; then
		runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
		echo "ok $i - $name${runs:+, $runs inputs}"
	else
		echo "not ok $i - $name (exit $rc)"
		sed 's/^/# /' "$log"
	fi >"$work/$i"
}

# As many at a time as there are cores.
for ((i = 1; i <= ${#targets[@]}; i++)); do
	run_one "$i" "${targets[i - 1]}" &
	while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
done
wait
for ((i = 1; i <= ${#targets[@]}; i++)); do cat "$work/$i"; done

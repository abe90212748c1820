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
i=0
for target in "${targets[@]}"; do
	i=$((i + 1))
	name=${target##*/fuzz_}
	seeds=$srcdir/tests/fuzz/corpus/$name
	files=("$seeds"/*)
	dict=$srcdir/tests/fuzz/fuzz_$name.dict
	found=$builddir/fuzz-$name
	log=$(mktemp)
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
	fi
	rm -f "$log"
done

#!/bin/bash
# SPDX-License-Identifier: MIT
# How much of the files that each fuzz target is meant for its inputs reach: one line a target.
# Builds all targets in the folder fuzz-coverage of the build folder with clang's source coverage,
# replays the corpus, with FUZZ_SECONDS also fuzzes each target for that long, and asks llvm-cov.
set -u
srcdir=${srcdir:?run by make fuzz-coverage} builddir=${builddir:?}
read -ra targets <<<"${FUZZ_TARGETS:-}"
seconds=${FUZZ_SECONDS:-0} jobs=${FUZZ_JOBS:-$(nproc)}
work=$builddir/fuzz-coverage

# What each is meant for; a target that is not here is an error.
declare -A files=(
	[bulk]="net/bulk/bulk_stream.c net/bulk/convert.c net/codec/frame.c"
	[certificate]="net/crypto/certificate.c"
	[checkpoint]="agent/train/checkpoint*.c agent/train/weights.c"
	[config]="agent/config/*.c agent/json/jsontext.c"
	[control]="agent/control/control*.c agent/json/*.c"
	[datagram]="net/codec/datagram*.c"
	[exchange]="gossip/exchange/*.c"
	[flock]="gossip/flock/*.c gossip/exchange/*.c gossip/policy/*.c"
	[frame]="net/codec/frame.c"
	[gossip]="gossip/membership/*.c"
	[guest]="agent/guest/guest_wire.c"
	[idx]="model/data/idx.c"
	[lattice]="net/bulk/lattice*.c gossip/exchange/scales.c"
	[noise]="net/crypto/noise*.c"
	[npy]="model/data/npy.c"
	[run_settings]="agent/node/run_settings.c"
	[safetensors]="model/io/safetensors*.c agent/train/gpt2.c agent/config/gpt2_config.c"
	[scenario]="agent/simulate/scenario.c"
	[token]="agent/node/token.c"
	[transport]="net/transport/*.c net/codec/*.c"
	[wire]="net/codec/wire*.c"
)

for tool in clang llvm-profdata llvm-cov; do
	if ! command -v $tool >/dev/null; then
		echo "fuzz-coverage: skipped, no $tool: install clang, libclang-rt-dev, llvm"
		exit 0
	fi
done
mkdir -p "$work" && cd "$work" || exit 1
srcdir=$(cd "$srcdir" && pwd)
if [ ! -e Makefile ] && ! "$srcdir/configure" --with-cuda=no --enable-fuzz CC="${FUZZ_CC:-clang}" \
	CFLAGS="-O1 -g -fprofile-instr-generate -fcoverage-mapping" >configure.log 2>&1; then
	echo "fuzz-coverage: configure fails: see $work/configure.log" >&2
	exit 1
fi
if ! make -j"$jobs" fuzz-targets >make.log 2>&1; then
	echo "fuzz-coverage: the build fails: see $work/make.log" >&2
	exit 1
fi

summary='s/^{"filename":"\([^"]*\)".*"lines":{"count":\([0-9]*\),"covered":\([0-9]*\),.*/\1 \2 \3/p'
failed=0
for target in "${targets[@]}"; do
	name=${target##*/fuzz_}
	if [ -z "${files[$name]:-}" ]; then
		echo "$name: tests/fuzz/coverage.sh does not say which files it is meant for" >&2
		failed=1
		continue
	fi
	read -ra patterns <<<"${files[$name]}"
	rm -f "$name".profraw
	mkdir -p "found-$name"
	inputs=("$srcdir/tests/fuzz/corpus/$name"/* "found-$name"/*)
	[ -e "${inputs[-1]}" ] || unset 'inputs[-1]'
	args=("${inputs[@]}")
	if [ "$seconds" != 0 ]; then
		args=(-max_total_time="$seconds" -artifact_prefix="found-$name-")
		args+=("found-$name" "$srcdir/tests/fuzz/corpus/$name")
	fi
	if ! LLVM_PROFILE_FILE=$name.profraw "$target" "${args[@]}" >"$name.log" 2>&1; then
		echo "$name: the target fails: see $work/$name.log" >&2
		failed=1
		continue
	fi
	llvm-profdata merge -sparse "$name.profraw" -o "$name.profdata" &&
		llvm-cov export -summary-only -instr-profile="$name.profdata" "$target" \
			>"$name.json" || failed=1
	# One line a source: its path, lines, lines covered. Those of the patterns are added up.
	sed 's/{"filename":/\n&/g' "$name.json" | sed -n "$summary" |
		{
			lines=0 covered=0
			while read -r file n k; do
				for pattern in "${patterns[@]}"; do
					# shellcheck disable=SC2053 # a pattern
					if [[ $file == */$pattern ]]; then
						lines=$((lines + n)) covered=$((covered + k))
						break
					fi
				done
			done
			percent=$((lines ? 100 * covered / lines : 0))
			printf '%-12s %5d of %5d lines (%3d %%), %d inputs: %s\n' \
				"$name" $covered $lines $percent ${#inputs[@]} "${files[$name]}"
		}
done
exit $failed

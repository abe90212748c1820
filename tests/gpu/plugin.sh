#!/bin/bash
# SPDX-License-Identifier: MIT
# The GPU backend as built: what it exports, what it calls, and what its kernels take.
shopt -s lastpipe # check counts, at the end of pipes
: "${builddir:?}" "${srcdir:?}"
plugin=$builddir/dunlin-cuda.so
if [ ! -e "$plugin" ]; then
	echo "1..0 # SKIP the GPU backend is not built: no CUDA toolkit"
	exit 0
fi
n=0
# check NAME: passes when nothing comes on stdin; what comes is told.
check() {
	local found
	found=$(cat)
	n=$((n + 1))
	if [ -z "$found" ]; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		printf '%s\n' "$found" | head -50 | sed 's/^/# /'
	fi
}
undefined() {
	nm -D -u "$plugin" | awk '{ sub(/@.*/, "", $2); print $2 }' |
		grep -E '^(_*cuda|cublas|cudnn)' | LC_ALL=C sort
}

nm -D --defined-only "$plugin" | grep -vE ' D dunlin_backend$' |
	check "it exports nothing but dunlin_backend"
nm -D --defined-only "$plugin" | grep -c dunlin_backend | grep -vx 1 |
	check "and that once"
diff <(undefined) <(LC_ALL=C sort "$srcdir/model/cuda/API") |
	check "model/cuda/API lists what it calls"
grep -n '<<<' "$srcdir"/model/cuda/*.cu | grep -vE '<<<[^>]*, s>>>' |
	check "no launch is in the default stream"
"$srcdir/tests/gpu/report" "$builddir"/model/cuda/*.ptxas 2>&1 >/dev/null |
	check "no kernel spills registers"

# Registers depend on the compiler: compared only with the one that made the list.
list=$srcdir/tests/gpu/kernels.txt
if [ "$(head -1 "$list")" = "$(cat "$builddir/model/cuda/compiler")" ]; then
	diff "$list" <(cat "$builddir/model/cuda/compiler" &&
		"$srcdir/tests/gpu/report" "$builddir"/model/cuda/*.ptxas) |
		check "the kernels take what is on the list (make gpu-report writes it)"
else
	n=$((n + 1))
	echo "ok $n - the kernels' list # SKIP it is of another compiler"
fi
echo "1..$n"

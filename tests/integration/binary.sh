#!/bin/bash
# SPDX-License-Identifier: MIT
# Whether the flags that configure chose have reached the program: a typo in a Makefile is silent.
set -uo pipefail
dunlin=${DUNLIN:?run by make check} flags=${BUILD_FLAGS-} builddir=${builddir:?}

n=0
ok() { # ok NAME COMMAND...
	local name=$1
	shift
	n=$((n + 1))
	if "$@" >/dev/null; then echo "ok $n - $name"; else echo "not ok $n - $name"; fi
}
skip() {
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}
headers() { readelf -hldW "$dunlin"; }
symbols() { nm -D --undefined-only "$dunlin"; }
grep_headers() { headers | grep -E "$1"; }
grep_symbols() { symbols | grep -E "$1"; }
executable_stack() { headers | grep -E 'GNU_STACK.* RWE'; }
not() { ! "$@"; }
# uses LIBRARY REGISTER: whether its code touches that kind of register.
uses() { objdump -d --no-show-raw-insn "$builddir/$1" | grep -F "%$2"; }

case $flags in
*-fsanitize=* | *-O0* | *-march=*)
	echo "1..0 # SKIP the flags given to configure change what is looked for"
	exit 0
	;;
esac
echo "1..11"
ok "position independent" grep_headers 'Type: +DYN'
ok "relocations are read-only after start" grep_headers GNU_RELRO
ok "all symbols are bound at start" grep_headers 'BIND_NOW|Flags:.*NOW'
ok "the stack is not executable" not executable_stack
ok "libraries that nothing uses are not loaded" not grep_headers 'NEEDED.*(cmocka|msgpack)'
ok "stack protector" grep_symbols __stack_chk_fail
ok "fortified" grep_symbols '__[a-z]+_chk@'
# code PATTERN: whether an instruction like that is in the program.
code() { objdump -d --no-show-raw-insn "$dunlin" | grep -E "$1"; }
case "$flags $(uname -m)" in
*-fcf-protection*x86_64) # the C library's own start has some, too
	ok "jumps only go where they may" test "$(code endbr64 | wc -l)" -ge 100
	;;
*) skip "jumps only go where they may" "this compiler has no -fcf-protection here" ;;
esac
case "$flags $(uname -m)" in
*-fstack-clash-protection*x86_64)
	ok "large frames touch every page of the stack" code 'or[lq] +.0x0,.*[(]%rsp[)]'
	;;
*) skip "large frames touch every page of the stack" "not with this compiler, or not looked for" ;;
esac
if [ -e "$builddir/libkernels_v4.a" ]; then
	ok "kernels of level v3 use AVX, of v4 AVX-512" \
		eval 'uses libkernels_v3.a ymm && uses libkernels_v4.a zmm'
	ok "kernels of level v3 do without AVX-512, the portable ones without AVX" \
		eval 'not uses libkernels_v3.a zmm && not uses libkernels_base.a ymm'
else
	skip "kernels use what their level has" "not x86-64"
	skip "kernels use no more than their level has" "not x86-64"
fi

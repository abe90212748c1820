#!/bin/bash
# SPDX-License-Identifier: MIT
# Whether the core is pure: what its library calls outside of itself is on a short list, on which
# there is no clock, socket, file, thread or allocator.
set -uo pipefail
builddir=${builddir:?run by make check} flags=${BUILD_FLAGS-}
lib=$builddir/libgossip.a

case $flags in
*-fsanitize=* | *-pg* | *--coverage*)
	echo "1..0 # SKIP instrumented: the library calls its instruments"
	exit 0
	;;
esac

n=0
ok() { # ok NAME OFFENCES
	n=$((n + 1))
	if [ -z "$2" ]; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		printf '%s\n' "$2" | sed 's/^/# /'
	fi
}

libc='memcpy|memmove|memset|memcmp|bcmp|mem(cpy|move|set)_chk'
math='log|log2|log10|ceil|floor|sqrt|exp|pow'
ours='err_set|err_text|err_prefix|rng_[a-z0-9]+'
compiler='_GLOBAL_OFFSET_TABLE_|stack_chk_fail|assert_fail'
allowed="(__)?($libc|$math|$ours|$compiler)"

echo "1..4"
# outside LIBRARY: what it calls and does not have.
outside() {
	comm -23 <(nm -u "$1" | awk '$1 == "U" { print $2 }' | sort -u) \
		<(nm -g --defined-only "$1" | awk 'NF == 3 { print $3 }' | sort -u)
}
undefined=$(outside "$lib")
ok "the library is there and calls something" "$([ -n "$undefined" ] || echo "nm -u $lib: nothing")"
ok "it calls only memory, mathematics, errors and seeded numbers" \
	"$(printf '%s\n' "$undefined" | grep -vxE "$allowed")"
ok "it keeps no variables of its own" "$(nm "$lib" | awk '$2 ~ /^[bBdDCgGsS]$/ { print $3 }')"
# That the list would see a call: the library below this one does open files and ask for the time.
seen=$(outside "$builddir/libbase.a" | grep -vxE "$allowed")
ok "the same list finds calls in a library that is not pure" \
	"$([ -n "$seen" ] || echo "nothing found in libbase.a")"

#!/bin/bash
# SPDX-License-Identifier: MIT
# Whether the membership core is pure: what its library calls is on a short list, on which there is
# no clock, socket, file, thread or allocator.
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
ours='err_set|err_text|err_prefix|rng_[a-z0-9]+|peer_(id|addr)_[a-z]+|gossip_[a-z0-9_]+'
ours+='|sketch_[a-z]+|exchange_[a-z0-9_]+|manifest_[a-z]+|unlike_[a-z]+|gate_[a-z_]+'
compiler='_GLOBAL_OFFSET_TABLE_|stack_chk_fail|assert_fail'
allowed="(__)?($libc|$math|$ours|$compiler)"

echo "1..4"
undefined=$(nm -u "$lib" | awk '$1 == "U" { print $2 }' | sort -u)
ok "the library is there and calls something" "$([ -n "$undefined" ] || echo "nm -u $lib: nothing")"
ok "it calls only memory, mathematics, errors and seeded numbers" \
	"$(printf '%s\n' "$undefined" | grep -vxE "$allowed")"
ok "it keeps no variables of its own" "$(nm "$lib" | awk '$2 ~ /^[bBdDCgGsS]$/ { print $3 }')"
# That the list would see a call: the library below this one does open files and ask for the time.
seen=$(nm -u "$builddir/libbase.a" | awk '$1 == "U" { print $2 }' | grep -vxE "$allowed")
ok "the same list finds calls in a library that is not pure" \
	"$([ -n "$seen" ] || echo "nothing found in libbase.a")"

#!/bin/bash
# SPDX-License-Identifier: MIT
# Mistakes put into the GPU backend, one at a time: the tests on the stand-in catch each of them.
# shellcheck source=tests/gpu/lib.sh
. "${srcdir:?}/tests/gpu/lib.sh"
if ! command -v python3 >/dev/null; then
	echo "1..0 # SKIP python3 is not installed"
	exit 0
fi
# shellcheck source=/dev/null
. "$builddir/tests/gpu/toolkit"
unset CMOCKA_MESSAGE_OUTPUT
exec python3 "$srcdir/tests/gpu/mutate" bugs

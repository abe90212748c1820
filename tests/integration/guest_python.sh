#!/bin/bash
# SPDX-License-Identifier: MIT
# dunlin_flock by itself, with PyTorch and without an agent. TAP.
python=${PYTHON:-}
for p in ${python:-python3 /usr/bin/python3}; do
	python=$p
	! why=$("$p" -c 'import sys, torch; assert sys.version_info >= (3, 9)' 2>&1) || break
done
if [ -n "$why" ]; then
	echo "1..0 # SKIP $python (python3-torch, or PYTHON=): ${why##*$'\n'}"
	exit 0
fi
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
here=$(realpath "${srcdir:-.}") || exit 99
exec "$python" "$here/tests/integration/guest_python.py" "$here/deploy/python"

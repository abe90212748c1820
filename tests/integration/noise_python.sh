#!/bin/bash
# SPDX-License-Identifier: MIT
# Our handshake with a second implementation, PyPI's noiseprotocol, on either side. TAP.
set -u
python=${PYTHON:-python3}
peer=${builddir:?run by make check}/tests/integration/noise_peer

if ! why=$("$python" -c 'import noise.connection' 2>&1); then
	echo "1..0 # SKIP $python (noiseprotocol from PyPI, by PYTHON=): ${why##*$'\n'}"
	exit 0
fi
exec "$python" "${srcdir:?}/tests/integration/noise_python.py" "$peer"

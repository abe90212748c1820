#!/bin/bash
# SPDX-License-Identifier: MIT
# make check-gpu: the tests of the GPU backend with the real libraries on a real GPU, then how fast
# it trains, beside PyTorch on the same GPU where that is installed.
export GPU_REAL=1
# shellcheck source=tests/gpu/lib.sh
. "${srcdir:?}/tests/gpu/lib.sh"
python=${PYTHON:-python3} bad=0
if ! out=$(on_gpu "$builddir/tests/gpu/test_gpu" ops 2>&1) && grep -q 'no GPU' <<<"$out"; then
	echo "1..0 # SKIP there is no GPU: $(grep -m1 'no GPU' <<<"$out")"
	exit 0
fi
for name in ops agents; do
	echo "# tests/gpu/$name.sh"
	"$srcdir/tests/gpu/$name.sh" || bad=1
done

echo "# images a second, 28 x 28, batches of 256"
for preset in mlp cnn; do
	on_gpu "$builddir/tests/gpu/speed" $preset 256 || bad=1
	if "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
		"$python" "$srcdir/tests/gpu/torch_speed.py" $preset 256 || bad=1
	else
		echo "# PyTorch with CUDA is not installed: nothing to compare with"
	fi
done
exit $bad

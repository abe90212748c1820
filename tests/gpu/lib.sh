# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# For scripts that test the GPU backend. Unless GPU_REAL=1 says that there is a GPU, programs run on
# the stand-in.
: "${builddir:?}" "${srcdir:?}"
if [ ! -e "$builddir/dunlin-cuda.so" ]; then
	echo "1..0 # SKIP the GPU backend is not built: no CUDA toolkit"
	exit 0
fi
real=${GPU_REAL:-0}

# on_gpu [VARIABLE=VALUE...] COMMAND...
on_gpu() {
	if [ "$real" = 1 ]; then
		env DUNLIN_PLUGIN_DIR="$builddir" "$@"
	else
		env LD_LIBRARY_PATH="$builddir/tests/gpu/lib" DUNLIN_PLUGIN_DIR="$builddir" \
			GPU_STANDIN="$builddir/tests/gpu/libstandin.so" GPU_STRICT=1 \
			GPU_DEVICES="$srcdir/tests/gpu/devices" "$@"
	fi
}
# shellcheck disable=SC2034 # scripts use it
cudnn=$(cat "$builddir/tests/gpu/lib/cudnn")

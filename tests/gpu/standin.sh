#!/bin/bash
# SPDX-License-Identifier: MIT
# The stand-in for a GPU, before anything is tested on it.
# shellcheck source=tests/gpu/lib.sh
. "${srcdir:?}/tests/gpu/lib.sh"
on_gpu GPU_STRICT=0 "$builddir/tests/gpu/test_standin"

#!/bin/bash
# SPDX-License-Identifier: MIT
# The GPU backend: its kernels one by one, and against the other backends: ops, training on the PTX
# of three architectures, three steps, an exchange and batches of bytes in twenty random orders, and
# every call failing once. The genuine cuDNN chooses the plans.
# shellcheck source=tests/gpu/lib.sh
. "${srcdir:?}/tests/gpu/lib.sh"
export CMOCKA_MESSAGE_OUTPUT=TAP
n=0 bad=0
# part NAME [VARIABLE=VALUE...] [PROGRAM:]MODE: one run, whose results are counted on.
part() {
	local name=$1 what=${*: -1} out line rc
	shift
	[[ $what == *:* ]] || what=test_gpu:$what
	out=$(on_gpu "${@:1:$#-1}" "$builddir/tests/gpu/${what%:*}" "${what#*:}" 2>&1)
	rc=$?
	while IFS= read -r line; do
		case $line in
		'ok '* | 'not ok '*)
			n=$((n + 1))
			printf '%s %d - %s: %s\n' "${line%% [0-9]*}" $n "$name" "${line#*- }"
			;;
		*) printf '# %s\n' "$line" ;;
		esac
	done <<<"$out"
	n=$((n + 1))
	if [ $rc = 0 ]; then
		echo "ok $n - $name: nothing is wrong at its end"
	else
		echo "not ok $n - $name: it ends with code $rc"
		bad=1
	fi
}

if [ "$real" = 1 ]; then
	part "kernels on the GPU" test_kernels:all
	part "pools on the GPU" test_pools:all
	part "ops on the GPU" ops
	part "the GPU as a device" test_memory:all
	part "training on the GPU" train
	part "again and again on the GPU" schedules
	part "snapshots on the GPU" test_wire:all
	part "exchanges on the GPU" test_stage:ops
	part "batches of bytes on the GPU" test_images:ops
	echo "1..$n"
	exit $bad
fi
for arch in 75 90 120; do
	part "kernels, sm_$arch" GPU_ARCH=$arch test_kernels:all
	part "pools, sm_$arch" GPU_ARCH=$arch test_pools:all
	part "ops, sm_$arch" GPU_ARCH=$arch GPU_CUDNN="$cudnn" ops
	part "training, sm_$arch" GPU_ARCH=$arch GPU_CUDNN="$cudnn" train
	part "snapshots, sm_$arch" GPU_ARCH=$arch test_wire:all
	part "exchanges, sm_$arch" GPU_ARCH=$arch test_stage:ops
	part "batches of bytes, sm_$arch" GPU_ARCH=$arch test_images:ops
done
for arch in 80 86 89 100; do
	part "ops with plans for sm_$arch" GPU_ARCH=$arch GPU_CUDNN="$cudnn" GPU_SCHED=lazy ops
done
part "the device" test_memory:all
part "random orders" schedules
part "failing calls" failures
part "exchanges in random orders" test_stage:schedules
part "exchanges with failing calls" test_stage:failures
part "batches of bytes in random orders" test_images:schedules
part "batches of bytes with failing calls" test_images:failures
echo "1..$n"
exit $bad

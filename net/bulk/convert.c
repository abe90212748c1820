/* SPDX-License-Identifier: MIT */
/* Which of the loops in convert_loops.c this processor can run, and memory for them to run over. */
#include "net/bulk/convert.h"

#include "agent/base/cores.h"
#include "net/bulk/lattice.h"

#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

#define LATTICE(n) LATTICE_BLOCK, LATTICE_SUM_BYTES + 32 * (n), (n)
const struct convert_row convert_rows[CONVERT_FORMATS] = {
        [CONVERT_FP32] = {"fp32", 1, 4, 0},
        [CONVERT_BF16] = {"bf16", 1, 2, 0},
        [CONVERT_MOD8] = {"mod8", LATTICE(8)},
        [CONVERT_MOD4] = {"mod4", LATTICE(4)},
};

void convert_all(const struct convert *out[CONVERT_LEVELS + 1])
{
	int n = 0;
	out[n++] = &convert_base;
#ifdef HAVE_X86_KERNELS
	if (cores_level() >= 3)
		out[n++] = &convert_v3;
	if (cores_level() >= 4)
		out[n++] = &convert_v4;
#endif
	out[n] = NULL;
}

const struct convert *convert_best(void)
{
	const struct convert *all[CONVERT_LEVELS + 1], *best = NULL;
	convert_all(all);
	for (int i = 0; all[i]; i++)
		best = all[i];
	return best;
}

float *convert_vector(size_t n)
{
	size_t bytes = n * sizeof(float);
	if (n > (SIZE_MAX - HUGE_PAGE) / sizeof(float))
		return NULL;
	if (bytes < HUGE_PAGE)
		return malloc(bytes);
	bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	float *v = aligned_alloc(HUGE_PAGE, bytes);
	if (v)
		madvise(v, bytes, MADV_HUGEPAGE); /* a hint: small pages work as well */
	return v;
}

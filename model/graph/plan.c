/* SPDX-License-Identifier: MIT */
#include "model/graph/plan.h"

#include <stdbool.h>

static size_t aligned(size_t bytes)
{
	return (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
}

/* The next extent to place: the largest of those after `prev` in (size, index) order. Quadratic,
 * and needs no memory. */
static int next_largest(const struct plan_extent *x, int n, int prev)
{
	int best = -1;
	for (int i = 0; i < n; i++) {
		bool after = prev < 0 || x[i].bytes < x[prev].bytes ||
		             (x[i].bytes == x[prev].bytes && i > prev);
		if (after && (best < 0 || x[i].bytes > x[best].bytes))
			best = i;
	}
	return best;
}

static bool placed_before(const struct plan_extent *x, int i, int k)
{
	return x[i].bytes > x[k].bytes || (x[i].bytes == x[k].bytes && i < k);
}

static bool clashes(const struct plan_extent *a, const struct plan_extent *b)
{
	return a->from <= b->to && b->from <= a->to && a->offset < b->offset + aligned(b->bytes) &&
	       b->offset < a->offset + aligned(a->bytes);
}

unsigned long long plan_arena(struct plan_extent *x, int n)
{
	unsigned long long top = 0;
	for (int k = next_largest(x, n, -1); k >= 0; k = next_largest(x, n, k)) {
		x[k].offset = 0;
		for (bool moved = true; moved;) {
			moved = false;
			for (int i = 0; i < n; i++) {
				if (!placed_before(x, i, k) || !clashes(&x[i], &x[k]))
					continue;
				x[k].offset = x[i].offset + aligned(x[i].bytes);
				moved = true;
			}
		}
		if (x[k].offset + aligned(x[k].bytes) > top)
			top = x[k].offset + aligned(x[k].bytes);
	}
	return top;
}

/* SPDX-License-Identifier: MIT */
/* Scales and records of a lattice, any at all, as a peer may send them: both agents agree on the
 * same steps, their differences are opposite, a block counts for both or for neither, distances and
 * the scales learnt from them are within their bounds, and nothing is read or written outside. */
#include "net/bulk/lattice.h"

#include "tests/fuzz/input.h"

#include <math.h>
#include <string.h>

#define BLOCKS_MAX 5

static void check_block(const struct lattice *l, size_t b, const struct lattice_found found[2],
        const float *d, const float *e)
{
	double sum = 0, most = 0;
	demand(found[0].top == found[1].top && found[0].squares == found[1].squares);
	for (size_t i = 0; i < LATTICE_BLOCK && b * LATTICE_BLOCK + i < l->count; i++) {
		float x = d[b * LATTICE_BLOCK + i];
		demand(isfinite(x) && x == -e[b * LATTICE_BLOCK + i]);
		demand(found[0].top != LATTICE_WRAPPED || x == 0);
		x /= lattice_step(l, b);
		most = fmax(most, fabs((double)x));
		sum += (double)x * (double)x;
	}
	demand(most < 1 << (l->bits - 1));
	demand(found[0].top == LATTICE_WRAPPED || most <= found[0].top);
	demand(sum <= found[0].squares);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	const int bits = take(&in) & 1 ? 4 : 8;
	const size_t blocks = 1 + take(&in) % BLOCKS_MAX, last = take(&in);
	const size_t record = lattice_record(bits), len = lattice_difference(bits, blocks * 256);
	int8_t scale[2][BLOCKS_MAX], used[2][BLOCKS_MAX], sizes[BLOCKS_MAX];
	struct lattice_found found[2][BLOCKS_MAX], both[2];
	float *d[2];
	uint8_t *records[2], *packed[2];
	struct scales learnt = {0};
	for (int s = 0; s < 2; s++) {
		for (size_t b = 0; b < blocks; b++)
			scale[s][b] = (int8_t)take(&in);
		records[s] = malloc(blocks * record);
		packed[s] = malloc(len);
		d[s] = malloc(blocks * 256 * sizeof *d[s]);
		demand(records[s] && packed[s] && d[s]);
		for (size_t i = 0; i < blocks * record; i++)
			records[s][i] = take(&in);
	}
	scales_agree(used[0], scale[0], scale[1], blocks);
	scales_agree(used[1], scale[1], scale[0], blocks);
	demand(!memcmp(used[0], used[1], blocks));
	const struct lattice l = {.bits = bits, .count = blocks * 256 - last, .scale = used[0]};
	for (int s = 0; s < 2; s++) {
		lattice_take(&l, packed[s], found[s], records[!s], records[s], blocks);
		lattice_unpack(&l, d[s], packed[s], 0, l.count);
	}
	for (size_t b = 0; b < blocks; b++) {
		both[0] = found[0][b];
		both[1] = found[1][b];
		check_block(&l, b, both, d[0], d[1]);
	}
	memset(sizes, take(&in), sizeof sizes);
	for (int i = 0; i < 3; i++)
		scales_learn(&learnt, scale[i & 1], sizes, i == 1 ? used[0] : NULL, blocks,
		        take(&in) & 1);
	for (size_t b = 0; b < blocks && learnt.n > 0; b++)
		demand(learnt.scale[b] >= SCALES_LEAST && learnt.scale[b] <= SCALES_MOST);
	for (int s = 0; s < 2; s++) {
		free(records[s]);
		free(packed[s]);
		free(d[s]);
	}
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* A transfer of a lattice in memory: for counts around the ends of blocks, chunks and groups the
 * two agents of a pair find exactly opposite differences, the distances of all groups and the
 * largest difference of each run; sums and parameters that do not fit together cost that block, at
 * most, and no byte behind the packed difference is written. */
#include "net/bulk/bulk_stream.h"

#include "agent/base/rng.h"
#include "tests/support.h"

#include <math.h>

#define COUNT_MAX 3000
#define BLOCKS_MAX 12
#define GROUPS 3

struct side {
	float x[COUNT_MAX], d[COUNT_MAX];
	uint8_t records[BLOCKS_MAX * (LATTICE_SUM_BYTES + 256)];
	uint8_t packed[BLOCKS_MAX * 256 + 1];
	double group[GROUPS], rounding;
	int8_t found[BLOCKS_MAX];
	size_t wrapped;
};

struct pair {
	struct lattice l;
	int8_t scale[BLOCKS_MAX];
	size_t end[GROUPS];
	enum convert_format format;
	struct side side[2];
};

static void fill(struct pair *p, enum convert_format f, size_t count, uint64_t seed)
{
	struct rng r;
	rng_seed(&r, seed, count);
	memset(p, 0, sizeof *p);
	p->format = f;
	p->l = (struct lattice){.bits = convert_rows[f].bits, .count = count, .scale = p->scale};
	memset(p->scale, -8, sizeof p->scale); /* differences up to 1/16 */
	for (int g = 0; g < GROUPS; g++)
		p->end[g] = count * (size_t)(g + 1) / (GROUPS + 1);
	for (size_t i = 0; i < count; i++) {
		p->side[0].x[i] = 4 * rng_f32(&r) - 2;
		p->side[1].x[i] = p->side[0].x[i] + (rng_f32(&r) - 0.5f) / 8;
	}
	for (int s = 0; s < 2; s++)
		assert_true(lattice_pack(&p->l, p->side[s].records, p->side[s].x, 0, count, NULL));
}

/* From one side to the other, with what the other compares with. */
static void send(struct pair *p, int to)
{
	static const uint8_t secret[FRAME_SECRET_BYTES] = {7};
	struct side *from = &p->side[!to], *s = &p->side[to];
	struct bulk_plan plan = {.aead = aead_list[0],
	        .format = p->format,
	        .chunk_bytes = 1000,
	        .send = from->records,
	        .send_count = p->l.count,
	        .packed = s->packed,
	        .scales = p->scale,
	        .receive_count = p->l.count,
	        .ours = s->records,
	        .difference = true,
	        .n_groups = GROUPS,
	        .group_end = p->end};
	struct bulk_out out;
	struct bulk_in in;
	const uint8_t *bytes;
	size_t len, all = 0;
	int rc = 0;
	s->packed[lattice_difference(p->l.bits, p->l.count)] = 77;
	assert_int_equal(bulk_out_init(&out, &plan, secret), 0);
	assert_int_equal(bulk_in_init(&in, &plan, secret), 0);
	while (bulk_out_next(&out, &bytes, &len, NULL) > 0) {
		all += len;
		while (len > 0) {
			size_t room;
			uint8_t *at = bulk_in_room(&in, &room);
			size_t n = len < room ? len : room;
			memcpy(at, bytes, n);
			bytes += n;
			len -= n;
			rc = bulk_in_fed(&in, n, NULL);
			assert_true(rc >= 0);
		}
	}
	assert_int_equal(rc, 1);
	assert_int_equal(all, bulk_wire_bytes(&plan, p->l.count));
	assert_int_equal(s->packed[lattice_difference(p->l.bits, p->l.count)], 77);
	for (int g = 0; g < GROUPS; g++)
		s->group[g] = in.sums[g].distance2;
	s->rounding = in.rounding2;
	memcpy(s->found, in.found, sizeof s->found);
	s->wrapped = in.wrapped;
	lattice_unpack(&p->l, s->d, s->packed, 0, p->l.count);
	bulk_out_close(&out);
	bulk_in_close(&in);
}

static void check_groups(const struct pair *p, const struct side *s)
{
	for (int g = 0; g < GROUPS; g++) {
		double d2 = 0;
		for (size_t i = g ? p->end[g - 1] : 0; i < p->end[g]; i++)
			d2 += (double)s->d[i] * (double)s->d[i];
		assert_true(fabs(d2 - s->group[g]) <= 1e-9 * d2);
	}
}

static void test_opposite(void **state)
{
	(void)state;
	static struct pair p;
	static const size_t counts[] = {1, 2, 255, 256, 257, 300, 512, 1023, 1024, 1800, 3000};
	for (enum convert_format f = CONVERT_MOD8; f < CONVERT_FORMATS; f++)
		for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
			fill(&p, f, counts[c], c);
			send(&p, 0);
			send(&p, 1);
			assert_int_equal(p.side[0].wrapped + p.side[1].wrapped, 0);
			for (size_t i = 0; i < counts[c]; i++) {
				double true_d = (double)p.side[1].x[i] - (double)p.side[0].x[i];
				assert_true(p.side[0].d[i] == -p.side[1].d[i]);
				assert_true(fabs((double)p.side[0].d[i] - true_d) <=
				            (double)lattice_step(&p.l, 0));
			}
			check_groups(&p, &p.side[0]);
			check_groups(&p, &p.side[1]);
			for (size_t b = 0; b < lattice_blocks(counts[c]); b++) {
				float most = 0;
				for (size_t i = b * 256; i < counts[c] && i < b * 256 + 256; i++)
					most = fmaxf(most, fabsf(p.side[0].d[i]));
				assert_int_equal(p.side[0].found[b], scales_of(1.25f * most));
			}
		}
}

/* Where a step is far more than the distance, what is found is rounding, and that is told, too. */
static void test_share_of_rounding(void **state)
{
	(void)state;
	static struct pair p;
	double raw = 0, rounding = 0, real = 0;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		fill(&p, CONVERT_MOD4, COUNT_MAX, seed);
		memset(p.scale, 0, sizeof p.scale);
		for (int s = 0; s < 2; s++)
			assert_true(lattice_pack(
			        &p.l, p.side[s].records, p.side[s].x, 0, COUNT_MAX, NULL));
		send(&p, 0);
		check_groups(&p, &p.side[0]);
		for (int g = 0; g < GROUPS; g++)
			raw += p.side[0].group[g];
		rounding += p.side[0].rounding;
		for (size_t i = 0; i < p.end[GROUPS - 1]; i++) {
			double d = (double)p.side[1].x[i] - (double)p.side[0].x[i];
			real += d * d;
		}
	}
	assert_true(raw > 5 * real);
	assert_true(raw - rounding < raw / 5);
}

/* A peer that lies about a sum, or about parameters, is not heard for that block; the rest of the
 * transfer is as without. */
static void test_lies(void **state)
{
	(void)state;
	static struct pair p, lied;
	for (enum convert_format f = CONVERT_MOD8; f < CONVERT_FORMATS; f++)
		for (size_t at = 0; at < 2 * lattice_record(convert_rows[f].bits); at++) {
			fill(&p, f, COUNT_MAX, 5);
			lied = p;
			lied.l.scale = lied.scale;
			lied.side[1].records[at] ^= 0x11;
			send(&p, 0);
			send(&lied, 0);
			size_t block = at / lattice_record(p.l.bits);
			assert_int_equal(lied.side[0].wrapped, 1);
			assert_int_equal(lied.side[0].found[block], SCALES_WRAPPED);
			for (size_t i = 0; i < COUNT_MAX; i++)
				assert_true(lied.side[0].d[i] ==
				            (i / LATTICE_BLOCK == block ? 0 : p.side[0].d[i]));
			check_groups(&lied, &lied.side[0]);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_opposite),
	        cmocka_unit_test(test_share_of_rounding),
	        cmocka_unit_test(test_lies),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

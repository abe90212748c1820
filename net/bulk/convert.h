/* SPDX-License-Identifier: MIT */
/* Parameters as they travel, and the arithmetic of an exchange over them. Loops over a range that
 * the caller chose; none allocates, waits or fails. Any thread.
 *
 *     a snapshot   x ──pack──► wire                           Q(x), what the peer reads of us
 *     we receive   wire ──take──► staging = y or y − Q(x)     and: is it finite, how far away
 *                                 (or a GPU measures the distance of y − Q(x))
 *     we apply     x += k·(y − Q(x))                          add of the difference
 *
 * Both sides move by the same difference with opposite signs, so the mean of the pair stays: that
 * is why what comes is compared with our own snapshot as it travels. */
#ifndef DUNLIN_NET_BULK_CONVERT_H
#define DUNLIN_NET_BULK_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As on the wire: numbers are never reused. Words are little-endian. */
enum convert_format { CONVERT_FP32, CONVERT_BF16, CONVERT_MOD8, CONVERT_MOD4, CONVERT_FORMATS };

/* A format travels as records of `block` parameters in `bytes` bytes. Those before CONVERT_WORDS
 * are one number a record; the others are net/bulk/lattice.h's. */
#define CONVERT_WORDS CONVERT_MOD8
struct convert_row {
	const char *name;
	size_t block, bytes;
	int bits; /* of a lattice; 0: numbers */
};
extern const struct convert_row convert_rows[CONVERT_FORMATS];
#define CONVERT_LATTICES (1u << CONVERT_MOD8 | 1u << CONVERT_MOD4)

/* The bytes of so many parameters. */
static inline size_t convert_bytes(enum convert_format f, size_t count)
{
	const struct convert_row *r = &convert_rows[f];
	return (count + r->block - 1) / r->block * r->bytes;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
        "parameters are sent as they lie in memory, and the wire is little-endian");

/* The bytes of one parameter, of a format before CONVERT_WORDS. */
static inline size_t convert_word(enum convert_format f)
{
	return f == CONVERT_BF16 ? 2 : 4;
}

/* What becomes of a word y: itself, or y − ours, and whether Σ (y − ours)² is wanted too. */
enum convert_take { TAKE_WORDS, TAKE_DIFFERENCE, TAKE_UNMEASURED };

/* What is known of the parameters taken so far. Begin with zeros. */
struct convert_sums {
	double distance2; /* Σ (y − ours)²; not finite if a difference is not */
	uint32_t top;     /* the largest |y|, as bits: for convert_finite */
};

/* One set of loops; which is best depends on the processor. n parameters each, nothing overlaps but
 * x with itself. Words, wire and ours, need no alignment. */
struct convert {
	const char *name; /* "base", "v3", "v4" */

	/* Rounds to nearest, ties to even. A NaN stays one; what is over the format's largest
	 * number becomes an infinity. */
	void (*pack)(enum convert_format f, uint8_t *wire, const float *s, size_t n);

	/* out = y, or y − ours, with TAKE_UNMEASURED too; adds to *sums. ours are words of the same
	 * format, and may be NULL with TAKE_WORDS: then, and with TAKE_UNMEASURED, distance2 stays
	 * as it is. */
	void (*take)(enum convert_format f, float *out, const uint8_t *wire, const uint8_t *ours,
	        size_t n, enum convert_take how, struct convert_sums *sums);

	void (*add)(float *x, const float *difference, float k, size_t n);
};

/* The best that this processor can run. */
const struct convert *convert_best(void);

/* All that this processor can run, the plainest first, NULL-terminated: for tests. */
#define CONVERT_LEVELS 3
void convert_all(const struct convert *out[CONVERT_LEVELS + 1]);

/* Memory for n parameters that will be walked from end to end, in huge pages where the system has
 * them: a tenth of the time. Not zeroed; for free(3). NULL: there is none. */
float *convert_vector(size_t n);

/* By exponent bits, so that no compiler flag (-ffast-math) can remove the check. */
static inline bool convert_finite(const struct convert_sums *s)
{
	return s->top < 0x7f800000u;
}

extern const struct convert convert_base, convert_v3, convert_v4;

#endif

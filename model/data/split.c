/* SPDX-License-Identifier: MIT */
/* Who trains on which samples. Every agent works out the whole split for itself from the shared
 * seed and keeps its own part. So parts are disjoint and cover everything, and no message is
 * needed.
 *
 *     all samples ──validation stream──► held out, the same for all
 *                 └─► rest ── ALL: as it is
 *                          ├─ SHARD: shuffled, cut into near-equal runs
 *                          └─ LABEL: per class shuffled, cut by Dirichlet(α) shares
 *
 * Each purpose has a random stream of its own: the validation set does not move when the number of
 * parts changes. What can fail: settings out of range, memory, and a part that would be empty. */
#include "model/data/data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum split_stream { STREAM_VALIDATION = 1, STREAM_SHARD, STREAM_LABEL };

/* Beyond this the shares are equal to within one sample of any set, and gamma draws stay finite. */
#define ALPHA_EVEN 1e12

static int out_of_memory(struct err *e)
{
	return err_set(e, ERR_NOMEM, "no memory to split the data");
}

static int check(
        const struct dataset *d, const struct partition *p, double validation, struct err *e)
{
	if (!(validation >= 0 && validation < 1))
		return err_set(e, ERR_INVALID,
		        "validation share %g, expected 0 or more and below 1", validation);
	if (p->kind == PARTITION_LABEL && d->tokens)
		return err_set(
		        e, ERR_INVALID, "a split by labels of tokens, which have none: use shard");
	if (p->kind == PARTITION_ALL)
		return 0;
	if (p->parts == 0 || p->part >= p->parts)
		return err_set(e, ERR_INVALID, "part %u of %u parts: parts are counted from 0",
		        p->part, p->parts);
	if (p->kind == PARTITION_LABEL && !(p->alpha > 0 && isfinite(p->alpha)))
		return err_set(e, ERR_INVALID, "alpha %g, expected a number above 0", p->alpha);
	return 0;
}

/* Windows of training begin anywhere in the first T tokens of an epoch, so that each may run into
 * the next sample: the last ones are held out, and the one before them is left out. */
static void hold_out_last(const struct dataset *d, uint32_t n_val, uint32_t *val, uint32_t *rest)
{
	const uint32_t first = d->count - n_val, n = first - (n_val > 0);
	for (uint32_t i = 0; i < n; i++)
		rest[i] = i;
	for (uint32_t i = 0; i < n_val; i++)
		val[i] = first + i;
}

/* Cuts the set in two. Both come out in file order, which reads memory forwards. */
static int hold_out(
        const struct dataset *d, uint64_t seed, uint32_t n_val, uint32_t *val, uint32_t *rest)
{
	uint32_t *order = malloc(d->count * sizeof *order);
	uint8_t *held = calloc(d->count, 1);
	int rc = order && held ? 0 : ERR_NOMEM;
	if (rc)
		goto out;
	struct rng r;
	rng_seed(&r, seed, STREAM_VALIDATION);
	for (uint32_t i = 0; i < d->count; i++)
		order[i] = i;
	rng_shuffle(&r, order, d->count);
	for (uint32_t i = 0; i < n_val; i++)
		held[order[i]] = 1;
	for (uint32_t i = 0; i < d->count; i++)
		*(held[i] ? val++ : rest++) = i;
out:
	free(held);
	free(order);
	return rc;
}

/* Keeps part k of the shuffled rest, in place. */
static uint32_t cut_shard(const struct partition *p, uint32_t *rest, uint32_t n)
{
	struct rng r;
	rng_seed(&r, p->seed, STREAM_SHARD);
	rng_shuffle(&r, rest, n);
	uint32_t from = (uint32_t)((uint64_t)n * p->part / p->parts);
	uint32_t to = (uint32_t)((uint64_t)n * (p->part + 1ull) / p->parts);
	memmove(rest, rest + from, (to - from) * sizeof *rest);
	return to - from;
}

struct share {
	double weight; /* the gamma draw, then the fraction left over by rounding down */
	uint32_t part, count;
};

static int by_weight(const void *a, const void *b)
{
	const struct share *x = a, *y = b;
	if (x->weight != y->weight)
		return x->weight < y->weight ? 1 : -1;
	return x->part < y->part ? -1 : 1;
}

static int by_part(const void *a, const void *b)
{
	const struct share *x = a, *y = b;
	return x->part < y->part ? -1 : 1;
}

/* How many of a class's n samples each part gets: Dirichlet shares, rounded by largest remainder so
 * that they sum to n. s ends in the order of parts. */
static void draw_shares(struct rng *r, double alpha, struct share *s, uint32_t parts, uint32_t n)
{
	double sum = 0;
	uint32_t left = n;
	for (uint32_t i = 0; i < parts; i++) {
		s[i] = (struct share){.weight = rng_gamma(r, alpha), .part = i};
		sum += s[i].weight;
	}
	/* With a tiny α every draw may underflow: the limit there is one part that gets it all. */
	uint32_t winner = (uint32_t)rng_below(r, parts);
	if (!(sum > 0)) {
		s[winner].weight = 1;
		sum = 1;
	}
	for (uint32_t i = 0; i < parts; i++) {
		double exact = s[i].weight / sum * n, whole = floor(exact);
		s[i].count = whole < left ? (uint32_t)whole : left;
		s[i].weight = exact - whole;
		left -= s[i].count;
	}
	qsort(s, parts, sizeof *s, by_weight);
	for (uint32_t i = 0; left; i = (i + 1) % parts, left--)
		s[i].count++;
	qsort(s, parts, sizeof *s, by_part);
}

/* The rest sorted by class (a counting sort): class c is out[start[c]] to out[start[c + 1] - 1]. */
static void group_by_class(
        const struct dataset *d, const uint32_t *rest, uint32_t n, uint32_t *out, uint32_t *start)
{
	memset(start, 0, ((size_t)d->classes + 2) * sizeof *start);
	for (uint32_t i = 0; i < n; i++)
		start[d->labels[rest[i]] + 2]++;
	for (int64_t c = 2; c < d->classes + 2; c++)
		start[c] += start[c - 1];
	/* start[c + 1] is where class c begins, and moves to where class c + 1 does. */
	for (uint32_t i = 0; i < n; i++)
		out[start[d->labels[rest[i]] + 1]++] = rest[i];
}

/* Keeps part k of the Dirichlet split, in place; *n goes in as the rest's size, out as the part's.
 */
static int cut_label(
        const struct dataset *d, const struct partition *p, uint32_t *rest, uint32_t *n)
{
	uint32_t *grouped = malloc(*n * sizeof *grouped);
	uint32_t *start = malloc(((size_t)d->classes + 2) * sizeof *start);
	struct share *s = malloc(p->parts * sizeof *s);
	int rc = grouped && start && s ? 0 : ERR_NOMEM;
	if (rc)
		goto out;
	group_by_class(d, rest, *n, grouped, start);
	struct rng r;
	rng_seed(&r, p->seed, STREAM_LABEL);
	uint32_t kept = 0;
	for (int64_t c = 0; c < d->classes; c++) {
		uint32_t *of_class = grouped + start[c], size = start[c + 1] - start[c];
		if (!size)
			continue;
		rng_shuffle(&r, of_class, size);
		draw_shares(&r, fmin(p->alpha, ALPHA_EVEN), s, p->parts, size);
		uint32_t from = 0;
		for (uint32_t k = 0; k < p->part; k++)
			from += s[k].count;
		memcpy(rest + kept, of_class + from, s[p->part].count * sizeof *rest);
		kept += s[p->part].count;
	}
	*n = kept;
out:
	free(s);
	free(start);
	free(grouped);
	return rc;
}

static int cut_part(const struct dataset *d, const struct partition *p, uint32_t *rest, uint32_t *n,
        struct err *e)
{
	if (p->kind == PARTITION_ALL)
		return 0;
	if (p->parts > *n)
		return err_set(e, ERR_INVALID,
		        "%u parts of %u samples: some would be empty; use fewer parts", p->parts,
		        *n);
	if (p->kind == PARTITION_SHARD) {
		*n = cut_shard(p, rest, *n);
		return 0;
	}
	if (cut_label(d, p, rest, n))
		return out_of_memory(e);
	if (*n == 0)
		return err_set(e, ERR_INVALID,
		        "part %u of %u is empty with alpha %g: use a larger alpha or fewer parts",
		        p->part, p->parts, p->alpha);
	return 0;
}

int data_split(const struct dataset *d, const struct partition *p, double validation,
        uint32_t **train, uint32_t *n_train, uint32_t **val, uint32_t *n_val, struct err *e)
{
	*train = *val = NULL;
	*n_train = *n_val = 0;
	int rc = check(d, p, validation, e);
	if (rc)
		return rc;
	/* If validation is wanted there is at least one sample. */
	uint32_t held = (uint32_t)floor(validation * d->count + 0.5);
	if (validation > 0 && held == 0)
		held = 1;
	const uint32_t between = d->tokens && held > 0; /* see hold_out_last */
	if (held + between >= d->count)
		return err_set(e, ERR_INVALID,
		        "a validation share of %g leaves no sample of %u to train on", validation,
		        d->count);
	uint32_t n = d->count - held - between;
	*train = malloc(n * sizeof **train);
	*val = malloc((held ? held : 1) * sizeof **val);
	if (!*train || !*val)
		rc = out_of_memory(e);
	else if (d->tokens)
		hold_out_last(d, held, *val, *train);
	else if (hold_out(d, p->seed, held, *val, *train))
		rc = out_of_memory(e);
	if (!rc)
		rc = cut_part(d, p, *train, &n, e);
	if (rc) {
		free(*train);
		free(*val);
		*train = *val = NULL;
		return rc;
	}
	*n_train = n;
	*n_val = held;
	return 0;
}

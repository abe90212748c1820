/* SPDX-License-Identifier: MIT */
/* What an exchange asks of the learner besides adding: a copy of the parameters as they travel, and
 * how far away is what a peer sent.
 *
 *     learner's thread   ask the device ─► step ─► step …
 *     device                  └─► copies, sums, sketches ─► its own thread: the answer
 *
 * A device that can does both by itself, while training goes on. What it has no room for, and the
 * copies of devices that are the host's own processor, are made here piece by piece; the distances
 * of those the network's threads measure as the words come in, so they are never asked for.
 *
 * What can fail: the device. Then failed_cb tells, and there is no answer. */
#include "agent/train/learner_internal.h"

#include <math.h>
#include <string.h>

_Static_assert((int)COPY_FP32 == CONVERT_FP32 && (int)COPY_BF16 == CONVERT_BF16,
        "a device rounds to the wire's formats");
_Static_assert(LEARNER_PIECE % LATTICE_BLOCK == 0, "whole blocks are packed");
_Static_assert(DEVICE_GROUPS_MAX > EXCHANGE_GROUPS_MAX, "all groups, and what is in none");

bool learner__sound(struct learner_thread *l)
{
	struct err e;

	if (graph_check(l->trainer->net, &e) == 0)
		return true;
	learner__fail(l, &e);
	return false;
}

/* A place for one more that the device does by itself; NULL: there is none. */
static struct learner_copy *begin(struct learner_thread *l, const struct learner_job *j)
{
	for (struct learner_copy *c = l->copies; c < l->copies + LEARNER_REQUESTS; c++)
		if (!atomic_load(&c->under_way)) {
			c->l = l;
			c->what = j->what;
			c->step = l->trainer->step;
			c->measure = j->measure;
			atomic_store(&c->under_way, true);
			return c;
		}
	return NULL;
}

/* The device has taken it, or has failed; false: neither, and it is to be done here. */
static bool taken(struct learner_thread *l, struct learner_copy *c, int rc, const struct err *e)
{
	if (rc == 0)
		return true;
	atomic_store(&c->under_way, false);
	if (rc == ERR_BUSY)
		return false;
	learner__fail(l, e);
	return true;
}

/* Sums of the learner's groups, and of what is behind them. */
static int groups(const struct learner_thread *l, size_t end[DEVICE_GROUPS_MAX])
{
	const size_t n_total = l->trainer->arch.n_total;
	int n = l->base.info.groups.n;

	memcpy(end, l->base.info.groups.end, (size_t)n * sizeof *end);
	if (n == 0 || end[n - 1] < n_total)
		end[n++] = n_total;
	return n;
}

static void found(const struct learner_thread *l, const double *squares, struct learner_measure *to)
{
	size_t end[DEVICE_GROUPS_MAX];
	double all = 0;

	for (int g = 0, n = groups(l, end); g < n; g++)
		all += squares[g];
	to->finite = isfinite(all);
	memcpy(to->group2, squares, (size_t)l->base.info.groups.n * sizeof *squares);
}

/* On a thread of the device's, or on ours when it has failed: then nobody is to use what came. */
static void done(void *arg, int rc)
{
	struct learner_copy *c = arg;
	struct learner_thread *l = c->l;
	const struct learner_job j = {.what = c->what, .asked = true, .step = c->step};

	if (rc == 0 && c->what == LEARNER_MEASURE)
		found(l, c->squares, c->measure);
	atomic_store(&c->under_way, false);
	if (rc == 0)
		learner__answer(l, &j);
}

/* ---- copies */

/* Of a piece, as it travels. */
static void sketch_piece(struct learner_thread *l, const struct learner_job *j, size_t at, size_t n)
{
	const size_t n_train = l->trainer->arch.n_train, word = convert_word(j->format);
	struct convert_sums sums = {0};

	if (j->sketch == NULL || at >= n_train)
		return;
	n = n < n_train - at ? n : n_train - at;
	convert_best()->take(j->format, l->piece, (const uint8_t *)j->to + at * word, NULL, n,
	        TAKE_WORDS, &sums);
	sketch_add(j->sketch, l->piece, at, n);
}

/* All of a lattice's rounding is less than a step: its sketch is made of the parameters. */
static void pack_piece(struct learner_thread *l, const struct learner_job *j, size_t at, size_t n)
{
	const size_t n_train = l->trainer->arch.n_train;
	struct learner_lattice *p = j->pack;

	if (!lattice_pack(&p->l, (uint8_t *)j->to + convert_bytes(j->format, at), l->piece, at, n,
	            p->size))
		p->refused = true;
	if (j->sketch != NULL && at < n_train)
		sketch_add(j->sketch, l->piece, at, n < n_train - at ? n : n_train - at);
}

static void copy_here(struct learner_thread *l, const struct learner_job *j)
{
	const struct trainer *t = l->trainer;
	const struct convert *c = convert_best();

	if (j->sketch != NULL)
		memset(j->sketch, 0, sizeof *j->sketch);
	if (j->pack != NULL) {
		memset(j->pack->size, SCALES_LEAST, sizeof j->pack->size);
		j->pack->refused = false;
	}
	for (size_t at = 0, n; at < t->arch.n_total; at += n) {
		n = t->arch.n_total - at;
		n = n < LEARNER_PIECE ? n : LEARNER_PIECE;
		t->dev->backend->download(
		        t->dev, l->piece, t->net->params + at, n * sizeof *l->piece);
		if (j->pack != NULL) {
			pack_piece(l, j, at, n);
			continue;
		}
		c->pack(j->format, (uint8_t *)j->to + convert_bytes(j->format, at), l->piece, n);
		sketch_piece(l, j, at, n);
	}
}

bool learner__snapshot(struct learner_thread *l, const struct learner_job *j)
{
	struct trainer *t = l->trainer;
	const struct backend *b = t->dev->backend;
	struct learner_copy *c = b->snapshot != NULL && j->pack == NULL ? begin(l, j) : NULL;
	struct err e;

	if (c != NULL) {
		int rc = b->snapshot(t->dev,
		        &(struct device_copy){.x = t->net->params,
		                .n = t->arch.n_total,
		                .format = (enum copy_format)j->format,
		                .to = j->to,
		                .sketch = j->sketch != NULL ? j->sketch->bucket : NULL,
		                .n_sketch = t->arch.n_train,
		                .done_cb = done,
		                .arg = c},
		        &e);
		if (taken(l, c, rc, &e))
			return false;
	}
	copy_here(l, j);
	return learner__sound(l);
}

/* ---- differences of a lattice */

/* Up to where one factor goes. */
static size_t group_end(
        const struct learner_thread *l, const struct learner_job *j, size_t at, float *k)
{
	const struct learner_groups *g = &l->base.info.groups;
	float least = g->n > 0 ? j->k[0] : 0;

	for (int i = 0; i < g->n; i++) {
		least = j->k[i] < least ? j->k[i] : least;
		*k = j->k[i];
		if (at < g->end[i])
			return g->end[i];
	}
	*k = least;
	return l->trainer->arch.n_total;
}

int learner__apply_packed(struct learner_thread *l, const struct learner_job *j, struct err *e)
{
	struct trainer *t = l->trainer;
	int rc = 0;

	for (size_t at = 0, n; at < t->arch.n_total && rc == 0; at += n) {
		float k;

		n = group_end(l, j, at, &k) - at;
		n = n < LEARNER_PIECE ? n : LEARNER_PIECE;
		lattice_unpack(&j->packed->l, l->piece, j->difference, at, n);
		rc = trainer_add_part(t, l->piece, at, n, k, e);
	}
	return rc ? rc : trainer_add_end(t, e);
}

/* ---- distances */

static void measure_here(struct learner_thread *l, const struct learner_job *j)
{
	size_t end[DEVICE_GROUPS_MAX], at = 0;
	double squares[DEVICE_GROUPS_MAX] = {0};

	for (int g = 0, n = groups(l, end); g < n; g++)
		for (; at < end[g]; at++)
			squares[g] += (double)j->from[at] * (double)j->from[at];
	found(l, squares, j->measure);
	memset(&j->measure->sketch, 0, sizeof j->measure->sketch);
	sketch_add(&j->measure->sketch, j->from, 0, l->trainer->arch.n_train);
}

bool learner__measure(struct learner_thread *l, const struct learner_job *j)
{
	struct trainer *t = l->trainer;
	struct learner_copy *c = begin(l, j);
	size_t end[DEVICE_GROUPS_MAX];
	struct err e;

	if (c != NULL) {
		int rc = trainer_stage(t,
		        &(struct device_stage){.x = j->from,
		                .n = t->arch.n_total,
		                .n_groups = groups(l, end),
		                .end = end,
		                .squares = c->squares,
		                .sketch = j->measure->sketch.bucket,
		                .n_sketch = t->arch.n_train,
		                .done_cb = done,
		                .arg = c},
		        &e);
		if (taken(l, c, rc, &e))
			return false;
	}
	measure_here(l, j);
	return true;
}

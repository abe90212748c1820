/* SPDX-License-Identifier: MIT */
/* The running statistics of batch_norm, measured anew: the mean over batches of samples to train
 * on, of the whole set whatever our part of it is, in an order that is the same at all agents. So
 * they follow from the parameters and train.batch alone, and agents with the same model have the
 * same ones if they have the same batch, which need not be.
 *
 * A forward pass moves statistics from x to (1 − m)·x + m·s, where s is the batch's: they are set
 * to 0 before each. What can fail: memory, the device, and reading samples. */
#include "agent/train/trainer.h"

#include "agent/base/rng.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES 4096 /* at most, but at least a batch */

/* Samples of the whole set that are not held out, shuffled; as many as make whole batches. */
static int choose(const struct trainer *t, uint32_t **index, uint32_t *n, struct err *e)
{
	const struct config *c = t->config;
	const uint32_t batch = (uint32_t)c->train.batch, most = batch > SAMPLES ? batch : SAMPLES;
	struct partition all = c->data.partition;
	uint32_t *held_out = NULL, n_held_out;
	struct rng r;
	int rc;

	all.kind = PARTITION_ALL;
	rc = data_split(
	        &t->train_data, &all, c->data.validation, index, n, &held_out, &n_held_out, e);
	free(held_out);
	if (rc != 0)
		return rc;
	rng_seed(&r, 0, 0);
	rng_shuffle(&r, *index, *n);
	*n = *n < most ? *n : most;
	*n -= *n % batch; /* a batch fits: trainer_new has looked */
	return 0;
}

static int pass(struct trainer *t, const struct batch *b, uint64_t k, float *stats, double *sum,
        struct err *e)
{
	const size_t first = t->arch.n_train, n = t->arch.n_total - first;
	struct device *d = t->dev;
	int rc;

	memset(stats, 0, n * sizeof *stats);
	d->backend->upload(d, t->net->params + first, stats, n * sizeof *stats);
	rc = graph_forward(t->net, b, k, e);
	d->backend->download(d, stats, t->net->params + first, n * sizeof *stats);
	for (size_t i = 0; i < n; i++)
		sum[i] += (double)stats[i];
	return rc;
}

/* Into stats, which has what they were: of a layer that never moves them they stay. */
static void divide(const struct arch *a, const double *sum, uint64_t batches, float *stats)
{
	for (int i = 0; i < a->n_nodes; i++) {
		const struct arch_node *node = &a->nodes[i];
		const double of = node->layer.momentum * (double)batches;

		for (int k = 0; k < node->n_param; k++) {
			const struct param_view *v = &a->views[node->param[k]];
			const size_t at = v->offset - a->n_train;

			if (v->group != PARAM_STAT || of <= 0)
				continue;
			for (size_t j = at; j < at + v->count; j++)
				stats[j] = (float)(sum[j] / of);
		}
	}
}

static int measure(struct trainer *t, struct loader *l, float *stats, struct err *e)
{
	const size_t n = t->arch.n_total - t->arch.n_train, bytes = n * sizeof *stats;
	float *room = malloc(bytes);
	double *sum = calloc(n, sizeof *sum);
	const struct batch *b;
	uint64_t batches = 0;
	int rc = 0;

	if (room == NULL || sum == NULL)
		rc = err_set(e, ERR_NOMEM, "no memory for %zu statistics", n);
	while (rc == 0 && (b = loader_next(l)) != NULL)
		rc = pass(t, b, batches++, room, sum, e);
	if (rc == 0)
		rc = loader_failed(l, e);
	if (rc == 0)
		divide(&t->arch, sum, batches, stats);
	free(sum);
	free(room);
	return rc;
}

int trainer_recalibrate(struct trainer *t, struct err *e)
{
	const size_t first = t->arch.n_train, n = t->arch.n_total - first;
	const struct loader_position start = {0};
	struct loader_config lc = {.data = &t->train_data};
	struct device *d = t->dev;
	struct loader *l = NULL;
	uint32_t *index = NULL;
	float *stats;
	int rc;

	assert(!trainer_merging(t));
	if (n == 0)
		return 0;
	stats = malloc(n * sizeof *stats);
	if (stats == NULL)
		return err_set(e, ERR_NOMEM, "no memory for %zu statistics", n);
	d->backend->download(d, stats, t->net->params + first, n * sizeof *stats);
	rc = choose(t, &index, &lc.n_index, e);
	if (rc == 0) {
		lc.index = index;
		rc = trainer__open_loader(t, &l, lc, start, e);
	}
	if (rc == 0)
		rc = measure(t, l, stats, e);
	d->backend->upload(d, t->net->params + first, stats, n * sizeof *stats);
	loader_free(l);
	free(index);
	free(stats);
	return rc;
}

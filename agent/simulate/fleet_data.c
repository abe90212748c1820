/* SPDX-License-Identifier: MIT */
/* Who trains on which samples, and in which order.
 *
 * The order of an epoch is a permutation that is computed, not stored: a Feistel network over the
 * smallest even number of bits that holds the set, walked until it falls into the set (Black and
 * Rogaway 2002). So a thousand agents with orders of their own take no memory for them, and a batch
 * is a function of (seed, agent, its number). What can fail: files, and splits with an empty
 * part.
 *
 * Data injection (SelSync): at each step α·N agents, drawn anew, give β of their own samples to all
 * others. Batches stay as large as they are, b: b' = b/(1 + αβN) of an agent's own samples, and the
 * rest from the givers, in turn. */
#include "agent/simulate/fleet_internal.h"
#include "agent/train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KEY_ORDER 31
#define KEY_GIVERS 32

/* Position p of [0, n) in the permutation of that key. */
static uint32_t permuted(uint32_t p, uint32_t n, uint64_t key)
{
	uint32_t half = 1, x = p;

	while ((1ull << (2 * half)) < n)
		half++;
	const uint32_t mask = (1u << half) - 1;

	do {
		uint32_t left = x >> half, right = x & mask;

		for (uint32_t round = 0; round < 4; round++) {
			const uint32_t t = left ^ ((uint32_t)rng_mix(key, round, right) & mask);

			left = right;
			right = t;
		}
		x = left << half | right;
	} while (x >= n);
	return x;
}

uint32_t fleet_data_count(const struct fleet_data *d, uint32_t agent)
{
	return d->n_part ? d->n_part[agent] : d->n_all;
}

uint32_t fleet_data_own(const struct fleet_data *d, uint32_t n)
{
	const struct scenario *s = d->scenario;
	const double given = s->agents.inject_alpha * s->agents.inject_beta;
	const double own = round(n / (1 + given * (double)s->agents.count));

	return own < 1 ? 1 : (uint32_t)own;
}

/* ⌈α·N⌉, but there is nobody to give to oneself. */
uint32_t fleet_data_givers(const struct fleet_data *d)
{
	const uint32_t n = (uint32_t)d->scenario->agents.count;
	const uint32_t givers = (uint32_t)ceil(d->scenario->agents.inject_alpha * n);

	return givers < n ? givers : n - 1;
}

/* Sample number `at` of an agent's own way through its part. */
static uint32_t sample(const struct fleet_data *d, uint32_t agent, uint64_t at)
{
	const bool shared = d->scenario->agents.split == SPLIT_SHARED;
	const uint32_t count = fleet_data_count(d, agent);
	const uint32_t *index = d->part ? d->part[agent] : d->all;
	const uint64_t key = shared ? d->order_key : rng_mix(d->order_key, agent, KEY_ORDER);

	return index[permuted((uint32_t)(at % count), count, rng_mix(key, at / count, KEY_ORDER))];
}

/* Samples own to n of batch k are from the givers of step k: one from each, in turn. */
static void inject(const struct fleet_data *d, uint32_t agent, uint64_t k, uint32_t *out,
        uint32_t own, uint32_t n)
{
	const uint32_t agents = (uint32_t)d->scenario->agents.count;
	const uint32_t givers = fleet_data_givers(d);
	const uint64_t key = rng_mix(d->order_key, k, KEY_GIVERS);

	for (uint32_t j = own, turn = 0; j < n; turn++) {
		uint32_t given = 0;

		for (uint32_t p = 0; given < givers && j < n; p++) {
			const uint32_t from = permuted(p, agents, key);

			if (from == agent)
				continue;
			out[j++] = sample(d, from, k * own + turn);
			given++;
		}
	}
}

void fleet_data_batch(
        const struct fleet_data *d, uint32_t agent, uint64_t k, uint32_t *out, uint32_t n)
{
	const uint64_t agents = (uint64_t)d->scenario->agents.count;
	const bool shared = d->scenario->agents.split == SPLIT_SHARED;
	const uint32_t own = fleet_data_own(d, n);
	const uint64_t at = shared ? (k * agents + agent) * n : k * own;

	for (uint32_t j = 0; j < own; j++)
		out[j] = sample(d, agent, at + j);
	if (own < n)
		inject(d, agent, k, out, own, n);
}

/* k labels for each agent: labels in a drawn order, agent i takes k of them from place i·k on. The
 * samples of a label are cut into equal parts for those who have it. */
static int split_labels(struct fleet_data *d, uint64_t seed, struct err *e)
{
	const uint32_t n = (uint32_t)d->scenario->agents.count;
	const uint32_t classes = (uint32_t)d->train.classes;
	const uint32_t labels = (uint32_t)d->scenario->agents.labels;
	uint32_t *word = malloc(classes * sizeof *word), *having = calloc(classes, sizeof *having);
	uint32_t *given = calloc(classes, sizeof *given), *count = calloc(classes, sizeof *count);
	struct rng r;
	int rc = ERR_NOMEM;

	if (!word || !having || !given || !count)
		goto out;
	rc = 0;
	rng_seed(&r, seed, 1);
	for (uint32_t c = 0; c < classes; c++)
		word[c] = c;
	rng_shuffle(&r, word, classes);
	rng_shuffle(&r, d->all, d->n_all);
	for (uint32_t i = 0; i < d->n_all; i++)
		count[d->train.labels[d->all[i]]]++;
	for (uint64_t j = 0; j < (uint64_t)n * labels; j++)
		having[word[j % classes]]++;
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		uint32_t *to = d->part[i] = malloc(d->n_all * sizeof *to);
		uint32_t *shrunk;

		if (!to) {
			rc = ERR_NOMEM;
			break;
		}
		for (uint32_t j = 0; j < labels; j++) {
			const uint32_t c = word[((uint64_t)i * labels + j) % classes];
			const uint64_t from = (uint64_t)count[c] * given[c] / having[c];
			const uint64_t end = (uint64_t)count[c] * (given[c] + 1ull) / having[c];
			uint64_t at = 0;

			given[c]++;
			for (uint32_t k = 0; k < d->n_all && at < end; k++)
				if ((uint32_t)d->train.labels[d->all[k]] == c && at++ >= from)
					to[d->n_part[i]++] = d->all[k];
		}
		if (d->n_part[i] == 0)
			rc = err_set(e, ERR_INVALID, "agent %u would have no samples", i);
		shrunk = realloc(to, (d->n_part[i] + 1u) * sizeof *to);
		d->part[i] = shrunk ? shrunk : to;
	}
out:
	free(word);
	free(having);
	free(given);
	free(count);
	return rc == ERR_NOMEM ? err_set(e, rc, "no memory to split the data") : rc;
}

static int split(struct fleet_data *d, uint64_t seed, struct err *e)
{
	const struct scenario *s = d->scenario;
	const uint32_t n = (uint32_t)s->agents.count;
	struct partition p = {.parts = n, .alpha = s->agents.alpha, .seed = seed};
	int rc = 0;

	if (s->agents.split == SPLIT_IID || s->agents.split == SPLIT_SHARED)
		return 0;
	d->part = calloc(n, sizeof *d->part);
	d->n_part = calloc(n, sizeof *d->n_part);
	if (!d->part || !d->n_part)
		return err_set(e, ERR_NOMEM, "no memory to split the data");
	if (s->agents.split == SPLIT_LABELS) {
		if (d->train.tokens)
			return err_set(
			        e, ERR_INVALID, "agents.split: tokens have no labels to split by");
		if (s->agents.labels > d->train.classes)
			return err_set(e, ERR_INVALID,
			        "agents.labels: %lld labels an agent, but the data has %lld",
			        (long long)s->agents.labels, (long long)d->train.classes);
		return split_labels(d, seed, e);
	}
	p.kind = s->agents.split == SPLIT_SHARD ? PARTITION_SHARD : PARTITION_LABEL;
	for (p.part = 0; p.part < n && rc == 0; p.part++) {
		uint32_t *held = NULL, n_held;

		rc = data_split(&d->train, &p, s->config.data.validation, &d->part[p.part],
		        &d->n_part[p.part], &held, &n_held, e);
		free(held);
	}
	return rc;
}

static int choose_eval(struct fleet_data *d, uint32_t *held, uint32_t n_held, struct err *e)
{
	d->eval = d->has_test ? index_all(d->test.count) : held;
	d->n_eval = d->has_test ? d->test.count : n_held;
	if (d->eval != held)
		free(held);
	if (!d->eval)
		return err_set(e, ERR_NOMEM, "no memory for the test set's order");
	if (d->n_eval == 0)
		return err_set(e, ERR_INVALID,
		        "there is nothing to evaluate on: name a test set, or set "
		        "data.validation");
	return 0;
}

int fleet_data_open(struct fleet_data *d, const struct scenario *s, uint64_t seed, struct err *e)
{
	const struct config *c = &s->config;
	const uint64_t split_seed = rng_mix(c->data.partition.seed, seed, 0);
	const struct partition all = {.kind = PARTITION_ALL, .seed = split_seed};
	uint32_t *held = NULL, n_held = 0;
	int rc = trainer_dataset(c, DATA_TRAIN, c->data.classes, &d->train, e);

	d->scenario = s;
	d->order_key = rng_mix((uint64_t)c->data.seed, seed, 1);
	if (rc)
		return rc;
	rc = trainer_test_set(c, &d->train, &d->test, e);
	d->has_test = rc == 0;
	if (rc && rc != ERR_NOTFOUND)
		return rc;
	if (d->has_test && !shape_equal(&d->test.shape, &d->train.shape))
		return err_set(e, ERR_MISMATCH, "the test samples have another shape");
	rc = data_split(&d->train, &all, c->data.validation, &d->all, &d->n_all, &held, &n_held, e);
	if (rc == 0)
		rc = choose_eval(d, held, n_held, e);
	if (rc == 0) {
		dataset_statistics(&d->train, d->all, d->n_all, &d->norm);
		rc = split(d, split_seed, e);
	}
	return rc;
}

void fleet_data_close(struct fleet_data *d)
{
	for (int64_t i = 0; d->part && i < d->scenario->agents.count; i++)
		free(d->part[i]);
	free(d->part);
	free(d->n_part);
	free(d->all);
	free(d->eval);
	dataset_close(&d->test);
	dataset_close(&d->train);
	memset(d, 0, sizeof *d);
}

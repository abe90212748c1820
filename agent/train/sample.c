/* SPDX-License-Identifier: MIT */
/* Every token is a whole forward pass over the window. Keys and values of earlier positions could
 * be kept, but only until the window is full: then every position moves, and they all change. */
#include "agent/train/sample.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t likeliest(const float *x, int64_t n)
{
	int64_t best = 0;

	for (int64_t i = 1; i < n; i++)
		if (x[i] > x[best])
			best = i;
	return best;
}

static int falling(const void *a, const void *b)
{
	const float x = *(const float *)a, y = *(const float *)b;

	return (x < y) - (x > y);
}

/* What is less than the k-th largest becomes impossible, and of those equal to it the last ones. */
static void keep_largest(float *x, int64_t n, int64_t k, float *room)
{
	int64_t above = 0;

	memcpy(room, x, (size_t)n * sizeof *x);
	qsort(room, (size_t)n, sizeof *room, falling);
	const float least = room[k - 1];

	for (int64_t i = 0; i < n; i++)
		above += x[i] > least;
	for (int64_t i = 0, equal = above; i < n; i++)
		if (x[i] < least || (x[i] == least && equal++ >= k))
			x[i] = -INFINITY;
}

int32_t sample_pick(float *logits, int64_t n, const struct sample_config *c, struct rng *r)
{
	const int64_t best = likeliest(logits, n);
	const float top = logits[best];
	double sum = 0, at;

	if (c->temperature <= 0 || c->top_k == 1)
		return (int32_t)best;
	if (c->top_k > 0 && c->top_k < n) {
		float *room = malloc((size_t)n * sizeof *room);

		if (room == NULL) /* the likeliest is a fair answer, too */
			return (int32_t)best;
		keep_largest(logits, n, c->top_k, room);
		free(room);
	}
	for (int64_t i = 0; i < n; i++)
		sum += exp(((double)logits[i] - (double)top) / c->temperature);
	at = rng_f64(r) * sum;
	for (int64_t i = 0; i < n; i++) {
		at -= exp(((double)logits[i] - (double)top) / c->temperature);
		if (at < 0)
			return (int32_t)i;
	}
	return (int32_t)best; /* by rounding alone */
}

int sample_init(struct sampler *s, struct graph *net, struct err *e)
{
	const struct arch *a = net->arch;

	*s = (struct sampler){.net = net};
	if (!a->tokens)
		return err_set(e, ERR_UNSUPPORTED, "a model of images writes no text");
	assert(net->program.batch == 1);
	s->tokens = calloc((size_t)a->positions, sizeof *s->tokens);
	s->labels = calloc((size_t)a->positions, sizeof *s->labels);
	s->logits = calloc((size_t)a->classes, sizeof *s->logits);
	if (s->tokens != NULL && s->labels != NULL && s->logits != NULL)
		return 0;
	sample_close(s);
	return err_set(e, ERR_NOMEM, "no memory for a window of text");
}

void sample_close(struct sampler *s)
{
	free(s->tokens);
	free(s->labels);
	free(s->logits);
	memset(s, 0, sizeof *s);
}

void sample_add(struct sampler *s, int32_t token)
{
	const int64_t most = s->net->arch->positions;

	assert(token >= 0 && token < s->net->arch->classes);
	if (s->n == most)
		memmove(s->tokens, s->tokens + 1, (size_t)--s->n * sizeof *s->tokens);
	s->tokens[s->n++] = token;
}

int sample_next(struct sampler *s, const struct sample_config *c, struct rng *r, int32_t *token,
        struct err *e)
{
	struct graph *g = s->net;
	const int64_t n = g->arch->classes;
	const struct batch b = {
	        .tokens = s->tokens, .labels = s->labels, .shape = g->arch->input, .count = 1};
	struct loss_result unused;

	assert(s->n > 0);
	/* What is behind the text is 0, and no position looks ahead. */
	memset(s->tokens + s->n, 0, (size_t)(g->arch->positions - s->n) * sizeof *s->tokens);
	int rc = graph_eval_begin(g, &b, &unused, e);

	if (rc == 0)
		rc = graph_wait(g, e);
	if (rc != 0)
		return rc;
	g->dev->backend->download(g->dev, s->logits, g->program.logits + (s->n - 1) * n,
	        (size_t)n * sizeof *s->logits);
	for (int64_t i = 0; i < n; i++)
		if (!isfinite(s->logits[i]))
			return err_set(e, ERR_NONFINITE, "the model's output is not finite");
	*token = sample_pick(s->logits, n, c, r);
	return graph_check(g, e);
}

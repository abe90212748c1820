/* SPDX-License-Identifier: MIT */
/* Of a channel the mean lies before the variance. So when a difference comes in parts, a mean is
 * bounded by the variance from before the exchange, as when it comes at once. */
#include "model/graph/stats.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static size_t count(const struct arch *a)
{
	return a->n_total - a->n_train;
}

static float bounded(float step, double least, double most)
{
	return step < (float)least ? (float)least : step > (float)most ? (float)most : step;
}

/* Of one layer. */
static void layer_steps(const struct arch *a, const struct arch_node *node, const float *x,
        const float *difference, size_t at, size_t n, float k, float *step)
{
	const struct param_view *mean = &a->views[node->param[2]];
	const size_t first = mean->offset, second = a->views[node->param[3]].offset;

	for (size_t c = 0; c < mean->count; c++) {
		const double var = x[second + c - a->n_train], own = var > 0 ? var : 0;
		const double s2 = own + node->layer.eps, far = STATS_MEAN_MOST * sqrt(s2);

		/* Below `at` a place is beyond n, too. */
		if (first + c - at < n)
			step[first + c - at] = bounded(k * difference[first + c - at], -far, far);
		if (second + c - at < n)
			step[second + c - at] = bounded(k * difference[second + c - at],
			        own / STATS_VAR_MOST - var, STATS_VAR_MOST * s2 - var);
	}
}

void stats_steps(const struct arch *a, const float *x, const float *difference, size_t at, size_t n,
        float k, float *step)
{
	assert(at >= a->n_train && at + n <= a->n_total);
	memset(step, 0, n * sizeof *step);
	for (int i = 0; i < a->n_nodes; i++)
		if (a->nodes[i].layer.kind == LAYER_BATCH_NORM)
			layer_steps(a, &a->nodes[i], x, difference, at, n, k, step);
}

int stats_add(
        struct graph *net, const float *difference, size_t at, size_t n, float k, struct err *e)
{
	const struct arch *a = net->arch;
	const struct backend *b = net->dev->backend;
	float *x = net->stats + count(a), *step = x + count(a);

	if (n == 0)
		return 0;
	b->download(net->dev, x, net->params + a->n_train, count(a) * sizeof *x);
	stats_steps(a, x, difference, at, n, k, step);
	return b->add(net->dev, net->params + at, step, n, 1, e);
}

void stats_keep(struct graph *net)
{
	const struct arch *a = net->arch;

	if (count(a) > 0)
		net->dev->backend->download(net->dev, net->stats, net->params + a->n_train,
		        count(a) * sizeof *net->stats);
}

void stats_put_back(struct graph *net)
{
	const struct arch *a = net->arch;

	if (count(a) > 0)
		net->dev->backend->upload(net->dev, net->params + a->n_train, net->stats,
		        count(a) * sizeof *net->stats);
}

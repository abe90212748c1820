/* SPDX-License-Identifier: MIT */
/* The running statistics of batch_norm, which lie behind what is trained: [n_train, n_total).
 *
 * Training never reads them, evaluations do. A peer's are averaged in like parameters, but they are
 * in no group that is clipped. Instead, one exchange moves a channel at most as far as what the
 * agent has itself allows, σ² being its own running variance (0 if below) plus ε:
 *
 *     mean       by STATS_MEAN_MOST·σ
 *     variance   to between a STATS_VAR_MOST-th of itself and STATS_VAR_MOST·σ²: never below 0
 *
 * Two agents whose channels are not that far apart move by the same difference in opposite
 * directions, to the bit, as their parameters do. */
#ifndef DUNLIN_MODEL_GRAPH_STATS_H
#define DUNLIN_MODEL_GRAPH_STATS_H

#include "model/graph/graph.h"

#define STATS_MEAN_MOST 1
#define STATS_VAR_MOST 4

/* What an exchange adds to statistics at … at + n of the flat vector: k·difference, bounded. x: all
 * of them as they are; difference and step begin at `at`. */
void stats_steps(const struct arch *a, const float *x, const float *difference, size_t at, size_t n,
        float k, float *step);

/* Adds that. */
int stats_add(struct graph *net, const float *difference, size_t at, size_t n, float k,
        struct err *e) MUST_CHECK;

/* Notes the statistics, and gives them back. */
void stats_keep(struct graph *net);
void stats_put_back(struct graph *net);

#endif

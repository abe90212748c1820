/* SPDX-License-Identifier: MIT */
/* SGD with momentum, AdamW, clipping, and learning-rate schedules counted in samples. */
#ifndef DUNLIN_MODEL_GRAPH_OPTIM_H
#define DUNLIN_MODEL_GRAPH_OPTIM_H

#include "model/graph/graph.h"

enum optim_kind { OPTIM_SGD, OPTIM_ADAMW };
enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_STEP, SCHEDULE_COSINE };

struct optim_config {
	enum optim_kind kind;
	double lr, momentum, beta1, beta2, eps, weight_decay;
	double clip; /* largest norm of the whole gradient; 0: none */
	bool nesterov;
};

struct schedule {
	enum schedule_kind kind;
	uint64_t warmup; /* samples of linear rise from 0 */
	uint64_t total;  /* samples of the run */
	uint64_t step;   /* SCHEDULE_STEP: samples between decays */
	double step_factor;
	double floor; /* SCHEDULE_COSINE: the last rate as a share of the first */
};

/* The factor on lr after that many samples of the run. */
double schedule_factor(const struct schedule *s, uint64_t samples);

/* x += k[g]·difference for the parameters of group g, which begins where group g − 1 ends and ends
 * before end[g]. What is after the last end uses the smallest k; statistics by the rule of stats.h.
 * All pointers are borrowed. */
struct optim_merge {
	const float *difference; /* NULL: none; else n_total floats of the host's */
	const size_t *end;       /* ascending, at most n_train */
	const float *k;
	int n;
	size_t at; /* parameters before it have been added */
};

struct optim {
	struct optim_config config;
	struct graph *net; /* borrowed */
	float *m;          /* owned, device memory, n_total floats; momentum or first moment */
	float *v;          /* owned; AdamW only */
	uint64_t steps;    /* taken, for AdamW's bias correction */
	struct optim_merge merge; /* staged, to be added by the next update */
	/* Momentum of the whole movement (outer.h): SGD on a device whose memory is the host's. */
	bool qgm;
	double rate; /* then: outer_qgm_rate of the last step */
};

int optim_init(
        struct optim *o, const struct optim_config *c, struct graph *n, struct err *e) MUST_CHECK;
void optim_close(struct optim *o);

/* Applies the gradients. norm receives the gradient's norm before clipping. If it is not finite,
 * nothing changes and ERR_NONFINITE is returned. A merge is applied to the trained parameters in
 * the same pass; merge.at says how far. */
int optim_step(struct optim *o, double lr, double *norm, struct err *e) MUST_CHECK;

/* Adds the part of the merge that was not added yet, and ends the merge. */
int optim_add(struct optim *o, struct err *e) MUST_CHECK;

#endif

/* SPDX-License-Identifier: MIT */
/* Means and standard errors over the seeds of a simulation: of its last point and of its curves. */
#ifndef DUNLIN_AGENT_REPORT_SUMMARY_H
#define DUNLIN_AGENT_REPORT_SUMMARY_H

#include "agent/simulate/result.h"

struct mean {
	double mean;  /* NaN: there is nothing */
	double error; /* the standard error of the mean; NaN with fewer than two values */
	int n;
};

/* Values that are not finite are left out. */
struct mean mean_of(const double *values, int n);

/* What is said of a whole run. */
enum summary_field {
	SUMMARY_ACCURACY,
	SUMMARY_LOSS,
	SUMMARY_TIME,
	SUMMARY_BYTES,
	SUMMARY_SAMPLES,
	SUMMARY_EXCHANGES,
	SUMMARY_XI,
	SUMMARY_TARGET_TIME,
	SUMMARY_TARGET_BYTES,
	SUMMARY_SYNCHRONISED,
	SUMMARY_WAITING,   /* fraction of an agent's time */
	SUMMARY_FP32_TIME, /* of all-reduces, in either format */
	SUMMARY_FP32_BYTES,
	SUMMARY_BF16_TIME,
	SUMMARY_BF16_BYTES,
	SUMMARY_FIELDS
};

struct summary {
	const struct sim_result *result; /* borrowed */
	char label[LIMIT_NAME + 32];     /* no other of the comparison has it */
	struct mean field[SUMMARY_FIELDS];
	int complete, failed; /* runs */
	int tried;            /* learning rates of which this is the best; 1 if none was sought */
	bool alike;           /* another one has the same label, while labels are sought */
};

/* One of each result; out has room for n. Labels are the names, with method, learning rate or a
 * number where names are equal. best_lr: of results that differ in name and learning rate alone
 * only the one with the highest mean accuracy is kept. Returns how many there are, or a code. */
int summarise(struct summary *out, const struct sim_result *results, int n, bool best_lr,
        struct err *e) MUST_CHECK;

/* The values of a point that can be drawn. */
enum curve_of {
	CURVE_TIME,
	CURVE_BYTES,
	CURVE_SAMPLES,
	CURVE_ACCURACY,
	CURVE_LOSS,
	CURVE_TRAIN_LOSS,
	CURVE_XI,
	CURVE_XI_TARGET,
	CURVE_LIVE,
};

/* Point k is the mean of the k-th points of the runs, in x as in y; points that not all runs have
 * are left out. low and high are a standard error below and above. Some y is a number if any. */
struct curve {
	double *x, *y, *low, *high; /* one allocation, owned, at x */
	int n;
	bool any;
};
int curve_new(
        struct curve *c, const struct sim_result *r, enum curve_of x, enum curve_of y) MUST_CHECK;
void curve_close(struct curve *c);

#endif

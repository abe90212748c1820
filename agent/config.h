/* SPDX-License-Identifier: MIT */
/* One settings struct, filled from (weakest first) defaults, a JSON file with comments, environment
 * variables and flags, all through one table of options (options.h). */
#ifndef DUNLIN_AGENT_CONFIG_H
#define DUNLIN_AGENT_CONFIG_H

#include "agent/base/buf.h"
#include "agent/base/err.h"
#include "agent/base/limits.h"
#include "model/arch.h"
#include "model/data.h"
#include "model/optim.h"

enum log_format { LOG_TEXT, LOG_JSON };

struct config {
	/* "model": a preset's name, or {"layers": [...]} */
	char preset[LIMIT_NAME];
	struct layer *layers; /* owned; NULL with a preset */
	int n_layers;

	struct {
		char train_images[LIMIT_PATH], train_labels[LIMIT_PATH];
		char test_images[LIMIT_PATH], test_labels[LIMIT_PATH]; /* both or none */
		int64_t classes; /* 0: from the labels */
		double validation;
		struct augment augment;
		struct partition partition;
		int64_t seed;  /* order and augmentation */
		int64_t ahead; /* batches prepared in advance */
	} data;

	struct {
		double epochs;
		int64_t batch, accumulate;
		struct optim_config optim; /* "optimizer", "lr", … */
		int schedule;              /* enum schedule_kind */
		double warmup_epochs, step_epochs, step_factor, lr_floor;
		int64_t seed; /* initial weights and dropout */
	} train;

	struct {
		char out[LIMIT_PATH];     /* folder for checkpoints, metrics and the final weights */
		char metrics[LIMIT_PATH]; /* JSON lines; empty: out/metrics.jsonl */
		char init_from[LIMIT_PATH];
		bool resume;
		double checkpoint_s;  /* seconds between checkpoints; 0: only at epochs and the end */
		int64_t checkpoint_steps; /* steps between checkpoints; 0: not by steps */
		int64_t keep;         /* checkpoints kept besides the best */
		int64_t stop_after;   /* steps of this process, then checkpoint and exit; 0: no limit */
		char device[32];
		int64_t threads; /* 0: as many as there are cores */
		bool deterministic;
	} run;

	struct {
		int level;  /* enum log_level */
		int format; /* enum log_format */
	} log;
};

#endif

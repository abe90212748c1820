/* SPDX-License-Identifier: MIT */
/* One settings struct, filled from (weakest first) defaults, a JSON file with comments, environment
 * variables and flags, all through one table of options (options.h). */
#ifndef DUNLIN_AGENT_CONFIG_CONFIG_H
#define DUNLIN_AGENT_CONFIG_CONFIG_H

#include "agent/base/buf.h"
#include "agent/base/err.h"
#include "agent/base/limits.h"
#include "agent/base/log.h"
#include "model/arch/arch.h"
#include "model/data/data.h"
#include "model/graph/optim.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONFIG_SETTINGS_MAX 128 /* rows of the options table, at most */

enum agent_profile { PROFILE_LAN, PROFILE_WAN };

struct config {
	/* "model": a preset's name, or {"layers": [...]} */
	char preset[LIMIT_NAME];
	struct layer *layers; /* owned; NULL with a preset */
	int n_layers;

	struct {
		char train_images[LIMIT_PATH], train_labels[LIMIT_PATH];
		char test_images[LIMIT_PATH], test_labels[LIMIT_PATH]; /* both or none */
		int64_t classes;                                       /* 0: from the labels */
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
		char out[LIMIT_PATH]; /* folder for the results; empty: see paths.h */
		char metrics[LIMIT_PATH]; /* JSON lines; empty: out/metrics.jsonl */
		char init_from[LIMIT_PATH];
		bool resume;
		double checkpoint_s;      /* seconds between checkpoints; 0: not by time */
		int64_t checkpoint_steps; /* steps between checkpoints; 0: not by steps */
		int64_t keep;             /* checkpoints kept besides the best */
		int64_t stop_after;       /* steps of this process, then it exits; 0: no limit */
		char device[32];
		int64_t eval_samples; /* an agent's, at each evaluation */
		double eval_epochs;   /* between two of them */
		int64_t threads;      /* 0: as many as there are cores */
		bool deterministic;
		bool tf32;
	} run;

	struct {
		char name[LIMIT_NAME]; /* of this agent, on this machine */
		char listen[LIMIT_HOST_PORT]; /* "host:port" */
		char interface[LIMIT_NAME];
		char advertise[LIMIT_LIST], seeds[LIMIT_LIST],
		        keys[LIMIT_LIST];                 /* see textlist.h */
		char state_dir[LIMIT_PATH];               /* empty: by the name; see paths.h */
		char socket[LIMIT_PATH];
		char allow[LIMIT_PATH], block[LIMIT_PATH]; /* empty: no such list */
		bool dialable;
		int profile; /* enum agent_profile */
		int64_t members_max;
		bool train;     /* else membership alone */
		double leave_s; /* bound of leaving */
	} agent;

	struct {
		char run[LIMIT_NAME];
		int gate; /* enum gate_mode */
		double delta, chance;
		int64_t every;
		double exchanges_per_s, bytes_per_s, bytes_per_day, incoming_share, upload_cap;
		int64_t silence_steps;
		double silence_s;
		int exchange; /* enum exchange_mode */
		int wire;     /* enum convert_format */
		double beta, peer_rate, stale, join_s, merge_s, stay_s;
	} gossip;

	struct {
		int level;  /* enum log_level */
		int format; /* enum log_format */
	} log;
};

/* What is wrong, all of it at once. Problems of the file come in the order of its lines. */
struct config_problem {
	int line; /* of the file; 0: of no line (a flag, the environment) */
	char text[320];
};
struct config_problems {
	const char *path; /* borrowed: the file's name for the messages, NULL without a file */
	struct config_problem list[LIMIT_CONFIG_ERRORS];
	int n;
	int untold;                      /* met beyond the list's end */
	int set_at[CONFIG_SETTINGS_MAX]; /* by option: its line in the file; 0: not from there */
};

void config_problems_init(struct config_problems *p, const char *path);

/* Text beginning with the key or flag that it is about, no newline. */
void config_problem(struct config_problems *p, int line, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/* "fashion.json:12: train.lr: …\n" for each problem. */
int config_problems_text(const struct config_problems *p, struct buf *out) MUST_CHECK;

/* A config that needs no file at all: the cnn preset on Fashion-MNIST. */
void config_defaults(struct config *c);
void config_close(struct config *c);

/* File and environment over the defaults, in this order; the flags follow (cli.h). What is wrong is
 * added to p and leaves its setting as it was. 0, or a negative code when something was added.
 * config_read is config_load over bytes in memory. */
int config_load(struct config *c, const char *path, struct config_problems *p) MUST_CHECK;
int config_read(
        struct config *c, const char *text, size_t len, struct config_problems *p) MUST_CHECK;
int config_env(struct config *c, struct config_problems *p) MUST_CHECK;

/* What single settings cannot tell: pairs of files, part below parts, … After all of them. */
int config_check(const struct config *c, struct config_problems *p) MUST_CHECK;

/* The settings as a JSON file that config_load reads back; with comments, the example file. */
int config_print(const struct config *c, bool comments, struct buf *out) MUST_CHECK;

/* The model, preset or list, for data of that shape. */
int config_arch(const struct config *c, const struct shape *input, int64_t classes,
        struct arch *out, struct err *e) MUST_CHECK;

/* Reads what arch_print wrote; json may be anyone's. *layers is malloc'd and the caller's. */
int config_parse_model(const char *json, size_t len, struct layer **layers, int *n,
        struct shape *input, int64_t *classes, struct err *e) MUST_CHECK;

#endif

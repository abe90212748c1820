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
enum batch_adapt { BATCH_ADAPT_OFF, BATCH_ADAPT_NORM };
enum batch_lr { BATCH_LR_KEEP, BATCH_LR_SQRT, BATCH_LR_LINEAR };

struct config {
	/* "model": a preset's name, or {"layers": [...]} */
	char preset[LIMIT_NAME];
	struct layer *layers; /* owned; NULL with a preset */
	int n_layers;

	/* struct { … } data, train, run, agent, gossip, log: a field for each setting */
#define MODEL(...)
#define INT(section, field, ...) int64_t field;
#define REAL(section, field, ...) double field;
#define BOOL(section, field, ...) bool field;
#define CHOICE(section, field, ...) int field;
#define TEXT(section, field, bytes, ...) char field[bytes];
#define LIST(section, field, ...) char field[LIMIT_LIST];
#define IN(...)
#define SECTION(name) struct {
#define PART(type, name) type name;
#define END(name) \
	}         \
	name;
#include "agent/config/setting_rows.h"
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

/* A model that reads tokens needs data that are, and the other way round. */
int config_check_data(const struct arch *a, const struct dataset *d, struct err *e) MUST_CHECK;

/* The model, preset or list, for those data. */
int config_arch(const struct config *c, const struct dataset *d, struct arch *out,
        struct err *e) MUST_CHECK;
/* The same, and that train.batch is enough for it to learn. */
int config_arch_to_train(const struct config *c, const struct dataset *d, struct arch *out,
        struct err *e) MUST_CHECK;

/* Reads what arch_print wrote; json may be anyone's. *layers is malloc'd and the caller's. */
int config_parse_model(const char *json, size_t len, struct layer **layers, int *n,
        struct shape *input, int64_t *classes, struct err *e) MUST_CHECK;

#endif

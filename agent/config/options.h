/* SPDX-License-Identifier: MIT */
/* The table of settings, as the program sees it. Its rows stand in setting_rows.h. */
#ifndef DUNLIN_AGENT_CONFIG_OPTIONS_H
#define DUNLIN_AGENT_CONFIG_OPTIONS_H

#include "agent/config/config.h"

enum setting_type {
	SET_INT,    /* int64_t, or 32 bits wide where size says so */
	SET_REAL,   /* double */
	SET_BOOL,   /* bool */
	SET_TEXT,   /* char[size]; min: how short it may be */
	SET_LIST,   /* char[size], as textlist.h has it; max: how many items */
	SET_CHOICE, /* int or an enum: the place in choices */
	SET_MODEL,  /* a preset's name; in a file also a list of layers */
};

#define TAKEN_BY_TRAIN 1u
#define TAKEN_BY_EVAL 2u
#define TAKEN_BY_CONFIG 4u
#define TAKEN_BY_AGENT 8u
#define TAKEN_BY_ASKER 16u /* status and others that speak with an agent */
#define TAKEN_BY_ANY ~0u

struct setting {
	const char *key;   /* "train.lr" */
	const char *flag;  /* "--lr"; a SET_BOOL also has "--no-lr" */
	const char *env;   /* "DUNLIN_LR", or NULL */
	const char *value; /* the value's name in help texts */
	enum setting_type type;
	unsigned taken_by;
	size_t offset, size; /* in struct config */
	double min, max;
	const char *const *choices; /* NULL-terminated */
	const char *dflt;           /* as a flag's text */
	const char *help;
	const char *also; /* words that people try instead of the key, for suggestions; or NULL */
	bool shared;      /* all agents of a run have it alike */
};
extern const struct setting settings[];
extern const int n_settings;

/* The place in the table, or -1. */
int setting_find(const char *key);
/* Among those that a subcommand takes: one flag may mean different settings to different ones.
 * "--no-flip": negated. */
int setting_find_flag(const char *flag, unsigned taken_by, bool *negated);

/* c is the struct that the table's offsets are of: struct config, or a scenario's. Each takes a
 * value in one of its forms and stores it, or says in why what is wrong with it and
 * leaves it as it was. setting_set_string is for what a file has as a string, setting_set_text for
 * flags and the environment, where every value is text. */
#define SETTING_WHY 200
int setting_set_number(
        const struct setting *s, void *c, double v, char why[SETTING_WHY]) MUST_CHECK;
int setting_set_bool(const struct setting *s, void *c, bool v, char why[SETTING_WHY]) MUST_CHECK;
int setting_set_string(
        const struct setting *s, void *c, const char *v, char why[SETTING_WHY]) MUST_CHECK;
int setting_set_text(
        const struct setting *s, void *c, const char *v, char why[SETTING_WHY]) MUST_CHECK;

/* For lists. A file's is emptied and filled item by item; setting_set_text takes one whole, its
 * items parted by commas. */
void setting_clear(const struct setting *s, void *c);
int setting_add(
        const struct setting *s, void *c, const char *item, char why[SETTING_WHY]) MUST_CHECK;

/* "a number", "one of sgd, adamw", …: what a value should be. */
const char *setting_wants(const struct setting *s, char out[SETTING_WHY]);

/* Appends the value as JSON. */
int setting_print(const struct setting *s, const void *c, struct buf *out) MUST_CHECK;

/* Appends the value as setting_set_text reads it back; not for lists. */
int setting_print_text(const struct setting *s, const void *c, struct buf *out) MUST_CHECK;

/* Appends the members of an object, one a line, sections in sections. *last is the key before, ""
 * at the start, and *depth the objects that are open, 1 at the start: so a second table may follow
 * in the same object. The caller closes what is open. */
struct print_how {
	bool comments, flags;               /* flags: comments name them */
	bool (*leave_out)(const char *key); /* NULL: nothing */
};
int settings_print(const struct setting *rows, int n, const void *c, const struct print_how *how,
        const char **last, int *depth, struct buf *out) MUST_CHECK;

/* The shortest decimal that reads back as v. */
#define REAL_TEXT 32
const char *real_text(double v, char out[REAL_TEXT]);

/* Suggestions: the edit distance between what was typed and a candidate, or -1 when they are too
 * far apart to be a slip of the fingers. */
int nearness(const char *typed, const char *candidate);
/* The nearest of a NULL-terminated list, or NULL. */
const char *nearest(const char *typed, const char *const *candidates);
/* How near a word, written with _, is to a setting's name, its flag or the words in also; -1: far.
 */
int setting_nearness(const char *word, const struct setting *s);
/* The nearest key, or section's name, for an unknown key of a file; NULL: none is near. */
const char *setting_nearest_key(const char *key, char out[LIMIT_NAME]);

#endif

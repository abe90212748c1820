/* SPDX-License-Identifier: MIT */
/* What two agents must have in common before they may average, and which of it a state on disk must
 * have in common with who goes on from it. One table in manifest.c says of each field how it is
 * compared, how a difference is told, and which settings it comes from: a new field is a row there,
 * an element at the end on the wire, and a line where the agent fills it in. */
#ifndef DUNLIN_GOSSIP_EXCHANGE_MANIFEST_H
#define DUNLIN_GOSSIP_EXCHANGE_MANIFEST_H

#include <stdint.h>

#define MANIFEST_WORDS_MAX 600 /* bytes that all differences take, NUL not included */
#define MANIFEST_KEYS_MAX 160  /* the same of the settings' names alone */

/* All fields are 64 bits, so that the table can point at any. */
struct manifest {
	uint64_t run;       /* hash of the run's name */
	uint64_t model;     /* hash of the layers */
	uint64_t init;      /* hash of the initial weights */
	uint64_t count;     /* parameters */
	uint64_t total;     /* samples of the whole run */
	uint64_t optimizer; /* enum optim_kind */
	uint64_t mode;      /* enum exchange_mode */
	uint64_t formats;   /* accepted for parameters: 1 << enum convert_format of each */
	uint64_t outer;     /* enum outer_kind */
	uint64_t data;      /* of tokens: samples of the whole set; 0: samples are no tokens */
};

/* In the order of causes: another model has other initial weights, too. */
enum manifest_field {
	MANIFEST_RUN,
	MANIFEST_MODEL,
	MANIFEST_COUNT,
	MANIFEST_INIT,
	MANIFEST_TOTAL,
	MANIFEST_OPTIMIZER,
	MANIFEST_MODE,
	MANIFEST_FORMATS, /* differ if none is common */
	MANIFEST_OUTER,
	MANIFEST_DATA,
	MANIFEST_FIELDS
};
#define MANIFEST_SAME 0u
#define MANIFEST_BIT(field) (1u << (field))
/* What a checkpoint is of; how agents exchange parameters may change between two starts. */
#define MANIFEST_OF_STATE (MANIFEST_BIT(MANIFEST_MODE) - 1)

/* The set of fields that differ, by MANIFEST_BIT. */
uint32_t manifest_compare(const struct manifest *a, const struct manifest *b);
/* One number for member_status.model; never 0. Sets of formats that differ may overlap, so they are
 * no part of it. */
uint64_t manifest_hash(const struct manifest *m);

/* Every difference in words, with the settings that make it: "the model differs (model); …". What
 * follows from another difference is left out. */
void manifest_words(const struct manifest *theirs, const struct manifest *ours,
        char out[MANIFEST_WORDS_MAX + 1]);
/* The settings of a set of differences: "model, train.optimizer". */
void manifest_keys(uint32_t differences, char out[MANIFEST_KEYS_MAX + 1]);

#endif

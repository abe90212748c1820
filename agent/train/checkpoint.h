/* SPDX-License-Identifier: MIT */
/* A checkpoint: everything that a trainer needs to go on as if it had never stopped, in one
 * safetensors file. The weights are ordinary tensors in it, so any reader of safetensors can use
 * them; the rest is
 *
 *     optim.m, optim.v   the optimiser's state, flat, F32, n_total
 *     optim.phi, optim.outer   with gossip.outer noloco, flat, F32, n_train
 *     __metadata__       format, version, model, backend, device, choices, run, owner, before, the
 *                        numbers of struct checkpoint_state, and crc32 over all metadata and all
 *                        data
 */
#ifndef DUNLIN_AGENT_TRAIN_CHECKPOINT_H
#define DUNLIN_AGENT_TRAIN_CHECKPOINT_H

#include "agent/base/err.h"
#include "agent/base/limits.h"
#include "agent/train/weights.h"
#include "gossip/exchange/manifest.h"
#include "gossip/policy/batch.h"
#include "model/arch/arch.h"
#include "model/graph/optim.h"
#include "model/io/safetensors.h"

#include <stdbool.h>
#include <stdint.h>

#define CHECKPOINT_FORMAT "dunlin-checkpoint"
/* The newest. 1 did not say of which run it is. A file is of version 3 if it has what earlier
 * programs take for damage: optim.phi, or a normalisation of several channels; else of 2. */
#define CHECKPOINT_VERSION 3
#define CHECKPOINT_VERSION_RUN 2

#define CHECKPOINT_ID 65 /* an agent's id in hex, NUL included */

/* Of which run a state is, and whose the samples in it are. Of `dunlin train` all is empty. */
struct checkpoint_origin {
	struct manifest manifest;  /* of MANIFEST_OF_STATE, without the optimizer */
	char run[LIMIT_NAME];      /* its name, which may be empty */
	char owner[CHECKPOINT_ID]; /* the agent that has trained `samples` */
	/* The agent whose checkpoint this one went on from, and what that had trained. */
	char before[CHECKPOINT_ID];
	uint64_t before_samples;
};

struct checkpoint_state {
	uint64_t step, samples; /* done so far in the run, by this agent */
	uint64_t others;        /* samples that the rest of its flock had done, as it knew */
	uint64_t epoch, sample; /* the loader's position */
	uint64_t n_train;       /* samples in this agent's part of the data */
	uint64_t optimizer;     /* enum optim_kind */
	uint64_t optim_steps;
	int64_t batch, accumulate;
	int64_t train_seed, data_seed;
	int64_t order_seed; /* of the order that the position is in: data_seed, or an agent's own */
	struct normalisation norm;
	uint64_t best_step;          /* 0: there is no best one */
	double best_loss;            /* validation loss at best_step */
	double optim_rate;           /* with gossip.outer qgm: of its last step */
	uint64_t outer_steps;        /* own steps since the last outer one */
	struct batch_state adaptive; /* size 0: the batch was constant */
	struct checkpoint_origin origin;
};

/* All of it borrowed: what checkpoint_write puts into the file. */
struct checkpoint_source {
	const struct arch *arch;
	struct checkpoint_state state;
	const char *backend;         /* its name */
	const char *device;          /* struct device's text */
	const char *choices;         /* the backend's choices made by timing, or "" */
	const float *params, *m, *v; /* n_total floats each; m and v may be NULL */
	const float *phi, *outer;    /* of gossip.outer noloco, n_train floats each; or NULL */
};

/* Atomic. ERR_NONFINITE, and nothing written, when a value is not finite. */
int checkpoint_write(const char *path, const struct checkpoint_source *s, struct err *e) MUST_CHECK;

/* A checkpoint that was read and found whole. */
struct checkpoint {
	struct st_file file;
	struct checkpoint_state state;
	const char *model, *backend, *device, *choices; /* in file */
	const struct st_tensor *m, *v, *phi, *outer;    /* in file, or NULL */
};

/* ERR_FORMAT or ERR_NONFINITE: damaged. ERR_UNSUPPORTED: another version. ERR_MISMATCH: a sound
 * file, but not a checkpoint. */
int checkpoint_open(struct checkpoint *c, const char *path, struct err *e) MUST_CHECK;

/* The same over bytes in memory, which must outlive c. */
int checkpoint_parse(struct checkpoint *c, const void *bytes, size_t len, struct err *e) MUST_CHECK;

/* For those who only want tensors: any safetensors file, but one that calls itself a checkpoint is
 * checked like one, and may be of an older version. */
int checkpoint_open_weights(struct st_file *f, const char *path, struct err *e) MUST_CHECK;

void checkpoint_close(struct checkpoint *c);

/* Internal, and for the fuzzer, which would not get past a checksum: fills in everything but file,
 * which is open. */
int checkpoint__read(struct checkpoint *c, struct err *e) MUST_CHECK;

#endif

/* SPDX-License-Identifier: MIT */
/* A run of training, step by step: data, model, device, optimiser and schedule brought together
 * from one struct config. Nothing is global: any number of trainers may live in one process, each
 * used by one thread at a time. It never prints and never looks at a clock, so the same config
 * gives the same bits. */
#ifndef DUNLIN_AGENT_TRAINER_H
#define DUNLIN_AGENT_TRAINER_H

#include "agent/checkpoint.h"
#include "agent/config.h"
#include "model/data.h"
#include "model/net.h"
#include "model/optim.h"

/* The fields are for reading; only trainer.c writes them. */
struct trainer {
	const struct config *config; /* borrowed, must outlive the trainer */
	struct dataset train_data, test_data;
	bool has_test;
	uint32_t *train_index, *val_index, *test_index; /* owned */
	uint32_t n_train, n_val;
	double mean, std; /* of the input's normalisation */
	struct arch arch;
	struct device *dev;   /* owned */
	char device_why[160]; /* what was chosen and for what reason */
	struct net *net;      /* owned */
	struct optim optim;
	struct loader *loader, *val_loader, *test_loader; /* owned; the last two may be NULL */
	struct schedule schedule;
	uint64_t step, samples;
	uint64_t best_step; /* 0: no validation yet */
	double best_loss;
};

/* What trainer_new was busy with: its errors mean different things to the user. */
enum trainer_part { TRAINER_DATA, TRAINER_MODEL, TRAINER_DEVICE };

/* Reads and splits the data, works out the model, takes all memory, sets the initial weights. part
 * (may be NULL) receives what failed. */
int trainer_new(struct trainer **out, const struct config *c, enum trainer_part *part,
        struct err *e) MUST_CHECK;
void trainer_free(struct trainer *t);

/* One optimiser step: train.accumulate batches of train.batch samples. */
struct step_result {
	uint64_t step, samples; /* of the run, this step included */
	double loss;            /* mean over the step's samples */
	int64_t correct, count;
	double grad_norm; /* before clipping */
	double lr;
	bool epoch_end; /* an epoch ended within this step */
};

/* ERR_NONFINITE: loss or gradient is not finite; the parameters are as they were, and the trainer
 * is not to be used for another step. */
int trainer_step(struct trainer *t, struct step_result *r, struct err *e) MUST_CHECK;

/* All samples of the run were trained on. */
bool trainer_done(const struct trainer *t);

/* The run's steps in all, done and to do. */
uint64_t trainer_steps_total(const struct trainer *t);

/* Epochs finished so far. */
uint64_t trainer_epoch(const struct trainer *t);

struct eval_result {
	double loss; /* mean */
	int64_t correct, count;
};

enum eval_set { EVAL_VALIDATION, EVAL_TEST };

/* ERR_NOTFOUND when the config has no such set. A validation that gives the lowest loss so far sets
 * best_step and best_loss. */
int trainer_evaluate(
        struct trainer *t, enum eval_set set, struct eval_result *r, struct err *e) MUST_CHECK;

/* Mean and deviation for a training set: over all samples that are not held out, whichever part of
 * them is ours, since agents that average their parameters must see the same input alike. */
int trainer_normalisation(const struct config *c, const struct dataset *d, double *mean,
        double *std, struct err *e) MUST_CHECK;

/* 0, 1, … n − 1, malloc'd; NULL without memory. */
uint32_t *index_all(uint32_t n);

/* Mean loss and accuracy of net over everything that l gives (a loader without shuffle). */
int eval_run(struct net *net, struct loader *l, struct eval_result *r, struct err *e) MUST_CHECK;

/* Whole state, to go on from; weights alone, to use elsewhere. Both atomic. ERR_NONFINITE, and no
 * file changed, when the parameters have left the finite numbers. */
int trainer_save(struct trainer *t, const char *path, struct err *e) MUST_CHECK;
int trainer_export(struct trainer *t, const char *path, struct err *e) MUST_CHECK;

/* What differs without making the resume impossible, in words for the user. */
#define TRAINER_NOTES_MAX 8
struct trainer_notes {
	int n;
	char text[TRAINER_NOTES_MAX][160];
};

/* Goes on where the checkpoint was written. Another model, optimiser or number of training samples
 * is ERR_MISMATCH and leaves the trainer as it was; other differences are noted. */
int trainer_restore(struct trainer *t, const struct checkpoint *c, struct trainer_notes *notes,
        struct err *e) MUST_CHECK;

/* Weights from a safetensors file whose names and shapes are the model's; all else begins anew. */
int trainer_init_from(struct trainer *t, const char *path, struct err *e) MUST_CHECK;

/* Internal: a loader of the training part that begins at a place. */
int trainer__loader(struct trainer *t, struct loader **out, struct loader_position at,
        struct err *e) MUST_CHECK;

#endif

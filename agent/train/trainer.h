/* SPDX-License-Identifier: MIT */
/* A run of training, step by step: data, model, device, optimiser and schedule brought together
 * from one struct config. Nothing is global: any number of trainers may live in one process, each
 * used by one thread at a time. It never prints and never looks at a clock, so the same config
 * gives the same bits. */
#ifndef DUNLIN_AGENT_TRAIN_TRAINER_H
#define DUNLIN_AGENT_TRAIN_TRAINER_H

#include "agent/config/config.h"
#include "agent/train/checkpoint.h"
#include "gossip/policy/batch.h"
#include "model/data/data.h"
#include "model/graph/graph.h"
#include "model/graph/optim.h"

/* The fields are for reading; only trainer.c writes them. */
struct trainer {
	const struct config *config; /* borrowed, must outlive the trainer */
	struct dataset train_data, test_data;
	bool has_test;
	uint32_t *train_index, *val_index, *test_index; /* owned */
	uint32_t n_train, n_val;
	uint32_t n_whole; /* samples that are not held out, whichever part of them is ours */
	struct normalisation norm; /* of the input */
	struct arch arch;
	struct device *dev;   /* owned */
	char device_why[160]; /* what was chosen and for what reason */
	struct graph *net;    /* owned */
	struct optim optim;
	struct loader *loader, *val_loader, *test_loader; /* owned; the last two may be NULL */
	struct schedule schedule;
	uint64_t step, samples;           /* own */
	struct batch_config batch_config; /* with train.batch_adapt; see gossip/policy/batch.h */
	struct batch_state batch;
	uint64_t agents;    /* that train in the flock, this one included */
	int64_t order_seed; /* of the order of the images and of their augmentation */
	uint64_t dropout_seed;

	/* As one of a flock. */
	bool flock;
	uint64_t others;            /* samples that all other agents have trained on, so far */
	uint32_t *part_index;       /* owned; NULL: the whole test set is no larger */
	struct loader *part_loader; /* owned, or NULL */
	struct loader *try_loader;  /* owned; NULL: there are samples that are not trained on */
	bool want_layer_norms;
	double layer_norms; /* Σ over the parameter tensors of ‖g‖, of the last step, if wanted */
	double moved;       /* see trainer_flock */
	double momentum_norm; /* as last looked at */
	uint64_t since_set;   /* steps */
	/* Of NoLoCo (model/graph/outer.h), in the host's memory; NULL: it is not chosen. */
	float *phi, *outer;   /* owned, n_train floats each: φ and the outer momentum */
	uint64_t since_outer; /* own steps */
	const float *staged;  /* by trainer_stage, and not merged yet; NULL: nothing is */

	uint64_t best_step; /* 0: no validation yet */
	double best_loss;
	struct checkpoint_origin origin; /* of its checkpoints */
};

/* The data that the config names. ERR_NOTFOUND: it has no such part; a test set is optional. */
int trainer_dataset(const struct config *c, enum data_part part, int64_t classes, struct dataset *d,
        struct err *e) MUST_CHECK;

/* The test set beside a set to train on, which must be closed later: its classes, and with tokens
 * its files. ERR_NOTFOUND: there is none. */
int trainer_test_set(const struct config *c, const struct dataset *train, struct dataset *d,
        struct err *e) MUST_CHECK;

/* What trainer_new was busy with: its errors mean different things to the user. */
enum trainer_part { TRAINER_DATA, TRAINER_MODEL, TRAINER_DEVICE };
int trainer_exit_code(int err_code, enum trainer_part part);

/* Reads and splits the data, which must hold at least a step's samples, works out the model, takes
 * all memory, sets the initial weights. part (may be NULL) receives what failed. */
int trainer_new(struct trainer **out, const struct config *c, enum trainer_part *part,
        struct err *e) MUST_CHECK;
void trainer_free(struct trainer *t);

/* From now on it is one of a flock, before the first step. Schedule and end go by the run's clock,
 * the samples of all agents together, and epochs are those of the whole set. Each step estimates
 * how far it moved the parameters: `moved` is the length of their path since they were set (by
 * trainer_new, a file or a peer), what others add to them left out. Under SGD a step is lr·‖m‖ long
 * (with Nesterov about that); m is looked at in the first 16 steps and then in every 16th, and
 * taken to stay as long in between. Under AdamW each step counts as lr·√n_train, which it may
 * exceed only while gradients suddenly grow, weight decay left out.
 *
 * identity is a number that no other agent has: order, augmentation and dropout follow from it and
 * from the seeds in the config. The same one gives the same bits. */
int trainer_flock(struct trainer *t, uint64_t identity, bool layer_norms, struct err *e) MUST_CHECK;

/* What the others have done; never falls. */
void trainer_set_others(struct trainer *t, uint64_t samples);

/* How many train, this one included: the larger the flock, the smaller a batch will do. */
void trainer_set_agents(struct trainer *t, uint64_t agents);

/* Samples of the next step: train.batch × train.accumulate, or what the norm test made of it. */
uint64_t trainer_step_samples(const struct trainer *t);

/* With train.batch_adapt b, and of the norm test the averages S and G, 0 while they are not known
 * (policy/batch.h); else 0. S/G is the number of samples of which the gradient's noise is as long
 * as the gradient itself. */
uint64_t trainer_batch(const struct trainer *t, double *noise, double *signal);

/* Samples of the run: own, and in a flock the others' too. */
uint64_t trainer_clock(const struct trainer *t);

/* Of one epoch: this agent's part, or in a flock the whole set. */
uint64_t trainer_epoch_samples(const struct trainer *t);

/* One optimiser step: train.accumulate batches of train.batch samples, or with train.batch_adapt as
 * many as the norm test wants. Memory for activations is that of one batch. */
struct step_result {
	uint64_t step, samples; /* of the run, this step included */
	uint64_t step_samples;
	double loss;            /* mean over the step's samples */
	int64_t correct, count; /* labels: of tokens T for each sample */
	double grad_norm;       /* before clipping */
	double lr;
	bool epoch_end; /* an epoch ended within this step */
};

/* ERR_NONFINITE: loss or gradient is not finite; the parameters are as they were, and the trainer
 * is not to be used for another step. */
int trainer_step(struct trainer *t, struct step_result *r, struct err *e) MUST_CHECK;

/* All samples of the run were trained on, by the run's clock. */
bool trainer_done(const struct trainer *t);

/* The run's steps in all, done and to do, should nobody help. */
uint64_t trainer_steps_total(const struct trainer *t);

/* Epochs finished so far. */
uint64_t trainer_epoch(const struct trainer *t);

struct eval_result {
	double loss;            /* mean */
	int64_t correct, count; /* labels: of tokens T for each sample */
};

/* EVAL_TEST_PART: at most run.eval_samples of the test set, evenly spread over it and always
 * the same; in a flock only. There EVAL_VALIDATION is bounded alike. */
enum eval_set { EVAL_VALIDATION, EVAL_TEST, EVAL_TEST_PART };

/* ERR_NOTFOUND when the config has no such set. A validation that gives the lowest loss so far sets
 * best_step and best_loss. */
bool trainer_evaluates(const struct trainer *t); /* it has one of them at all */
int trainer_evaluate(
        struct trainer *t, enum eval_set set, struct eval_result *r, struct err *e) MUST_CHECK;

/* Measures the running statistics of batch_norm anew, for the parameters as they are: a function of
 * those, of the training set, whoever's, and of train.batch. Nothing else changes; without
 * batch_norm nothing does. For a model that no steps follow, whose statistics averaging has mixed.
 */
int trainer_recalibrate(struct trainer *t, struct err *e) MUST_CHECK;

/* Mean losses of those parameters (arch.n_total floats), of our own and of the initial weights, on
 * the same samples: a part of the test set, or of what is held out, or else of the training part
 * without augmentation. All stays as it was. What is not finite is a loss that is none. */
struct trainer_trial {
	double loss, own, initial; /* NaN: not a number */
	bool test;                 /* of samples that are not trained on */
};
int trainer_try(
        struct trainer *t, const float *params, struct trainer_trial *r, struct err *e) MUST_CHECK;

/* Mean and deviation for a training set: over all samples that are not held out, whichever part of
 * them is ours, since agents that average their parameters must see the same input alike. */
int trainer_normalisation(const struct config *c, const struct dataset *d,
        struct normalisation *norm, struct err *e) MUST_CHECK;

/* 0, 1, … n − 1, malloc'd; NULL without memory. */
uint32_t *index_all(uint32_t n);

/* ", perplexity 12.34" for people, e^loss, which is what a loss of tokens is told as; "" where
 * samples are no tokens. Returns out. */
const char *eval_perplexity(bool tokens, double loss, char out[40]);

/* Mean loss and accuracy of net over everything that l gives (a loader without shuffle). */
int eval_run(struct graph *net, struct loader *l, struct eval_result *r, struct err *e) MUST_CHECK;

/* Whole state, to go on from; weights alone, to use elsewhere. Both atomic. ERR_NONFINITE, and no
 * file changed, when the parameters have left the finite numbers. */
int trainer_save(struct trainer *t, const char *path, struct err *e) MUST_CHECK;
/* In two parts, for who has its vectors in memory (trainer_vectors × arch.n_total floats): what
 * else a checkpoint says, as of now; and the file, for which the device is not needed. */
void trainer_note(const struct trainer *t, struct checkpoint_state *s);
int trainer_save_from(struct trainer *t, const struct checkpoint_state *state, const float *host,
        const char *path, struct err *e) MUST_CHECK;
int trainer_export(struct trainer *t, const char *path, struct err *e) MUST_CHECK;

/* What differs without making the resume impossible, in words for the user. */
#define TRAINER_NOTES_MAX 8
struct trainer_notes {
	int n;
	char text[TRAINER_NOTES_MAX][160];
};

/* Which run it trains in, and for whom: told to every checkpoint, and compared with those that it
 * goes on from. Before the first step; without it, it trains for nobody (`dunlin train`). */
void trainer_set_origin(struct trainer *t, const struct checkpoint_origin *o);

/* Goes on where the checkpoint was written. Another run, model, optimiser or number of training
 * samples is ERR_MISMATCH and leaves the trainer as it was; other differences are noted. Of another
 * agent's checkpoint it takes parameters and optimiser alone: what that agent has trained counts
 * among the others' (origin.before has it), and its own samples begin at 0. The step goes on, since
 * checkpoints are told apart by it. A checkpoint of another order of the data (another agent's or
 * data.seed's) says nothing about the place in ours, which then begins at its start. */
int trainer_restore(struct trainer *t, const struct checkpoint *c, struct trainer_notes *notes,
        struct err *e) MUST_CHECK;

/* The state in memory, as agents hand it to each other: parameters, then the optimiser's vectors,
 * arch.n_total floats each. */
#define TRAINER_VECTORS_MAX 3
#define TRAINER_OPTIM_STEPS_MAX (1ull << 53)
struct trainer_state {
	uint64_t optim_steps;
	uint8_t optimizer; /* enum optim_kind */
	uint8_t vectors;   /* 2 or 3 */
	uint64_t batch;    /* of the norm test, as its averages; 0: nothing is known */
	double noise, signal;
};

/* to has room for trainer_vectors × arch.n_total floats. */
int trainer_vectors(const struct trainer *t);
void trainer_get_state(struct trainer *t, float *to, struct trainer_state *s);

/* Takes parameters and the optimiser's state from a peer; counters, place in the data and clock
 * stay its own. What may be anyone's bytes is checked first: ERR_MISMATCH for another optimiser,
 * ERR_NONFINITE or ERR_INVALID for values that no optimiser has, and then nothing has changed. */
int trainer_adopt_state(struct trainer *t, const float *from, const struct trainer_state *s,
        struct err *e) MUST_CHECK;

/* Adds k[g]·difference to the parameters of group g, which ends before end[g] and begins where the
 * one before it ends. What is behind the last end moves by the smallest k, and running statistics
 * no further than model/graph/stats.h lets them. */
int trainer_add(struct trainer *t, const float *difference, const size_t *end, const float *k,
        int n, struct err *e) MUST_CHECK;

/* The same in parts, for who has the difference packed: n floats from parameter `at` on with one k,
 * none with both parameters and statistics. The end comes behind the last part; nothing else may
 * come between. On the host's memory alone. */
int trainer_add_part(struct trainer *t, const float *difference, size_t at, size_t n, float k,
        struct err *e) MUST_CHECK;
int trainer_add_end(struct trainer *t, struct err *e) MUST_CHECK;

/* What trainer_merge may be given next, if it does not change until then; and it is measured, see
 * model/device/device.h. ERR_BUSY: the device has no room for it, or is not of that kind. */
int trainer_stage(struct trainer *t, const struct device_stage *s, struct err *e) MUST_CHECK;

/* The same with the next step's update, which is cheaper where the device copies it up meanwhile;
 * other devices add it at once. All is borrowed while trainer_merging. A step that fails has added
 * it all the same, unless it is the device that failed. Before anything else looks at the
 * parameters trainer_merged must be called: it adds at once what no step has. */
int trainer_merge(struct trainer *t, const float *difference, const size_t *end, const float *k,
        int n, struct err *e) MUST_CHECK;
bool trainer_merging(const struct trainer *t);
int trainer_merged(struct trainer *t, struct err *e) MUST_CHECK;

/* Weights from a safetensors file whose names and shapes are the model's; all else begins anew. */
int trainer_init_from(struct trainer *t, const char *path, struct err *e) MUST_CHECK;

/* Internal: the parameters are others than those that the steps so far made. */
void trainer__params_set(struct trainer *t);

/* Internal: a loader of our batch size, normalisation and device. */
int trainer__open_loader(struct trainer *t, struct loader **out, struct loader_config lc,
        struct loader_position at, struct err *e) MUST_CHECK;

/* Internal: a loader of the training part that begins at a place. */
int trainer__loader(struct trainer *t, struct loader **out, struct loader_position at,
        struct err *e) MUST_CHECK;

#endif

/* SPDX-License-Identifier: MIT */
/* What the two threads of a learner share: learner.c is the loop's side, learner_thread.c the
 * trainer's. Between learner_begin and the end of the thread everything below is marked with who
 * may touch it. */
#ifndef DUNLIN_AGENT_TRAIN_LEARNER_INTERNAL_H
#define DUNLIN_AGENT_TRAIN_LEARNER_INTERNAL_H

#include "agent/train/learner_thread.h"
#include "agent/train/train_run.h"

#include <pthread.h>
#include <stdatomic.h>

#define LEARNER_NAME 64     /* of a file to export to, NUL included */
#define LEARNER_PIECE 16384 /* parameters that are rounded and sketched while in a cache */

enum learner_what {
	LEARNER_SNAPSHOT,
	LEARNER_MEASURE,
	LEARNER_APPLY,
	LEARNER_GET,
	LEARNER_TRY,
	LEARNER_ADOPT,
	LEARNER_RESTORE,
	LEARNER_SAVE,
	LEARNER_EVALUATE,
	LEARNER_EXPORT,
	LEARNER_DONE, /* from here on only told, never asked for */
	LEARNER_FAILED,
};
/* What the device does by itself while training goes on: a snapshot, or measuring. */
struct learner_copy {
	struct learner_thread *l;
	enum learner_what what;
	uint64_t step;
	double squares
	        [DEVICE_GROUPS_MAX]; /* as measured; what of them the request wants comes later */
	struct learner_measure *measure; /* of the request */
	atomic_bool under_way; /* set by the thread, cleared by whoever the device calls back on */
};

/* Copies of the whole state in the host's memory: learner_keep.c. The thread's, but for what is
 * atomic. */
struct learner_keep {
	float *copy[2]; /* owned: parameters, then the optimiser's vectors; host_alloc's if there is
	                   one */
	struct checkpoint_state state[2];
	int good; /* of the two, if has_good */
	bool has_good, no_memory;
	bool asked;         /* for the other one */
	atomic_int waiting; /* for so many vectors of it */
	atomic_bool broken; /* one of them did not come */
	double asked_s;
};

#define LEARNER_UNASKED 4 /* kinds that are told unasked: SAVE, EVALUATE, DONE, FAILED */

/* A request; with the outcome filled in, its answer. */
struct learner_job {
	enum learner_what what;
	bool asked;        /* by the loop; false: the learner tells it by itself */
	void *to;          /* borrowed from the loop until the callback */
	const float *from; /* the same */
	enum convert_format format;
	struct sketch *sketch;        /* the same; NULL: none is wanted */
	struct learner_lattice *pack; /* of SNAPSHOT: the same; NULL: a format of numbers */
	/* Of APPLY: the same; NULL: `from` is added, else this packed difference. */
	const struct learner_lattice *packed;
	const uint8_t *difference;
	struct learner_measure *measure; /* the same */
	struct learner_trial *trial;     /* the same */
	float k[EXCHANGE_GROUPS_MAX];
	bool whole;
	char name[LEARNER_NAME];
	struct learner_state state;
	struct learner_eval eval;
	uint64_t step, clock;
	struct err err;
};

struct learner_queue {
	struct learner_job job[LEARNER_REQUESTS + LEARNER_UNASKED];
	int first, n;
};

/* Steps on their way to the loop. The thread writes and never looks at what was read: when the loop
 * is late the oldest are written over. The loop copies one out and then looks at `begun`, which the
 * thread raises before it touches a slot, to learn whether what it copied was still whole. */
#define LEARNER_STEP_WORDS (sizeof(struct learner_step) / sizeof(uint64_t))
struct learner_ring {
	_Atomic uint64_t begun, made; /* steps ever */
	_Atomic uint64_t word[LEARNER_STEPS][LEARNER_STEP_WORDS];
	uint64_t heard; /* the loop's */
};
_Static_assert(sizeof(struct learner_step) % sizeof(uint64_t) == 0, "a step is whole words");

struct learner_thread {
	struct learner base; /* first: a pointer to it is one to the whole */
	struct learner_config c;
	pthread_t thread;
	struct learner_ring ring;

	/* The loop's. */
	uv_async_t wake; /* from learner_begin on; the thread only sends */
	int outstanding; /* asked for, and the callback has not come */
	bool stopping, joined;

	/* Shared. The lock is held for copying only. */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct learner_queue requests, answers; /* under the lock */
	bool opened, begun, poked;              /* under the lock */
	atomic_bool asked;                      /* requests are there: looked at without the lock */
	atomic_bool train, stop, ended;
	_Atomic uint64_t others, agents;

	/* The thread's. */
	struct trainer *trainer; /* owned */
	enum trainer_part part;  /* of a failure to open; read once opened is set */
	struct err open_err;
	struct train_run run;
	bool done;         /* told */
	struct err failed; /* code 0: not so */
	struct learner_copy copies[LEARNER_REQUESTS];
	struct learner_keep keep;
	float *before; /* owned: the state before the last adoption; NULL: none */
	struct trainer_state before_state;
	uint64_t before_step;
	struct learner_job merge; /* that the trainer adds with its next step */
	bool merging;             /* and is not answered yet */
	bool mixed; /* others have changed the running statistics since the last step */
	float piece[LEARNER_PIECE];
};

void learner__push(struct learner_queue *q, const struct learner_job *j);
void learner__pop(struct learner_queue *q, struct learner_job *j);

/* The thread, from its beginning to its end. arg is the learner. */
void *learner__thread(void *arg);

/* From the thread, or one of the device's. */
void learner__answer(struct learner_thread *l, const struct learner_job *j);
/* The first failure is told, and ends the training. */
void learner__fail(struct learner_thread *l, const struct err *e);

/* What the device gave is worth something; false: it has failed, and that is told. */
bool learner__sound(struct learner_thread *l);
/* True: it is there. Otherwise the device is at it, or has failed. */
bool learner__snapshot(struct learner_thread *l, const struct learner_job *j);
bool learner__measure(struct learner_thread *l, const struct learner_job *j);

/* Adds it at once. */
int learner__apply_packed(
        struct learner_thread *l, const struct learner_job *j, struct err *e) MUST_CHECK;

/* Behind a step: a copy when one is due. */
void learner__keep(struct learner_thread *l, double now_s);
/* Of a device that has failed: the copy to a file, if it is newer than the last checkpoint. False:
 * there was nothing to write; otherwise j is filled as the answer to a LEARNER_SAVE. */
bool learner__keep_save(struct learner_thread *l, struct learner_job *j);
void learner__keep_close(struct learner_thread *l); /* before the device is closed */

#endif

/* SPDX-License-Identifier: MIT */
/* A device that may fail takes its memory with it. So while it works its whole state is copied to
 * the host's memory now and then, by the device itself and while training goes on; when it fails,
 * the last copy that came whole is written as a checkpoint.
 *
 *     step ─► ask for parameters, m, v as they are now ─► step ─► step … all there: the good one
 *                                                  the other one is written next time ◄──┘
 *
 * A device that does not make snapshots works on the host's memory: then nothing is kept. What can
 * fail: memory for the copies, which is told once and then training goes on without; a snapshot
 * that the device has no room for, and then it is asked again later. */
#include "agent/train/learner_internal.h"

#include "agent/base/log.h"

#include <inttypes.h>
#include <stdlib.h>

#define KEEP_EVERY_S 10 /* of training that may be lost; the first copy is made at once */

static int other(const struct learner_keep *k)
{
	return k->has_good ? !k->good : k->good;
}

/* On a thread of the device's, or on ours. */
static void arrived(void *arg, int rc)
{
	struct learner_keep *k = arg;

	if (rc != 0)
		atomic_store(&k->broken, true);
	atomic_fetch_sub(&k->waiting, 1);
}

static void look(struct learner_keep *k)
{
	if (!k->asked || atomic_load(&k->waiting) > 0)
		return;
	k->asked = false;
	if (atomic_load(&k->broken))
		return;
	k->good = other(k);
	k->has_good = true;
}

static bool take_memory(struct learner_thread *l, float **copy)
{
	const struct trainer *t = l->trainer;
	const struct backend *b = t->dev->backend;
	const size_t bytes = (size_t)trainer_vectors(t) * t->arch.n_total * sizeof **copy;

	if (*copy == NULL)
		*copy = b->host_alloc != NULL ? b->host_alloc(t->dev, bytes) : malloc(bytes);
	if (*copy == NULL && !l->keep.no_memory)
		log_warn("no memory for a copy of the state (%zu MB): should the device fail, all "
		         "since the last checkpoint is lost",
		        bytes >> 20);
	l->keep.no_memory = *copy == NULL;
	return *copy != NULL;
}

void learner__keep(struct learner_thread *l, double now_s)
{
	struct trainer *t = l->trainer;
	const struct backend *b = t->dev->backend;
	const size_t n = t->arch.n_total;
	struct learner_keep *k = &l->keep;
	float *const x[TRAINER_VECTORS_MAX] = {t->net->params, t->optim.m, t->optim.v};
	const int vectors = trainer_vectors(t);
	struct err e;

	if (b->snapshot == NULL)
		return;
	look(k);
	const int to = other(k);

	if (k->asked || k->no_memory || (k->has_good && now_s - k->asked_s < KEEP_EVERY_S) ||
	        !take_memory(l, &k->copy[to]))
		return;
	trainer_note(t, &k->state[to]);
	k->asked = true;
	k->asked_s = now_s;
	atomic_store(&k->broken, false);
	atomic_store(&k->waiting, vectors);
	for (int i = 0; i < vectors; i++) {
		const struct device_copy c = {.x = x[i],
		        .n = n,
		        .format = COPY_FP32,
		        .to = k->copy[to] + (size_t)i * n,
		        .done_cb = arrived,
		        .arg = k};

		/* A failure is the next step's to tell. */
		if (b->snapshot(t->dev, &c, &e) != 0) {
			atomic_store(&k->broken, true);
			atomic_fetch_sub(&k->waiting, vectors - i);
			return;
		}
	}
}

bool learner__keep_save(struct learner_thread *l, struct learner_job *j)
{
	struct learner_keep *k = &l->keep;
	const uint64_t now = l->trainer->step;
	char path[RUN_DIR_PATH];
	struct err e;

	(void)!graph_check(l->trainer->net, &e); /* nothing is under way any more */
	look(k);
	if (!k->has_good || k->state[k->good].step <= l->run.saved_step) {
		log_warn("the device failed after step %" PRIu64 "; the last checkpoint is of step "
		         "%" PRIu64,
		        now, l->run.saved_step);
		return false;
	}
	j->step = k->state[k->good].step;
	run_dir_checkpoint(l->c.dir, j->step, path);
	if (trainer_save_from(l->trainer, &k->state[k->good], k->copy[k->good], path, &j->err) ==
	        0) {
		j->err.code = 0;
		l->run.saved_step = j->step;
		log_info("the device failed after step %" PRIu64 "; a checkpoint of step %" PRIu64
		         " is written from the copy in the host's memory",
		        now, j->step);
	}
	return true;
}

void learner__keep_close(struct learner_thread *l)
{
	const struct trainer *t = l->trainer;

	for (int i = 0; i < 2; i++) {
		if (l->keep.copy[i] != NULL && t->dev->backend->host_release != NULL)
			t->dev->backend->host_release(t->dev, l->keep.copy[i]);
		else
			free(l->keep.copy[i]);
	}
}

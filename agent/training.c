/* SPDX-License-Identifier: MIT */
/* The happy path: the learner reads data and builds the model, the folder is locked, the newest
 * whole checkpoint in it is taken, and the flock is made, which knows by the clock whether that
 * state is still worth anything.
 *
 * A checkpoint of another model is an error: the user has to say where this one is to go. */
#include "agent/training.h"

#include "agent/base/log.h"
#include "agent/cli.h"
#include "agent/places.h"
#include "agent/resume.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int resume(struct training *t, bool *resumed, struct err *e)
{
	struct trainer *trainer = learner_trainer(t->learner);
	char path[OUTDIR_PATH];
	int rc = resume_newest(trainer, &t->dir, path, e);
	if (rc)
		return rc == ERR_NOTFOUND ? 0 : rc;
	log_info("resumed %s: step %" PRIu64 ", %" PRIu64 " samples of our own", path,
	        trainer->step, trainer->samples);
	*resumed = true;
	return 0;
}

/* Of the initial weights, wherever they came from: all agents of a run must begin with the same. */
static int hash_init(const struct training *t, uint64_t *out, struct err *e)
{
	struct trainer *trainer = learner_trainer(t->learner);
	size_t bytes = trainer->arch.n_total * sizeof(float);
	float *values = malloc(bytes);
	uint8_t h[crypto_generichash_BYTES];
	if (!values)
		return err_set(e, ERR_NOMEM, "no memory for %zu parameters", trainer->arch.n_total);
	net_get_params(trainer->net, values);
	crypto_generichash(h, sizeof h, (const uint8_t *)values, bytes, NULL, 0);
	memcpy(out, h, sizeof *out);
	free(values);
	return 0;
}

/* A key is random: its first bytes are a number that no other agent has. */
static uint64_t number_of(const struct peer_id *id)
{
	uint64_t n = 0;
	for (int i = 0; i < 8; i++)
		n = n << 8 | id->bytes[i];
	return n;
}

static int open_learner(struct training *t, const struct config *c, uv_loop_t *loop,
        const struct peer_id *self, int *status, struct err *e)
{
	enum trainer_part part = TRAINER_DATA;
	struct learner_config lc = {.loop = loop,
	        .config = c,
	        .dir = &t->dir,
	        .identity = number_of(self),
	        .layer_norms = c->gossip.gate == GATE_SELSYNC};
	int rc = learner_open(&t->learner, &lc, &part, e);
	if (rc) {
		*status = exit_code(rc, part == TRAINER_DATA    ? EXIT_DATA
		                        : part == TRAINER_MODEL ? EXIT_CONFIG
		                                                : EXIT_DEVICE);
		return rc;
	}
	*status = EXIT_MODEL;
	if (c->run.init_from[0])
		rc = trainer_init_from(learner_trainer(t->learner), c->run.init_from, e);
	return rc;
}

int training_open(struct training *t, const struct config *c, uv_loop_t *loop,
        const struct peer_id *self, const struct statedir *state, void *arg,
        void (*finished_cb)(void *arg, int code), int *status, struct err *e)
{
	struct flock_config fc = {.loop = loop,
	        .config = c,
	        .dir = &t->dir,
	        .self = *self,
	        .arg = arg,
	        .finished_cb = finished_cb};
	struct statedir_progress progress;
	*t = (struct training){.dir = {.lock = -1}};
	if (!c->agent.train)
		return 0;
	int rc = open_learner(t, c, loop, self, status, e);
	if (rc)
		goto out;
	rc = hash_init(t, &fc.init, e);
	*status = EXIT_FAILED;
	if (rc == 0)
		rc = place_out(c, true, t->out, e);
	if (rc == 0)
		rc = outdir_open(&t->dir, t->out, e);
	if (rc)
		goto out;
	*status = EXIT_MODEL;
	rc = resume(t, &fc.resumed, e);
	if (rc)
		goto out;
	*status = EXIT_FAILED;
	fc.learner = t->learner;
	statedir_load_progress(state, &progress);
	fc.progress_run = progress.run;
	fc.samples = progress.samples;
	fc.quota = (struct gate_quota){progress.day_start_s, progress.day_bytes};
	rc = flock_new(&t->flock, &fc, e);
out:
	if (rc) {
		*status = exit_code(rc, *status);
		training_close(t);
	}
	return rc;
}

void training_close(struct training *t)
{
	flock_free(t->flock);
	if (t->learner)
		learner_free(t->learner);
	if (t->dir.lock >= 0)
		outdir_close(&t->dir);
	*t = (struct training){.dir = {.lock = -1}};
}

struct statedir_progress training_progress(const struct training *t)
{
	struct gate_quota q = flock_quota(t->flock, (uint64_t)time(NULL));
	return (struct statedir_progress){.run = flock_status(t->flock).model,
	        .samples = flock_samples(t->flock),
	        .day_start_s = q.day_start_s,
	        .day_bytes = q.bytes};
}

static void print_eval(const char *what, const struct learner_eval *v)
{
	printf("%s model: test loss %.4f, accuracy %.2f%% (%" PRId64 " of %" PRId64 ")\n", what,
	        v->r.loss, 100.0 * (double)v->r.correct / (double)v->r.count, v->r.correct,
	        v->r.count);
}

void training_print(const struct training *t)
{
	struct flock_view v;
	flock_view(t->flock, &v);
	if (v.has_local)
		print_eval("local", &v.local);
	if (v.has_merged)
		print_eval("merged", &v.merged);
	if (v.has_validation && v.validation.best_step > 0)
		printf("best validation loss %.4f at step %" PRIu64 ": %s/best.safetensors\n",
		        v.validation.best_loss, v.validation.best_step, t->out);
	printf("trained %" PRIu64 " samples of the run's %" PRIu64 "; %" PRIu64
	       " exchanges, %.1f MB sent\n",
	        v.samples, v.clock, v.counts.begun + v.counts.taken,
	        (double)v.counts.bytes_sent / 1e6);
	if (v.finished)
		printf("weights: %s/final.safetensors\n", t->out);
	else if (v.saves > 0)
		printf("checkpoint of step %" PRIu64 " in %s\n", v.saved_step, t->out);
}

/* SPDX-License-Identifier: MIT */
/* The happy path: the learner reads data and builds the model, the folder is locked, the newest
 * whole checkpoint in it is taken, and the flock is made, which knows by the clock whether that
 * state is still worth anything.
 *
 * A checkpoint of another model is an error: the user has to say where this one is to go. */
#include "agent/daemon/training.h"

#include "agent/base/exit_code.h"
#include "agent/base/log.h"
#include "agent/config/paths.h"
#include "agent/guest/guest.h"
#include "agent/train/core_settings.h"
#include "agent/train/learner_thread.h"
#include "agent/train/resume.h"
#include "model/graph/outer.h"
#include "net/bulk/convert.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int resume(struct training *t, struct err *e)
{
	struct trainer *trainer = learner_trainer(t->learner);
	const struct checkpoint_origin *o = &trainer->origin;
	char path[RUN_DIR_PATH];
	int rc = resume_newest(trainer, &t->dir, path, &t->resumed, e);
	if (rc || !t->resumed)
		return rc;
	log_info("resumed %s: step %" PRIu64 ", %" PRIu64 " samples of our own", path,
	        trainer->step, trainer->samples);
	if (o->before_samples > 0)
		log_info("the %" PRIu64 " samples before them are %.12s's, whose checkpoint it was",
		        o->before_samples, o->before);
	return 0;
}

static uint64_t hash(const void *bytes, size_t len)
{
	uint8_t out[8];
	uint64_t h;
	crypto_generichash(out, sizeof out, bytes, len, NULL, 0);
	memcpy(&h, out, sizeof h);
	return h;
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
	graph_get_params(trainer->net, values);
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

/* What must be equal at every agent of the run. */
static int read_manifest(
        const struct training *t, const struct config *c, struct manifest *m, struct err *e)
{
	const struct trainer *trainer = learner_trainer(t->learner);
	struct buf model;
	_Static_assert(OPTIM_SGD == 0 && OPTIM_ADAMW == 1, "manifest.c has their names");
	*m = (struct manifest){.run = hash(c->gossip.run, strlen(c->gossip.run)),
	        .count = trainer->arch.n_total,
	        .total = t->learner->info.total,
	        .optimizer = c->train.optim.kind,
	        .mode = (uint64_t)c->gossip.exchange,
	        .formats = (1u << CONVERT_FORMATS) - 1,
	        .outer = (uint64_t)c->gossip.outer,
	        /* The model has context and vocabulary, but two sets of one total may differ. */
	        .data = t->learner->info.context ? trainer->n_whole : 0};
	if (!t->learner->info.packs)
		m->formats &= ~(uint64_t)CONVERT_LATTICES;
	buf_init(&model, LIMIT_SAFETENSORS_HEADER);
	int rc = arch_print(&trainer->arch, &model);
	if (rc)
		err_set(e, rc, "%s", err_text(rc));
	else
		m->model = hash(model.data, model.len);
	buf_close(&model);
	return rc ? rc : hash_init(t, &m->init, e);
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
		*status = trainer_exit_code(rc, part);
		return rc;
	}
	*status = EXIT_MODEL;
	if (c->run.init_from[0])
		rc = trainer_init_from(learner_trainer(t->learner), c->run.init_from, e);
	return rc;
}

/* What was trained is an agent's in a run: another identity in the same folder begins at 0. */
static uint64_t progress_key(const struct manifest *m, const struct peer_id *self)
{
	uint64_t id;
	memcpy(&id, self->bytes, sizeof id);
	return rng_mix(manifest_hash(m), id, 0);
}

static void set_origin(const struct training *t, const struct config *c, const struct peer_id *self,
        const struct manifest *m)
{
	struct checkpoint_origin o = {.manifest = *m};
	_Static_assert(CHECKPOINT_ID == 2 * sizeof self->bytes + 1, "an id fits");
	memcpy(o.run, c->gossip.run, sizeof o.run);
	sodium_bin2hex(o.owner, sizeof o.owner, self->bytes, sizeof self->bytes);
	trainer_set_origin(learner_trainer(t->learner), &o);
}

static void read_settings(struct training *t, const struct config *c)
{
	const struct learner_info *l = &t->learner->info;
	struct flock_config *f = &t->core;
	core_settings(f, c);
	f->n_groups = (uint8_t)l->groups.n;
	f->vectors = (uint8_t)l->vectors;
	f->evaluates = l->evaluates;
}

/* What was done before: by the checkpoint, and beyond it by the state directory. */
static void read_progress(
        struct training *t, const struct peer_id *self, const struct state_dir *state)
{
	const struct trainer *trainer = learner_trainer(t->learner);
	struct flock_config *f = &t->core;
	struct state_dir_progress p;
	state_dir_load_progress(state, &p);
	t->progress = progress_key(&f->manifest, self);
	f->resumed = t->resumed;
	f->step = trainer->step;
	f->samples = trainer->samples;
	f->others = trainer->others;
	if (p.run == t->progress && p.samples > trainer->samples)
		f->samples_before = p.samples - trainer->samples;
	f->quota = (struct gate_quota){p.day_start_s, p.day_bytes};
}

/* ---- a guest */

/* DUNLIN_TEST_STALL_MS lets a test be less patient. */
static uint64_t stall_ms(void)
{
	const char *text = getenv("DUNLIN_TEST_STALL_MS");
	unsigned ms;
	char end;
	return text && sscanf(text, "%6u%c", &ms, &end) == 1 && ms > 0 ? ms : GUEST_STALL_MS;
}

/* Batch, optimizer and its rate are the script's. */
static void take_settings(struct training *t, const struct guest_hello *h)
{
	struct config *c = &t->config;
	c->train.batch = (int64_t)h->step_samples;
	c->train.accumulate = 1;
	c->train.epochs = 1;
	c->train.optim.kind = h->optimizer == OPTIM_SGD ? OPTIM_SGD : OPTIM_ADAMW;
	c->train.optim.lr = h->lr;
	c->train.optim.momentum = h->momentum;
	c->train.optim.beta1 = h->momentum;
}

/* init stays 0: the initial weights are the first agent's. */
static int guest_manifest(
        struct training *t, const struct config *c, const struct guest_hello *h, struct err *e)
{
	struct buf model;
	buf_init(&model, LIMIT_TENSORS * (LIMIT_TENSOR_NAME + 256u));
	int rc = guest_hello_print(h, &model);
	if (rc)
		err_set(e, rc, "%s", err_text(rc));
	else
		t->core.manifest = (struct manifest){
		        .run = hash(c->gossip.run, strlen(c->gossip.run)),
		        .model = hash(model.data, model.len),
		        .count = h->n_total,
		        .total = h->total,
		        .optimizer = h->optimizer,
		        .mode = (uint64_t)c->gossip.exchange,
		        .formats = ((1u << CONVERT_FORMATS) - 1) & ~(uint64_t)CONVERT_LATTICES};
	buf_close(&model);
	return rc;
}

/* A script that lost an earlier agent goes on where it is; a fresh one begins at 0, with what was
 * trained before it under this identity counted. */
static void guest_progress(struct training *t, const struct guest_hello *h,
        const struct peer_id *self, const struct state_dir *state)
{
	struct flock_config *f = &t->core;
	struct state_dir_progress p;
	state_dir_load_progress(state, &p);
	t->progress = progress_key(&f->manifest, self);
	t->resumed = f->resumed = h->step > 0;
	f->step = h->step;
	f->samples = h->samples;
	f->others = h->others;
	if (p.run == t->progress && p.samples > h->samples)
		f->samples_before = p.samples - h->samples;
	f->quota = (struct gate_quota){p.day_start_s, p.day_bytes};
}

static int open_guest(struct training *t, const struct config *c, uv_loop_t *loop,
        const struct peer_id *self, const struct state_dir *state, int *status, struct err *e)
{
	char path[LIMIT_PATH];
	struct guest_config g = {.loop = loop,
	        .path = path,
	        .run = c->gossip.run,
	        .dir = &t->dir,
	        .stall_ms = stall_ms()};
	*status = EXIT_FAILED;
	t->guest = true;
	int rc = paths_out(c, true, t->out, e);
	if (rc == 0)
		rc = run_dir_open(&t->dir, t->out, e);
	if (rc == 0)
		rc = paths_guest(c, path, e);
	if (rc == 0)
		rc = guest_wait(&t->learner, &g, e);
	if (rc)
		return rc;
	const struct guest_hello *h = guest_said_hello(t->learner);
	take_settings(t, h);
	rc = guest_manifest(t, c, h, e);
	if (rc)
		return rc;
	read_settings(t, &t->config);
	t->core.optimizer = h->optimizer;
	t->core.first_weights = true;
	guest_progress(t, h, self, state);
	log_info("a training script has come: process %s, %s, %zu parameters in %u tensors",
	        t->learner->info.device + strcspn(t->learner->info.device, "0123456789"),
	        h->optimizer_name, h->n_total, h->n);
	*status = EXIT_CONFIG;
	return gate_check(&t->core.gate, e);
}

/* ---- beginning and end */

int training_open(struct training *t, const struct config *c, uv_loop_t *loop,
        const struct peer_id *self, const struct state_dir *state, int *status, struct err *e)
{
	*t = (struct training){.dir = {.lock = -1}, .config = *c};
	if (!c->agent.train)
		return 0;
	if (c->agent.guest) {
		int failed = open_guest(t, c, loop, self, state, status, e);
		if (failed) {
			*status = exit_code(failed, *status);
			training_close(t);
		}
		return failed;
	}
	int rc = open_learner(t, c, loop, self, status, e);
	if (rc)
		goto out;
	rc = read_manifest(t, c, &t->core.manifest, e);
	*status = EXIT_FAILED;
	if (rc == 0)
		set_origin(t, c, self, &t->core.manifest);
	if (rc == 0)
		rc = paths_out(c, true, t->out, e);
	if (rc == 0)
		rc = run_dir_open(&t->dir, t->out, e);
	if (rc)
		goto out;
	*status = EXIT_MODEL;
	rc = resume(t, e);
	if (rc)
		goto out;
	*status = EXIT_FAILED;
	if (c->data.partition.kind == PARTITION_LABEL && c->gossip.outer == OUTER_NONE &&
	        c->train.optim.kind == OPTIM_SGD)
		log_info("the parts of data.partition have different labels: --outer qgm is made "
		         "for that; all agents of the run must have it");
	read_settings(t, c);
	read_progress(t, self, state);
	*status = EXIT_CONFIG;
	rc = gate_check(&t->core.gate, e);
out:
	if (rc) {
		*status = exit_code(rc, *status);
		training_close(t);
	}
	return rc;
}

/* The newest whole one; damaged ones stay where they are. */
static int look_at_checkpoints(struct training *t, char from[RUN_DIR_PATH], struct err *e)
{
	const struct run_dir dir = {.path = t->out, .lock = -1};
	struct trainer_notes notes = {0};
	struct checkpoint c;
	uint64_t *names = NULL;
	int n = 0, rc = 0;
	if (access(t->out, F_OK) != 0)
		return 0;
	rc = run_dir_list(&dir, &names, &n, e);
	for (int i = 0; i < n && rc == 0 && !from[0]; i++) {
		run_dir_checkpoint(&dir, names[i], from);
		if (checkpoint_open(&c, from, e) != 0) {
			log_warn("%s: a start would put it aside", e->msg);
			from[0] = '\0';
			continue;
		}
		rc = trainer_restore(learner_trainer(t->learner), &c, &notes, e);
		checkpoint_close(&c);
		if (rc)
			err_prefix(e, "%s", from);
	}
	free(names);
	return rc;
}

int training_rehearse(struct training *t, const struct config *c, uv_loop_t *loop,
        char from[RUN_DIR_PATH], int *status, struct err *e)
{
	const struct peer_id self = {{1}};
	*t = (struct training){.dir = {.lock = -1}};
	from[0] = '\0';
	if (!c->agent.train || c->agent.guest) /* what a script brings it has not brought yet */
		return 0;
	int rc = open_learner(t, c, loop, &self, status, e);
	if (rc)
		goto out;
	rc = read_manifest(t, c, &t->core.manifest, e);
	*status = EXIT_FAILED;
	if (rc == 0)
		set_origin(t, c, &self, &t->core.manifest);
	if (rc == 0)
		rc = paths_out(c, true, t->out, e);
	if (rc)
		goto out;
	*status = EXIT_MODEL;
	rc = look_at_checkpoints(t, from, e);
	if (rc)
		goto out;
	read_settings(t, c);
	*status = EXIT_CONFIG;
	rc = gate_check(&t->core.gate, e);
out:
	if (rc) {
		*status = exit_code(rc, *status);
		training_close(t);
	}
	return rc;
}

void training_close(struct training *t)
{
	learner_free(t->learner);
	if (t->dir.lock >= 0)
		run_dir_close(&t->dir);
	*t = (struct training){.dir = {.lock = -1}};
}

struct gossip_departed training_departed(const struct training *t)
{
	if (t->guest)
		return (struct gossip_departed){0};
	const struct checkpoint_origin *o = &learner_trainer(t->learner)->origin;
	struct gossip_departed d = {.samples = o->before_samples};
	size_t len = 0;
	if (sodium_hex2bin(d.id.bytes, sizeof d.id.bytes, o->before, strlen(o->before), NULL, &len,
	            NULL) != 0 ||
	        len != sizeof d.id.bytes)
		d.samples = 0;
	return d;
}

struct state_dir_progress training_progress(const struct training *t, const struct flock *core)
{
	struct gate_quota q = flock_quota(core, (uint64_t)time(NULL));
	return (struct state_dir_progress){.run = t->progress,
	        .samples = flock_samples(core),
	        .day_start_s = q.day_start_s,
	        .day_bytes = q.bytes};
}

static void print_eval(const char *what, const struct agent_view *a, const struct flock_eval *v)
{
	char perplexity[40];
	printf("%s model: test loss %.4f%s, accuracy %.2f%% (%" PRId64 " of %" PRId64 ")\n", what,
	        v->loss, eval_perplexity(a->context > 0, v->loss, perplexity),
	        100.0 * (double)v->correct / (double)v->count, v->correct, v->count);
}

void training_print(const struct training *t, const struct driver *d)
{
	struct agent_view a;
	driver_view(d, &a);
	const struct flock_view v = a.core;
	if (v.has_local)
		print_eval("local", &a, &v.local);
	if (v.has_merged)
		print_eval("merged", &a, &v.merged);
	if (a.has_validation && a.validation.best_step > 0)
		printf("best validation loss %.4f at step %" PRIu64 ": %s/best.safetensors\n",
		        a.validation.best_loss, a.validation.best_step, t->out);
	printf("trained %" PRIu64 " samples of the run's %" PRIu64 "; %" PRIu64
	       " exchanges, %.1f MB sent\n",
	        v.samples, v.clock, v.counts.begun + v.counts.taken,
	        (double)v.counts.bytes_sent / 1e6);
	if (v.finished)
		printf("weights: %s/final.safetensors\n", t->out);
	else if (v.saves > 0)
		printf("checkpoint of step %" PRIu64 " in %s\n", v.saved_step, t->out);
}

/* SPDX-License-Identifier: MIT */
/* A trainer's state to a file and back.
 *
 * Saving copies parameters and optimiser state to the host and writes them; the trainer stays as it
 * was whatever happens. Restoring first compares everything (model, optimiser, data, every tensor)
 * and reads into memory of its own, and only then lets go of what the trainer had. A failure after
 * that point can only be the device's.
 *
 * A peer's state comes as bytes of anyone's: it is checked whole before the first of them is used.
 *
 * A backend may have timed which kernel is fastest for a shape. Another choice means other
 * rounding, so the choices travel with the checkpoint, and the net is built again with them. */
#include "agent/train/trainer.h"

#include "agent/base/log.h"
#include "gossip/policy/outer.h"
#include "model/graph/outer.h"
#include "model/graph/stats.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 4096 /* floats */
#define MOMENT_RATIO 1024.0
#define MOMENT_SMALL 1e-30 /* gradients so small leave a second moment of 0 */

static const char *device_choices(struct device *d)
{
	return d->backend->choices != NULL ? d->backend->choices(d) : "";
}

int trainer_vectors(const struct trainer *t)
{
	return t->optim.v != NULL ? 3 : 2;
}

void trainer_get_state(struct trainer *t, float *to, struct trainer_state *s)
{
	const size_t n = t->arch.n_total;
	struct device *d = t->dev;

	assert(!trainer_merging(t));
	graph_get_params(t->net, to);
	d->backend->download(d, to + n, t->optim.m, n * sizeof *to);
	if (t->optim.v != NULL)
		d->backend->download(d, to + 2 * n, t->optim.v, n * sizeof *to);
	*s = (struct trainer_state){
	        .optim_steps = t->optim.steps,
	        .optimizer = (uint8_t)t->config->train.optim.kind,
	        .vectors = (uint8_t)trainer_vectors(t),
	};
	s->batch = trainer_batch(t, &s->noise, &s->signal);
}

/* How much larger than v the square of m can be in AdamW, whatever the gradients were (Cauchy and
 * Schwarz): so the first steps with a peer's moments are no longer than lr times its root. Twice
 * that for rounding, and enough for agents with somewhat other betas. */
static double moment_ratio(const struct optim_config *c)
{
	const double a = 1 - c->beta1, b = 1 - c->beta2, left = 1 - c->beta1 * c->beta1 / c->beta2;
	const double most = left > 0 ? 2 * a * a / b / left : (double)INFINITY;
	return most > MOMENT_RATIO ? most : MOMENT_RATIO;
}

/* In another thread's or a peer's memory these may be any numbers. */
static int check_state(
        const struct trainer *t, const float *from, const struct trainer_state *s, struct err *e)
{
	const size_t n = t->arch.n_total, all = (size_t)trainer_vectors(t) * n;

	if (s->optimizer != t->config->train.optim.kind || s->vectors != trainer_vectors(t))
		return err_set(e, ERR_MISMATCH, "the state is of another train.optimizer");
	if (s->optim_steps > TRAINER_OPTIM_STEPS_MAX)
		return err_set(
		        e, ERR_INVALID, "the state claims %" PRIu64 " steps", s->optim_steps);
	if (weights_nonfinite(from, all) < all)
		return err_set(e, ERR_NONFINITE, "the state has values that are not finite");
	const double most = moment_ratio(&t->config->train.optim);
	for (size_t i = 2 * n; i < all; i++) {
		const double m = (double)from[i - n], v = (double)from[i];
		if (v < 0)
			return err_set(e, ERR_INVALID, "the state has a negative second moment");
		if (m * m > most * v + MOMENT_SMALL)
			return err_set(
			        e, ERR_INVALID, "the state has moments that no steps lead to");
	}
	return 0;
}

static void upload_state(struct trainer *t, const float *from)
{
	const size_t n = t->arch.n_total;
	struct device *d = t->dev;

	graph_set_params(t->net, from);
	d->backend->upload(d, t->optim.m, from + n, n * sizeof *from);
	if (t->optim.v != NULL)
		d->backend->upload(d, t->optim.v, from + 2 * n, n * sizeof *from);
	trainer__params_set(t);
}

int trainer_adopt_state(
        struct trainer *t, const float *from, const struct trainer_state *s, struct err *e)
{
	int rc = check_state(t, from, s, e);

	assert(!trainer_merging(t));
	if (rc != 0)
		return rc;
	upload_state(t, from);
	t->optim.steps = s->optim_steps;
	batch_given(&t->batch, &t->batch_config, s->batch, s->noise, s->signal);
	return 0;
}

static void set_merge(
        struct trainer *t, const float *difference, const size_t *end, const float *k, int n)
{
	assert(!trainer_merging(t));
	t->staged = NULL; /* once */
	for (int g = 0; g < n; g++)
		assert((g == 0 || end[g - 1] <= end[g]) && end[g] <= t->arch.n_train);
	t->optim.merge = (struct optim_merge){
	        .difference = difference,
	        .end = end,
	        .k = k,
	        .n = n,
	};
}

/* φ moves along with an exchange that no outer step follows. */
static void follow(
        struct trainer *t, const float *difference, const size_t *end, const float *k, int n)
{
	float least = n > 0 ? k[0] : 0;
	size_t at = 0;

	for (int g = 0; g < n; g++) {
		least = k[g] < least ? k[g] : least;
		outer_follow(t->phi + at, difference + at, end[g] - at, k[g]);
		at = end[g];
	}
	outer_follow(t->phi + at, difference + at, t->arch.n_train - at, least);
}

/* Behind an exchange that was added: NoLoCo's correction, in pieces. */
static int outer_step(struct trainer *t, double momentum, struct err *e)
{
	const struct backend *b = t->dev->backend;
	const size_t n = t->arch.n_train;
	float p[PIECE];
	int rc = 0;

	for (size_t at = 0; at < n && rc == 0; at += PIECE) {
		const size_t count = n - at < PIECE ? n - at : PIECE;

		b->download(t->dev, p, t->net->params + at, count * sizeof *p);
		outer_noloco(p, t->phi + at, t->outer + at, count, (float)momentum,
		        (float)t->config->gossip.outer_rate);
		rc = b->add(t->dev, t->net->params + at, p, count, 1, e);
	}
	t->since_outer = 0;
	return rc;
}

static struct outer_plan plan_outer(const struct trainer *t)
{
	return outer_plan(t->config->gossip.outer_momentum, t->since_outer, trainer_clock(t),
	        t->schedule.total);
}

int trainer_add_part(
        struct trainer *t, const float *difference, size_t at, size_t n, float k, struct err *e)
{
	const size_t trained = t->arch.n_train;
	int rc;

	if (at >= trained)
		return stats_add(t->net, difference, at, n, k, e);
	assert(at + n <= trained);
	rc = t->dev->backend->add(t->dev, t->net->params + at, difference, n, k, e);
	if (rc != 0)
		return rc;
	if (t->optim.qgm && t->optim.rate > 0)
		outer_qgm_merged(t->optim.m + at, difference, n, k, (float)t->optim.config.momentum,
		        (float)t->optim.rate);
	if (t->phi != NULL && !plan_outer(t).step)
		outer_follow(t->phi + at, difference, n, k);
	return 0;
}

int trainer_add_end(struct trainer *t, struct err *e)
{
	const struct outer_plan plan = plan_outer(t);

	return t->phi != NULL && plan.step ? outer_step(t, plan.momentum, e) : 0;
}

int trainer_add(struct trainer *t, const float *difference, const size_t *end, const float *k,
        int n, struct err *e)
{
	set_merge(t, difference, end, k, n);
	int rc = optim_add(&t->optim, e);
	if (rc != 0 || t->phi == NULL)
		return rc;
	if (!plan_outer(t).step)
		follow(t, difference, end, k, n);
	return trainer_add_end(t, e);
}

int trainer_stage(struct trainer *t, const struct device_stage *s, struct err *e)
{
	struct device *d = t->dev;
	int rc = ERR_BUSY;

	assert(!trainer_merging(t));
	if (d->backend->stage != NULL)
		rc = d->backend->stage(d, s, e);
	t->staged = rc == 0 ? s->x : NULL;
	return rc;
}

int trainer_merge(struct trainer *t, const float *difference, const size_t *end, const float *k,
        int n, struct err *e)
{
	int rc = 0;

	if (t->phi != NULL) /* which looks at what is added, at once */
		return trainer_add(t, difference, end, k, n, e);
	if (t->staged != difference)
		rc = trainer_stage(
		        t, &(struct device_stage){.x = difference, .n = t->arch.n_train}, e);
	if (rc == ERR_BUSY)
		return trainer_add(t, difference, end, k, n, e);
	if (rc == 0)
		set_merge(t, difference, end, k, n);
	return rc;
}

bool trainer_merging(const struct trainer *t)
{
	return t->optim.merge.difference != NULL;
}

int trainer_merged(struct trainer *t, struct err *e)
{
	return optim_add(&t->optim, e);
}

void trainer_note(const struct trainer *t, struct checkpoint_state *s)
{
	const struct config *c = t->config;
	const struct loader_position at = loader_position(t->loader);

	*s = (struct checkpoint_state){
	        .step = t->step,
	        .samples = t->samples,
	        .others = t->others,
	        .epoch = at.epoch,
	        .sample = at.sample,
	        .n_train = t->n_train,
	        .optimizer = c->train.optim.kind,
	        .optim_steps = t->optim.steps,
	        .batch = c->train.batch,
	        .accumulate = c->train.accumulate,
	        .train_seed = c->train.seed,
	        .data_seed = c->data.seed,
	        .order_seed = t->order_seed,
	        .norm = t->norm,
	        .best_step = t->best_step,
	        .best_loss = t->best_loss,
	        .origin = t->origin,
	};
	if (c->train.batch_adapt != BATCH_ADAPT_OFF)
		s->adaptive = t->batch;
	if (t->optim.qgm)
		s->optim_rate = t->optim.rate;
	if (t->phi != NULL)
		s->outer_steps = t->since_outer;
}

void trainer_set_origin(struct trainer *t, const struct checkpoint_origin *o)
{
	t->origin = *o;
}

static int save(struct trainer *t, const struct checkpoint_state *state, const float *host,
        bool outer, const char *path, struct err *e)
{
	const size_t n = t->arch.n_total;
	const struct checkpoint_source s = {
	        .arch = &t->arch,
	        .state = *state,
	        .backend = t->dev->backend->name,
	        .device = t->dev->text,
	        .choices = device_choices(t->dev),
	        .params = host,
	        .m = host + n,
	        .v = t->optim.v != NULL ? host + 2 * n : NULL,
	        .phi = outer ? t->phi : NULL,
	        .outer = outer ? t->outer : NULL,
	};
	int rc = checkpoint_write(path, &s, e);

	if (rc != 0)
		err_prefix(e, "save a checkpoint");
	return rc;
}

/* Without φ, which is of now and not of then. */
int trainer_save_from(struct trainer *t, const struct checkpoint_state *state, const float *host,
        const char *path, struct err *e)
{
	return save(t, state, host, false, path, e);
}

int trainer_save(struct trainer *t, const char *path, struct err *e)
{
	float *host = malloc((size_t)trainer_vectors(t) * t->arch.n_total * sizeof *host);
	struct checkpoint_state state;
	struct trainer_state none;
	int rc;

	if (host == NULL)
		return err_set(
		        e, ERR_NOMEM, "save %s: no memory for a copy of the parameters", path);
	trainer_note(t, &state);
	trainer_get_state(t, host, &none);
	rc = graph_check(t->net, e);
	if (rc != 0)
		err_prefix(e, "save a checkpoint");
	else
		rc = save(t, &state, host, true, path, e);
	free(host);
	return rc;
}

int trainer_export(struct trainer *t, const char *path, struct err *e)
{
	const struct weights_info info = {.norm = t->norm, .step = t->step, .samples = t->samples};
	float *params = malloc(t->arch.n_total * sizeof *params);
	int rc;

	if (params == NULL)
		return err_set(e, ERR_NOMEM, "export %s: no memory for the parameters", path);
	assert(!trainer_merging(t));
	graph_get_params(t->net, params);
	rc = graph_check(t->net, e);
	if (rc == 0)
		rc = weights_write(path, &t->arch, &info, params, e);
	if (rc != 0)
		err_prefix(e, "save weights");
	free(params);
	return rc;
}

__attribute__((format(printf, 2, 3))) static void note(
        struct trainer_notes *notes, const char *fmt, ...)
{
	va_list ap;

	if (notes == NULL || notes->n == TRAINER_NOTES_MAX)
		return;
	va_start(ap, fmt);
	vsnprintf(notes->text[notes->n++], sizeof notes->text[0], fmt, ap);
	va_end(ap);
}

static int check_model(const struct trainer *t, const struct checkpoint *c, struct err *e)
{
	struct buf ours;
	int rc;

	buf_init(&ours, LIMIT_SAFETENSORS_HEADER);
	rc = arch_print(&t->arch, &ours);
	if (rc != 0)
		err_set(e, rc, "%s", err_text(rc));
	else if (strcmp(ours.data, c->model) != 0)
		rc = err_set(e, ERR_MISMATCH,
		        "it holds another model than the config's: compare \"dunlin inspect\" with "
		        "the setting model, or start anew in another run.out");
	buf_close(&ours);
	return rc;
}

/* φ and the outer momentum; a file without them, or of other ones, is no misfit: φ begins anew. */
static void restore_outer(struct trainer *t, const struct checkpoint *c)
{
	const size_t bytes = t->arch.n_train * sizeof *t->phi;

	if (t->phi == NULL || c->phi == NULL || c->outer == NULL || c->phi->bytes != bytes ||
	        c->outer->bytes != bytes)
		return;
	memcpy(t->phi, c->phi->data, bytes);
	memcpy(t->outer, c->outer->data, bytes);
	t->since_outer = c->state.outer_steps;
}

static int check_vector(const struct trainer *t, const char *name, const struct st_tensor *have,
        const float *want, struct err *e)
{
	if ((have != NULL) != (want != NULL))
		return err_set(e, ERR_MISMATCH, "%s %s: train.optimizer or train.momentum differs",
		        have != NULL ? "it holds" : "it lacks", name);
	if (have != NULL && have->bytes != t->arch.n_total * sizeof(float))
		return err_set(e, ERR_MISMATCH, "%s has %" PRIu64 " values, the model %zu", name,
		        have->bytes / sizeof(float), t->arch.n_total);
	return 0;
}

/* All that differs at once, by the settings' names. */
static int check_origin(const struct trainer *t, const struct checkpoint *c, struct err *e)
{
	const struct checkpoint_origin *was = &c->state.origin, *is = &t->origin;
	struct manifest theirs = was->manifest;
	char keys[MANIFEST_KEYS_MAX + 1];
	uint32_t differs;

	if (was->owner[0] == '\0' && is->owner[0] == '\0')
		return 0;
	if (was->owner[0] == '\0' || is->owner[0] == '\0')
		return err_set(e, ERR_MISMATCH,
		        "it was written by \"dunlin %s\": go on with that, or choose another --out "
		        "and take its weights by --init-from",
		        was->owner[0] == '\0' ? "train" : "agent");
	theirs.optimizer = c->state.optimizer;
	differs = manifest_compare(&theirs, &is->manifest) & MANIFEST_OF_STATE;
	if (differs == MANIFEST_SAME)
		return 0;
	manifest_keys(differs, keys);
	return err_set(e, ERR_MISMATCH,
	        "it is of the run \"%s\" with other settings than this one (%s): choose another "
	        "--out, or set them as they were",
	        was->run, keys);
}

static bool norm_equal(const struct normalisation *a, const struct normalisation *b)
{
	bool equal = a->n == b->n;

	for (int i = 0; i < a->n && equal; i++)
		equal = a->mean[i] == b->mean[i] && a->std[i] == b->std[i];
	return equal;
}

static int check_fit(const struct trainer *t, const struct checkpoint *c, struct err *e)
{
	int rc = check_origin(t, c, e);

	if (rc == 0)
		rc = check_model(t, c, e);
	if (rc == 0 && c->state.optimizer != t->config->train.optim.kind)
		rc = err_set(e, ERR_MISMATCH,
		        "train.optimizer: it was written with %s; resume with that, or take its "
		        "weights "
		        "alone with --init-from",
		        c->state.optimizer == OPTIM_SGD ? "sgd" : "adamw");
	if (rc == 0 && c->state.n_train != t->n_train)
		rc = err_set(e, ERR_MISMATCH,
		        "it was written with %" PRIu64
		        " training samples, the data now give %" PRIu32
		        ": set the data files, data.validation and data.partition as they were",
		        c->state.n_train, t->n_train);
	/* A place in the data and a normalisation mean something for the same data only. */
	if (rc == 0 && !norm_equal(&c->state.norm, &t->norm))
		rc = err_set(e, ERR_MISMATCH,
		        "it was written with other training data (mean %.6g, now %.6g): set the "
		        "data "
		        "as it was, or take its weights alone with --init-from",
		        c->state.norm.mean[0], t->norm.mean[0]);
	if (rc == 0)
		rc = check_vector(t, "optim.m", c->m, t->optim.m, e);
	if (rc == 0)
		rc = check_vector(t, "optim.v", c->v, t->optim.v, e);
	if (rc == 0)
		rc = weights_check(&c->file, &t->arch, e);
	return rc;
}

/* What changes the bits that follow, but is a thing a user may want. */
static void note_changes(
        const struct trainer *t, const struct checkpoint *c, struct trainer_notes *notes)
{
	const struct {
		const char *key;
		int64_t was, is;
	} all[] = {
	        {"train.batch", c->state.batch, t->config->train.batch},
	        {"train.accumulate", c->state.accumulate, t->config->train.accumulate},
	        {"train.seed", c->state.train_seed, t->config->train.seed},
	        {"data.seed", c->state.data_seed, t->config->data.seed},
	};

	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		if (all[i].was != all[i].is)
			note(notes,
			        "%s was %" PRId64 " and is %" PRId64
			        " now: the run goes on, but not as it would have",
			        all[i].key, all[i].was, all[i].is);
	if (c->state.order_seed != t->order_seed)
		note(notes, "it was written with another order of the images (another agent's or "
		            "data.seed's): our own begins at its start");
	/* The text names library and threads too: either changes how sums are rounded. */
	if (strcmp(c->device, t->dev->text) != 0)
		note(notes,
		        "it was written on %.80s: the run goes on, but its last bits may differ",
		        c->device);
}

/* Makes the device choose as it did then. The old net is kept when it refuses. */
static int rebuild(
        struct trainer *t, const char *choices, struct trainer_notes *notes, struct err *e)
{
	struct device *d = t->dev;
	struct err why;
	int rc;

	if (d->backend->choose == NULL || choices[0] == '\0' ||
	        strcmp(device_choices(d), choices) == 0)
		return 0;
	if (d->backend->choose(d, choices, &why) != 0) {
		note(notes,
		        "this device cannot choose its kernels as the checkpoint's did: the last "
		        "bits may differ");
		return 0;
	}
	const bool qgm = t->optim.qgm;

	optim_close(&t->optim);
	memset(&t->optim, 0, sizeof t->optim);
	graph_free(t->net);
	t->net = NULL;
	rc = graph_new(&t->net, &t->arch, d, t->config->train.batch, e);
	if (rc == 0)
		rc = optim_init(&t->optim, &t->config->train.optim, t->net, e);
	t->optim.qgm = qgm;
	return rc;
}

/* The counters. What another agent trained stays that agent's. */
static void restore_counts(struct trainer *t, const struct checkpoint_state *s, bool own)
{
	struct checkpoint_origin *o = &t->origin;

	t->step = s->step;
	t->samples = own ? s->samples : 0;
	t->others = own ? s->others : s->others + s->samples;
	memcpy(o->before, own ? s->origin.before : s->origin.owner, sizeof o->before);
	o->before_samples = own ? s->origin.before_samples : s->samples;
	t->best_step = s->best_step;
	t->best_loss = s->best_loss;
	if (s->adaptive.size == 0)
		return;
	t->batch = s->adaptive;
	batch_restored(&t->batch, &t->batch_config);
	if (!own) {
		double noise, signal;

		if (!batch_known(&t->batch, &noise, &signal))
			noise = signal = 0;
		batch_given(&t->batch, &t->batch_config, t->batch.size, noise, signal);
	}
}

int trainer_restore(
        struct trainer *t, const struct checkpoint *c, struct trainer_notes *notes, struct err *e)
{
	const bool own = strcmp(c->state.origin.owner, t->origin.owner) == 0;
	struct loader_position at = {
	        .epoch = own ? c->state.epoch : 0, .sample = own ? c->state.sample : 0};
	const size_t n = t->arch.n_total;
	struct loader *loader = NULL;
	float *host = NULL;
	int rc;

	if (notes != NULL)
		notes->n = 0;
	rc = check_fit(t, c, e);
	if (rc != 0)
		return rc;
	host = malloc((size_t)trainer_vectors(t) * n * sizeof *host);
	if (host == NULL)
		return err_set(e, ERR_NOMEM, "no memory for %zu parameters", n);
	if (c->state.order_seed != t->order_seed)
		at = (struct loader_position){0};
	rc = trainer__loader(t, &loader, at, e);
	if (rc != 0)
		goto out;
	note_changes(t, c, notes);
	rc = rebuild(t, strcmp(c->backend, t->dev->backend->name) == 0 ? c->choices : "", notes, e);
	if (rc != 0)
		goto out;

	/* From here on nothing fails. The copies also align what lies unaligned in the file. */
	weights_copy(&c->file, &t->arch, host);
	memcpy(host + n, c->m->data, n * sizeof *host);
	if (c->v != NULL)
		memcpy(host + 2 * n, c->v->data, n * sizeof *host);
	upload_state(t, host);
	t->optim.steps = c->state.optim_steps;
	t->optim.rate =
	        c->state.optim_rate > 0 && isfinite(c->state.optim_rate) ? c->state.optim_rate : 0;
	restore_outer(t, c);
	restore_counts(t, &c->state, own);
	loader_free(t->loader);
	t->loader = loader;
	loader = NULL;
out:
	loader_free(loader);
	free(host);
	return rc;
}

/* The shapes of the weights do not tell them. */
static void warn_unchecked(const struct st_file *f, const struct arch *a, const char *path)
{
	bool attention = false;

	for (int i = 0; i < a->n_nodes; i++)
		attention = attention || a->nodes[i].layer.kind == LAYER_ATTENTION;
	if (attention && st_meta(f, "model") == NULL)
		log_warn("%s: no config.json is with it, so that it is not checked whether these "
		         "weights are of as many heads as the model here, with the same gelu and "
		         "eps",
		        path);
}

int trainer_init_from(struct trainer *t, const char *path, struct err *e)
{
	struct st_file f;
	float *host = NULL;
	int rc = checkpoint_open_weights(&f, path, e);

	if (rc != 0)
		return rc;
	rc = weights_check(&f, &t->arch, e);
	if (rc == 0)
		rc = weights_check_model(&f, &t->arch, e);
	if (rc != 0) {
		err_prefix(e, "%s", path);
		goto out;
	}
	host = malloc(t->arch.n_total * sizeof *host);
	if (host == NULL) {
		rc = err_set(e, ERR_NOMEM, "no memory for %zu parameters", t->arch.n_total);
		goto out;
	}
	warn_unchecked(&f, &t->arch, path);
	weights_copy(&f, &t->arch, host);
	graph_set_params(t->net, host);
	trainer__params_set(t);
out:
	free(host);
	st_close(&f);
	return rc;
}

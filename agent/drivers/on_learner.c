/* SPDX-License-Identifier: MIT */
/* The core's wishes as requests of the learner, its answers as events, and the workers that measure
 * what came.
 *
 * How far away a partner is the transfer has measured, or the learner's device does, where it can.
 * A sketch of what came is made by a worker; a device tells that of the difference, and sketches
 * can be added. */
#include "agent/base/log.h"
#include "agent/drivers/driver_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 4096 /* parameters, of which a worker makes what came */
#define STEPS 64   /* told at one time */

static void refused(struct driver *d, const struct flock_action *a)
{
	d->save_refused = d->save_refused || a->kind == FLOCK_DO_SAVE;
	driver__event(d, (struct flock_event){.kind = FLOCK_EVENT_REFUSED, .refused = a->kind});
}

/* ---- measuring */

static void measured(struct driver *d, enum flock_slot slot, int code, const struct sketch *sketch)
{
	struct flock_event e = {.kind = FLOCK_EVENT_MEASURED, .code = code};
	e.measured.slot = (uint8_t)slot;
	e.measured.finite = true;
	e.measured.sketch = sketch;
	memcpy(e.measured.distance2, d->distance2, sizeof d->distance2);
	e.measured.rounding2 = d->rounding2;
	if (slot == SLOT_STAGING && code == 0 && sketch && d->notes) {
		e.measured.found = d->found;
		e.measured.size = d->lattice.size;
		e.measured.n_scales = (uint16_t)scales_count(d->n_total);
	}
	if (slot == SLOT_STAGING && d->format >= CONVERT_WORDS) {
		e.measured.blocks = lattice_blocks(d->n_total);
		e.measured.wrapped = d->wrapped;
	}
	driver__event(d, e);
}

/* The largest of some numbers, as scales are kept. */
static void join(int8_t *scale, const float *x, size_t n, float k)
{
	float most = 0;
	for (size_t i = 0; i < n; i++)
		most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
	int8_t s = scales_of(k * most);
	*scale = s > *scale ? s : *scale;
}

/* What an exchange of numbers says about scales: y and the difference from ours, of a piece. */
static void note_scales(
        struct driver *d, const float *ours, const float *difference, size_t at, size_t n)
{
	int shift = scales_shift(d->n_total);
	size_t k;
	for (size_t i = 0; i < n; i += k) {
		size_t run = (at + i) / SCALES_BLOCK >> shift;
		k = n - i < SCALES_BLOCK ? n - i : SCALES_BLOCK;
		join(&d->found[run], difference + i, k, 1.25f);
		join(&d->lattice.size[run], ours + i, k, 1);
	}
}

/* Of a lattice only differences are known. */
static void sketch_packed(struct driver *d)
{
	size_t n = d->c.learner->info.n_train;
	float y[CHUNK];
	d->heard = d->own;
	for (size_t at = 0; at < n; at += CHUNK) {
		size_t k = n - at < CHUNK ? n - at : CHUNK;
		lattice_unpack(&d->lattice.l, y, (const uint8_t *)d->staging, at, k);
		sketch_add(&d->heard, y, at, k);
	}
}

/* What came is kept as a difference from our own snapshot, which is kept as it travels. */
static void on_staging_work(uv_work_t *w)
{
	struct driver *d = w->data;
	const struct convert *c = convert_best();
	size_t n = d->n_total, train = d->c.learner->info.n_train, word;
	const uint8_t *ours = d->snapshot;
	float y[CHUNK];
	if (d->format >= CONVERT_WORDS) {
		sketch_packed(d);
		return;
	}
	word = convert_word(d->format);
	memset(&d->heard, 0, sizeof d->heard);
	memset(d->found, SCALES_LEAST, sizeof d->found);
	memset(d->lattice.size, SCALES_LEAST, sizeof d->lattice.size);
	for (size_t at = 0; at < n; at += CHUNK) {
		size_t k = n - at < CHUNK ? n - at : CHUNK;
		struct convert_sums sums = {0};
		c->take(d->format, y, ours + at * word, NULL, k, TAKE_WORDS, &sums);
		if (d->notes)
			note_scales(d, y, d->staging + at, at, k);
		c->add(y, d->staging + at, 1, k);
		if (at < train)
			sketch_add(&d->heard, y, at, k < train - at ? k : train - at);
	}
}

static void on_staging_worked(uv_work_t *w, int status)
{
	struct driver *d = w->data;
	d->staging_busy = false;
	measured(d, SLOT_STAGING, 0, status == 0 ? &d->heard : NULL);
}

static void on_fetched_work(uv_work_t *w)
{
	struct driver *d = w->data;
	memset(&d->fetched_of, 0, sizeof d->fetched_of);
	sketch_add(&d->fetched_of, d->fetched, 0, d->c.learner->info.n_train);
}

static void on_fetched_worked(uv_work_t *w, int status)
{
	struct driver *d = w->data;
	d->fetched_busy = false;
	measured(d, SLOT_FETCHED, 0, status == 0 ? &d->fetched_of : NULL);
}

static void measure(struct driver *d, enum flock_slot slot)
{
	if (slot == SLOT_FETCHED) {
		d->fetched_work.data = d;
		d->fetched_busy = uv_queue_work(d->c.loop, &d->fetched_work, on_fetched_work,
		                          on_fetched_worked) == 0;
		if (!d->fetched_busy)
			measured(d, slot, 0, NULL);
	} else if (d->c.learner->info.measures) {
		d->measuring = learner_measure(d->c.learner, d->staging, &d->measure);
		if (!d->measuring)
			measured(d, slot, ERR_BUSY, NULL);
	} else {
		d->staging_work.data = d;
		d->staging_busy = uv_queue_work(d->c.loop, &d->staging_work, on_staging_work,
		                          on_staging_worked) == 0;
		if (!d->staging_busy)
			measured(d, slot, 0, NULL);
	}
}

static void on_measured(void *arg)
{
	struct driver *d = arg;
	struct flock_event e = {.kind = FLOCK_EVENT_MEASURED};
	d->measuring = false;
	e.measured.slot = SLOT_STAGING;
	e.measured.finite = d->measure.finite;
	memcpy(e.measured.distance2, d->measure.group2, sizeof d->measure.group2);
	d->heard = d->own; /* of our snapshot, as it travelled */
	for (int i = 0; i < SKETCH_BUCKETS; i++)
		d->heard.bucket[i] += d->measure.sketch.bucket[i];
	e.measured.sketch = &d->heard;
	driver__event(d, e);
}

/* ---- answers */

static void on_steps(void *arg, const struct learner_step *s, int n)
{
	struct driver *d = arg;
	struct flock_trained list[STEPS];
	uint64_t now = uv_now(d->c.loop);
	while (n > 0) {
		int k = n < STEPS ? n : STEPS;
		for (int i = 0; i < k; i++)
			list[i] = (struct flock_trained){.step = s[i].r.step,
			        .samples = s[i].r.samples,
			        .loss = s[i].r.loss,
			        .lr = s[i].r.lr,
			        .grad_norm = s[i].r.grad_norm,
			        .layer_norms = s[i].layer_norms,
			        .moved = s[i].moved,
			        .batch = s[i].batch,
			        .noise = s[i].noise,
			        .signal = s[i].signal,
			        .no_loss = s[i].no_loss};
		struct flock_event e = {.kind = FLOCK_EVENT_STEPS};
		e.steps.list = list;
		e.steps.n = k;
		driver__event(d, e);
		s += k;
		n -= k;
	}
	if (now - d->rate_ms < 2000)
		return;
	uint64_t samples = s[-1].r.samples;
	d->samples_per_s = d->rate_ms ? 1000.0 * (double)(samples - d->rate_samples) /
	                                        (double)(now - d->rate_ms)
	                              : 0;
	d->rate_ms = now;
	d->rate_samples = samples;
}

static void on_snapshot(void *arg, uint64_t step)
{
	struct driver *d = arg;
	struct flock_event e = {.kind = FLOCK_EVENT_SNAPSHOT};
	e.snapshot.step = step;
	e.snapshot.sketch = d->sketch_asked ? &d->own : NULL;
	driver__event(d, e);
}

static void on_applied(void *arg, uint64_t step)
{
	driver__event(arg, (struct flock_event){.kind = FLOCK_EVENT_APPLIED, .applied_step = step});
}

static void on_state(void *arg, const struct learner_state *s)
{
	struct flock_event e = {.kind = FLOCK_EVENT_STATE};
	e.state = (struct flock_state){.step = s->step,
	        .samples = s->samples,
	        .clock = s->clock,
	        .optim_steps = s->optim_steps,
	        .optimizer = s->optimizer,
	        .vectors = s->vectors,
	        .batch = s->batch,
	        .noise = s->noise,
	        .signal = s->signal};
	driver__event(arg, e);
}

static void on_refused(void *arg, enum learner_refusal what, const struct err *e)
{
	log_limited(LOG_WARN, "%s: %s", what == LEARNER_NO_SNAPSHOT ? "no exchange" : "no donation",
	        e->msg);
	driver__event(arg, (struct flock_event){.kind = FLOCK_EVENT_REFUSED,
	                           .refused = what == LEARNER_NO_SNAPSHOT ? FLOCK_DO_SNAPSHOT
	                                                                  : FLOCK_DO_TAKE_STATE});
}

static void on_tried(void *arg, const struct err *e)
{
	const struct trainer_trial *t = &((struct driver *)arg)->trial.t;
	struct flock_event x = {.kind = FLOCK_EVENT_TRIED, .code = e->code};
	if (e->code)
		log_warn("join: %s", e->msg);
	x.tried = (struct flock_trial){
	        .loss = t->loss, .own = t->own, .initial = t->initial, .test = t->test};
	driver__event(arg, x);
}

static void on_adopted(void *arg, const struct err *e)
{
	if (e->code)
		log_limited(LOG_WARN, "join: %s", e->msg);
	driver__event(arg, (struct flock_event){.kind = FLOCK_EVENT_ADOPTED, .code = e->code});
}

static void on_saved(void *arg, const char *path, uint64_t step, const struct err *e)
{
	struct flock_view now;
	flock_view(((struct driver *)arg)->core, &now);
	if (e->code)
		log_warn("%s%s", e->msg,
		        now.phase >= FLOCK_FINISHED
		                ? ""
		                : ": training goes on, the next checkpoint may succeed");
	else
		log_debug("checkpoint %s", path);
	driver__event(arg, (struct flock_event){
	                           .kind = FLOCK_EVENT_SAVED, .code = e->code, .saved_step = step});
}

static void on_exported(void *arg, const char *path, const struct err *e)
{
	if (e->code)
		log_warn("%s", e->msg);
	else
		log_info("weights: %s", path);
	driver__event(arg, (struct flock_event){.kind = FLOCK_EVENT_EXPORTED, .code = e->code});
}

static void tell_eval(const struct driver *d, const struct learner_eval *v, const char *what,
        const struct eval_result *r)
{
	log_info("epoch %.2f  step %llu  %s: loss %.4f  accuracy %.2f%% of %lld",
	        (double)v->clock * d->c.config->train.epochs / (double)d->c.core.manifest.total,
	        (unsigned long long)v->step, what, r->loss,
	        100.0 * (double)r->correct / (double)r->count, (long long)r->count);
}

static void on_eval(void *arg, const struct learner_eval *v, const struct err *e)
{
	struct driver *d = arg;
	struct flock_event x = {.kind = FLOCK_EVENT_EVALUATED, .code = e->code};
	struct flock_view now;
	flock_view(d->core, &now);
	bool local = !now.rounds_over;
	if (e->code)
		log_warn("evaluation: %s", e->msg);
	if (e->code == 0 && v->validation.count > 0) {
		tell_eval(d, v,
		        !v->asked ? "validation"
		        : local   ? "local model, validation"
		                  : "merged model, validation",
		        &v->validation);
		d->validation = *v;
		d->has_validation = true;
	}
	if (e->code == 0 && v->r.count > 0)
		tell_eval(d, v, !v->asked ? "test" : local ? "local model" : "merged model", &v->r);
	x.eval = (struct flock_eval){.loss = v->r.loss,
	        .correct = v->r.correct,
	        .count = v->r.count,
	        .step = v->step,
	        .clock = v->clock,
	        .whole = v->whole,
	        .asked = v->asked,
	        .seconds = v->seconds};
	driver__event(d, x);
}

static void on_done(void *arg, uint64_t clock)
{
	struct driver *d = arg;
	struct flock_event e = {.kind = FLOCK_EVENT_DONE};
	e.done.clock = clock;
	e.done.stopped_early = clock < d->c.core.manifest.total;
	driver__event(d, e);
}

/* Of a device that has failed nothing is given any more: what is measured is answered here. */
static void end_measuring(struct driver *d)
{
	if (d->measuring)
		measured(d, SLOT_STAGING, ERR_CANCELLED, NULL);
	d->measuring = false;
}

static void on_failed(void *arg, const struct err *e)
{
	struct driver *d = arg;
	struct flock_view now;
	flock_view(d->core, &now);
	bool news = now.phase != FLOCK_LEAVING;
	if (news)
		log_error("training failed: %s", e->msg);
	if (news && e->code == ERR_NONFINITE)
		log_error("try a lower --lr, a longer --warmup-epochs, or --clip 1");
	end_measuring(d);
	driver__event(d, (struct flock_event){.kind = FLOCK_EVENT_FAILED, .code = e->code});
}

static void on_stopped(void *arg)
{
	struct driver *d = arg;
	end_measuring(d);
	driver__event(d, (struct flock_event){.kind = FLOCK_EVENT_STOPPED});
}

/* ---- requests */

static bool take_state(struct driver *d)
{
	if (!d->donated)
		d->donated = convert_vector(d->vectors * d->n_total);
	return d->donated && learner_take_state(d->c.learner, d->donated);
}

static bool adopt(struct driver *d, const struct flock_state *s)
{
	struct learner_state l = {.step = s->step,
	        .samples = s->samples,
	        .clock = s->clock,
	        .optim_steps = s->optim_steps,
	        .optimizer = s->optimizer,
	        .vectors = s->vectors,
	        .batch = s->batch,
	        .noise = s->noise,
	        .signal = s->signal};
	return learner_adopt(d->c.learner, d->fetched, &l);
}

static bool snapshot(struct driver *d, const struct flock_action *a)
{
	/* A device adds it to the sketch of what comes. */
	bool sketch = a->snapshot.sketch || d->c.learner->info.measures;
	d->sketch_asked = a->snapshot.sketch;
	if (a->snapshot.format >= CONVERT_WORDS) {
		enum convert_format f = (enum convert_format)a->snapshot.format;
		memcpy(d->scales, a->snapshot.scales, a->snapshot.n_scales);
		d->lattice.l = (struct lattice){.bits = convert_rows[f].bits,
		        .count = d->n_total,
		        .shift = scales_shift(d->n_total),
		        .scale = d->scales};
		return learner_pack(d->c.learner, d->snapshot, f, &d->lattice, &d->own);
	}
	return learner_snapshot(d->c.learner, d->snapshot, (enum convert_format)a->snapshot.format,
	        sketch ? &d->own : NULL);
}

static bool apply(struct driver *d, const struct flock_action *a)
{
	if (d->format >= CONVERT_WORDS)
		return learner_apply_packed(d->c.learner, (const uint8_t *)d->staging, &d->lattice,
		        a->apply.k, a->apply.n);
	return learner_apply(d->c.learner, d->staging, a->apply.k, a->apply.n);
}

static void release(struct driver *d, enum flock_slot slot)
{
	float **p = slot == SLOT_DONATED ? &d->donated : &d->fetched;
	free(*p);
	*p = NULL;
}

void driver__learner_action(struct driver *d, const struct flock_action *a)
{
	struct learner *l = d->c.learner;
	bool taken = true;
	switch (a->kind) {
	case FLOCK_DO_SNAPSHOT:
		taken = snapshot(d, a);
		break;
	case FLOCK_DO_MEASURE:
		d->notes = a->slot == SLOT_STAGING ? a->scales && l->info.packs : d->notes;
		measure(d, (enum flock_slot)a->slot);
		break;
	case FLOCK_DO_APPLY:
		/* Cannot be taken back; the learner's queue has a place for it that no other
		 * request takes. */
		if (!apply(d, a))
			abort();
		break;
	case FLOCK_DO_TAKE_STATE:
		taken = take_state(d);
		break;
	case FLOCK_DO_TRY:
		taken = learner_try(l, d->fetched, &d->trial);
		break;
	case FLOCK_DO_ADOPT:
		taken = adopt(d, &a->adopt);
		break;
	case FLOCK_DO_RESTORE:
		(void)!learner_restore(l);
		break;
	case FLOCK_DO_EVALUATE:
		taken = learner_evaluate(l, true);
		break;
	case FLOCK_DO_SAVE:
		taken = learner_save(l, a->wished);
		break;
	case FLOCK_DO_EXPORT:
		taken = learner_export(l, "final.safetensors");
		break;
	case FLOCK_DO_STOP:
		learner_stop(l);
		break;
	case FLOCK_DO_TRAIN:
		learner_train(l);
		break;
	case FLOCK_DO_PAUSE:
		learner_pause(l);
		break;
	case FLOCK_DO_CLOCK:
		learner_agents(l, a->agents);
		learner_others(l, a->others);
		break;
	case FLOCK_DO_RELEASE:
		release(d, (enum flock_slot)a->slot);
		break;
	default:
		break;
	}
	if (!taken)
		refused(d, a);
}

/* ---- beginning and end */

int driver__open_learner(struct driver *d, struct err *e)
{
	d->n_total = d->c.learner->info.n_total;
	d->vectors = (size_t)d->c.learner->info.vectors;
	/* A lattice's whole blocks take more than the numbers of a tiny model. */
	size_t bytes = convert_bytes(CONVERT_FP32, d->n_total);
	if (convert_bytes(CONVERT_MOD8, d->n_total) > bytes)
		bytes = convert_bytes(CONVERT_MOD8, d->n_total);
	d->snapshot = learner_buffer(d->c.learner, bytes);
	d->staging = learner_buffer(d->c.learner, bytes);
	if (!d->snapshot || !d->staging)
		return err_set(
		        e, ERR_NOMEM, "no memory for exchanges of %zu parameters", d->n_total);
	return 0;
}

void driver__begin_learner(struct driver *d)
{
	d->c.learner->callbacks = (struct learner_callbacks){.arg = d,
	        .steps_cb = on_steps,
	        .snapshot_cb = on_snapshot,
	        .measured_cb = on_measured,
	        .applied_cb = on_applied,
	        .state_cb = on_state,
	        .refused_cb = on_refused,
	        .tried_cb = on_tried,
	        .adopted_cb = on_adopted,
	        .saved_cb = on_saved,
	        .eval_cb = on_eval,
	        .exported_cb = on_exported,
	        .done_cb = on_done,
	        .failed_cb = on_failed,
	        .stopped_cb = on_stopped};
	learner_begin(d->c.learner);
}

void driver__close_learner(struct driver *d)
{
	if (!d->c.learner)
		return;
	learner_buffer_free(d->c.learner, d->snapshot);
	learner_buffer_free(d->c.learner, d->staging);
	free(d->donated);
	free(d->fetched);
}

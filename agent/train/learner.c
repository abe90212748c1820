/* SPDX-License-Identifier: MIT */
/* The loop's side of a learner on a thread: what the loop asks for, and what it hears.
 *
 * The happy path: learner_open starts the thread and waits for its trainer, learner_begin makes the
 * wake-up. A request is copied into a queue under a lock that nobody holds for longer than a copy;
 * the thread finds it between two steps and puts it, with its outcome, into the queue of answers.
 * One wake-up stands for any number of steps and answers, so each takes all there is: first the
 * steps, then the answers that were there before them, so that whoever hears of a snapshot of step
 * 70 has heard of step 70.
 *
 * No answer can be lost: there is room for one to every request that may be outstanding and for one
 * of each kind that comes unasked. What can fail is told in the callbacks; here only learner_open
 * can. */
#include "agent/base/thread.h"
#include "agent/train/learner_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define HEAR_AT_ONCE 64 /* steps handed to steps_cb in one call, at most */

void learner_groups_make(struct learner_groups *g, const size_t *weights, int n, size_t n_train)
{
	size_t end = 0, n_weights = 0;

	for (int i = 0; i < n; i++)
		n_weights += weights[i];
	const int most = n_train > n_weights ? EXCHANGE_GROUPS_MAX - 1 : EXCHANGE_GROUPS_MAX;
	const int groups = n < most ? n : most;

	g->n = 0;
	for (int i = 0; i < n; i++) {
		end += weights[i];
		/* Group g ends with weight number (g + 1)·n/groups. */
		if (i + 1 == (g->n + 1) * n / groups)
			g->end[g->n++] = end;
	}
	assert(g->n == groups && end == n_weights);
	if (n_train > n_weights)
		g->end[g->n++] = n_train;
}

/* Weight tensors lie in [0, n_decay) in the order of the views, all else that is trained behind. */
void learner_groups_of(struct learner_groups *g, const struct arch *a)
{
	size_t *weights = malloc(((size_t)a->n_views + 1) * sizeof *weights), end = 0;
	int n = 0;

	assert(weights != NULL); /* the views themselves are larger */
	for (int i = 0; i < a->n_views; i++) {
		const struct param_view *v = &a->views[i];

		if (v->group != PARAM_WEIGHT)
			continue;
		assert(v->offset == end);
		end += v->count;
		weights[n++] = v->count;
	}
	assert(end == a->n_decay);
	learner_groups_make(g, weights, n, a->n_train);
	free(weights);
}

static struct learner_thread *of(struct learner *base)
{
	return (struct learner_thread *)base;
}

static void poke(struct learner_thread *l)
{
	pthread_mutex_lock(&l->lock);
	l->poked = true;
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
}

struct trainer *learner_trainer(struct learner *base)
{
	return of(base)->trainer;
}

static void *buffer(struct learner *base, size_t bytes)
{
	struct device *d = of(base)->trainer->dev;

	assert(!of(base)->begun);
	if (d->backend->host_alloc != NULL)
		return d->backend->host_alloc(d, bytes);
	return convert_vector((bytes + sizeof(float) - 1) / sizeof(float));
}

static void buffer_free(struct learner *base, void *p)
{
	struct device *d = of(base)->trainer->dev;

	assert(of(base)->joined || !of(base)->begun);
	if (d->backend->host_alloc == NULL)
		free(p);
	else if (p != NULL)
		d->backend->host_release(d, p);
}

/* The next steps that nobody has heard of; fewer than max only when there are no more. */
static int hear(struct learner_thread *l, struct learner_step *out, int max)
{
	struct learner_ring *r = &l->ring;
	const uint64_t made = atomic_load_explicit(&r->made, memory_order_acquire);
	uint64_t word[LEARNER_STEP_WORDS];
	int n = 0;

	if (made - r->heard > LEARNER_STEPS) {
		l->base.steps_dropped += made - r->heard - LEARNER_STEPS;
		r->heard = made - LEARNER_STEPS;
	}
	while (r->heard < made && n < max) {
		_Atomic uint64_t *from = r->word[r->heard % LEARNER_STEPS];

		/* A word that is newer than it should be brings the `begun` of its writer along. */
		for (size_t i = 0; i < LEARNER_STEP_WORDS; i++)
			word[i] = atomic_load_explicit(&from[i], memory_order_acquire);
		if (atomic_load_explicit(&r->begun, memory_order_relaxed) - r->heard++ >
		        LEARNER_STEPS)
			l->base.steps_dropped++;
		else
			memcpy(&out[n++], word, sizeof *out);
	}
	return n;
}

static void tell_steps(struct learner_thread *l)
{
	const struct learner_callbacks *c = &l->base.callbacks;
	struct learner_step steps[HEAR_AT_ONCE];
	int n;

	do {
		n = hear(l, steps, HEAR_AT_ONCE);
		if (n > 0 && c->steps_cb != NULL)
			c->steps_cb(c->arg, steps, n);
	} while (n == HEAR_AT_ONCE);
}

static void tell_more(struct learner_thread *l, const struct learner_job *j)
{
	const struct learner_callbacks *c = &l->base.callbacks;
	char path[RUN_DIR_PATH];

	if (j->what == LEARNER_SAVE && c->saved_cb != NULL)
		c->saved_cb(c->arg, run_dir_checkpoint(l->c.dir, j->step, path), j->step, &j->err);
	else if (j->what == LEARNER_EXPORT && c->exported_cb != NULL)
		c->exported_cb(c->arg, run_dir_file(l->c.dir, j->name, path), &j->err);
	else if (j->what == LEARNER_EVALUATE && c->eval_cb != NULL)
		c->eval_cb(c->arg, &j->eval, &j->err);
	else if (j->what == LEARNER_DONE && c->done_cb != NULL)
		c->done_cb(c->arg, j->clock);
	else if (j->what == LEARNER_FAILED && c->failed_cb != NULL)
		c->failed_cb(c->arg, &j->err);
}

static void tell(struct learner_thread *l, const struct learner_job *j)
{
	const struct learner_callbacks *c = &l->base.callbacks;

	if (j->asked)
		l->outstanding--;
	if (j->what == LEARNER_SNAPSHOT && c->snapshot_cb != NULL)
		c->snapshot_cb(c->arg, j->step);
	else if (j->what == LEARNER_MEASURE && c->measured_cb != NULL)
		c->measured_cb(c->arg);
	else if (j->what == LEARNER_APPLY && c->applied_cb != NULL)
		c->applied_cb(c->arg, j->step);
	else if (j->what == LEARNER_GET && c->state_cb != NULL)
		c->state_cb(c->arg, &j->state);
	else if (j->what == LEARNER_TRY && c->tried_cb != NULL)
		c->tried_cb(c->arg, &j->err);
	else if (j->what == LEARNER_ADOPT && c->adopted_cb != NULL)
		c->adopted_cb(c->arg, &j->err);
	else
		tell_more(l, j);
}

static void on_closed(uv_handle_t *h)
{
	struct learner_thread *l = h->data;

	if (l->base.callbacks.stopped_cb != NULL)
		l->base.callbacks.stopped_cb(l->base.callbacks.arg);
}

static void on_wake(uv_async_t *h)
{
	struct learner_thread *l = h->data;
	const bool ended = atomic_load(&l->ended); /* before the rest: then that is the last */
	struct learner_job j;
	int n;

	pthread_mutex_lock(&l->lock);
	n = l->answers.n;
	pthread_mutex_unlock(&l->lock);
	tell_steps(l);
	for (; n > 0; n--) {
		pthread_mutex_lock(&l->lock);
		learner__pop(&l->answers, &j);
		pthread_mutex_unlock(&l->lock);
		tell(l, &j);
	}
	if (ended) {
		pthread_join(l->thread, NULL);
		l->joined = true;
		uv_close((uv_handle_t *)&l->wake, on_closed);
	}
}

static void begin(struct learner *base)
{
	struct learner_thread *l = of(base);
	/* Cannot fail: the loop has had an eventfd since uv_loop_init, for its own pool. */
	int rc = uv_async_init(l->c.loop, &l->wake, on_wake);

	assert(rc == 0 && !l->begun);
	l->wake.data = l;
	pthread_mutex_lock(&l->lock);
	l->begun = true;
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
}

static void train(struct learner *base)
{
	if (of(base)->stopping)
		return;
	atomic_store(&of(base)->train, true);
	poke(of(base));
}

static void pause_training(struct learner *base)
{
	atomic_store(&of(base)->train, false);
}

static void others(struct learner *base, uint64_t samples)
{
	atomic_store(&of(base)->others, samples);
	poke(of(base));
}

static void agents(struct learner *base, uint64_t n)
{
	atomic_store(&of(base)->agents, n);
}

/* ---- requests */

/* How many may be outstanding for one more: what two agents have agreed to add is not refused. */
static int room(enum learner_what what)
{
	return what == LEARNER_APPLY ? LEARNER_REQUESTS : LEARNER_REQUESTS - 1;
}

static bool ask(struct learner *base, struct learner_job *j)
{
	struct learner_thread *l = of(base);

	if (l->stopping || l->outstanding >= room(j->what))
		return false;
	j->asked = true;
	l->outstanding++;
	pthread_mutex_lock(&l->lock);
	learner__push(&l->requests, j);
	atomic_store(&l->asked, true);
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
	return true;
}

static bool snapshot(struct learner *l, void *to, enum convert_format format, struct sketch *sketch)
{
	return ask(
	        l, &(struct learner_job){
	                   .what = LEARNER_SNAPSHOT, .to = to, .format = format, .sketch = sketch});
}

static bool measure(struct learner *l, const float *difference, struct learner_measure *to)
{
	assert(l->info.measures);
	return ask(l,
	        &(struct learner_job){.what = LEARNER_MEASURE, .from = difference, .measure = to});
}

static bool apply(struct learner *l, const float *difference, const float *k, int n_groups)
{
	struct learner_job j = {.what = LEARNER_APPLY, .from = difference};

	assert(n_groups == l->info.groups.n);
	memcpy(j.k, k, (size_t)n_groups * sizeof *k);
	return ask(l, &j);
}

static bool pack(struct learner *l, void *to, enum convert_format format,
        struct learner_lattice *lattice, struct sketch *sketch)
{
	assert(l->info.packs && format >= CONVERT_WORDS);
	return ask(l, &(struct learner_job){.what = LEARNER_SNAPSHOT,
	                      .to = to,
	                      .format = format,
	                      .pack = lattice,
	                      .sketch = sketch});
}

static bool apply_packed(struct learner *l, const uint8_t *difference,
        const struct learner_lattice *lattice, const float *k, int n_groups)
{
	struct learner_job j = {.what = LEARNER_APPLY, .difference = difference, .packed = lattice};

	assert(l->info.packs && n_groups == l->info.groups.n);
	memcpy(j.k, k, (size_t)n_groups * sizeof *k);
	return ask(l, &j);
}

static bool take_state(struct learner *l, float *to)
{
	return ask(l, &(struct learner_job){.what = LEARNER_GET, .to = to});
}

static bool adopt(struct learner *l, const float *from, const struct learner_state *s)
{
	return ask(l, &(struct learner_job){.what = LEARNER_ADOPT, .from = from, .state = *s});
}

static bool try(struct learner *l, const float *from, struct learner_trial *to)
{
	return ask(l, &(struct learner_job){.what = LEARNER_TRY, .from = from, .trial = to});
}

static bool restore(struct learner *l)
{
	return ask(l, &(struct learner_job){.what = LEARNER_RESTORE});
}

/* A user can ask for any number of checkpoints while a step takes its time. */
static bool save(struct learner *l, bool wished)
{
	if (wished && of(l)->outstanding >= LEARNER_REQUESTS / 2)
		return false;
	return ask(l, &(struct learner_job){.what = LEARNER_SAVE});
}

static bool evaluate(struct learner *l, bool whole)
{
	return ask(l, &(struct learner_job){.what = LEARNER_EVALUATE, .whole = whole});
}

static bool export(struct learner *l, const char *name)
{
	struct learner_job j = {.what = LEARNER_EXPORT};

	assert(strlen(name) < sizeof j.name && strchr(name, '/') == NULL);
	strcpy(j.name, name);
	return ask(l, &j);
}

/* ---- end and beginning */

static void stop(struct learner *base)
{
	struct learner_thread *l = of(base);

	assert(l->begun);
	if (l->stopping)
		return;
	l->stopping = true;
	atomic_store(&l->train, false);
	atomic_store(&l->stop, true);
	poke(l);
}

static void close_learner(struct learner *base)
{
	struct learner_thread *l = of(base);

	assert(l->joined || !l->begun);
	if (!l->joined) {
		atomic_store(&l->stop, true);
		poke(l);
		pthread_join(l->thread, NULL);
	}
	if (l->trainer != NULL)
		learner__keep_close(l);
	free(l->before);
	trainer_free(l->trainer);
	pthread_cond_destroy(&l->changed);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

static const struct learner_ops ops = {
        .buffer = buffer,
        .buffer_free = buffer_free,
        .begin = begin,
        .train = train,
        .pause = pause_training,
        .others = others,
        .agents = agents,
        .snapshot = snapshot,
        .measure = measure,
        .apply = apply,
        .pack = pack,
        .apply_packed = apply_packed,
        .take_state = take_state,
        .try = try,
        .adopt = adopt,
        .restore = restore,
        .save = save,
        .evaluate = evaluate,
        .export = export,
        .stop = stop,
        .free = close_learner,
};

static void fill_info(struct learner_info *i, const struct trainer *t)
{
	const struct arch *a = &t->arch;

	*i = (struct learner_info){
	        .n_total = a->n_total,
	        .n_train = a->n_train,
	        .vectors = trainer_vectors(t),
	        .total = t->schedule.total,
	        .evaluates = trainer_evaluates(t),
	        /* Statistics have no blocks of their own yet. */
	        .packs = t->dev->backend->stage == NULL && a->n_train == a->n_total,
	        .measures = t->dev->backend->stage != NULL,
	        .model = a->preset[0] != '\0' ? a->preset : "own layers",
	        .device = t->dev->text,
	        .context = a->tokens ? (uint64_t)a->positions : 0,
	        .files = dataset_files(&t->train_data) + dataset_files(&t->test_data),
	};
	learner_groups_of(&i->groups, a);
}

int learner_open(struct learner **out, const struct learner_config *c, enum trainer_part *part,
        struct err *e)
{
	struct learner_thread *l = calloc(1, sizeof *l);

	*out = NULL;
	if (part != NULL)
		*part = TRAINER_DEVICE;
	if (l == NULL)
		return err_set(e, ERR_NOMEM, "no memory for a learner");
	l->base.ops = &ops;
	l->c = *c;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->changed, NULL);
	if (thread_start(&l->thread, learner__thread, l) != 0) {
		l->joined = true;
		close_learner(&l->base);
		return err_set(e, ERR_SYSTEM, "no thread to train on");
	}
	pthread_mutex_lock(&l->lock);
	while (!l->opened)
		pthread_cond_wait(&l->changed, &l->lock);
	pthread_mutex_unlock(&l->lock);
	if (l->open_err.code != 0) {
		int rc = l->open_err.code;

		if (part != NULL)
			*part = l->part;
		if (e != NULL)
			*e = l->open_err;
		close_learner(&l->base);
		return rc;
	}
	fill_info(&l->base.info, l->trainer);
	*out = &l->base;
	return 0;
}

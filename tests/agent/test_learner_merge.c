/* SPDX-License-Identifier: MIT */
/* A learner on a device that copies a merge up by itself and adds it with the next update: the
 * parameters are those that adding it behind that step gives, bit by bit, whoever looks first finds
 * it added, and answers keep their order. And it measures what is to be added, by itself or, where
 * it has no room, on the learner's thread. The device here is the plain one with another table. */
#include "tests/agent/learner_bed.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

static struct backend table, plain;

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	const float *host;
	size_t n;
	bool busy, broken;     /* what stage says */
	bool hold, held;       /* an update is to wait, and does; under the lock */
	atomic_bool nonfinite; /* the next gradient's norm */
	struct learner *pause; /* when something is staged */
	int staged, with_step; /* calls; updates that added */
	int added;             /* calls of add */
	int allocated;
} gpu = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Sums that the host would not make of it: a unit more, so that one sees whose they are. */
static void measure(const struct device_stage *s)
{
	struct sketch sketch = {{0}};
	size_t at = 0;

	for (int g = 0; g < s->n_groups; g++) {
		s->squares[g] = 1;
		for (; at < s->end[g]; at++)
			s->squares[g] += (double)s->x[at] * (double)s->x[at];
	}
	sketch_add(&sketch, s->x, 0, s->n_sketch);
	memcpy(s->sketch, sketch.bucket, sizeof sketch.bucket);
	s->done_cb(s->arg, 0);
}

static int stage(struct device *d, const struct device_stage *s, struct err *e)
{
	(void)d;
	gpu.staged++;
	if (gpu.broken)
		return err_set(e, ERR_DEVICE, "it fell off the bus");
	if (gpu.busy)
		return err_set(e, ERR_BUSY, "one at a time");
	gpu.host = s->x;
	gpu.n = s->n;
	if (s->done_cb != NULL)
		measure(s);
	if (gpu.pause != NULL)
		learner_pause(gpu.pause);
	return 0;
}

static int sgd(struct device *d, float *w, float *m, const float *g, size_t n,
        const struct optim_args *a, struct err *e)
{
	struct optim_args bare = *a;

	pthread_mutex_lock(&gpu.lock);
	while (gpu.hold) {
		gpu.held = true;
		pthread_cond_broadcast(&gpu.changed);
		pthread_cond_wait(&gpu.changed, &gpu.lock);
	}
	gpu.held = false;
	pthread_mutex_unlock(&gpu.lock);
	bare.add = NULL;
	int rc = plain.sgd(d, w, m, g, n, &bare, e);

	if (rc != 0 || a->add == NULL)
		return rc;
	assert_true(a->add >= gpu.host && a->add + n <= gpu.host + gpu.n);
	gpu.with_step++;
	return plain.add(d, w, a->add, n, a->add_k, e);
}

static int add(struct device *d, float *x, const float *host, size_t n, float k, struct err *e)
{
	gpu.added++;
	return plain.add(d, x, host, n, k, e);
}

static int sum_squares(struct device *d, const float *x, size_t n, double *out, struct err *e)
{
	int rc = plain.sum_squares(d, x, n, out, e);

	if (atomic_load(&gpu.nonfinite))
		*out = NAN;
	return rc;
}

static void *host_alloc(struct device *d, size_t bytes)
{
	(void)d;
	gpu.allocated++;
	return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void host_release(struct device *d, void *p)
{
	(void)d;
	assert_non_null(p);
	gpu.allocated--;
	free(p);
}

struct merge {
	struct bed b;
	float *difference; /* of learner_buffer */
	float *p;          /* the same: a snapshot, or a state */
	float k[EXCHANGE_GROUPS_MAX];
};

static void merge_begin(struct merge *m, void **state, int64_t stop_after)
{
	struct rng r;

	bed_config(&m->b, *state);
	m->b.config.run.stop_after = stop_after;
	m->b.config.run.eval_epochs = 1e6; /* only answers that were asked for */
	bed_open(&m->b);
	struct device *d = learner_trainer(m->b.l)->dev;

	plain = table = *d->backend;
	table.stage = stage;
	table.sgd = sgd;
	table.add = add;
	table.sum_squares = sum_squares;
	table.host_alloc = host_alloc;
	table.host_release = host_release;
	d->backend = &table;
	m->b.l->info.measures = true; /* the device was another one when it was opened */
	gpu.host = NULL;
	gpu.busy = gpu.broken = gpu.hold = gpu.held = false;
	atomic_store(&gpu.nonfinite, false);
	gpu.pause = NULL;
	gpu.staged = gpu.with_step = gpu.added = gpu.allocated = 0;
	m->difference = learner_buffer(m->b.l, m->b.n * sizeof(float));
	m->p = learner_buffer(m->b.l, 2 * m->b.n * sizeof(float));
	assert_int_equal(gpu.allocated, 2);
	rng_seed(&r, 5, 5);
	for (size_t i = 0; i < m->b.n; i++)
		m->difference[i] = 0.1f * rng_f32(&r) - 0.05f;
	for (int g = 0; g < m->b.groups; g++)
		m->k[g] = 0.5f / (float)(g + 1);
	learner_begin(m->b.l);
}

/* Stops it; its memory goes before it does. */
static void merge_end(struct merge *m)
{
	struct bed *b = &m->b;

	learner_stop(b->l);
	while (!b->stopped)
		uv_run(&b->loop, UV_RUN_ONCE);
	learner_buffer_free(b->l, m->difference);
	learner_buffer_free(b->l, m->p);
	learner_buffer_free(b->l, NULL);
	assert_int_equal(gpu.allocated, 0);
	bed_close(b);
}

/* On: returns when a step stands still in its update. */
static void hold(bool on)
{
	pthread_mutex_lock(&gpu.lock);
	gpu.hold = on;
	pthread_cond_broadcast(&gpu.changed);
	while (on && !gpu.held)
		pthread_cond_wait(&gpu.changed, &gpu.lock);
	pthread_mutex_unlock(&gpu.lock);
}

static void apply(struct merge *m)
{
	assert_true(learner_apply(m->b.l, m->difference, m->k, m->b.groups));
}

/* What a trainer has that added it behind that step, by hand. */
static void assert_added(const struct merge *m, uint64_t behind, uint64_t step, int times)
{
	struct trainer *t = by_hand(&m->b.config);
	const struct learner_groups *g = &m->b.l->info.groups;
	struct err e;

	step_to(t, behind);
	for (int i = 0; i < times; i++)
		assert_int_equal(trainer_add(t, m->difference, g->end, m->k, g->n, &e), 0);
	step_to(t, step);
	assert_params(t, m->p);
	trainer_free(t);
}

static void snapshot(struct merge *m)
{
	const int n = m->b.snapshots;

	assert_true(learner_snapshot(m->b.l, m->p, CONVERT_FP32, NULL));
	await(&m->b, &m->b.snapshots, n + 1);
}

/* A step stands still in its update until all is asked for; so the requests are found together,
 * between it and the next. */
static void ask_in_a_step(struct merge *m, void (*ask)(struct merge *m))
{
	learner_train(m->b.l);
	hold(true);
	ask(m);
	hold(false);
}

static void added_with_the_next_step(void **state)
{
	struct merge m;

	merge_begin(&m, state, 0);
	ask_in_a_step(&m, apply);
	await(&m.b, &m.b.applied, 1);
	const uint64_t with = m.b.answer_step;

	assert_true(m.b.last_step >= with); /* who hears of it has heard of the step */
	learner_pause(m.b.l);
	snapshot(&m);
	assert_int_equal(gpu.staged, 1);
	assert_int_equal(gpu.with_step, m.b.groups);
	assert_int_equal(gpu.added, 0); /* this model has no statistics */
	assert_added(&m, with, m.b.answer_step, 1);
	merge_end(&m);
}

/* What is behind the last group moves by the smallest factor, in the update or behind it. */
static void the_rest_moves_by_the_least(void **state)
{
	static const size_t end[] = {7, 7, 60};
	static const float k[] = {0.5f, 0.125f, 0.25f};
	struct trainer *t, *u;
	struct merge m;
	struct err e;

	merge_begin(&m, state, 0);
	t = by_hand(&m.b.config);
	u = by_hand(&m.b.config);
	t->dev->backend = &table;
	assert_int_equal(trainer_merge(t, m.difference, end, k, 3, &e), 0);
	assert_true(trainer_merging(t));
	step_to(t, 1);
	assert_false(trainer_merging(t));
	assert_true(gpu.with_step > 0 && gpu.added == 0);
	step_to(u, 1);
	graph_get_params(u->net, m.p);
	for (size_t i = 0; i < m.b.n; i++) {
		volatile float way = (i < 7 ? k[0] : i < 60 ? k[2] : k[1]) * m.difference[i];

		m.p[i] += way; /* two roundings */
	}
	assert_params(t, m.p);
	assert_int_equal(trainer_add(u, m.difference, end, k, 3, &e), 0);
	assert_params(u, m.p);
	trainer_free(t);
	trainer_free(u);
	merge_end(&m);
}

static void busy_is_added_at_once(void **state)
{
	struct merge m;

	merge_begin(&m, state, 0);
	gpu.busy = true;
	ask_in_a_step(&m, apply);
	await(&m.b, &m.b.applied, 1);
	const uint64_t behind = m.b.answer_step;

	learner_pause(m.b.l);
	snapshot(&m);
	assert_int_equal(gpu.staged, 1);
	assert_int_equal(gpu.with_step, 0);
	assert_int_equal(gpu.added, m.b.groups);
	assert_added(&m, behind, m.b.answer_step, 1);
	merge_end(&m);
}

static void measured(struct merge *m, struct learner_measure *to)
{
	const int n = m->b.measured;

	assert_true(m->b.l->info.measures);
	memset(to, 0xff, sizeof *to);
	assert_true(learner_measure(m->b.l, m->difference, to));
	await(&m->b, &m->b.measured, n + 1);
}

/* more: of each sum. */
static void assert_measured(const struct merge *m, const struct learner_measure *got, double more)
{
	const struct learner_groups *g = &m->b.l->info.groups;
	struct sketch sketch = {{0}};
	size_t at = 0;

	assert_true(got->finite);
	for (int i = 0; i < g->n; i++) {
		double sum = more;

		for (; at < g->end[i]; at++)
			sum += (double)m->difference[at] * (double)m->difference[at];
		assert_true(fabs(got->group2[i] - sum) <= 1e-12 * sum);
	}
	sketch_add(&sketch, m->difference, 0, m->b.n);
	assert_memory_equal(&got->sketch, &sketch, sizeof sketch);
}

/* And merged from where it was measured, once. */
static void measured_by_the_device(void **state)
{
	struct learner_measure got;
	struct merge m;

	merge_begin(&m, state, 0);
	measured(&m, &got);
	assert_measured(&m, &got, 1);
	assert_int_equal(gpu.staged, 1);
	ask_in_a_step(&m, apply);
	await(&m.b, &m.b.applied, 1);
	const uint64_t with = m.b.answer_step;

	learner_pause(m.b.l);
	snapshot(&m);
	assert_int_equal(gpu.staged, 1);
	assert_int_equal(gpu.with_step, m.b.groups);
	assert_added(&m, with, m.b.answer_step, 1);
	ask_in_a_step(&m, apply);
	await(&m.b, &m.b.applied, 2);
	assert_int_equal(gpu.staged, 2);
	merge_end(&m);
}

static void measured_here(void **state)
{
	struct learner_measure got;
	struct merge m;

	merge_begin(&m, state, 0);
	gpu.busy = true;
	measured(&m, &got);
	assert_measured(&m, &got, 0);
	ask_in_a_step(&m, apply);
	await(&m.b, &m.b.applied, 1);
	assert_int_equal(gpu.with_step, 0);
	assert_int_equal(gpu.added, m.b.groups);
	merge_end(&m);
}

/* By either, whichever group it is in. */
static void measured_as_not_finite(void **state)
{
	struct learner_measure got;
	struct merge m;

	merge_begin(&m, state, 0);
	for (int i = 0; i < 4; i++) {
		float *x = &m.difference[i % 2 == 0 ? 0 : m.b.n - 1], was = *x;

		gpu.busy = i >= 2;
		*x = INFINITY;
		measured(&m, &got);
		assert_false(got.finite);
		*x = was;
	}
	merge_end(&m);
}

static void measuring_may_fail(void **state)
{
	struct learner_measure got;
	struct merge m;

	merge_begin(&m, state, 0);
	gpu.broken = true;
	assert_true(learner_measure(m.b.l, m.difference, &got));
	await(&m.b, &m.b.failed, 1);
	assert_int_equal(m.b.err.code, ERR_DEVICE);
	assert_int_equal(m.b.measured, 0);
	merge_end(&m);
}

static void nothing_is_staged_without_steps(void **state)
{
	struct merge m;

	merge_begin(&m, state, 0);
	apply(&m);
	snapshot(&m);
	assert_int_equal(m.b.applied, 1);
	assert_int_equal(gpu.staged, 0);
	assert_added(&m, 0, 0, 1);
	merge_end(&m);
}

static void apply_and_look(struct merge *m)
{
	apply(m);
	assert_true(learner_snapshot(m->b.l, m->p, CONVERT_FP32, NULL));
	apply(m);
	assert_true(learner_save(m->b.l, true));
	apply(m);
	assert_true(learner_evaluate(m->b.l, true));
	apply(m);
	assert_true(learner_export(m->b.l, "weights"));
	apply(m);
	apply(m);
}

/* Each that looks finds it added, and hears of it behind the merge's own answer. */
static void who_looks_finds_it_added(void **state)
{
	struct merge m;

	merge_begin(&m, state, 0);
	ask_in_a_step(&m, apply_and_look);
	await(&m.b, &m.b.applied, 6);
	assert_string_equal(m.b.order, "asacaeaxaa");
	assert_int_equal(gpu.staged, 6);
	assert_int_equal(gpu.with_step, m.b.groups); /* the last; the others were looked for */
	assert_int_equal(gpu.added, 5 * m.b.groups);
	merge_end(&m);
}

static void apply_twice_and_snapshot(struct merge *m)
{
	apply(m);
	apply(m);
	assert_true(learner_snapshot(m->b.l, m->p, CONVERT_FP32, NULL));
}

static void a_snapshot_finds_it_added(void **state)
{
	struct merge m;

	merge_begin(&m, state, 0);
	ask_in_a_step(&m, apply_twice_and_snapshot);
	await(&m.b, &m.b.snapshots, 1);
	assert_string_equal(m.b.order, "aas");
	assert_added(&m, m.b.answer_step, m.b.answer_step, 2);
	merge_end(&m);
}

static void apply_and_get(struct merge *m)
{
	apply(m);
	assert_true(learner_take_state(m->b.l, m->p));
}

static void a_state_finds_it_added(void **state)
{
	struct merge m;

	merge_begin(&m, state, 0);
	ask_in_a_step(&m, apply_and_get);
	await(&m.b, &m.b.states, 1);
	assert_string_equal(m.b.order, "ag");
	assert_added(&m, m.b.state.step, m.b.state.step, 1);
	assert_true(learner_adopt(m.b.l, m.p, &m.b.state));
	await(&m.b, &m.b.adopted, 1);
	assert_int_equal(m.b.err.code, 0);
	merge_end(&m);
}

static void a_pause_finds_it_added(void **state)
{
	struct merge m;

	merge_begin(&m, state, 0);
	gpu.pause = m.b.l;
	ask_in_a_step(&m, apply);
	await(&m.b, &m.b.applied, 1);
	assert_true(gpu.staged == 1 && gpu.with_step == 0);
	snapshot(&m);
	assert_added(&m, m.b.answer_step, m.b.answer_step, 1);
	merge_end(&m);
}

static void the_end_finds_it_added(void **state)
{
	struct merge m;

	merge_begin(&m, state, 1);
	ask_in_a_step(&m, apply);
	await(&m.b, &m.b.done, 1);
	assert_int_equal(m.b.applied, 1);
	assert_true(gpu.staged == 1 && gpu.with_step == 0);
	snapshot(&m);
	assert_int_equal(m.b.answer_step, 1);
	assert_added(&m, 1, 1, 1);
	merge_end(&m);
}

static void apply_and_diverge(struct merge *m)
{
	apply(m);
	atomic_store(&gpu.nonfinite, true);
}

/* The step that should have added it fails before its update. */
static void a_failed_step_has_added_it(void **state)
{
	struct merge m;

	merge_begin(&m, state, 0);
	ask_in_a_step(&m, apply_and_diverge);
	await(&m.b, &m.b.failed, 1);
	assert_int_equal(m.b.err.code, ERR_NONFINITE);
	assert_int_equal(m.b.applied, 1);
	assert_true(gpu.staged == 1 && gpu.with_step == 0);
	snapshot(&m);
	assert_added(&m, m.b.answer_step, m.b.answer_step, 1);
	merge_end(&m);
}

static void a_failed_device_ends_it(void **state)
{
	struct merge m;

	merge_begin(&m, state, 0);
	gpu.broken = true;
	ask_in_a_step(&m, apply);
	await(&m.b, &m.b.failed, 1);
	assert_int_equal(m.b.err.code, ERR_DEVICE);
	await(&m.b, &m.b.applied, 1);
	assert_true(gpu.with_step == 0 && gpu.added == 0);
	merge_end(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(added_with_the_next_step),
	        cmocka_unit_test(the_rest_moves_by_the_least),
	        cmocka_unit_test(busy_is_added_at_once),
	        cmocka_unit_test(measured_by_the_device),
	        cmocka_unit_test(measured_here),
	        cmocka_unit_test(measured_as_not_finite),
	        cmocka_unit_test(measuring_may_fail),
	        cmocka_unit_test(nothing_is_staged_without_steps),
	        cmocka_unit_test(who_looks_finds_it_added),
	        cmocka_unit_test(a_snapshot_finds_it_added),
	        cmocka_unit_test(a_state_finds_it_added),
	        cmocka_unit_test(a_pause_finds_it_added),
	        cmocka_unit_test(the_end_finds_it_added),
	        cmocka_unit_test(a_failed_step_has_added_it),
	        cmocka_unit_test(a_failed_device_ends_it),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

/* SPDX-License-Identifier: MIT */
/* A learner on a device that copies its parameters by itself, as a GPU does: training goes on, the
 * answer comes from another thread, and a device that fails gives nothing. The device here is the
 * plain one with another table. */
#include "tests/agent/learner_bed.h"

#include <math.h>
#include <pthread.h>

static struct backend table; /* plain's, with snapshot and settle */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	bool asked, busy, broken, give, end;
	bool settles; /* all that is asked for, and only then */
	float *copy;
	struct device_copy c;
	bool keeps;                         /* copies that the learner makes for itself, at once */
	void (*keep_cb)(void *arg, int rc); /* theirs: of the first copy of all, behind a step */
} gpu = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* As they travel. */
static void sketch_words(struct sketch *s, enum convert_format f, const uint8_t *words, size_t n)
{
	struct convert_sums sums = {0};
	float *x = malloc(n * sizeof *x);

	assert_non_null(x);
	convert_best()->take(f, x, words, NULL, n, TAKE_WORDS, &sums);
	sketch_add(s, x, 0, n);
	free(x);
}

/* The driver's thread: gives what was asked for when the test lets it. */
static void *driver(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&gpu.lock);
	for (;;) {
		while (!gpu.end && !(gpu.asked && gpu.give))
			pthread_cond_wait(&gpu.changed, &gpu.lock);
		if (gpu.end)
			break;
		gpu.asked = false;
		convert_best()->pack(
		        (enum convert_format)gpu.c.format, gpu.c.to, gpu.copy, gpu.c.n);
		if (gpu.c.sketch != NULL) {
			struct sketch s = {{0}};

			sketch_words(
			        &s, (enum convert_format)gpu.c.format, gpu.c.to, gpu.c.n_sketch);
			memcpy(gpu.c.sketch, s.bucket, sizeof s.bucket);
		}
		gpu.c.done_cb(gpu.c.arg, 0);
		gpu.busy = false;
		pthread_cond_broadcast(&gpu.changed);
	}
	pthread_mutex_unlock(&gpu.lock);
	return NULL;
}

static int snapshot(struct device *d, const struct device_copy *c, struct err *e)
{
	int rc = 0;

	(void)d;
	pthread_mutex_lock(&gpu.lock);
	if (gpu.keep_cb == NULL)
		gpu.keep_cb = c->done_cb;
	if (gpu.broken) {
		rc = err_set(e, ERR_DEVICE, "it fell off the bus");
	} else if (c->done_cb == gpu.keep_cb && gpu.keeps) {
		memcpy(c->to, c->x, c->n * sizeof *c->x);
		c->done_cb(c->arg, 0);
	} else if (gpu.busy || c->done_cb == gpu.keep_cb) {
		rc = err_set(e, ERR_BUSY, "one at a time");
	} else {
		memcpy(gpu.copy, c->x, c->n * sizeof *c->x);
		gpu.c = *c;
		gpu.asked = gpu.busy = true;
		pthread_cond_broadcast(&gpu.changed);
	}
	pthread_mutex_unlock(&gpu.lock);
	return rc;
}

static int settle(struct device *d, struct err *e)
{
	bool tell = false;
	int rc = 0;

	(void)d;
	pthread_mutex_lock(&gpu.lock);
	if (gpu.broken) {
		rc = err_set(e, ERR_DEVICE, "it fell off the bus");
		tell = gpu.asked;
		gpu.asked = gpu.busy = false;
	}
	if (gpu.settles) {
		gpu.give = true;
		pthread_cond_broadcast(&gpu.changed);
	}
	while (gpu.busy && gpu.give)
		pthread_cond_wait(&gpu.changed, &gpu.lock);
	pthread_mutex_unlock(&gpu.lock);
	if (tell)
		gpu.c.done_cb(gpu.c.arg, ERR_DEVICE);
	return rc;
}

static void bed_with_gpu(struct bed *b, void **state)
{
	bed_config(b, *state);
	bed_open(b);
	struct device *d = learner_trainer(b->l)->dev;

	table = *d->backend;
	table.snapshot = snapshot;
	table.settle = settle;
	d->backend = &table;
	gpu.asked = gpu.busy = gpu.broken = gpu.give = gpu.end = gpu.settles = false;
	gpu.keeps = false;
	gpu.copy = vector(b, 1);
	assert_int_equal(pthread_create(&gpu.thread, NULL, driver, NULL), 0);
}

static void set(bool *what)
{
	pthread_mutex_lock(&gpu.lock);
	*what = true;
	pthread_cond_broadcast(&gpu.changed);
	pthread_mutex_unlock(&gpu.lock);
}

static void finish(struct bed *b)
{
	bed_close(b);
	set(&gpu.end);
	pthread_join(gpu.thread, NULL);
	free(gpu.copy);
}

/* Steps and other answers come while a snapshot is under way, and it holds the parameters of the
 * step that it names. */
static void training_goes_on_meanwhile(void **state)
{
	struct bed b;

	bed_with_gpu(&b, state);
	learner_begin(b.l);
	float *p = vector(&b, 1), *q = vector(&b, 1), k[EXCHANGE_GROUPS_MAX] = {0};

	learner_train(b.l);
	await(&b, &b.steps, 3);
	assert_true(learner_snapshot(b.l, p, CONVERT_FP32, NULL));
	assert_true(learner_apply(b.l, q, k, b.groups));
	await(&b, &b.applied, 1);
	const int steps = b.steps;

	await(&b, &b.steps, steps + 3);
	assert_int_equal(b.snapshots, 0);
	assert_true(learner_snapshot(
	        b.l, q, CONVERT_FP32, NULL)); /* the device is busy: copied at once */
	await(&b, &b.snapshots, 1);
	struct trainer *t = by_hand(&b.config);
	const uint64_t second = b.answer_step;

	set(&gpu.give);
	await(&b, &b.snapshots, 2);
	assert_true(b.answer_step < second);
	step_to(t, b.answer_step);
	assert_params(t, p);
	step_to(t, second);
	assert_params(t, q);
	trainer_free(t);
	finish(&b);
	free(p);
	free(q);
}

/* Words and sketch of a snapshot are of the parameters of the step that it names. */
static void assert_rounded(
        struct bed *b, enum convert_format f, const uint8_t *words, const struct sketch *got)
{
	struct trainer *t = by_hand(&b->config);
	float *p = vector(b, 1);
	uint8_t *want = malloc(b->n * sizeof *p);
	struct sketch s = {{0}};

	assert_non_null(want);
	step_to(t, b->answer_step);
	graph_get_params(t->net, p);
	convert_best()->pack(f, want, p, b->n);
	sketch_words(&s, f, want, t->arch.n_train);
	assert_memory_equal(words, want, b->n * convert_word(f));
	assert_true(words[b->n * convert_word(f)] == 77); /* and not a byte more */
	assert_true(sketch_norm(&s) > 0);
	assert_true(sketch_distance(&s, got) <= 1e-6 * sketch_norm(&s));
	trainer_free(t);
	free(p);
	free(want);
}

static void snapshots_in_both_formats(struct bed *b)
{
	uint8_t *words = learner_buffer(b->l, b->n * sizeof(float) + 1);

	assert_non_null(words);
	learner_begin(b->l);
	for (int f = 0; f < CONVERT_WORDS; f++) {
		const int n = b->steps;
		struct sketch s;

		memset(&s, 1, sizeof s);
		learner_train(b->l);
		await(b, &b->steps, n + 2);
		learner_pause(b->l);
		memset(words, 77, b->n * sizeof(float) + 1);
		assert_true(learner_snapshot(b->l, words, (enum convert_format)f, &s));
		await(b, &b->snapshots, f + 1);
		assert_rounded(b, (enum convert_format)f, words, &s);
	}
	learner_stop(b->l);
	while (!b->stopped)
		uv_run(&b->loop, UV_RUN_ONCE);
	learner_buffer_free(b->l, words);
}

/* On a device without a snapshot of its own, of a model of more than one piece. */
static void rounded_and_sketched_here(void **state)
{
	struct bed b;

	bed_config(&b, *state);
	b.config.layers[1].units = 2000;
	bed_open(&b);
	assert_true(b.n > 2 * 16384);
	snapshots_in_both_formats(&b);
	bed_close(&b);
}

/* ---- modulo a lattice: net/bulk/lattice.h */

static struct learner_lattice lattice_of(const struct bed *b, enum convert_format f)
{
	static int8_t scale[SCALES_MAX];

	for (size_t i = 0; i < scales_count(b->n); i++)
		scale[i] = (int8_t)(-12 + (int)(i % 7));
	return (struct learner_lattice){.l = {.bits = convert_rows[f].bits,
	                                        .count = b->n,
	                                        .shift = scales_shift(b->n),
	                                        .scale = scale}};
}

/* What is packed are the parameters of the step that it names, and x is left as they were. */
static void pack(struct bed *b, enum convert_format f, struct learner_lattice *l, float *x)
{
	const size_t bytes = convert_bytes(f, b->n);
	uint8_t *records = malloc(bytes + 1), *want = malloc(bytes);
	struct sketch got, s = {{0}};
	int8_t size[SCALES_MAX];

	assert_true(records != NULL && want != NULL);
	memset(records, 77, bytes + 1);
	memset(size, SCALES_LEAST, sizeof size);
	assert_true(learner_pack(b->l, records, f, l, &got));
	await(b, &b->snapshots, b->snapshots + 1);
	struct trainer *t = by_hand(&b->config);

	step_to(t, b->answer_step);
	graph_get_params(t->net, x);
	assert_true(lattice_pack(&l->l, want, x, 0, b->n, size));
	sketch_add(&s, x, 0, t->arch.n_train);
	assert_memory_equal(records, want, bytes);
	assert_int_equal(records[bytes], 77);
	assert_memory_equal(l->size, size, scales_count(b->n));
	assert_false(l->refused);
	assert_true(sketch_distance(&s, &got) <= 1e-6 * sketch_norm(&s));
	trainer_free(t);
	free(want);
	free(records);
}

/* A packed difference is added, each group by its own factor. */
static void add(struct bed *b, const struct learner_lattice *l, const float *x)
{
	const size_t len = lattice_difference(l->l.bits, b->n);
	uint8_t *difference = malloc(len);
	float *d = vector(b, 1), *y = vector(b, 1), k[EXCHANGE_GROUPS_MAX];

	assert_non_null(difference);
	for (size_t i = 0; i < len; i++)
		difference[i] = (uint8_t)(i * 37 + i / 251);
	for (int g = 0; g < b->groups; g++)
		k[g] = 0.5f / (float)(g + 1);
	lattice_unpack(&l->l, d, difference, 0, b->n);
	assert_true(learner_apply_packed(b->l, difference, l, k, b->groups));
	await(b, &b->applied, b->applied + 1);
	assert_true(learner_snapshot(b->l, y, CONVERT_FP32, NULL));
	await(b, &b->snapshots, b->snapshots + 1);
	for (size_t i = 0, g = 0; i < b->n; i++) {
		g += i >= b->l->info.groups.end[g];
		float want = x[i] + k[g] * d[i];
		assert_true(fabsf(y[i] - want) <= 1e-6f * (fabsf(x[i]) + fabsf(k[g] * d[i])));
	}
	free(difference);
	free(d);
	free(y);
}

/* In models of one piece and more, with a block that is not whole at the end. */
static void packed_and_added(void **state)
{
	for (int i = 0; i < 4; i++) {
		enum convert_format f = i % 2 ? CONVERT_MOD4 : CONVERT_MOD8;
		struct bed b;

		bed_config(&b, *state);
		if (i / 2)
			b.config.layers[1].units = 2000;
		bed_open(&b);
		assert_true(b.groups > 1 && b.n % LATTICE_BLOCK != 0);
		assert_true(b.l->info.packs && (b.n > 2 * 16384) == (i / 2 > 0));
		struct learner_lattice l = lattice_of(&b, f);
		float *x = vector(&b, 1);

		learner_begin(b.l);
		learner_train(b.l);
		await(&b, &b.steps, 2);
		learner_pause(b.l);
		pack(&b, f, &l, x);
		add(&b, &l, x);
		bed_close(&b);
		free(x);
	}
}

static void rounded_and_sketched_there(void **state)
{
	struct bed b;

	bed_with_gpu(&b, state);
	set(&gpu.give);
	snapshots_in_both_formats(&b);
	finish(&b);
}

/* One that is under way when the learner stops still comes, before it has stopped. */
static void the_end_waits_for_it(void **state)
{
	struct bed b;

	bed_with_gpu(&b, state);
	learner_begin(b.l);
	float *p = vector(&b, 1);

	set(&gpu.settles);
	assert_true(learner_snapshot(b.l, p, CONVERT_FP32, NULL));
	finish(&b);
	assert_int_equal(b.snapshots, 1);
	free(p);
}

/* Nothing of a device that has failed reaches anyone: no snapshot, no state, no checkpoint. */
static void a_failed_device_gives_nothing(void **state)
{
	char path[RUN_DIR_PATH];
	struct bed b;

	bed_with_gpu(&b, state);
	learner_begin(b.l);
	float *p = vector(&b, 1), *s = vector(&b, 2), k[EXCHANGE_GROUPS_MAX] = {0};

	learner_train(b.l);
	await(&b, &b.steps, 3);
	assert_true(learner_snapshot(b.l, p, CONVERT_FP32, NULL)); /* under way */
	assert_true(learner_apply(b.l, s, k, b.groups));
	await(&b, &b.applied, 1);
	set(&gpu.broken);
	assert_true(learner_snapshot(b.l, p, CONVERT_FP32, NULL));
	assert_true(learner_take_state(b.l, s));
	assert_true(learner_save(b.l, true));
	await(&b, &b.saved, 1);
	assert_int_equal(b.failed, 1);
	assert_int_equal(b.err.code, ERR_DEVICE);
	assert_int_not_equal(access(run_dir_checkpoint(&b.dir, b.answer_step, path), F_OK), 0);
	finish(&b);
	assert_true(b.snapshots == 0 && b.states == 0);
	assert_int_equal(b.failed, 1);
	free(p);
	free(s);
}

/* What it had given the learner in time is written. */
static void a_failed_device_leaves_a_checkpoint(void **state)
{
	char path[RUN_DIR_PATH];
	struct trainer_notes notes;
	struct checkpoint c;
	struct err e;
	struct bed b;

	bed_with_gpu(&b, state);
	learner_begin(b.l);
	float *p = vector(&b, 1);

	set(&gpu.keeps);
	learner_train(b.l);
	await(&b, &b.steps, 3);
	set(&gpu.broken);
	assert_true(learner_snapshot(b.l, p, CONVERT_FP32, NULL));
	await(&b, &b.failed, 1);
	assert_int_equal(b.saved, 1);
	assert_int_equal(checkpoint_open(&c, run_dir_checkpoint(&b.dir, 1, path), &e), 0);
	struct trainer *t = by_hand(&b.config), *resumed = by_hand(&b.config);

	assert_int_equal(trainer_restore(resumed, &c, &notes, &e), 0);
	checkpoint_close(&c);
	step_to(t, 5);
	step_to(resumed, 5);
	graph_get_params(resumed->net, p);
	assert_params(t, p);
	trainer_free(t);
	trainer_free(resumed);
	finish(&b);
	free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(training_goes_on_meanwhile),
	        cmocka_unit_test(rounded_and_sketched_here),
	        cmocka_unit_test(packed_and_added),
	        cmocka_unit_test(rounded_and_sketched_there),
	        cmocka_unit_test(the_end_waits_for_it),
	        cmocka_unit_test(a_failed_device_gives_nothing),
	        cmocka_unit_test(a_failed_device_leaves_a_checkpoint),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

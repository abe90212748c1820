/* SPDX-License-Identifier: MIT */
/* The state that is kept in the host's memory for the day the device fails: taken at once, renewed
 * every ten seconds of training, the last whole one counts, and a newer checkpoint makes it
 * worthless. The learner here has no thread, the clock is the test's, and the device the plain one
 * with a table whose copies come when the test lets them. */
#include "agent/train/learner_internal.h"
#include "tests/agent/learner_bed.h"

static struct backend table;
static struct device_copy asked[TRAINER_VECTORS_MAX];
static int n_asked, room;

static int snapshot(struct device *d, const struct device_copy *c, struct err *e)
{
	(void)d;
	if (n_asked == room)
		return err_set(e, ERR_BUSY, "one at a time");
	memcpy(c->to, c->x, c->n * sizeof *c->x);
	asked[n_asked++] = *c;
	return 0;
}

/* All that was asked for has come, or was lost. */
static void come(int rc)
{
	for (int i = 0; i < n_asked; i++)
		asked[i].done_cb(asked[i].arg, rc);
	n_asked = 0;
}

struct kept {
	struct bed b;
	struct learner_thread l;
};

static void kept_open(struct kept *k, void **state)
{
	struct err e;

	bed_config(&k->b, *state);
	k->l = (struct learner_thread){0};
	k->l.trainer = by_hand(&k->b.config);
	k->l.c.dir = &k->b.dir;
	assert_int_equal(run_dir_open(&k->b.dir, k->b.out, &e), 0);
	table = *k->l.trainer->dev->backend;
	table.snapshot = snapshot;
	k->l.trainer->dev->backend = &table;
	n_asked = 0;
	room = TRAINER_VECTORS_MAX;
}

static void kept_close(struct kept *k)
{
	learner__keep_close(&k->l);
	trainer_free(k->l.trainer);
	run_dir_close(&k->b.dir);
	config_close(&k->b.config);
}

/* The step of the checkpoint that a failure leaves; 0: none. */
static uint64_t left(struct kept *k)
{
	struct learner_job j = {0};
	char path[RUN_DIR_PATH];

	if (!learner__keep_save(&k->l, &j))
		return 0;
	assert_int_equal(j.err.code, 0);
	assert_int_equal(access(run_dir_checkpoint(&k->b.dir, j.step, path), F_OK), 0);
	assert_int_equal(k->l.run.saved_step, j.step);
	return j.step;
}

static void step_and_keep(struct kept *k, uint64_t step, double now_s)
{
	step_to(k->l.trainer, step);
	learner__keep(&k->l, now_s);
}

static void renewed_every_ten_seconds(void **state)
{
	static struct kept k;

	kept_open(&k, state);
	step_and_keep(&k, 1, 100);
	assert_int_equal(n_asked, trainer_vectors(k.l.trainer)); /* at once */
	step_and_keep(&k, 2, 150); /* not asked again before it has come */
	assert_int_equal(n_asked, trainer_vectors(k.l.trainer));
	come(0);
	step_and_keep(&k, 3, 109.9);
	assert_int_equal(n_asked, 0);
	step_and_keep(&k, 4, 110);
	assert_int_equal(n_asked, trainer_vectors(k.l.trainer));
	come(0);
	step_and_keep(&k, 5, 115);
	assert_int_equal(n_asked, 0);
	assert_int_equal(left(&k), 4);
	kept_close(&k);
}

/* Half of a newer state is worth nothing, and must not have spoilt the older one. */
static void the_last_whole_one_counts(void **state)
{
	static struct kept k;
	struct checkpoint c;
	struct trainer_notes notes;
	char path[RUN_DIR_PATH];
	struct err e;

	kept_open(&k, state);
	step_and_keep(&k, 1, 0);
	come(0);
	step_and_keep(&k, 7, 20);
	come(ERR_DEVICE);
	assert_int_equal(left(&k), 1);

	assert_int_equal(checkpoint_open(&c, run_dir_checkpoint(&k.b.dir, 1, path), &e), 0);
	struct trainer *resumed = by_hand(&k.b.config);
	float *p = calloc(k.l.trainer->arch.n_total, sizeof *p);

	assert_int_equal(trainer_restore(resumed, &c, &notes, &e), 0);
	checkpoint_close(&c);
	step_to(resumed, 7);
	graph_get_params(resumed->net, p);
	assert_params(k.l.trainer, p);
	free(p);
	trainer_free(resumed);
	kept_close(&k);
}

/* What was asked for of a state that did not come whole is asked for again, at the next step. */
static void no_room_is_no_copy(void **state)
{
	static struct kept k;

	kept_open(&k, state);
	room = 1;
	step_and_keep(&k, 1, 0);
	assert_int_equal(n_asked, 1);
	come(0);
	assert_int_equal(left(&k), 0);
	room = TRAINER_VECTORS_MAX;
	step_and_keep(&k, 2, 1);
	come(0);
	assert_int_equal(left(&k), 2);
	kept_close(&k);
}

static void a_newer_checkpoint_is_better(void **state)
{
	static struct kept k;
	char path[RUN_DIR_PATH];

	kept_open(&k, state);
	step_and_keep(&k, 3, 0);
	come(0);
	k.l.run.saved_step = 3;
	assert_int_equal(left(&k), 0);
	assert_int_not_equal(access(run_dir_checkpoint(&k.b.dir, 3, path), F_OK), 0);
	k.l.run.saved_step = 2;
	assert_int_equal(left(&k), 3);
	kept_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(renewed_every_ten_seconds),
	        cmocka_unit_test(the_last_whole_one_counts),
	        cmocka_unit_test(no_room_is_no_copy),
	        cmocka_unit_test(a_newer_checkpoint_is_better),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

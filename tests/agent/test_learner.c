/* SPDX-License-Identifier: MIT */
/* The learner on a real loop, with a model so small that a step takes microseconds: what the loop
 * sees is what a trainer does that is stepped by hand, whatever is asked for in between. */
#include "tests/agent/learner_bed.h"

#include <math.h>
#include <sys/stat.h>

static struct trainer *beside; /* of check_snapshot */

static void check_snapshot(struct bed *b)
{
	assert_true(b->answer_step >= beside->step);
	assert_true(b->last_step >= b->answer_step); /* steps are heard of first */
	step_to(beside, b->answer_step);
	assert_params(beside, b->again);
}

static void snapshots_are_whole(void **state)
{
	struct bed b;

	bed_config(&b, *state);
	b.config.run.stop_after = 600;
	bed_open(&b);
	beside = by_hand(&b.config);
	float *p = b.again = vector(&b, 1);

	b.check_cb = check_snapshot;
	learner_begin(b.l);
	assert_true(learner_snapshot(b.l, b.again, CONVERT_FP32, NULL));
	learner_train(b.l);
	await(&b, &b.done, 1);
	assert_int_equal(b.steps, 600);
	assert_int_equal(b.first_step, 1);
	assert_false(b.gap);
	assert_true(b.snapshots > 1);
	assert_int_equal(b.clock, 600 * 8);
	step_to(beside, 600);
	assert_true(b.last.moved > 0 && b.last.moved == beside->moved);
	assert_true(b.last.layer_norms >= b.last.r.grad_norm);
	assert_true(b.last.layer_norms == beside->layer_norms);
	assert_true(b.last.seconds > 0);
	assert_int_equal(b.last.clock, 600 * 8);
	bed_close(&b);
	trainer_free(beside);
	free(p);
}

static void applies_exactly(void **state)
{
	struct bed b;
	float k[EXCHANGE_GROUPS_MAX];

	bed_begin(&b, *state);
	float *before = vector(&b, 1), *after = vector(&b, 1), *d = vector(&b, 1);
	const struct learner_groups *g = &b.l->info.groups;

	assert_int_equal(g->n, 3);
	for (int i = 0; i < g->n; i++)
		k[i] = 0.3f / (float)(i + 1);
	for (size_t i = 0; i < b.n; i++)
		d[i] = (float)sin((double)i);
	assert_true(learner_snapshot(b.l, before, CONVERT_FP32, NULL));
	assert_true(learner_apply(b.l, d, k, g->n));
	memset(k, 0, sizeof k); /* it was copied */
	assert_true(learner_snapshot(b.l, after, CONVERT_FP32, NULL));
	await(&b, &b.snapshots, 2);
	assert_int_equal(b.applied, 1);
	assert_int_equal(b.steps, 0); /* not told to train */
	for (size_t i = 0; i < b.n; i++) {
		int group = i < g->end[0] ? 0 : i < g->end[1] ? 1 : 2;
		volatile float part = 0.3f / (float)(group + 1) * d[i];
		volatile float want = before[i] + part;

		assert_true(after[i] == want);
	}
	bed_close(&b);
	free(before);
	free(after);
	free(d);
}

static void answers_in_order(void **state)
{
	struct bed b;
	float k[EXCHANGE_GROUPS_MAX] = {0};

	bed_begin(&b, *state);
	float *p = vector(&b, 1), *s = vector(&b, 3);

	for (int train = 0; train < 2; train++) {
		memset(b.order, 0, sizeof b.order);
		b.evals = b.exported = 0;
		if (train)
			learner_train(b.l);
		assert_true(learner_snapshot(b.l, p, CONVERT_FP32, NULL));
		assert_true(learner_take_state(b.l, s));
		assert_true(learner_apply(b.l, p, k, b.groups));
		assert_true(learner_save(b.l, true));
		assert_true(learner_snapshot(b.l, p, CONVERT_FP32, NULL));
		assert_true(learner_export(b.l, "merged.safetensors"));
		await(&b, &b.exported, 1);
		assert_int_equal(b.err.code, 0);
		if (!train) /* or else an evaluation by itself may be among them */
			assert_string_equal(b.order, "sgacsx");
		learner_pause(b.l);
		b.snapshots = 0;
		assert_true(learner_snapshot(b.l, p, CONVERT_FP32, NULL)); /* it has paused */
		await(&b, &b.snapshots, 1);
	}
	assert_int_equal(b.state.vectors, 2);
	assert_int_equal(b.state.optimizer, OPTIM_SGD);

	/* The queue has an end, and its place is free again once the answer has come. */
	b.snapshots = 0;
	for (int i = 0; i < LEARNER_REQUESTS - 1; i++)
		assert_true(learner_snapshot(b.l, p, CONVERT_FP32, NULL));
	assert_false(learner_snapshot(b.l, p, CONVERT_FP32, NULL));
	assert_false(learner_save(b.l, true));
	await(&b, &b.snapshots, LEARNER_REQUESTS - 1);
	assert_true(learner_snapshot(b.l, p, CONVERT_FP32, NULL));
	bed_close(&b);
	assert_int_equal(b.snapshots, LEARNER_REQUESTS);
	free(p);
	free(s);
}

/* A user asks for checkpoints all the time: half of the queue is for others, the agent's own
 * checkpoint among them, and its last place for a difference that a partner adds too. */
static void checkpoints_leave_room(void **state)
{
	const float k[EXCHANGE_GROUPS_MAX] = {0};
	struct bed b;
	int taken = 0;

	bed_begin(&b, *state);
	float *p = vector(&b, 1), *d = vector(&b, 1);

	while (learner_save(b.l, true))
		taken++;
	assert_int_equal(taken, LEARNER_REQUESTS / 2);
	assert_true(learner_save(b.l, false)); /* the agent's own, when it is to leave then */
	taken++;
	assert_true(learner_evaluate(b.l, true));
	for (taken++; learner_snapshot(b.l, p, CONVERT_FP32, NULL); taken++)
		assert_false(learner_save(b.l, true));
	assert_int_equal(taken, LEARNER_REQUESTS - 1);
	assert_true(learner_apply(b.l, d, k, b.groups));
	await(&b, &b.applied, 1);
	assert_int_equal(b.saved, LEARNER_REQUESTS / 2 + 1);
	assert_true(learner_save(b.l, true));
	bed_close(&b);
	free(p);
	free(d);
}

/* The loop sleeps through 1,500 steps. That they are done is read from the metrics, a pipe. */
static void late_loop_misses_the_oldest(void **state)
{
	struct bed b;
	char line[1024] = "";

	bed_config(&b, *state);
	b.config.run.stop_after = 1500;
	snprintf(b.config.run.metrics, sizeof b.config.run.metrics, "%s/pipe", (char *)*state);
	assert_int_equal(mkfifo(b.config.run.metrics, 0600), 0);
	FILE *metrics = fopen(b.config.run.metrics, "r+");

	assert_non_null(metrics);
	bed_open(&b);
	learner_begin(b.l);
	learner_train(b.l);
	while (strstr(line, "\"event\":\"step\"") == NULL || strstr(line, "\"step\":1500") == NULL)
		assert_non_null(fgets(line, sizeof line, metrics));
	assert_non_null(strstr(line, "\"clock\":12000"));
	await(&b, &b.done, 1);
	assert_int_equal(b.steps, LEARNER_STEPS);
	assert_int_equal(b.last_step, 1500);
	assert_int_equal(b.first_step, 1500 - LEARNER_STEPS + 1);
	assert_false(b.gap);
	assert_int_equal(b.l->steps_dropped, 1500 - LEARNER_STEPS);
	/* Of a hundred epochs the last, and it may be under way while the one before is heard. */
	assert_in_range(b.evals, 1, 2);
	assert_int_equal(b.eval.step, 1500);
	bed_close(&b);
	fclose(metrics);
}

static void pauses_and_goes_on(void **state)
{
	struct bed b;

	bed_begin(&b, *state);
	float *p = vector(&b, 1), *q = vector(&b, 1);

	learner_train(b.l);
	await(&b, &b.steps, 3);
	learner_pause(b.l);
	assert_true(learner_snapshot(b.l, p, CONVERT_FP32, NULL));
	await(&b, &b.snapshots, 1);
	uint64_t at = b.answer_step;

	assert_int_equal(b.last_step, at);
	assert_true(learner_evaluate(b.l, true));
	assert_true(learner_snapshot(b.l, q, CONVERT_FP32, NULL));
	await(&b, &b.snapshots, 2);
	assert_int_equal(b.answer_step, at);
	assert_int_equal(b.last_step, at);
	assert_memory_equal(p, q, b.n * sizeof *p);
	assert_int_equal(b.eval.r.count, SAMPLES);
	assert_true(b.eval.whole && b.eval.r.loss > 0);
	learner_train(b.l);
	await(&b, &b.steps, (int)at + 10);
	assert_false(b.gap);
	bed_close(&b);
	free(p);
	free(q);
}

/* However long the thread is busy with what was asked for before: no step comes between a pause and
 * what is asked for after it. */
static void a_pause_is_kept(void **state)
{
	struct bed b;

	bed_begin(&b, *state);
	float *p = vector(&b, 1), *q = vector(&b, 1);
	struct trainer *clock = by_hand(&b.config); /* its steps pass the time */

	for (int i = 0; i < 60; i++) {
		uint64_t at;

		b.snapshots = 0;
		learner_train(b.l);
		await(&b, &b.steps, b.steps + 1);
		assert_true(learner_save(b.l, true));
		step_to(clock, clock->step + (uint64_t)i);
		learner_pause(b.l);
		assert_true(learner_snapshot(b.l, p, CONVERT_FP32, NULL));
		await(&b, &b.snapshots, 1);
		at = b.answer_step;
		assert_true(learner_snapshot(b.l, q, CONVERT_FP32, NULL));
		await(&b, &b.snapshots, 2);
		assert_int_equal(b.answer_step, at);
		assert_memory_equal(p, q, b.n * sizeof *p);
	}
	bed_close(&b);
	trainer_free(clock);
	free(p);
	free(q);
}

/* Two that are at the same place in the data: with the donor's state the other one's next steps are
 * the donor's, momentum included. */
static void adopts(void **state)
{
	struct learner_state s = {.vectors = 2, .optimizer = OPTIM_SGD};
	struct trainer_state from;
	struct config c;
	struct bed b, other;

	bed_config(&other, *state);
	c = other.config;
	struct trainer *donor = by_hand(&c);

	step_to(donor, 7);
	bed_config(&b, *state);
	b.config.train.seed++;
	b.config.run.stop_after = 5;
	bed_open(&b);
	step_to(learner_trainer(b.l), 7);
	learner_begin(b.l);
	float *p = vector(&b, 3), *q = vector(&b, 3);

	trainer_get_state(donor, p, &from);
	s.optim_steps = from.optim_steps;
	memcpy(q, p, 2 * b.n * sizeof *p);

	/* What nobody could have trained changes nothing. */
	const struct {
		float value; /* put at that place */
		size_t at;
		uint8_t optimizer, vectors;
		uint64_t steps;
		int code;
	} bad[] = {
	        {NAN, 0, OPTIM_SGD, 2, 7, ERR_NONFINITE},
	        {INFINITY, 2 * b.n - 1, OPTIM_SGD, 2, 7, ERR_NONFINITE},
	        {0, 0, OPTIM_ADAMW, 3, 7, ERR_MISMATCH},
	        {0, 0, OPTIM_SGD, 3, 7, ERR_MISMATCH},
	        {0, 0, OPTIM_SGD, 2, UINT64_MAX, ERR_INVALID},
	};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		const struct learner_state wrong = {.optimizer = bad[i].optimizer,
		        .vectors = bad[i].vectors,
		        .optim_steps = bad[i].steps};

		q[bad[i].at] = bad[i].value;
		assert_true(learner_adopt(b.l, q, &wrong));
		await(&b, &b.adopted, (int)i + 1);
		assert_int_equal(b.err.code, bad[i].code);
		assert_true(b.err.msg[0] != '\0');
		q[bad[i].at] = p[bad[i].at];
	}
	assert_true(learner_snapshot(b.l, q, CONVERT_FP32, NULL));
	await(&b, &b.snapshots, 1);
	struct trainer *same = by_hand(&b.config);

	step_to(same, 7);
	assert_params(same, q);
	trainer_free(same);

	assert_true(learner_adopt(b.l, p, &s));
	learner_train(b.l);
	await(&b, &b.done, 1);
	assert_int_equal(b.err.code, 0);
	assert_int_equal(b.last_step, 12);
	assert_true(learner_take_state(b.l, q));
	await(&b, &b.states, 1);
	step_to(donor, 12);
	trainer_get_state(donor, p, &from);
	assert_memory_equal(p, q, 2 * b.n * sizeof *p);
	assert_int_equal(b.state.step, 12);
	assert_int_equal(b.state.optim_steps, 12);
	assert_true(b.state.moved > 0 && b.state.moved < donor->moved); /* since it was set */
	bed_close(&b);
	trainer_free(donor);
	config_close(&other.config);
	free(p);
	free(q);
}

/* Schedule and end go by the samples of all. */
/* A sample of tokens has many labels; a step's batch is told in samples. */
static void batches_of_tokens_are_samples(void **state)
{
	char text[640];
	struct bed b;

	bed_config(&b, *state);
	b.config.n_layers = 0;
	add_layer(&b.config, "embedding", 4);
	add_layer(&b.config, "head", 0);
	memset(text, 'a', sizeof text);
	b.config.data.train_images[0] = b.config.data.train_labels[0] = '\0';
	b.config.data.test_images[0] = b.config.data.test_labels[0] = '\0';
	snprintf(b.config.data.path, sizeof b.config.data.path, "%s/a.txt", (char *)*state);
	write_file(b.config.data.path, text, sizeof text);
	b.config.data.context = 16;
	b.config.train.batch_adapt = BATCH_ADAPT_NORM;
	b.config.run.stop_after = 1;
	bed_open(&b);
	assert_int_equal(b.l->info.files, 1); /* which both parts read */
	learner_begin(b.l);
	learner_train(b.l);
	await(&b, &b.done, 1);
	assert_int_equal(b.last.r.step_samples, 8);
	assert_int_equal(b.last.r.count, 8 * 16);
	assert_int_equal(b.last.batch, 8);
	bed_close(&b);
}

static void others_count(void **state)
{
	struct bed b;

	bed_config(&b, *state);
	b.config.data.partition.kind = PARTITION_SHARD;
	b.config.data.partition.parts = 3;
	b.config.train.epochs = 4;
	b.config.train.schedule = SCHEDULE_COSINE;
	b.config.train.warmup_epochs = 0;
	bed_open(&b);
	assert_int_equal(b.l->info.total, 4 * SAMPLES);
	learner_begin(b.l);
	learner_others(b.l, 4 * SAMPLES - 20);
	learner_train(b.l);
	await(&b, &b.done, 1);
	assert_int_equal(b.steps, 3); /* of 8 samples */
	assert_int_equal(b.clock, 4 * SAMPLES + 4);
	assert_true(b.last.r.lr < 0.01 * b.config.train.optim.lr);
	assert_int_equal(b.last.r.samples, 24);
	assert_int_equal(b.last.clock, 4 * SAMPLES + 4);
	bed_close(&b);

	/* Also while it does not train, and once only. */
	bed_begin(&b, *state);
	float *p = vector(&b, 1);

	learner_others(b.l, UINT32_MAX);
	await(&b, &b.done, 1);
	learner_train(b.l);
	learner_others(b.l, 5); /* it never falls */
	assert_true(learner_snapshot(b.l, p, CONVERT_FP32, NULL));
	await(&b, &b.snapshots, 1);
	assert_int_equal(b.steps, 0);
	bed_close(&b);
	assert_int_equal(b.done, 1);
	free(p);
}

static void epochs_are_evaluated(void **state)
{
	struct bed b;

	bed_config(&b, *state);
	b.config.train.epochs = 3;
	bed_open(&b);
	learner_begin(b.l);
	learner_others(b.l, SAMPLES); /* begins in the second one */
	learner_train(b.l);
	await(&b, &b.evals, 1);
	await(&b, &b.done, 1);
	assert_int_equal(b.steps, 30);
	assert_int_equal(b.eval.clock, 3 * SAMPLES);
	assert_int_equal(b.eval.r.count, SAMPLES);
	bed_close(&b);
}

static void parts_of_epochs_are_evaluated(void **state)
{
	struct bed b;

	bed_config(&b, *state);
	b.config.train.epochs = 0.3;
	b.config.run.eval_epochs = 0.2;
	bed_open(&b);
	learner_begin(b.l);
	learner_train(b.l);
	await(&b, &b.done, 1);
	assert_int_equal(b.evals, 1);
	assert_int_equal(b.eval.clock, SAMPLES / 5);
	bed_close(&b);
}

#define KINDS 7
static bool ask(struct bed *b, int what, float *p)
{
	static const float k[EXCHANGE_GROUPS_MAX];

	switch (what) {
	case 0:
		return learner_snapshot(b->l, p, CONVERT_FP32, NULL);
	case 1:
		return learner_apply(b->l, p, k, b->groups);
	case 2:
		return learner_take_state(b->l, p);
	case 3:
		return learner_adopt(b->l, p, &(struct learner_state){.vectors = 2});
	case 4:
		return learner_save(b->l, true);
	case 5:
		return learner_evaluate(b->l, false);
	default:
		return learner_export(b->l, "x");
	}
}

/* Whatever is under way, each kind alone, all of them, none: every answer comes, then the end. */
static void stops_under_anything(void **state)
{
	for (int what = 0; what <= KINDS + 1; what++) {
		struct bed b;

		bed_begin(&b, *state);
		const int *count[KINDS] = {&b.snapshots, &b.applied, &b.states, &b.adopted,
		        &b.saved, &b.evals, &b.exported};
		float *p = vector(&b, 2);

		learner_train(b.l);
		await(&b, &b.steps, what == KINDS ? 20 : 0);
		for (int i = 0; i < 2 * KINDS; i++)
			if (what == i % KINDS || what == KINDS)
				assert_true(ask(&b, i % KINDS, p));
		learner_stop(b.l);
		learner_stop(b.l); /* twice is once */
		for (int i = 0; i < KINDS; i++)
			assert_false(ask(&b, i, p));
		learner_train(b.l); /* too late */
		bed_close(&b);
		for (int i = 0; i < KINDS; i++) {
			int want = what == i || what == KINDS ? 2 : 0;

			assert_true(*count[i] == want || (i == 5 && *count[i] > want));
		}
		free(p);
	}
}

static void merge_statistics(struct bed *b, float by)
{
	const float k[EXCHANGE_GROUPS_MAX] = {1, 1, 1, 1};
	float *d = vector(b, 1);
	const int before = b->applied;

	assert_int_equal(b->groups, 3);
	for (size_t i = b->l->info.n_train; i < b->n; i++)
		d[i] = by;
	assert_true(learner_apply(b->l, d, k, b->groups));
	await(b, &b->applied, before + 1);
	free(d);
}

static void get(struct bed *b, float *to)
{
	const int before = b->snapshots;

	assert_true(learner_snapshot(b->l, to, CONVERT_FP32, NULL));
	await(b, &b->snapshots, before + 1);
}

static void with_statistics(struct bed *b, const char *folder)
{
	bed_config(b, folder);
	b->config.n_layers = 0;
	add_layer(&b->config, "flatten", 0);
	add_layer(&b->config, "dense", 5);
	add_layer(&b->config, "batch_norm", 0);
	add_layer(&b->config, "dense", CLASSES);
}

/* Whatever peers have made of the statistics after the last step, they are measured anew before the
 * merged model is evaluated and exported; before that they are the learner's own. */
static void merged_statistics_are_measured_anew(void **state)
{
	struct bed b;
	double loss;

	with_statistics(&b, *state);
	b.config.train.epochs = 2;
	bed_open(&b);
	learner_begin(b.l);
	float *own = vector(&b, 1), *first = vector(&b, 1), *again = vector(&b, 1);
	const size_t bytes = b.n * sizeof *own;

	learner_train(b.l);
	await(&b, &b.done, 1);
	b.evals = 0;
	assert_true(learner_evaluate(b.l, true));
	await(&b, &b.evals, 1);
	loss = b.eval.r.loss;
	get(&b, own);
	merge_statistics(&b, 0.5f);
	assert_true(learner_evaluate(b.l, true));
	await(&b, &b.evals, 2);
	get(&b, first);
	assert_memory_equal(own, first, b.l->info.n_train * sizeof *own);
	assert_memory_not_equal(own, first, bytes);
	assert_true(fabs(b.eval.r.loss - loss) < 0.1);
	merge_statistics(&b, -9);
	get(&b, again);
	assert_memory_not_equal(first, again, bytes);
	assert_true(learner_export(b.l, "merged.safetensors"));
	get(&b, again);
	assert_memory_equal(first, again, bytes);
	bed_close(&b);
	free(own);
	free(first);
	free(again);
}

/* A merge that came behind the last step, before it was known that it was the last. */
static void the_last_merge_counts(void **state)
{
	struct bed b;

	with_statistics(&b, *state);
	bed_open(&b);
	learner_begin(b.l);
	float *own = vector(&b, 1), *merged = vector(&b, 1), *anew = vector(&b, 1);
	const size_t bytes = b.n * sizeof *own;

	learner_train(b.l);
	await(&b, &b.steps, 1);
	learner_pause(b.l);
	get(&b, own);
	merge_statistics(&b, 0.5f);
	get(&b, merged);
	assert_memory_not_equal(own, merged, bytes);
	learner_others(b.l, b.l->info.total); /* they have trained all that was left */
	learner_train(b.l);
	await(&b, &b.done, 1);
	b.evals = 0;
	assert_true(learner_evaluate(b.l, true));
	await(&b, &b.evals, 1);
	get(&b, anew);
	assert_memory_equal(merged, anew, b.l->info.n_train * sizeof *own);
	assert_memory_not_equal(merged, anew, bytes);
	bed_close(&b);
	free(own);
	free(merged);
	free(anew);
}

/* Many tensors: neighbours share a group, and none is much larger than another. */
static void groups_are_bounded(void **state)
{
	struct bed b;

	bed_config(&b, *state);
	b.config.n_layers = 0;
	add_layer(&b.config, "flatten", 0);
	for (int i = 0; i < 49; i++)
		add_layer(&b.config, "dense", 2);
	add_layer(&b.config, "dense", CLASSES);
	bed_open(&b);
	const struct arch *a = &learner_trainer(b.l)->arch;
	const struct learner_groups *g = &b.l->info.groups;
	size_t begin = 0;

	assert_int_equal(g->n, EXCHANGE_GROUPS_MAX);
	for (int i = 0; i < g->n - 1; i++) {
		int views = 0, ends = 0;

		for (int v = 0; v < a->n_views; v++) {
			const struct param_view *p = &a->views[v];

			if (p->group != PARAM_WEIGHT)
				continue;
			views += p->offset >= begin && p->offset < g->end[i];
			ends += p->offset + p->count == g->end[i];
		}
		assert_in_range(views, 1, 2);
		assert_int_equal(ends, 1);
		begin = g->end[i];
	}
	assert_int_equal(begin, a->n_decay);
	assert_int_equal(g->end[g->n - 1], a->n_train);
	learner_free(b.l); /* never begun */
	assert_int_equal(uv_loop_close(&b.loop), 0);
	run_dir_close(&b.dir);
	config_close(&b.config);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(snapshots_are_whole),
	        cmocka_unit_test(applies_exactly),
	        cmocka_unit_test(answers_in_order),
	        cmocka_unit_test(checkpoints_leave_room),
	        cmocka_unit_test(merged_statistics_are_measured_anew),
	        cmocka_unit_test(the_last_merge_counts),
	        cmocka_unit_test(late_loop_misses_the_oldest),
	        cmocka_unit_test(pauses_and_goes_on),
	        cmocka_unit_test(a_pause_is_kept),
	        cmocka_unit_test(adopts),
	        cmocka_unit_test(batches_of_tokens_are_samples),
	        cmocka_unit_test(others_count),
	        cmocka_unit_test(epochs_are_evaluated),
	        cmocka_unit_test(parts_of_epochs_are_evaluated),
	        cmocka_unit_test(stops_under_anything),
	        cmocka_unit_test(groups_are_bounded),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

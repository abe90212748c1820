/* SPDX-License-Identifier: MIT */
/* A gpt on a text, as `dunlin train` and an agent have it: it learns, a resume gives the same bits,
 * agents that share the text by parts never see the same token in one epoch, and what does not fit
 * together is refused in words. */
#include "tests/support.h"

#include "agent/cli/progress.h"
#include "agent/config/config.h"
#include "agent/train/sample.h"
#include "agent/train/train_run.h"
#include "agent/train/trainer.h"

#include <math.h>
#include <unistd.h>

#define TEXT_BYTES 6000
#define CONTEXT 16

/* Words in an order of chance: after a letter there is not much choice. */
static void write_text(const char *path)
{
	static const char *const words[] = {"alpha ", "beta ", "gamma ", "delta "};
	char text[TEXT_BYTES + 8];
	size_t n = 0;
	struct rng r;

	rng_seed(&r, 2, 0);
	while (n < TEXT_BYTES)
		n += (size_t)sprintf(text + n, "%s", words[rng_below(&r, 4)]);
	write_file(path, text, TEXT_BYTES);
}

static void small_config(struct config *c, const char *folder)
{
	config_defaults(c);
	snprintf(c->preset, sizeof c->preset, "gpt");
	c->gpt.layers = 2;
	c->gpt.width = 32;
	c->gpt.heads = 2;
	snprintf(c->data.path, sizeof c->data.path, "%s/text.txt", folder);
	c->data.context = CONTEXT;
	c->data.validation = 0.1;
	snprintf(c->run.device, sizeof c->run.device, "cpu");
	c->run.threads = 1;
	c->train.batch = 8;
	c->train.epochs = 4;
	c->train.optim.kind = OPTIM_ADAMW;
	c->train.optim.lr = 0.01;
	write_text(c->data.path);
}

static struct trainer *make(const struct config *c)
{
	struct trainer *t;
	struct err e;

	if (trainer_new(&t, c, NULL, &e) != 0)
		fail_msg("%s", e.msg);
	return t;
}

static void run_steps(struct trainer *t, int n)
{
	struct step_result r;
	struct err e;

	for (int i = 0; i < n; i++)
		assert_int_equal(trainer_step(t, &r, &e), 0);
}

static float *params_of(struct trainer *t)
{
	float *p = malloc(t->arch.n_total * sizeof *p);

	assert_non_null(p);
	graph_get_params(t->net, p);
	return p;
}

static void test_it_learns_the_words(void **state)
{
	struct config c;
	struct eval_result before, after, held;
	struct err e;

	small_config(&c, *state);
	struct trainer *t = make(&c);

	/* Of 5,400 bytes 336 windows; 34 are held out, and the one before them is nobody's. */
	assert_int_equal(t->n_train, 336 - 34 - 1);
	assert_int_equal(t->n_val, 34);
	assert_int_equal(t->test_data.count, 36); /* of the last 600 bytes */
	assert_int_equal(t->arch.classes, 256);
	assert_int_equal(trainer_evaluate(t, EVAL_TEST, &before, &e), 0);
	assert_int_equal(before.count, 36 * CONTEXT);
	assert_true(before.loss > 5.3 && before.loss < 5.8); /* log 256 is 5.55 */
	while (!trainer_done(t))
		run_steps(t, 1);
	assert_int_equal(trainer_evaluate(t, EVAL_TEST, &after, &e), 0);
	assert_int_equal(trainer_evaluate(t, EVAL_VALIDATION, &held, &e), 0);
	/* One choice in about six letters: log 4 / 5.8 is 0.24. */
	assert_true(after.loss < 0.7 && held.loss < 0.7);
	trainer_free(t);
	config_close(&c);
}

/* Another loader, another graph, in the middle of an epoch. */
static void test_a_resume_is_the_same_to_the_bit(void **state)
{
	struct config c;
	struct checkpoint k;
	struct err e;
	char path[256];

	small_config(&c, *state);
	c.run.threads = 2;
	snprintf(path, sizeof path, "%s/c.safetensors", (char *)*state);
	struct trainer *a = make(&c), *b;

	run_steps(a, 25);
	assert_int_equal(trainer_save(a, path, &e), 0);
	run_steps(a, 25);
	b = make(&c);
	assert_int_equal(checkpoint_open(&k, path, &e), 0);
	assert_int_equal(trainer_restore(b, &k, NULL, &e), 0);
	checkpoint_close(&k);
	run_steps(b, 25);
	float *p = params_of(a), *q = params_of(b);

	assert_memory_equal(p, q, a->arch.n_total * sizeof *p);
	free(p);
	free(q);
	trainer_free(a);
	trainer_free(b);
	config_close(&c);
}

/* Two agents with a part each: the windows that they take in one epoch have no token to predict in
 * common. The text tells where a token is from: it has no token twice. */
static void test_parts_stay_apart(void **state)
{
	enum { TOKENS = 2000 };
	struct config c;
	struct err e;
	static uint16_t tokens[TOKENS];
	char seen[TOKENS] = {0};
	uint64_t epochs = 0;

	small_config(&c, *state);
	for (int i = 0; i < TOKENS; i++)
		tokens[i] = (uint16_t)i;
	snprintf(c.data.path, sizeof c.data.path, "%s/tokens.bin", (char *)*state);
	write_file(c.data.path, tokens, sizeof tokens);
	c.data.format = 0;
	while (strcmp(data_format_names[c.data.format], "tokens16") != 0)
		c.data.format++;
	c.data.classes = TOKENS;
	c.data.validation = 0;
	c.data.partition.kind = PARTITION_SHARD;
	c.data.partition.parts = 2;
	for (uint32_t part = 0; part < 2; part++) {
		c.data.partition.part = part;
		struct trainer *t = make(&c);

		assert_int_equal(trainer_flock(t, 77 + part, false, &e), 0);
		for (uint64_t n = 0; n + 8 <= t->n_train; n += 8) {
			const struct batch *b = loader_next(t->loader);

			assert_non_null(b);
			epochs += b->epoch;
			for (int64_t i = 0; i < b->count * CONTEXT; i++)
				assert_int_equal(seen[b->labels[i]]++, 0);
		}
		trainer_free(t);
	}
	assert_int_equal(epochs, 0);
	config_close(&c);
}

static void test_a_pick_follows_its_settings(void **state)
{
	static const float logits[5] = {1, 3, -INFINITY, 3, 3};
	static const struct {
		struct sample_config how;
		double least[5], most[5]; /* of 10,000 */
	} cases[] = {
	        {{0, 0}, {0, 10000, 0, 0, 0}, {0, 10000, 0, 0, 0}},
	        {{7, 1}, {0, 10000, 0, 0, 0}, {0, 10000, 0, 0, 0}},
	        {{1, 2}, {0, 4800, 0, 4800, 0}, {0, 5200, 0, 5200, 0}},
	        {{1, 9}, {350, 3000, 0, 3000, 3000}, {520, 3400, 0, 3400, 3400}},
	        {{100, 0}, {2400, 2400, 0, 2400, 2400}, {2600, 2600, 0, 2600, 2600}},
	};
	struct rng r;

	(void)state;
	rng_seed(&r, 4, 0);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int found[5] = {0};

		for (int k = 0; k < 10000; k++) {
			float x[5];

			memcpy(x, logits, sizeof x);
			found[sample_pick(x, 5, &cases[i].how, &r)]++;
		}
		for (int k = 0; k < 5; k++)
			if (found[k] < cases[i].least[k] || found[k] > cases[i].most[k])
				fail_msg("case %zu: %d was drawn %d times", i, k, found[k]);
	}
}

/* What it writes are the words of the text, beyond one window too, and what a longer text has
 * before the window does not matter. */
static void test_it_writes_the_words(void **state)
{
	enum { LETTERS = 3 * CONTEXT };
	const struct sample_config likeliest = {.temperature = 0};
	struct config c;
	struct sampler s, late;
	struct graph *net;
	struct rng r;
	struct err e;
	int32_t next, same;
	char text[LETTERS + 1] = "";

	small_config(&c, *state);
	c.train.epochs = 12;
	struct trainer *t = make(&c);

	while (!trainer_done(t))
		run_steps(t, 1);
	assert_int_equal(graph_new(&net, &t->arch, t->dev, 1, &e), 0);
	float *p = params_of(t);

	graph_set_params(net, p);
	free(p);
	assert_int_equal(sample_init(&s, net, &e), 0);
	rng_seed(&r, 1, 0);
	for (const char *w = "beta "; *w; w++)
		sample_add(&s, *w);
	for (int i = 0; i < LETTERS; i++) {
		assert_int_equal(sample_next(&s, &likeliest, &r, &next, &e), 0);
		text[i] = (char)next;
		sample_add(&s, next);
	}
	for (char *w = strtok(text, " "), *after; w; w = after) {
		after = strtok(NULL, " ");
		if (after && strcmp(w, "alpha") != 0 && strcmp(w, "beta") != 0 &&
		        strcmp(w, "gamma") != 0 && strcmp(w, "delta") != 0)
			fail_msg("it wrote \"%s\"", w);
	}
	assert_int_equal(sample_init(&late, net, &e), 0);
	for (int i = 0; i < CONTEXT; i++)
		sample_add(&late, s.tokens[i]);
	assert_int_equal(s.n, CONTEXT);
	assert_int_equal(sample_next(&s, &likeliest, &r, &next, &e), 0);
	assert_int_equal(sample_next(&late, &likeliest, &r, &same, &e), 0);
	assert_int_equal(next, same);
	sample_close(&late);
	sample_close(&s);
	graph_free(net);
	trainer_free(t);
	config_close(&c);
}

static void refuse(const struct config *c, int code, const char *text)
{
	struct trainer *t;
	struct err e;

	assert_int_equal(trainer_new(&t, c, NULL, &e), code);
	if (!strstr(e.msg, text))
		fail_msg("\"%s\" is not in \"%s\"", text, e.msg);
}

static void test_what_does_not_fit_is_refused(void **state)
{
	struct config c;

	small_config(&c, *state);
	snprintf(c.preset, sizeof c.preset, "mlp");
	refuse(&c, ERR_MISMATCH, "no embedding");
	snprintf(c.preset, sizeof c.preset, "gpt");
	c.gpt.heads = 3;
	refuse(&c, ERR_INVALID, "divide the width");
	c.gpt.heads = 2;
	c.data.context = 3000;
	refuse(&c, ERR_FORMAT, "smaller data.context");
	c.data.context = CONTEXT;
	c.data.augment.flip = true;
	refuse(&c, ERR_INVALID, "for images");
	c.data.augment.flip = false;
	c.data.partition.kind = PARTITION_LABEL;
	c.data.partition.alpha = 1;
	c.data.partition.parts = 2;
	refuse(&c, ERR_INVALID, "labels of tokens");
	config_close(&c);
}

/* What progress_step writes to stderr of a step that took half a second. */
static void progress_of(struct trainer *t, const struct step_result *r, char *line, size_t room)
{
	struct progress p = {.next_s = 1};
	int fd[2], kept = dup(STDERR_FILENO);

	assert_true(kept >= 0);
	assert_int_equal(pipe(fd), 0);
	assert_int_equal(dup2(fd[1], STDERR_FILENO), STDERR_FILENO);
	progress_step(&p, t, r, 0.5, 2);
	assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
	close(kept);
	close(fd[1]);
	ssize_t n = read(fd[0], line, room - 1);

	assert_true(n > 0);
	line[n] = '\0';
	close(fd[0]);
}

static void stepped(void *arg, const struct step_result *r, double seconds)
{
	(void)seconds;
	*(struct step_result *)arg = *r;
}

/* A sample of tokens has many labels. Speed and what is left go by samples. */
static void test_speed_is_of_samples(void **state)
{
	struct step_result last;
	const struct train_run_callbacks cb = {.arg = &last, .stepped_cb = stepped};
	char folder[300], line[200], eta[40];
	struct train_run run;
	struct run_dir dir;
	struct config c;
	struct err e;

	small_config(&c, *state);
	snprintf(folder, sizeof folder, "%s/speed", (char *)*state);
	struct trainer *t = make(&c);

	assert_int_equal(run_dir_open(&dir, folder, &e), 0);
	assert_int_equal(train_run_begin(&run, t, &dir, &cb, false, &e), 0);
	assert_int_equal(train_run_step(&run, &e), 0);
	assert_int_equal(run.busy_samples, 8);
	assert_int_equal(last.count, 8 * CONTEXT);
	progress_of(t, &last, line, sizeof line);
	/* 16 samples a second. */
	const int left_s = (int)round((double)(t->schedule.total - 8) / 16);

	snprintf(eta, sizeof eta, "  %d tokens/s  ETA %d:%02d\n", 16 * CONTEXT, left_s / 60,
	        left_s % 60);
	if (!strstr(line, eta))
		fail_msg("\"%s\" is not in \"%s\"", eta, line);
	train_run_end(&run, 0, "stopped");
	run_dir_close(&dir);
	trainer_free(t);
	config_close(&c);
}

/* Its file breaks while batch_norm is measured anew: that is told, and the statistics stay. */
static void test_statistics_of_a_file_that_breaks(void **state)
{
	static const char model[] = "{\"model\": {\"layers\": [{\"type\": \"embedding\", "
	                            "\"units\": 8}, {\"type\": \"batch_norm\"}, "
	                            "{\"type\": \"head\"}]}}";
	struct config_problems p;
	struct config c;
	struct err e;

	small_config(&c, *state);
	config_problems_init(&p, NULL);
	assert_int_equal(config_read(&c, model, strlen(model), &p), 0);
	struct trainer *t = make(&c);

	assert_true(t->arch.n_total == t->arch.n_train + 16);
	run_steps(t, 3);
	float *before = params_of(t);

	assert_int_equal(truncate(c.data.path, TEXT_BYTES / 2), 0);
	assert_int_equal(trainer_recalibrate(t, &e), ERR_FORMAT);
	float *after = params_of(t);

	assert_memory_equal(before, after, t->arch.n_total * sizeof *before);
	write_text(c.data.path);
	assert_int_equal(trainer_recalibrate(t, &e), 0);
	free(before);
	free(after);
	trainer_free(t);
	config_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_statistics_of_a_file_that_breaks),
	        cmocka_unit_test(test_it_learns_the_words),
	        cmocka_unit_test(test_a_resume_is_the_same_to_the_bit),
	        cmocka_unit_test(test_parts_stay_apart),
	        cmocka_unit_test(test_a_pick_follows_its_settings),
	        cmocka_unit_test(test_it_writes_the_words),
	        cmocka_unit_test(test_what_does_not_fit_is_refused),
	        cmocka_unit_test(test_speed_is_of_samples),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

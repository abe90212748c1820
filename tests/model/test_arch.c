/* SPDX-License-Identifier: MIT */
/* Shapes, parameters and their order; impossible lists and what is said of them; the arena's plan;
 * schedules. */
#include "model/arch/arch.h"
#include "model/graph/optim.h"
#include "model/graph/plan.h"
#include "tests/support.h"

#include "agent/base/rng.h"

#include <math.h>

static const struct shape image = {3, {28, 28, 1}};

static struct layer make(const char *type, int64_t units, int64_t kernel)
{
	struct layer l;
	assert_int_equal(layer_init(&l, type), 0);
	if (units)
		l.units = units;
	if (kernel)
		l.kernel = kernel;
	return l;
}

static void presets_have_known_sizes(void **state)
{
	(void)state;
	struct arch a;
	struct err e = {0};
	assert_int_equal(arch_preset(&a, "mlp", NULL, &image, 10, &e), 0);
	assert_int_equal(a.n_total, 784 * 512 + 512 + 512 * 256 + 256 + 256 * 10 + 10);
	assert_int_equal(a.n_decay, 784 * 512 + 512 * 256 + 256 * 10);
	assert_int_equal(a.n_train, a.n_total);
	arch_close(&a);
	assert_int_equal(arch_preset(&a, "cnn", NULL, &image, 10, &e), 0);
	assert_int_equal(a.n_total, 320 + 9248 + 18496 + 3136 * 128 + 128 + 1290);
	assert_string_equal(a.views[0].name, "conv1.weight");
	arch_close(&a);
	/* He et al.'s for CIFAR-10; its 19 norms of 16, 32 and 64 channels have 688 together. */
	static const struct shape cifar = {3, {32, 32, 3}};
	assert_int_equal(arch_preset(&a, "resnet20", NULL, &cifar, 10, &e), 0);
	assert_int_equal(a.n_train, 269722);
	assert_int_equal(a.n_total - a.n_train, 2 * 688);
	assert_int_equal(a.n_train - a.n_decay, 2 * 688 + 10);
	arch_close(&a);
	static const struct shape vector = {1, {64}};
	assert_int_equal(arch_preset(&a, "resnet20", NULL, &vector, 10, &e), ERR_INVALID);
	assert_non_null(strstr(e.msg, "image"));
	/* GPT-2 with 124 M: its embeddings' 38.6 M and 0.8 M, and 12 blocks of 7.1 M. */
	static const struct shape context = {1, {1024}};
	static const struct arch_gpt gpt2 = {.layers = 12, .width = 768, .heads = 12};
	assert_int_equal(arch_preset(&a, "gpt", &gpt2, &context, 50257, &e), 0);
	assert_int_equal(a.n_train, 124439808);
	assert_int_equal(a.n_total, a.n_train);
	assert_int_equal(a.n_decay,
	        50257 * 768 + 1024 * 768 + 12 * 12 * 768 * 768); /* not biases and norms */
	assert_string_equal(a.views[0].name, "embed.weight");
	assert_int_equal(a.n_views, 2 + 12 * 12 + 2); /* the head has none of its own */
	assert_true(a.tokens && a.positions == 1024);
	arch_close(&a);
	assert_int_equal(arch_preset(&a, "gpt", NULL, &image, 10, &e), ERR_INVALID);
	assert_non_null(strstr(e.msg, "wants tokens"));
	static const struct arch_gpt odd = {.layers = 1, .width = 10, .heads = 3};
	assert_int_equal(arch_preset(&a, "gpt", &odd, &context, 10, &e), ERR_INVALID);
	assert_non_null(strstr(e.msg, "divide"));
	assert_int_equal(arch_preset(&a, "rnn", NULL, &image, 10, &e), ERR_NOTFOUND);
	assert_non_null(strstr(e.msg, "rnn"));
}

/* Weights first, then biases, without a hole or an overlap. */
static void views_tile_the_vector(void **state)
{
	(void)state;
	struct arch a;
	struct err e = {0};
	assert_int_equal(arch_preset(&a, "cnn", NULL, &image, 10, &e), 0);
	char *seen = calloc(a.n_total, 1);
	for (int i = 0; i < a.n_views; i++) {
		const struct param_view *v = &a.views[i];
		bool weight = v->group == PARAM_WEIGHT;
		assert_int_equal(weight, v->offset < a.n_decay);
		assert_int_equal(weight, strstr(v->name, ".weight") != NULL);
		for (size_t k = 0; k < v->count; k++)
			assert_int_equal(seen[v->offset + k]++, 0);
	}
	assert_null(memchr(seen, 0, a.n_total));
	free(seen);
	arch_close(&a);
}

static void initial_values_are_bounded_and_repeatable(void **state)
{
	(void)state;
	struct arch a;
	struct err e = {0};
	assert_int_equal(arch_preset(&a, "mlp", NULL, &image, 10, &e), 0);
	float *p = malloc(a.n_total * sizeof *p), *q = malloc(a.n_total * sizeof *q);
	arch_init_params(&a, 1, p);
	arch_init_params(&a, 1, q);
	assert_memory_equal(p, q, a.n_total * sizeof *p);
	arch_init_params(&a, 2, q);
	assert_memory_not_equal(p, q, a.n_total * sizeof *p);
	double sum = 0, squares = 0;
	size_t n = a.views[0].count;
	for (size_t i = 0; i < n; i++) {
		assert_true(fabsf(p[i]) <= 1.0f / 28);
		sum += p[i];
		squares += (double)p[i] * p[i];
	}
	assert_true(fabs(sum / (double)n) < 1e-3);
	assert_true(fabs(squares / (double)n * 3 * 784 - 1) < 0.02);
	free(p);
	free(q);
	arch_close(&a);
}

/* What the refusal must say. */
static void refuse_of(const struct shape *input, const struct layer *l, int n, const char *word,
        const char *other)
{
	struct arch a;
	struct err e = {0};
	assert_true(arch_resolve(&a, l, n, input, 10, &e) < 0);
	assert_null(a.nodes);
	if (!strstr(e.msg, word) || !strstr(e.msg, other))
		fail_msg("\"%s\" names neither %s nor %s", e.msg, word, other);
}

static void refuse(const struct layer *l, int n, const char *word, const char *other)
{
	refuse_of(&image, l, n, word, other);
}

static void impossible_lists_of_tokens_are_explained(void **state)
{
	(void)state;
	static const struct shape tokens = {1, {7}};
	struct layer embed = make("embedding", 5, 0), attention = make("attention", 0, 0);
	attention.heads = 2;
	refuse_of(&tokens, (struct layer[]){embed, embed}, 2, "layer 2 (embedding",
	        "reads the data alone");
	refuse(&embed, 1, "layer 1 (embedding", "wants tokens");
	refuse_of(&tokens, (struct layer[]){embed, attention}, 2, "layer 2 (attention", "heads");
	embed.units = 9;
	refuse_of(&tokens, (struct layer[]){embed, attention}, 2, "layer 2 (attention", "divide");
	embed.units = 12;
	refuse_of(&tokens, (struct layer[]){embed, attention, make("head", 0, 0)}, 3,
	        "layer 3 (head", "as wide as");
	refuse((struct layer[]){make("flatten", 0, 0), make("head", 0, 0)}, 2, "layer 2 (head",
	        "must be one");
	refuse_of(&tokens, (struct layer[]){embed, make("dense", 9, 0)}, 2, "gives 7x9",
	        "10 tokens for each position");
	refuse_of(&tokens, (struct layer[]){embed, make("flatten", 0, 0), make("dense", 10, 0)}, 3,
	        "gives 10", "10 tokens for each position");
	struct layer dense = make("dense", 12, 0), add = make("add", 0, 0);
	snprintf(add.from[0], sizeof add.from[0], "input");
	snprintf(add.from[1], sizeof add.from[1], "dense1");
	refuse_of(&tokens, (struct layer[]){embed, dense, add}, 3, "layer 3 (add",
	        "only an embedding");
}

static void impossible_lists_are_explained(void **state)
{
	(void)state;
	refuse((struct layer[]){make("dense", 10, 0)}, 1, "layer 1 (dense", "flatten");
	refuse((struct layer[]){make("conv2d", 4, 29), make("flatten", 0, 0)}, 2, "kernel of 29",
	        "28x28x1");
	refuse((struct layer[]){make("flatten", 0, 0), make("dense", 9, 0)}, 2, "gives 9",
	        "10 classes");
	refuse((struct layer[]){make("flatten", 0, 0), make("max_pool", 0, 0),
	               make("dense", 10, 0)},
	        3, "layer 2 (max_pool", "image");
	struct layer add = make("add", 0, 0);
	refuse((struct layer[]){make("flatten", 0, 0), make("dense", 10, 0), add}, 3,
	        "layer 3 (add", "from");
	snprintf(add.from[0], sizeof add.from[0], "dense1");
	snprintf(add.from[1], sizeof add.from[1], "nosuch");
	refuse((struct layer[]){make("flatten", 0, 0), make("dense", 10, 0), add}, 3, "layer 3",
	        "nosuch");
	snprintf(add.from[1], sizeof add.from[1], "flatten1");
	refuse((struct layer[]){make("flatten", 0, 0), make("dense", 10, 0), add}, 3, "layer 3",
	        "different shapes");
	struct layer side = make("dense", 10, 0);
	snprintf(side.from[0], sizeof side.from[0], "flatten1");
	refuse((struct layer[]){make("flatten", 0, 0), make("dense", 7, 0), side}, 3, "dense1",
	        "no later layer reads");
	struct layer twice = make("dense", 10, 0);
	snprintf(twice.name, sizeof twice.name, "flatten1");
	refuse((struct layer[]){make("flatten", 0, 0), twice}, 2, "layer 2", "taken");
	snprintf(twice.name, sizeof twice.name, "a\"b");
	refuse((struct layer[]){make("flatten", 0, 0), twice}, 2, "layer 2", "letters");
	refuse((struct layer[]){make("flatten", 0, 0)}, 1, "784", "10 classes");
	refuse((struct layer[]){make("conv2d", LIMIT_DIM, 1024)}, 1, "layer 1", "kernel");
	struct layer wide = make("conv2d", LIMIT_DIM, 3);
	wide.pad = 1;
	refuse((struct layer[]){wide}, 1, "layer 1", "too large");
	struct layer pool = make("avg_pool", 0, 3);
	pool.pad = 2;
	refuse((struct layer[]){pool}, 1, "layer 1", "half the kernel");
	refuse((struct layer[]){make("relu", 0, 0)}, 0, "layers", "0");
}

static void canonical_text_is_stable(void **state)
{
	(void)state;
	struct arch a, b;
	struct err e = {0};
	struct buf x, y;
	buf_init(&x, 1 << 16);
	buf_init(&y, 1 << 16);
	struct layer list[] = {make("flatten", 0, 0), make("dense", 10, 0)};
	assert_int_equal(arch_resolve(&a, list, 2, &image, 10, &e), 0);
	snprintf(list[1].name, sizeof list[1].name, "dense1"); /* its default, said aloud */
	assert_int_equal(arch_resolve(&b, list, 2, &image, 10, &e), 0);
	assert_int_equal(arch_print(&a, &x), 0);
	assert_int_equal(arch_print(&b, &y), 0);
	assert_string_equal(x.data, y.data);
	assert_string_equal(x.data,
	        "{\"input\":[28,28,1],\"classes\":10,\"layers\":[{\"type\":\"flatten\",\"name\":"
	        "\"flatten1\",\"from\":[\"input\"]},{\"type\":\"dense\",\"name\":\"dense1\","
	        "\"from\":[\"flatten1\"],\"units\":10,\"bias\":true}]}");
	buf_close(&x);
	buf_close(&y);
	arch_close(&a);
	arch_close(&b);
}

static void extents_alive_together_are_apart(void **state)
{
	(void)state;
	struct rng r;
	rng_seed(&r, 5, 0);
	for (int round = 0; round < 200; round++) {
		struct plan_extent x[40];
		int n = 1 + (int)rng_below(&r, 40);
		unsigned long long sum = 0;
		for (int i = 0; i < n; i++) {
			int from = (int)rng_below(&r, 30);
			x[i] = (struct plan_extent){
			        1 + rng_below(&r, 5000), from, from + (int)rng_below(&r, 10), 0};
			sum += (x[i].bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
		}
		unsigned long long top = plan_arena(x, n);
		assert_true(top <= sum);
		for (int i = 0; i < n; i++) {
			assert_true(x[i].offset + x[i].bytes <= top);
			assert_int_equal(x[i].offset % PLAN_ALIGN, 0);
			for (int k = 0; k < i; k++)
				if (x[i].from <= x[k].to && x[k].from <= x[i].to)
					assert_true(x[i].offset >= x[k].offset + x[k].bytes ||
					            x[k].offset >= x[i].offset + x[i].bytes);
		}
	}
	/* Two that never meet share bytes. */
	struct plan_extent two[] = {{100, 0, 1, 0}, {100, 2, 3, 0}};
	assert_int_equal(plan_arena(two, 2), 128);
}

static void schedules_rise_and_fall(void **state)
{
	(void)state;
	struct schedule s = {.kind = SCHEDULE_COSINE, .warmup = 100, .total = 1100, .floor = 0.1};
	assert_true(schedule_factor(&s, 0) > 0 && schedule_factor(&s, 0) < 0.02);
	assert_true(schedule_factor(&s, 50) > 0.45 && schedule_factor(&s, 50) < 0.55);
	assert_true(fabs(schedule_factor(&s, 100) - 1) < 1e-12);
	assert_true(fabs(schedule_factor(&s, 600) - 0.55) < 1e-12);
	assert_true(fabs(schedule_factor(&s, 1100) - 0.1) < 1e-12);
	assert_true(fabs(schedule_factor(&s, 9999) - 0.1) < 1e-12);
	s = (struct schedule){.kind = SCHEDULE_STEP, .step = 10, .step_factor = 0.5, .total = 100};
	assert_true(schedule_factor(&s, 9) == 1 && schedule_factor(&s, 10) == 0.5 &&
	            schedule_factor(&s, 25) == 0.25);
	s.kind = SCHEDULE_CONSTANT;
	assert_true(schedule_factor(&s, 25) == 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(presets_have_known_sizes),
	        cmocka_unit_test(views_tile_the_vector),
	        cmocka_unit_test(initial_values_are_bounded_and_repeatable),
	        cmocka_unit_test(impossible_lists_are_explained),
	        cmocka_unit_test(impossible_lists_of_tokens_are_explained),
	        cmocka_unit_test(canonical_text_is_stable),
	        cmocka_unit_test(extents_alive_together_are_apart),
	        cmocka_unit_test(schedules_rise_and_fall),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

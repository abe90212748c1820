/* SPDX-License-Identifier: MIT */
/* A GPU as a device: what it says of itself, that there is none, what is too large for it, and its
 * memory, carved and running out. Run as test_gpu is. */
#include "model/graph/optim.h"
#include "tests/gpu/fixture.h"

/* By the library's own word; the plugin has loaded it. */
static void says_what_it_is(void **state)
{
	char want[32];
	struct device *d = open_gpu();
	void *dnn = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_NOLOAD);
	size_t (*version)(void) = NULL;
	(void)state;
	assert_non_null(dnn);
	*(void **)&version = dlsym(dnn, "cudnnGetVersion");
	assert_non_null(version);
	snprintf(want, sizeof want, ", cuDNN %zu.%zu)", version() / 10000, version() / 100 % 100);
	if (strncmp(d->text, "cuda:0 (", 8) != 0 || !strstr(d->text, ", sm_") ||
	        !strstr(d->text, want))
		fail_msg("\"%s\" does not end with \"%s\"", d->text, want);
	dlclose(dnn);
	device_close(d);
}

static void no_gpu_is_told(void **state)
{
	const struct device_config config = {.threads = 1};
	struct device *d = open_gpu();
	struct err e = {0};
	(void)state;
	device_close(d);
	if (!control.fail_call)
		skip();
	control.fail_call(1, 0);
	assert_int_equal(device_open(&d, "cuda:0", &config, NULL, &e), ERR_NOTFOUND);
	control.fail_call(0, 0);
	if (!strstr(e.msg, "an error of the stand-in"))
		fail_msg("%s", e.msg);
}

static void one_more_than_there_are(void **state)
{
	const struct device_config config = {.threads = 1};
	struct device *d;
	struct err e = {0};
	(void)state;
	device_close(open_gpu());
	if (!control.calls)
		skip();
	assert_int_equal(device_open(&d, "cuda:1", &config, NULL, &e), ERR_NOTFOUND);
	assert_string_equal(e.msg, "there is no cuda:1, only 1 GPU");
}

/* Kernels count in 32 bits. Such a batch would never fit into the memory: it is made up here. */
static void too_large_for_a_kernel(void **state)
{
	static const struct model_case c[] = {{"wide", {1, {300}}, "dense units=4"},
	        {"broad", {1, {4}}, "dense units=300; dense units=4"}};
	struct device *d = open_gpu();
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct err e = {0};
		struct arch a;
		struct graph *n;
		make_arch(&a, &c[i]);
		must(graph_new(&n, &a, d, BATCH, &e), &e);
		n->program.ops[0].batch = 1 << 23;
		assert_int_equal(d->backend->prepare(d, &n->program, &e), ERR_LIMIT);
		n->program.ops[0].batch = BATCH;
		graph_free(n);
		arch_close(&a);
	}
	device_close(d);
}

/* Pieces begin at multiples of 256 bytes, with 512 between them that belong to nobody; and what is
 * given back is given to the next that it is large enough for. */
static void memory_is_carved(void **state)
{
	struct device *d = open_gpu();
	const struct backend *b = d->backend;
	(void)state;
	char *first = b->alloc(d, 1000), *second = b->alloc(d, 1024), *third = b->alloc(d, 1);
	assert_int_equal((uintptr_t)first % 256, 0);
	assert_int_equal(second - first, 1024 + 512);
	assert_int_equal(third - second, 1024 + 512);
	b->release(d, second);
	assert_ptr_equal(b->alloc(d, 1024), second);
	b->release(d, second);
	char *fourth = b->alloc(d, 1025);
	assert_true(fourth > third);
	b->release(d, first);
	b->release(d, third);
	b->release(d, fourth);
	device_close(d);
}

/* One for the device, one for each model, one for its optimiser: all that they take was counted. */
static void blocks_are_few(void **state)
{
	const struct shape input = {3, {28, 28, 3}};
	const struct optim_config adamw = {.kind = OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.99};
	struct optim o;
	struct arch a;
	struct graph *n;
	struct err e = {0};
	struct device *d = open_gpu();
	(void)state;
	if (!control.blocks)
		skip();
	assert_int_equal(control.blocks(), 1);
	must(arch_preset(&a, "cnn", NULL, &input, CLASSES, &e), &e);
	must(graph_new(&n, &a, d, 64, &e), &e);
	assert_int_equal(control.blocks(), 2);
	must(optim_init(&o, &adamw, n, &e), &e);
	assert_int_equal(control.blocks(), 3);
	optim_close(&o);
	graph_free(n);
	device_close(d);
	arch_close(&a);
}

static void memory_runs_out(void **state)
{
	const struct shape input = {3, {12, 12, 3}};
	const struct optim_config adamw = {.kind = OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.99};
	struct optim o;
	struct arch a;
	struct graph *n;
	struct err e = {0};
	(void)state;
	must(arch_preset(&a, "cnn", NULL, &input, CLASSES, &e), &e);
	struct device *d = open_gpu();
	if (!control.memory)
		skip();
	control.memory(1); /* not even what is taken */
	assert_int_equal(graph_new(&n, &a, d, BATCH, &e), ERR_NOMEM);
	if (!strstr(e.msg, "too little for any batch"))
		fail_msg("%s", e.msg);
	/* What it wants is more than what is left, by however little; and is told before anything
	 * is taken. */
	for (size_t mb = 1; mb < 64; mb++) {
		control.memory(mb << 20);
		if (graph_new(&n, &a, d, 64, &e) == 0)
			break;
		const char *wants = strstr(e.msg, "wants "), *has = strstr(e.msg, "the GPU has ");
		if (!wants || !has || atoi(wants + 6) <= atoi(has + 12) ||
		        !strstr(e.msg, "too little for "))
			fail_msg("%s", e.msg);
	}
	graph_free(n);
	control.memory((size_t)64 << 20);
	assert_int_equal(graph_new(&n, &a, d, 4096, &e), ERR_NOMEM);
	const char *advice = strstr(e.msg, "try about ");
	if (!advice || atoi(advice + 10) < 64 || atoi(advice + 10) > 2048)
		fail_msg("%s", e.msg);
	must(graph_new(&n, &a, d, atoi(advice + 10), &e), &e);
	graph_free(n);
	control.memory((size_t)1 << 30);
	must(graph_new(&n, &a, d, BATCH, &e), &e);
	must(optim_init(&o, &adamw, n, &e), &e);
	optim_close(&o);
	graph_free(n);
	device_close(d);
	arch_close(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(says_what_it_is), TEST(no_gpu_is_told),
	        TEST(one_more_than_there_are), TEST(too_large_for_a_kernel), TEST(memory_is_carved),
	        TEST(blocks_are_few), TEST(memory_runs_out)};
	return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Devices that are not there, or that work behind the caller's back: a plugin that cannot be
 * loaded, a loss that comes later, a failure that only the device knows of. The last two are the
 * plain backend with another table. */
#include "model/cpu/gemm.h"
#include "model/graph/graph.h"
#include "model/graph/optim.h"
#include "tests/model/ops_fixture.h"

#include <stdlib.h>
#include <string.h>

/* auto says why it took the CPU, in one line that fits; cuda:0 is an error. */
static void a_broken_plugin_is_told(void **state)
{
	struct device_config c = {.threads = 1};
	struct device *d;
	struct err e = {0};
	char path[256], why[160];

	snprintf(path, sizeof path, "%s/dunlin-cuda.so", (char *)*state);
	write_file(path, "no library", 10);
	setenv("DUNLIN_PLUGIN_DIR", *state, 1);
	memset(why, 'x', sizeof why);
	assert_int_equal(device_open(&d, "auto", &c, why, &e), 0);
	assert_string_equal(d->backend->name, "cpu");
	assert_non_null(memchr(why, 0, sizeof why));
	assert_non_null(strstr(why, "the cuda backend cannot be loaded"));
	device_close(d);
	assert_int_equal(device_open(&d, "cuda:0", &c, why, &e), ERR_NOTFOUND);
	assert_non_null(strstr(e.msg, path));
	assert_null(d);
}

static struct backend table, plain;
static struct loss_result later, *promised;
static char order[16];
static int failing; /* allocations until none is given any more */

static void note(char c)
{
	order[strlen(order)] = c;
}

static int late_loss(struct device *d, struct program *p, int64_t count, float scale,
        struct loss_result *r, struct err *e)
{
	note('l');
	promised = r;
	return plain.loss(d, p, count, scale, &later, e);
}

static int late_backward(struct device *d, struct program *p, struct err *e)
{
	note('b');
	return plain.backward(d, p, e);
}

static int loss_wait(struct device *d, struct err *e)
{
	(void)d, (void)e;
	note('w');
	*promised = later;
	return 0;
}

static struct device *open_with_table(void)
{
	struct device *d = open_device("plain", 1);

	plain = table = *d->backend;
	d->backend = &table;
	memset(order, 0, sizeof order);
	return d;
}

static void a_loss_may_come_later(void **state)
{
	struct device *d = open_with_table();
	struct loss_result r, want;
	struct fixture f;
	struct err e = {0};

	(void)state;
	fixture_init(&f, &cases[0]);
	struct graph *n = make_net(&f, d);

	assert_int_equal(graph_eval(n, f.x, f.labels, 3, &want, &e), 0);
	table.loss = late_loss;
	table.backward = late_backward;
	table.loss_wait = loss_wait;
	assert_int_equal(graph_eval(n, f.x, f.labels, 3, &r, &e), 0);
	assert_string_equal(order, "lw");
	assert_true(r.loss_sum == want.loss_sum && r.count == 3);
	memset(order, 0, sizeof order);
	train_once(n, &f, false, &r);
	assert_string_equal(order, "lbw"); /* the device has all its work before the host waits */
	assert_true(r.count == BATCH && r.loss_sum > 0);
	graph_free(n);
	device_close(d);
	fixture_close(&f);
}

static void *stingy_alloc(struct device *d, size_t bytes)
{
	return failing-- > 0 ? plain.alloc(d, bytes) : NULL;
}

static int broken(struct device *d, struct err *e)
{
	(void)d;
	return err_set(e, ERR_DEVICE, "it fell off the bus");
}

/* Memory that is not given is either a lack of it, with advice, or a failure. */
static void missing_memory_has_a_reason(void **state)
{
	struct device *d = open_with_table();
	struct fixture f;
	struct graph *n;
	struct err e = {0};
	struct optim o;

	(void)state;
	fixture_init(&f, &cases[0]);
	table.alloc = stingy_alloc;
	for (int k = 0; k < 5; k++) {
		failing = k;
		table.settle = NULL;
		assert_int_equal(graph_new(&n, &f.arch, d, BATCH, &e), ERR_NOMEM);
		assert_non_null(strstr(e.msg, "smaller batch"));
		failing = k;
		table.settle = broken;
		assert_int_equal(graph_new(&n, &f.arch, d, BATCH, &e), ERR_DEVICE);
		assert_non_null(strstr(e.msg, "bus"));
	}
	failing = 5;
	assert_int_equal(graph_new(&n, &f.arch, d, BATCH, &e), 0);
	assert_int_equal(graph_check(n, &e), ERR_DEVICE);
	assert_int_equal(optim_init(&o, &(struct optim_config){.lr = 1}, n, &e), ERR_DEVICE);
	table.settle = NULL;
	assert_int_equal(graph_check(n, &e), 0);
	assert_int_equal(optim_init(&o, &(struct optim_config){.lr = 1}, n, &e), ERR_NOMEM);
	graph_free(n);
	device_close(d);
	fixture_close(&f);
}

/* Whoever cannot make code takes the compiled library, whatever a checkpoint has chosen. */
static void products_need_no_executable_memory(void **state)
{
	const struct gemm_shape s = {false, false, 2, 2, 2, 2, 2, 2};
	struct cpu_gemm g;
	struct err e = {0};

	(void)state;
	assert_int_equal(gemm_init(&g, true, false, 1), 0);
	assert_int_equal(gemm_choose(&g, &s), GEMM_OPENBLAS);
	assert_int_equal(gemm_parse(&g, "NN 2x2x2/2,2,2 d", &e), ERR_UNSUPPORTED);
	assert_int_equal(gemm_parse(&g, "NN 2x2x2/2,2,2 b", &e), 0);
	assert_int_equal(gemm_choose(&g, &s), GEMM_OPENBLAS);
	gemm_close(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_broken_plugin_is_told),
	        cmocka_unit_test(a_loss_may_come_later),
	        cmocka_unit_test(missing_memory_has_a_reason),
	        cmocka_unit_test(products_need_no_executable_memory),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

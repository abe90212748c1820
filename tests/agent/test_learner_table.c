/* SPDX-License-Identifier: MIT */
/* Real drivers on loopback sockets, with a learner behind them that is not the program's own: they
 * need nothing of a learner but its table of functions. */
#include "agent/drivers/driver.h"
#include "agent/train/core_settings.h"
#include "tests/agent/toy_learner.h"

#include <arpa/inet.h>

#define AGENTS 2

struct bed {
	uv_loop_t loop;
	struct config config;
	struct secrets secrets;
	struct identity identity[AGENTS];
	struct driver_config c[AGENTS];
	struct driver *d[AGENTS];
	struct toy toy[AGENTS];
	char seed[64], *folder;
	const char *seeds[1];
	int left, n;
};

static void on_left(void *arg)
{
	((struct bed *)arg)->left++;
}

static struct flock_config core_config(void)
{
	struct flock_config f = {.manifest = {.run = 1,
	                                 .model = 2,
	                                 .init = 3,
	                                 .count = TOY_N,
	                                 .total = TOY_TOTAL,
	                                 .mode = EXCHANGE_PAIR,
	                                 .formats = (1u << CONVERT_WORDS) - 1},
	        .n_groups = 2,
	        .vectors = 2,
	        .evaluates = true,
	        .gate = {.mode = GATE_EVERY, .every_samples = 5 * 8, .step_samples = 8},
	        .peer_rate = 1000,
	        .mode = EXCHANGE_PAIR,
	        .format = CONVERT_BF16,
	        .n_formats = CONVERT_WORDS,
	        .beta = 0.5f,
	        .stale = 1,
	        .fresh = 10,
	        .join_ms = 60000,
	        .merge_ms = 60000,
	        .stay_ms = 60000,
	        .leave_ms = 60000};
	for (int i = 0; i < CONVERT_WORDS; i++)
		f.exchange_bytes[i] = TOY_N * convert_word((enum convert_format)i);
	f.gate.exchange_bytes = f.exchange_bytes[f.format];
	return f;
}

static void bed_open(struct bed *b, void **state)
{
	static int beds;
	char path[300];
	const char *paths[] = {path};
	struct flock_id id;
	struct err e = {0};
	memset(b, 0, sizeof *b);
	b->folder = *state;
	alarm(120);
	assert_int_equal(uv_loop_init(&b->loop), 0);
	config_defaults(&b->config);
	snprintf(path, sizeof path, "%s/key%d", b->folder, beds++);
	assert_int_equal(secret_create(path, &id, &e), 0);
	assert_int_equal(secrets_load(&b->secrets, paths, 1, &e), 0);
}

static void start(struct bed *b)
{
	const int i = b->n++;
	struct driver_config *c = &b->c[i];
	char path[300];
	struct err e = {0};
	snprintf(path, sizeof path, "%s/agent%d", b->folder, i);
	if (identity_open(&b->identity[i], path, &e) != 0)
		fail_msg("%s", e.msg);
	/* The second one measures by itself what came, as a GPU does. */
	toy_init(&b->toy[i], &b->loop, 2 + 3 * (float)i, i == 1);
	*c = (struct driver_config){.loop = &b->loop,
	        .identity = &b->identity[i],
	        .secrets = &b->secrets,
	        .generation = b->identity[i].generation,
	        .dialable = true,
	        .protocol_min = 1,
	        .protocol_max = 1,
	        .members_max = 32,
	        .seeds = b->seeds,
	        .n_seeds = i > 0,
	        .learner = &b->toy[i].l,
	        .config = &b->config,
	        .out = "nowhere",
	        .core = core_config(),
	        .arg = b,
	        .left_cb = on_left};
	struct sockaddr_in *in = (void *)&c->listen;
	in->sin_family = AF_INET;
	in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (driver_new(&b->d[i], c, &e) != 0)
		fail_msg("%s", e.msg);
	struct peer_addr a = driver_address(b->d[0]);
	peer_addr_text(&a, b->seed);
	b->seeds[0] = b->seed;
	driver_start(b->d[i]);
}

/* Runs the loop until it is so; the alarm ends a test that waits in vain. */
#define AWAIT(b, so)  \
	while (!(so)) \
	assert_true(uv_run(&(b)->loop, UV_RUN_ONCE) != 0 || (so))

static struct flock_view view(const struct bed *b, int i)
{
	struct agent_view v;
	driver_view(b->d[i], &v);
	return v.core;
}

static void bed_close(struct bed *b)
{
	AWAIT(b, b->left == b->n);
	uv_run(&b->loop, UV_RUN_DEFAULT);
	for (int i = 0; i < b->n; i++) {
		driver_free(b->d[i]);
		assert_int_equal(b->toy[i].buffers, 0);
		identity_close(&b->identity[i]);
	}
	secrets_close(&b->secrets);
	config_close(&b->config);
	assert_int_equal(uv_loop_close(&b->loop), 0);
	alarm(0);
}

/* One trains, another joins it with its state, they average, both end the run and agree. */
static void another_trainer_stands_behind_the_table(void **state)
{
	struct bed b;
	struct err e;
	(void)state;
	bed_open(&b, state);
	start(&b);
	struct toy *t = b.toy;
	AWAIT(&b, t[0].step >= 20);
	start(&b);
	AWAIT(&b, t[1].did[TOY_ADOPT] == 1);
	assert_true(t[0].did[TOY_TAKE_STATE] >= 1);
	AWAIT(&b, t[0].did[TOY_APPLY] >= 3 && t[1].did[TOY_APPLY] >= 3);
	assert_true(t[1].did[TOY_MEASURE] >= 3 && t[0].did[TOY_MEASURE] == 0);
	assert_int_equal(driver_wish(b.d[1], WISH_PAUSE, &e), 0);
	assert_false(t[1].training);
	assert_int_equal(driver_wish(b.d[1], WISH_RESUME, &e), 0);
	assert_true(t[1].training);
	t[0].enough = t[1].enough = true;
	AWAIT(&b, view(&b, 0).finished && view(&b, 1).finished);
	for (int i = 0; i < AGENTS; i++) {
		struct flock_view v = view(&b, i);
		assert_true(v.has_local && v.has_merged);
		assert_true(t[i].did[TOY_EXPORT] == 1 && t[i].did[TOY_EVALUATE] == 2);
		assert_int_equal(v.counts.by_outcome[OUTCOME_ONE_SIDED], 0);
		driver_leave(b.d[i]);
	}
	AWAIT(&b, b.left == 2);
	for (int k = 0; k < TOY_N; k++) {
		assert_true(fabs(t[0].applied[k] + t[1].applied[k]) < 1e-5);
		assert_true(fabsf(t[0].x[k] - t[1].x[k]) < 1e-3f * fabsf(t[0].x[k]));
	}
	assert_true(t[0].did[TOY_SAVE] >= 1 && t[1].did[TOY_SAVE] >= 1);
	bed_close(&b);
}

/* "ok" is not the answer to who asks for a checkpoint that will not be written. */
static void a_checkpoint_that_is_not_taken_is_told(void **state)
{
	struct bed b;
	struct err e = {0};
	bed_open(&b, state);
	start(&b);
	AWAIT(&b, view(&b, 0).step > 0);
	b.toy[0].full = true;
	assert_int_equal(driver_wish(b.d[0], WISH_SAVE, &e), ERR_BUSY);
	assert_non_null(strstr(e.msg, "try again"));
	b.toy[0].full = false;
	assert_int_equal(b.toy[0].did[TOY_SAVE], 0);
	assert_int_equal(driver_wish(b.d[0], WISH_SAVE, &e), 0);
	AWAIT(&b, b.toy[0].did[TOY_SAVE] == 1);
	driver_leave(b.d[0]);
	bed_close(&b);
}

/* Who leaves while its own model is evaluated has merged nothing. */
static void a_local_model_is_not_called_merged(void **state)
{
	struct bed b;
	char path[300], text[8192] = "";
	int out = dup(STDERR_FILENO);
	bed_open(&b, state);
	snprintf(path, sizeof path, "%s/log", b.folder);
	start(&b);
	b.toy[0].hold = b.toy[0].enough = true;
	AWAIT(&b, b.toy[0].n_jobs > 0 && b.toy[0].job[0].what == TOY_EVALUATE);
	fflush(stderr);
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	assert_true(fd >= 0 && out >= 0 && dup2(fd, STDERR_FILENO) >= 0);
	driver_leave(b.d[0]);
	b.toy[0].hold = false;
	AWAIT(&b, b.left == 1);
	fflush(stderr);
	dup2(out, STDERR_FILENO);
	assert_true(pread(fd, text, sizeof text - 1, 0) > 0);
	assert_null(strstr(text, "merged model"));
	assert_non_null(strstr(text, "local model: loss 1.0000  accuracy 90.00% of 10"));
	assert_true(view(&b, 0).has_local && !view(&b, 0).has_merged);
	close(fd);
	close(out);
	bed_close(&b);
}

/* An agent that cannot pack a lattice (a GPU's) answers an offer of one in bf16, as one does that
 * has no scales yet; it must not refuse it. */
static void an_offer_of_a_lattice_is_answered(void **state)
{
	struct exchange_actions *a = calloc(1, sizeof *a);
	struct exchange *x = calloc(1, exchange_size());
	struct exchange_message m = {.kind = EXCHANGE_OFFER, .exchange = 7};
	struct exchange_event e = {.kind = EXCHANGE_EVENT_RECEIVED};
	struct flock_config f = core_config();
	struct exchange_terms ours;
	struct config c;
	(void)state;
	assert_true(a && x);
	config_defaults(&c);
	core_settings(&f, &c);
	assert_int_equal(f.format, CONVERT_BF16);
	assert_int_equal(f.format_why, FORMAT_UNPACKED);
	struct exchange_config xc = {.manifest = f.manifest,
	        .n_groups = f.n_groups,
	        .scaled = f.scaled,
	        .plain = f.plain};
	exchange_init(x, &xc);
	ours = (struct exchange_terms){.manifest = f.manifest, .beta = f.beta};
	m.terms = ours;
	m.terms.manifest.formats = (1u << CONVERT_FORMATS) - 1;
	m.terms.format = CONVERT_MOD8;
	m.terms.n_scales = 1;
	e.peer.bytes[0] = 1;
	e.received.message = &m;
	e.received.ours = &ours;
	e.received.deadline_ms = 1000;
	exchange_step(x, &e, a);
	assert_int_equal(a->n_sends, 1);
	assert_int_equal(a->send[0].message.kind, EXCHANGE_ACCEPT);
	assert_int_equal(a->send[0].message.terms.format, CONVERT_BF16);
	assert_int_equal(a->send[0].message.terms.n_scales, 0);
	free(x);
	free(a);
}

/* Without a word of the user: 8 bits, where the device can pack and both agents move. */
static void the_default_format_is_packed(void **state)
{
	struct flock_config f = core_config();
	struct config c;
	(void)state;
	config_defaults(&c);
	f.manifest.formats = (1u << CONVERT_FORMATS) - 1;
	core_settings(&f, &c);
	assert_int_equal(f.format, CONVERT_MOD8);
	assert_int_equal(f.format_why, FORMAT_PACKS);
	assert_true(f.gate.exchange_bytes == f.exchange_bytes[CONVERT_MOD8]);
	c.gossip.exchange = EXCHANGE_PUSH;
	core_settings(&f, &c);
	assert_int_equal(f.format, CONVERT_BF16);
	assert_int_equal(f.format_why, FORMAT_ONE_WAY);
	for (int stated = 0; stated < CONVERT_FORMATS; stated++) {
		c.gossip.exchange = EXCHANGE_PAIR;
		c.gossip.wire = stated + 1;
		core_settings(&f, &c);
		assert_int_equal(f.format, stated);
		assert_int_equal(f.format_why, FORMAT_STATED);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(another_trainer_stands_behind_the_table),
	        cmocka_unit_test(a_checkpoint_that_is_not_taken_is_told),
	        cmocka_unit_test(a_local_model_is_not_called_merged),
	        cmocka_unit_test(an_offer_of_a_lattice_is_answered),
	        cmocka_unit_test(the_default_format_is_packed),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

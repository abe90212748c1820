/* SPDX-License-Identifier: MIT */
/* Real nodes on loopback sockets, several on one loop: they find each other, notice a leave, refuse
 * strangers and other versions, and give everything back. */
#include "agent/base/log.h"
#include "agent/drivers/driver.h"
#include "tests/support.h"

#include <arpa/inet.h>

#define NODES_MAX 6
#define DEADLINE_MS 30000

struct test_flock {
	uv_loop_t loop;
	char *dir;
	struct secrets secrets;
	struct identity identity[NODES_MAX];
	struct driver *node[NODES_MAX];
	struct driver_config config[NODES_MAX];
	char seed[64];
	const char *seeds[1];
	int left;
	bool expired;
};

static void on_left(void *arg)
{
	((struct test_flock *)arg)->left++;
}

static void open_secrets(struct test_flock *f, struct secrets *s, const char *name)
{
	char path[300];
	const char *paths[] = {path};
	struct flock_id id;
	struct err e = {0};
	snprintf(path, sizeof path, "%s/%s", f->dir, name);
	if (access(path, F_OK) != 0)
		assert_int_equal(secret_create(path, &id, &e), 0);
	assert_int_equal(secrets_load(s, paths, 1, &e), 0);
}

static void group_init(struct test_flock *f, void **state)
{
	memset(f, 0, sizeof *f);
	f->dir = *state;
	assert_int_equal(uv_loop_init(&f->loop), 0);
	open_secrets(f, &f->secrets, "flock.key");
}

static void start(struct test_flock *f, int i, const struct secrets *s, uint16_t version)
{
	char path[300];
	struct err e = {0};
	struct driver_config *c = &f->config[i];
	snprintf(path, sizeof path, "%s/node%d-%u", f->dir, i, (unsigned)getpid());
	if (f->identity[i].generation == 0 && identity_open(&f->identity[i], path, &e) != 0)
		fail_msg("%s", e.msg);
	*c = (struct driver_config){.loop = &f->loop,
	        .identity = &f->identity[i],
	        .secrets = s ? s : &f->secrets,
	        .generation = f->identity[i].generation,
	        .dialable = true,
	        .protocol_min = version,
	        .protocol_max = version,
	        .members_max = 32,
	        .seeds = f->seeds,
	        .n_seeds = i > 0,
	        .arg = f,
	        .left_cb = on_left};
	struct sockaddr_in *in = (void *)&c->listen;
	in->sin_family = AF_INET;
	in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (driver_new(&f->node[i], c, &e) != 0)
		fail_msg("%s", e.msg);
	if (i == 0) {
		struct peer_addr a = driver_address(f->node[0]);
		peer_addr_text(&a, f->seed);
		f->seeds[0] = f->seed;
	}
	driver_start(f->node[i]);
}

static void on_expired(uv_timer_t *t)
{
	*(bool *)t->data = true;
}

/* Runs the loop until it is so, or far too long has passed. */
static bool await(struct test_flock *f, bool (*so)(struct test_flock *))
{
	uv_timer_t t;
	f->expired = false;
	uv_timer_init(&f->loop, &t);
	t.data = &f->expired;
	uv_timer_start(&t, on_expired, DEADLINE_MS, 0);
	while (!f->expired && !so(f))
		uv_run(&f->loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&t, NULL);
	uv_run(&f->loop, UV_RUN_NOWAIT);
	return so(f);
}

static uint32_t alive(const struct test_flock *f, int i)
{
	return gossip_count_state(driver_gossip(f->node[i]), MEMBER_ALIVE);
}

static void flock_close(struct test_flock *f)
{
	int n = 0;
	for (int i = 0; i < NODES_MAX; i++) {
		if (!f->node[i])
			continue;
		driver_leave(f->node[i]);
		n++;
	}
	while (f->left < n && uv_run(&f->loop, UV_RUN_ONCE))
		;
	uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_int_equal(f->left, n);
	for (int i = 0; i < NODES_MAX; i++)
		driver_free(f->node[i]);
	for (int i = 0; i < NODES_MAX; i++)
		if (f->identity[i].generation)
			identity_close(&f->identity[i]);
	secrets_close(&f->secrets);
	assert_int_equal(uv_loop_close(&f->loop), 0);
}

static bool all_five(struct test_flock *f)
{
	for (int i = 0; i < 5; i++)
		if (alive(f, i) != 4)
			return false;
	return true;
}

static bool four_know_it_left(struct test_flock *f)
{
	for (int i = 0; i < 4; i++)
		if (gossip_count_state(driver_gossip(f->node[i]), MEMBER_LEFT) != 1)
			return false;
	return f->left == 1;
}

static void five_find_each_other_and_one_leaves(void **state)
{
	struct test_flock f;
	group_init(&f, state);
	for (int i = 0; i < 5; i++)
		start(&f, i, NULL, 1);
	assert_true(await(&f, all_five));
	struct driver *gone = f.node[4];
	driver_leave(gone);
	f.node[4] = NULL;
	assert_true(await(&f, four_know_it_left));
	driver_free(gone);
	f.left = 0;
	flock_close(&f);
}

static bool second_was_refused(struct test_flock *f)
{
	return driver_counters(f->node[0]).handshakes_failed > 0;
}

static void a_wrong_key_gets_nothing(void **state)
{
	struct test_flock f;
	struct secrets other;
	group_init(&f, state);
	open_secrets(&f, &other, "other.key");
	start(&f, 0, NULL, 1);
	start(&f, 1, &other, 1);
	assert_true(await(&f, second_was_refused));
	assert_int_equal(gossip_count(driver_gossip(f.node[0])), 0);
	assert_int_equal(gossip_count(driver_gossip(f.node[1])), 0);
	flock_close(&f);
	secrets_close(&other);
}

static bool dialled_and_gone(struct test_flock *f)
{
	return driver_counters(f->node[0]).streams_accepted > 0 &&
	       driver_counters(f->node[0]).connections == 0;
}

static void another_version_is_refused(void **state)
{
	struct test_flock f;
	group_init(&f, state);
	start(&f, 0, NULL, 1);
	start(&f, 1, NULL, 2);
	assert_true(await(&f, dialled_and_gone));
	assert_int_equal(gossip_count(driver_gossip(f.node[0])), 0);
	flock_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(five_find_each_other_and_one_leaves),
	        cmocka_unit_test(a_wrong_key_gets_nothing),
	        cmocka_unit_test(another_version_is_refused),
	};
	log_setup(&(struct log_config){.level = LOG_ERROR});
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

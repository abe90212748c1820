/* SPDX-License-Identifier: MIT */
/* Strangers who connect and say nothing, as many as there are slots, from several addresses: two
 * agents still find each other, and open bulk connections. */
#include "tests/net/transport_pair.h"

#define STRANGERS (BUDGET_SLOTS + 64)
#define ADDRESSES 8

static int idle[STRANGERS];

static bool full(const struct pair *p)
{
	return p->side[1].t->budget.n_slots >= BUDGET_SLOTS - BUDGET_SLOTS_PREFIX;
}

/* The n-th stranger, at one of the loopback addresses 127.0.0.1 to 127.0.0.8. */
static int come(const struct pair *p, int n)
{
	struct sockaddr_in from = {.sin_family = AF_INET};
	struct sockaddr_storage to;
	struct peer_addr a = transport_bound(p->side[1].t);
	from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)(n % ADDRESSES));
	peer_addr_to(&a, &to);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(struct sockaddr_in)), 0);
	return fd;
}

static void silent_strangers_hold_nobody_up(void **state)
{
	static struct pair p;
	struct err e = {0};
	pair_open(&p, *state);
	for (int i = 0; i < STRANGERS; i++) {
		idle[i] = come(&p, i);
		uv_run(&p.loop, UV_RUN_NOWAIT);
	}
	assert_true(await(&p, full));
	/* A newcomer, from an address that has its share of slots already. */
	connect_pair(&p, 0);
	/* And what it does with the other, in both directions; again with all slots taken. */
	for (int i = 0; i < 4; i++) {
		for (int k = 0; k < BUDGET_SLOTS_PREFIX; k++) {
			close(idle[k]);
			idle[k] = come(&p, k);
			uv_run(&p.loop, UV_RUN_NOWAIT);
		}
		assert_int_equal(transport_bulk(p.side[i % 2].t, &p.side[1 - i % 2].identity.id, 3,
		                         false, &e),
		        0);
		assert_true(await(&p, both_have_bulk));
		check_bulk(&p, i % 2, 3);
	}
	for (int i = 0; i < STRANGERS; i++)
		close(idle[i]);
	pair_close(&p);
}

/* ---- no memory */

static int short_of_memory; /* connections for which there is none */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	if (size == sizeof(struct conn) && short_of_memory > 0 && short_of_memory-- > 0)
		return NULL;
	return __real_calloc(n, size);
}

static bool was_short(const struct pair *p)
{
	(void)p;
	return short_of_memory == 0;
}

/* The listener is still there when there is memory again, and takes who has waited. */
static void a_listener_survives_want_of_memory(void **state)
{
	static struct pair p;
	pair_open(&p, *state);
	short_of_memory = 2;
	int fd = come(&p, 0);
	assert_true(await(&p, was_short));
	connect_pair(&p, 0);
	close(fd);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(silent_strangers_hold_nobody_up),
	        cmocka_unit_test(a_listener_survives_want_of_memory),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

/* SPDX-License-Identifier: MIT */
/* Two transports with several addresses: dialled one after the other until one answers; both
 * families on one port, or only the one that was asked for. */
#include "tests/net/transport_pair.h"

#include <sodium.h>

static bool second_has_two_posts(const struct pair *p)
{
	return p->side[1].posts == 2;
}

/* A port that is taken, so that nobody else gets it; with a backlog of 0 and strangers before us it
 * is silent, without it refuses. */
static struct peer_addr unanswered(int fd[4], bool silent)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof in;
	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(fd[0], (struct sockaddr *)&in, sizeof in), 0);
	assert_int_equal(getsockname(fd[0], (struct sockaddr *)&in, &len), 0);
	assert_true(!silent || listen(fd[0], 0) == 0);
	for (int i = 1; i < 4; i++) {
		fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		if (silent)
			connect(fd[i], (struct sockaddr *)&in, sizeof in);
	}
	return peer_addr_from((struct sockaddr *)&in);
}

/* Where the first address refuses, or is silent, the second is dialled, and nothing is lost. */
static void the_next_address_is_dialled(void **state)
{
	static struct pair p;
	struct exchange_message m = {.kind = EXCHANGE_COMMIT, .exchange = 8};
	for (int silent = 0; silent < 2; silent++) {
		int fd[4];
		pair_open(&p, *state);
		struct peer_addrs at = {2, {unanswered(fd, silent), transport_bound(p.side[1].t)}};
		assert_true(transport_post(p.side[0].t, &p.side[1].identity.id, &at, &m));
		assert_true(post(&p, 0, &at.at[0], 9)); /* waits for the same connection */
		assert_true(await(&p, second_has_two_posts));
		assert_true(peer_addr_equal(&p.side[0].dialled, &at.at[1]));
		assert_int_equal(p.side[1].dialled.family, 0);
		assert_int_equal(transport_counters(p.side[0].t).streams_dialled, 2);
		pair_close(&p);
		for (int i = 0; i < 4; i++)
			close(fd[i]);
	}
}

static void a_bulk_takes_the_next_address(void **state)
{
	static struct pair p;
	struct err e = {0};
	int fd[4];
	pair_open(&p, *state);
	struct peer_addrs at = {2, {unanswered(fd, false), transport_bound(p.side[1].t)}};
	transport_set_self(p.side[1].t, p.side[1].identity.generation, &at, true);
	connect_pair(&p, 1);
	assert_int_equal(transport_bulk(p.side[0].t, &p.side[1].identity.id, 1, false, &e), 0);
	assert_true(await(&p, both_have_bulk));
	check_bulk(&p, 0, 1);
	assert_int_equal(p.side[0].bulks_failed, 0);
	pair_close(&p);
	for (int i = 0; i < 4; i++)
		close(fd[i]);
}

/* One socket each for TCP and UDP; peers come by IPv4 and by IPv6. */
static void both_families_are_heard(void **state)
{
	static struct pair p;
	for (int six = 0; six < 2; six++) {
		dual_stack = true;
		pair_open(&p, *state);
		dual_stack = false;
		struct peer_addr a = {4, {127, 0, 0, 1}, transport_bound(p.side[1].t).port};
		if (six)
			a = (struct peer_addr){6, {[15] = 1}, a.port};
		if (six && transport_bound(p.side[1].t).family == 4) {
			pair_close(&p);
			skip(); /* there is no IPv6 here */
		}
		assert_true(post(&p, 0, &a, 1));
		assert_true(await(&p, second_has_post));
		struct gossip_send ping = {.channel = CHANNEL_DATAGRAM,
		        .to_id = true,
		        .id = p.side[1].identity.id,
		        .addrs = one(a),
		        .message = {.kind = MESSAGE_PING}};
		transport_send(p.side[0].t, &ping);
		assert_true(await(&p, second_has_gossip));
		assert_int_equal(p.side[1].from.family, a.family);
		assert_memory_equal(p.side[1].from.ip, a.ip, 16);
		pair_close(&p);
	}
}

/* Whether nobody has that port of IPv4, of either kind. */
static bool free_in_ipv4(uint16_t port)
{
	bool is_free = true;
	for (int k = 0; k < 2; k++) {
		struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
		int fd = socket(AF_INET, k ? SOCK_DGRAM : SOCK_STREAM, 0);
		is_free = is_free && bind(fd, (struct sockaddr *)&in, sizeof in) == 0;
		close(fd);
	}
	return is_free;
}

/* [::] alone takes no IPv4: its port is free there, unless another process happens to have it. */
static void a_given_host_is_that_host(void **state)
{
	static struct pair p;
	struct sockaddr_in6 any = {.sin6_family = AF_INET6};
	int six = socket(AF_INET6, SOCK_STREAM, 0);
	bool is_free = false;
	if (six < 0)
		skip();
	close(six);
	pair_open(&p, *state);
	struct transport_config c = p.side[0].t->config;
	memset(&c.listen, 0, sizeof c.listen);
	memcpy(&c.listen, &any, sizeof any);
	for (int tries = 0; tries < 20 && !is_free; tries++) {
		struct transport *t;
		struct err e = {0};
		if (transport_new(&t, &c, &e) != 0)
			fail_msg("%s", e.msg);
		is_free = free_in_ipv4(transport_bound(t).port);
		transport_close(t, NULL, NULL);
	}
	assert_true(is_free);
	pair_close(&p);
}

/* ---- datagram links */

static struct peer_id new_id(void)
{
	struct peer_id id;
	uint8_t secret[crypto_sign_SECRETKEYBYTES];
	crypto_sign_keypair(id.bytes, secret);
	return id;
}

static bool has_link(struct pair *p, const struct peer_id *id)
{
	uint8_t out[GOSSIP_DATAGRAM_BYTES];
	return links_seal(p->side[0].t, id, (const uint8_t *)"x", 1, out) > 0;
}

/* Whoever says HELLO gets a link; there is room for eight. Members' outlive those of others, and
 * those in use outlive those that are not. */
static void links_give_way(void **state)
{
	static struct pair p;
	struct peer_id member[9];
	pair_open(&p, *state);
	struct transport *t = p.side[0].t;
	for (int i = 0; i < 3; i++) {
		member[i] = new_id();
		transport_generation(t, &member[i], 1);
	}
	for (int i = 0; i < 40; i++) {
		struct peer_id stranger = new_id();
		links_set(t, &stranger, 1, false);
		assert_true(has_link(&p, &stranger));
	}
	for (int i = 3; i < 8; i++) {
		member[i] = new_id();
		transport_generation(t, &member[i], 1);
	}
	for (int i = 7; i >= 0; i--)
		assert_true(has_link(&p, &member[i]));
	member[8] = new_id(); /* the core has forgotten one for it */
	transport_generation(t, &member[8], 1);
	assert_true(has_link(&p, &member[8]));
	assert_true(has_link(&p, &member[0]));
	assert_false(has_link(&p, &member[7]));
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(the_next_address_is_dialled),
	        cmocka_unit_test(a_bulk_takes_the_next_address),
	        cmocka_unit_test(both_families_are_heard),
	        cmocka_unit_test(a_given_host_is_that_host),
	        cmocka_unit_test(links_give_way),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

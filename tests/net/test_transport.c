/* SPDX-License-Identifier: MIT */
/* Two transports on one loop: messages of an exchange, over a stream that is dialled for them or
 * stands already, and only for their addressee; bulk connections beside it, opened from either side
 * by tokens that only the two can know, each with its exchange's number; a made-up token gets
 * nothing. */
#include "tests/net/transport_pair.h"

static bool both_have_two_bulks(const struct pair *p)
{
	return p->side[0].bulks == 2 && p->side[1].bulks == 2;
}

static bool bulk_failed(const struct pair *p)
{
	return p->side[0].bulks_failed == 1;
}

static uint64_t failed_before;

static bool one_failed(const struct pair *p)
{
	return transport_counters(p->side[1].t).handshakes_failed > failed_before;
}

static bool second_has_bulk(const struct pair *p)
{
	return p->side[1].bulks == 1;
}

static bool first_has_post(const struct pair *p)
{
	return p->side[0].posts > 0;
}

static bool both_have_post(const struct pair *p)
{
	return first_has_post(p) && second_has_post(p);
}

/* A connection that begins with this BULK_OPEN; the caller's. */
static int knock_at(struct pair *p, const struct wire_bulk_open *open)
{
	uint8_t bytes[OPENING_HEADER_BYTES + 64];
	struct wire_message m = {.kind = WIRE_BULK_OPEN, .bulk = *open};
	struct sockaddr_storage to;
	struct peer_addr a = transport_bound(p->side[1].t);
	size_t len;
	assert_int_equal(wire_encode(&m, bytes + OPENING_HEADER_BYTES, 64, &len), 0);
	opening_header(bytes, OPENING_BULK, len);
	peer_addr_to(&a, &to);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(struct sockaddr_in)), 0);
	assert_int_equal(send(fd, bytes, OPENING_HEADER_BYTES + len, 0),
	        (ssize_t)(OPENING_HEADER_BYTES + len));
	return fd;
}

/* No socket is handed out for it, and the connection ends. */
static void knock(struct pair *p, const struct wire_bulk_open *open)
{
	failed_before = transport_counters(p->side[1].t).handshakes_failed;
	int fd = knock_at(p, open);
	assert_true(await(p, one_failed));
	assert_int_equal(p->side[1].bulks, 0);
	close(fd);
}

static const struct peer_addr nowhere;

static uint64_t dropped(const struct pair *p, int i)
{
	return transport_counters(p->side[i].t).messages_dropped;
}

static bool both_copied(const struct pair *p)
{
	return p->side[0].copied > 0 && p->side[1].copied > 0;
}

/* The connection to its own address is gone from both ends. */
static bool first_is_rid_of_itself(const struct pair *p)
{
	return transport_counters(p->side[0].t).streams_accepted > 0 && p->side[0].t->conns == NULL;
}

/* One key at both ends: a copy of the identity, unless both ends are ours. */
static void a_copied_identity_is_called_that(void **state)
{
	static struct pair p;
	one_key = true;
	pair_open(&p, *state);
	one_key = false;
	struct gossip_send s = {.channel = CHANNEL_STREAM,
	        .addrs = one(transport_bound(p.side[0].t)),
	        .message = {.kind = MESSAGE_GOSSIP}};
	transport_send(p.side[0].t, &s);
	assert_true(await(&p, first_is_rid_of_itself));
	assert_int_equal(p.side[0].copied, 0);
	transport_send(p.side[1].t, &s);
	assert_true(await(&p, both_copied));
	assert_int_equal(p.side[0].ups + p.side[1].ups, 0);
	pair_close(&p);
}

static void bulk_connections_open_beside_a_stream(void **state)
{
	static struct pair p;
	struct err e = {0};
	pair_open(&p, *state);
	assert_int_equal(
	        transport_bulk(p.side[0].t, &p.side[1].identity.id, 1, false, &e), ERR_NOTFOUND);
	connect_pair(&p, 0);
	for (int round = 0; round < 3; round++) {
		for (int dialler = 0; dialler < 2; dialler++) {
			const struct peer_id *to = &p.side[1 - dialler].identity.id;
			uint64_t exchange = (uint64_t)round << 40 | (uint64_t)dialler;
			if (transport_bulk(p.side[dialler].t, to, exchange, false, &e) != 0)
				fail_msg("%s", e.msg);
			assert_true(await(&p, both_have_bulk));
			check_bulk(&p, dialler, exchange);
		}
	}
	struct wire_bulk_open made_up = {.attempt = 1};
	memset(made_up.token, 0x5a, sizeof made_up.token);
	knock(&p, &made_up);
	pair_close(&p);
}

/* A connection that comes when its exchange has been given up, and the next one's beside it: both
 * ends can tell them apart. */
static void a_late_bulk_says_what_it_is_for(void **state)
{
	static struct pair p;
	struct err e = {0};
	pair_open(&p, *state);
	connect_pair(&p, 0);
	for (uint64_t exchange = 5; exchange < 7; exchange++)
		assert_int_equal(
		        transport_bulk(p.side[0].t, &p.side[1].identity.id, exchange, false, &e),
		        0);
	assert_true(await(&p, both_have_two_bulks));
	struct side *a = &p.side[0], *b = &p.side[1];
	assert_true(a->exchange[0] + a->exchange[1] == 11);
	for (int i = 0; i < 2; i++) {
		int j = b->exchange[0] == a->exchange[i] ? 0 : 1;
		assert_true(b->exchange[j] == a->exchange[i]);
		assert_memory_equal(&a->keys[i], &b->keys[j], sizeof a->keys[i]);
		close(a->fd[i]);
		close(b->fd[i]);
	}
	pair_close(&p);
}

/* The peer says that it can be dialled where nobody listens. */
static void a_bulk_that_fails_says_for_what(void **state)
{
	static struct pair p;
	struct err e = {0};
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof in;
	pair_open(&p, *state);
	int fd = socket(AF_INET, SOCK_STREAM, 0); /* bound, and deaf */
	assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof in), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
	struct peer_addrs deaf = one(peer_addr_from((struct sockaddr *)&in));
	transport_set_self(p.side[1].t, p.side[1].identity.generation, &deaf, true);
	connect_pair(&p, 1);
	assert_int_equal(transport_bulk(p.side[0].t, &p.side[1].identity.id, 77, false, &e), 0);
	assert_true(await(&p, bulk_failed));
	assert_true(p.side[0].exchange[0] == 77 && p.side[0].bulks == 0);
	close(fd);
	pair_close(&p);
}

/* The token of an attempt, as the dialler of the stream would make it. */
static struct wire_bulk_open token_of(const struct pair *p, uint64_t exchange, uint64_t attempt)
{
	const struct conn *c = transport__find(p->side[0].t, &p->side[1].identity.id);
	struct wire_bulk_open open = {.exchange = exchange, .attempt = attempt};
	struct frame_bulk k;
	assert_non_null(c);
	frame_bulk(&k, c->exporter, &(struct frame_bulk_use){exchange, attempt, c->initiator});
	memcpy(open.session, c->session, sizeof open.session);
	memcpy(open.token, k.token, sizeof open.token);
	return open;
}

/* Dials that nobody answers: the next one is taken all the same, after few and after many. */
static void lost_bulk_dials_leave_the_way_open(void **state)
{
	static struct pair p;
	struct err e = {0};
	pair_open(&p, *state);
	connect_pair(&p, 0);
	const struct peer_id *to = &p.side[1].identity.id;
	struct conn *c = transport__find(p.side[0].t, to);
	struct peer_addr there = c->remote;
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof in;
	int fd = socket(AF_INET, SOCK_STREAM, 0); /* bound, and deaf */
	assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof in), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
	for (int lost = 0; lost < 6; lost++) {
		c->remote = peer_addr_from((struct sockaddr *)&in);
		p.side[0].bulks_failed = 0;
		assert_int_equal(transport_bulk(p.side[0].t, to, 9, false, &e), 0);
		assert_true(await(&p, bulk_failed));
	}
	c->remote = there;
	for (int round = 0; round < 2; round++) {
		assert_int_equal(transport_bulk(p.side[0].t, to, 9, false, &e), 0);
		assert_true(await(&p, both_have_bulk));
		check_bulk(&p, 0, 9);
		c->bulk_attempts += 3 * DATAGRAM_WINDOW;
	}
	close(fd);
	pair_close(&p);
}

/* One exchange may need several connections: no two have a key in common. */
static void a_number_that_repeats_has_new_keys(void **state)
{
	static struct pair p;
	struct err e = {0};
	pair_open(&p, *state);
	connect_pair(&p, 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(
		        transport_bulk(p.side[0].t, &p.side[1].identity.id, 7, false, &e), 0);
	assert_true(await(&p, both_have_two_bulks));
	const struct frame_bulk *k = p.side[1].keys;
	assert_memory_not_equal(k[0].token, k[1].token, sizeof k->token);
	assert_memory_not_equal(k[0].from_dialler, k[1].from_dialler, sizeof k->from_dialler);
	assert_memory_not_equal(k[0].from_listener, k[1].from_listener, sizeof k->from_listener);
	for (int i = 0; i < 2; i++) {
		close(p.side[0].fd[i]);
		close(p.side[1].fd[i]);
	}
	p.side[0].bulks = p.side[1].bulks = 0;
	/* Who has heard a token cannot use it again, nor for another exchange or attempt. */
	struct wire_bulk_open open = token_of(&p, 7, 2), changed = token_of(&p, 7, 3);
	knock(&p, &open);
	changed.exchange = 8;
	knock(&p, &changed);
	changed.exchange = 7;
	changed.attempt = 4;
	knock(&p, &changed);
	/* Untouched it is good, and once. */
	changed.attempt = 3;
	close(knock_at(&p, &changed));
	assert_true(await(&p, second_has_bulk));
	close(p.side[1].fd[0]);
	p.side[1].bulks = 0;
	knock(&p, &changed);
	pair_close(&p);
}

/* An attempt of the listener's does not open the dialler's, though their numbers are the same. */
static void a_token_fits_one_dialler(void **state)
{
	static struct pair p;
	pair_open(&p, *state);
	connect_pair(&p, 0);
	struct conn *c = transport__find(p.side[0].t, &p.side[1].identity.id);
	c->initiator = false; /* for a moment */
	struct wire_bulk_open open = token_of(&p, 7, 1);
	c->initiator = true;
	knock(&p, &open);
	pair_close(&p);
}

static void a_post_dials(void **state)
{
	static struct pair p;
	pair_open(&p, *state);
	struct peer_addr a = transport_bound(p.side[1].t);
	assert_true(post(&p, 0, &a, 41));
	assert_true(await(&p, second_has_post));
	assert_true(p.side[1].post.kind == EXCHANGE_SETTLE && p.side[1].post.exchange == 41);
	assert_int_equal(p.side[1].post.settlement, SETTLE_DOUBT);
	/* The answer needs no address. */
	assert_true(post(&p, 1, &nowhere, 42));
	assert_true(await(&p, first_has_post));
	assert_true(p.side[0].post.exchange == 42);
	assert_int_equal(transport_counters(p.side[1].t).streams_dialled, 0);
	pair_close(&p);
}

/* Who cannot be dialled is reached over the stream that it has dialled itself. */
static void a_post_to_an_undialable_peer(void **state)
{
	static struct pair p;
	struct err e = {0};
	pair_open(&p, *state);
	struct peer_addrs none = {0};
	transport_set_self(p.side[1].t, p.side[1].identity.generation, &none, false);
	assert_false(post(&p, 0, &nowhere, 1));
	assert_int_equal(dropped(&p, 0), 1);
	connect_pair(&p, 1);
	assert_true(post(&p, 0, &nowhere, 2));
	assert_true(await(&p, second_has_post));
	assert_true(p.side[1].posts == 1 && p.side[1].post.exchange == 2);
	assert_int_equal(
	        transport_bulk(p.side[0].t, &p.side[1].identity.id, 2, false, &e), ERR_UNSUPPORTED);
	assert_int_equal(transport_counters(p.side[0].t).streams_dialled, 0);
	pair_close(&p);
}

/* Another agent is at that address by now: it does not get what was not for it. */
static void a_post_is_for_its_addressee(void **state)
{
	static struct pair p;
	struct exchange_message m = {.kind = EXCHANGE_COMMIT, .exchange = 1};
	struct peer_id stranger = {{1, 2, 3}};
	pair_open(&p, *state);
	struct peer_addr a = transport_bound(p.side[1].t);
	struct peer_addrs at = one(a);
	assert_true(transport_post(p.side[0].t, &stranger, &at, &m));
	assert_true(post(&p, 0, &a, 2)); /* waits for the same connection */
	assert_true(await(&p, second_has_post));
	assert_true(p.side[1].posts == 1 && p.side[1].post.exchange == 2);
	assert_int_equal(dropped(&p, 0), 1);
	assert_int_equal(transport_counters(p.side[0].t).streams_dialled, 1);
	pair_close(&p);
}

/* Both dial at once; one connection survives, and nothing is lost with the other. */
static void posts_that_cross(void **state)
{
	static struct pair p;
	for (int round = 0; round < 5; round++) {
		pair_open(&p, *state);
		for (int i = 0; i < 2; i++) {
			struct peer_addr a = transport_bound(p.side[1 - i].t);
			assert_true(post(&p, i, &a, 100 + (uint64_t)i));
		}
		assert_true(await(&p, both_have_post));
		assert_true(p.side[0].post.exchange == 101 && p.side[1].post.exchange == 100);
		assert_true(p.side[0].posts == 1 && p.side[1].posts == 1);
		pair_close(&p);
	}
}

/* Somebody has dialled it and is about to prove itself. */
static bool is_being_dialled(const struct transport *t)
{
	for (const struct conn *c = t->conns; c; c = c->next)
		if (!c->initiator && c->state == CONN_OPENING && c->secret >= 0)
			return true;
	return false;
}

/* The higher id dials while the lower one's connection is almost there: when its own is up it is
 * the one too many, and what waited for it must not go with it. */
static void a_post_on_the_loser(void **state)
{
	static struct pair p;
	pair_open(&p, *state);
	int higher = memcmp(&p.side[0].identity.id, &p.side[1].identity.id, 32) > 0 ? 0 : 1;
	struct peer_addr a = transport_bound(p.side[higher].t);
	struct peer_addr b = transport_bound(p.side[1 - higher].t);
	assert_true(post(&p, 1 - higher, &a, 1));
	for (int i = 0; i < 100 && !is_being_dialled(p.side[higher].t); i++)
		uv_run(&p.loop, UV_RUN_ONCE);
	assert_true(post(&p, higher, &b, 2));
	assert_int_equal(transport_counters(p.side[higher].t).streams_dialled, 1);
	assert_true(await(&p, both_have_post));
	pair_close(&p);
}

/* Somebody listens and never says a word. */
static void what_waits_is_bounded(void **state)
{
	static struct pair p;
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof in;
	int taken = 0;
	pair_open(&p, *state);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof in), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
	struct peer_addr silent = peer_addr_from((struct sockaddr *)&in);
	while (taken < 1000 && post(&p, 0, &silent, 9))
		taken++;
	assert_int_equal(taken, 64);
	assert_int_equal(dropped(&p, 0), 1);
	assert_int_equal(transport_counters(p.side[0].t).streams_dialled, 1);
	pair_close(&p);
	close(fd);
}

/* Sealed by a peer as datagrams are, and still not heard. */
static void no_exchange_in_datagrams(void **state)
{
	static struct pair p;
	struct wire_message m = {
	        .kind = WIRE_EXCHANGE, .exchange = {.kind = EXCHANGE_COMMIT, .exchange = 3}};
	uint8_t payload[WIRE_BYTES_MAX], packet[GOSSIP_DATAGRAM_BYTES];
	struct sockaddr_storage to;
	size_t len;
	pair_open(&p, *state);
	connect_pair(&p, 0); /* so that each knows the other's generation */
	struct peer_addr a = transport_bound(p.side[1].t);
	assert_int_equal(wire_encode(&m, payload, sizeof payload, &len), 0);
	size_t n = links_seal(p.side[0].t, &p.side[1].identity.id, payload, len, packet);
	assert_true(n > 0);
	peer_addr_to(&a, &to);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(
	        sendto(fd, packet, n, 0, (struct sockaddr *)&to, sizeof(struct sockaddr_in)), n);
	struct gossip_send ping = {.channel = CHANNEL_DATAGRAM,
	        .to_id = true,
	        .id = p.side[1].identity.id,
	        .addrs = one(a),
	        .message = {.kind = MESSAGE_PING, .target = p.side[1].identity.id}};
	assert_true(await(&p, second_has_gossip)); /* the stream's */
	p.side[1].gossips = 0;
	transport_send(p.side[0].t, &ping);
	assert_true(await(&p, second_has_gossip));
	assert_int_equal(transport_counters(p.side[1].t).datagrams_received, 2);
	assert_int_equal(p.side[1].posts, 0);
	close(fd);
	pair_close(&p);
}

/* Each takes a millisecond, or longer. */
static int turn_messages, turn_most;

static void on_slow_message(void *arg, const struct peer_id *from, const struct peer_addr *address,
        enum gossip_channel channel, struct gossip_message *m)
{
	uint64_t end = uv_hrtime() + 1000000;
	on_message(arg, from, address, channel, m);
	if (++turn_messages > turn_most)
		turn_most = turn_messages;
	while (uv_hrtime() < end)
		;
}

static void on_turn_ends(uv_check_t *h)
{
	(void)h;
	turn_messages = 0;
}

#define CROWD 60

static bool second_has_all(const struct pair *p)
{
	return p->side[1].gossips == CROWD;
}

/* A peer that says much at once is heard out, but not in one turn of the loop. */
static void messages_take_2_ms_of_a_turn(void **state)
{
	static struct pair p;
	uv_check_t turns;
	pair_open(&p, *state);
	connect_pair(&p, 0);
	p.side[1].gossips = 0;
	p.side[1].t->config.callbacks.message_cb = on_slow_message;
	uv_check_init(&p.loop, &turns);
	uv_check_start(&turns, on_turn_ends);
	struct gossip_send s = {.channel = CHANNEL_STREAM,
	        .addrs = one(transport_bound(p.side[1].t)),
	        .message = {.kind = MESSAGE_GOSSIP}};
	turn_most = turn_messages = 0;
	for (int i = 0; i < CROWD; i++)
		transport_send(p.side[0].t, &s);
	assert_true(await(&p, second_has_all));
	assert_in_range(turn_most, 1, 3);
	uv_close((uv_handle_t *)&turns, NULL);
	/* One that waits may end at any time. */
	for (int i = 0; i < CROWD; i++)
		transport_send(p.side[0].t, &s);
	while (!p.side[1].t->waiting_first)
		uv_run(&p.loop, UV_RUN_ONCE);
	pair_close(&p);
}

static bool second_is_down(const struct pair *p)
{
	return !p->side[1].t->conns;
}

static bool first_is_told(const struct pair *p)
{
	return p->side[0].goodbye[0] != '\0';
}

static void a_peer_is_expelled_with_a_reason(void **state)
{
	static struct pair p;
	pair_open(&p, *state);
	transport_expel(p.side[1].t, &p.side[0].identity.id, "nobody is there yet");
	connect_pair(&p, 0);
	transport_expel(p.side[1].t, &p.side[0].identity.id, "because");
	assert_true(await(&p, second_is_down));
	assert_true(await(&p, first_is_told));
	assert_string_equal(p.side[0].goodbye, "because");
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_copied_identity_is_called_that),
	        cmocka_unit_test(bulk_connections_open_beside_a_stream),
	        cmocka_unit_test(a_late_bulk_says_what_it_is_for),
	        cmocka_unit_test(a_bulk_that_fails_says_for_what),
	        cmocka_unit_test(lost_bulk_dials_leave_the_way_open),
	        cmocka_unit_test(a_number_that_repeats_has_new_keys),
	        cmocka_unit_test(a_token_fits_one_dialler),
	        cmocka_unit_test(a_post_dials),
	        cmocka_unit_test(a_post_to_an_undialable_peer),
	        cmocka_unit_test(a_post_is_for_its_addressee),
	        cmocka_unit_test(posts_that_cross),
	        cmocka_unit_test(a_post_on_the_loser),
	        cmocka_unit_test(what_waits_is_bounded),
	        cmocka_unit_test(no_exchange_in_datagrams),
	        cmocka_unit_test(messages_take_2_ms_of_a_turn),
	        cmocka_unit_test(a_peer_is_expelled_with_a_reason),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

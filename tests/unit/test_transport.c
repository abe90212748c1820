/* SPDX-License-Identifier: MIT */
/* Two transports on one loop: messages of an exchange, over a stream that is dialled for them or
 * stands already, and only for their addressee; bulk connections beside it, opened from either side
 * by tokens that only the two can know, each with its exchange's number; a made-up token gets
 * nothing. */
#include "net/transport_core.h"
#include "tests/unit/support.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#define DEADLINE_MS 30000

#define BULKS 4

struct side {
	struct transport *t;
	struct identity identity;
	struct pair *pair;
	int ups, gossips, posts, bulks, bulks_failed;
	struct exchange_message post; /* the last one */
	/* of each bulk connection that has come */
	int fd[BULKS];
	bool we_dialled[BULKS];
	uint64_t exchange[BULKS]; /* also of the last that failed */
	struct frame_bulk keys[BULKS];
};

struct pair {
	uv_loop_t loop;
	struct secrets secrets;
	struct aead_order ciphers;
	struct side side[2];
	bool expired;
	int closed;
};

static void on_message(void *arg, const struct peer_id *from, const struct peer_addr *address,
        enum gossip_channel channel, struct gossip_message *m)
{
	(void)from, (void)address, (void)channel, (void)m;
	((struct side *)arg)->gossips++;
}

static struct side *other(struct side *s)
{
	return &s->pair->side[s == &s->pair->side[0]];
}

static void on_exchange(void *arg, const struct peer_id *from, const struct exchange_message *m)
{
	struct side *s = arg;
	assert_true(peer_id_equal(from, &other(s)->identity.id));
	s->posts++;
	s->post = *m;
}

static void on_up(void *arg, const struct peer_id *id)
{
	(void)id;
	((struct side *)arg)->ups++;
}

static void on_bulk(void *arg, const struct peer_id *id, uint64_t exchange, int fd, bool we_dialled,
        const struct frame_bulk *keys, const struct aead *aead)
{
	struct side *s = arg;
	assert_true(peer_id_equal(id, &other(s)->identity.id));
	if (fd < 0) {
		s->exchange[s->bulks_failed++] = exchange;
		return;
	}
	assert_non_null(aead);
	assert_true(s->bulks < BULKS);
	s->fd[s->bulks] = fd;
	s->we_dialled[s->bulks] = we_dialled;
	s->exchange[s->bulks] = exchange;
	s->keys[s->bulks++] = *keys;
}

static void on_closed(void *arg)
{
	((struct pair *)arg)->closed++;
}

static void open_side(struct pair *p, int i, const char *dir)
{
	struct side *s = &p->side[i];
	char path[300];
	struct err e = {0};
	snprintf(path, sizeof path, "%s/side%d", dir, i);
	if (identity_open(&s->identity, path, &e) != 0)
		fail_msg("%s", e.msg);
	s->pair = p;
	struct transport_config c = {.loop = &p->loop,
	        .identity = &s->identity,
	        .secrets = &p->secrets,
	        .ciphers = &p->ciphers,
	        .generation = s->identity.generation,
	        .dialable = true,
	        .protocol_min = 1,
	        .protocol_max = 1,
	        .peers_max = 8,
	        .callbacks = {.arg = s,
	                .message_cb = on_message,
	                .up_cb = on_up,
	                .exchange_cb = on_exchange,
	                .bulk_cb = on_bulk}};
	struct sockaddr_in *in = (void *)&c.listen;
	in->sin_family = AF_INET;
	in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (transport_new(&s->t, &c, &e) != 0)
		fail_msg("%s", e.msg);
	struct peer_addr bound = transport_bound(s->t);
	transport_set_self(s->t, s->identity.generation, &bound, true);
}

static void on_expired(uv_timer_t *t)
{
	*(bool *)t->data = true;
}

static bool await(struct pair *p, bool (*so)(const struct pair *))
{
	uv_timer_t t;
	p->expired = false;
	uv_timer_init(&p->loop, &t);
	t.data = &p->expired;
	uv_timer_start(&t, on_expired, DEADLINE_MS, 0);
	while (!p->expired && !so(p))
		uv_run(&p->loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&t, NULL);
	uv_run(&p->loop, UV_RUN_NOWAIT);
	return so(p);
}

static bool both_up(const struct pair *p)
{
	return p->side[0].ups == 1 && p->side[1].ups == 1;
}

static bool both_have_bulk(const struct pair *p)
{
	return p->side[0].bulks == 1 && p->side[1].bulks == 1;
}

static bool both_have_two_bulks(const struct pair *p)
{
	return p->side[0].bulks == 2 && p->side[1].bulks == 2;
}

static bool bulk_failed(const struct pair *p)
{
	return p->side[0].bulks_failed == 1;
}

static bool first_has_post(const struct pair *p)
{
	return p->side[0].posts > 0;
}

static bool second_has_post(const struct pair *p)
{
	return p->side[1].posts > 0;
}

static bool both_have_post(const struct pair *p)
{
	return first_has_post(p) && second_has_post(p);
}

static bool second_has_gossip(const struct pair *p)
{
	return p->side[1].gossips > 0;
}

static bool one_failed(const struct pair *p)
{
	return transport_counters(p->side[1].t).handshakes_failed > 0;
}

static bool both_closed(const struct pair *p)
{
	return p->closed == 2;
}

/* Both hold the two ends of one socket, the same keys, and know what it is for. */
static void check_bulk(struct pair *p, int dialler, uint64_t exchange)
{
	struct side *a = &p->side[dialler], *b = &p->side[1 - dialler];
	char c = 0;
	assert_true(a->we_dialled[0] && !b->we_dialled[0]);
	assert_true(a->exchange[0] == exchange && b->exchange[0] == exchange);
	assert_memory_equal(&a->keys[0], &b->keys[0], sizeof a->keys[0]);
	assert_int_equal(send(a->fd[0], "x", 1, 0), 1);
	struct timeval patience = {.tv_sec = 10};
	int flags = fcntl(b->fd[0], F_GETFL);
	assert_int_equal(fcntl(b->fd[0], F_SETFL, flags & ~O_NONBLOCK), 0);
	setsockopt(b->fd[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	assert_int_equal(recv(b->fd[0], &c, 1, 0), 1);
	assert_int_equal(c, 'x');
	close(a->fd[0]);
	close(b->fd[0]);
	a->bulks = b->bulks = 0;
}

/* A stranger's token: no socket is handed out for it, and the connection ends. */
static void knock(struct pair *p)
{
	uint8_t bytes[OPENING_HEADER_BYTES + 64];
	struct wire_message m = {.kind = WIRE_BULK_OPEN};
	struct sockaddr_storage to;
	struct peer_addr a = transport_bound(p->side[1].t);
	size_t len;
	memset(m.token, 0x5a, sizeof m.token);
	assert_int_equal(wire_encode(&m, bytes + OPENING_HEADER_BYTES, 64, &len), 0);
	opening_header(bytes, OPENING_BULK, len);
	peer_addr_to(&a, &to);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(struct sockaddr_in)), 0);
	assert_int_equal(send(fd, bytes, OPENING_HEADER_BYTES + len, 0),
	        (ssize_t)(OPENING_HEADER_BYTES + len));
	assert_true(await(p, one_failed));
	assert_int_equal(p->side[1].bulks, 0);
	close(fd);
}

static void pair_open(struct pair *p, const char *dir)
{
	char path[300];
	const char *paths[] = {path};
	struct flock_id flock;
	struct err e = {0};
	memset(p, 0, sizeof *p);
	snprintf(path, sizeof path, "%s/flock.key", dir);
	unlink(path);
	assert_int_equal(secret_create(path, &flock, &e), 0);
	assert_int_equal(secrets_load(&p->secrets, paths, 1, &e), 0);
	assert_int_equal(aead_measure(&p->ciphers, &e), 0);
	assert_int_equal(uv_loop_init(&p->loop), 0);
	open_side(p, 0, dir);
	open_side(p, 1, dir);
}

static void pair_close(struct pair *p)
{
	for (int i = 0; i < 2; i++)
		transport_close(p->side[i].t, on_closed, p);
	assert_true(await(p, both_closed));
	uv_run(&p->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&p->loop), 0);
	for (int i = 0; i < 2; i++)
		identity_close(&p->side[i].identity);
	secrets_close(&p->secrets);
}

/* A stream that `from` has dialled. */
static void connect_pair(struct pair *p, int from)
{
	struct gossip_send s = {.channel = CHANNEL_STREAM,
	        .address = transport_bound(p->side[1 - from].t),
	        .message = {.kind = MESSAGE_GOSSIP}};
	transport_send(p->side[from].t, &s);
	assert_true(await(p, both_up));
}

static const struct peer_addr nowhere;

static bool post(struct pair *p, int from, const struct peer_addr *address, uint64_t exchange)
{
	struct exchange_message m = {.kind = EXCHANGE_SETTLE, .exchange = exchange};
	m.settlement = SETTLE_DOUBT;
	return transport_post(p->side[from].t, &p->side[1 - from].identity.id, address, &m);
}

static uint64_t dropped(const struct pair *p, int i)
{
	return transport_counters(p->side[i].t).messages_dropped;
}

static void bulk_connections_open_beside_a_stream(void **state)
{
	static struct pair p;
	struct err e = {0};
	pair_open(&p, *state);
	assert_int_equal(transport_bulk(p.side[0].t, &p.side[1].identity.id, 1, &e), ERR_NOTFOUND);
	connect_pair(&p, 0);
	for (int round = 0; round < 3; round++) {
		for (int dialler = 0; dialler < 2; dialler++) {
			const struct peer_id *to = &p.side[1 - dialler].identity.id;
			uint64_t exchange = (uint64_t)round << 40 | (uint64_t)dialler;
			if (transport_bulk(p.side[dialler].t, to, exchange, &e) != 0)
				fail_msg("%s", e.msg);
			assert_true(await(&p, both_have_bulk));
			check_bulk(&p, dialler, exchange);
		}
	}
	knock(&p);
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
		        transport_bulk(p.side[0].t, &p.side[1].identity.id, exchange, &e), 0);
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
	struct peer_addr deaf = peer_addr_from((struct sockaddr *)&in);
	transport_set_self(p.side[1].t, p.side[1].identity.generation, &deaf, true);
	connect_pair(&p, 1);
	assert_int_equal(transport_bulk(p.side[0].t, &p.side[1].identity.id, 77, &e), 0);
	assert_true(await(&p, bulk_failed));
	assert_true(p.side[0].exchange[0] == 77 && p.side[0].bulks == 0);
	close(fd);
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
	transport_set_self(p.side[1].t, p.side[1].identity.generation, &nowhere, false);
	assert_false(post(&p, 0, &nowhere, 1));
	assert_int_equal(dropped(&p, 0), 1);
	connect_pair(&p, 1);
	assert_true(post(&p, 0, &nowhere, 2));
	assert_true(await(&p, second_has_post));
	assert_true(p.side[1].posts == 1 && p.side[1].post.exchange == 2);
	assert_int_equal(
	        transport_bulk(p.side[0].t, &p.side[1].identity.id, 2, &e), ERR_UNSUPPORTED);
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
	assert_true(transport_post(p.side[0].t, &stranger, &a, &m));
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
	        .address = a,
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(bulk_connections_open_beside_a_stream),
	        cmocka_unit_test(a_late_bulk_says_what_it_is_for),
	        cmocka_unit_test(a_bulk_that_fails_says_for_what),
	        cmocka_unit_test(a_post_dials),
	        cmocka_unit_test(a_post_to_an_undialable_peer),
	        cmocka_unit_test(a_post_is_for_its_addressee),
	        cmocka_unit_test(posts_that_cross),
	        cmocka_unit_test(a_post_on_the_loser),
	        cmocka_unit_test(what_waits_is_bounded),
	        cmocka_unit_test(no_exchange_in_datagrams),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

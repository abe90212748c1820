/* SPDX-License-Identifier: MIT */
/* Two transports on one loop: a stream, then bulk connections beside it, opened from either side by
 * tokens that only the two can know; a made-up token gets nothing. */
#include "net/transport.h"
#include "net/wire.h"
#include "tests/unit/support.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#define DEADLINE_MS 30000

struct side {
	struct transport *t;
	struct identity identity;
	struct pair *pair;
	int ups, bulks, fd;
	bool we_dialled;
	struct frame_bulk keys;
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
	(void)arg, (void)from, (void)address, (void)channel, (void)m;
}

static void on_up(void *arg, const struct peer_id *id)
{
	(void)id;
	((struct side *)arg)->ups++;
}

static void on_bulk(void *arg, const struct peer_id *id, int fd, bool we_dialled,
        const struct frame_bulk *keys, const struct aead *aead)
{
	struct side *s = arg;
	struct side *other = &s->pair->side[s == &s->pair->side[0]];
	assert_true(fd >= 0);
	assert_non_null(aead);
	assert_true(peer_id_equal(id, &other->identity.id));
	s->bulks++;
	s->fd = fd;
	s->we_dialled = we_dialled;
	s->keys = *keys;
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
	        .callbacks = {
	                .arg = s, .message_cb = on_message, .up_cb = on_up, .bulk_cb = on_bulk}};
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

static bool one_failed(const struct pair *p)
{
	return transport_counters(p->side[1].t).handshakes_failed > 0;
}

static bool both_closed(const struct pair *p)
{
	return p->closed == 2;
}

/* Both hold the two ends of one socket, and the same keys. */
static void check_bulk(struct pair *p, int dialler)
{
	struct side *a = &p->side[dialler], *b = &p->side[1 - dialler];
	char c = 0;
	assert_true(a->we_dialled && !b->we_dialled);
	assert_memory_equal(&a->keys, &b->keys, sizeof a->keys);
	assert_int_equal(send(a->fd, "x", 1, 0), 1);
	struct timeval patience = {.tv_sec = 10};
	int flags = fcntl(b->fd, F_GETFL);
	assert_int_equal(fcntl(b->fd, F_SETFL, flags & ~O_NONBLOCK), 0);
	setsockopt(b->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	assert_int_equal(recv(b->fd, &c, 1, 0), 1);
	assert_int_equal(c, 'x');
	close(a->fd);
	close(b->fd);
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

static void bulk_connections_open_beside_a_stream(void **state)
{
	static struct pair p;
	char path[300];
	const char *paths[] = {path};
	struct flock_id flock;
	struct err e = {0};
	memset(&p, 0, sizeof p);
	snprintf(path, sizeof path, "%s/flock.key", (char *)*state);
	assert_int_equal(secret_create(path, &flock, &e), 0);
	assert_int_equal(secrets_load(&p.secrets, paths, 1, &e), 0);
	assert_int_equal(aead_measure(&p.ciphers, &e), 0);
	assert_int_equal(uv_loop_init(&p.loop), 0);
	open_side(&p, 0, *state);
	open_side(&p, 1, *state);
	assert_int_equal(transport_bulk(p.side[0].t, &p.side[1].identity.id, &e), ERR_NOTFOUND);
	struct gossip_send s = {.channel = CHANNEL_STREAM,
	        .address = transport_bound(p.side[1].t),
	        .message = {.kind = MESSAGE_GOSSIP}};
	transport_send(p.side[0].t, &s);
	assert_true(await(&p, both_up));
	for (int round = 0; round < 3; round++) {
		for (int dialler = 0; dialler < 2; dialler++) {
			const struct peer_id *to = &p.side[1 - dialler].identity.id;
			if (transport_bulk(p.side[dialler].t, to, &e) != 0)
				fail_msg("%s", e.msg);
			assert_true(await(&p, both_have_bulk));
			check_bulk(&p, dialler);
		}
	}
	knock(&p);
	for (int i = 0; i < 2; i++)
		transport_close(p.side[i].t, on_closed, &p);
	assert_true(await(&p, both_closed));
	uv_run(&p.loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&p.loop), 0);
	for (int i = 0; i < 2; i++)
		identity_close(&p.side[i].identity);
	secrets_close(&p.secrets);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(bulk_connections_open_beside_a_stream),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

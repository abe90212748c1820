/* SPDX-License-Identifier: MIT */
/* Two transports on one loop, for tests: what each was told, and waiting for it. */
#ifndef DUNLIN_TESTS_NET_TRANSPORT_PAIR_H
#define DUNLIN_TESTS_NET_TRANSPORT_PAIR_H

#include "net/transport/transport_internal.h"
#include "tests/support.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#define DEADLINE_MS 30000

#define BULKS 4

struct side {
	struct transport *t;
	struct identity identity;
	struct pair *pair;
	struct peer_addr dialled; /* of the last that came up */
	struct peer_addr from;    /* of the last gossip */
	int ups, gossips, posts, bulks, bulks_failed;
	struct exchange_message post; /* the last one */
	int copied;                   /* was told that its identity is a copy */
	char goodbye[64]; /* what the other said last of why a session ends */
	/* of each bulk connection that has come */
	int fd[BULKS];
	bool we_dialled[BULKS], kept[BULKS];
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

static inline void on_message(void *arg, const struct peer_id *from,
        const struct peer_addr *address, enum gossip_channel channel, struct gossip_message *m)
{
	struct side *s = arg;
	(void)from, (void)channel, (void)m;
	s->gossips++;
	s->from = *address;
}

static inline struct side *other(struct side *s)
{
	return &s->pair->side[s == &s->pair->side[0]];
}

static inline void on_exchange(
        void *arg, const struct peer_id *from, const struct exchange_message *m)
{
	struct side *s = arg;
	assert_true(peer_id_equal(from, &other(s)->identity.id));
	s->posts++;
	s->post = *m;
}

static inline void on_up(void *arg, const struct peer_id *id, const struct peer_addr *dialled)
{
	struct side *s = arg;
	(void)id;
	s->ups++;
	s->dialled = *dialled;
}

static inline struct peer_addrs one(struct peer_addr a)
{
	return (struct peer_addrs){a.family != 0, {a}};
}

static inline void on_bulk(void *arg, const struct peer_id *id, uint64_t exchange, int fd,
        bool we_dialled, bool kept, const struct frame_bulk *keys, const struct aead *aead)
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
	s->kept[s->bulks] = kept;
	s->exchange[s->bulks] = exchange;
	s->keys[s->bulks++] = *keys;
}

static inline void on_say(void *arg, enum transport_level level, const char *text)
{
	struct side *s = arg;
	s->copied += level == TRANSPORT_WARN && strncmp(text, "copied identity: ", 17) == 0;
	if (strncmp(text, "a peer says goodbye: ", 21) == 0)
		snprintf(s->goodbye, sizeof s->goodbye, "%s", text + 21);
}

static inline void on_closed(void *arg)
{
	((struct pair *)arg)->closed++;
}

static bool dual_stack; /* of the sides that are opened */
static bool one_key;    /* the second has the first one's identity */

static inline void open_side(struct pair *p, int i, const char *dir)
{
	struct side *s = &p->side[i];
	char path[300];
	struct err e = {0};
	snprintf(path, sizeof path, "%s/side%d", dir, one_key ? 0 : i);
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
	                .bulk_cb = on_bulk,
	                .say_cb = on_say}};
	struct sockaddr_in *in = (void *)&c.listen;
	in->sin_family = AF_INET;
	in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (dual_stack) {
		memset(&c.listen, 0, sizeof c.listen);
		c.listen.ss_family = AF_INET6;
		c.dual_stack = true;
	}
	if (transport_new(&s->t, &c, &e) != 0)
		fail_msg("%s", e.msg);
	struct peer_addrs bound = one(transport_bound(s->t));
	transport_set_self(s->t, s->identity.generation, &bound, true);
}

static inline void on_expired(uv_timer_t *t)
{
	*(bool *)t->data = true;
}

static inline bool await(struct pair *p, bool (*so)(const struct pair *))
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

static inline bool both_up(const struct pair *p)
{
	return p->side[0].ups == 1 && p->side[1].ups == 1;
}

static inline bool both_have_bulk(const struct pair *p)
{
	return p->side[0].bulks == 1 && p->side[1].bulks == 1;
}

static inline bool second_has_post(const struct pair *p)
{
	return p->side[1].posts > 0;
}

static inline bool second_has_gossip(const struct pair *p)
{
	return p->side[1].gossips > 0;
}

static inline bool both_closed(const struct pair *p)
{
	return p->closed == 2;
}

/* Both hold the two ends of one socket, the same keys, and know what it is for. */
static inline void check_bulk(struct pair *p, int dialler, uint64_t exchange)
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

static inline void pair_open(struct pair *p, const char *dir)
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

static inline void pair_close(struct pair *p)
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
static inline void connect_pair(struct pair *p, int from)
{
	struct gossip_send s = {.channel = CHANNEL_STREAM,
	        .addrs = one(transport_bound(p->side[1 - from].t)),
	        .message = {.kind = MESSAGE_GOSSIP}};
	transport_send(p->side[from].t, &s);
	assert_true(await(p, both_up));
}

static inline bool post(
        struct pair *p, int from, const struct peer_addr *address, uint64_t exchange)
{
	struct exchange_message m = {.kind = EXCHANGE_SETTLE, .exchange = exchange};
	m.settlement = SETTLE_DOUBT;
	struct peer_addrs at = one(*address);
	return transport_post(p->side[from].t, &p->side[1 - from].identity.id, &at, &m);
}

#endif

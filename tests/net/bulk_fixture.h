/* SPDX-License-Identifier: MIT */
/* The two ends of a bulk transfer in one process, on one loop. */
#ifndef DUNLIN_TESTS_NET_BULK_FIXTURE_H
#define DUNLIN_TESTS_NET_BULK_FIXTURE_H

#include "agent/base/rng.h"
#include "net/bulk/bulk.h"
#include "tests/support.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>

#define CHUNK 4096

/* One agent's half of a test. */
struct side {
	struct bulk *bulk;
	float *send, *staging;
	uint8_t *words; /* send, as it travels */
	size_t count;
	struct bulk_result result;
	int dones;
	pthread_t thread; /* that called back */
};

static inline void side_init(struct side *s, size_t count, uint64_t seed)
{
	struct rng r;
	*s = (struct side){.count = count};
	s->send = calloc(count, sizeof *s->send);
	s->staging = calloc(count, sizeof *s->staging);
	s->words = malloc(count * sizeof *s->send);
	assert_true(s->send && s->staging && s->words);
	rng_seed(&r, seed, 0);
	for (size_t i = 0; i < count; i++)
		s->send[i] = 2 * rng_f32(&r) - 1;
}

static inline void side_close(struct side *s)
{
	free(s->send);
	free(s->staging);
	free(s->words);
}

static inline void on_done(void *arg, const struct bulk_result *r)
{
	struct side *s = arg;
	s->result = *r;
	s->dones++;
	s->bulk = NULL;
	s->thread = pthread_self();
}

static inline struct frame_bulk test_keys(void)
{
	static const uint8_t exporter[FRAME_SECRET_BYTES] = {1, 2, 3};
	struct frame_bulk k;
	frame_bulk(&k, exporter, &(struct frame_bulk_use){.exchange = 7, .attempt = 1});
	return k;
}

static inline struct bulk_config config_of(struct side *s, uv_loop_t *loop, int fd, bool dialled)
{
	static struct frame_bulk keys;
	keys = test_keys();
	return (struct bulk_config){
	        .loop = loop,
	        .fd = fd,
	        .keys = &keys,
	        .we_dialled = dialled,
	        .aead = aead_list[0],
	        .format = CONVERT_FP32,
	        .send = s->words,
	        .send_count = s->count,
	        .staging = s->staging,
	        .receive_count = s->count,
	        .ours = s->words,
	        .chunk_bytes = CHUNK,
	        .arg = s,
	        .done_cb = on_done,
	};
}

static inline void start(struct side *s, const struct bulk_config *c)
{
	struct err e = {0};
	convert_best()->pack(c->format, s->words, s->send, s->count);
	assert_int_equal(bulk_start(&s->bulk, c, &e), 0);
	assert_non_null(s->bulk);
}

static inline void make_pair(int fd[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd), 0);
}

/* As the transport hands it over: connected, non-blocking. */
static inline void make_tcp_pair(int fd[2])
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(l >= 0);
	assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(l, 1), 0);
	assert_int_equal(getsockname(l, (struct sockaddr *)&a, &len), 0);
	fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd[0], (struct sockaddr *)&a, sizeof a), 0);
	fd[1] = accept4(l, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	assert_true(fd[1] >= 0);
	assert_int_equal(fcntl(fd[0], F_SETFL, O_NONBLOCK), 0);
	close(l);
}

static inline void run(uv_loop_t *loop)
{
	assert_int_equal(uv_run(loop, UV_RUN_DEFAULT), 0);
}

/* Two sides on one loop, as they begin; a test changes what it wants, then two_run. */
struct two {
	uv_loop_t loop;
	struct side a, b;
	struct bulk_config ca, cb;
};

static inline void two_init(struct two *t, size_t count, void (*make)(int fd[2]))
{
	int fd[2];
	assert_int_equal(uv_loop_init(&t->loop), 0);
	make(fd);
	side_init(&t->a, count, 1);
	side_init(&t->b, count, 2);
	t->ca = config_of(&t->a, &t->loop, fd[0], true);
	t->cb = config_of(&t->b, &t->loop, fd[1], false);
}

static inline void two_run(struct two *t)
{
	start(&t->a, &t->ca);
	start(&t->b, &t->cb);
	run(&t->loop);
	assert_int_equal(t->a.dones, 1);
	assert_int_equal(t->b.dones, 1);
}

static inline void two_close(struct two *t)
{
	side_close(&t->a);
	side_close(&t->b);
	assert_int_equal(uv_loop_close(&t->loop), 0);
}

#endif

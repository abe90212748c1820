/* SPDX-License-Identifier: MIT */
/* Bulk transfers: between two ends of a socket in one loop, with every cipher and format; against
 * peers that vanish, keep silent, talk nonsense or hold another model; and, without sockets, with
 * every byte of a stream changed and the stream cut at every byte. */
#include "net/bulk.h"

#include "agent/base/rng.h"
#include "net/bulk_stream.h"
#include "tests/unit/support.h"

#include <arpa/inet.h>
#include <math.h>
#include <pthread.h>
#include <sys/socket.h>

#define CHUNK 4096

/* One agent's half of a test. */
struct side {
	struct bulk *bulk;
	float *send, *staging;
	size_t count;
	struct bulk_result result;
	int dones;
	pthread_t thread; /* that called back */
};

static void side_init(struct side *s, size_t count, uint64_t seed)
{
	struct rng r;
	*s = (struct side){.count = count};
	s->send = calloc(count, sizeof *s->send);
	s->staging = calloc(count, sizeof *s->staging);
	assert_true(s->send && s->staging);
	rng_seed(&r, seed, 0);
	for (size_t i = 0; i < count; i++)
		s->send[i] = 2 * rng_f32(&r) - 1;
}

static void side_close(struct side *s)
{
	free(s->send);
	free(s->staging);
}

static void on_done(void *arg, const struct bulk_result *r)
{
	struct side *s = arg;
	s->result = *r;
	s->dones++;
	s->bulk = NULL;
	s->thread = pthread_self();
}

static struct frame_bulk test_keys(void)
{
	static const uint8_t exporter[FRAME_SECRET_BYTES] = {1, 2, 3};
	struct frame_bulk k;
	frame_bulk(&k, exporter, 7);
	return k;
}

static struct bulk_config config_of(struct side *s, uv_loop_t *loop, int fd, bool dialled)
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
	        .send = s->send,
	        .staging = s->staging,
	        .count = s->count,
	        .chunk_bytes = CHUNK,
	        .arg = s,
	        .done_cb = on_done,
	};
}

static void start(struct side *s, const struct bulk_config *c)
{
	struct err e = {0};
	assert_int_equal(bulk_start(&s->bulk, c, &e), 0);
	assert_non_null(s->bulk);
}

static void make_pair(int fd[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd), 0);
}

/* As the transport hands it over: connected, non-blocking. */
static void make_tcp_pair(int fd[2])
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

static void run(uv_loop_t *loop)
{
	assert_int_equal(uv_run(loop, UV_RUN_DEFAULT), 0);
}

/* What the other side must have read of us. */
static float as_sent(enum convert_format f, float x)
{
	uint8_t wire[4];
	struct convert_sums sums = {0};
	const float zero = 0;
	convert_best()->pack(f, wire, &x, 1);
	convert_best()->take(f, &x, wire, &zero, 1, false, &sums);
	return x;
}

static void check_received(const struct side *s, const struct side *peer,
        const struct bulk_config *c, uint64_t wire_bytes)
{
	double distance2 = 0;
	float largest = 0;
	assert_int_equal(s->dones, 1);
	assert_int_equal(s->result.err.code, 0);
	assert_true(pthread_equal(s->thread, pthread_self()));
	assert_int_equal(s->result.words, s->count);
	assert_int_equal(s->result.bytes_sent, wire_bytes);
	assert_int_equal(s->result.bytes_received, wire_bytes);
	for (size_t i = 0; i < s->count; i++) {
		float y = as_sent(c->format, peer->send[i]), d = y - as_sent(c->format, s->send[i]);
		assert_true(s->staging[i] == (c->difference ? d : y));
		distance2 += (double)d * (double)d;
		largest = fabsf(y) > largest ? fabsf(y) : largest;
	}
	assert_true(fabs(s->result.distance2 - distance2) <= 1e-9 * distance2);
	assert_true(s->result.largest == largest);
	assert_true(s->result.seconds > 0);
}

static void exchange(const struct aead *aead, enum convert_format f, size_t count, bool difference,
        void (*make)(int fd[2]))
{
	uv_loop_t loop;
	int fd[2];
	struct side a, b;
	assert_int_equal(uv_loop_init(&loop), 0);
	make(fd);
	side_init(&a, count, 1);
	side_init(&b, count, 2);
	struct bulk_config ca = config_of(&a, &loop, fd[0], true);
	struct bulk_config cb = config_of(&b, &loop, fd[1], false);
	ca.aead = cb.aead = aead;
	ca.format = cb.format = f;
	ca.difference = cb.difference = difference;
	start(&a, &ca);
	start(&b, &cb);
	uint64_t total = bulk_progress(a.bulk).total;
	run(&loop);
	check_received(&a, &b, &ca, total);
	check_received(&b, &a, &cb, total);
	assert_true(a.result.distance2 == b.result.distance2);
	side_close(&a);
	side_close(&b);
	assert_int_equal(uv_loop_close(&loop), 0);
}

static void test_exchange(void **state)
{
	(void)state;
	/* Of one word, of a chunk and beside it, of several chunks. */
	static const size_t counts[] = {1, CHUNK / 4 - 1, CHUNK / 4, CHUNK / 4 + 1, 50001};
	for (int f = 0; f < CONVERT_FORMATS; f++)
		for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
			for (int difference = 0; difference < 2; difference++)
				exchange(aead_list[0], (enum convert_format)f, counts[i],
				        difference, make_pair);
}

static void test_every_cipher(void **state)
{
	(void)state;
	for (int i = 0; aead_list[i]; i++) {
		struct aead_key k;
		static const uint8_t key[AEAD_KEY_BYTES];
		if (aead_init(&k, aead_list[i], key))
			continue; /* not on this machine */
		aead_close(&k);
		exchange(aead_list[i], CONVERT_BF16, 30000, false, make_pair);
	}
}

/* More than any socket buffer holds, so both sides must send and receive at once. */
static void test_tcp(void **state)
{
	(void)state;
	exchange(aead_list[0], CONVERT_FP32, 4 << 20, false, make_tcp_pair);
}

/* ---- peers that are not as they should be */

/* Starts a transfer on one end; the other is the test's. */
static int start_alone(struct side *s, uv_loop_t *loop, uint64_t deadline_ms)
{
	int fd[2];
	assert_int_equal(uv_loop_init(loop), 0);
	make_pair(fd);
	side_init(s, 100000, 3);
	struct bulk_config c = config_of(s, loop, fd[0], true);
	c.deadline_ms = deadline_ms;
	start(s, &c);
	return fd[1];
}

static void finish_alone(struct side *s, uv_loop_t *loop, int code)
{
	run(loop);
	assert_int_equal(s->dones, 1);
	assert_int_equal(s->result.err.code, code);
	assert_true(s->result.err.msg[0] != '\0');
	assert_int_equal(s->result.words, 0);
	side_close(s);
	assert_int_equal(uv_loop_close(loop), 0);
}

static void test_peer_gone(void **state)
{
	(void)state;
	struct side s;
	uv_loop_t loop;
	close(start_alone(&s, &loop, 0));
	finish_alone(&s, &loop, ERR_IO);
}

static void test_nonsense(void **state)
{
	(void)state;
	struct side s;
	uv_loop_t loop;
	int peer = start_alone(&s, &loop, 0);
	assert_int_equal(write(peer, "GET / HTTP/1.0\r\n\r\n", 18), 18);
	finish_alone(&s, &loop, ERR_FORMAT);
	close(peer);
}

static void test_deadline(void **state)
{
	(void)state;
	struct side s;
	uv_loop_t loop;
	int peer = start_alone(&s, &loop, 1);
	finish_alone(&s, &loop, ERR_TIMEOUT);
	close(peer);
}

static void test_cancel(void **state)
{
	(void)state;
	struct side s;
	uv_loop_t loop;
	int peer = start_alone(&s, &loop, 60000);
	bulk_cancel(s.bulk);
	bulk_cancel(s.bulk);
	finish_alone(&s, &loop, ERR_CANCELLED);
	/* The peer sees an end. */
	char buf[4096];
	ssize_t n;
	assert_int_equal(fcntl(peer, F_SETFL, 0), 0);
	while ((n = read(peer, buf, sizeof buf)) > 0)
		;
	assert_int_equal(n, 0);
	close(peer);
}

/* Given up when all has come, but before the loop has heard of it: it is given up. */
static void test_cancel_at_the_end(void **state)
{
	(void)state;
	uv_loop_t loop;
	int fd[2];
	struct side a, b;
	assert_int_equal(uv_loop_init(&loop), 0);
	make_pair(fd);
	side_init(&a, 5000, 1);
	side_init(&b, 5000, 2);
	struct bulk_config ca = config_of(&a, &loop, fd[0], true);
	struct bulk_config cb = config_of(&b, &loop, fd[1], false);
	start(&a, &ca);
	start(&b, &cb);
	struct bulk_progress p;
	do
		p = bulk_progress(a.bulk);
	while (p.received < p.total || p.sent < p.total);
	bulk_cancel(a.bulk);
	run(&loop);
	assert_int_equal(a.result.err.code, ERR_CANCELLED);
	assert_int_equal(a.result.words, 0);
	assert_int_equal(b.dones, 1);
	side_close(&a);
	side_close(&b);
	assert_int_equal(uv_loop_close(&loop), 0);
}

/* Two sides that do not fit; a's code is the one that is wanted, b is stopped by it at the latest.
 */
static void misfit(void (*change)(struct side *b, struct bulk_config *cb), int code)
{
	uv_loop_t loop;
	int fd[2];
	struct side a, b;
	assert_int_equal(uv_loop_init(&loop), 0);
	make_pair(fd);
	side_init(&a, 100000, 1);
	side_init(&b, 100000, 2);
	struct bulk_config ca = config_of(&a, &loop, fd[0], true);
	struct bulk_config cb = config_of(&b, &loop, fd[1], false);
	struct frame_bulk own = *cb.keys;
	cb.keys = &own;
	change(&b, &cb);
	start(&a, &ca);
	start(&b, &cb);
	run(&loop);
	/* Both fail; the reason may be seen by either first, the other then sees a cut. */
	assert_int_equal(a.dones, 1);
	assert_int_equal(b.dones, 1);
	assert_true(a.result.err.code == code ||
	            (a.result.err.code == ERR_IO && b.result.err.code == code));
	assert_true(b.result.err.code == code || b.result.err.code == ERR_IO);
	side_close(&a);
	side_close(&b);
	assert_int_equal(uv_loop_close(&loop), 0);
}

static void other_keys(struct side *b, struct bulk_config *cb)
{
	(void)b;
	((struct frame_bulk *)(uintptr_t)cb->keys)->from_listener[31] ^= 1;
	((struct frame_bulk *)(uintptr_t)cb->keys)->from_dialler[31] ^= 1;
}

static void other_chunk(struct side *b, struct bulk_config *cb)
{
	(void)b;
	cb->chunk_bytes = CHUNK / 2;
}

static void other_count(struct side *b, struct bulk_config *cb)
{
	b->count = cb->count = 99999;
}

static void a_nan(struct side *b, struct bulk_config *cb)
{
	(void)cb;
	b->send[77777] = NAN;
}

static void test_misfits(void **state)
{
	(void)state;
	misfit(other_keys, ERR_MISMATCH);
	misfit(other_chunk, ERR_FORMAT);
	misfit(other_count, ERR_FORMAT);
	misfit(a_nan, ERR_NONFINITE);
}

/* A transfer without a socket is refused before anything begins. */
static void test_no_socket(void **state)
{
	(void)state;
	uv_loop_t loop;
	struct side s;
	struct err e = {0};
	assert_int_equal(uv_loop_init(&loop), 0);
	side_init(&s, 10, 1);
	struct bulk_config c = config_of(&s, &loop, -1, true);
	assert_int_equal(bulk_start(&s.bulk, &c, &e), ERR_IO);
	assert_int_equal(s.dones, 0);
	side_close(&s);
	assert_int_equal(uv_loop_close(&loop), 0);
}

/* ---- the streams alone */

enum { WORDS = 70, SMALL = 64 }; /* chunks of 16 words: four and a rest */

struct stream {
	float send[WORDS], own[WORDS], staging[WORDS];
	uint8_t bytes[WORDS * 4 + 8 * FRAME_OVERHEAD_MAX];
	size_t len;
	struct err err; /* of the last feed */
};

static struct bulk_plan stream_plan(struct stream *s, const float *send)
{
	return (struct bulk_plan){
	        .aead = aead_list[0],
	        .format = CONVERT_FP32,
	        .count = WORDS,
	        .chunk_bytes = SMALL,
	        .send = send,
	        .staging = s->staging,
	};
}

/* Our side's bytes of s->send. */
static void stream_seal(struct stream *s)
{
	struct frame_bulk k = test_keys();
	struct bulk_out o;
	const uint8_t *bytes;
	size_t len;
	int rc;
	struct bulk_plan p = stream_plan(s, s->send);
	assert_int_equal(bulk_out_init(&o, &p, k.from_dialler), 0);
	s->len = 0;
	while ((rc = bulk_out_next(&o, &bytes, &len, NULL)) > 0) {
		assert_true(s->len + len <= sizeof s->bytes);
		memcpy(s->bytes + s->len, bytes, len);
		s->len += len;
	}
	assert_int_equal(rc, 0);
	assert_int_equal(s->len, bulk_wire_bytes(&p));
	assert_int_equal(bulk_out_next(&o, &bytes, &len, NULL), 0);
	bulk_out_close(&o);
}

/* A whole direction in memory. */
static void stream_init(struct stream *s)
{
	memset(s, 0, sizeof *s);
	for (int i = 0; i < WORDS; i++)
		s->send[i] = (float)i + 0.5f;
	stream_seal(s);
}

/* Feeds len bytes, at most step at a time; what bulk_in_fed said last. *used: how many it took. */
static int stream_feed(struct stream *s, size_t len, size_t step, size_t *used)
{
	struct frame_bulk k = test_keys();
	struct bulk_plan p = stream_plan(s, s->own);
	struct bulk_in in;
	size_t at = 0;
	int rc = 0;
	assert_int_equal(bulk_in_init(&in, &p, k.from_dialler), 0);
	while (rc == 0 && at < len) {
		size_t room;
		uint8_t *to = bulk_in_room(&in, &room);
		size_t n = len - at < step ? len - at : step;
		n = n < room ? n : room;
		assert_true(n > 0);
		memcpy(to, s->bytes + at, n);
		at += n;
		rc = bulk_in_fed(&in, n, &s->err);
	}
	if (rc < 0)
		assert_int_equal(bulk_in_fed(&in, 0, NULL), rc);
	bulk_in_close(&in);
	if (used)
		*used = at;
	return rc;
}

static void test_any_pieces(void **state)
{
	(void)state;
	struct stream s;
	size_t used;
	stream_init(&s);
	for (size_t step = 1; step <= s.len; step++) {
		memset(s.staging, 0, sizeof s.staging);
		assert_int_equal(stream_feed(&s, s.len, step, &used), 1);
		assert_int_equal(used, s.len);
		assert_memory_equal(s.staging, s.send, sizeof s.send);
	}
}

static void test_cut_anywhere(void **state)
{
	(void)state;
	struct stream s;
	stream_init(&s);
	for (size_t len = 0; len < s.len; len++)
		assert_int_equal(stream_feed(&s, len, SIZE_MAX, NULL), 0);
}

static void test_flip_anywhere(void **state)
{
	(void)state;
	struct stream s;
	stream_init(&s);
	for (size_t at = 0; at < s.len; at++)
		for (int bit = 0; bit < 8; bit++) {
			s.bytes[at] ^= (uint8_t)(1 << bit);
			assert_true(stream_feed(&s, s.len, SIZE_MAX, NULL) < 0);
			s.bytes[at] ^= (uint8_t)(1 << bit);
		}
	assert_int_equal(stream_feed(&s, s.len, SIZE_MAX, NULL), 1);
}

/* Two chunks of the same length that changed places, one left out, one twice. */
static void test_order(void **state)
{
	(void)state;
	struct stream s, t;
	size_t frame = SMALL + FRAME_HEADER_BYTES + aead_list[0]->tag_bytes;
	stream_init(&s);
	t = s;
	memcpy(t.bytes, s.bytes + frame, frame);
	memcpy(t.bytes + frame, s.bytes, frame);
	assert_int_equal(stream_feed(&t, t.len, SIZE_MAX, NULL), ERR_MISMATCH);
	t = s;
	memmove(t.bytes + frame, t.bytes + 2 * frame, t.len - 2 * frame);
	t.len -= frame;
	assert_int_equal(stream_feed(&t, t.len, SIZE_MAX, NULL), ERR_MISMATCH);
	t = s;
	memcpy(t.bytes + frame, s.bytes, frame);
	assert_int_equal(stream_feed(&t, t.len, SIZE_MAX, NULL), ERR_MISMATCH);
}

/* Of a frame that is too long nothing but its header is waited for. */
static void test_length_at_once(void **state)
{
	(void)state;
	struct stream s;
	stream_init(&s);
	s.bytes[0]--;
	assert_int_equal(stream_feed(&s, FRAME_HEADER_BYTES - 1, SIZE_MAX, NULL), 0);
	assert_int_equal(stream_feed(&s, FRAME_HEADER_BYTES, SIZE_MAX, NULL), ERR_FORMAT);
}

/* Well sealed, of the right length, and not a chunk. */
static void test_other_type(void **state)
{
	(void)state;
	struct stream s;
	struct frame_bulk k = test_keys();
	struct frame_writer w;
	stream_init(&s);
	assert_int_equal(frame_writer_init(&w, aead_list[0], k.from_dialler, SMALL), 0);
	assert_int_equal(
	        frame_seal(&w, FRAME_MESSAGE, (const uint8_t *)s.send, SMALL, s.bytes, &s.len), 0);
	frame_writer_close(&w);
	assert_int_equal(stream_feed(&s, s.len, SIZE_MAX, NULL), ERR_FORMAT);
}

/* Who is told to have it: the peer, or the two together. */
static void test_not_finite(void **state)
{
	(void)state;
	struct stream s;
	stream_init(&s);
	s.send[40] = -INFINITY;
	stream_seal(&s);
	assert_int_equal(stream_feed(&s, s.len, SIZE_MAX, NULL), ERR_NONFINITE);
	assert_non_null(strstr(s.err.msg, "parameters 32 to 47 of the peer"));
	s.send[40] = 3e38f;
	s.own[40] = -3e38f;
	stream_seal(&s);
	assert_int_equal(stream_feed(&s, s.len, SIZE_MAX, NULL), ERR_NONFINITE);
	assert_non_null(strstr(s.err.msg, "parameters 32 to 47 differ"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_exchange),
	        cmocka_unit_test(test_every_cipher),
	        cmocka_unit_test(test_tcp),
	        cmocka_unit_test(test_peer_gone),
	        cmocka_unit_test(test_nonsense),
	        cmocka_unit_test(test_deadline),
	        cmocka_unit_test(test_cancel),
	        cmocka_unit_test(test_cancel_at_the_end),
	        cmocka_unit_test(test_misfits),
	        cmocka_unit_test(test_no_socket),
	        cmocka_unit_test(test_any_pieces),
	        cmocka_unit_test(test_cut_anywhere),
	        cmocka_unit_test(test_flip_anywhere),
	        cmocka_unit_test(test_order),
	        cmocka_unit_test(test_length_at_once),
	        cmocka_unit_test(test_other_type),
	        cmocka_unit_test(test_not_finite),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

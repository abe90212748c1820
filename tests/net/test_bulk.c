/* SPDX-License-Identifier: MIT */
/* Bulk transfers between two ends of a socket in one loop, with every cipher and format, one way
 * and both, by groups; against peers that vanish, keep silent, talk nonsense or hold another model;
 * and cut anywhere. */
#include "net/bulk/bulk_stream.h"
#include "tests/net/bulk_fixture.h"

#include <linux/filter.h>
#include <math.h>
#include <sched.h>
#include <sys/stat.h>

/* What the other side must have read of us. */
static float as_sent(enum convert_format f, float x)
{
	uint8_t wire[4];
	struct convert_sums sums = {0};
	convert_best()->pack(f, wire, &x, 1);
	convert_best()->take(f, &x, wire, NULL, 1, TAKE_WORDS, &sums);
	return x;
}

static void check_received(const struct side *s, const struct side *peer,
        const struct bulk_config *c, uint64_t wire_bytes)
{
	double distance2 = 0;
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
	}
	assert_true(fabs(s->result.group_distance2[0] - distance2) <= 1e-9 * distance2);
}

static void exchange(const struct aead *aead, enum convert_format f, size_t count, bool difference,
        void (*make)(int fd[2]))
{
	struct two t;
	two_init(&t, count, make);
	t.ca.aead = t.cb.aead = aead;
	t.ca.format = t.cb.format = f;
	t.ca.difference = t.cb.difference = difference;
	t.ca.n_groups = t.cb.n_groups = 1;
	t.ca.group_end = t.cb.group_end = &count;
	struct bulk_plan p = {.aead = aead, .format = f, .chunk_bytes = CHUNK};
	uint64_t total = bulk_wire_bytes(&p, count);
	two_run(&t);
	check_received(&t.a, &t.b, &t.ca, total);
	check_received(&t.b, &t.a, &t.cb, total);
	assert_true(t.a.result.group_distance2[0] == t.b.result.group_distance2[0]);
	two_close(&t);
}

static void test_exchange(void **state)
{
	(void)state;
	/* Of one word, of a chunk and beside it, of several chunks. */
	static const size_t counts[] = {1, CHUNK / 4 - 1, CHUNK / 4, CHUNK / 4 + 1, 50001};
	for (int f = 0; f < CONVERT_WORDS; f++)
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

/* ---- directions that differ, and groups */

/* The first of the two sends `there`, the second `back`. */
static void unequal(enum convert_format f, size_t there, size_t back, void (*make)(int fd[2]))
{
	struct two t;
	two_init(&t, there > back ? there : back, make);
	struct side *s[] = {&t.a, &t.b};
	struct bulk_config *c[] = {&t.ca, &t.cb};
	size_t sends[] = {there, back};
	for (int i = 0; i < 2; i++) {
		size_t n = sends[1 - i];
		free(s[i]->staging);
		s[i]->staging = malloc(n * sizeof(float)); /* for AddressSanitizer */
		c[i]->format = f;
		c[i]->send = sends[i] ? s[i]->words : NULL;
		c[i]->send_count = sends[i];
		c[i]->ours = NULL;
		c[i]->staging = n ? s[i]->staging : NULL;
		c[i]->receive_count = n;
	}
	two_run(&t);
	struct bulk_plan p = {.aead = aead_list[0], .format = f, .chunk_bytes = CHUNK};
	for (int i = 0; i < 2; i++) {
		const struct bulk_result *r = &s[i]->result;
		assert_int_equal(r->err.code, 0);
		assert_int_equal(r->words, sends[1 - i]);
		assert_int_equal(r->bytes_sent, bulk_wire_bytes(&p, sends[i]));
		assert_int_equal(r->bytes_received, bulk_wire_bytes(&p, sends[1 - i]));
		for (size_t w = 0; w < r->words; w++)
			assert_true(s[i]->staging[w] == as_sent(f, s[1 - i]->send[w]));
		assert_true(r->group_distance2[0] == 0);
	}
	two_close(&t);
}

static void test_directions(void **state)
{
	(void)state;
	for (int i = 0; i < CONVERT_WORDS; i++) {
		enum convert_format f = (enum convert_format)i;
		unequal(f, 30000, 0, make_pair);
		unequal(f, 0, 30000, make_pair);
		unequal(f, 50001, 777, make_pair);
		unequal(f, 1, 30000, make_pair);
		unequal(f, 0, 0, make_pair);
	}
	unequal(CONVERT_FP32, 4 << 20, 0, make_tcp_pair);
	unequal(CONVERT_FP32, 0, 4 << 20, make_tcp_pair);
}

/* Both sides tell the same distances, group by group. */
static void test_groups(void **state)
{
	(void)state;
	static const size_t end[] = {1, CHUNK / 4, CHUNK / 4, 5000, 30000};
	struct two t;
	two_init(&t, 30011, make_pair);
	t.ca.n_groups = t.cb.n_groups = 5;
	t.ca.group_end = t.cb.group_end = end;
	t.ca.difference = t.cb.difference = true;
	two_run(&t);
	const struct bulk_result *ra = &t.a.result, *rb = &t.b.result;
	assert_int_equal(ra->err.code, 0);
	assert_int_equal(rb->err.code, 0);
	for (int g = 0; g < 5; g++) {
		assert_true(ra->group_distance2[g] == rb->group_distance2[g]);
		assert_true(g == 2 ? ra->group_distance2[g] == 0 : ra->group_distance2[g] > 0);
	}
	two_close(&t);
}

/* ---- a transfer that is cut, and goes on where it was */

struct donation {
	int fd;
	const float *from;
	size_t count;
	uint64_t most; /* bytes that it sends before it goes */
};

static void *donate(void *arg)
{
	const struct donation *d = arg;
	struct frame_bulk k = test_keys();
	struct bulk_plan p = {.aead = aead_list[0],
	        .chunk_bytes = CHUNK,
	        .send = d->from,
	        .send_count = d->count};
	struct bulk_out o;
	const uint8_t *bytes;
	uint8_t end[FRAME_OVERHEAD_MAX];
	size_t len;
	assert_int_equal(fcntl(d->fd, F_SETFL, 0), 0);
	assert_int_equal(bulk_out_init(&o, &p, k.from_listener), 0);
	for (uint64_t left = d->most; left > 0; left -= len) {
		assert_int_equal(bulk_out_next(&o, &bytes, &len, NULL), 1);
		len = len < left ? len : (size_t)left;
		assert_int_equal(write(d->fd, bytes, len), (ssize_t)len);
	}
	bulk_out_close(&o);
	/* The other's END is awaited, so that nothing is unread when the connection goes. */
	len = FRAME_HEADER_BYTES + aead_list[0]->tag_bytes;
	assert_int_equal(recv(d->fd, end, len, MSG_WAITALL), (ssize_t)len);
	close(d->fd);
	return NULL;
}

/* Asks for what is lacking; the donor goes after `most` bytes. */
static void fetch(struct side *s, const struct side *donor, size_t have, uint64_t most)
{
	uv_loop_t loop;
	int fd[2];
	pthread_t thread;
	assert_int_equal(uv_loop_init(&loop), 0);
	make_pair(fd);
	struct donation d = {fd[1], donor->send + have, s->count - have, most};
	struct bulk_config c = config_of(s, &loop, fd[0], true);
	c.send = c.ours = NULL;
	c.send_count = 0;
	c.staging = s->staging + have;
	c.receive_count = s->count - have;
	start(s, &c);
	assert_int_equal(pthread_create(&thread, NULL, donate, &d), 0);
	run(&loop);
	pthread_join(thread, NULL);
	assert_int_equal(uv_loop_close(&loop), 0);
}

static void test_resume(void **state)
{
	(void)state;
	enum { COUNT = 20000 };
	struct bulk_plan p = {.aead = aead_list[0], .chunk_bytes = CHUNK};
	size_t end = FRAME_HEADER_BYTES + aead_list[0]->tag_bytes, have;
	struct side s, donor;
	struct rng r;
	rng_seed(&r, 9, 0);
	side_init(&donor, COUNT, 4);
	for (int round = 0; round < 20; round++) {
		side_init(&s, COUNT, 3);
		have = 0;
		/* Cut four times, then let through. */
		for (int i = 0; i < 5; i++) {
			uint64_t all = bulk_wire_bytes(&p, COUNT - have);
			uint64_t most = i < 4 ? rng_below(&r, (uint32_t)all) : all;
			size_t whole = (size_t)most / (CHUNK + end) * (CHUNK / 4);
			fetch(&s, &donor, have, most);
			assert_int_equal(s.result.err.code, i < 4 ? ERR_IO : 0);
			assert_int_equal(s.result.words, most < all - end ? whole : COUNT - have);
			have += s.result.words;
			assert_memory_equal(s.staging, donor.send, have * sizeof *s.staging);
		}
		assert_int_equal(have, COUNT);
		side_close(&s);
	}
	side_close(&donor);
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
	finish_alone(&s, &loop, ERR_IO);
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

/* How many this process has, and a constant. */
static nlink_t threads(void)
{
	struct stat st;
	assert_int_equal(stat("/proc/self/task", &st), 0);
	return st.st_nlink;
}

/* Given up when all has come, but before the loop has heard of it: it is given up. */
static void test_cancel_at_the_end(void **state)
{
	(void)state;
	struct two t;
	two_init(&t, 5000, make_pair);
	nlink_t before = threads();
	start(&t.a, &t.ca);
	start(&t.b, &t.cb);
	while (threads() > before)
		sched_yield();
	bulk_cancel(t.a.bulk);
	run(&t.loop);
	assert_int_equal(t.a.result.err.code, ERR_CANCELLED);
	assert_int_equal(t.a.result.words, 5000);
	assert_memory_equal(t.a.staging, t.b.send, 5000 * sizeof *t.a.staging);
	assert_int_equal(t.b.dones, 1);
	two_close(&t);
}

/* Two sides that do not fit; a's code is the one that is wanted, b is stopped by it at the latest.
 */
static void misfit(void (*change)(struct side *b, struct bulk_config *cb), int code)
{
	struct two t;
	two_init(&t, 100000, make_pair);
	struct frame_bulk own = *t.cb.keys;
	t.cb.keys = &own;
	change(&t.b, &t.cb);
	two_run(&t);
	/* Both fail; the reason may be seen by either first, the other then sees a cut. */
	int a = t.a.result.err.code, b = t.b.result.err.code;
	assert_true(a == code || (a == ERR_IO && b == code));
	assert_true(b == code || b == ERR_IO);
	two_close(&t);
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
	b->count = cb->send_count = cb->receive_count = 99999;
}

static void a_nan(struct side *b, struct bulk_config *cb)
{
	(void)cb;
	b->send[77777] = NAN;
}

static void test_misfits(void **state)
{
	(void)state;
	misfit(other_keys, ERR_IO);
	misfit(other_chunk, ERR_IO);
	misfit(other_count, ERR_IO);
	misfit(a_nan, ERR_NONFINITE);
}

/* One of the two is wrong about what the first sends: the second notices; the first may have had
 * its part of it before that. */
static void miscounted(size_t sent, size_t expected)
{
	struct two t;
	two_init(&t, 20000, make_pair);
	t.ca.send_count = sent;
	t.cb.receive_count = expected;
	free(t.b.staging);
	t.cb.staging = t.b.staging = malloc(expected * sizeof(float)); /* for AddressSanitizer */
	two_run(&t);
	const struct bulk_result *a = &t.a.result, *b = &t.b.result;
	assert_int_equal(b->err.code, ERR_IO);
	assert_true(a->err.code == 0 || a->err.code == ERR_IO);
	assert_true(b->words <= sent && b->words <= expected);
	two_close(&t);
}

static void test_miscounted(void **state)
{
	(void)state;
	miscounted(20000, 0);
	miscounted(0, 20000);
	miscounted(20000, 19999);
	miscounted(19999, 20000);
	miscounted(20000, CHUNK / 4);
}

/* A transfer without a socket is refused before anything begins. */
/* Three transfers over one connection, each with keys of its own; one with those of the transfer
 * before is no transfer, and what it leaves is closed. */
static void test_kept(void **state)
{
	static const uint8_t exporter[FRAME_SECRET_BYTES] = {1, 2, 3};
	static const uint64_t attempt[] = {1, 2, 3, 3};
	static const size_t count = 5000;
	struct frame_bulk keys[2];
	int fd[2] = {-1, -1};
	(void)state;
	for (int k = 0; k < 4; k++) {
		struct two t;
		two_init(&t, count, make_tcp_pair);
		t.ca.n_groups = t.cb.n_groups = 1;
		t.ca.group_end = t.cb.group_end = &count;
		for (int i = 0; i < 2; i++) {
			uint64_t which = i == 1 && k == 3 ? 4 : attempt[k];
			struct bulk_config *c = i ? &t.cb : &t.ca;
			frame_bulk(&keys[i], exporter,
			        &(struct frame_bulk_use){.exchange = 7, .attempt = which});
			c->keys = &keys[i];
			c->keep = true;
			c->we_dialled = i == k % 2;
			if (k > 0) {
				close(c->fd);
				c->fd = fd[i];
			}
		}
		two_run(&t);
		fd[0] = t.a.result.fd;
		fd[1] = t.b.result.fd;
		if (k < 3) {
			check_received(&t.a, &t.b, &t.ca, t.a.result.bytes_sent);
			check_received(&t.b, &t.a, &t.cb, t.b.result.bytes_sent);
			assert_true(fd[0] >= 0 && fd[1] >= 0);
		} else {
			assert_int_equal(t.a.result.err.code, ERR_IO);
			assert_int_equal(t.b.result.err.code, ERR_IO);
			assert_true(t.a.result.words == 0 && t.b.result.words == 0);
			assert_true(fd[0] == -1 && fd[1] == -1);
		}
		two_close(&t);
	}
}

/* What comes in is lost on the way: neither data nor acknowledgements arrive. */
static void deafen(int fd)
{
	struct sock_filter none = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog all = {.len = 1, .filter = &none};
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &all, sizeof all), 0);
}

/* A connection that was forgotten on the way is found out; one whose peer only does not begin is
 * not. */
static void test_unheard(void **state)
{
	(void)state;
	for (int deaf = 0; deaf < 2; deaf++) {
		struct two t;
		two_init(&t, 1000, make_tcp_pair); /* the kernel takes all */
		t.ca.unheard_ms = 50;
		t.ca.deadline_ms = deaf ? 20000 : 300;
		if (deaf)
			deafen(t.cb.fd);
		start(&t.a, &t.ca);
		run(&t.loop);
		assert_int_equal(t.a.result.err.code, deaf ? ERR_IO : ERR_TIMEOUT);
		assert_int_equal(t.a.result.words, 0);
		close(t.cb.fd);
		two_close(&t);
	}
}

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

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_exchange),
	        cmocka_unit_test(test_every_cipher),
	        cmocka_unit_test(test_tcp),
	        cmocka_unit_test(test_directions),
	        cmocka_unit_test(test_groups),
	        cmocka_unit_test(test_resume),
	        cmocka_unit_test(test_peer_gone),
	        cmocka_unit_test(test_nonsense),
	        cmocka_unit_test(test_deadline),
	        cmocka_unit_test(test_cancel),
	        cmocka_unit_test(test_cancel_at_the_end),
	        cmocka_unit_test(test_misfits),
	        cmocka_unit_test(test_miscounted),
	        cmocka_unit_test(test_kept),
	        cmocka_unit_test(test_unheard),
	        cmocka_unit_test(test_no_socket),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

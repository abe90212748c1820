/* SPDX-License-Identifier: MIT */
/* Frames through memory: whatever the pieces in which they arrive, whatever happens to them on the
 * way. Every cipher that this machine can run is tried. */
#include "agent/base/rng.h"
#include "tests/net/frame_push.h"
#include "tests/support.h"

#include <sodium.h>

#define CHUNK 100000

struct pipe {
	struct frame_writer w;
	struct frame_reader r;
	uint8_t *buf; /* owned: the reader's */
	uint8_t sent[600000];
	size_t n; /* bytes in sent */
};

static uint8_t secret[FRAME_SECRET_BYTES] = {1, 2, 3};

/* A writer and a reader with the same secret and nothing sent. */
static void start(struct pipe *p, const struct aead *a, size_t chunk_max)
{
	size_t cap = frame_reader_bytes(chunk_max);
	p->n = 0;
	p->buf = malloc(cap);
	assert_non_null(p->buf);
	assert_int_equal(frame_writer_init(&p->w, a, secret, chunk_max), 0);
	assert_int_equal(frame_reader_init(&p->r, a, secret, chunk_max, p->buf, cap), 0);
}

static void stop(struct pipe *p)
{
	frame_writer_close(&p->w);
	frame_reader_close(&p->r);
	free(p->buf);
}

/* Payloads that tell their number and place. */
static uint8_t content(int number, size_t at)
{
	return (uint8_t)((size_t)number * 31 + at * 7 + at / 256);
}

static void send_frame(struct pipe *p, enum frame_type type, int number, size_t len)
{
	uint8_t *at = p->sent + p->n;
	size_t n;
	assert_true(p->n + len + FRAME_OVERHEAD_MAX <= sizeof p->sent);
	for (size_t i = 0; i < len; i++)
		at[FRAME_HEADER_BYTES + i] = content(number, i);
	assert_int_equal(frame_seal(&p->w, type, at + FRAME_HEADER_BYTES, len, at, &n), 0);
	p->n += n;
}

static void expect_frame(struct pipe *p, const struct frame *f, int type, int number, size_t len)
{
	(void)p;
	assert_int_equal(f->type, type);
	assert_int_equal(f->len, len);
	for (size_t i = 0; i < len; i++)
		assert_int_equal(f->payload[i], content(number, i));
}

static int read_one(struct pipe *p, struct frame *f)
{
	struct err e = {0};
	int rc = frame_read(&p->r, f, &e);
	if (rc < 0)
		assert_true(e.code == rc && e.msg[0]);
	return rc;
}

/* All of sent, in pieces of at most `piece` bytes; returns how many frames came, or the error. */
static int receive(struct pipe *p, size_t piece, const size_t *lengths)
{
	int n = 0, rc = 0;
	struct frame f;
	for (size_t at = 0; at < p->n;) {
		size_t left = p->n - at;
		at += frame_push(&p->r, p->sent + at, piece < left ? piece : left);
		while ((rc = read_one(p, &f)) > 0) {
			if (lengths && f.type != FRAME_END)
				expect_frame(p, &f, f.type, n, lengths[n]);
			n++;
		}
		if (rc < 0)
			return rc;
	}
	return n;
}

static const size_t lengths[] = {0, 1, 15, 16, 17, 1000, FRAME_MESSAGE_MAX, CHUNK, 3, CHUNK, 0, 70};
#define FRAMES ((int)(sizeof lengths / sizeof lengths[0]))

static void send_all(struct pipe *p)
{
	for (int i = 0; i < FRAMES; i++)
		send_frame(p, lengths[i] >= CHUNK ? FRAME_CHUNK : FRAME_MESSAGE, i, lengths[i]);
	send_frame(p, FRAME_END, 0, 0);
}

/* Runs a test with every cipher, on the heap. */
static void each_cipher(void (*test)(struct pipe *, const struct aead *))
{
	uint8_t key[AEAD_KEY_BYTES] = {0};
	struct aead_key k = {0};
	struct pipe *p = malloc(sizeof *p);
	assert_non_null(p);
	for (int i = 0; aead_list[i]; i++) {
		if (aead_init(&k, aead_list[i], key) != 0)
			continue; /* not on this machine */
		aead_close(&k);
		test(p, aead_list[i]);
	}
	free(p);
}

static void pieces(struct pipe *p, const struct aead *a)
{
	static const size_t piece[] = {1, 2, 3, 5, 19, 20, 21, 4096, 65557, 600000};
	for (size_t i = 0; i < sizeof piece / sizeof piece[0]; i++) {
		start(p, a, CHUNK);
		send_all(p);
		assert_int_equal(receive(p, piece[i], lengths), FRAMES + 1);
		assert_true(p->r.ended);
		stop(p);
	}
}

static void test_pieces(void **state)
{
	(void)state;
	each_cipher(pieces);
}

static void test_row_of_chunks_is_not_copied(void **state)
{
	struct pipe *p = malloc(sizeof *p);
	struct frame f;
	(void)state;
	start(p, aead_list[0], CHUNK);
	for (int i = 0; i < 4; i++) {
		size_t room;
		p->n = 0;
		send_frame(p, FRAME_CHUNK, i, CHUNK);
		uint8_t *to = frame_room(&p->r, &room);
		assert_ptr_equal(to, p->buf);
		assert_true(room >= p->n);
		memcpy(to, p->sent, p->n);
		frame_fed(&p->r, p->n);
		assert_int_equal(read_one(p, &f), 1);
		assert_ptr_equal(f.payload, p->buf + FRAME_HEADER_BYTES);
		expect_frame(p, &f, FRAME_CHUNK, i, CHUNK);
	}
	stop(p);
	free(p);
}

/* Five short frames, one of which is damaged in some bit. */
static void damage(struct pipe *p, const struct aead *a)
{
	static const size_t small[] = {0, 5, 40, 1, 0};
	for (size_t at = 0, n = 1; at < n; at++) {
		start(p, a, CHUNK);
		for (int i = 0; i < 4; i++)
			send_frame(p, FRAME_MESSAGE, i, small[i]);
		send_frame(p, FRAME_END, 4, 0);
		n = p->n;
		p->sent[at] ^= (uint8_t)(1 << at % 8);
		int rc = receive(p, 7, small);
		/* A length that grew leaves it waiting for more; then it was cut. */
		assert_true(rc < 5);
		assert_true(rc >= 0 || rc == ERR_MISMATCH || rc == ERR_FORMAT || rc == ERR_LIMIT);
		assert_false(p->r.ended);
		stop(p);
	}
}

static void test_any_changed_bit_is_noticed(void **state)
{
	(void)state;
	each_cipher(damage);
}

static void test_any_cut_is_noticed(void **state)
{
	struct pipe *p = malloc(sizeof *p);
	(void)state;
	for (size_t cut = 0, n = 1; cut <= n; cut++) {
		start(p, aead_list[0], 0);
		send_frame(p, FRAME_MESSAGE, 0, 30);
		send_frame(p, FRAME_MESSAGE, 1, 0);
		send_frame(p, FRAME_END, 0, 0);
		n = p->n;
		p->n = cut;
		assert_true(receive(p, 1000, NULL) >= 0);
		assert_int_equal(p->r.ended, cut == n);
		stop(p);
	}
	free(p);
}

/* Frames of equal size: left out, repeated, swapped, from another connection. */
static void test_order(void **state)
{
	struct pipe *p = malloc(sizeof *p), *q = malloc(sizeof *q);
	static const char *const orders[] = {"0 2", "0 0", "1 0", "0 1 1", "0 1 2 1"};
	static const int good[] = {1, 1, 0, 2, 3};
	(void)state;
	for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
		start(p, aead_list[0], 0);
		start(q, aead_list[0], 0);
		for (int k = 0; k < 3; k++)
			send_frame(p, FRAME_MESSAGE, k, 50);
		size_t each = p->n / 3;
		struct frame f;
		int n = 0, rc = 0;
		for (const char *o = orders[i]; *o; o++)
			if (*o != ' ')
				assert_int_equal(frame_push(&q->r,
				                         p->sent + (size_t)(*o - '0') * each, each),
				        each);
		while ((rc = read_one(q, &f)) > 0)
			n++;
		assert_int_equal(rc, ERR_MISMATCH);
		assert_int_equal(n, good[i]);
		stop(p);
		stop(q);
	}
	secret[0] ^= 1;
	start(p, aead_list[0], 0);
	secret[0] ^= 1;
	start(q, aead_list[0], 0);
	send_frame(p, FRAME_MESSAGE, 0, 50);
	memcpy(q->sent, p->sent, p->n);
	q->n = p->n;
	assert_int_equal(receive(q, 1000, NULL), ERR_MISMATCH);
	/* Dead for ever, even to what would have been right. */
	q->n = 0;
	send_frame(q, FRAME_MESSAGE, 0, 50);
	assert_int_equal(receive(q, 1000, NULL), ERR_MISMATCH);
	stop(p);
	stop(q);
	free(p);
	free(q);
}

static void header(struct pipe *p, uint32_t word, size_t chunk_max, int expected)
{
	start(p, aead_list[0], chunk_max);
	for (int i = 0; i < 4; i++)
		p->sent[i] = (uint8_t)(word >> 8 * i);
	p->n = 4;
	assert_int_equal(receive(p, 4, NULL), expected);
	stop(p);
}

/* Four bytes are enough to refuse; nothing waits for what would be refused. */
static void test_limits(void **state)
{
	struct pipe *p = malloc(sizeof *p);
	(void)state;
	header(p, FRAME_MESSAGE_MAX | 1u << 24, 0, 0);
	header(p, (FRAME_MESSAGE_MAX + 1) | 1u << 24, CHUNK, ERR_LIMIT);
	header(p, CHUNK | 2u << 24, CHUNK, 0);
	header(p, (CHUNK + 1) | 2u << 24, CHUNK, ERR_LIMIT);
	header(p, 1 | 2u << 24, 0, ERR_FORMAT); /* no chunks on a control channel */
	header(p, 1 | 3u << 24, CHUNK, ERR_LIMIT);
	header(p, 0 | 0u << 24, CHUNK, ERR_FORMAT);
	header(p, 0 | 4u << 24, CHUNK, ERR_FORMAT);
	header(p, 0xffffffff, CHUNK, ERR_FORMAT);

	static uint8_t big[FRAME_CHUNK_MAX + FRAME_OVERHEAD_MAX];
	size_t n;
	start(p, aead_list[0], 0);
	assert_int_equal(
	        frame_seal(&p->w, FRAME_MESSAGE, big, FRAME_MESSAGE_MAX + 1, big, &n), ERR_LIMIT);
	assert_int_equal(frame_seal(&p->w, FRAME_CHUNK, big, 1, big, &n), ERR_LIMIT);
	send_frame(p, FRAME_MESSAGE, 0, 10); /* it lives on */
	send_frame(p, FRAME_END, 0, 0);
	assert_int_equal(frame_seal(&p->w, FRAME_MESSAGE, big, 1, big, &n), ERR_USAGE);
	p->sent[p->n++] = 1;
	assert_int_equal(receive(p, 1000, NULL), ERR_FORMAT); /* bytes after the end */
	stop(p);
	free(p);
}

/* By frames and by bytes; a writer that changes keys where the reader does not is not understood.
 */
static void rekey(struct pipe *p, const struct aead *a)
{
	for (int by_bytes = 0; by_bytes < 2; by_bytes++) {
		struct frame f;
		start(p, a, 0);
		for (int i = 0; i < 2; i++) {
			struct frame_keys *k = i ? &p->r.keys : &p->w.keys;
			k->rekey_frames = k->frames_left = by_bytes ? 1000 : 3;
			k->rekey_bytes = k->bytes_left = by_bytes ? 100 : 1000000;
		}
		uint8_t before[FRAME_SECRET_BYTES];
		for (int i = 0; i < 40; i++) {
			memcpy(before, p->w.keys.secret, sizeof before);
			p->n = 0;
			send_frame(p, FRAME_MESSAGE, i, 30);
			bool changed = memcmp(before, p->w.keys.secret, sizeof before) != 0;
			/* 3 frames under each key, or the 4 that 100 bytes take. */
			assert_int_equal(changed, i > 0 && i % (by_bytes ? 4 : 3) == 0);
			frame_push(&p->r, p->sent, p->n);
			assert_int_equal(read_one(p, &f), 1);
			expect_frame(p, &f, FRAME_MESSAGE, i, 30);
			assert_memory_equal(p->w.keys.secret, p->r.keys.secret, sizeof before);
		}
		assert_int_equal(p->w.keys.counter, 40);
		p->r.keys.frames_left = p->r.keys.bytes_left = UINT32_MAX;
		p->n = 0;
		for (int i = 0; i < 5; i++)
			send_frame(p, FRAME_MESSAGE, i, 30);
		assert_int_equal(receive(p, 1000, NULL), ERR_MISMATCH);
		stop(p);
	}
}

static void test_rekey(void **state)
{
	(void)state;
	each_cipher(rekey);
}

static void test_rekey_by_the_limits(void **state)
{
	struct pipe *p = malloc(sizeof *p);
	struct frame f;
	(void)state;
	start(p, aead_list[0], 0);
	for (int i = 0; i <= FRAME_REKEY_FRAMES; i++) {
		if (i == FRAME_REKEY_FRAMES)
			assert_memory_equal(p->w.keys.secret, secret, sizeof secret);
		p->n = 0;
		send_frame(p, FRAME_MESSAGE, i, 1);
		frame_push(&p->r, p->sent, p->n);
		assert_int_equal(read_one(p, &f), 1);
	}
	assert_memory_not_equal(p->w.keys.secret, secret, sizeof secret);
	assert_int_equal(p->w.keys.bytes_left, FRAME_REKEY_BYTES - 1);
	stop(p);
	free(p);
}

static void test_openings(void **state)
{
	uint8_t h[OPENING_HEADER_BYTES];
	struct opening o;
	(void)state;
	opening_header(h, OPENING_BULK, OPENING_BYTES_MAX);
	assert_int_equal(opening_parse(h, &o), 0);
	assert_int_equal(o.kind, OPENING_BULK);
	assert_int_equal(o.length, OPENING_BYTES_MAX);
	assert_int_equal(opening_parse((const uint8_t *)"\x01\x01\x00", &o), 0);
	assert_int_equal(o.length, 1);
	assert_int_equal(opening_parse((const uint8_t *)"\x01\x00\x00", &o), ERR_FORMAT);
	assert_int_equal(opening_parse((const uint8_t *)"\x01\x01\x04", &o), ERR_FORMAT);
	assert_int_equal(opening_parse((const uint8_t *)"GET", &o), ERR_FORMAT);
	assert_int_equal(opening_parse((const uint8_t *)"\x00\x01\x00", &o), ERR_FORMAT);
	assert_int_equal(opening_parse((const uint8_t *)"\x03\x01\x00", &o), ERR_FORMAT);
}

/* Any of what goes in changes all that comes out, and no two outputs are alike. */
static void test_bulk_keys(void **state)
{
	uint8_t a[32] = {1}, b[32] = {2}, h[32] = {3}, x[32], y[32];
	const struct frame_bulk_use uses[] = {
	        {1, 1, true}, {1, 2, true}, {2, 1, true}, {1, 1, false}, {257, 1, true}};
	struct frame_bulk k[5], again;
	uint8_t session[FRAME_SESSION_BYTES];
	(void)state;
	frame_exporter(x, a, b, h);
	frame_exporter(y, b, a, h);
	assert_memory_not_equal(x, y, 32);
	h[31] = 1;
	frame_exporter(y, a, b, h);
	assert_memory_not_equal(x, y, 32);
	for (int i = 0; i < 5; i++) {
		frame_bulk(&k[i], x, &uses[i]);
		for (int j = 0; j < i; j++) {
			assert_memory_not_equal(k[i].token, k[j].token, FRAME_TOKEN_BYTES);
			assert_memory_not_equal(k[i].from_dialler, k[j].from_dialler, 32);
			assert_memory_not_equal(k[i].from_listener, k[j].from_listener, 32);
		}
	}
	frame_bulk(&again, x, &uses[0]);
	assert_memory_equal(&k[0], &again, sizeof again);
	frame_session(session, x);
	assert_memory_not_equal(session, k[0].token, sizeof session);
	assert_memory_not_equal(k[0].from_dialler, k[0].from_listener, 32);
	assert_memory_not_equal(k[0].from_dialler, x, 32);
}

static int setup(void **state)
{
	(void)state;
	return sodium_init() < 0 ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_pieces),
	        cmocka_unit_test(test_row_of_chunks_is_not_copied),
	        cmocka_unit_test(test_any_changed_bit_is_noticed),
	        cmocka_unit_test(test_any_cut_is_noticed),
	        cmocka_unit_test(test_order),
	        cmocka_unit_test(test_limits),
	        cmocka_unit_test(test_rekey),
	        cmocka_unit_test(test_rekey_by_the_limits),
	        cmocka_unit_test(test_openings),
	        cmocka_unit_test(test_bulk_keys),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}

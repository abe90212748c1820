/* SPDX-License-Identifier: MIT */
/* The directions of a bulk transfer without sockets: in any pieces, cut at every byte, with every
 * bit changed, of other lengths than were agreed, and measured by groups. */
#include "net/bulk/bulk_stream.h"

#include "agent/base/rng.h"
#include "tests/support.h"

#include <math.h>

enum { WORDS = 70, SMALL = 64, CHUNK_WORDS = 16 }; /* of fp32: four chunks and a rest */
#define FRAME (SMALL + FRAME_HEADER_BYTES + aead_list[0]->tag_bytes)

struct stream {
	float send[WORDS], own[WORDS], staging[WORDS];
	uint8_t send_words[WORDS * 4], own_words[WORDS * 4]; /* the same, as they travel */
	struct bulk_plan out, in;                            /* the sender's, and the receiver's */
	uint8_t bytes[WORDS * 4 + 8 * FRAME_OVERHEAD_MAX];
	size_t len;
	/* of the last feed */
	struct err err;
	size_t words;
	double group[BULK_GROUPS_MAX + 1]; /* distances; the last: of those in no group */
};

static struct frame_bulk test_keys(void)
{
	static const uint8_t exporter[FRAME_SECRET_BYTES] = {1, 2, 3};
	struct frame_bulk k;
	frame_bulk(&k, exporter, &(struct frame_bulk_use){.exchange = 7, .attempt = 1});
	return k;
}

/* Our side's bytes of s->send. */
static void stream_seal(struct stream *s)
{
	struct frame_bulk k = test_keys();
	struct bulk_out o;
	const uint8_t *bytes;
	size_t len;
	int rc;
	convert_best()->pack(s->out.format, s->send_words, s->send, WORDS);
	assert_int_equal(bulk_out_init(&o, &s->out, k.from_dialler), 0);
	s->len = 0;
	while ((rc = bulk_out_next(&o, &bytes, &len, NULL)) > 0) {
		assert_true(s->len + len <= sizeof s->bytes);
		memcpy(s->bytes + s->len, bytes, len);
		s->len += len;
	}
	assert_int_equal(rc, 0);
	assert_int_equal(s->len, bulk_wire_bytes(&s->out, s->out.send_count));
	assert_int_equal(bulk_out_next(&o, &bytes, &len, NULL), 0);
	bulk_out_close(&o);
}

/* A whole direction in memory. */
static void stream_init(struct stream *s)
{
	memset(s, 0, sizeof *s);
	for (int i = 0; i < WORDS; i++)
		s->send[i] = (float)i + 0.5f;
	s->out = (struct bulk_plan){.aead = aead_list[0],
	        .chunk_bytes = SMALL,
	        .send = s->send_words,
	        .send_count = WORDS};
	s->in = (struct bulk_plan){.aead = aead_list[0],
	        .chunk_bytes = SMALL,
	        .staging = s->staging,
	        .receive_count = WORDS,
	        .ours = s->own_words};
	stream_seal(s);
}

/* Feeds len bytes, at most step at a time; what bulk_in_fed said last. *used: how many it took. */
static int stream_feed(struct stream *s, size_t len, size_t step, size_t *used)
{
	struct frame_bulk k = test_keys();
	struct bulk_in in;
	size_t at = 0;
	int rc = 0;
	convert_best()->pack(s->in.format, s->own_words, s->own, WORDS);
	assert_int_equal(bulk_in_init(&in, &s->in, k.from_dialler), 0);
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
	s->words = in.next;
	for (int g = 0; g <= s->in.n_groups; g++)
		s->group[g] = in.sums[g].distance2;
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

/* Of the first so many bytes all whole chunks have been taken, and staging has them. */
static void front_is_good(const struct stream *s, size_t bytes)
{
	size_t words = bytes / FRAME * CHUNK_WORDS;
	if (bytes >= bulk_wire_bytes(&s->in, WORDS) - (FRAME - SMALL))
		words = WORDS;
	assert_int_equal(s->words, words);
	assert_memory_equal(s->staging, s->send, words * sizeof *s->send);
}

static void test_cut_anywhere(void **state)
{
	(void)state;
	struct stream s;
	stream_init(&s);
	for (size_t len = 0; len < s.len; len++) {
		assert_int_equal(stream_feed(&s, len, SIZE_MAX, NULL), 0);
		front_is_good(&s, len);
	}
}

static void test_flip_anywhere(void **state)
{
	(void)state;
	struct stream s;
	stream_init(&s);
	for (size_t at = 0; at < s.len; at++)
		for (int bit = 0; bit < 8; bit++) {
			s.bytes[at] ^= (uint8_t)(1 << bit);
			/* Never the peer's fault: it may be anybody's. */
			assert_int_equal(stream_feed(&s, s.len, SIZE_MAX, NULL), ERR_IO);
			front_is_good(&s, at);
			s.bytes[at] ^= (uint8_t)(1 << bit);
		}
	assert_int_equal(stream_feed(&s, s.len, SIZE_MAX, NULL), 1);
}

/* Two chunks of the same length that changed places, one left out, one twice. */
static void test_order(void **state)
{
	(void)state;
	struct stream s, t;
	size_t frame = FRAME;
	stream_init(&s);
	t = s;
	t.in.staging = t.staging;
	memcpy(t.bytes, s.bytes + frame, frame);
	memcpy(t.bytes + frame, s.bytes, frame);
	assert_int_equal(stream_feed(&t, t.len, SIZE_MAX, NULL), ERR_IO);
	t = s;
	memmove(t.bytes + frame, t.bytes + 2 * frame, t.len - 2 * frame);
	t.len -= frame;
	assert_int_equal(stream_feed(&t, t.len, SIZE_MAX, NULL), ERR_IO);
	t = s;
	memcpy(t.bytes + frame, s.bytes, frame);
	assert_int_equal(stream_feed(&t, t.len, SIZE_MAX, NULL), ERR_IO);
}

/* Of a frame that is too long nothing but its header is waited for. */
static void test_length_at_once(void **state)
{
	(void)state;
	struct stream s;
	stream_init(&s);
	s.bytes[0]--;
	assert_int_equal(stream_feed(&s, FRAME_HEADER_BYTES - 1, SIZE_MAX, NULL), 0);
	assert_int_equal(stream_feed(&s, FRAME_HEADER_BYTES, SIZE_MAX, NULL), ERR_IO);
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
	assert_int_equal(stream_feed(&s, s.len, SIZE_MAX, NULL), ERR_IO);
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
	assert_int_equal(s.words, 32);
	s.send[40] = 3e38f;
	s.own[40] = -3e38f;
	stream_seal(&s);
	assert_int_equal(stream_feed(&s, s.len, SIZE_MAX, NULL), ERR_NONFINITE);
	assert_non_null(strstr(s.err.msg, "parameters 32 to 47 differ"));
	assert_int_equal(s.words, 32);
	/* Behind the last group, too, where no distance is told. */
	const size_t end[] = {3, 39};
	s.in.n_groups = 2;
	s.in.group_end = end;
	assert_int_equal(stream_feed(&s, s.len, SIZE_MAX, NULL), ERR_NONFINITE);
	assert_non_null(strstr(s.err.msg, "parameters 39 to 47 differ"));
	assert_int_equal(s.words, 32);
	/* Not measured: whoever does has to find it, here in staging. */
	s.in.difference = s.in.unmeasured = true;
	assert_int_equal(stream_feed(&s, s.len, SIZE_MAX, NULL), 1);
	assert_true(isinf(s.staging[40]) && s.group[0] == 0);
	s.in.difference = s.in.unmeasured = false;
	/* Not compared, so it does not matter. */
	s.in.ours = NULL;
	assert_int_equal(stream_feed(&s, s.len, SIZE_MAX, NULL), 1);
	s.send[40] = NAN;
	stream_seal(&s);
	assert_int_equal(stream_feed(&s, s.len, SIZE_MAX, NULL), ERR_NONFINITE);
	assert_non_null(strstr(s.err.msg, "parameters 39 to 47 of the peer"));
}

/* Each side has its own idea of how many there are: only the same one comes to an end, and nothing
 * is written behind what the receiver has room for. */
static void test_every_count(void **state)
{
	(void)state;
	struct stream s;
	stream_init(&s);
	for (size_t out = 0; out <= WORDS; out++) {
		s.out.send_count = out;
		s.out.send = out ? s.send_words : NULL;
		stream_seal(&s);
		for (size_t in = 0; in <= WORDS; in++) {
			s.in.receive_count = in;
			s.in.ours = in ? s.own_words : NULL;
			s.in.staging = malloc(in * sizeof(float)); /* for AddressSanitizer */
			int rc = stream_feed(&s, s.len, SIZE_MAX, NULL);
			assert_int_equal(rc, in == out ? 1 : ERR_IO);
			assert_true(s.words <= in && s.words <= out);
			if (s.words)
				assert_memory_equal(s.in.staging, s.send, s.words * sizeof *s.send);
			free(s.in.staging);
		}
	}
}

/* ---- groups */

static float rounded(enum convert_format f, float x)
{
	uint8_t wire[4];
	struct convert_sums sums = {0};
	convert_best()->pack(f, wire, &x, 1);
	convert_best()->take(f, &x, wire, NULL, 1, TAKE_WORDS, &sums);
	return x;
}

static void check_groups(const struct stream *s)
{
	double want[BULK_GROUPS_MAX + 1] = {0};
	const struct bulk_plan *p = &s->in;
	int g = 0;
	for (size_t i = 0; i < WORDS; i++) {
		float y = rounded(p->format, s->send[i]), d = y - rounded(p->format, s->own[i]);
		while (g < p->n_groups && p->group_end[g] <= i)
			g++;
		want[g] += (double)d * (double)d;
		assert_true(s->staging[i] == (p->difference ? d : y));
	}
	for (g = 0; g <= p->n_groups; g++)
		assert_true(fabs(s->group[g] - want[g]) <= 1e-12 * want[g]);
}

static int by_size(const void *a, const void *b)
{
	size_t x = *(const size_t *)a, y = *(const size_t *)b;
	return (x > y) - (x < y);
}

/* Ends anywhere in a chunk and on its edges, groups of none, all in a group or a rest in none. */
static void test_groups(void **state)
{
	(void)state;
	struct stream s;
	struct rng r;
	size_t end[BULK_GROUPS_MAX];
	stream_init(&s);
	rng_seed(&r, 5, 0);
	for (int round = 0; round < 400; round++) {
		for (int i = 0; i < WORDS; i++) {
			s.send[i] = (float)rng_normal(&r);
			s.own[i] = (float)rng_normal(&r);
		}
		s.in.n_groups = (int)rng_below(&r, BULK_GROUPS_MAX + 1);
		s.in.group_end = end;
		for (int g = 0; g < s.in.n_groups; g++)
			end[g] = rng_below(&r, 3) ? rng_below(&r, WORDS + 1)
			                          : CHUNK_WORDS * rng_below(&r, 5);
		qsort(end, (size_t)s.in.n_groups, sizeof *end, by_size);
		s.out.format = s.in.format = (enum convert_format)rng_below(&r, CONVERT_WORDS);
		s.in.difference = rng_below(&r, 2);
		stream_seal(&s);
		assert_int_equal(stream_feed(&s, s.len, 1 + rng_below(&r, 100), NULL), 1);
		check_groups(&s);
	}
}

/* With nothing to compare with there are no distances; the rest is as ever. */
static void test_nothing_to_compare(void **state)
{
	(void)state;
	struct stream s;
	for (int f = 0; f < CONVERT_WORDS; f++) {
		stream_init(&s);
		s.out.format = s.in.format = (enum convert_format)f;
		s.in.ours = NULL;
		stream_seal(&s);
		assert_int_equal(stream_feed(&s, s.len, SIZE_MAX, NULL), 1);
		assert_true(s.group[0] == 0);
		for (int i = 0; i < WORDS; i++)
			assert_true(s.staging[i] == rounded(s.in.format, s.send[i]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_any_pieces),
	        cmocka_unit_test(test_cut_anywhere),
	        cmocka_unit_test(test_flip_anywhere),
	        cmocka_unit_test(test_order),
	        cmocka_unit_test(test_length_at_once),
	        cmocka_unit_test(test_other_type),
	        cmocka_unit_test(test_not_finite),
	        cmocka_unit_test(test_every_count),
	        cmocka_unit_test(test_groups),
	        cmocka_unit_test(test_nothing_to_compare),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

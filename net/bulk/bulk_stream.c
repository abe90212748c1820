/* SPDX-License-Identifier: MIT */
/* The idea: both sides know the whole row of frames before the first byte, so the receiver never
 * asks the wire what comes next, it only compares. Going out, a chunk is sealed from where it lies,
 * already rounded, into one buffer. Coming in, a chunk is read into one buffer, opened where it
 * lies and, while it is in the cache, converted into staging, checked and compared
 * (net/bulk/convert.h).
 *
 * A frame's header is compared with the one that must come as soon as its four bytes are there; it
 * is not authentic yet, but another one can only be an error. Then the tag decides. What can fail
 * ends the direction for good: a frame of another length or type, one that does not open, a
 * parameter or a difference that is not a finite number. Staging has been written to by then: what
 * lies before in->next is good, the rest is worth nothing. */
#include "net/bulk/bulk_stream.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A cache line; also what keeps the parameters in a frame aligned to 4. */
#define ALIGN 64
#define BLOCKS_AT_ONCE 64 /* of a lattice */

static uint8_t *frame_buffer(size_t bytes)
{
	return aligned_alloc(ALIGN, (bytes + ALIGN - 1) / ALIGN * ALIGN);
}

static void check_plan(const struct bulk_plan *p)
{
	assert(p->chunk_bytes > 0 && p->chunk_bytes % 4 == 0 && p->chunk_bytes <= FRAME_CHUNK_MAX);
	assert((unsigned)p->format < CONVERT_FORMATS);
	assert(p->chunk_bytes >= convert_rows[p->format].bytes);
	bool lattice = p->format >= CONVERT_WORDS;
	assert(p->send || p->send_count == 0);
	assert((lattice ? p->packed != NULL : p->staging != NULL) || p->receive_count == 0);
	assert(!lattice || p->receive_count == 0 || (p->ours && p->difference && p->scales));
	assert(!lattice || !p->unmeasured);
	assert(p->ours || !p->difference || p->receive_count == 0);
	assert(p->difference || !p->unmeasured);
	assert(p->n_groups >= 0 && p->n_groups <= BULK_GROUPS_MAX);
	for (int g = 0; g < p->n_groups; g++)
		assert(p->group_end[g] <= p->receive_count &&
		        (g == 0 || p->group_end[g - 1] <= p->group_end[g]));
}

/* Of a frame, when so many parameters are left. */
static size_t chunk_count(const struct bulk_plan *p, size_t left)
{
	const struct convert_row *r = &convert_rows[p->format];
	size_t most = p->chunk_bytes / r->bytes * r->block;
	return left < most ? left : most;
}

uint64_t bulk_wire_bytes(const struct bulk_plan *p, size_t count)
{
	uint64_t most = chunk_count(p, SIZE_MAX);
	uint64_t frames = (count + most - 1) / most + 1;
	return convert_bytes(p->format, count) + frames * (FRAME_HEADER_BYTES + p->aead->tag_bytes);
}

/* ---- going out */

int bulk_out_init(
        struct bulk_out *o, const struct bulk_plan *p, const uint8_t secret[FRAME_SECRET_BYTES])
{
	check_plan(p);
	*o = (struct bulk_out){.plan = *p};
	o->buf = frame_buffer(p->chunk_bytes + FRAME_OVERHEAD_MAX);
	if (!o->buf)
		return ERR_NOMEM;
	int rc = frame_writer_init(&o->writer, p->aead, secret, p->chunk_bytes);
	if (rc)
		bulk_out_close(o);
	return rc;
}

void bulk_out_close(struct bulk_out *o)
{
	frame_writer_close(&o->writer);
	free(o->buf);
	o->buf = NULL;
}

int bulk_out_next(struct bulk_out *o, const uint8_t **bytes, size_t *len, struct err *e)
{
	const struct bulk_plan *p = &o->plan;
	size_t n = chunk_count(p, p->send_count - o->next);
	int rc;
	*bytes = o->buf;
	*len = 0;
	if (o->ended)
		return 0;
	if (n > 0)
		rc = frame_seal(&o->writer, FRAME_CHUNK,
		        (const uint8_t *)p->send + convert_bytes(p->format, o->next),
		        convert_bytes(p->format, n), o->buf, len);
	else
		rc = frame_seal(&o->writer, FRAME_END, NULL, 0, o->buf, len);
	if (rc)
		return err_set(e, rc, "sealing parameters: %s", err_text(rc));
	o->ended = n == 0;
	o->next += n;
	return 1;
}

/* ---- coming in */

int bulk_in_init(
        struct bulk_in *in, const struct bulk_plan *p, const uint8_t secret[FRAME_SECRET_BYTES])
{
	check_plan(p);
	*in = (struct bulk_in){.plan = *p, .convert = convert_best()};
	memset(in->found, SCALES_LEAST, sizeof in->found);
	size_t cap = frame_reader_bytes(p->chunk_bytes);
	in->buf = frame_buffer(cap);
	if (!in->buf)
		return ERR_NOMEM;
	int rc = frame_reader_init(&in->reader, p->aead, secret, p->chunk_bytes, in->buf, cap);
	if (rc)
		bulk_in_close(in);
	return rc;
}

void bulk_in_close(struct bulk_in *in)
{
	frame_reader_close(&in->reader);
	free(in->buf);
	in->buf = NULL;
}

/* Of the frame that must come next. */
static size_t payload_bytes(const struct bulk_in *in)
{
	const struct bulk_plan *p = &in->plan;
	return convert_bytes(p->format, chunk_count(p, p->receive_count - in->next));
}

uint8_t *bulk_in_room(struct bulk_in *in, size_t *len)
{
	size_t room;
	uint8_t *to = frame_room(&in->reader, &room);
	*len = in->ended ? 0 : payload_bytes(in) + in->reader.keys.overhead - in->have;
	assert(*len <= room);
	return to;
}

/* The reader's buffer holds this frame alone, so its header is what the buffer begins with. It is
 * not authenticated yet: anybody on the way may have changed it. */
static int check_header(const struct bulk_in *in, struct err *e)
{
	const uint8_t *h = in->buf;
	size_t len = h[0] | (size_t)h[1] << 8 | (size_t)h[2] << 16, want = payload_bytes(in);
	uint8_t type = want > 0 ? FRAME_CHUNK : FRAME_END;
	if (h[3] != type)
		return err_set(e, ERR_IO, "a frame of type %u where %u had to come", h[3], type);
	if (len != want)
		return err_set(e, ERR_IO, "a chunk of %zu bytes where %zu had to come", len, want);
	return 0;
}

/* Parameters at … stop − 1, which are of one group. */
static int take_run(struct bulk_in *in, const uint8_t *words, size_t at, size_t stop, struct err *e)
{
	const struct bulk_plan *p = &in->plan;
	struct convert_sums *sums = &in->sums[in->group];
	const uint8_t *ours = p->ours;
	if (ours)
		ours += at * convert_word(p->format);
	enum convert_take how = !p->difference  ? TAKE_WORDS
	                        : p->unmeasured ? TAKE_UNMEASURED
	                                        : TAKE_DIFFERENCE;
	in->convert->take(p->format, p->staging + at, words, ours, stop - at, how, sums);
	if (!convert_finite(sums))
		return err_set(e, ERR_NONFINITE,
		        "parameters %zu to %zu of the peer hold a NaN or an infinity", at,
		        stop - 1);
	if (!isfinite(sums->distance2))
		return err_set(e, ERR_NONFINITE,
		        "parameters %zu to %zu differ from ours by no finite number", at, stop - 1);
	return 0;
}

/* ---- of a lattice: nothing that comes can be anything but a number */

/* Up to where the parameters from `at` on, which does not go back, are of one group. */
static size_t run_end(struct bulk_in *in, size_t at, size_t end)
{
	const struct bulk_plan *p = &in->plan;
	while (in->group < p->n_groups && p->group_end[in->group] <= at)
		in->group++;
	if (in->group < p->n_groups && p->group_end[in->group] < end)
		return p->group_end[in->group];
	return end;
}

/* Two vectors that were rounded differ by a sixth of step² more, on average. */
static void note_rounding(struct bulk_in *in, double step2, size_t n)
{
	if (in->group < in->plan.n_groups)
		in->rounding2 += step2 * (double)n / 6;
}

static void measure_block(
        struct bulk_in *in, const struct lattice *l, size_t block, int32_t squares)
{
	size_t at = block * LATTICE_BLOCK, end = at + LATTICE_BLOCK, stop;
	double step2 = (double)lattice_step(l, block) * (double)lattice_step(l, block);
	float d[LATTICE_BLOCK];
	end = end < l->count ? end : l->count;
	stop = run_end(in, at, end);
	if (stop == end) {
		in->sums[in->group].distance2 += step2 * squares;
		note_rounding(in, step2, end - at);
		return;
	}
	lattice_unpack(l, d, in->plan.packed, at, end - at);
	for (size_t from = at; from < end; from = stop) {
		stop = run_end(in, from, end);
		for (size_t i = from; i < stop; i++)
			in->sums[in->group].distance2 += (double)d[i - at] * (double)d[i - at];
		note_rounding(in, step2, stop - from);
	}
}

static void note_block(
        struct bulk_in *in, const struct lattice *l, size_t block, const struct lattice_found *f)
{
	int8_t *found = &in->found[block >> l->shift], s = lattice_scale(l, block, f);
	*found = s > *found ? s : *found;
	if (f->top == LATTICE_WRAPPED)
		in->wrapped++;
	else
		measure_block(in, l, block, f->squares);
}

static void take_lattice(struct bulk_in *in, const uint8_t *payload)
{
	const struct bulk_plan *p = &in->plan;
	const struct lattice l = {.bits = convert_rows[p->format].bits,
	        .count = p->receive_count,
	        .shift = scales_shift(p->receive_count),
	        .scale = p->scales};
	size_t n = chunk_count(p, p->receive_count - in->next), k;
	size_t first = in->next / LATTICE_BLOCK, blocks = lattice_blocks(n);
	for (size_t b = 0; b < blocks; b += k) {
		struct lattice_found found[BLOCKS_AT_ONCE];
		k = blocks - b < BLOCKS_AT_ONCE ? blocks - b : BLOCKS_AT_ONCE;
		lattice_take(&l, p->packed + (first + b) * 32 * (size_t)l.bits, found,
		        payload + b * lattice_record(l.bits),
		        (const uint8_t *)p->ours + (first + b) * lattice_record(l.bits), k);
		for (size_t i = 0; i < k; i++)
			note_block(in, &l, first + b + i, &found[i]);
	}
	in->next += n;
}

static int take_chunk(struct bulk_in *in, const uint8_t *payload, struct err *e)
{
	const struct bulk_plan *p = &in->plan;
	size_t end = in->next + chunk_count(p, p->receive_count - in->next), stop;
	if (p->format >= CONVERT_WORDS) {
		take_lattice(in, payload);
		return 0;
	}
	for (size_t at = in->next; at < end; at = stop) {
		while (in->group < p->n_groups && p->group_end[in->group] <= at)
			in->group++;
		stop = end;
		if (in->group < p->n_groups && p->group_end[in->group] < end)
			stop = p->group_end[in->group];
		const uint8_t *words = payload + (at - in->next) * convert_word(p->format);
		int rc = take_run(in, words, at, stop, e);
		if (rc)
			return rc;
	}
	in->next = end;
	return 0;
}

/* Looks at what has come of the next frame. */
static int look(struct bulk_in *in, struct err *e)
{
	struct frame f;
	if (in->have < FRAME_HEADER_BYTES)
		return 0;
	int rc = check_header(in, e);
	if (rc)
		return rc;
	rc = frame_read(&in->reader, &f, e);
	if (rc < 0)
		return err_set(e, ERR_IO, "frame %llu was not sealed by the peer, or changed since",
		        (unsigned long long)in->reader.keys.counter);
	if (rc == 0)
		return 0;
	in->have = 0;
	in->ended = f.type == FRAME_END;
	return in->ended ? 1 : take_chunk(in, f.payload, e);
}

int bulk_in_fed(struct bulk_in *in, size_t len, struct err *e)
{
	if (in->code)
		return err_set(e, in->code, "this transfer has failed before");
	if (in->ended)
		return 1;
	frame_fed(&in->reader, len);
	in->have += len;
	int rc = look(in, e);
	if (rc < 0)
		in->code = rc;
	return rc;
}

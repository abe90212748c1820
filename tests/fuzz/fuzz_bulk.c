/* SPDX-License-Identifier: MIT */
/* The receiving half of a bulk transfer, fed by a peer that has the keys and no manners. The input
 * is a plan and then what the peer does: seal the frame that is due, seal one of any type and
 * length, change a byte of a good one, or send what it likes. Whatever it does, nothing is accepted
 * but chunks of the planned lengths, sealed in their order, finite, and then END; and what is
 * accepted, the beginning of a transfer that failed included, is what was sealed. */
#include "net/bulk/bulk_stream.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define COUNT_MAX 64
#define PAYLOAD_MAX 256 /* over the largest chunk of these plans */

struct input {
	const uint8_t *at, *end;
};

static uint8_t next(struct input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

struct peer {
	struct frame_writer writer;
	uint8_t said[16 * PAYLOAD_MAX]; /* the payloads of all chunks that were sealed */
	size_t said_len;
	bool tampered; /* something that was not sealed has been sent */
};

static void must(bool ok)
{
	if (!ok)
		abort();
}

/* One deed of the peer: bytes for out. */
static size_t act(struct peer *p, const struct bulk_in *in, struct input *input, uint8_t *out)
{
	uint8_t deed = next(input), payload[PAYLOAD_MAX] = {0};
	size_t word = convert_word(in->plan.format), most = in->plan.chunk_bytes / word;
	size_t left = in->plan.receive_count - in->next, n = (left < most ? left : most) * word,
	       len;
	enum frame_type type = n > 0 ? FRAME_CHUNK : FRAME_END;
	if ((deed & 3) == 1) { /* another frame */
		type = (enum frame_type)(deed >> 2 & 3);
		n = type == FRAME_END ? 0 : (size_t)next(input) % PAYLOAD_MAX;
	}
	if ((deed & 3) == 2) { /* no frame at all */
		p->tampered = true;
		n = 1 + (deed >> 2);
		for (size_t i = 0; i < n; i++)
			out[i] = next(input);
		return n;
	}
	for (size_t i = 0; i < n; i++)
		payload[i] = next(input);
	if (frame_seal(&p->writer, type, payload, n, out, &len))
		return 0;
	if (type == FRAME_CHUNK && p->said_len + n <= sizeof p->said) {
		memcpy(p->said + p->said_len, payload, n);
		p->said_len += n;
	}
	if ((deed & 3) == 3) { /* a good one, changed */
		size_t at = next(input) % len;
		uint8_t bits = next(input);
		out[at] ^= bits;
		p->tampered |= bits != 0;
	}
	return len;
}

static float said(const struct peer *p, const struct bulk_plan *plan, size_t i)
{
	uint32_t u = 0;
	float y;
	if (plan->format == CONVERT_BF16)
		memcpy((uint8_t *)&u + 2, p->said + 2 * i, 2);
	else
		memcpy(&u, p->said + 4 * i, 4);
	memcpy(&y, &u, 4);
	return y;
}

static bool near(double a, double b)
{
	return fabs(a - b) <= 1e-9 * b;
}

/* Ours are 0, 1, 2, …: bf16, too. */
static const uint8_t *as_they_travel(enum convert_format f)
{
	static uint8_t words[COUNT_MAX * 4];
	float x[COUNT_MAX];
	for (size_t i = 0; i < COUNT_MAX; i++)
		x[i] = (float)i;
	convert_best()->pack(f, words, x, COUNT_MAX);
	return words;
}

/* However it ended, the front of staging is what the sealed chunks say; and if it is whole, nothing
 * else was there, and its distances are right. */
static void check(const struct peer *p, const struct bulk_in *in, bool whole)
{
	const struct bulk_plan *plan = &in->plan;
	double group[BULK_GROUPS_MAX + 1] = {0};
	int g = 0;
	must(in->next <= plan->receive_count);
	must(in->next * convert_word(plan->format) <= p->said_len);
	for (size_t i = 0; i < in->next; i++) {
		float y = said(p, plan, i), d = plan->ours ? y - (float)i : 0;
		must(isfinite(y) && isfinite(plan->staging[i]));
		must(plan->staging[i] == (plan->difference ? d : y));
		while (g < plan->n_groups && plan->group_end[g] <= i)
			g++;
		group[g] += (double)d * (double)d;
	}
	if (!whole)
		return;
	must(!p->tampered && in->next == plan->receive_count);
	must(p->said_len == in->next * convert_word(plan->format));
	for (g = 0; g <= plan->n_groups; g++)
		must(near(in->sums[g].distance2, group[g]));
}

/* Groups, and perhaps nothing to receive or to compare with. */
static void shape_more(struct bulk_plan *plan, size_t *group_end, struct input *input)
{
	uint8_t more = next(input);
	plan->receive_count--;
	plan->n_groups = more % 8;
	plan->group_end = group_end;
	for (int g = 0; g < plan->n_groups; g++) {
		size_t from = g ? group_end[g - 1] : 0;
		group_end[g] = from + next(input) % (plan->receive_count - from + 1);
	}
	if (more & 128 && !plan->difference)
		plan->ours = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t secret[FRAME_SECRET_BYTES] = {7};
	size_t group_end[8];
	struct input input = {data, data + size};
	struct peer p = {0};
	struct bulk_in in;
	uint8_t shape = next(&input), out[PAYLOAD_MAX + FRAME_OVERHEAD_MAX];
	size_t step = 1 + next(&input);
	struct bulk_plan plan = {
	        .aead = aead_list[0],
	        .format = shape & 1 ? CONVERT_BF16 : CONVERT_FP32,
	        .difference = shape & 2,
	        .chunk_bytes = 4 * (1 + (size_t)(shape >> 2 & 31)),
	        .receive_count = 1 + next(&input) % COUNT_MAX,
	};
	plan.ours = as_they_travel(plan.format);
	if (shape & 128)
		shape_more(&plan, group_end, &input);
	/* No longer than it must be, so that AddressSanitizer sees its end. */
	plan.staging = malloc(plan.receive_count * sizeof *plan.staging + 1);
	must(plan.staging != NULL);
	must(frame_writer_init(&p.writer, plan.aead, secret, FRAME_CHUNK_MAX) == 0);
	must(bulk_in_init(&in, &plan, secret) == 0);
	int rc = 0;
	while (rc == 0 && input.at < input.end) {
		size_t len = act(&p, &in, &input, out);
		for (size_t at = 0; rc == 0 && at < len;) {
			size_t room, n = len - at < step ? len - at : step;
			uint8_t *to = bulk_in_room(&in, &room);
			must(room > 0);
			n = n < room ? n : room;
			memcpy(to, out + at, n);
			at += n;
			rc = bulk_in_fed(&in, n, NULL);
		}
		if (len == 0)
			break;
	}
	check(&p, &in, rc > 0);
	bulk_in_close(&in);
	frame_writer_close(&p.writer);
	free(plan.staging);
	return 0;
}

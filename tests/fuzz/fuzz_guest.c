/* SPDX-License-Identifier: MIT */
/* Any bytes as what a script says to its agent: packets, each with two bytes of length before it;
 * first HELLO until it is whole, then the rest. What is taken must be within the limits, and sum
 * up; what is refused is refused in words. */
#include "agent/guest/guest_wire.h"
#include "tests/fuzz/input.h"

#include <string.h>

static size_t next(struct input *in, const uint8_t **packet)
{
	size_t n = take(in);
	n |= (size_t)take(in) << 8;
	n = n < in->left ? n : in->left;
	*packet = in->at;
	in->at += n;
	in->left -= n;
	return n;
}

static void look(const struct guest_hello *h)
{
	size_t sum = 0, trained = 0, decayed = 0;
	struct buf text;
	demand(h->n == h->n_tensors && h->n <= LIMIT_TENSORS && h->n_train > 0);
	demand(h->vectors >= 2 && h->vectors <= 3 && h->total > 0 && h->step_samples > 0);
	demand(strlen(h->run) < sizeof h->run);
	for (uint32_t i = 0; i < h->n; i++) {
		const struct guest_tensor *t = &h->tensor[i];
		size_t count = 1;
		demand(t->rank >= 0 && t->rank <= LIMIT_TENSOR_RANK && t->offset == sum);
		for (int k = 0; k < t->rank; k++)
			count *= (size_t)t->dim[k];
		demand(count == t->count && count > 0 && t->name[0]);
		sum += count;
		trained += t->kind < GUEST_STATISTIC ? count : 0;
		decayed += t->kind == GUEST_WEIGHT ? count : 0;
	}
	demand(sum == h->n_total && sum <= LIMIT_PARAMS);
	demand(trained == h->n_train && decayed == h->n_decay);
	buf_init(&text, 1u << 24);
	demand(guest_hello_print(h, &text) == 0);
	buf_close(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {.at = data, .left = size};
	struct guest_hello h = {0};
	struct guest_message m;
	bool whole = false;
	int rc = 0;
	while (in.left > 0 && rc == 0) {
		struct err e = {0};
		const uint8_t *packet;
		size_t n = next(&in, &packet);
		if (!whole) {
			rc = guest_hello_read(&h, packet, n, &whole, &e);
			demand(h.n <= h.n_tensors || rc);
			if (rc == 0 && whole)
				look(&h);
		} else {
			rc = guest_read(&m, packet, n, &e);
			demand(rc || m.kind == GUEST_STEP || m.kind == GUEST_ANSWER ||
			        m.kind == GUEST_BYE);
			demand(rc || m.kind != GUEST_BYE || strlen(m.words) <= GUEST_WORDS_MAX);
		}
		demand((rc != 0) == (e.code != 0) && (rc == 0 || e.msg[0]));
	}
	guest_hello_close(&h);
	return 0;
}

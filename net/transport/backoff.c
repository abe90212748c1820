/* SPDX-License-Identifier: MIT */
/* Addresses that could not be reached wait 1 s, 2 s, 4 s … up to a minute, with jitter, so that the
 * agents of a flock do not all dial at once. Bounded: the least recently used one is forgotten. */
#include "net/transport/transport_internal.h"

#include <sodium.h>

#define FIRST_MS 1000
#define LAST_MS 60000

static struct backoff_entry *find(const struct backoff *b, const struct peer_addr *a)
{
	for (uint32_t i = 0; i < b->n; i++) {
		const struct backoff_entry *x = &b->entry[i];
		if (peer_addr_equal(&x->addr, a))
			return (struct backoff_entry *)(uintptr_t)x;
	}
	return NULL;
}

bool backoff_allows(const struct backoff *b, const struct peer_addr *a, uint64_t now_ms)
{
	const struct backoff_entry *x = find(b, a);
	return !x || now_ms >= x->until_ms;
}

uint32_t backoff_failed(struct backoff *b, const struct peer_addr *a, uint64_t now_ms)
{
	struct backoff_entry *x = find(b, a);
	if (!x && b->n < BACKOFF_ADDRESSES) {
		x = &b->entry[b->n++];
		*x = (struct backoff_entry){.addr = *a};
	} else if (!x) {
		x = &b->entry[0];
		for (uint32_t i = 1; i < b->n; i++)
			if (b->entry[i].used_ms < x->used_ms)
				x = &b->entry[i];
		*x = (struct backoff_entry){.addr = *a};
	}
	uint64_t wait = (uint64_t)FIRST_MS << (x->failures < 6 ? x->failures : 6);
	wait = wait < LAST_MS ? wait : LAST_MS;
	x->failures++;
	x->used_ms = now_ms;
	x->until_ms = now_ms + wait / 2 + randombytes_uniform((uint32_t)wait);
	return x->failures;
}

void backoff_worked(struct backoff *b, const struct peer_addr *a)
{
	struct backoff_entry *x = find(b, a);
	if (x)
		*x = b->entry[--b->n];
}

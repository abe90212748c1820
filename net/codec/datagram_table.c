/* SPDX-License-Identifier: MIT */
/* Hints and whose they are: open addressing with linear probing, at most half full, so a look-up of
 * a hint that nobody has ends after a step or two. Removal moves later entries back instead of
 * leaving graves, or a flock that comes and goes would fill the table with them. The place of a
 * hint is SipHash with a key of this process: strangers choose hints, but not where they fall.
 *
 * Two agents share a hint only if somebody with the secret searched for that (2^32 tries): then
 * both are tried, up to a bound. */
#include "net/codec/datagram.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

#define FREE UINT32_MAX

struct entry {
	uint64_t hint;
	uint32_t value; /* FREE: none */
};

struct datagram_table {
	uint8_t key[crypto_shorthash_KEYBYTES];
	uint32_t mask, used, max;
	struct entry entry[];
};

static uint32_t places(uint32_t n)
{
	uint32_t p = 16;
	assert(n > 0 && n <= 1u << 30);
	while (p < 2 * n)
		p *= 2;
	return p;
}

size_t datagram_table_size(uint32_t n)
{
	return sizeof(struct datagram_table) + places(n) * sizeof(struct entry);
}

struct datagram_table *datagram_table_init(void *memory, uint32_t n, const uint8_t key[16])
{
	struct datagram_table *t = memory;
	memcpy(t->key, key, sizeof t->key);
	t->mask = places(n) - 1;
	t->used = 0;
	t->max = n;
	for (uint32_t i = 0; i <= t->mask; i++)
		t->entry[i] = (struct entry){.value = FREE};
	return t;
}

static uint32_t place(const struct datagram_table *t, uint64_t hint)
{
	uint8_t h[crypto_shorthash_BYTES];
	uint32_t n;
	crypto_shorthash(h, (const uint8_t *)&hint, sizeof hint, t->key);
	memcpy(&n, h, sizeof n);
	return n & t->mask;
}

int datagram_table_add(struct datagram_table *t, uint64_t hint, uint32_t value)
{
	int same = 0;
	uint32_t i = place(t, hint);
	assert(value != FREE);
	for (; t->entry[i].value != FREE; i = (i + 1) & t->mask) {
		if (t->entry[i].hint != hint)
			continue;
		if (t->entry[i].value == value)
			return 0;
		if (++same == DATAGRAM_SAME_HINT)
			return ERR_LIMIT;
	}
	if (t->used == t->max)
		return ERR_LIMIT;
	t->entry[i] = (struct entry){.hint = hint, .value = value};
	t->used++;
	return 0;
}

void datagram_table_remove(struct datagram_table *t, uint64_t hint, uint32_t value)
{
	uint32_t i = place(t, hint);
	while (t->entry[i].value != FREE &&
	        (t->entry[i].hint != hint || t->entry[i].value != value))
		i = (i + 1) & t->mask;
	if (t->entry[i].value == FREE)
		return;
	t->used--;
	/* Whoever follows and would be happier in the hole, or before it, moves into it. */
	for (uint32_t k = (i + 1) & t->mask; t->entry[k].value != FREE; k = (k + 1) & t->mask) {
		uint32_t home = place(t, t->entry[k].hint);
		if (((k - home) & t->mask) >= ((k - i) & t->mask)) {
			t->entry[i] = t->entry[k];
			i = k;
		}
	}
	t->entry[i] = (struct entry){.value = FREE};
}

int datagram_table_find(
        const struct datagram_table *t, uint64_t hint, uint32_t value[DATAGRAM_SAME_HINT])
{
	int n = 0;
	for (uint32_t i = place(t, hint); t->entry[i].value != FREE; i = (i + 1) & t->mask)
		if (t->entry[i].hint == hint && n < DATAGRAM_SAME_HINT)
			value[n++] = t->entry[i].value;
	return n;
}

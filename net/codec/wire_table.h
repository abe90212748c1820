/* SPDX-License-Identifier: MIT */
/* What a message is made of: a row for each field, in the order of the wire. wire.c writes and
 * wire_decode.c reads whatever the rows say; nothing else knows a field's name, type, range or
 * place.
 *
 * To add a field: a member of the struct, a row at the end of its table, and the use. Rows after
 * the first `least` of a layout are optional: an agent that does not know the field leaves it out,
 * and it is read as zero; an agent that knows it leaves out zeros at the end. So zero must mean
 * "not said", and be in range. Elements after the last row are skipped. */
#ifndef DUNLIN_NET_CODEC_WIRE_TABLE_H
#define DUNLIN_NET_CODEC_WIRE_TABLE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum wire__type {
	FIELD_UINT,
	FIELD_FLAGS, /* bit k is the k-th of `size` bools in a row; others are ignored */
	FIELD_BOOL,
	FIELD_FLOAT,
	FIELD_FLOATS,  /* an array of `extra` more than the struct counts */
	FIELD_BYTES,   /* exactly `size` */
	FIELD_BLOB,    /* at most `size`, as many as the struct counts */
	FIELD_TEXT,    /* at most `size` less a NUL */
	FIELD_ADDR,    /* a struct peer_addr, perhaps none */
	FIELD_ADDRS,   /* a struct peer_addrs */
	FIELD_INNER,   /* an array of fields with a layout of its own */
	FIELD_UPDATES, /* of a struct gossip_message */
};

struct wire__field {
	const char *name;
	uint8_t type;
	uint16_t at, size; /* in the struct */
	uint16_t count_at; /* FLOATS, BLOB: where the struct has their number */
	uint8_t count_size;
	uint8_t extra;
	bool ordered;      /* UINT: not below the row before */
	uint8_t unknown;   /* UINT: what a number over max is read as; 0: it is refused */
	uint64_t min, max; /* UINT */
	float low, high;   /* FLOAT, FLOATS; 0 and 0: any bits */
	const struct wire__layout *inner; /* static */
};

struct wire__layout {
	const char *name;
	const struct wire__field *field; /* static */
	uint8_t n, least;                /* rows; those that must be there */
};

#define WIRE__AT(s, f) .at = offsetof(struct s, f), .size = sizeof(((struct s *)0)->f)
#define WIRE__COUNT(s, f) \
	.count_at = offsetof(struct s, f), .count_size = sizeof(((struct s *)0)->f)
#define WIRE__LAYOUT(name, rows, least)                           \
	{                                                         \
		name, rows, sizeof(rows) / sizeof(rows)[0], least \
	}

/* A number in a struct, of 1, 2, 4 or 8 bytes. */
union wire__number {
	uint8_t one;
	uint16_t two;
	uint32_t four;
	uint64_t eight;
};

static inline uint64_t wire__load(const void *at, size_t size)
{
	union wire__number n;
	assert(size == 1 || size == 2 || size == 4 || size == 8);
	memcpy(&n, at, size);
	return size == 1 ? n.one : size == 2 ? n.two : size == 4 ? n.four : n.eight;
}

static inline void wire__store(void *at, size_t size, uint64_t number)
{
	union wire__number n = {.eight = number};
	assert(size == 1 || size == 2 || size == 4 || size == 8);
	if (size == 1)
		n.one = (uint8_t)number;
	else if (size == 2)
		n.two = (uint16_t)number;
	else if (size == 4)
		n.four = (uint32_t)number;
	memcpy(at, &n, size);
}

/* By kind; without a name: there is none. The base of a row is the struct gossip_message,
 * member_sketch (SKETCH), exchange_message (EXCHANGE) or else wire_message. */
#define WIRE__MESSAGES 76
extern const struct wire__layout wire__messages[WIRE__MESSAGES];
extern const struct wire__layout wire__hello_full;  /* the second and third of a handshake */
extern const struct wire__layout wire__exchanges[]; /* by enum exchange_message_kind */
extern const struct wire__layout wire__updates[];   /* by enum update_kind, without signature */

/* What an array has before its fields, and how many elements the caller adds behind them. */
struct wire__head {
	uint8_t n, kind[2], after;
};

/* wire.c: writes the array's head and fields. Returns the bytes used, 0: cap is too small. */
size_t wire__put(uint8_t *out, size_t cap, const struct wire__head *h, const struct wire__layout *l,
        const void *base);

/* wire_decode.c: reads the fields of an array of n elements, of which `others` are no fields, and
 * skips what it does not know. */
struct wire_in;
void wire__get(
        struct wire_in *in, const struct wire__layout *l, uint32_t n, uint32_t others, void *base);

#endif

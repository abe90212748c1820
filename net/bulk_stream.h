/* SPDX-License-Identifier: MIT */
/* The two directions of a bulk transfer as bytes in and bytes out; net/bulk.h has the sockets and
 * threads. Each direction is
 *
 *     CHUNK ┬ CHUNK ┬ … ┬ the rest ┬ END
 *
 * with every CHUNK of exactly chunk_bytes, and that many parameters in all as both sides know
 * beforehand: nothing on the wire says how much there is. A direction belongs to one thread at a
 * time. */
#ifndef DUNLIN_NET_BULK_STREAM_H
#define DUNLIN_NET_BULK_STREAM_H

#include "agent/base/err.h"
#include "net/convert.h"
#include "net/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What travels, the same on both sides. */
struct bulk_plan {
	const struct aead *aead; /* borrowed, static */
	enum convert_format format;
	size_t count;       /* parameters, of each side */
	size_t chunk_bytes; /* of parameters in one frame: a multiple of 4, at most FRAME_CHUNK_MAX
	                     */
	const float *send;  /* borrowed: count of ours, which nobody changes meanwhile */
	float *staging;     /* borrowed: count; unusable unless the end is reached */
	bool difference;    /* staging gets y − Q(send) instead of y */
};

struct bulk_out {
	struct bulk_plan plan;
	const struct convert *convert;
	struct frame_writer writer;
	uint8_t *buf; /* owned: one frame */
	size_t next;  /* the first parameter that is not sealed */
	bool ended;
};

/* secret may be wiped afterwards. What failed needs no close. */
int bulk_out_init(struct bulk_out *o, const struct bulk_plan *p,
        const uint8_t secret[FRAME_SECRET_BYTES]) MUST_CHECK;
void bulk_out_close(struct bulk_out *o);

/* Seals the next frame: 1, *bytes is valid until the next call; 0: END was the last. */
int bulk_out_next(struct bulk_out *o, const uint8_t **bytes, size_t *len, struct err *e) MUST_CHECK;

struct bulk_in {
	struct bulk_plan plan;
	const struct convert *convert;
	struct frame_reader reader;
	struct convert_sums sums;
	uint8_t *buf; /* owned: one frame */
	size_t next;  /* the first parameter that has not come */
	size_t have;  /* bytes of the next frame that have come */
	bool ended;
	int code; /* 0, or why it is dead */
};

int bulk_in_init(struct bulk_in *in, const struct bulk_plan *p,
        const uint8_t secret[FRAME_SECRET_BYTES]) MUST_CHECK;
void bulk_in_close(struct bulk_in *in);

/* Where the next bytes from the peer go: never more than the next frame still lacks, so that none
 * is taken from whatever follows END. */
uint8_t *bulk_in_room(struct bulk_in *in, size_t *len);

/* Says how many came. 1: END has come, staging is whole and finite; 0: more are needed; negative,
 * for ever: drop the connection. ERR_FORMAT: not the frame that had to come next; ERR_MISMATCH: not
 * sealed by the peer; ERR_NONFINITE. */
int bulk_in_fed(struct bulk_in *in, size_t len, struct err *e) MUST_CHECK;

/* The bytes of one direction, sealed and framed. */
uint64_t bulk_wire_bytes(const struct bulk_plan *p);

#endif

/* SPDX-License-Identifier: MIT */
/* The two directions of a bulk transfer as bytes in and bytes out; net/bulk/bulk.h has the sockets
 * and threads. Each direction is
 *
 *     CHUNK ┬ CHUNK ┬ … ┬ the rest ┬ END
 *
 * with every CHUNK but the last of exactly chunk_bytes. Both sides know the number of parameters
 * beforehand: nothing on the wire says how many there are. The two directions may have different
 * lengths; an empty one is END alone. A direction belongs to one thread at a time.
 *
 * What comes in is measured by groups, runs of parameters that end where group_end says; each group
 * has a distance of its own, and what is behind the last one is checked but measured in none:
 *
 *     0          end[0]       end[1]  …  end[n_groups − 1]  receive_count
 *     ├─ group 0 ──┼─ group 1 ──┤     …         ├── in no group ──┤        */
#ifndef DUNLIN_NET_BULK_BULK_STREAM_H
#define DUNLIN_NET_BULK_BULK_STREAM_H

#include "agent/base/err.h"
#include "net/bulk/convert.h"
#include "net/bulk/lattice.h"
#include "net/codec/frame.h"
#include "net/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What travels: the peer's send_count is our receive_count, the other way round alike, and aead,
 * format and chunk_bytes are the same on both sides. */
struct bulk_plan {
	const struct aead *aead; /* borrowed, static */
	enum convert_format format;
	size_t chunk_bytes; /* of parameters in one frame: a multiple of 4, to FRAME_CHUNK_MAX */
	const void *send;   /* borrowed: send_count words of ours, which nobody changes meanwhile */
	size_t send_count;  /* 0: END alone; send may be NULL */
	float *staging;     /* borrowed: receive_count; or of a lattice: */
	uint8_t *packed;    /* the packed difference, of lattice_difference bytes */
	const int8_t *scales; /* borrowed: scales_count(receive_count), as both use them */
	size_t receive_count;
	const void *ours; /* borrowed: receive_count words to compare with; NULL: nothing is */
	bool difference;  /* staging gets y − ours instead of y */
	bool unmeasured;  /* with difference: no distance is computed, and none looked at */
	int n_groups;     /* at most BULK_GROUPS_MAX; 0: all parameters are measured together */
	const size_t *group_end; /* borrowed: n_groups, ascending, at most receive_count */
};

struct bulk_out {
	struct bulk_plan plan;
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
	int group; /* of the next parameter; n_groups: behind the last */
	struct convert_sums sums[BULK_GROUPS_MAX + 1];
	double rounding2;         /* of a lattice: what rounding may have added in all groups */
	int8_t found[SCALES_MAX]; /* of a lattice: see scales_learn */
	size_t wrapped;           /* blocks */
	uint8_t *buf;             /* owned: one frame */
	size_t next; /* the first parameter that has not come: those before it are whole,
	               * authentic and finite in staging, whatever happens */
	size_t have; /* bytes of the next frame that have come */
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
 * for ever: drop the connection. ERR_IO: not the frame that had to come next, or not sealed by the
 * peer. Nobody can tell the peer's fault from a stranger's then, so it is a broken connection and
 * no evidence. ERR_NONFINITE: by the peer, which is proven. */
int bulk_in_fed(struct bulk_in *in, size_t len, struct err *e) MUST_CHECK;

/* The bytes of a direction of count parameters, sealed and framed. */
uint64_t bulk_wire_bytes(const struct bulk_plan *p, size_t count);

#endif

/* SPDX-License-Identifier: MIT */
/* A bulk transfer: two agents send each other a vector of parameters at once, sealed, over a
 * connection of its own; or only one of them does, or the two send as many as they have agreed on.
 * Everything here is called on the loop's thread and returns at once; the work is done by two
 * threads that a transfer has to itself, and its outcome comes back through the loop. So a transfer
 * of any size delays no probe.
 *
 *     loop thread     bulk_start ────────────────── bulk_cancel ───────────────────── done_cb
 *     sender                   └ seal, send …                                     ┘
 *     receiver                 └ receive, open, check, convert, compare …         ┘
 *
 * Each transfer ends in exactly one done_cb. With code 0 the peer's whole vector is in staging,
 * authentic and finite. With any other only its first `words` parameters are: too little to average
 * with, but a later transfer can go on from there. done_cb does not tell whether the peer has
 * received all that we sent: only the peer knows. */
#ifndef DUNLIN_NET_BULK_BULK_H
#define DUNLIN_NET_BULK_BULK_H

#include "agent/base/err.h"
#include "net/bulk/convert.h"
#include "net/codec/frame.h"
#include "net/crypto/aead.h"
#include "net/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct bulk;

struct bulk_result {
	struct err err; /* code 0: it is whole. ERR_IO: the peer is gone or cut it, or what came is
	                 * not provably the peer's; ERR_NONFINITE: which is; ERR_TIMEOUT:
	                 * deadline_ms; ERR_CANCELLED: bulk_cancel */
	uint64_t bytes_sent, bytes_received; /* sealed, as on the wire */
	size_t words; /* parameters at the front of staging that are whole, authentic and finite;
	               * with code 0 receive_count */
	double group_distance2[BULK_GROUPS_MAX]; /* Σ (y − ours)² of each group of the peer's
	                                          * vector; only with code 0 and `ours`, and not
	                                          * if they are unmeasured */
	/* With code 0 and `keep` the socket, which is the callee's now: nothing behind END has been
	 * read, so another transfer may follow on it, with other keys. Else -1. */
	int fd;
	/* Of a lattice, with code 0; valid for the call. */
	double rounding2;    /* of the sum of group_distance2: what rounding has added, if the
	                      * steps fit the distance; at most what the peer makes of it */
	const int8_t *found; /* of each run, for scales_learn */
	size_t wrapped;      /* blocks that are left out */
};

typedef void (*bulk_done_cb)(void *arg, const struct bulk_result *r);

struct bulk_config {
	uv_loop_t *loop;               /* borrowed until done_cb */
	int fd;                        /* a connected stream socket; bulk_start takes it */
	const struct frame_bulk *keys; /* borrowed for the call; take each once */
	bool we_dialled;
	bool keep;               /* the socket is wanted back after an orderly end */
	const struct aead *aead; /* borrowed, static */
	enum convert_format format;
	/* What goes and what comes: the peer must have agreed to the same, the other way round.
	 * Each is borrowed until done_cb, and nobody changes it meanwhile. send and ours are words
	 * of the format, as they travel. */
	const void *send;
	size_t send_count; /* parameters; 0: we send nothing but END, and send may be NULL */
	float *staging;
	size_t receive_count; /* 0: nothing is expected but END, and staging may be NULL */
	uint8_t *packed;      /* instead of staging, for a format of net/bulk/lattice.h: the packed
	                       * difference from `ours`; scales: what both use, borrowed, too */
	const int8_t *scales;
	const void *ours;     /* receive_count parameters to compare with, may be send; NULL: not */
	bool difference;      /* staging gets y − ours, ready to be added, instead of y */
	bool unmeasured;      /* with difference: do not measure the distance, a GPU will do it; it
	                       * then also has to find differences that are not finite */
	/* Groups of layers, whose distances are told apart: where each ends, ascending. Parameters
	 * behind the last end count in no distance. 0: no distance is told. */
	int n_groups;
	const size_t *group_end; /* borrowed until done_cb */
	size_t chunk_bytes;      /* 0: BULK_CHUNK_BYTES; both sides the same */
	uint64_t deadline_ms;    /* for the whole; 0: none */
	uint64_t unheard_ms; /* until something comes, the peer's machine must acknowledge what we
	                      * send within about this time, else it is ERR_IO; 0: it need not */
	void *arg;
	bulk_done_cb done_cb; /* on the loop; *r for the call; the transfer is gone after it */
};

/* 256 KB: the frame, and staging and snapshot of as many parameters, stay in a second-level cache;
 * larger ones gained nothing. */
#define BULK_CHUNK_BYTES ((size_t)256 * 1024)

/* The fd is closed in any case, here or at the end, unless done_cb gets it. An error means that
 * done_cb never comes. */
int bulk_start(struct bulk **out, const struct bulk_config *c, struct err *e) MUST_CHECK;

/* Ends it soon, in done_cb with ERR_CANCELLED, unless it has ended already in another way. The
 * peer sees a connection that was cut. May be called more than once, until done_cb. */
void bulk_cancel(struct bulk *b);

#endif

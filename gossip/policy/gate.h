/* SPDX-License-Identifier: MIT */
/* The gate: is this step worth an exchange?
 *
 *     a step's gradient norm ──► a fast and a slow average of it
 *                                          Δ = |ln(fast / slow)| ≥ δ: an exchange is wanted
 *
 * Pure: time comes with the calls, chance from a seed. A gate only says when it wants an exchange.
 * If no partner is found, the exchange stays owed. The caller reports afterwards what an exchange
 * cost. Precedence: upload cap, then the day's quota, then longest silence, then the mode's own
 * rule or the consensus guard (guard.h), whichever is due first. Distances between exchanges are
 * counted in samples, so that larger batches do not thin the mixing. */
#ifndef DUNLIN_GOSSIP_POLICY_GATE_H
#define DUNLIN_GOSSIP_POLICY_GATE_H

#include "agent/base/err.h"
#include "agent/base/rng.h"

#include <stdbool.h>
#include <stdint.h>

enum gate_mode {
	GATE_SIGNIFICANCE, /* Δ of two exponential averages of ‖g‖², fixed δ */
	GATE_SELSYNC,      /* as in SelSync's published scripts: twice smoothed, windowed */
	GATE_BUDGET,       /* δ follows the quantile of Δ that meets a target */
	GATE_EVERY,        /* each H samples */
	GATE_ALWAYS,
	GATE_RANDOM, /* each step with probability p: what the others are compared with */
	GATE_MODES
};

enum gate_reason {
	REASON_LOCAL, /* not worth it: a local step */
	REASON_WARMUP,
	REASON_SIGNIFICANT,
	REASON_SILENCE,
	/* Wanted earlier, but nobody was free. With `exchange`: it is tried again. Without: this
	 * step would have wanted one too, but it is not yet time, and one debt is enough. */
	REASON_OWED,
	REASON_MODE,   /* every, always, random */
	REASON_BUDGET, /* significant, but the budget mode's bucket is empty: a local step */
	REASON_CAP,    /* wanted, but over the upload cap: a local step */
	REASON_GUARD,  /* the consensus guard says so */
	REASONS
};

struct gate_config {
	enum gate_mode mode;
	double delta;           /* δ of significance and selsync */
	double smooth;          /* a: 0.16 (the fast average of significance), 0.01 (selsync) */
	double slow;            /* a of the slow average: 0.02 */
	uint32_t warm;          /* steps until the average counts: 25; also selsync's window W */
	uint64_t every_samples; /* H */
	double chance;          /* p of random */
	/* Budget: what counts as the target is the strictest of those that are not 0. */
	double exchanges_per_s, bytes_per_s, bytes_per_day;
	double incoming_share;  /* of the budget, kept for exchanges that others begin: 0.5 */
	double cap_bytes_per_s; /* hard upload cap, all modes; 0: none */
	uint64_t silence_samples, silence_ms; /* longest silence; 0: no such bound */
	uint64_t exchange_bytes;              /* what one exchange uploads */
	uint64_t first_bytes;                 /* the first one, if it is more */
	uint64_t step_samples;                /* of the first step */
	uint64_t seed;
};

#define GATE_WINDOW_MAX 64  /* selsync's W */
#define GATE_CHANGE_MAX 1e9 /* what a larger Δ is cut to: it is shown, and must stay a number */

struct gate_step {
	uint64_t samples; /* own, trained so far */
	uint64_t now_ms;
	bool due;           /* by the consensus guard */
	bool alone;         /* none can be begun now: silence, debt and guard wait */
	double norm2;       /* ‖g‖², before clipping */
	double layer_norms; /* Σ over layers of ‖g_layer‖: selsync's n_t */
};

struct gate_decision {
	bool exchange; /* try to begin one now; never where the step was alone */
	uint8_t reason;
	bool has_change;
	double change, delta; /* Δ and δ; change only with has_change */
};

/* ERR_INVALID: a day's quota is too small for one exchange. The caller's duty, asserted where it
 * matters: every setting is in its range (agent/config/setting_rows.h), a budget has a target,
 * exchange_bytes is known in budget mode and under a cap, smooth where Δ decides. */
int gate_check(const struct gate_config *c, struct err *e) MUST_CHECK;

struct gate;
size_t gate_size(void);
/* In memory of the caller's, aligned for any type. Fails as gate_check does. */
int gate_init(
        struct gate *g, const struct gate_config *c, uint64_t now_ms, struct err *e) MUST_CHECK;

/* Once for every step, in order. Steps may be left out (the trainer was faster than the loop). */
struct gate_decision gate_step(struct gate *g, const struct gate_step *s);

/* No peer took the offer, there was no peer to ask, or an exchange was under way: the exchange
 * stays owed and is tried again after a random time, which grows (from once or twice retry_ms, 50
 * unless told, to 5 s) until one succeeds. */
void gate_owed(struct gate *g, uint64_t now_ms);
void gate_retry(struct gate *g, uint32_t retry_ms);

/* Bytes that an exchange has uploaded, whoever began it. done: it succeeded, so nothing is owed any
 * more and the silence ends. Report other uploads here too, with done false. */
void gate_spent(struct gate *g, uint64_t now_ms, uint64_t bytes, bool ours, bool done);

/* Do the cap and the day's quota have room for so many bytes now, whatever the mode wants? */
bool gate_pays(struct gate *g, uint64_t now_ms, uint64_t bytes);
/* May a peer's offer be taken that makes us send so many, as far as cap and budget go? */
bool gate_admits(struct gate *g, uint64_t now_ms, uint64_t bytes);

/* Other parameters were loaded: the averages start again. */
void gate_renew(struct gate *g);

/* The batch changes from one number of samples to another. The mean of ‖g‖² is signal + noise / b
 * (Lau et al. 2024: G and S, of one sample), so the averages are scaled to what is to come, and
 * the change itself is not significant. What is not positive and finite is left out. */
void gate_batch(struct gate *g, double signal, double noise, double from, double to);

struct gate_view {
	uint8_t mode;
	bool warm; /* the average counts */
	bool has_change, owed;
	double change, delta;
	double average;                /* the fast one */
	uint64_t local, communicating; /* steps; LSSR = local / (local + communicating) */
	uint64_t by_reason[REASONS];
	double budget_left; /* bytes in the bucket; −1: no budget */
	double cap_left;    /* the same of the cap */
	uint64_t day_bytes; /* uploaded in the current day of the quota */
};
struct gate_view gate_view(const struct gate *g, uint64_t now_ms);

/* What must survive a restart so that a quota does not start again: the bytes uploaded in the day
 * that began at day_start_s (wall clock, given by the caller). A day has 86,400 s; with day_start_s
 * 0, days begin at midnight UTC. Setting replaces what was counted; after a change of the wall
 * clock, set what get returned. No exchange that exceeds the day's quota is begun or admitted, not
 * even after a long silence. */
struct gate_quota {
	uint64_t day_start_s, bytes;
};
void gate_quota_set(struct gate *g, const struct gate_quota *q, uint64_t wall_s);
struct gate_quota gate_quota_get(const struct gate *g, uint64_t wall_s);

/* "significance", "selsync-code", "budget", "every", "always", "random" */
const char *gate_mode_text(enum gate_mode m);
/* "local", "warm-up", "significant", "silence", "owed", "mode", "budget", "cap", "guard" */
const char *gate_reason_text(enum gate_reason r);

#endif

/* SPDX-License-Identifier: MIT */
/* What this agent knows of its peers as partners: with whom to exchange next, how long it may take,
 * who may begin one with us, and who is not to be trusted for a while.
 *
 * Partners are drawn uniformly (gossiping SGD), not the same one twice in a row while others are
 * free. While offers to peers that never exchanged with us fail, fewer of them are drawn: whoever
 * makes many ids that do not answer wastes a part of our draws, not most of them.
 *
 * A peer that was busy, slow or gone is left alone for a random time that grows, after what it
 * began and did not end, or accepted and let time out, for about four times what that took. One
 * whose parameters had to be clipped hard (c < 0.1) in 3 of its last 5 exchanges, or were not
 * finite, is quarantined, with a reason, for 1 min, then 2, … up to 1 h.
 *
 * Deadlines: median + 4·MAD, at least 2·median, of the last 16 exchanges' time per byte, doubled on
 * a timeout of what we began and shrunk by an eighth on success (what timed out teaches nothing,
 * and who begins and stalls earns no patience), with a floor of
 * 2 s and a ceiling of 10 min.
 *
 * Pulls: what one peer has moved our parameters by in a window, the last 128 to 256 own steps, is
 * at most 4 × our own path in it. Clipping bounds one exchange; a peer that is just within the
 * radius each time could still lead us anywhere.
 *
 * Pure; a bounded table whose least recently used entry makes room. */
#ifndef DUNLIN_GOSSIP_POLICY_PARTNERS_H
#define DUNLIN_GOSSIP_POLICY_PARTNERS_H

#include "gossip/exchange/exchange.h"

#define PARTNERS_MAX 1024
#define PARTNER_TIMES 16
#define PARTNER_REASON_MAX 96

/* Whether exchanges are in a format without scales. */
enum partner_plain {
	PLAIN_NOT,
	PLAIN_ONCE, /* until one comes about: scales have not fitted, or it was doubted */
	PLAIN_EVER, /* it has refused a format */
};

struct partner {
	struct peer_id id;
	uint64_t used_ms;              /* when anything was last entered; 0: a free slot */
	uint64_t exchanged;            /* exchanges that came about */
	uint64_t failed;               /* that did not, busy ones left out */
	uint64_t last_ms;              /* when one last came about; 0: never */
	uint64_t free_ms;              /* not to be asked before: back-off */
	uint64_t shut_ms;              /* the same for what it begins, after a failure */
	uint32_t strikes;              /* failures and refusals in a row, for the back-off */
	uint32_t doubts;               /* of what it sent: ERR_INVALID */
	float per_byte[PARTNER_TIMES]; /* ms */
	uint32_t n_times;
	float stretch;          /* ≥ 1: what timeouts have made of the deadline */
	uint8_t clipped;        /* bits of the last 5 exchanges: c < 0.1 */
	uint64_t quarantine_ms; /* until when; 0 or past: it is not */
	uint32_t quarantines;
	uint64_t label;                  /* whose agent it is; 0: not known */
	char reason[PARTNER_REASON_MAX]; /* of the last quarantine */
	double pulled[2]; /* how far it has moved us: in the half window pulled_half, and before */
	uint64_t pulled_half;
	double merged;     /* the same in merge rounds, ever */
	enum partner_plain plain;
	uint64_t given_ms; /* when it last gave back a place among those who fetch our state */
	double tokens;     /* exchanges that it may still begin with us */
	uint64_t tokens_ms;
};

struct partners_config {
	uint64_t seed;
	double rate;        /* exchanges a second that one peer may begin with us */
	double burst;       /* and at once */
	double per_byte_ms; /* first guess: 0.001 (1 MB/s) */
};

struct partners;
size_t partners_size(void);
void partners_init(struct partners *p, const struct partners_config *c);

/* Draws one of the candidates (alive, of our model; the caller knows). False: nobody is free. */
bool partners_draw(struct partners *p, const struct peer_id *candidate, int n, uint64_t now_ms,
        struct peer_id *out);

/* The same for some to choose from: up to max different ones, into out; returns how many. Whom the
 * caller takes it tells with partners_drawn. */
int partners_sample(struct partners *p, const struct peer_id *candidate, int n, uint64_t now_ms,
        int max, struct peer_id *out);
void partners_drawn(struct partners *p, const struct peer_id *id);

/* May that peer begin an exchange with us? EXCHANGE_WILLING takes a token; _RATE, _QUARANTINED;
 * _OTHER: not so soon after one that failed. */
enum exchange_why partners_admit(struct partners *p, const struct peer_id *id, uint64_t now_ms);

/* From now on: exchanges a second, at once, and how long, once to four times, a peer is left alone
 * that was engaged (50 unless told). */
void partners_pace(struct partners *p, double rate, double burst, uint32_t busy_ms);

/* What came of one, ours or theirs: r->took_ms, bytes, outcome, factor. */
void partners_result(struct partners *p, const struct exchange_result *r, uint64_t now_ms);

/* It let us wait for what was agreed, other than in an exchange: a state that it asked for and did
 * not fetch. It is left alone for a while, both ways. */
void partners_stalled(struct partners *p, const struct peer_id *id, uint64_t now_ms);

/* It has had its turn to fetch our state, whatever came of it. */
void partners_given(struct partners *p, const struct peer_id *id, uint64_t now_ms);

/* For what is found out otherwise: a donor whose gift was no model of ours. */
void partners_quarantine(
        struct partners *p, const struct peer_id *id, const char *reason, uint64_t now_ms);

/* Whose agent it is, if there is anything to keep of it. */
void partners_label(struct partners *p, const struct peer_id *id, uint64_t label);

/* Milliseconds for an exchange with that peer of that many bytes in its larger direction. */
uint64_t partners_deadline(const struct partners *p, const struct peer_id *id, uint64_t bytes);

/* Our own path so far, in steps and in length; a shorter one than before begins anew, since the
 * parameters were set. */
void partners_path(struct partners *p, uint64_t step, double moved);
/* How far that peer may still move us in this window; and that it has. final: in a merge round,
 * which does not count in the window but for partner.merged. */
double partners_pull_left(const struct partners *p, const struct peer_id *id);
/* The same for all with that label, as many times as it has agents. */
double partners_label_pull_left(const struct partners *p, uint64_t label, uint32_t agents);
void partners_pulled(
        struct partners *p, const struct peer_id *id, double length, bool final, uint64_t now_ms);

/* Looking around. NULL: unknown. partners_get: 0 … count − 1 in no lasting order. */
const struct partner *partners_find(const struct partners *p, const struct peer_id *id);
uint32_t partners_count(const struct partners *p);
const struct partner *partners_get(const struct partners *p, uint32_t i);

#endif

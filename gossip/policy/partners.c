/* SPDX-License-Identifier: MIT */
/* Partners: a table of what came of earlier exchanges, and the rules that go by it.
 *
 *     candidates ──► draw ──► (an exchange) ──► result ──► EXCHANGED  free at once, its time, its c
 *                                                          BUSY       2 … 200 ms, or as below
 *     their offer ──► admit ─► (an exchange) ───┘          TIMEOUT …  1 s, 2 s, … 64 s, about, and
 *                                                                     4 × what it took
 *                                                          UNLIKE     5 min
 *                                                          BAD        quarantine
 *
 * The happy path: nobody is waiting, every draw is uniform over all candidates but the last one
 * drawn, and deadlines settle a little above what exchanges take.
 *
 * An engaged peer is not a bad one: it is asked again soon. Other reasons to be busy (its budget,
 * a pause) last, so they count as failures do for the waiting, and only for that. What a peer is
 * refused by us says nothing about it. The waiting is random, so that two that failed together do
 * not come back together.
 *
 * Entries are made by what happened, never by a draw: a candidate that is not in the table is free.
 * They are found through chains of a seeded hash, since peers choose their ids. When the table is
 * full, the entry that was used longest ago makes room; with it goes what is known of that peer, so
 * those in quarantine stay as long as there is anybody else. */
#include "gossip/policy/partners.h"

#include "agent/base/rng.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define BUSY_MS 50      /* up to four times that */
#define BACKOFF_MS 1000 /* after the first failure, on average; doubled with each that follows */
#define BACKOFF_DOUBLINGS 6
#define BACKOFF_WAITS 4 /* times what it let us wait in vain: it gets a fifth of our time */
#define OFFER_MS 3000   /* the wait for an answer to ours: exchange_config.offer_ms */
#define UNLIKE_MS (5 * 60 * 1000)

#define NEW_SHARE 8 /* first offers that the share of new peers follows, about */
#define NEW_SURE 0.9
#define NEW_LEAST (1.0 / 16) /* so that new peers are found, whatever others do */

#define CLIPPED_HARD 0.1f
#define CLIPPED_OF 5
#define CLIPPED_TIMES 3
#define QUARANTINE_MS (60 * 1000)
#define QUARANTINE_MS_MAX (60 * 60 * 1000)
#define QUARANTINE_DOUBLINGS 6

#define DEADLINE_MS_MIN 2000
#define DEADLINE_MS_MAX (10 * 60 * 1000)
#define STRETCH_MAX 512 /* from the floor to beyond the ceiling */
_Static_assert(STRETCH_MAX *DEADLINE_MS_MIN >= DEADLINE_MS_MAX, "any deadline can be reached");
_Static_assert(QUARANTINE_MS << QUARANTINE_DOUBLINGS >= QUARANTINE_MS_MAX, "so can the hour");

#define PULL_TIMES 4.0      /* our own path */
#define PULL_HALF_STEPS 128 /* of the window */

#define NONE UINT16_MAX
_Static_assert(PARTNERS_MAX < NONE, "places in the table");

struct partners {
	struct partners_config config;
	struct rng rng;
	uint32_t busy_ms;
	uint64_t key; /* of the hash */
	bool drawn;
	struct peer_id last; /* that was drawn */
	double new_share; /* of draws of peers that never exchanged with us: those that stand */
	double path;      /* our own */
	double mark[2];   /* the same when the present half window began, and the one before */
	uint64_t half, half_step; /* number of the present half window, and its first step */
	uint32_t n;
	uint16_t head[PARTNERS_MAX], next[PARTNERS_MAX]; /* chains by hash */
	struct partner entry[PARTNERS_MAX];
};

size_t partners_size(void)
{
	return sizeof(struct partners);
}

void partners_init(struct partners *p, const struct partners_config *c)
{
	memset(p, 0, sizeof *p);
	p->config = *c;
	p->busy_ms = BUSY_MS;
	rng_seed(&p->rng, c->seed, 0x706172746e657273);
	p->key = rng_u64(&p->rng);
	memset(p->head, 0xff, sizeof p->head);
	p->new_share = 1;
}

/* ---- the table */

static uint32_t chain_of(const struct partners *p, const struct peer_id *id)
{
	uint64_t w[4];
	memcpy(w, id->bytes, sizeof w);
	return (uint32_t)(rng_mix(rng_mix(p->key, w[0], w[1]), w[2], w[3]) % PARTNERS_MAX);
}

static uint16_t place_of(const struct partners *p, const struct peer_id *id)
{
	uint16_t i = p->head[chain_of(p, id)];
	while (i != NONE && !peer_id_equal(&p->entry[i].id, id))
		i = p->next[i];
	return i;
}

const struct partner *partners_find(const struct partners *p, const struct peer_id *id)
{
	uint16_t i = place_of(p, id);
	return i == NONE ? NULL : &p->entry[i];
}

uint32_t partners_count(const struct partners *p)
{
	return p->n;
}

const struct partner *partners_get(const struct partners *p, uint32_t i)
{
	return i < p->n ? &p->entry[i] : NULL;
}

static bool quarantined(const struct partner *e, uint64_t now_ms)
{
	return e->quarantine_ms > now_ms;
}

/* Takes the entry out that can best be missed, and returns its place. */
static uint16_t make_room(struct partners *p, uint64_t now_ms)
{
	uint16_t out = 0;
	for (uint16_t i = 1; i < PARTNERS_MAX; i++) {
		const struct partner *a = &p->entry[i], *b = &p->entry[out];
		bool qa = quarantined(a, now_ms), qb = quarantined(b, now_ms);
		if (qa != qb ? qb : a->used_ms < b->used_ms)
			out = i;
	}
	uint16_t *link = &p->head[chain_of(p, &p->entry[out].id)];
	while (*link != out)
		link = &p->next[*link];
	*link = p->next[out];
	return out;
}

/* The peer's entry, a new one if need be. */
static struct partner *touch(struct partners *p, const struct peer_id *id, uint64_t now_ms)
{
	uint16_t i = place_of(p, id);
	if (i == NONE) {
		i = p->n < PARTNERS_MAX ? (uint16_t)p->n++ : make_room(p, now_ms);
		uint16_t *head = &p->head[chain_of(p, id)];
		p->next[i] = *head;
		*head = i;
		p->entry[i] = (struct partner){
		        .id = *id, .stretch = 1, .tokens = p->config.burst, .tokens_ms = now_ms};
	}
	p->entry[i].used_ms = now_ms > 0 ? now_ms : 1;
	return &p->entry[i];
}

/* ---- whom to ask, and whom to let in */

/* When that peer may be asked. */
static uint64_t free_from(const struct partners *p, const struct peer_id *id)
{
	const struct partner *e = partners_find(p, id);
	if (!e)
		return 0;
	return e->free_ms > e->quarantine_ms ? e->free_ms : e->quarantine_ms;
}

static bool is_new(const struct partners *p, const struct peer_id *id)
{
	const struct partner *e = partners_find(p, id);
	return !e || e->exchanged == 0;
}

/* Uniform over those that are free (Jin et al. 2016) in one pass: the k-th of them takes the place
 * of one of the max chosen so far with probability max/k. known: only over those that have
 * exchanged with us. */
static int sample(struct partners *p, const struct peer_id *candidate, int n, bool known,
        uint64_t now_ms, int max, struct peer_id *out)
{
	const struct peer_id *again = NULL;
	uint64_t k = 0;
	int chosen = 0;
	for (int i = 0; i < n; i++) {
		if (free_from(p, &candidate[i]) > now_ms || (known && is_new(p, &candidate[i])))
			continue;
		if (p->drawn && peer_id_equal(&candidate[i], &p->last)) {
			again = &candidate[i];
			continue;
		}
		uint64_t place = rng_below(&p->rng, ++k);
		if (chosen < max)
			out[chosen++] = candidate[i];
		else if (place < (uint64_t)max)
			out[place] = candidate[i];
	}
	if (chosen == 0 && again)
		out[chosen++] = *again;
	return chosen;
}

int partners_sample(struct partners *p, const struct peer_id *candidate, int n, uint64_t now_ms,
        int max, struct peer_id *out)
{
	int chosen = sample(p, candidate, n, false, now_ms, max, out), new = 0;
	for (int i = 0; i < chosen; i++)
		new += is_new(p, &out[i]);
	if (p->new_share >= 1 || new == 0 || rng_f64(&p->rng) < p->new_share)
		return chosen;
	/* Without any that is known those above stay as they are. */
	int known = sample(p, candidate, n, true, now_ms, max, out);
	return known > 0 ? known : chosen;
}

void partners_drawn(struct partners *p, const struct peer_id *id)
{
	p->drawn = true;
	p->last = *id;
}

bool partners_draw(struct partners *p, const struct peer_id *candidate, int n, uint64_t now_ms,
        struct peer_id *out)
{
	if (partners_sample(p, candidate, n, now_ms, 1, out) == 0)
		return false;
	partners_drawn(p, out);
	return true;
}

enum exchange_why partners_admit(struct partners *p, const struct peer_id *id, uint64_t now_ms)
{
	struct partner *e = touch(p, id, now_ms);
	if (quarantined(e, now_ms))
		return EXCHANGE_QUARANTINED;
	if (now_ms < e->shut_ms)
		return EXCHANGE_OTHER;
	if (now_ms > e->tokens_ms) {
		e->tokens += p->config.rate * (double)(now_ms - e->tokens_ms) / 1000;
		if (e->tokens > p->config.burst)
			e->tokens = p->config.burst;
		e->tokens_ms = now_ms;
	}
	if (e->tokens < 1)
		return EXCHANGE_RATE;
	e->tokens -= 1;
	return EXCHANGE_WILLING;
}

void partners_pace(struct partners *p, double rate, double burst, uint32_t busy_ms)
{
	p->config.rate = rate;
	p->config.burst = burst;
	p->busy_ms = busy_ms;
}

/* ---- what came of it */

/* Text is cut between characters. */
static void quarantine(struct partner *e, const char *reason, uint64_t now_ms)
{
	uint32_t doublings =
	        e->quarantines < QUARANTINE_DOUBLINGS ? e->quarantines : QUARANTINE_DOUBLINGS;
	uint64_t ms = (uint64_t)QUARANTINE_MS << doublings;
	e->quarantine_ms = now_ms + (ms < QUARANTINE_MS_MAX ? ms : QUARANTINE_MS_MAX);
	e->quarantines++;
	e->clipped = 0;
	size_t n = 0;
	while (n < PARTNER_REASON_MAX - 1 && reason[n] != '\0')
		n++;
	while (n > 0 && ((uint8_t)reason[n] & 0xc0) == 0x80)
		n--;
	memcpy(e->reason, reason, n);
	e->reason[n] = '\0';
}

void partners_quarantine(
        struct partners *p, const struct peer_id *id, const char *reason, uint64_t now_ms)
{
	quarantine(touch(p, id, now_ms), reason, now_ms);
}

void partners_label(struct partners *p, const struct peer_id *id, uint64_t label)
{
	uint16_t i = place_of(p, id);
	if (i != NONE)
		p->entry[i].label = label;
}

static const char *badness(int code)
{
	switch (code) {
	case ERR_NONFINITE:
		return "sent numbers that are not finite";
	case ERR_FORMAT:
		return "sent malformed data";
	case ERR_LIMIT:
		return "sent more than was agreed";
	case ERR_MISMATCH:
		return "sent something else than was agreed";
	default:
		return "sent what cannot be used";
	}
}

/* Left alone for between half and one and a half of a time that doubles with each failure, and is
 * long beside what we have waited for it. */
static void back_off(struct partners *p, struct partner *e, uint64_t waited_ms, uint64_t now_ms)
{
	uint32_t doublings = e->strikes < BACKOFF_DOUBLINGS ? e->strikes : BACKOFF_DOUBLINGS;
	uint64_t ms = (uint64_t)BACKOFF_MS << doublings;
	if (ms < BACKOFF_WAITS * waited_ms)
		ms = BACKOFF_WAITS * waited_ms;
	e->strikes++;
	e->free_ms = now_ms + ms / 2 + rng_below(&p->rng, ms + 1);
}

/* The same both ways. Else who offers and lets us wait could do so for all of our time. */
static void stalled(struct partners *p, struct partner *e, uint64_t waited_ms, uint64_t now_ms)
{
	back_off(p, e, waited_ms, now_ms);
	e->shut_ms = e->free_ms;
}

void partners_stalled(struct partners *p, const struct peer_id *id, uint64_t now_ms)
{
	stalled(p, touch(p, id, now_ms), 0, now_ms);
}

void partners_given(struct partners *p, const struct peer_id *id, uint64_t now_ms)
{
	touch(p, id, now_ms)->given_ms = now_ms > 0 ? now_ms : 1;
}

static void on_busy(struct partners *p, struct partner *e, uint8_t why, uint64_t now_ms)
{
	if (why != EXCHANGE_ENGAGED && why != EXCHANGE_OTHER) {
		back_off(p, e, 0, now_ms);
		return;
	}
	uint64_t ms = p->busy_ms + rng_below(&p->rng, 3 * p->busy_ms + 1);
	if (e->free_ms < now_ms + ms) /* an earlier one may have failed meanwhile */
		e->free_ms = now_ms + ms;
}

static void on_exchanged(struct partner *e, const struct exchange_result *r, uint64_t now_ms)
{
	uint64_t bytes = r->bytes_sent > r->bytes_received ? r->bytes_sent : r->bytes_received;
	e->exchanged++;
	if (e->plain == PLAIN_ONCE)
		e->plain = PLAIN_NOT;
	e->last_ms = now_ms;
	e->strikes = 0;
	if (!r->final) /* there one that stands still is let in every second time */
		e->doubts = 0;
	if (!r->late) /* else what it has done since counts */
		e->free_ms = e->shut_ms = 0;
	if (bytes > 0) {
		e->per_byte[e->n_times % PARTNER_TIMES] =
		        (float)((double)r->took_ms / (double)bytes);
		e->n_times++;
	}
	e->stretch *= 7.0f / 8;
	if (e->stretch < 1)
		e->stretch = 1;

	bool hard = !(r->factor >= CLIPPED_HARD);
	int times = 0;
	e->clipped = (uint8_t)((e->clipped << 1 | hard) & ((1 << CLIPPED_OF) - 1));
	for (int i = 0; i < CLIPPED_OF; i++)
		times += e->clipped >> i & 1;
	if (times >= CLIPPED_TIMES)
		quarantine(e, "its parameters had to be clipped hard in 3 of its last 5 exchanges",
		        now_ms);
}

/* What came of an offer to a peer that had never exchanged with us. A refusal says that it is
 * there. */
static void learn_share(struct partners *p, bool came)
{
	p->new_share += ((came ? 1 : 0) - p->new_share) / NEW_SHARE;
	if (p->new_share < NEW_LEAST)
		p->new_share = NEW_LEAST;
	if (p->new_share > NEW_SURE)
		p->new_share = 1;
}

/* What it began is its own to end well: who could time out may as well break. What we began ends so
 * by many a bad link; that we wait for an answer is short, and no more than that link's fault. */
static uint64_t in_vain(const struct exchange_result *r)
{
	uint64_t ms = r->took_ms;
	if (r->ours)
		ms = r->outcome == OUTCOME_TIMEOUT && ms > OFFER_MS ? ms - OFFER_MS : 0;
	/* Beyond what it was given, this process itself stood still. */
	return ms < r->deadline_ms ? ms : r->deadline_ms;
}

void partners_result(struct partners *p, const struct exchange_result *r, uint64_t now_ms)
{
	if (r->outcome == OUTCOME_CROSSED || r->outcome == OUTCOME_CANCELLED ||
	        r->outcome >= OUTCOMES || (r->outcome == OUTCOME_BUSY && !r->ours))
		return;
	struct partner *e = touch(p, &r->peer, now_ms);
	bool first = r->ours && e->exchanged == 0 && r->outcome != OUTCOME_BUSY &&
	             r->outcome != OUTCOME_UNLIKE;
	if (first)
		learn_share(p, r->outcome == OUTCOME_EXCHANGED);
	if (r->outcome == OUTCOME_EXCHANGED) {
		on_exchanged(e, r, now_ms);
		return;
	}
	if (r->outcome == OUTCOME_BUSY && r->why == EXCHANGE_UNKNOWN)
		e->plain = PLAIN_EVER;
	/* Nobody's fault, once: the next one, in plain numbers, is not to wait longer for it. */
	bool unfit = r->code == ERR_LIMIT && e->plain == PLAIN_NOT;
	uint32_t strikes = e->strikes;
	/* A lie is told from parameters that are merely far in plain numbers only. */
	if (unfit || (r->code == ERR_INVALID && e->plain == PLAIN_NOT))
		e->plain = PLAIN_ONCE;
	if (r->outcome == OUTCOME_BUSY) {
		on_busy(p, e, r->why, now_ms);
		return;
	}
	e->failed++;
	e->doubts += r->code == ERR_INVALID;
	if (r->outcome == OUTCOME_UNLIKE)
		e->free_ms = now_ms + UNLIKE_MS;
	else
		stalled(p, e, in_vain(r), now_ms);
	if (unfit)
		e->strikes = strikes;
	if (r->outcome == OUTCOME_BAD)
		quarantine(e, badness(r->code), now_ms);
	if (r->outcome == OUTCOME_TIMEOUT && r->ours && r->deadline_ms < DEADLINE_MS_MAX)
		e->stretch = e->stretch < STRETCH_MAX / 2.0f ? 2 * e->stretch : STRETCH_MAX;
}

/* ---- deadlines */

static double median(float *v, int n)
{
	for (int i = 1; i < n; i++) {
		float x = v[i];
		int j = i;
		for (; j > 0 && v[j - 1] > x; j--)
			v[j] = v[j - 1];
		v[j] = x;
	}
	return n % 2 ? (double)v[n / 2] : ((double)v[n / 2 - 1] + (double)v[n / 2]) / 2;
}

/* Median + 4·MAD. A few times that happen to be alike are no proof that the next will be: the
 * deviation counts as a quarter of the median at least, so a deadline is twice of what is usual. */
static double per_byte_ms(const struct partner *e)
{
	float v[PARTNER_TIMES];
	int n = e->n_times < PARTNER_TIMES ? (int)e->n_times : PARTNER_TIMES;
	memcpy(v, e->per_byte, sizeof v);
	double middle = median(v, n);
	for (int i = 0; i < n; i++)
		v[i] = (float)fabs((double)v[i] - middle);
	double deviation = median(v, n);
	return middle + 4 * (deviation > middle / 4 ? deviation : middle / 4);
}

uint64_t partners_deadline(const struct partners *p, const struct peer_id *id, uint64_t bytes)
{
	const struct partner *e = partners_find(p, id);
	double ms = e && e->n_times > 0 ? per_byte_ms(e) : p->config.per_byte_ms;
	ms *= (double)bytes;
	if (!(ms > DEADLINE_MS_MIN))
		ms = DEADLINE_MS_MIN;
	if (e)
		ms *= (double)e->stretch;
	return ms < DEADLINE_MS_MAX ? (uint64_t)ms : DEADLINE_MS_MAX;
}

/* ---- pulls */

void partners_path(struct partners *p, uint64_t step, double moved)
{
	if (moved < p->path) { /* the parameters were set */
		p->mark[0] = p->mark[1] = 0;
		p->half += 2;
		p->half_step = step;
	} else if (step - p->half_step >= PULL_HALF_STEPS) {
		p->mark[1] = p->mark[0];
		p->mark[0] = p->path;
		p->half++;
		p->half_step = step;
	}
	p->path = moved;
}

/* In the window that ends now. */
static double pulled_by(const struct partners *p, const struct partner *e)
{
	return e->pulled_half == p->half       ? e->pulled[0] + e->pulled[1]
	       : e->pulled_half + 1 == p->half ? e->pulled[0]
	                                       : 0;
}

double partners_pull_left(const struct partners *p, const struct peer_id *id)
{
	const struct partner *e = partners_find(p, id);
	double left = PULL_TIMES * (p->path - p->mark[1]) - (e ? pulled_by(p, e) : 0);
	return left > 0 ? left : 0;
}

double partners_label_pull_left(const struct partners *p, uint64_t label, uint32_t agents)
{
	double left = agents * PULL_TIMES * (p->path - p->mark[1]);
	for (uint32_t i = 0; i < p->n; i++)
		if (p->entry[i].label == label)
			left -= pulled_by(p, &p->entry[i]);
	return left > 0 ? left : 0;
}

void partners_pulled(
        struct partners *p, const struct peer_id *id, double length, bool final, uint64_t now_ms)
{
	struct partner *e = touch(p, id, now_ms);
	if (final) {
		e->merged += length;
		return;
	}
	if (e->pulled_half != p->half) {
		e->pulled[1] = e->pulled_half + 1 == p->half ? e->pulled[0] : 0;
		e->pulled[0] = 0;
		e->pulled_half = p->half;
	}
	e->pulled[0] += length;
}

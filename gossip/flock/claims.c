/* SPDX-License-Identifier: MIT */
/* What peers claim to have trained, and how much of it counts.
 *
 * Membership carries each agent's own signed count; anybody may sign any number. So a count grows,
 * from what we first knew of it, by at most a rate: gossip.rate_cap, or 256 times the median rate
 * of ourselves and the peers with whom we have exchanged. A first claim counts up to that rate for
 * the age of the run, of which nothing better is known than the median count: 256 times that. While
 * a peer is quarantined its count stands still. No count ever falls.
 *
 *     claimed by its record ──► min(claimed, first + rate × time) ──► the run's clock
 *
 * What can fail: a lie within the cap cannot be told from a fast machine; and ids are free. */
#include "gossip/flock/flock_internal.h"

#include <string.h>

#define RATE_TIMES 256.0
#define RATE_MS 2000   /* that a rate is measured over, at least */
#define MEDIAN_OF 64   /* peers; of more, the first known */
#define SAY_MS 60000   /* between two words about one peer */
#define SAY_SHARE 0.01 /* of the run: what is capped by less is not worth a word */

static uint32_t place_of(const struct flock *f, const struct peer_id *id)
{
	const struct flock__counted *t = f->claims.of;
	uint64_t w[4];
	memcpy(w, id->bytes, sizeof w);
	uint32_t i = (uint32_t)(rng_mix(rng_mix(f->claims.key, w[0], w[1]), w[2], w[3]) %
	                        FLOCK_COUNTED_SLOTS);
	while (t[i].used && !peer_id_equal(&t[i].id, id))
		i = (i + 1) % FLOCK_COUNTED_SLOTS;
	return i;
}

/* NULL: not known. */
static struct flock__counted *find(struct flock *f, const struct peer_id *id)
{
	struct flock__counted *e = &f->claims.of[place_of(f, id)];
	return e->used ? e : NULL;
}

/* The lower one of the middle: in doubt against who claims more. */
static double median(double *v, int n)
{
	for (int i = 1; i < n; i++) {
		double x = v[i];
		int k = i;
		for (; k > 0 && v[k - 1] > x; k--)
			v[k] = v[k - 1];
		v[k] = x;
	}
	return n > 0 ? v[(n - 1) / 2] : 0;
}

static double rate_of(uint64_t samples, uint64_t ms)
{
	return ms >= RATE_MS ? 1000.0 * (double)samples / (double)ms : 0;
}

/* Samples a second of ourselves and our partners; before there are any, of all peers. 0: nobody's
 * is known. */
static double median_rate(const struct flock *f)
{
	const struct flock__claims *c = &f->claims;
	double near[MEDIAN_OF + 1], all[MEDIAN_OF];
	int n = 0, n_all = 0;
	double own = rate_of(flock__samples(f) - c->own_first, f->awake_ms - c->since_ms);
	if (own > 0)
		near[n++] = own;
	for (int i = 0; i < FLOCK_COUNTED_SLOTS && n_all < MEDIAN_OF; i++) {
		const struct flock__counted *e = &c->of[i];
		double rate =
		        e->used ? rate_of(e->counted - e->first, f->awake_ms - e->since_ms) : 0;
		const struct partner *p = rate > 0 ? partners_find(f->partners, &e->id) : NULL;
		if (rate > 0)
			all[n_all++] = rate;
		if (p && p->exchanged > 0)
			near[n++] = rate;
	}
	return n > 0 ? median(near, n) : median(all, n_all);
}

static double median_count(const struct flock *f)
{
	double v[MEDIAN_OF + 1];
	int n = 0;
	if (flock__samples(f) > 0)
		v[n++] = (double)flock__samples(f);
	for (uint32_t i = 0; i < gossip_count(f->membership) && n <= MEDIAN_OF; i++) {
		struct member_view m = gossip_member(f->membership, i);
		if (m.record.status.model == f->model_hash && m.record.status.samples > 0)
			v[n++] = (double)m.record.status.samples;
	}
	return median(v, n);
}

static void say_capped(struct flock *f, struct flock__counted *e)
{
	double left_out = (double)(e->claimed - e->counted);
	if (left_out < SAY_SHARE * (double)f->c.manifest.total || f->now_ms < e->say_ms)
		return;
	e->say_ms = f->now_ms + SAY_MS;
	flock__say_of(f, SAY_CAPPED, &e->id, e->claimed, e->counted);
}

static void count(
        struct flock *f, const struct peer_id *id, uint64_t claimed, double first, double growth)
{
	struct flock__claims *c = &f->claims;
	struct flock__counted *e = &c->of[place_of(f, id)];
	if (!e->used) {
		if (c->n == FLOCK_COUNTED) {
			c->unknown += claimed; /* there is no room to remember what it said */
			return;
		}
		c->n++;
		*e = (struct flock__counted){.used = true,
		        .id = *id,
		        .since_ms = f->awake_ms,
		        .allowed = (double)claimed < first ? (double)claimed : first};
		e->first = e->counted = (uint64_t)e->allowed;
	} else if (!flock__quarantined(f, id)) {
		/* Before anybody's rate is known all claims are first ones. */
		bool early = growth <= 0 && first > e->allowed;
		e->allowed = early ? first : e->allowed + growth;
	}
	e->claimed = claimed > e->claimed ? claimed : e->claimed;
	uint64_t most = (double)claimed < e->allowed ? claimed : (uint64_t)e->allowed;
	e->counted = most > e->counted ? most : e->counted;
	say_capped(f, e);
}

void flock__count(struct flock *f)
{
	struct flock__claims *c = &f->claims;
	if (c->since_ms == 0) {
		c->since_ms = c->at_ms = f->awake_ms;
		c->own_first = flock__samples(f);
		c->key = rng_u64(&f->rng);
	}
	double usual = median_rate(f);
	double rate = f->c.rate_cap > 0 ? f->c.rate_cap : RATE_TIMES * usual;
	double age_s = 1 + (double)(f->awake_ms - c->since_ms) / 1000;
	double first = RATE_TIMES * median_count(f);
	if (f->c.rate_cap > 0) {
		double run_s = usual > 0 ? first / RATE_TIMES / usual : 0;
		first = rate * (run_s > age_s ? run_s : age_s);
	} else if (first < rate * age_s)
		first = rate * age_s;
	double growth = rate * (double)(f->awake_ms - c->at_ms) / 1000;
	c->at_ms = f->awake_ms;
	c->unknown = 0;
	for (uint32_t i = 0; i < gossip_count(f->membership); i++) {
		struct member_view m = gossip_member(f->membership, i);
		if (m.record.status.model == f->model_hash && m.record.status.samples > 0)
			count(f, &m.record.id, m.record.status.samples, first, growth);
	}
	uint64_t left_out = c->unknown;
	c->capped = 0;
	for (int i = 0; i < FLOCK_COUNTED_SLOTS; i++)
		if (c->of[i].used && c->of[i].claimed > c->of[i].counted) {
			left_out += c->of[i].claimed - c->of[i].counted;
			c->capped++;
		}
	uint64_t clock = gossip_clock(f->membership),
	         ours = gossip_self(f->membership)->status.samples;
	uint64_t known = clock > ours ? clock - ours : 0;
	known = known > left_out ? known - left_out : 0;
	c->others = known > c->others ? known : c->others;
}

/* What a peer says outside of its record counts like its record. */
uint64_t flock__may_claim(struct flock *f, const struct peer_id *id, uint64_t samples)
{
	const struct flock__counted *e = find(f, id);
	if (!e)
		return 0;
	return (double)samples < e->allowed ? samples : (uint64_t)e->allowed;
}

/* SPDX-License-Identifier: MIT */
/* What peers claim to have trained, and how much of it counts.
 *
 * Membership carries each agent's own signed count; anybody may sign any number. So a count grows,
 * from what we first knew of it, by at most a rate R: gossip.rate_cap, or 256 times the median rate
 * of ourselves and the peers with whom we have exchanged. A first claim counts up to R times the
 * age of the run. While a peer is quarantined its count stands still. No count ever falls. A
 * certificate may state another rate, and all ids of a label count for no more than its agents
 * (labels.c).
 *
 *     claimed by its record ──► min(claimed, first + R × time) ──► the run's clock, their sum
 *
 * Nobody tells the age of the run. With R = 256 times the median rate, R times the age is 256 times
 * the median count: the lower median of all claims, our own included and, once we train, those of
 * peers that have trained nothing, so that the first to claim anything is not the median. With a
 * stated R the age is our own time, if we have trained since the run began. Otherwise it is
 * computed as soon as rates are measured: the median count of those who had trained before us,
 * divided by their median rate; until then it is our own time, too.
 *
 * There is room for FLOCK_COUNTED ids. When it is full, of those that are gone the one with the
 * fewest samples is forgotten for each that is there; its samples stay in the sum. If it comes
 * back, it has no first claim, nor has any other that is new: else each id that comes and goes
 * would add one, without end.
 *
 * What can fail: a lie within the cap cannot be told from a fast machine; ids are free; and if more
 * than half of those lie who had trained before we came, we take the run to be as old as they say.
 */
#include "gossip/flock/flock_internal.h"

#include <string.h>

#define RATE_TIMES 256.0
#define RATE_MS 2000   /* that a rate is measured over, at least */
#define AGE_MS 10000   /* the same, for a rate that an age is computed from */
#define AGE_SURE 0.5   /* of an age so computed: agents may have stood still since we came */
#define NEWS_MS 500    /* in which others tell theirs after the first claim */
#define GAP_MS 1000    /* between two looks: longer ones were slept through */
#define MEDIAN_OF 64   /* peers; of more, the first known */
#define FULL_MS 1000   /* between two looks for room where there was none */
#define SAY_MS 60000   /* between two words about one peer */
#define SAY_SHARE 0.01 /* of the run: what is capped by less is not worth a word */

static uint32_t home_of(const struct flock *f, const struct peer_id *id)
{
	uint64_t w[4];
	memcpy(w, id->bytes, sizeof w);
	return (uint32_t)(rng_mix(rng_mix(f->claims.key, w[0], w[1]), w[2], w[3]) %
	                  FLOCK_COUNTED_SLOTS);
}

static uint32_t place_of(const struct flock *f, const struct peer_id *id)
{
	const struct flock__counted *t = f->claims.of;
	uint32_t i = home_of(f, id);
	while (t[i].used && !peer_id_equal(&t[i].id, id))
		i = (i + 1) % FLOCK_COUNTED_SLOTS;
	return i;
}

struct flock__counted *flock__counted(struct flock *f, const struct peer_id *id)
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

/* Those that follow, up to the next free place, move up where they would no longer be found. */
static void take_out(struct flock *f, uint32_t hole)
{
	struct flock__counted *t = f->claims.of;
	for (uint32_t i = (hole + 1) % FLOCK_COUNTED_SLOTS; t[i].used;
	        i = (i + 1) % FLOCK_COUNTED_SLOTS) {
		uint32_t home = home_of(f, &t[i].id);
		bool between = hole <= i ? hole < home && home <= i : hole < home || home <= i;
		if (between)
			continue;
		t[hole] = t[i];
		hole = i;
	}
	memset(&t[hole], 0, sizeof t[hole]);
	f->claims.n--;
}

/* For one that is there, the id of fewest samples that is gone; these go on counting. */
static bool make_room(struct flock *f)
{
	struct flock__claims *c = &f->claims;
	uint32_t out = FLOCK_COUNTED_SLOTS;
	if (c->full_ms != 0 && f->now_ms - c->full_ms < FULL_MS)
		return false;
	for (uint32_t i = 0; i < FLOCK_COUNTED_SLOTS; i++) {
		struct member_view v;
		bool there = c->of[i].used && gossip_find(f->membership, &c->of[i].id, &v) &&
		             (v.state == MEMBER_ALIVE || v.state == MEMBER_SUSPECT);
		if (c->of[i].used && !there && !flock__quarantined(f, &c->of[i].id) &&
		        (out == FLOCK_COUNTED_SLOTS || c->of[i].counted < c->of[out].counted))
			out = i;
	}
	c->full_ms = out == FLOCK_COUNTED_SLOTS ? f->now_ms : 0;
	if (out == FLOCK_COUNTED_SLOTS)
		return false;
	c->folded += c->of[out].counted;
	take_out(f, out);
	return true;
}

static double rate_of(uint64_t samples, uint64_t ms, uint64_t least_ms)
{
	return ms >= least_ms ? 1000.0 * (double)samples / (double)ms : 0;
}

/* Until its last news: an agent that stands still is no slower for that. */
static double peer_rate(const struct flock__counted *e, uint64_t least_ms)
{
	return e->used ? rate_of(e->counted - e->first, e->grew_ms - e->since_ms, least_ms) : 0;
}

/* Samples a second of ourselves and our partners; before there are any, of all peers. 0: nobody's
 * is known. */
static double median_rate(struct flock *f)
{
	const struct flock__claims *c = &f->claims;
	flock__labels_poll(f);
	double near[MEDIAN_OF + 1], all[MEDIAN_OF];
	int n = 0, n_all = 0;
	double own = rate_of(flock__samples(f) - c->own_first, c->own_ms, RATE_MS);
	if (own > 0)
		near[n++] = own;
	for (int i = 0; i < FLOCK_COUNTED_SLOTS && n_all < MEDIAN_OF; i++) {
		const struct flock__counted *e = &c->of[i];
		double rate = peer_rate(e, RATE_MS);
		if (rate > 0 && !flock__label_votes(f, e->label))
			continue;
		const struct partner *p = rate > 0 ? partners_find(f->partners, &e->id) : NULL;
		if (rate > 0)
			all[n_all++] = rate;
		if (p && p->exchanged > 0)
			near[n++] = rate;
	}
	return n > 0 ? median(near, n) : median(all, n_all);
}

/* Who has trained nothing has a say only where we train ourselves: a newcomer meets others. */
static double median_count(struct flock *f)
{
	double v[MEDIAN_OF + 1];
	int n = 0;
	flock__labels_poll(f);
	if (f->claims.trains || flock__samples(f) > 0)
		v[n++] = (double)flock__samples(f);
	for (uint32_t i = 0; i < gossip_count(f->membership) && n <= MEDIAN_OF; i++) {
		struct member_view m = gossip_member(f->membership, i);
		bool counts = m.record.status.samples > 0 ||
		              (f->claims.trains && m.state == MEMBER_ALIVE);
		if (m.record.status.model == f->model_hash && counts &&
		        flock__label_votes(f, m.label))
			v[n++] = (double)m.record.status.samples;
	}
	return median(v, n);
}

/* In seconds: what those claim who had trained before us, in the median, by the larger median of
 * their rates and ours, since one may have stood still. 0: too few are measured. */
static double median_age(struct flock *f)
{
	const struct flock__claims *c = &f->claims;
	flock__labels_poll(f);
	double claim[MEDIAN_OF], rate[MEDIAN_OF + 1];
	int n = 0, n_rates = 0;
	double own = rate_of(flock__samples(f) - c->own_first, c->own_ms, RATE_MS);
	if (own > 0)
		rate[n_rates++] = -own;
	for (int i = 0; i < FLOCK_COUNTED_SLOTS && n < MEDIAN_OF; i++) {
		const struct flock__counted *e = &c->of[i];
		double r = peer_rate(e, AGE_MS);
		if (!e->before || !flock__label_votes(f, e->label))
			continue;
		claim[n++] = (double)e->claimed;
		if (r > 0)
			rate[n_rates++] = -r;
	}
	double usual = -median(rate, n_rates);
	bool slept = c->slept_ms != 0 && f->awake_ms - c->slept_ms < AGE_MS; /* news are old */
	return 2 * n_rates > n && usual > 0 && !slept ? AGE_SURE * median(claim, n) / usual : 0;
}

static void say_capped(struct flock *f, struct flock__counted *e)
{
	double left_out = (double)(e->claimed - e->counted);
	if (left_out < SAY_SHARE * (double)f->c.manifest.total || f->now_ms < e->say_ms)
		return;
	e->say_ms = f->now_ms + SAY_MS;
	flock__say_of(f, SAY_CAPPED, &e->id, e->claimed, e->counted);
}

static struct flock__pace pace_of(struct flock *f)
{
	const struct flock__claims *c = &f->claims;
	double usual = median_rate(f);
	double rate = f->c.rate_cap > 0 ? f->c.rate_cap : RATE_TIMES * usual;
	double own_s = 1 + (double)(f->awake_ms - c->since_ms) / 1000, age_s = 0;
	struct flock__pace p = {.s = (double)(f->awake_ms - c->at_ms) / 1000};
	if (f->c.rate_cap > 0) {
		age_s = c->late ? median_age(f) : 0;
		p.aged = c->trains && (age_s > 0 || !c->late);
	} else {
		age_s = usual > 0 ? median_count(f) / usual : 0;
		p.aged = usual > 0;
	}
	p.known = usual > 0 || f->c.rate_cap > 0;
	p.run_s = age_s > own_s ? age_s : own_s;
	p.first = rate * p.run_s;
	p.growth = rate * p.s;
	/* Before a rate is known; and what was missed since a checkpoint must be known at once. */
	if (!(rate > 0))
		p.first = RATE_TIMES * median_count(f);
	else if (!c->trains && f->c.resumed && p.first < median_count(f))
		p.first = median_count(f);
	return p;
}

/* Before some rate is known, or stated, nothing tells how old the run is. */
struct flock__pace flock__pace_at(const struct flock__pace *usual, uint64_t rate)
{
	struct flock__pace p = *usual;
	if (rate == 0 || !p.known)
		return p;
	p.first = (double)rate * p.run_s;
	p.growth = (double)rate * p.s;
	return p;
}

static void count(struct flock *f, const struct member_view *m, struct flock__pace at)
{
	struct flock__claims *c = &f->claims;
	const struct peer_id *id = &m->record.id;
	uint64_t claimed = m->samples;
	struct flock__counted *e = &c->of[place_of(f, id)];
	if (!e->used) {
		bool full = c->n == FLOCK_COUNTED;
		if (full && (m->state != MEMBER_ALIVE || !make_room(f)))
			return; /* there is no room to remember what it said */
		if (full) {     /* for each that goes another may come: they only grow */
			at.first = 0;
			at.aged = true;
		}
		e = &c->of[place_of(f, id)];
		c->n++;
		*e = (struct flock__counted){.used = true,
		        .id = *id,
		        .since_ms = f->awake_ms,
		        .grew_ms = f->awake_ms,
		        .first_claim = claimed,
		        .before = !c->trains,
		        .judged = at.aged,
		        .allowed = (double)claimed < at.first ? (double)claimed : at.first};
		e->first = e->counted = flock__label_count(f, id, 0, (uint64_t)e->allowed);
	} else if (!flock__quarantined(f, id)) {
		/* A first claim is judged once the run's age is known. Before there is any rate all
		 * claims are first ones. */
		bool grown = (double)e->first_claim < at.first && at.growth > 0;
		double first = grown ? (double)e->first_claim : at.first;
		e->allowed += at.growth;
		if (!e->judged && first > e->allowed)
			e->allowed = first;
		e->judged = e->judged || at.aged;
	}
	e->label = m->label;
	e->claimed = claimed > e->claimed ? claimed : e->claimed;
	uint64_t most = (double)claimed < e->allowed ? claimed : (uint64_t)e->allowed;
	if (most > e->counted) {
		e->counted = flock__label_count(f, id, e->counted, most);
		e->grew_ms = f->awake_ms;
	}
	say_capped(f, e);
}

/* What a checkpoint says of it counts, whether it is met again or not. */
static void keep_departed(struct flock *f)
{
	const struct gossip_departed *d = &f->c.membership.departed;
	if (d->samples == 0 || d->samples > GOSSIP_SAMPLES_MAX ||
	        peer_id_equal(&d->id, &f->c.membership.self))
		return;
	f->claims.of[place_of(f, &d->id)] = (struct flock__counted){.used = true,
	        .id = d->id,
	        .since_ms = f->awake_ms,
	        .grew_ms = f->awake_ms,
	        .first = d->samples,
	        .first_claim = d->samples,
	        .claimed = d->samples,
	        .counted = d->samples,
	        .allowed = (double)d->samples};
	f->claims.n++;
}

/* Our own time counts while we train: a pause makes nobody slower. */
static void follow(struct flock *f)
{
	struct flock__claims *c = &f->claims;
	if (c->since_ms == 0) {
		c->since_ms = c->at_ms = f->awake_ms;
		c->own_first = flock__samples(f);
		c->key = rng_u64(&f->rng);
		keep_departed(f);
	}
	if (!c->trains && f->phase >= FLOCK_TRAINING) {
		c->trains = true;
		c->late = f->joined || f->c.resumed;
	}
	uint64_t ms = f->awake_ms - c->at_ms;
	if (ms > GAP_MS)
		c->slept_ms = f->awake_ms;
	else if (f->phase == FLOCK_TRAINING)
		c->own_ms += ms;
}

void flock__count(struct flock *f)
{
	struct flock__claims *c = &f->claims;
	follow(f);
	flock__labels_look(f); /* a new id is of a label before it counts */
	struct flock__pace usually = pace_of(f);
	flock__labels_grow(f, &usually);
	c->at_ms = f->awake_ms;
	for (uint32_t i = 0; i < gossip_count(f->membership); i++) {
		struct member_view m = gossip_member(f->membership, i);
		if (m.samples == 0 || (f->labels.owned && m.label == 0))
			continue;
		if (c->heard_ms == 0)
			c->heard_ms = f->awake_ms;
		if (!c->trains && f->awake_ms - c->heard_ms < NEWS_MS)
			return;
		count(f, &m, flock__pace_at(&usually, m.rate));
	}
	uint64_t known = c->folded;
	c->capped = 0;
	for (int i = 0; i < FLOCK_COUNTED_SLOTS; i++) {
		known += c->of[i].counted;
		c->capped += c->of[i].claimed > c->of[i].counted;
	}
	c->others = known > c->others ? known : c->others;
}

/* What a peer says outside of its record counts like its record. Of one that has claimed nothing
 * yet membership is told, as by a record: news of status may be slow to come. */
uint64_t flock__may_claim(struct flock *f, const struct peer_id *id, uint64_t samples)
{
	struct flock__counted *e = flock__counted(f, id);
	if (!e)
		return samples;
	uint64_t most = (double)samples < e->allowed ? samples : (uint64_t)e->allowed;
	if (most <= e->counted)
		return most;
	e->counted = flock__label_count(f, id, e->counted, most);
	e->claimed = e->counted > e->claimed ? e->counted : e->claimed;
	return e->counted;
}

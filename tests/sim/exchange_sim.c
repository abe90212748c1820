/* SPDX-License-Identifier: MIT */
/* Agents: what a machine's actions set off, as the agent around it would do it. */
#include "tests/sim/exchange_sim.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

static const struct manifest manifest = {.run = 1,
        .model = 2,
        .init = 3,
        .count = 4,
        .total = 5,
        .formats = 1u << CONVERT_FP32 | 1u << CONVERT_BF16};

void xsim_push(struct xsim *f, uint64_t after_ms, enum xsim_event_kind k, uint32_t a, uint32_t b)
{
	simnet_push(&f->net, after_ms, k, a, b);
}

bool xsim_chance(struct xsim *f, double p)
{
	return rng_f64(&f->rng) < p;
}

uint64_t xsim_between(struct xsim *f, uint64_t from, uint64_t to)
{
	return simnet_between(&f->net, from, to);
}

int xsim_find(const struct xsim *f, const struct peer_id *id)
{
	for (int i = 0; i < f->setup.n; i++)
		if (peer_id_equal(&f->agent[i].id, id))
			return i;
	abort();
}

static void *must(size_t n, size_t size)
{
	void *p = calloc(n, size);
	if (!p)
		abort();
	return p;
}

/* ---- life */

static void born(struct xsim *f, int i)
{
	struct xsim_agent *a = &f->agent[i];
	struct exchange_config c = {.self = a->id,
	        .manifest = manifest,
	        .n_groups = XSIM_GROUPS,
	        .seed = rng_u64(&f->rng),
	        .offer_ms = 3000,
	        .hold_ms = XSIM_HOLD_MS,
	        .settle_ms = XSIM_SETTLE_MS};
	exchange_init(a->x, &c);
	clip_init(&a->clip, XSIM_GROUPS);
	a->alive = true;
	a->life++;
	a->op++;
	a->state = EXCHANGE_IDLE;
	a->timer_ms = UINT64_MAX;
	a->has_snapshot = a->staged = false;
	if (f->setup.start_ms)
		xsim_push(
		        f, xsim_between(f, 0, f->setup.start_ms), XSIM_BEGIN, (uint32_t)i, a->life);
}

void xsim_init(struct xsim *f, const struct xsim_setup *s)
{
	memset(f, 0, sizeof *f);
	simnet_init(
	        &f->net, (uint32_t)s->n, f->agent, sizeof *f->agent, sizeof(struct xsim_packet));
	f->setup = *s;
	f->setup.words = s->words ? s->words : XSIM_WORDS;
	size_t n = f->setup.words;
	rng_seed(&f->rng, s->seed, 6);
	f->group_end[0] = n / 3;
	f->group_end[1] = n;
	f->convert = convert_best();
	f->bound = must(n, sizeof *f->bound);
	f->starting = s->start_ms > 0;
	for (int i = 0; i < s->n; i++) {
		struct xsim_agent *a = &f->agent[i];
		a->id.bytes[0] = (uint8_t)rng_u64(&f->rng);
		a->id.bytes[31] = (uint8_t)(i + 1);
		a->x = must(1, exchange_size());
		a->v = must(n, sizeof *a->v);
		a->snapshot = must(n, sizeof *a->v);
		a->staging = must(n, sizeof *a->v);
		for (size_t w = 0; w < n; w++)
			a->v[w] = (float)rng_normal(&f->rng);
		born(f, i);
	}
}

void xsim_close(struct xsim *f)
{
	for (int i = 0; i < f->setup.n; i++) {
		free(f->agent[i].x);
		free(f->agent[i].v);
		free(f->agent[i].snapshot);
		free(f->agent[i].staging);
	}
	for (uint32_t i = 0; i < sizeof f->transfer / sizeof *f->transfer; i++)
		for (int s = 0; s < 2; s++)
			free(f->transfer[i].wire[s]);
	free(f->stream);
	free(f->truth);
	free(f->bound);
	simnet_close(&f->net);
}

static void transfer_ends(struct xsim *f, int i);

void xsim_kill(struct xsim *f, int i)
{
	struct xsim_agent *a = &f->agent[i];
	a->alive = false;
	a->op++;
	links_dead(f, i);
	transfer_ends(f, i);
	for (int k = 0; k < f->setup.n && f->setup.gone_ms; k++)
		if (k != i)
			xsim_push(f, f->setup.gone_ms, XSIM_GONE, (uint32_t)k, (uint32_t)i);
	if (f->setup.restart_ms)
		xsim_push(f, xsim_between(f, 1, f->setup.restart_ms), XSIM_RESTART, (uint32_t)i, 0);
}

void xsim_restart(struct xsim *f, int i)
{
	born(f, i);
}

/* ---- transfers */

static struct xsim_transfer *transfer_of(struct xsim *f, uint64_t exchange)
{
	for (uint32_t i = 0; i < sizeof f->transfer / sizeof *f->transfer; i++)
		if (f->transfer[i].exchange == exchange)
			return &f->transfer[i];
	return NULL;
}

static void move_begins(struct xsim *f, int i, const struct exchange_actions *a)
{
	struct xsim_transfer *t = transfer_of(f, a->exchange);
	const struct xsim_truth *truth = truth_find(f, a->exchange);
	if (!t) { /* room for one more than there can be at a time, the oldest goes */
		t = &f->transfer[f->n_transfers++ % (2 * XSIM_AGENTS)];
		for (int s = 0; s < 2; s++)
			free(t->wire[s]);
		*t = (struct xsim_transfer){
		        .exchange = a->exchange, .who = {truth->who[0], truth->who[1]}};
	}
	int me = t->who[0] == i ? 0 : 1;
	size_t word = convert_word((enum convert_format)a->format);
	t->wire[me] = must(f->setup.words, word);
	f->convert->pack(
	        (enum convert_format)a->format, t->wire[me], f->agent[i].snapshot, f->setup.words);
	t->ready[me] = true;
	if (t->ended[!me])
		xsim_push(f, xsim_between(f, 1, 50), XSIM_MOVED, (uint32_t)i + 64, f->agent[i].op);
	else if (t->ready[!me]) {
		bool fails = xsim_chance(f, f->setup.fail_chance), both = xsim_chance(f, 0.5);
		int first = xsim_chance(f, 0.5) ? 0 : 1;
		for (int s = 0; s < 2; s++)
			xsim_push(f, xsim_between(f, 5, 400), XSIM_MOVED,
			        (uint32_t)t->who[s] + (fails && (both || s == first) ? 64 : 0),
			        f->agent[t->who[s]].op);
	}
}

/* Cancelled here, or dead: the other end sees its connection go. */
static void transfer_ends(struct xsim *f, int i)
{
	for (uint32_t k = 0; k < sizeof f->transfer / sizeof *f->transfer; k++) {
		struct xsim_transfer *t = &f->transfer[k];
		int me = t->who[0] == i ? 0 : 1;
		if (t->exchange == 0 || t->who[me] != i || t->ended[me])
			continue;
		t->ended[me] = true;
		if (t->ready[!me] && !t->ended[!me])
			xsim_push(f, xsim_between(f, 1, 50), XSIM_MOVED, (uint32_t)t->who[!me] + 64,
			        f->agent[t->who[!me]].op);
	}
}

/* What comes is checked and compared; the machine hears how far away it is. */
static void moved(struct xsim *f, int i, bool failed)
{
	struct xsim_agent *a = &f->agent[i];
	struct exchange_event e = {.kind = EXCHANGE_EVENT_MOVED};
	struct xsim_transfer *t = transfer_of(f, a->exchange);
	e.moved.n = XSIM_GROUPS;
	e.moved.code = failed ? ERR_IO : 0;
	if (!t || t->ended[t->who[0] == i ? 0 : 1])
		return;
	int me = t->who[0] == i ? 0 : 1;
	t->ended[me] = true;
	for (int g = 0; !failed && g < XSIM_GROUPS; g++) {
		size_t from = g ? f->group_end[g - 1] : 0, n = f->group_end[g] - from;
		enum convert_format format = (enum convert_format)f->setup.format;
		struct convert_sums sums = {0};
		size_t at = from * convert_word(format);
		f->convert->take(format, a->staging + from, t->wire[!me] + at, t->wire[me] + at, n,
		        TAKE_DIFFERENCE, &sums);
		a->distance2[g] = sums.distance2;
		e.moved.factor[g] = f->setup.clip == CLIP_RANDOM ? rng_f32(&f->rng) : 1;
	}
	if (f->setup.clip == CLIP_REAL && !failed)
		clip_factors(&a->clip, a->distance2, 10, e.moved.factor);
	a->staged = !failed;
	xsim_step(f, i, e);
}

static void apply(struct xsim *f, int i)
{
	struct xsim_agent *a = &f->agent[i];
	uint64_t hash = 0;
	for (size_t w = 0; w < f->setup.words; w++) {
		uint32_t bits;
		memcpy(&bits, &a->staging[w], sizeof bits);
		hash = rng_mix(hash, bits & 0x7fffffff, 0);
	}
	truth_moved(f, i, a->exchange, a->k, hash);
	for (int g = 0; g < XSIM_GROUPS; g++) {
		size_t from = g ? f->group_end[g - 1] : 0;
		f->convert->add(a->v + from, a->staging + from, a->k[g], f->group_end[g] - from);
	}
	/* k·d, rounded or not, is the same on both sides but for the sign; adding it to x rounds by
	 * at most half a unit in the last place of what results. */
	for (size_t w = 0; w < f->setup.words; w++) {
		double x = (double)a->v[w];
		f->bound[w] += (x < 0 ? -x : x) * (double)FLT_EPSILON / 2 + (double)FLT_MIN;
	}
}

/* ---- actions */

static void opens(struct xsim *f, int i, const struct exchange_actions *a)
{
	uint32_t t = (uint32_t)(truth_find(f, a->exchange) - f->truth);
	uint32_t peer = (uint32_t)xsim_find(f, &a->peer);
	if (xsim_chance(f, f->setup.dial_chance)) {
		xsim_push(f, xsim_between(f, 1, 20), XSIM_BULK, (uint32_t)i + 64 * BULK_CANNOT_DIAL,
		        t);
		return;
	}
	xsim_push(f, xsim_between(f, 1, 50), XSIM_BULK, (uint32_t)i + 64 * BULK_CAME, t);
	xsim_push(f, xsim_between(f, 1, 50), XSIM_BULK, peer + 64 * BULK_CAME, t);
}

static void perform(struct xsim *f, int i, const struct exchange_actions *a)
{
	struct xsim_agent *me = &f->agent[i];
	if (a->done) {
		me->by_outcome[a->result.outcome]++;
		me->late[a->result.outcome] += a->result.late;
		f->clipped += a->result.factor < 1;
		truth_result(f, i, &a->result);
		if (a->result.outcome == OUTCOME_EXCHANGED && f->setup.clip == CLIP_REAL)
			clip_enter(&me->clip, me->distance2, 10);
	}
	if (a->aside)
		truth_aside(f, i, &a->so_far);
	if (a->cancel || exchange_state(me->x) == EXCHANGE_IDLE) { /* buffers are free again */
		transfer_ends(f, i);
		me->op++;
		me->has_snapshot = me->staged = false;
	}
	if (a->snapshot) {
		me->exchange = a->exchange;
		xsim_push(f, xsim_between(f, 1, 100), XSIM_SNAPSHOT_TAKEN, (uint32_t)i, me->op);
	}
	if (a->open)
		opens(f, i, a);
	if (a->move)
		move_begins(f, i, a);
	if (a->apply) {
		memcpy(me->k, a->k, sizeof me->k);
		xsim_push(f, xsim_between(f, 1, 200), XSIM_APPLIED, (uint32_t)i, me->op);
	}
	if (a->timer_ms != me->timer_ms && a->timer_ms != UINT64_MAX)
		xsim_push(f, a->timer_ms > f->now_ms ? a->timer_ms - f->now_ms : 0, XSIM_TIMER,
		        (uint32_t)i, ++me->timers);
	if (a->timer_ms == UINT64_MAX)
		me->timers++;
	me->timer_ms = a->timer_ms;
}

/* A peer that says nothing more after COMMIT keeps nobody from the next exchange. */
static void check_slot(struct xsim *f, int i)
{
	const struct xsim_agent *me = &f->agent[i];
	bool waits = me->state >= EXCHANGE_COMMITTED && me->state != EXCHANGE_APPLYING;
	if (waits && f->now_ms > me->entered_ms + XSIM_HOLD_MS)
		xsim_fail(f, "slot: agent %d is %s for %llu ms", i, exchange_state_text(me->state),
		        (unsigned long long)(f->now_ms - me->entered_ms));
}

/* Whether the one that kills strikes here: this agent is the role, and has entered the state. */
static bool struck(struct xsim *f, int i, const struct exchange_actions *a)
{
	struct xsim_agent *me = &f->agent[i];
	uint8_t before = me->state;
	me->state = (uint8_t)exchange_state(me->x);
	if (me->state != before)
		me->entered_ms = f->now_ms;
	if (!f->setup.kill || f->killed || me->state == before || me->state != f->setup.kill_state)
		return false;
	const struct xsim_truth *t = truth_find(f, a->exchange);
	bool offerer = t ? t->who[0] == i : me->state == EXCHANGE_OFFERED;
	if (offerer != f->setup.kill_offerer)
		return false;
	f->killed = true;
	return true;
}

void xsim_step(struct xsim *f, int i, struct exchange_event e)
{
	static struct exchange_actions a;
	struct xsim_agent *me = &f->agent[i];
	if (!me->alive || f->failure[0])
		return;
	e.now_ms = f->now_ms;
	check_slot(f, i);
	exchange_step(me->x, &e, &a);
	bool dies = struck(f, i, &a);
	for (int k = 0; k < a.n_sends && !(dies && f->setup.kill_silent); k++) {
		int to = xsim_find(f, &a.send[k].to);
		truth_sent(f, i, to, &a.send[k].message);
		links_post(f, i, to, &a.send[k].message);
	}
	if (dies)
		xsim_kill(f, i);
	else
		perform(f, i, &a);
}

struct exchange_terms xsim_terms(const struct xsim *f)
{
	return (struct exchange_terms){.manifest = manifest,
	        .mode = f->setup.mode,
	        .format = f->setup.format,
	        .beta = 0.5f};
}

void xsim_start(struct xsim *f, int from, int to)
{
	struct exchange_terms t = xsim_terms(f);
	xsim_step(f, from,
	        (struct exchange_event){.kind = EXCHANGE_EVENT_START,
	                .peer = f->agent[to].id,
	                .start = {.ours = &t, .deadline_ms = 8000}});
}

/* ---- the loop */

static void begin_one(struct xsim *f, int i, uint32_t life)
{
	struct xsim_agent *a = &f->agent[i];
	if (!a->alive || a->life != life || !f->starting)
		return;
	int to = (int)rng_below(&f->rng, (uint64_t)f->setup.n - 1);
	to += to >= i;
	if (exchange_state(a->x) == EXCHANGE_IDLE && f->agent[to].alive)
		xsim_start(f, i, to);
	xsim_push(f, xsim_between(f, 1, 2ull * f->setup.start_ms), XSIM_BEGIN, (uint32_t)i, life);
}

static void happen(struct xsim *f, const struct sim_entry *e)
{
	struct xsim_agent *a = &f->agent[e->a % 64 % XSIM_AGENTS];
	int i = (int)(a - f->agent);
	switch (e->kind) {
	case XSIM_TIMER:
		if (e->b == a->timers) {
			a->timer_ms = UINT64_MAX;
			xsim_step(f, i, (struct exchange_event){.kind = EXCHANGE_EVENT_TIMER});
		}
		break;
	case XSIM_BEGIN:
		begin_one(f, i, e->b);
		break;
	case XSIM_SNAPSHOT_TAKEN:
		if (e->b != a->op)
			break;
		memcpy(a->snapshot, a->v, f->setup.words * sizeof *a->v);
		a->has_snapshot = true;
		xsim_step(f, i, (struct exchange_event){.kind = EXCHANGE_EVENT_SNAPSHOT});
		break;
	case XSIM_BULK: {
		const struct xsim_truth *t = &f->truth[e->b];
		xsim_step(f, i,
		        (struct exchange_event){.kind = EXCHANGE_EVENT_BULK,
		                .peer = f->agent[t->who[t->who[0] == i]].id,
		                .bulk = {.exchange = t->exchange, .bulk = (uint8_t)(e->a / 64)}});
		break;
	}
	case XSIM_MOVED:
		if (e->b == a->op)
			moved(f, i, e->a >= 64);
		break;
	case XSIM_APPLIED:
		if (e->b != a->op)
			break;
		apply(f, i);
		xsim_step(f, i, (struct exchange_event){.kind = EXCHANGE_EVENT_APPLIED});
		break;
	case XSIM_GONE:
		if (f->setup.false_gone > 0 || !f->agent[e->b].alive)
			xsim_step(f, i,
			        (struct exchange_event){
			                .kind = EXCHANGE_EVENT_GONE, .peer = f->agent[e->b].id});
		break;
	case XSIM_RESTART:
		xsim_restart(f, i);
		break;
	default:
		links_event(f, e);
		break;
	}
}

void xsim_run(struct xsim *f, uint64_t until_ms)
{
	struct sim_entry e;
	while (!f->failure[0] && simnet_next(&f->net, until_ms, &e))
		happen(f, &e);
	if (f->now_ms < until_ms)
		f->now_ms = until_ms;
}

bool xsim_settle(struct xsim *f)
{
	f->starting = false;
	for (uint64_t end = f->now_ms + 60000; f->now_ms < end && !f->failure[0];) {
		bool idle = true;
		for (int i = 0; i < f->setup.n; i++)
			idle &= !f->agent[i].alive ||
			        (exchange_state(f->agent[i].x) == EXCHANGE_IDLE &&
			                exchange_unsettled(f->agent[i].x) == 0);
		if (idle)
			return true;
		xsim_run(f, f->now_ms + 100);
	}
	return false;
}

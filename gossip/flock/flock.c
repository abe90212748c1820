/* SPDX-License-Identifier: MIT */
/* The step of the flock, and the phases of an agent's part in it.
 *
 *     looking ──► training ◄──► paused
 *        │          ▲  │
 *        └► joining ┘  └─► merging ──► finished ──► leaving
 *
 * Looking: with seeds, an agent waits a little for peers before its first step, since what it would
 * train alone from the initial weights is of little use to a flock that is far ahead. It joins if
 * the flock has trained more than a share of the run since our own state (the run's clock says so),
 * else it trains at once; alone, it says so and keeps looking. How it ends is in finish.c. */
#include "gossip/flock/flock_internal.h"

#include <assert.h>
#include <string.h>

#define TICK_MS 100
#define SEEN_MS 700    /* from the first peer to the decision: the others' news */
#define ANSWER_MS 3000 /* that peers of another manifest have to tell it */
#define FIRST_MS 3000  /* in which one that trains already tells of its first step */
#define FIRST_LONG_MS 60000 /* for the first step of the one whose weights count */

void flock__phase(struct flock *f, enum flock_phase p)
{
	if (f->phase == p)
		return;
	f->phase = p;
	flock__steps_anew(f);
	flock__say(f, SAY_PHASE)->a = p;
}

void flock__joined(struct flock *f, bool from_donor)
{
	f->joined = from_donor;
	if (!from_donor && flock__stale(f) && flock__nearly_over(f)) {
		flock__no_result(f);
		return;
	}
	/* What the donor has we have; what nobody could give is lost, and the run goes on. But a
	 * state that took so long that the run ends meanwhile is none of its end: with what was
	 * trained since it is missed, we join once more. */
	flock__in_touch(f, from_donor);
	f->exchanged_ms = f->finish.idle_since_ms = f->now_ms;
	flock__tell_clock(f);
	if (f->finish.run_over && !flock__stale(f)) {
		flock__merge_begin(f);
		return;
	}
	if (f->phase == FLOCK_PAUSED)
		return; /* by the user, while the state came */
	flock__phase(f, FLOCK_TRAINING);
	flock__do(f, FLOCK_DO_TRAIN);
}

/* ---- looking */

void flock__look(struct flock *f)
{
	f->seen_ms = 0;
	f->look_until_ms = f->now_ms + (f->c.alone ? 0 : f->c.join_ms);
}

/* The weights of the first agent count: of one that has trained, or else of the lowest id, which
 * waits a little all the same, since another may be in its first step. True: not yet decided. */
static bool seeks_first(struct flock *f, bool *trained)
{
	struct member_view v;
	bool lowest = true;
	*trained = false;
	for (int i = 0; i < f->candidates.n; i++) {
		const struct peer_id *id = &f->candidates.id[i];
		if (gossip_find(f->membership, id, &v) && v.record.status.step > 0)
			*trained = true;
		lowest = lowest && memcmp(&f->c.membership.self, id, sizeof *id) < 0;
	}
	return !*trained && f->now_ms - f->seen_ms < (lowest ? FIRST_MS : FIRST_LONG_MS);
}

static void look(struct flock *f)
{
	bool first = f->c.first_weights && !f->c.resumed, trained = false;
	flock__candidates(f);
	if (f->candidates.n > 0 && f->seen_ms == 0)
		f->seen_ms = f->now_ms;
	bool decided = f->seen_ms != 0 && f->now_ms - f->seen_ms >= SEEN_MS;
	if (!decided && f->now_ms < f->look_until_ms)
		return;
	if (f->candidates.n == 0) {
		if (flock__unlike_count(f).unknown > 0 && f->now_ms < f->look_until_ms + ANSWER_MS)
			return; /* they were asked what they train */
		if (flock__unlike_all(f))
			return;
		flock__say(f, SAY_ALONE);
		flock__joined(f, false);
		return;
	}
	if (first && seeks_first(f, &trained))
		return;
	uint64_t stale = (uint64_t)(f->c.stale * (double)f->c.manifest.total);
	uint64_t limit = f->c.resumed ? stale : f->c.fresh, missed = flock__missed(f);
	bool joins = missed > limit || (first && trained);
	struct flock_say *s = flock__say(f, joins ? SAY_JOINS : SAY_TRAINS_AT_ONCE);
	s->a = (uint64_t)f->candidates.n;
	s->b = missed;
	if (joins)
		flock__join_begin(f, NULL, false);
	else
		flock__joined(f, false);
}

/* ---- time */

static void tick(struct flock *f)
{
	f->tick_ms = f->now_ms + TICK_MS;
	flock__tell_clock(f);
	flock__join_tick(f);
	flock__donate_tick(f);
	flock__adopted_tick(f);
	if (!f->divergence.has_own) /* that of the initial weights, or of the checkpoint's */
		flock__sketch_soon(f);
	switch (f->phase) {
	case FLOCK_LOOKING:
		flock__unlike_tick(f);
		look(f);
		break;
	case FLOCK_TRAINING:
		flock__candidates(f);
		/* An exchange may have brought one in touch that was stale when the run ended. */
		if (flock__catch_up(f) || flock__merge_if_over(f))
			break;
		flock__unlike_tick(f);
		if (flock__unlike_all(f))
			break;
		if (!flock__adopt_if_due(f))
			flock__sketch_soon(f);
		break;
	case FLOCK_PAUSED: /* for longer than the run: what is left to do is not training */
		flock__candidates(f);
		if (flock__clock(f) >= f->c.manifest.total && !flock__catch_up(f))
			flock__merge_if_over(f);
		break;
	case FLOCK_MERGING:
	case FLOCK_FINISHED:
		flock__finish_tick(f);
		break;
	default:
		break;
	}
}

static void on_timer(struct flock *f)
{
	if (!f->c.learner)
		return;
	if (f->x.timer_ms <= f->now_ms)
		flock__exchange(f, &(struct exchange_event){.kind = EXCHANGE_EVENT_TIMER});
	if (f->tick_ms <= f->now_ms && f->finish.leave == LEAVE_NONE)
		tick(f);
}

static uint64_t wake(const struct flock *f)
{
	uint64_t at = f->membership_ms;
	if (f->finish.leave == LEAVE_LEFT)
		return UINT64_MAX;
	if (f->finish.leave == LEAVE_MEMBERSHIP || flock__membership_owed(f))
		return f->now_ms;
	if (!f->c.learner)
		return at;
	uint64_t next = f->finish.leave == LEAVE_NONE ? f->tick_ms : f->finish.leave_until_ms;
	if (f->finish.leave != LEAVE_LEARNER && next < at)
		at = next;
	return f->x.timer_ms < at ? f->x.timer_ms : at;
}

/* ---- events */

static void gone(struct flock *f, const struct peer_id *id)
{
	struct exchange_event e = {.kind = EXCHANGE_EVENT_GONE, .peer = *id};
	f->candidates.at_ms = 0;
	flock__exchange(f, &e);
	flock__join_gone(f, id);
}

static void on_membership(struct flock *f, const struct gossip_event *from)
{
	struct gossip_event m = *from;
	bool up = m.kind == EVENT_PEER_UP, down = m.kind == EVENT_PEER_DOWN;
	flock__membership(f, &m);
	if (!f->c.learner)
		return;
	if (up || down) {
		struct exchange_event e = {
		        .kind = up ? EXCHANGE_EVENT_UP : EXCHANGE_EVENT_DOWN, .peer = m.peer.id};
		flock__exchange(f, &e);
	}
	if (down)
		flock__join_gone(f, &m.peer.id);
}

/* What membership found out in this step, whatever event it was. */
static void on_notices(struct flock *f)
{
	const struct gossip_actions *a = &f->out->membership;
	for (int i = 0; i < a->n_notices && f->c.learner; i++)
		if (a->notice[i].kind == NOTICE_FAILED || a->notice[i].kind == NOTICE_LEFT)
			gone(f, &a->notice[i].id);
}

/* A learner that was told to stop applies nothing any more. */
static void on_message(struct flock *f, const struct flock_event *e)
{
	if (!f->c.learner || f->finish.leave >= LEAVE_LEARNER)
		return;
	flock__unlike_heard(f, &e->peer, e->message);
	if (!flock__join_message(f, &e->peer, e->message) &&
	        !flock__donate_message(f, &e->peer, e->message))
		flock__exchange_message(f, &e->peer, e->message);
}

/* What an exchange has to say comes in order or not at all: a partner takes a COMMIT without its
 * END for malice. So a message that was not sent counts as a connection that was lost. */
static void on_unsent(struct flock *f, const struct flock_event *e)
{
	struct exchange_event down = {.kind = EXCHANGE_EVENT_DOWN, .peer = e->peer};
	flock__join_unsent(f, e);
	flock__donate_unsent(f, e);
	if (exchange_state(f->exchange) != EXCHANGE_IDLE && e->exchange == f->x.number)
		flock__exchange(f, &down);
}

static void on_bulk(struct flock *f, const struct flock_event *e)
{
	if (!flock__join_bulk(f, e) && !flock__donate_bulk(f, e) && !flock__exchange_bulk(f, e) &&
	        e->bulk == BULK_CAME)
		flock__do_bulk(f, FLOCK_DO_CLOSE, USE_EXCHANGE, &e->peer, e->exchange);
}

static void on_transferred(struct flock *f, const struct flock_event *e)
{
	if (e->transferred.use == USE_EXCHANGE)
		flock__exchange_transferred(f, e);
	else if (e->transferred.use == USE_FETCH)
		flock__join_transferred(f, e);
	else
		flock__donate_transferred(f, e);
}

/* What the learner could not take. An exchange runs into its deadline. */
static void on_refused(struct flock *f, const struct flock_event *e)
{
	struct flock_event failed = {.code = ERR_BUSY};
	flock__say(f, SAY_REFUSED)->a = e->refused;
	switch (e->refused) {
	case FLOCK_DO_SNAPSHOT:
		f->x.snapshot = SNAPSHOT_NONE;
		break;
	case FLOCK_DO_TAKE_STATE:
		flock__donate_refused(f);
		break;
	case FLOCK_DO_TRY:
		flock__join_tried(f, &failed);
		break;
	case FLOCK_DO_ADOPT:
		flock__join_adopted(f, ERR_BUSY);
		break;
	case FLOCK_DO_EVALUATE:
		failed.eval.asked = true;
		flock__evaluated(f, &failed);
		break;
	case FLOCK_DO_SAVE:
		if (f->finish.saved == WRITTEN_ASKED)
			f->finish.saved = WRITTEN_FAILED;
		break;
	case FLOCK_DO_EXPORT:
		flock__exported(f, ERR_BUSY);
		break;
	default:
		break;
	}
}

static void on_wish(struct flock *f, uint8_t wish)
{
	if (wish == WISH_PAUSE && f->phase == FLOCK_TRAINING) {
		flock__phase(f, FLOCK_PAUSED);
		flock__do(f, FLOCK_DO_PAUSE);
		flock__say(f, SAY_PAUSED);
	} else if (wish == WISH_RESUME && f->phase == FLOCK_PAUSED) {
		flock__tell_clock(f); /* what is news until now was missed */
		flock__phase(f, FLOCK_TRAINING);
		flock__do(f, FLOCK_DO_TRAIN);
		flock__say(f, SAY_RESUMED);
	} else if (wish == WISH_SAVE && f->phase < FLOCK_LEAVING && f->c.learner)
		flock__do(f, FLOCK_DO_SAVE)->wished = true;
	else if (wish == WISH_LEAVE)
		flock__leave(f, 0);
}

static void on_start(struct flock *f)
{
	flock__membership(f, &(struct gossip_event){.kind = EVENT_START});
	flock__look(f);
	f->clock.followed_ms = f->awake_ms;
	f->tick_ms = f->now_ms;
}

static void on_event(struct flock *f, const struct flock_event *e)
{
	switch (e->kind) {
	case FLOCK_EVENT_START:
		on_start(f);
		break;
	case FLOCK_EVENT_TIMER:
		on_timer(f);
		break;
	case FLOCK_EVENT_MEMBERSHIP:
		on_membership(f, &e->membership);
		break;
	case FLOCK_EVENT_MESSAGE:
		on_message(f, e);
		break;
	case FLOCK_EVENT_UNSENT:
		on_unsent(f, e);
		break;
	case FLOCK_EVENT_BULK:
		on_bulk(f, e);
		break;
	case FLOCK_EVENT_TRANSFERRED:
		on_transferred(f, e);
		break;
	case FLOCK_EVENT_STEPS:
		flock__steps(f, e->steps.list, e->steps.n);
		break;
	case FLOCK_EVENT_SNAPSHOT:
		flock__snapshot_taken(f, e);
		break;
	case FLOCK_EVENT_MEASURED:
		if (e->measured.slot == SLOT_FETCHED)
			flock__join_measured(f, e);
		else
			flock__verify(f, e);
		break;
	case FLOCK_EVENT_APPLIED:
		f->x.applied_step = e->applied_step;
		flock__exchange(f, &(struct exchange_event){.kind = EXCHANGE_EVENT_APPLIED});
		break;
	case FLOCK_EVENT_STATE:
		flock__donate_state(f, &e->state);
		break;
	case FLOCK_EVENT_TRIED:
		flock__join_tried(f, e);
		break;
	case FLOCK_EVENT_ADOPTED:
		flock__join_adopted(f, e->code);
		break;
	case FLOCK_EVENT_EVALUATED:
		flock__evaluated(f, e);
		break;
	case FLOCK_EVENT_SAVED:
		flock__saved(f, e);
		break;
	case FLOCK_EVENT_EXPORTED:
		flock__exported(f, e->code);
		break;
	case FLOCK_EVENT_DONE:
		flock__run_over(f, e);
		break;
	case FLOCK_EVENT_FAILED:
		flock__learner_failed(f, e->code);
		break;
	case FLOCK_EVENT_REFUSED:
		on_refused(f, e);
		break;
	case FLOCK_EVENT_STOPPED:
		f->finish.learner_stopped = true;
		break;
	case FLOCK_EVENT_WISH:
		on_wish(f, e->wish);
		break;
	}
}

void flock_step(struct flock *f, const struct flock_event *e, struct flock_actions *a)
{
	a->n_sends = a->n_actions = a->n_says = 0;
	a->membership.n_sends = a->membership.n_notices = a->membership.n_resolve = 0;
	f->out = a;
	f->now_ms = e->now_ms > f->now_ms ? e->now_ms : f->now_ms;
	f->awake_ms = e->awake_ms;
	f->membership_stepped = false;
	on_event(f, e);
	flock__membership_turn(f);
	on_notices(f);
	flock__leave_check(f);
	a->wake_ms = wake(f);
	f->out = NULL;
}

/* ---- beginning */

#define ALIGN 64
static size_t aligned(size_t n)
{
	return (n + ALIGN - 1) / ALIGN * ALIGN;
}

size_t flock_size(const struct flock_config *c)
{
	return aligned(sizeof(struct flock)) + aligned(gossip_size(&c->membership)) +
	       aligned(gate_size()) + aligned(partners_size()) + aligned(exchange_size());
}

static int open_learning(struct flock *f, struct err *e)
{
	const struct flock_config *c = &f->c;
	struct partners_config p = {.seed = rng_u64(&f->rng),
	        .rate = flock__peer_rate(f),
	        .burst = flock__burst(flock__peer_rate(f)),
	        .per_byte_ms = 0.001};
	struct exchange_config x = {.self = c->membership.self,
	        .manifest = c->manifest,
	        .scaled = c->scaled,
	        .plain = c->plain,
	        .n_groups = c->n_groups,
	        .seed = rng_u64(&f->wire_rng),
	        .offer_ms = 3000,
	        .open_ms = 3000,
	        .hold_ms = EXCHANGE_HOLD_MS,
	        .settle_ms = 30000};
	partners_init(f->partners, &p);
	exchange_init(f->exchange, &x);
	clip_init(&f->clip, c->n_groups);
	ledger_init(&f->ledger);
	f->clock.base = c->samples_before;
	f->clock.last.step = f->clock.set_step = c->step;
	f->clock.last.samples = c->samples;
	f->clock.others_then = c->others;
	f->clock.own_then = f->clock.own = flock__samples(f);
	f->clock.others_met = f->clock.others_then;
	f->clock.own_met = f->clock.own_then;
	/* The learner was told of our own earlier samples among the others'. */
	if (c->others > c->samples_before)
		f->clock.kept = c->others - c->samples_before;
	const struct guard_config guard = {.momentum = c->momentum,
	        .lr_peak = c->lr_peak,
	        .step_samples = c->gate.step_samples,
	        .seed = rng_u64(&f->rng)};
	guard_init(&f->guard, &guard);
	int rc = gate_init(f->gate, &c->gate, f->now_ms, e);
	if (rc == 0)
		gate_quota_set(f->gate, &c->quota, c->wall_s);
	return rc;
}

int flock_init(struct flock **out, void *memory, size_t size, const struct flock_config *c,
        uint64_t now_ms, struct err *e)
{
	struct flock *f = memory;
	uint8_t *at = (uint8_t *)memory + aligned(sizeof *f);
	struct gossip_config membership = c->membership;
	assert(size >= flock_size(c));
	f->c = *c;
	f->now_ms = now_ms;
	f->membership_ms = f->x.timer_ms = f->tick_ms = UINT64_MAX;
	f->phase = FLOCK_LOOKING;
	rng_seed(&f->rng, c->seed, 1);
	rng_seed(&f->wire_rng, c->wire_seed, 2);
	if (c->learner) {
		f->model_hash = manifest_hash(&c->manifest);
		membership.status.model = f->model_hash;
		membership.status.step = c->step;
		membership.status.samples = c->samples + c->samples_before;
		membership.status.loss = __builtin_nanf("");
	}
	int rc = gossip_init(&f->membership, at, gossip_size(&membership), &membership, e);
	at += aligned(gossip_size(&membership));
	f->gate = (struct gate *)(void *)at;
	at += aligned(gate_size());
	f->partners = (struct partners *)(void *)at;
	at += aligned(partners_size());
	f->exchange = (struct exchange *)(void *)at;
	if (rc == 0 && c->learner)
		rc = open_learning(f, e);
	*out = rc ? NULL : f;
	return rc;
}

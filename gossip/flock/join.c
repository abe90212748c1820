/* SPDX-License-Identifier: MIT */
/* Taking a donor's state, so that a late joiner is useful at once.
 *
 *     FETCH ──► donor        DONATE: this snapshot, so many vectors, from that number on
 *     bulk connection ══►    numbers come in, checked finite, chunk by chunk
 *     measured, compared with sketches of other peers ──► tried (trial.c) ──► adopted ──► training
 *
 * What can fail, and then: the donor is busy or says nothing (another is asked), the connection
 * breaks (the rest is asked for, from the same snapshot; or, if that donor is gone or slow, from
 * another one whose parameters are near the first one's, by their sketches; else it starts over),
 * the result does not look like a model of this flock (the donor is quarantined, another is asked).
 * With nobody left to ask it trains from what it has, and says so. */
#include "gossip/flock/flock_internal.h"

#include <math.h>
#include <string.h>

#define ANSWER_MS 5000 /* for the donor's answer, unless its steps are slow and it says so */
#define OPEN_MS 10000  /* for the connection */
#define RETRY_MS 200
#define WITNESS_MS 10000 /* for the first sketch of another, in all attempts together */
#define ATTEMPTS_MAX 40
#define TURNS_MAX 4 /* doublings of the pause after all donors were asked */
#define PEERS_COMPARED 8
#define INHERITED 0.25 /* of the parameters' length: the longest radius that a donor's word gives */
#define DONORS_MAX 64  /* to draw one from */

static bool shunned(const struct flock__join *j, const struct peer_id *id)
{
	for (int i = 0; i < j->n_shunned; i++)
		if (peer_id_equal(&j->shunned[i], id))
			return true;
	return false;
}

static void shun(struct flock__join *j)
{
	if (j->has_donor && !shunned(j, &j->donor)) {
		int at =
		        j->n_shunned < FLOCK_SHUNNED ? j->n_shunned++ : j->attempts % FLOCK_SHUNNED;
		j->shunned[at] = j->donor;
	}
	j->has_donor = false;
}

static void again(struct flock *f)
{
	struct flock__join *j = &f->join;
	j->exchange = 0;
	j->stage = JOIN_RETRY;
	j->at_ms = f->now_ms + RETRY_MS + rng_below(&f->rng, RETRY_MS);
}

static void next_donor(struct flock *f)
{
	shun(&f->join);
	again(f);
}

/* An agent that adopts another flock's state does not want one of its own flock. */
static bool on_side(const struct flock *f, const struct peer_id *id)
{
	struct sketch s;
	return !f->join.apart || (flock__peer_sketch(f, id, &s) && flock__apart(f, &s));
}

static bool may_give(const struct flock *f, const struct peer_id *id)
{
	return !shunned(&f->join, id) && !flock__quarantined(f, id) && on_side(f, id);
}

/* Somebody who has not been tried in vain, beside the donor. */
static bool another_donor(const struct flock *f)
{
	for (int i = 0; i < f->candidates.n; i++)
		if (!peer_id_equal(&f->candidates.id[i], &f->join.donor) &&
		        may_give(f, &f->candidates.id[i]))
			return true;
	return false;
}

/* A donor at random; first the one that an earlier attempt had. */
static bool choose_donor(struct flock *f)
{
	struct flock__join *j = &f->join;
	struct peer_id fit[DONORS_MAX], perhaps[DONORS_MAX];
	uint32_t n = 0, n_perhaps = 0;
	struct member_view v;
	if (j->has_donor && gossip_find(f->membership, &j->donor, &v) && v.state == MEMBER_ALIVE)
		return true;
	f->candidates.at_ms = 0;
	flock__candidates(f);
	for (int i = 0; i < f->candidates.n && n < DONORS_MAX; i++) {
		const struct peer_id *id = &f->candidates.id[i];
		if (!may_give(f, id))
			continue;
		/* News of its steps may be on its way. */
		if (gossip_find(f->membership, id, &v) && v.record.status.step > 0)
			fit[n++] = *id;
		else if (n_perhaps < DONORS_MAX)
			perhaps[n_perhaps++] = *id;
	}
	if (n + n_perhaps == 0)
		return false;
	j->donor = n > 0 ? fit[rng_below(&f->rng, n)] : perhaps[rng_below(&f->rng, n_perhaps)];
	j->has_donor = true;
	return true;
}

/* The numbers that we have are of another donor's snapshot. Parameters may stay where the two are
 * near each other: the next exchanges mix what is left between them. The optimizer's vectors are
 * all of one. */
static void meet_other_donor(struct flock *f)
{
	struct flock__join *j = &f->join;
	struct sketch now, peers[PEERS_COMPARED];
	if (j->count == 0)
		return;
	int n = flock__peer_sketches(f, peers, PEERS_COMPARED);
	bool near = j->has_donor_sketch && flock__peer_sketch(f, &j->donor, &now) && n >= 2 &&
	            sketch_distance(&j->donor_sketch, &now) <= 4 * sketch_consensus(peers, n);
	flock__say(f, SAY_JOIN_OTHER_DONOR)->flag = near;
	if (near) {
		j->count = j->count < f->c.manifest.count ? j->count : f->c.manifest.count;
		j->mixed = true;
	} else
		j->count = 0;
}

static void end(struct flock *f, bool from_donor)
{
	flock__do(f, FLOCK_DO_RELEASE)->slot = SLOT_FETCHED;
	memset(&f->join, 0, sizeof f->join);
	flock__joined(f, from_donor);
}

/* An agent that was away has to find the others again first: it waits for one as long as a start
 * does. */
static void give_up(struct flock *f)
{
	struct flock__join *j = &f->join;
	bool stale = flock__stale(f);
	if (stale && f->now_ms - j->began_ms < f->c.join_ms) {
		j->attempts = 0;
		again(f);
		return;
	}
	if (!stale || !flock__nearly_over(f))
		flock__say(f, SAY_JOIN_NOBODY)->flag = j->anew || f->c.resumed;
	end(f, false);
}

/* To give up a state of ours another's sketch is needed, and of those that are there none is known:
 * n of them are. */
static bool unwitnessed(const struct flock *f, int n)
{
	return n == 0 && f->join.anew && flock__others_live(f, &f->join.donor);
}

/* A state would be refused for that, as one was. */
static bool in_vain(const struct flock *f)
{
	const struct flock__join *j = &f->join;
	struct sketch one;
	return j->witness_ms != 0 && f->now_ms >= j->witness_ms &&
	       unwitnessed(f, flock__witnesses(f, &j->donor, j->apart, &one, 1));
}

static void ask(struct flock *f)
{
	struct flock__join *j = &f->join;
	struct peer_id before = j->donor;
	bool had = j->has_donor;
	if (++j->attempts > ATTEMPTS_MAX) {
		give_up(f);
		return;
	}
	if (!choose_donor(f)) {
		if (j->n_shunned == 0) {
			give_up(f);
			return;
		}
		/* From the beginning: who was busy may be free now. Later each time: a donor may
		 * have a reason that lasts, and attempts are few. */
		j->n_shunned = 0;
		again(f);
		j->at_ms += (uint64_t)RETRY_MS << (j->turns < TURNS_MAX ? j->turns++ : TURNS_MAX);
		return;
	}
	if (in_vain(f)) {
		static const char words[] = "no other peer's sketch is known";
		struct flock_say *s = flock__say(f, SAY_JOIN_BUSY);
		s->peer = j->donor;
		memcpy(s->words, words, sizeof words);
		next_donor(f);
		return;
	}
	bool other = had && !peer_id_equal(&before, &j->donor);
	if (other || !had)
		meet_other_donor(f);
	struct exchange_message m = {.kind = EXCHANGE_FETCH};
	j->exchange = rng_u64(&f->wire_rng) | 1;
	m.exchange = j->exchange;
	m.fetch.manifest = f->c.manifest;
	m.fetch.snapshot = j->count > 0 && !other && had ? j->snapshot : 0;
	m.fetch.offset = j->count;
	j->stage = JOIN_ASKED;
	j->soon = false;
	j->at_ms = f->now_ms + ANSWER_MS;
	flock__say_of(f, SAY_JOIN_ASKING, &j->donor, j->count, 0);
	flock__send(f, &j->donor, &m);
}

void flock__join_begin(struct flock *f, const struct peer_id *from, bool anew)
{
	struct flock__join *j = &f->join;
	if (j->stage != JOIN_NONE)
		return;
	/* Who has a state trains on until the other one is whole and tried. */
	if (!anew || f->phase != FLOCK_TRAINING)
		flock__phase(f, FLOCK_JOINING);
	memset(j, 0, sizeof *j);
	j->anew = anew;
	j->began_ms = f->now_ms;
	if (from) {
		j->donor = *from;
		j->has_donor = true;
		j->apart = anew && f->divergence.has_own;
	}
	ask(f);
}

/* ---- the donor's answer */

static int take_offer(struct flock *f, const struct exchange_message *m)
{
	struct flock__join *j = &f->join;
	if (manifest_compare(&m->gift.manifest, &f->c.manifest) != 0 ||
	        m->gift.vectors != f->c.vectors || m->gift.optimizer != f->c.optimizer ||
	        m->gift.snapshot == 0)
		return ERR_MISMATCH;
	j->total = f->c.vectors * f->c.manifest.count; /* by our own model, not by its word */
	if (m->gift.offset != j->count) {
		if (m->gift.offset != 0)
			return ERR_MISMATCH;
		j->count = 0; /* its snapshot is another one by now */
	}
	j->mixed = j->mixed && j->count > 0;
	if (j->count == 0) /* what is trained from now on is not in it */
		flock__clock_snapshot(f);
	j->snapshot = m->gift.snapshot;
	j->info = (struct flock_state){.step = m->gift.step,
	        .samples = m->gift.samples,
	        .clock = m->gift.clock,
	        .optim_steps = m->gift.optim_steps,
	        .optimizer = m->gift.optimizer,
	        .vectors = m->gift.vectors,
	        .batch = m->gift.batch,
	        .noise = (double)m->gift.noise,
	        .signal = (double)m->gift.signal};
	flock__claim(f, &j->donor, m->gift.samples);
	j->n_radius = m->gift.n + 1;
	memcpy(j->radius, m->gift.radius, sizeof j->radius);
	j->has_donor_sketch = flock__peer_sketch(f, &j->donor, &j->donor_sketch);
	return 0;
}

/* The answer will come when a step of the donor's has ended. It says so once, and its word counts
 * for so much. */
static void wait_for_step(struct flock *f, uint64_t told_ms)
{
	struct flock__join *j = &f->join;
	uint64_t own_ms = flock__step_ms(f), most = own_ms > FLOCK_SOON_MS ? own_ms : FLOCK_SOON_MS;
	if (j->stage != JOIN_ASKED || j->soon)
		return;
	j->soon = true;
	j->at_ms = f->now_ms + ANSWER_MS + (told_ms < most ? told_ms : most);
}

bool flock__join_message(
        struct flock *f, const struct peer_id *from, const struct exchange_message *m)
{
	struct flock__join *j = &f->join;
	/* While nobody is asked ours is 0, which no message has. */
	if (m->exchange != j->exchange || !peer_id_equal(from, &j->donor))
		return m->kind == EXCHANGE_GIFT || m->kind == EXCHANGE_SOON; /* nobody's */
	if (m->kind == EXCHANGE_SOON)
		wait_for_step(f, m->step_ms);
	if (m->kind == EXCHANGE_GIFT && j->stage == JOIN_ASKED) {
		int rc = take_offer(f, m);
		if (rc == 0) {
			j->stage = JOIN_OPENING;
			j->at_ms = f->now_ms + OPEN_MS;
			flock__do_bulk(f, FLOCK_DO_OPEN, USE_FETCH, from, j->exchange);
			return true;
		}
		struct flock_say *s = flock__say(f, SAY_JOIN_UNFIT);
		s->peer = *from;
		s->error = rc;
		next_donor(f);
	} else if (m->kind == EXCHANGE_BUSY &&
	           (j->stage == JOIN_ASKED || j->stage == JOIN_OPENING)) {
		struct flock_say *s = flock__say(f, SAY_JOIN_BUSY);
		s->peer = *from;
		memcpy(s->words, m->busy.words, sizeof m->busy.words);
		next_donor(f);
	}
	return true;
}

void flock__join_unsent(struct flock *f, const struct flock_event *e)
{
	struct flock__join *j = &f->join;
	if ((j->stage == JOIN_ASKED || j->stage == JOIN_OPENING) && e->exchange == j->exchange &&
	        peer_id_equal(&e->peer, &j->donor))
		next_donor(f);
}

/* ---- the state comes in */

bool flock__join_bulk(struct flock *f, const struct flock_event *e)
{
	struct flock__join *j = &f->join;
	if (j->stage != JOIN_OPENING || e->exchange != j->exchange ||
	        !peer_id_equal(&e->peer, &j->donor))
		return false;
	if (e->bulk == BULK_CANNOT_DIAL) { /* it is to dial us */
		struct exchange_message m = {.kind = EXCHANGE_OPEN, .exchange = j->exchange};
		flock__send(f, &j->donor, &m);
		return true;
	}
	if (e->bulk != BULK_CAME) {
		next_donor(f);
		return true;
	}
	struct flock_action *t =
	        flock__do_bulk(f, FLOCK_DO_TRANSFER, USE_FETCH, &j->donor, j->exchange);
	uint64_t left = j->total - j->count;
	t->transfer.receives = true;
	t->transfer.offset = j->count;
	t->transfer.deadline_ms =
	        2000 + 8 * partners_deadline(f->partners, &j->donor, sizeof(float) * left);
	j->stage = JOIN_TRANSFER;
	return true;
}

void flock__join_transferred(struct flock *f, const struct flock_event *e)
{
	struct flock__join *j = &f->join;
	f->counts.bytes_sent += e->transferred.bytes_sent;
	f->counts.bytes_received += e->transferred.bytes_received;
	if (j->stage != JOIN_TRANSFER) {
		j->stage = JOIN_NONE;
		return;
	}
	j->count += e->transferred.received;
	if (e->code == 0 && j->count == j->total) {
		j->stage = JOIN_MEASURE;
		flock__do(f, FLOCK_DO_MEASURE)->slot = SLOT_FETCHED;
		return;
	}
	struct flock_say *s = flock__say(f, SAY_JOIN_BROKEN);
	s->a = j->count;
	s->b = j->total;
	s->error = e->code;
	if (e->code == ERR_NONFINITE || e->code == ERR_FORMAT) {
		partners_quarantine(f->partners, &j->donor,
		        "gave a state with numbers that are not finite", f->now_ms);
		j->count = 0;
		shun(j);
	} else if (e->code == ERR_NOMEM ||
	           (e->code == ERR_TIMEOUT && (e->transferred.received == 0 || another_donor(f))))
		shun(j); /* another may be faster; if there is none, this one gives the rest */
	again(f);
}

/* The state came whole; who else has something to say of it? */
static void compare(struct flock *f)
{
	struct flock__join *j = &f->join;
	struct sketch peers[PEERS_COMPARED];
	int n = flock__witnesses(f, &j->donor, j->apart, peers, PEERS_COMPARED);
	/* Of a donor and a single witness nobody knows who lies: to give up a state of ours they
	 * must agree, a newcomer has none to lose. */
	int heard = n == 1 && !j->anew ? 0 : n;
	bool alone = unwitnessed(f, n);
	if (alone && f->now_ms < j->witness_ms) { /* its sketch may be on its way */
		j->stage = JOIN_WITNESS;
		j->at_ms = f->now_ms + RETRY_MS;
		return;
	}
	if (alone || !sketch_plausible(&j->result, peers, heard)) {
		flock__say_of(f, SAY_JOIN_IMPLAUSIBLE, &j->donor, (uint64_t)n, 0);
		/* Else it may have been the other, or the witnesses have moved on as well. */
		if (heard >= 2 && !j->mixed && !flock__slept(f))
			partners_quarantine(f->partners, &j->donor,
			        "gave a state that is no model of this flock", f->now_ms);
		j->count = 0;
		next_donor(f);
		return;
	}
	j->n_witnesses = n;
	j->stage = JOIN_TRY;
	flock__do(f, FLOCK_DO_TRY);
}

void flock__join_measured(struct flock *f, const struct flock_event *e)
{
	struct flock__join *j = &f->join;
	if (j->stage != JOIN_MEASURE) {
		j->stage = JOIN_NONE;
		return;
	}
	if (e->code != 0 || !e->measured.sketch) {
		again(f);
		return;
	}
	j->result = *e->measured.sketch;
	if (j->witness_ms == 0)
		j->witness_ms = f->now_ms + WITNESS_MS;
	compare(f);
}

/* What is longer than a part of the parameters is cut for good: the first steps are driven by the
 * donor's momentum, so what they bear out may be the donor's lie, too. */
static void inherit_radius(struct flock *f)
{
	struct flock__join *j = &f->join;
	float most = (float)(INHERITED * sketch_norm(&j->result));
	for (int i = 0; i <= EXCHANGE_GROUPS_MAX; i++)
		j->radius[i] = j->radius[i] > most ? most : j->radius[i];
	clip_inherit(&f->clip, j->radius, j->n_radius);
	clip_cap(&f->clip, (double)most);
}

void flock__join_tried(struct flock *f, const struct flock_event *e)
{
	struct flock__join *j = &f->join;
	if (j->stage != JOIN_TRY)
		return;
	j->trial = e->tried;
	if (e->code == ERR_BUSY) { /* our own learner had no room */
		j->count = 0;
		again(f);
		return;
	}
	if (e->code) { /* our own want, of memory perhaps: not the donor's fault */
		flock__say(f, SAY_JOIN_ADOPT_FAILED)->error = e->code;
		j->count = 0;
		next_donor(f);
		return;
	}
	if (!flock__believes(f)) {
		/* A finite loss, however large, may be that of an honest flock on other data. */
		if (!j->mixed && !isfinite(j->trial.loss))
			partners_quarantine(f->partners, &j->donor,
			        "gave a state whose loss is not finite", f->now_ms);
		j->count = 0;
		next_donor(f);
		return;
	}
	flock__say_of(f, SAY_JOIN_TAKEN, &j->donor, j->info.step, (uint64_t)j->n_witnesses);
	clip_init(&f->clip, f->c.n_groups);
	inherit_radius(f);
	gate_renew(f->gate);
	j->stage = JOIN_ADOPT;
	flock__do(f, FLOCK_DO_ADOPT)->adopt = j->info;
}

void flock__join_adopted(struct flock *f, int code)
{
	struct flock__join *j = &f->join;
	if (j->stage != JOIN_ADOPT)
		return;
	if (code) {
		flock__say(f, SAY_JOIN_ADOPT_FAILED)->error = code;
		if (code != ERR_BUSY) /* our own learner had no room: not the donor's fault */
			partners_quarantine(f->partners, &j->donor,
			        "gave a state that no optimizer has", f->now_ms);
		j->count = 0;
		next_donor(f);
		return;
	}
	f->counts.adoptions++;
	flock__adopted(f);
	f->divergence.adopted_ms = f->now_ms;
	f->divergence.own = j->result;
	f->divergence.has_own = true;
	f->divergence.at_ms = 0; /* and a fresh one soon */
	f->clock.last.moved = f->divergence.moved = 0;
	f->clock.set_step = f->clock.last.step;
	partners_path(f->partners, f->clock.last.step, 0);
	guard_renew(&f->guard); /* now: until here it trained on with the other ones */
	struct flock_say *s = flock__say(f, SAY_JOINED);
	s->a = f->now_ms - j->began_ms;
	s->b = flock__clock(f);
	end(f, true);
}

bool flock__joining(const struct flock *f)
{
	return f->join.stage != JOIN_NONE || f->adopted.due;
}

/* ---- time, and the end */

void flock__join_gone(struct flock *f, const struct peer_id *id)
{
	struct flock__join *j = &f->join;
	if (!j->has_donor || !peer_id_equal(id, &j->donor))
		return;
	if (j->stage == JOIN_TRANSFER) /* its end asks again */
		flock__do_bulk(f, FLOCK_DO_CANCEL, USE_FETCH, id, j->exchange);
	else if (j->stage == JOIN_ASKED || j->stage == JOIN_OPENING)
		again(f);
}

void flock__join_tick(struct flock *f)
{
	struct flock__join *j = &f->join;
	if (f->now_ms < j->at_ms)
		return;
	if (j->stage == JOIN_RETRY)
		ask(f);
	else if (j->stage == JOIN_WITNESS)
		compare(f);
	else if (j->stage == JOIN_ASKED || j->stage == JOIN_OPENING)
		next_donor(f);
}

void flock__join_close(struct flock *f)
{
	struct flock__join *j = &f->join;
	bool held = j->stage == JOIN_TRANSFER || j->stage == JOIN_MEASURE;
	if (j->stage == JOIN_TRANSFER)
		flock__do_bulk(f, FLOCK_DO_CANCEL, USE_FETCH, &j->donor, j->exchange);
	j->stage = held ? JOIN_ENDING : JOIN_NONE;
	j->exchange = 0;
}

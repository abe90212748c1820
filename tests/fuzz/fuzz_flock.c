/* SPDX-License-Identifier: MIT */
/* Any bytes as the life of one agent's core (gossip/flock): a configuration, then a sequence of
 * events. Peers say anything that the codec lets through, under a handful of ids; transfers end in
 * any way; the learner answers in any order, refuses, fails, and now and then speaks unasked where
 * the real one may; the user wishes anything; time stands still, passes and jumps. The driver's
 * part of the contract is kept: what is asked for is answered once.
 *
 * Whatever comes: the core stays within its memory (which is exactly as large as it asks for) and
 * its bounds, the run's clock does not fall, every buffer has one owner, parameters move by one
 * exchange at a time and by shares in [0, 1], and there is always a time to wake at. At the end the
 * agent is left alone: its exchange ends, and it leaves when it is told to. */
#include "gossip/flock/flock.h"
#include "tests/fuzz/input.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define IDS 6
#define GROUPS 2
#define MEMBERS 4  /* fewer than ids */
#define COUNT 64   /* parameters */
#define VECTORS 2  /* of a whole state */
#define TOTAL 4000 /* samples of the run */
#define EVENTS_MAX 400
#define CONNECTIONS 8   /* as many as the driver keeps */
#define RECENT 8        /* messages of ours that peers may answer */
#define ALONE_MS 120000 /* no exchange takes longer */
#define LEAVES_MS 60000
#define SPINS_MAX 200 /* steps in a row that want another one at once */
#define USES (USE_DONATE + FLOCK_DONATIONS)
#define ASKS (FLOCK_DO_LEFT + 1)

enum owner { NOBODY, LEARNER, TRANSFER, WORKER };

/* What a driver knows. */
static struct life {
	struct flock *core;
	struct flock_config c;
	uint64_t now, awake, clock, adoptions;
	uint8_t owner[4]; /* by slot */
	int readers;      /* of DONATED */
	int asked[ASKS];  /* of the learner, by action, not answered yet */
	bool measuring[4];
	bool trains, stops, stopped, failed, done, left;
	uint64_t step, samples;
	struct {
		bool on;
		struct flock_action how;
	} transfer[USES];
	struct {
		bool there;
		struct peer_id peer;
		uint64_t exchange;
	} connection[CONNECTIONS];
	struct {
		struct peer_id peer;
		uint64_t exchange;
	} recent[RECENT];
	uint32_t n_recent;
	uint64_t nonce, gift; /* of the last ping and the last GIFT of ours */
	uint64_t opened;      /* the exchange of the last OPEN; 0: answered */
	struct peer_id opened_to;
} l;
static struct flock_actions actions;

/* ---- values */

/* Mostly small, as counters are; now and then the ends of the range, or anything. */
static uint64_t take_number(struct input *in)
{
	uint8_t b = take(in);
	if (b < 0xd0)
		return b;
	if (b < 0xe8)
		return (uint64_t)b << (b & 31);
	return b < 0xf8 ? UINT64_MAX - (b & 7) : take_word(in);
}

static struct peer_id id_of(uint8_t b)
{
	struct peer_id id;
	memset(&id, 0x11 * (b % IDS + 1), sizeof id);
	return id;
}

/* One of a few, the agent itself is none of them. */
static struct peer_id take_id(struct input *in)
{
	return id_of((uint8_t)(1 + take(in) % (IDS - 1)));
}

/* What the codec lets through: from 0 to most. */
static float take_float(struct input *in, float most)
{
	uint8_t b = take(in);
	if (b == 0xff)
		return most;
	return b >= 0xf0 ? FLT_MIN : (float)b / 0xef * (most < 4 ? most : 4);
}

static struct manifest take_manifest(struct input *in)
{
	struct manifest m = l.c.manifest;
	uint8_t b = take(in);
	if (b >= 0xe0)
		((uint64_t *)&m)[b & 7] = take_number(in);
	return m;
}

/* From one number: a few places that are near each other, one far away, one that is no place. */
static void place(uint8_t b, struct sketch *s)
{
	for (int i = 0; i < SKETCH_BUCKETS; i++)
		s->bucket[i] = 1 + (float)(i % 7) + 0.001f * (float)(b & 15);
	if (b >= 0xc0)
		for (int i = 0; i < SKETCH_BUCKETS; i++)
			s->bucket[i] *= b & 16 ? -1e3f : 1e30f;
	if (b >= 0xf0)
		s->bucket[b & 15] = b & 1 ? (float)INFINITY : (float)NAN;
}

static uint16_t take_sketch(struct input *in, uint8_t *out)
{
	uint8_t b = take(in);
	struct sketch s;
	if (b < 0x40)
		return 0;
	place(take(in), &s);
	sketch_pack(&s, out);
	return b < 0xf0 ? SKETCH_BUCKETS * 4 : (uint16_t)(b * 4);
}

/* ---- what peers say */

static void take_terms(struct input *in, struct exchange_terms *t)
{
	uint8_t b = take(in);
	t->manifest = take_manifest(in);
	t->step = take_number(in);
	t->samples = take_number(in);
	t->clock = take_number(in);
	t->mode = b < 0xe0 ? l.c.mode : b;
	t->format = b < 0xd0 ? b & 1 : b;
	t->final = b & 2;
	t->beta = b & 4 ? take_float(in, 1) : 0.5f;
	if (t->beta == 0)
		t->beta = 1;
	t->sketch_length = take_sketch(in, t->sketch);
}

static void take_gift(struct input *in, struct exchange_message *m)
{
	uint8_t b = take(in);
	m->gift.manifest = take_manifest(in);
	m->gift.snapshot = take_number(in);
	m->gift.offset = b & 1 ? take_number(in) : 0;
	m->gift.step = take_number(in);
	m->gift.samples = take_number(in);
	m->gift.clock = take_number(in);
	m->gift.optim_steps = take_number(in);
	m->gift.optimizer = b < 0xf0 ? l.c.optimizer : b;
	m->gift.vectors = b < 0xf8 ? VECTORS : 3;
	m->gift.n = b < 0xe0 ? GROUPS : b % (EXCHANGE_GROUPS_MAX + 1);
	for (int i = 0; i <= m->gift.n; i++)
		m->gift.radius[i] = take_float(in, FLT_MAX);
}

static void take_message(struct input *in, struct flock_event *e, struct exchange_message *m)
{
	uint8_t b = take(in), which = take(in);
	memset(m, 0, sizeof *m);
	m->kind = b % EXCHANGE_KINDS;
	/* Of something that we have said, and mostly by whom we said it to; or of nothing. */
	e->peer = l.recent[which % RECENT].peer;
	m->exchange = l.recent[which % RECENT].exchange;
	if (which >= 0xc0 || m->exchange == 0) {
		e->peer = take_id(in);
		m->exchange = which & 1 && m->exchange ? m->exchange : 1 + take_number(in) % 1024;
	}
	switch (m->kind) {
	case EXCHANGE_OFFER:
	case EXCHANGE_ACCEPT:
		take_terms(in, &m->terms);
		break;
	case EXCHANGE_BUSY:
	case EXCHANGE_ABORT:
		m->busy.why = take(in) % EXCHANGE_WHYS;
		memset(m->busy.words, 'x', b % (EXCHANGE_WORDS_MAX + 1));
		if (m->busy.why == EXCHANGE_UNLIKE)
			m->busy.manifest = take_manifest(in);
		break;
	case EXCHANGE_END:
		m->end.n = b < 0xe0 ? GROUPS : take(in) % (EXCHANGE_GROUPS_MAX + 1);
		for (int g = 0; g < m->end.n; g++)
			m->end.factor[g] = take_float(in, 1);
		break;
	case EXCHANGE_SETTLE:
		m->settlement = take(in) % (SETTLE_APPLIED + 1);
		break;
	case EXCHANGE_FETCH:
		m->fetch.manifest = take_manifest(in);
		m->fetch.snapshot = b & 0x80 ? l.gift : take_number(in);
		m->fetch.offset = take_number(in);
		break;
	case EXCHANGE_GIFT:
		take_gift(in, m);
		break;
	case EXCHANGE_SOON:
		m->step_ms = (uint32_t)take_number(in);
		break;
	default:
		break;
	}
}

static void take_update(struct input *in, struct gossip_update *u)
{
	uint8_t b = take(in);
	u->kind = b & 1 ? UPDATE_ACCUSATION : UPDATE_RECORD;
	if (u->kind == UPDATE_ACCUSATION) {
		u->accusation = (struct accusation){.about = id_of(take(in)),
		        .by = take_id(in),
		        .generation = 1 + (b >> 2 & 1),
		        .incarnation = take_number(in),
		        .dead = b & 2};
		return;
	}
	struct member_record *r = &u->record;
	r->id = b < 0xf8 ? take_id(in) : id_of(0);
	r->generation = 1 + (b >> 2 & 1);
	r->nonce = 1;
	r->incarnation = take_number(in);
	r->version = take_number(in);
	r->left = (b & 0x70) == 0x70;
	r->dialable = true;
	r->addrs.n = 1;
	r->addrs.at[0] =
	        (struct peer_addr){.family = 4, .ip = {10, 0, 0, r->id.bytes[0]}, .port = 1};
	r->protocol_min = r->protocol_max = 1;
	r->status.model = b & 8 ? 7 : manifest_hash(&l.c.manifest);
	r->status.step = take_number(in);
	r->status.samples = take_number(in);
	r->status.loss = take_float(in, FLT_MAX);
}

static void take_membership(struct input *in, struct gossip_event *e, struct gossip_message *m)
{
	uint8_t b = take(in);
	memset(m, 0, sizeof *m);
	e->peer.id = take_id(in);
	if (b < 0x30) {
		e->kind = b & 1 ? EVENT_PEER_DOWN : EVENT_PEER_UP;
		return;
	}
	if (b < 0x34) {
		e->kind = EVENT_FORBIDDEN;
		return;
	}
	struct peer_id from = e->peer.id;
	e->kind = EVENT_RECEIVED;
	e->received.from = from;
	e->received.channel = CHANNEL_STREAM;
	e->received.message = m;
	m->kind = b % (MESSAGE_SKETCH + 1);
	m->nonce = b & 0x80 ? l.nonce : take_number(in);
	m->target = id_of(b >> 3 & 7);
	m->want_reply = b & 8;
	if (m->kind == MESSAGE_SKETCH) {
		m->sketch.id = from;
		m->sketch.generation = 1;
		m->sketch.step = take_number(in);
		m->sketch.length = take_sketch(in, m->sketch.bytes);
		return;
	}
	m->n_updates = take(in) % (GOSSIP_UPDATES_MAX + 1);
	for (int i = 0; i < m->n_updates; i++)
		take_update(in, &m->update[i]);
}

/* ---- what the core asks for */

static void pass(enum flock_slot s, enum owner from, enum owner to)
{
	demand(l.owner[s] == from);
	l.owner[s] = (uint8_t)to;
}

static int connection(const struct peer_id *peer, uint64_t exchange)
{
	for (int i = 0; i < CONNECTIONS; i++)
		if (l.connection[i].there && l.connection[i].exchange == exchange &&
		        peer_id_equal(&l.connection[i].peer, peer))
			return i;
	return -1;
}

static void begin_transfer(const struct flock_action *a)
{
	int i = connection(&a->peer, a->exchange);
	demand(a->use < USES && !l.transfer[a->use].on && i >= 0);
	demand(a->transfer.deadline_ms > 0 && a->transfer.deadline_ms != UINT64_MAX);
	l.connection[i].there = false;
	l.transfer[a->use].on = true;
	l.transfer[a->use].how = *a;
	if (a->use == USE_EXCHANGE) {
		demand(a->transfer.format < l.c.n_formats);
		demand(a->transfer.sends || a->transfer.receives);
		pass(SLOT_SNAPSHOT, NOBODY, TRANSFER);
		pass(SLOT_STAGING, NOBODY, TRANSFER);
	} else {
		demand(a->transfer.offset < VECTORS * COUNT);
		if (a->use == USE_FETCH)
			pass(SLOT_FETCHED, NOBODY, TRANSFER);
		else
			demand(l.owner[SLOT_DONATED] == NOBODY && ++l.readers <= FLOCK_DONATIONS);
	}
}

static void ask_learner(const struct flock_action *a)
{
	demand(!l.stops || a->kind == FLOCK_DO_STOP);
	l.asked[a->kind]++;
	demand(l.asked[a->kind] == 1 || a->kind == FLOCK_DO_SAVE);
	if (a->kind == FLOCK_DO_SNAPSHOT) {
		demand(a->snapshot.format < l.c.n_formats);
		pass(SLOT_SNAPSHOT, NOBODY, LEARNER);
	}
	if (a->kind == FLOCK_DO_APPLY) {
		pass(SLOT_STAGING, NOBODY, LEARNER);
		demand(a->apply.n == GROUPS);
		for (int g = 0; g < GROUPS; g++)
			demand(a->apply.k[g] >= 0 && a->apply.k[g] <= 1);
	}
	if (a->kind == FLOCK_DO_TAKE_STATE) {
		pass(SLOT_DONATED, NOBODY, LEARNER);
		demand(l.readers == 0);
	}
	if (a->kind == FLOCK_DO_TRY)
		pass(SLOT_FETCHED, NOBODY, LEARNER);
	if (a->kind == FLOCK_DO_ADOPT) {
		pass(SLOT_FETCHED, NOBODY, LEARNER);
		demand(a->adopt.vectors == VECTORS && a->adopt.optimizer == l.c.optimizer);
	}
	l.stops = l.stops || a->kind == FLOCK_DO_STOP;
}

static void act(const struct flock_action *a)
{
	int i;
	demand(!l.left);
	switch (a->kind) {
	case FLOCK_DO_OPEN:
		demand(a->exchange != 0 && a->use < USES);
		l.opened = a->exchange;
		l.opened_to = a->peer;
		break;
	case FLOCK_DO_CLOSE:
		i = connection(&a->peer, a->exchange);
		if (i >= 0)
			l.connection[i].there = false;
		break;
	case FLOCK_DO_TRANSFER:
		begin_transfer(a);
		break;
	case FLOCK_DO_CANCEL:
		demand(a->use < USES && l.transfer[a->use].on);
		break;
	case FLOCK_DO_MEASURE:
		demand(a->slot == SLOT_STAGING || a->slot == SLOT_FETCHED);
		pass((enum flock_slot)a->slot, NOBODY, WORKER);
		l.measuring[a->slot] = true;
		break;
	case FLOCK_DO_TRAIN:
	case FLOCK_DO_PAUSE:
		l.trains = a->kind == FLOCK_DO_TRAIN;
		break;
	case FLOCK_DO_CLOCK:
	case FLOCK_DO_RESTORE:
	case FLOCK_DO_LEAVE:
		break;
	case FLOCK_DO_RELEASE:
		demand(a->slot == SLOT_DONATED || a->slot == SLOT_FETCHED);
		demand(l.owner[a->slot] == NOBODY && (a->slot == SLOT_FETCHED || !l.readers));
		break;
	case FLOCK_DO_LEFT:
		for (i = 0; i < 4; i++)
			demand(l.owner[i] == NOBODY);
		demand(l.readers == 0 && (l.stopped || !l.c.learner));
		l.left = true;
		break;
	default:
		demand(a->kind < ASKS);
		ask_learner(a);
	}
}

static void sent(void)
{
	for (int i = 0; i < actions.n_sends; i++) {
		const struct exchange_message *m = &actions.send[i].message;
		demand(m->kind < EXCHANGE_KINDS && m->exchange != 0);
		demand(!peer_id_equal(&actions.send[i].to, &l.c.membership.self));
		l.recent[l.n_recent % RECENT].peer = actions.send[i].to;
		l.recent[l.n_recent++ % RECENT].exchange = m->exchange;
		if (m->kind == EXCHANGE_GIFT) {
			demand(m->gift.offset < VECTORS * COUNT);
			l.gift = m->gift.snapshot;
		}
	}
	for (int i = 0; i < actions.membership.n_sends; i++)
		if (actions.membership.send[i].message.kind == MESSAGE_PING)
			l.nonce = actions.membership.send[i].message.nonce;
}

static void step(struct flock_event *e)
{
	struct flock_view v;
	double consensus = 0;
	e->now_ms = l.now;
	e->awake_ms = l.awake;
	flock_step(l.core, e, &actions);
	demand(actions.n_sends >= 0 && actions.n_sends <= FLOCK_SENDS_MAX);
	demand(actions.n_actions >= 0 && actions.n_actions <= FLOCK_ACTIONS_MAX);
	demand(actions.n_says >= 0 && actions.n_says <= FLOCK_SAYS_MAX);
	for (int i = 0; i < actions.n_says; i++)
		demand(memchr(actions.say[i].words, 0, sizeof actions.say[i].words) != NULL);
	sent();
	for (int i = 0; i < actions.n_actions; i++)
		act(&actions.action[i]);
	flock_view(l.core, &v);
	demand(v.clock >= l.clock && v.phase < FLOCK_PHASES);
	l.clock = v.clock;
	/* Not counted: one that the learner ends while the agent leaves. */
	demand(v.counts.adoptions <= l.adoptions && l.adoptions <= v.counts.adoptions + 1);
	demand(v.exchange_state == EXCHANGE_IDLE ||
	        !peer_id_equal(&v.exchange_peer, &l.c.membership.self));
	demand(v.join_count <= v.join_total || v.phase != FLOCK_JOINING);
	demand(actions.wake_ms != UINT64_MAX || v.phase == FLOCK_LEAVING);
	demand(flock_consensus(l.core, &consensus) >= 0 && !(consensus < 0));
}

/* ---- what comes of it */

static void end_transfer(uint8_t use, uint8_t how, uint64_t part)
{
	static const int codes[] = {0, 0, 0, 0, ERR_IO, ERR_TIMEOUT, ERR_NONFINITE, ERR_FORMAT,
	        ERR_NOMEM, ERR_CANCELLED};
	struct flock_event e = {.kind = FLOCK_EVENT_TRANSFERRED};
	const struct flock_action *a = &l.transfer[use].how;
	if (!l.transfer[use].on)
		return;
	uint64_t all = use == USE_EXCHANGE ? COUNT : VECTORS * COUNT - a->transfer.offset;
	e.exchange = a->exchange;
	e.code = codes[how % (sizeof codes / sizeof *codes)];
	e.transferred.use = use;
	if (a->transfer.receives)
		e.transferred.received = e.code == 0 ? all : part % (all + 1);
	e.transferred.bytes_sent = 4 * part;
	e.transferred.bytes_received = 4 * e.transferred.received;
	l.transfer[use].on = false;
	if (use == USE_EXCHANGE) {
		pass(SLOT_SNAPSHOT, TRANSFER, NOBODY);
		pass(SLOT_STAGING, TRANSFER, NOBODY);
	} else if (use == USE_FETCH)
		pass(SLOT_FETCHED, TRANSFER, NOBODY);
	else
		l.readers--;
	step(&e);
}

static void measured(enum flock_slot slot, uint8_t how)
{
	static const double distances[] = {0, 1e-20, 1, 3, 100, 1e20, 1e77, 0.01};
	struct flock_event e = {.kind = FLOCK_EVENT_MEASURED};
	struct sketch s;
	if (!l.measuring[slot])
		return;
	l.measuring[slot] = false;
	pass(slot, WORKER, NOBODY);
	place(how, &s);
	e.code = how == 0xee ? ERR_CANCELLED : 0;
	e.measured.slot = (uint8_t)slot;
	e.measured.finite = how != 0xef;
	e.measured.sketch = how % 32 == 31 ? NULL : &s;
	for (int g = 0; g < GROUPS; g++)
		e.measured.distance2[g] = distances[(how >> 4 * g) & 7];
	step(&e);
}

/* Those of our learner's buffers that this request holds. */
static void let_go(uint8_t kind)
{
	if (kind == FLOCK_DO_SNAPSHOT)
		pass(SLOT_SNAPSHOT, LEARNER, NOBODY);
	if (kind == FLOCK_DO_APPLY)
		pass(SLOT_STAGING, LEARNER, NOBODY);
	if (kind == FLOCK_DO_TAKE_STATE)
		pass(SLOT_DONATED, LEARNER, NOBODY);
	if (kind == FLOCK_DO_ADOPT || kind == FLOCK_DO_TRY)
		pass(SLOT_FETCHED, LEARNER, NOBODY);
}

/* What the learner still holds goes with it. */
static void stopped(void)
{
	for (uint8_t k = 0; k < ASKS; k++)
		for (; l.asked[k] > 0; l.asked[k]--)
			if (k != FLOCK_DO_STOP)
				let_go(k);
	l.stopped = true;
	step(&(struct flock_event){.kind = FLOCK_EVENT_STOPPED});
}

static void answer(uint8_t kind, uint8_t how)
{
	static const uint8_t events[ASKS] = {[FLOCK_DO_SNAPSHOT] = FLOCK_EVENT_SNAPSHOT,
	        [FLOCK_DO_APPLY] = FLOCK_EVENT_APPLIED,
	        [FLOCK_DO_TAKE_STATE] = FLOCK_EVENT_STATE,
	        [FLOCK_DO_TRY] = FLOCK_EVENT_TRIED,
	        [FLOCK_DO_ADOPT] = FLOCK_EVENT_ADOPTED,
	        [FLOCK_DO_EVALUATE] = FLOCK_EVENT_EVALUATED,
	        [FLOCK_DO_SAVE] = FLOCK_EVENT_SAVED,
	        [FLOCK_DO_EXPORT] = FLOCK_EVENT_EXPORTED};
	struct flock_event e = {.kind = events[kind]};
	struct sketch s;
	if (l.asked[kind] == 0)
		return;
	if (kind == FLOCK_DO_STOP) {
		stopped();
		return;
	}
	l.asked[kind]--;
	let_go(kind);
	if (how >= 0xf0 && kind != FLOCK_DO_APPLY) {
		e.kind = FLOCK_EVENT_REFUSED;
		e.refused = kind;
		step(&e);
		return;
	}
	if (kind == FLOCK_DO_SNAPSHOT) {
		place(how, &s);
		e.snapshot.step = l.step;
		e.snapshot.sketch = how & 1 ? &s : NULL;
	} else if (kind == FLOCK_DO_TAKE_STATE) {
		e.state = (struct flock_state){.step = l.step,
		        .samples = l.samples,
		        .clock = l.clock,
		        .optimizer = l.c.optimizer,
		        .vectors = VECTORS};
	} else if (kind == FLOCK_DO_TRY) {
		e.code = how >= 0xe0 ? ERR_IO : 0;
		e.tried = (struct flock_trial){.loss = how & 1 ? (double)NAN : how,
		        .own = how & 2 ? 8 : 200,
		        .initial = how & 4 ? 100 : (double)NAN,
		        .test = how & 8};
	} else if (kind == FLOCK_DO_EVALUATE) {
		e.eval = (struct flock_eval){.count = how & 1, .whole = true, .asked = true};
	} else if (kind != FLOCK_DO_APPLY) {
		e.code = how >= 0xe0 ? ERR_IO : 0;
		e.saved_step = kind == FLOCK_DO_SAVE ? l.step : 0;
		l.adoptions += kind == FLOCK_DO_ADOPT && e.code == 0;
	}
	step(&e);
}

static void train(struct input *in)
{
	struct flock_trained t[4];
	struct flock_event e = {.kind = FLOCK_EVENT_STEPS};
	if (!l.c.learner || l.stopped || l.failed || l.done || !l.trains)
		return;
	e.steps.n = 1 + take(in) % 4;
	e.steps.list = t;
	for (int i = 0; i < e.steps.n; i++) {
		l.samples += 32;
		t[i] = (struct flock_trained){.step = ++l.step,
		        .samples = l.samples,
		        .loss = (double)take_float(in, FLT_MAX),
		        .lr = 0.1,
		        .grad_norm = (double)take_float(in, FLT_MAX),
		        .layer_norms = (double)take_float(in, FLT_MAX),
		        .moved = (double)l.step};
	}
	step(&e);
}

/* What a learner says by itself. */
static void unasked(uint8_t how)
{
	struct flock_event e = {.kind = FLOCK_EVENT_SAVED};
	if (!l.c.learner || l.stopped || l.failed)
		return;
	if (how < 0x60) {
		e.saved_step = l.step;
		e.code = how & 1 ? ERR_IO : 0;
	} else if (how < 0xc0) {
		e.kind = FLOCK_EVENT_EVALUATED;
		e.eval = (struct flock_eval){.count = 1, .step = l.step};
	} else if (how < 0xf8) {
		if (l.done)
			return;
		e.kind = FLOCK_EVENT_DONE;
		e.done.clock = how < 0xf0 ? TOTAL : l.clock;
		e.done.stopped_early = how >= 0xf0;
		l.done = true;
	} else {
		e.kind = FLOCK_EVENT_FAILED;
		e.code = ERR_NONFINITE;
		l.failed = true;
	}
	step(&e);
}

static void bulk(struct input *in)
{
	uint8_t b = take(in), which = take(in) % RECENT;
	struct flock_event e = {.kind = FLOCK_EVENT_BULK};
	int room = 0;
	if (!l.c.learner)
		return;
	e.bulk = b & 3 ? BULK_CAME : b & 4 ? BULK_FAILED : BULK_CANNOT_DIAL;
	e.peer = b < 0x80 ? l.opened_to : l.recent[which].peer;
	e.exchange = b < 0x80 ? l.opened : l.recent[which].exchange;
	if (b >= 0xf0 || e.exchange == 0) {
		e.peer = take_id(in);
		e.exchange = take_number(in);
	}
	if (e.bulk == BULK_CAME) {
		while (room < CONNECTIONS && l.connection[room].there)
			room++;
		if (room == CONNECTIONS || connection(&e.peer, e.exchange) >= 0)
			return; /* the driver closes it by itself */
		l.connection[room].there = true;
		l.connection[room].peer = e.peer;
		l.connection[room].exchange = e.exchange;
	}
	step(&e);
}

static void pass_time(struct input *in)
{
	uint8_t b = take(in);
	if (b < 0x80)
		l.now = actions.wake_ms != UINT64_MAX && actions.wake_ms > l.now ? actions.wake_ms
		                                                                 : l.now + b;
	else if (b < 0xf0)
		l.now += (uint64_t)(b & 0x7f) * 50;
	else if (b < 0xf8)
		l.now += 3600000;
	else
		l.awake += take_number(in) * 1000 % (1ull << 40); /* suspended */
	l.awake = l.awake > l.now ? l.awake : l.now;
}

static void one_event(struct input *in)
{
	static struct exchange_message x;
	static struct gossip_message m;
	struct flock_event e = {.kind = FLOCK_EVENT_TIMER};
	uint8_t b = take(in);
	if (b & 0x80)
		pass_time(in);
	switch (b & 15) {
	case 0:
	case 1:
	case 2:
	case 3:
		if (!l.c.learner)
			return;
		e.kind = FLOCK_EVENT_MESSAGE;
		e.message = &x;
		take_message(in, &e, &x);
		break;
	case 4:
	case 5:
		e.kind = FLOCK_EVENT_MEMBERSHIP;
		take_membership(in, &e.membership, &m);
		break;
	case 6:
		bulk(in);
		return;
	case 7:
		end_transfer(take(in) % USES, take(in), take(in));
		return;
	case 8:
		measured(b & 0x10 ? SLOT_FETCHED : SLOT_STAGING, take(in));
		return;
	case 9:
	case 10:
		answer(FLOCK_DO_SNAPSHOT + take(in) % (FLOCK_DO_STOP - FLOCK_DO_SNAPSHOT + 1),
		        take(in));
		return;
	case 11:
		train(in);
		return;
	case 12:
		unasked(take(in));
		return;
	case 13:
		e.kind = FLOCK_EVENT_WISH;
		e.wish = take(in);
		e.wish = e.wish < 0xe0 ? e.wish % WISH_LEAVE : WISH_LEAVE;
		break;
	case 14:
		e.kind = FLOCK_EVENT_UNSENT;
		e.peer = l.recent[b >> 4 & 7].peer;
		e.exchange = l.recent[b >> 4 & 7].exchange;
		if (!l.c.learner || e.exchange == 0)
			return;
		break;
	default:
		break;
	}
	step(&e);
}

/* ---- left alone */

/* Everybody answers, and time passes from one wish to wake to the next. */
static void settle(void)
{
	for (uint8_t u = 0; u < USES && !l.left; u++)
		end_transfer(u, 4, 0);
	for (int s = 0; s < 4 && !l.left; s++)
		measured((enum flock_slot)s, 1);
	for (uint8_t k = FLOCK_DO_SNAPSHOT; k <= FLOCK_DO_STOP && !l.left; k++)
		answer(k, 1);
	if (l.left)
		return;
	l.now = actions.wake_ms != UINT64_MAX && actions.wake_ms > l.now ? actions.wake_ms : l.now;
	l.awake = l.awake > l.now ? l.awake : l.now;
	step(&(struct flock_event){.kind = FLOCK_EVENT_TIMER});
}

static void run_out(void)
{
	struct flock_view v;
	uint64_t from = l.now, before = l.now;
	int spins = 0;
	flock_view(l.core, &v);
	for (; !l.left && l.c.learner && v.exchange_state != EXCHANGE_IDLE; before = l.now) {
		settle();
		flock_view(l.core, &v);
		demand(l.now - from < ALONE_MS);
		demand((spins = l.now == before ? spins + 1 : 0) < SPINS_MAX);
	}
	if (!l.left)
		step(&(struct flock_event){.kind = FLOCK_EVENT_WISH, .wish = WISH_LEAVE});
	for (from = l.now, spins = 0; !l.left; before = l.now) {
		settle();
		demand(l.now - from < LEAVES_MS);
		demand((spins = l.now == before ? spins + 1 : 0) < SPINS_MAX);
	}
}

static void configure(struct input *in)
{
	uint8_t b = take(in), g = take(in), r = take(in);
	l.c = (struct flock_config){.learner = b < 0xf8,
	        .alone = b & 1,
	        .manifest = {1, 2, 3, COUNT, TOTAL, 1, (g >> 3) % EXCHANGE_MODES, 3, 0, 0},
	        .n_groups = GROUPS,
	        .optimizer = 1,
	        .vectors = VECTORS,
	        .evaluates = b & 2,
	        .resumed = b & 4,
	        .peer_rate = 50,
	        .mode = (g >> 3) % EXCHANGE_MODES,
	        .format = b >> 3 & 1,
	        .n_formats = 2,
	        .exchange_bytes = {4 * COUNT, 2 * COUNT},
	        .beta = 0.5f,
	        .stale = 0.1,
	        .fresh = 64,
	        .join_ms = 3000,
	        .merge_ms = 20000,
	        .stay_ms = 3000,
	        .leave_ms = 20000,
	        .seed = r,
	        .wire_seed = r};
	l.c.guard = b & 16;
	l.c.momentum = 0.9;
	l.c.lr_peak = 0.1;
	l.c.gate = (struct gate_config){.mode = (enum gate_mode)(g % GATE_MODES),
	        .every_samples = 64,
	        .warm = 2,
	        .smooth = 0.16,
	        .slow = 0.02,
	        .delta = 0.1,
	        .chance = 0.5,
	        .exchanges_per_s = 5,
	        .incoming_share = 0.5,
	        .cap_bytes_per_s = b & 16 ? 2000 : 0,
	        .silence_ms = 5000,
	        .exchange_bytes = 4 * COUNT,
	        .step_samples = 32,
	        .seed = r};
	l.c.membership = (struct gossip_config){.profile = gossip_lan,
	        .self = id_of(0),
	        .generation = 1,
	        .nonce = 1,
	        .seed = r,
	        .addrs = {1, {{.family = 4, .ip = {10}, .port = 1}}},
	        .dialable = true,
	        .protocol_min = 1,
	        .protocol_max = 1,
	        .members_max = MEMBERS};
	if (l.c.resumed) {
		l.c.step = l.step = take(in);
		l.c.samples = l.samples = 32 * l.step;
		l.c.others = take_number(in) % (2 * TOTAL);
		l.c.samples_before = take(in);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void *memory;
	struct input in = {data, size};
	struct err err = {0};
	memset(&l, 0, sizeof l);
	configure(&in);
	l.now = l.awake = 1000;
	size_t need = flock_size(&l.c);
	if (!memory)
		memory = malloc(need); /* the same for every configuration here */
	demand(memory != NULL);
	memset(memory, 0, need);
	demand(flock_init(&l.core, memory, need, &l.c, l.now, &err) == 0);
	step(&(struct flock_event){.kind = FLOCK_EVENT_START});
	for (int i = 0; i < EVENTS_MAX && in.left > 0 && !l.left; i++)
		one_event(&in);
	run_out();
	return 0;
}

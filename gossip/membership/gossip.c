/* SPDX-License-Identifier: MIT */
/* The step. Time first, then the event, then whatever has come due, then as much of the whole
 * states under way as this step's sends have room for.
 *
 * Time. The caller's clock may leap: a laptop was closed, a process stopped, a virtual machine
 * moved. To go by it would declare everyone dead at once. So when a step comes far later than the
 * deadline that was asked for, the excess is left out of `now`, the probe under way is forgotten,
 * and we count ourselves a little ill. A clock that runs backwards stands still. */
#include "gossip/membership/gossip.h"

#include "gossip/membership/gossip_internal.h"

#include <math.h>
#include <string.h>

#define SKETCH_FANOUT 3 /* peers that hear of our own sketch at once */

const struct gossip_profile gossip_lan = {
        .probe_interval = 1000,
        .probe_timeout = 500,
        .gossip_interval = 200,
        .gossip_fanout = 3,
        .sync_interval = 30000,
        .heal_interval = 30000,
        .suspicion_mult = 4,
        .suspicion_max_mult = 6,
        .retransmit_mult = 4,
        .helpers = 3,
        .status_interval = 5000,
};

const struct gossip_profile gossip_wan = {
        .probe_interval = 5000,
        .probe_timeout = 3000,
        .gossip_interval = 500,
        .gossip_fanout = 4,
        .sync_interval = 60000,
        .heal_interval = 30000,
        .suspicion_mult = 6,
        .suspicion_max_mult = 6,
        .retransmit_mult = 4,
        .helpers = 3,
        .status_interval = 10000,
};

/* ---- memory */

static uint32_t members_max(const struct gossip_config *c)
{
	return c->members_max ? c->members_max : GOSSIP_MEMBERS;
}

static uint32_t power_of_two(uint32_t least)
{
	uint32_t n = 16;
	while (n < least)
		n *= 2;
	return n;
}

/* The parts of the one block, in order; with base NULL only their sizes are added up. */
static size_t lay_out(struct gossip *g, char *base, uint32_t max)
{
	size_t at = 0;
	uint32_t table = power_of_two(2 * max),
	         retired = power_of_two(GOSSIP_RETIRED_PER_MEMBER / 2 * max);
#define PART(field, count)                                                   \
	do {                                                                 \
		if (base)                                                    \
			g->field = (void *)(base + at);                      \
		at += (((size_t)(count)) * sizeof *g->field + 63) / 64 * 64; \
	} while (0)
	at += (sizeof *g + 63) / 64 * 64;
	PART(members, max + 1);
	PART(sketches, max + 1);
	PART(table, table);
	PART(order, max);
	PART(retired[0], retired);
	PART(retired[1], retired);
#undef PART
	if (base) {
		g->members_max = max;
		g->table_mask = table - 1;
		g->retired_mask = retired - 1;
	}
	return at;
}

size_t gossip_size(const struct gossip_config *c)
{
	return lay_out(NULL, NULL, members_max(c));
}

int gossip_init(struct gossip **out, void *memory, size_t size, const struct gossip_config *c,
        struct err *e)
{
	uint32_t max = members_max(c);
	*out = NULL;
	if (max < 1 || max > GOSSIP_MEMBERS_MAX)
		return err_set(e, ERR_LIMIT, "1 to %d members, not %u", GOSSIP_MEMBERS_MAX, max);
	if (c->generation < 1 || c->n_seeds < 0 || c->n_seeds > GOSSIP_SEEDS_MAX)
		return err_set(e, ERR_INVALID, "a generation of 1 or more, and at most %d seeds",
		        GOSSIP_SEEDS_MAX);
	if (c->addrs.n > MEMBER_ADDRS_MAX)
		return err_set(e, ERR_LIMIT, "at most %d addresses", MEMBER_ADDRS_MAX);
	if (size < gossip_size(c))
		return err_set(
		        e, ERR_NOMEM, "membership of %u needs %zu bytes", max, gossip_size(c));
	struct gossip *g = memory; /* most of it stays untouched until there are so many members */
	lay_out(g, memory, max);
	g->config = *c;
	rng_seed(&g->rng, c->seed, c->nonce);
	memset(g->table, 0xff, ((size_t)g->table_mask + 1) * sizeof *g->table);
	gossip__queue_init(g);
	g->probe.target = NONE;
	g->suspects_at = NEVER;
	g->status = c->status;
	struct member *self = gossip__self(g);
	self->news = NEWS_NONE;
	self->state = MEMBER_ALIVE;
	self->record = (struct member_record){.id = c->self,
	        .generation = c->generation,
	        .nonce = c->nonce,
	        .incarnation = 1,
	        .dialable = c->dialable,
	        .addrs = c->addrs,
	        .protocol_min = c->protocol_min,
	        .protocol_max = c->protocol_max};
	g->status_pending = true;
	gossip__publish(g);
	gossip__depart(g, &c->departed);
	*out = g;
	return 0;
}

/* ---- what the other files lean on */

void gossip__notice(struct gossip *g, enum notice_kind k, const struct peer_id *id, uint64_t value)
{
	if (g->out->n_notices == GOSSIP_NOTICES_MAX)
		g->counters.dropped_notices++;
	else
		g->out->notice[g->out->n_notices++] =
		        (struct gossip_notice){.kind = (uint8_t)k, .id = *id, .value = value};
}

struct gossip_send *gossip__send(struct gossip *g, enum message_kind kind, enum gossip_channel c)
{
	if (g->out->n_sends == GOSSIP_SENDS_MAX)
		return NULL;
	struct gossip_send *s = &g->out->send[g->out->n_sends++];
	s->channel = (uint8_t)c;
	s->to_id = false;
	memset(&s->id, 0, sizeof s->id);
	s->addrs.n = 0;
	/* Only what is used is set: a message is large, and most of it stays empty. */
	memset(&s->message, 0, offsetof(struct gossip_message, update));
	s->message.kind = (uint8_t)kind;
	return s;
}

void gossip__send_to(struct gossip_send *s, const struct peer_id *id, const struct peer_addrs *a)
{
	if (id) {
		s->to_id = true;
		s->id = *id;
	}
	s->addrs = *a;
	if (a->n == 0)
		s->channel = CHANNEL_STREAM; /* if one stands */
}

void gossip__send_back(struct gossip_send *s, const struct peer_id *id, const struct peer_addr *a)
{
	struct peer_addrs one = {a->family != 0, {*a}};
	gossip__send_to(s, id, &one);
}

void gossip__publish(struct gossip *g)
{
	struct member *self = gossip__self(g);
	if (!g->status_pending)
		return;
	g->status_pending = false;
	self->record.status = g->status;
	self->record.status.samples = g->samples_before + g->status.samples;
	if (self->record.status.samples > GOSSIP_SAMPLES_MAX)
		self->record.status.samples = GOSSIP_SAMPLES_MAX;
	self->record.version++;
	gossip__count_samples(g, self, self->record.status.samples);
}

double gossip__log10_flock(const struct gossip *g, uint32_t plus)
{
	return log10((double)gossip__n_present(g) + plus);
}

uint32_t gossip__pick(struct gossip *g, bool (*fit)(const struct gossip *, const struct member *))
{
	if (g->n_members == 0)
		return NONE;
	/* From a random place on: the first that fits. A little uneven where few fit, but it costs
	 * one draw, and finds the only one there is. */
	uint32_t from = (uint32_t)rng_below(&g->rng, g->n_members);
	for (uint32_t k = 0; k < g->n_members; k++) {
		uint32_t i = (from + k) % g->n_members;
		if (fit(g, &g->members[i]))
			return i;
	}
	return NONE;
}

/* ---- time */

static void pass_time(struct gossip *g, uint64_t caller_now)
{
	uint64_t passed = caller_now > g->caller_now ? caller_now - g->caller_now : 0;
	uint64_t wanted = g->deadline > g->now ? g->deadline - g->now : 0;
	uint64_t late = 2ull * g->config.profile.probe_interval;
	g->caller_now = caller_now;
	if (passed <= wanted + late) {
		g->now += passed;
		return;
	}
	g->now += wanted;
	g->probe.target = NONE;
	g->health = g->health + 2 > GOSSIP_HEALTH_MAX ? GOSSIP_HEALTH_MAX : g->health + 2;
	g->counters.time_jumps++;
	gossip__notice(g, NOTICE_TIME_JUMP, &g->config.self, passed - wanted);
}

static void begin(struct gossip *g)
{
	const struct gossip_profile *p = &g->config.profile;
	g->started = true;
	/* Each agent at a time of its own within the interval. */
	g->probe_at = g->now + rng_below(&g->rng, p->probe_interval);
	g->gossip_at = g->now + rng_below(&g->rng, p->gossip_interval);
	g->sync_at = g->now + p->sync_interval / 2 + rng_below(&g->rng, p->sync_interval);
	g->heal_at = g->now + rng_below(&g->rng, p->heal_interval / 6 + 1);
	g->status_at = g->now;
	gossip__queue(g, g->members_max, NEWS_CHANGE);
	gossip__start(g);
}

static void status_timer(struct gossip *g)
{
	/* The more agents, the less often each one speaks: the traffic per agent stays constant. */
	uint32_t stretch = 1 + gossip__n_present(g) / 16;
	g->status_at = g->now + (uint64_t)g->config.profile.status_interval * stretch;
	/* Also when nothing is new: this repeats what was lost, and tells those who cannot probe us
	 * that we are alive. */
	g->status_pending = true;
	gossip__publish(g);
	gossip__queue(g, g->members_max, NEWS_STATUS);
}

static void run_timers(struct gossip *g)
{
	gossip__expire_suspects(g);
	gossip__probe_timers(g);
	if (g->now >= g->status_at)
		status_timer(g);
	if (g->now >= g->gossip_at) {
		gossip__spread(g);
		g->gossip_at = g->now + g->config.profile.gossip_interval;
	}
	if (g->now >= g->sync_at)
		gossip__sync_timer(g);
	if (g->now >= g->heal_at)
		gossip__heal(g);
}

static uint64_t next_deadline(const struct gossip *g)
{
	uint64_t times[] = {gossip__probe_deadline(g), g->sync_at, g->heal_at, g->suspects_at,
	        g->n_queued[NEWS_CHANGE] + g->n_queued[NEWS_STATUS] > 0 ? g->gossip_at : NEVER,
	        g->status_at, gossip__sync_busy(g) ? g->now : NEVER};
	uint64_t d = NEVER;
	for (size_t i = 0; i < sizeof times / sizeof *times; i++)
		d = times[i] < d ? times[i] : d;
	return d > g->now ? d : g->now;
}

/* ---- events */

static void keep_sketch(struct gossip *g, const struct member_sketch *s)
{
	if (!gossip_wants_sketch(g, s))
		return;
	g->sketches[gossip__find(g, &s->id)] = *s;
}

static void receive(struct gossip *g, const struct gossip_event *e)
{
	const struct gossip_message *m = e->received.message;
	bool whole = m->kind == MESSAGE_SYNC;
	if (peer_id_equal(&e->received.from, &g->config.self))
		return;
	int n = m->n_updates < GOSSIP_UPDATES_MAX ? m->n_updates : GOSSIP_UPDATES_MAX;
	for (int i = 0; i < n; i++) {
		if (m->update[i].kind == UPDATE_RECORD)
			gossip__record(g, &m->update[i], &e->received.from, &e->received.address,
			        e->received.channel, whole);
		else if (m->update[i].kind == UPDATE_ACCUSATION)
			gossip__accuse(g, &m->update[i], whole);
	}
	uint32_t from = gossip__find(g, &e->received.from);
	if (from != NONE) {
		g->members[from].hearsay = false;
		g->members[from].spoke = g->now;
		gossip__spoke_from(&g->members[from], &e->received.address);
		/* Whoever dials us is up before its first record has made it known. */
		if (e->received.channel == CHANNEL_STREAM)
			g->members[from].connected = g->members[from].met = true;
	}
	switch (m->kind) {
	case MESSAGE_PING:
		gossip__on_ping(g, e);
		if (from == NONE &&
		        (g->n_members < g->members_max || gossip__n_present(g) < g->n_members))
			gossip__sync_back(g, e, true); /* who are you? */
		break;
	case MESSAGE_PING_REQ:
		gossip__on_ping_req(g, e);
		break;
	case MESSAGE_ACK:
		gossip__on_ack(g, e);
		break;
	case MESSAGE_NACK:
		gossip__on_nack(g, e);
		break;
	case MESSAGE_SYNC:
		if (m->want_reply)
			gossip__sync_back(g, e, false);
		break;
	case MESSAGE_SKETCH:
		keep_sketch(g, &m->sketch);
		break;
	default: /* news alone */
		break;
	}
}

static void set_connected(struct gossip *g, const struct gossip_event *e)
{
	uint32_t i = gossip__find(g, &e->peer.id);
	if (i == NONE)
		return;
	g->members[i].connected = e->kind == EVENT_PEER_UP;
	if (e->kind == EVENT_PEER_DOWN)
		return;
	g->members[i].met = true;
	gossip__answered(&g->members[i], &e->peer.address);
}

static bool is_connected(const struct gossip *g, const struct member *m)
{
	(void)g;
	return m->state == MEMBER_ALIVE && m->connected;
}

static void set_own_sketch(struct gossip *g, const struct gossip_event *e)
{
	struct member_sketch *s = &g->sketches[g->members_max];
	if (e->sketch.length > GOSSIP_SKETCH_BYTES)
		return;
	s->id = g->config.self;
	s->generation = gossip__self(g)->record.generation;
	s->step = e->sketch.step;
	s->length = e->sketch.length;
	s->ours = true;
	if (s->length == 0)
		return;
	memcpy(s->bytes, e->sketch.bytes, s->length);
	/* A few hear of it at once: whole states come too rarely for what moves so fast. */
	for (int k = 0; k < SKETCH_FANOUT && g->out->n_sends < GOSSIP_SENDS_MAX; k++) {
		uint32_t i = gossip__pick(g, is_connected);
		if (i == NONE)
			return;
		struct gossip_send *send = gossip__send(g, MESSAGE_SKETCH, CHANNEL_STREAM);
		gossip__send_member(send, &g->members[i]);
		send->message.sketch = *s;
	}
}

static void set_own_address(struct gossip *g, const struct gossip_event *e)
{
	struct member_record *r = &gossip__self(g)->record;
	if (e->address.addrs.n > MEMBER_ADDRS_MAX)
		return;
	r->addrs = e->address.addrs;
	r->dialable = e->address.dialable;
	r->version++;
	gossip__queue(g, g->members_max, NEWS_CHANGE);
}

/* Everyone is told directly as far as one step's sends go; the rest hear it from them. */
static void leave(struct gossip *g)
{
	struct member *self = gossip__self(g);
	gossip__publish(g);
	g->left = true;
	self->record.left = true;
	self->record.incarnation++;
	memset(g->sync, 0, sizeof g->sync);
	uint32_t from = g->n_members ? (uint32_t)rng_below(&g->rng, g->n_members) : 0;
	for (uint32_t k = 0; k < g->n_members; k++) {
		const struct member *m = &g->members[(from + k) % g->n_members];
		if (!gossip__present(m) || (!m->record.dialable && !m->connected))
			continue;
		struct gossip_send *s = gossip__send(
		        g, MESSAGE_GOSSIP, m->connected ? CHANNEL_STREAM : CHANNEL_DATAGRAM);
		if (!s)
			return;
		gossip__send_member(s, m);
		gossip__put_record(g, &s->message, g->members_max);
	}
}

static void hear_samples(struct gossip *g, const struct gossip_event *e)
{
	uint32_t i = gossip__find(g, &e->samples.id);
	if (i != NONE && i < g->members_max && e->samples.count <= GOSSIP_SAMPLES_MAX &&
	        g->members[i].record.status.model == g->status.model)
		gossip__count_samples(g, &g->members[i], e->samples.count);
}

static void handle(struct gossip *g, const struct gossip_event *e)
{
	switch (e->kind) {
	case EVENT_RECEIVED:
		receive(g, e);
		break;
	case EVENT_RESOLVED:
		gossip__resolved(g, e);
		break;
	case EVENT_PEER_UP:
	case EVENT_PEER_DOWN:
		set_connected(g, e);
		break;
	case EVENT_STATUS: {
		uint64_t samples = g->status.samples;
		g->status = e->status;
		if (g->status.samples < samples)
			g->status.samples = samples;
		g->status_pending = true;
		break;
	}
	case EVENT_SKETCH:
		set_own_sketch(g, e);
		break;
	case EVENT_SAMPLES:
		hear_samples(g, e);
		break;
	case EVENT_ADDRESS:
		set_own_address(g, e);
		break;
	case EVENT_REMEMBER:
		gossip__remember(g, &e->remember);
		break;
	case EVENT_FORBIDDEN:
		gossip__forbid(g, &e->peer.id);
		break;
	case EVENT_LEAVE:
		leave(g);
		break;
	case EVENT_CERTIFIED:
		gossip__certify(g, e);
		break;
	default: /* START, TIMER */
		break;
	}
}

void gossip_step(struct gossip *g, const struct gossip_event *e, struct gossip_actions *out)
{
	g->out = out;
	out->n_sends = out->n_notices = out->n_resolve = 0;
	if (!g->started && e->kind != EVENT_START) {
		if (e->kind == EVENT_REMEMBER || e->kind == EVENT_STATUS)
			handle(g, e); /* what may be said before the start */
	} else if (!g->left) {
		if (!g->started) {
			g->caller_now = e->now_ms;
			begin(g);
		}
		pass_time(g, e->now_ms);
		handle(g, e);
		if (!g->left) {
			run_timers(g);
			gossip__sync_pump(g);
		}
	}
	g->deadline = g->started && !g->left ? next_deadline(g) : NEVER;
	out->deadline_ms = g->deadline == NEVER ? NEVER : e->now_ms + (g->deadline - g->now);
	g->out = NULL;
}

/* ---- looking around */

bool gossip_wants(const struct gossip *g, const struct gossip_update *u)
{
	if (u->kind == UPDATE_RECORD)
		return gossip__wants_record(g, &u->record);
	return u->kind == UPDATE_ACCUSATION && gossip__wants_accusation(g, &u->accusation);
}

bool gossip_wants_sketch(const struct gossip *g, const struct member_sketch *s)
{
	uint32_t i = gossip__find(g, &s->id);
	if (i == NONE || s->length == 0 || s->length > GOSSIP_SKETCH_BYTES)
		return false;
	const struct member_sketch *have = &g->sketches[i];
	if (have->length == 0 || s->generation > have->generation)
		return s->generation <= g->members[i].record.generation;
	return s->generation == have->generation && s->step > have->step;
}

uint32_t gossip_count(const struct gossip *g)
{
	return g->n_members;
}

uint32_t gossip_count_state(const struct gossip *g, enum member_state s)
{
	return g->n_state[s];
}

struct member_view gossip_member(const struct gossip *g, uint32_t i)
{
	const struct member *m = &g->members[i];
	uint64_t ago = g->now - m->since;
	return (struct member_view){.record = m->record,
	        .addrs = gossip__addrs(m),
	        .proven = m->proven,
	        .state = m->state,
	        .since_ms = g->caller_now > ago ? g->caller_now - ago : 0,
	        .unreachable = m->unreachable,
	        .connected = m->connected,
	        .label = m->label,
	        .agents = m->agents,
	        .rate = m->rate,
	        .samples = m->samples,
	        .sketch = g->sketches[i].length > 0 ? &g->sketches[i] : NULL};
}

bool gossip_find(const struct gossip *g, const struct peer_id *id, struct member_view *out)
{
	uint32_t i = gossip__find(g, id);
	if (i == NONE)
		return false;
	*out = gossip_member(g, i);
	return true;
}

const struct member_record *gossip_self(const struct gossip *g)
{
	return &g->members[g->members_max].record;
}

uint32_t gossip_health(const struct gossip *g)
{
	return g->health;
}

struct gossip_counters gossip_counters(const struct gossip *g)
{
	return g->counters;
}

uint64_t gossip_clock(const struct gossip *g)
{
	return g->clock;
}

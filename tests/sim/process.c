/* SPDX-License-Identifier: MIT */
/* A process around a core: it starts, hands over events with its host's time, carries out the
 * actions, and ends in one way or another. It keeps the caller's side of the contract: what the
 * core does not want is not verified, what does not verify is left out, and what the core calls its
 * own is signed (in network.c, as it goes out).
 *
 * A host that is paused hears nothing and then everything at once; a slow one hears everything
 * late, in order. */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

static void count_death(struct sim *s, const struct gossip *core, const struct peer_id *id)
{
	struct member_view v;
	int key = truth_key(s, id);
	if (key < 0 || s->key[key].forger || !gossip_find(core, id, &v))
		return;
	bool running = false;
	for (int i = 0; i < s->key[key].n_nodes; i++)
		running |= s->node[s->key[key].node[i]].alive;
	uint64_t *counted = &s->death_counted[2 * key];
	uint64_t g = v.record.generation, i = v.record.incarnation + 1;
	if (!running || g < counted[0] || (g == counted[0] && i <= counted[1]))
		return;
	counted[0] = g;
	counted[1] = i;
	s->stats.false_deaths++;
}

static void hash_send(struct sim *s, const struct gossip_send *send)
{
	const struct gossip_message *m = &send->message;
	uint64_t h = truth_hash(s->hash, (uint64_t)send->channel << 8 | send->to_id);
	h = truth_hash_bytes(h, send->id.bytes, send->to_id ? sizeof send->id.bytes : 0);
	h = truth_hash(h, (uint64_t)send->addrs.at[0].port << 32 | send->addrs.at[0].ip[3]);
	h = truth_hash(h, (uint64_t)m->kind << 16 | (uint64_t)m->want_reply << 8 | m->n_updates);
	if (m->kind <= MESSAGE_PING_REQ)
		h = truth_hash(h, m->nonce);
	for (int i = 0; i < m->n_updates; i++)
		h = truth_hash(h, truth_update(&m->update[i]));
	if (m->kind == MESSAGE_SKETCH)
		h = truth_hash(h, truth_sketch(&m->sketch));
	s->hash = h;
}

static void hash_actions(struct sim *s, uint32_t n, uint8_t kind)
{
	const struct gossip_actions *a = &s->actions;
	s->hash = truth_hash(s->hash, s->now_ms << 16 | n);
	s->hash = truth_hash(s->hash, kind);
	for (int i = 0; i < a->n_sends; i++)
		hash_send(s, &a->send[i]);
	for (int i = 0; i < a->n_notices; i++) {
		s->hash = truth_hash_bytes(s->hash, a->notice[i].id.bytes, 32);
		s->hash = truth_hash(s->hash, a->notice[i].kind);
	}
	for (int i = 0; i < a->n_resolve; i++)
		s->hash = truth_hash(s->hash, (uint64_t)a->resolve[i]);
	s->hash = truth_hash(s->hash, a->deadline_ms);
}

static void say_notice(struct sim *s, uint32_t n, const struct gossip_notice *t)
{
	static const char *const name[] = {"joined", "suspect", "failed", "left", "updated",
	        "unreachable", "reachable", "refuted", "same key", "generation", "refused",
	        "time jump"};
	int key = truth_key(s, &t->id);
	const char *what = t->kind <= NOTICE_TIME_JUMP ? name[t->kind] : "?";
	if (key >= 0)
		sim_say(s, "n%u: %s n%d", n, what, key);
	else
		sim_say(s, "n%u: %s %llu", n, what, (unsigned long long)t->value);
}

static void carry_out(struct sim *s, uint32_t n)
{
	struct sim_node *p = &s->node[n];
	const struct gossip_actions *a = &s->actions;
	for (int i = 0; i < a->n_notices; i++) {
		const struct gossip_notice *t = &a->notice[i];
		if (s->config.verbose)
			say_notice(s, n, t);
		if (t->kind == NOTICE_GENERATION && t->value > p->generation)
			p->generation = t->value;
		p->told_same_key |= t->kind == NOTICE_SAME_KEY;
		if (t->kind == NOTICE_FAILED)
			count_death(s, p->core, &t->id);
	}
	s->stats.sends += (uint64_t)a->n_sends;
	for (int i = 0; i < a->n_sends; i++) {
		s->stats.bytes += gossip_message_bytes(&a->send[i].message);
		network_send(s, n, &a->send[i]);
	}
	for (int i = 0; i < a->n_resolve; i++)
		network_resolve(s, n, a->resolve[i]);
	p->deadline_ms = a->deadline_ms;
	sim_arm(s, n);
}

void sim_step(struct sim *s, uint32_t n, struct gossip_event *e)
{
	struct sim_node *p = &s->node[n];
	e->now_ms = sim_local(s, p);
	s->actions.n_sends = s->actions.n_notices = s->actions.n_resolve = -1;
	if (e->kind != EVENT_TIMER)
		p->spins = 0;
	gossip_step(p->core, e, &s->actions);
	s->stats.steps++;
	if (s->config.check) {
		check_step(s, n, e);
		if (s->failed)
			return;
		hash_actions(s, n, e->kind);
	}
	carry_out(s, n);
}

/* What a program does before it believes: drop what is not wanted, then what is not genuine. */
static void sift(struct sim *s, const struct gossip *core, struct gossip_message *m)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < m->n_updates; i++) {
		const struct gossip_update *u = &m->update[i];
		if (!gossip_wants(core, u)) {
			s->stats.unwanted++;
		} else if (!truth_verify(s, u)) {
			s->stats.forged++;
		} else {
			if (kept != i)
				m->update[kept] = *u;
			kept++;
		}
	}
	m->n_updates = (uint8_t)kept;
}

static void receive_message(struct sim *s, uint32_t n, struct sim_packet *p)
{
	struct gossip_event e = {.kind = EVENT_RECEIVED};
	struct gossip *core = s->node[n].core;
	sift(s, core, &p->message);
	if (p->message.kind == MESSAGE_SKETCH &&
	        (!gossip_wants_sketch(core, &p->message.sketch) ||
	                !truth_verify_sketch(s, &p->message.sketch)))
		return;
	e.received.from = s->key[s->node[p->parcel.from].key].id;
	e.received.address = p->source;
	e.received.channel = p->channel;
	e.received.message = &p->message;
	sim_step(s, n, &e);
}

static void receive_resolved(struct sim *s, uint32_t n, const struct sim_packet *p)
{
	struct gossip_event e = {.kind = EVENT_RESOLVED};
	uint32_t seed = s->node[n].seed_node[p->seed];
	e.resolved.seed = p->seed;
	if (!sim_chance(s, s->resolve_failure)) {
		/* Sometimes with an address beside it where nobody ever was. */
		if (sim_chance(s, 0.2)) {
			e.resolved.address[0] = (struct peer_addr){.family = 4, .port = 7000};
			memcpy(e.resolved.address[0].ip, (uint8_t[]){192, 0, 2, 1}, 4);
			e.resolved.n = 1;
		}
		e.resolved.address[e.resolved.n++] = s->node[seed].addr;
	}
	sim_step(s, n, &e);
}

void sim_receive(struct sim *s, uint32_t packet)
{
	struct sim_packet *p = sim_packet(s, packet);
	uint32_t n = p->parcel.to;
	struct sim_node *node = &s->node[n];
	if (!node->alive || (p->parcel.life && p->parcel.life != node->life)) {
		simnet_parcel_free(&s->net, packet);
		return;
	}
	if (s->now_ms < node->frozen_until) {
		sim_push(s, node->frozen_until, SIM_ARRIVE, packet, 0);
		return;
	}
	if (node->slow_ms && !p->late) {
		uint64_t at = s->now_ms + sim_between(s, 0, node->slow_ms);
		if (at < node->handled_ms)
			at = node->handled_ms;
		node->handled_ms = at;
		p->late = true;
		sim_push(s, at, SIM_ARRIVE, packet, 0);
		return;
	}
	struct gossip_event e = {.kind = p->kind == PACKET_UP ? EVENT_PEER_UP : EVENT_PEER_DOWN};
	if (node->forger) {
		forger_receive(s, n, p);
	} else if (p->kind == PACKET_MESSAGE) {
		receive_message(s, n, p);
	} else if (p->kind == PACKET_RESOLVED) {
		receive_resolved(s, n, p);
	} else {
		e.peer.id = p->id;
		e.peer.address = p->source;
		sim_step(s, n, &e);
	}
	simnet_parcel_free(&s->net, packet);
}

/* The trainer did some work and tells of it; now and then it has a new sketch. */
void sim_train(struct sim *s, uint32_t n)
{
	struct sim_node *p = &s->node[n];
	if (!p->alive || !p->core || s->quiet)
		return;
	uint64_t batch = sim_between(s, 1, 500);
	p->samples += batch;
	s->key[p->key].samples += batch;
	struct gossip_event e = {.kind = EVENT_STATUS};
	e.status = (struct member_status){.model = 7, .step = ++p->step, .samples = p->samples};
	e.status.loss = 1.0f / (float)(1 + p->step);
	if (s->now_ms >= p->frozen_until)
		sim_step(s, n, &e);
	if (p->step % 16 == 1 && !s->failed && s->now_ms >= p->frozen_until) {
		uint8_t bytes[GOSSIP_SKETCH_BYTES];
		memset(bytes, (int)(p->step & 255), sizeof bytes);
		e = (struct gossip_event){.kind = EVENT_SKETCH};
		e.sketch.step = p->step;
		e.sketch.length = (uint16_t)sim_between(s, 0, GOSSIP_SKETCH_BYTES);
		e.sketch.bytes = bytes;
		sim_step(s, n, &e);
	}
	/* A timer that is early does no harm. */
	e = (struct gossip_event){.kind = EVENT_TIMER};
	if (s->config.check && !s->failed && s->now_ms >= p->frozen_until && sim_chance(s, 0.1))
		sim_step(s, n, &e);
	uint64_t every = s->config.status_every_ms;
	sim_push(s, s->now_ms + sim_between(s, every / 2, every * 3 / 2), SIM_STATUS, n, p->life);
}

/* One in four is reached by IPv6 alone. Half of them have one address; some name others at which
 * nobody is, or can be, before or behind the one that works. */
void sim_tell_addrs(struct sim_node *p, uint32_t n, uint32_t kind)
{
	uint8_t high = (uint8_t)(n >> 8), low = (uint8_t)n;
	struct peer_addr four = {4, {10, 0, high, low}, 7000},
	                 six = {6, {0xfd, [14] = high, low}, 7000};
	struct peer_addr nobody = {4, {192, 0, 2, 1}, 7000}, any = {4, {0}, 7000};
	p->addr = kind % 4 == 3 ? six : four;
	switch (kind / 4 % 8) {
	case 0:
	case 1:
		p->told = (struct peer_addrs){2, {nobody, p->addr}};
		break;
	case 2:
		p->told = (struct peer_addrs){2, {p->addr, nobody}};
		break;
	case 3:
		p->told = (struct peer_addrs){4, {any, nobody, p->addr, p->addr}};
		break;
	default:
		p->told = (struct peer_addrs){1, {p->addr}};
	}
}

static void make_core(struct sim *s, uint32_t n, struct gossip_config *c)
{
	struct sim_node *p = &s->node[n];
	struct err e = {0};
	p->memory_bytes = gossip_size(c);
	free(p->memory);
	p->memory = calloc(1, p->memory_bytes + SIM_CANARY_BYTES);
	if (!p->memory)
		abort();
	memset(p->memory + p->memory_bytes, SIM_CANARY, SIM_CANARY_BYTES);
	if (gossip_init(&p->core, p->memory, p->memory_bytes, c, &e)) {
		p->core = NULL;
		sim_fail(s, "n%u: gossip_init: %s", n, e.msg);
	}
}

void sim_start(struct sim *s, uint32_t n, bool with_state)
{
	struct sim_node *p = &s->node[n];
	/* What a peer still takes for a stream is refused by the host that is back. */
	network_stopped(s, n, true);
	if (!with_state)
		p->generation = p->samples = 0, p->n_remembered = 0;
	p->generation++;
	p->nonce = rng_u64(&s->rng);
	struct gossip_config c = {.profile = s->config.profile,
	        .self = s->key[p->key].id,
	        .generation = p->generation,
	        .nonce = p->nonce,
	        .seed = rng_u64(&s->rng),
	        .addrs = p->told,
	        .dialable = p->dialable,
	        .protocol_min = 1,
	        .protocol_max = 2,
	        .n_seeds = p->n_seeds};
	c.status.samples = p->samples;
	c.status.model = 7;
	c.members_max = s->config.members_max;
	make_core(s, n, &c);
	if (s->failed)
		return;
	p->alive = true;
	p->refuses = p->told_same_key = p->still = false;
	p->life++;
	p->step = 0;
	p->timer_at_ms = SIM_NEVER;
	p->started_ms = s->now_ms;
	p->frozen_until = p->slow_ms = 0;
	sim_say(s, "n%u: starts, generation %llu%s%s", n, (unsigned long long)p->generation,
	        p->dialable ? "" : ", cannot be dialled", with_state ? "" : ", nothing kept");
	check_started(s, n);
	struct gossip_event e = {.kind = EVENT_START};
	sim_step(s, n, &e);
	for (int i = 0; i < p->n_remembered && !s->failed; i++) {
		e = (struct gossip_event){.kind = EVENT_REMEMBER, .remember = p->remembered[i]};
		sim_step(s, n, &e);
	}
	if (s->config.status_every_ms)
		sim_push(s, s->now_ms + sim_between(s, 0, s->config.status_every_ms), SIM_STATUS, n,
		        p->life);
}

void sim_stop(struct sim *s, uint32_t n, bool refuses)
{
	struct sim_node *p = &s->node[n];
	if (!p->alive)
		return;
	sim_say(s, "n%u: is gone%s", n, refuses ? ", its host answers" : "");
	/* What is kept on disk: the count as it was published, with that of lost lives in it. */
	uint64_t published = p->core ? gossip_self(p->core)->status.samples : 0;
	if (published > p->samples)
		p->samples = published;
	p->n_remembered = 0;
	for (uint32_t i = 0; p->core && i < gossip_count(p->core); i++) {
		struct member_view m = gossip_member(p->core, i);
		if (p->n_remembered < SIM_REMEMBERED && m.addrs.n > 0)
			p->remembered[p->n_remembered++] = m.addrs.at[0];
	}
	p->alive = false;
	p->refuses = refuses;
	p->core = NULL;
	network_stopped(s, n, refuses);
}

void sim_leave(struct sim *s, uint32_t n)
{
	struct gossip_event e = {.kind = EVENT_LEAVE};
	if (!s->node[n].alive || !s->node[n].core)
		return;
	sim_say(s, "n%u: leaves", n);
	sim_step(s, n, &e);
	/* The streams carry what was handed to them before they are closed. */
	if (!s->failed)
		sim_stop(s, n, false);
}

void sim_move(struct sim *s, uint32_t n)
{
	struct sim_node *p = &s->node[n];
	struct gossip_event e = {.kind = EVENT_ADDRESS};
	if (!p->alive || !p->core || s->now_ms < p->frozen_until)
		return;
	p->addr.port++;
	for (int i = 0; i < p->told.n; i++)
		p->told.at[i].port++;
	sim_say(s, "n%u: moves to port %u", n, p->addr.port);
	e.address.addrs = p->told;
	e.address.dialable = p->dialable;
	sim_step(s, n, &e);
}

/* SPDX-License-Identifier: MIT */
/* Notes of the methods: timers, and transfers over links that are shared.
 *
 *     sim_send ─► flow over uplink, trunks of regions, downlink ─► + latency ─► noted
 *                     └─ an end is gone, or a partition ────────────────────► drop
 *
 * links.h counts in its own unit of time; here that is a microsecond, so capacities are given as
 * thousandths. What can fail: memory. */
#include "agent/simulate/engine_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

static uint32_t region_of(const struct sim *s, uint32_t host)
{
	return host == s->n ? 0 : host % (uint32_t)s->scenario->network.regions;
}

static uint32_t uplink(uint32_t host)
{
	return 2 * host;
}

static uint32_t trunk(const struct sim *s, uint32_t region)
{
	return 2 * (s->n + 1) + 2 * region;
}

static double mbit(double v)
{
	return v * 1e6 / 8 / 1000; /* bytes a thousandth of a second: see above */
}

int sim__links_open(struct sim *s, struct err *e)
{
	const struct scenario *c = s->scenario;
	const uint32_t regions = (uint32_t)c->network.regions;

	(void)e;
	sim_links_init(&s->links, 2 * (s->n + 1) + 2 * regions);
	for (uint32_t i = 0; i <= s->n; i++) {
		const bool server = i == s->n;

		sim_links_capacity(&s->links, uplink(i),
		        mbit(server ? c->network.server_mbit : c->network.up_mbit), 0);
		sim_links_capacity(&s->links, uplink(i) + 1,
		        mbit(server ? c->network.server_mbit : c->network.down_mbit), 0);
	}
	for (uint32_t r = 0; r < regions && c->network.region_mbit > 0; r++) {
		sim_links_capacity(&s->links, trunk(s, r), mbit(c->network.region_mbit), 0);
		sim_links_capacity(&s->links, trunk(s, r) + 1, mbit(c->network.region_mbit), 0);
	}
	return 0;
}

void sim__links_close(struct sim *s)
{
	sim_links_close(&s->links);
	free(s->slot);
	free(s->flow_slot);
}

uint64_t sim_latency(const struct sim *s, uint32_t a, uint32_t b)
{
	double ms = s->scenario->network.latency_ms;

	if (region_of(s, a) != region_of(s, b))
		ms += s->scenario->network.region_latency_ms;
	return (uint64_t)llround(ms * 1000);
}

/* Rates have changed: when these flows are through now. */
static void note_changes(struct sim *s)
{
	for (uint32_t k = 0; k < s->links.n_changed; k++) {
		const uint32_t f = s->links.changed[k];
		const struct links_flow *flow = &s->links.flow[f];

		if (flow->end_ms != LINKS_NEVER)
			sim__push(s, flow->end_ms, SIM_FLOW, f, flow->version);
	}
}

static int new_slot(struct sim *s, const struct sim_note *n, uint32_t *out, struct err *e)
{
	if (!s->free_slot) {
		const uint32_t room = s->n_slots ? 2 * s->n_slots : 64;
		struct sim_slot *more = realloc(s->slot, room * sizeof *more);

		if (!more)
			return err_set(e, ERR_NOMEM, "no memory for a transfer");
		s->slot = more;
		for (uint32_t j = room; j-- > s->n_slots;) {
			more[j] = (struct sim_slot){.next = s->free_slot};
			s->free_slot = j + 1;
		}
		s->n_slots = room;
	}
	const uint32_t k = s->free_slot - 1;

	s->free_slot = s->slot[k].next;
	s->n_used++;
	s->slot[k].used = true;
	s->slot[k].note = *n;
	s->slot[k].flow = 0;
	s->slot[k].parameters = false;
	*out = k;
	return 0;
}

static void free_slot(struct sim *s, uint32_t k)
{
	s->slot[k].used = false;
	s->slot[k].turn++;
	s->slot[k].next = s->free_slot;
	s->free_slot = k + 1;
	s->n_used--;
}

int sim_timer(struct sim *s, uint64_t after_us, const struct sim_note *n, struct err *e)
{
	uint32_t k;
	int rc = new_slot(s, n, &k, e);

	assert(n->bytes == 0);
	if (rc)
		return rc;
	sim__push(s, s->now_us + after_us, SIM_NOTE, k, s->slot[k].turn);
	return 0;
}

/* Remembers which slot a flow belongs to. */
static int keep_flow(struct sim *s, uint32_t flow, uint32_t slot, struct err *e)
{
	if (flow >= s->n_flow_slots) {
		const uint32_t room = 2 * flow + 64;
		uint32_t *more = realloc(s->flow_slot, room * sizeof *more);

		if (!more)
			return err_set(e, ERR_NOMEM, "no memory for a transfer");
		s->flow_slot = more;
		s->n_flow_slots = room;
	}
	s->flow_slot[flow] = slot;
	s->slot[slot].flow = flow;
	return 0;
}

int sim_send(struct sim *s, const struct sim_note *n, bool parameters, struct err *e)
{
	const uint32_t from = region_of(s, n->from), to = region_of(s, n->to);
	uint32_t path[LINKS_PATH], k, flow;
	uint8_t n_path = 0;
	int rc = new_slot(s, n, &k, e);

	assert(n->bytes > 0 && n->from != n->to);
	if (rc)
		return rc;
	if (!sim_reaches(s, n->from, n->to)) {
		sim__push(s, s->now_us, SIM_LOST, k, s->slot[k].turn);
		return 0;
	}
	s->slot[k].parameters = parameters;
	s->bytes += n->bytes;
	path[n_path++] = uplink(n->from);
	if (from != to && s->scenario->network.region_mbit > 0) {
		path[n_path++] = trunk(s, from);
		path[n_path++] = trunk(s, to) + 1;
	}
	path[n_path++] = uplink(n->to) + 1;
	flow = sim_links_start(&s->links, n->bytes, path, n_path, s->now_us);
	note_changes(s);
	return keep_flow(s, flow, k, e);
}

int sim__flow_ended(struct sim *s, uint32_t flow, uint32_t version, struct err *e)
{
	(void)e;
	if (!sim_links_current(&s->links, flow, version))
		return 0;
	const uint32_t k = s->flow_slot[flow];
	const struct sim_note *n = &s->slot[k].note;

	sim_links_stop(&s->links, flow, s->now_us);
	note_changes(s);
	s->slot[k].flow = 0;
	sim__push(s, s->now_us + sim_latency(s, n->from, n->to), SIM_NOTE, k, s->slot[k].turn);
	return 0;
}

static bool host_live(const struct sim *s, uint32_t host)
{
	return host == s->n || s->agent[host].live;
}

int sim__deliver(struct sim *s, uint32_t slot, uint32_t turn, bool lost, struct err *e)
{
	struct sim_slot *k = &s->slot[slot];
	const struct sim_note n = k->note;
	const uint32_t host = n.bytes ? n.to : n.from;

	if (!k->used || k->turn != turn)
		return 0;
	if (!lost && host < s->n && s->agent[host].paused && s->agent[host].live) {
		sim__push(s, s->agent[host].paused_until_us, SIM_NOTE, slot, turn);
		return 0;
	}
	lost = lost || !host_live(s, host) || (n.bytes && !sim_reaches(s, n.from, n.to));
	if (!lost && k->parameters && n.from < s->n && n.to < s->n)
		s->run.met[(size_t)n.from * s->n + n.to]++;
	free_slot(s, slot);
	if (!lost)
		return s->method->noted(s, &n, e);
	if (s->method->drop)
		s->method->drop(s, &n);
	return 0;
}

static void drop_slot(struct sim *s, uint32_t k)
{
	const struct sim_note n = s->slot[k].note;

	if (s->slot[k].flow) {
		sim_links_stop(&s->links, s->slot[k].flow, s->now_us);
		note_changes(s);
	}
	free_slot(s, k);
	if (s->method->drop)
		s->method->drop(s, &n);
}

void sim__drop_unreachable(struct sim *s)
{
	for (uint32_t k = 0; k < s->n_slots; k++) {
		const struct sim_note *n = &s->slot[k].note;

		if (!s->slot[k].used)
			continue;
		if (n->bytes ? !sim_reaches(s, n->from, n->to) : !host_live(s, n->from))
			drop_slot(s, k);
	}
}

void sim__drop_all(struct sim *s)
{
	for (uint32_t k = 0; k < s->n_slots; k++)
		if (s->slot[k].used)
			drop_slot(s, k);
}

uint64_t sim_model_bytes(const struct sim *s)
{
	const uint64_t word = s->scenario->method.wire == SIM_WIRE_BF16 ? 2 : 4;

	return s->run.parameters * word;
}

/* The faster of ring, 2(n − 1)(S/(nB) + λ), and halving-doubling, 2(n − 1)/n·S/B + 2⌈log2 n⌉λ: S
 * bytes, B the narrowest link, λ the longest latency. */
uint64_t sim_allreduce(const struct sim *s, uint64_t bytes, uint64_t *total_bytes)
{
	const struct scenario *c = s->scenario;
	const double n = s->n_live, size = (double)bytes;
	const double link = 1e6 / 8 * fmin(c->network.up_mbit, c->network.down_mbit);
	const double lambda = (c->network.latency_ms +
	                              (c->network.regions > 1 ? c->network.region_latency_ms : 0)) /
	                      1000;
	double rounds = 0, trunk_s = 0;

	*total_bytes = 0;
	if (s->n_live < 2)
		return 0;
	while ((double)(1ull << (int)rounds) < n)
		rounds++;
	/* In a ring sorted by region each trunk carries what one agent sends. */
	if (c->network.regions > 1 && c->network.region_mbit > 0)
		trunk_s = 2 * (n - 1) / n * size / (c->network.region_mbit * 1e6 / 8);
	const double ring = 2 * (n - 1) * (size / (n * link) + lambda);
	const double halving = 2 * (n - 1) / n * size / link + 2 * rounds * lambda;

	*total_bytes = (uint64_t)llround(2 * (n - 1) * size);
	return (uint64_t)llround(fmax(fmin(ring, halving), trunk_s) * 1e6);
}

static void add(double *sum, double v)
{
	*sum = isnan(*sum) ? v : *sum + v;
}

uint64_t sim_allreduce_model(struct sim *s)
{
	uint64_t full, half;
	const uint64_t full_us = sim_allreduce(s, 4 * s->run.parameters, &full);
	const uint64_t half_us = sim_allreduce(s, 2 * s->run.parameters, &half);
	const bool bf16 = s->scenario->method.wire == SIM_WIRE_BF16;

	add(&s->run.fp32_s, (double)full_us / SIM_S);
	add(&s->run.fp32_bytes, (double)full);
	add(&s->run.bf16_s, (double)half_us / SIM_S);
	add(&s->run.bf16_bytes, (double)half);
	sim_count(s, bf16 ? half : full, 1);
	return bf16 ? half_us : full_us;
}

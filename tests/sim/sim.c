/* SPDX-License-Identifier: MIT */
/* The loop: what comes next by the virtual clock happens, and whatever follows from it is put into
 * the queue. Nothing ever happens inside of something else, so a step of a core is never entered
 * twice. A violated invariant is kept as the run's failure and ends the loop. */
#include "tests/sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAT_DOOR_MS 30000

void sim_fail(struct sim *s, const char *fmt, ...)
{
	if (s->failed)
		return;
	va_list args;
	int n = snprintf(s->failure, sizeof s->failure, "at %.3f s: ", (double)s->now_ms / 1000);
	va_start(args, fmt);
	vsnprintf(s->failure + n, sizeof s->failure - (size_t)n, fmt, args);
	va_end(args);
	s->failed = true;
	sim_say(s, "FAILED %s", s->failure);
}

void sim_say(struct sim *s, const char *fmt, ...)
{
	if (!s->config.verbose)
		return;
	va_list args;
	printf("%9.3f  ", (double)s->now_ms / 1000);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	putchar('\n');
}

void sim_push(struct sim *s, uint64_t at_ms, uint32_t kind, uint32_t a, uint32_t b)
{
	simnet_push(&s->net, at_ms - s->now_ms, kind, a, b);
}

bool sim_chance(struct sim *s, double p)
{
	return simnet_chance(&s->net, p);
}

uint64_t sim_between(struct sim *s, uint64_t low, uint64_t high)
{
	return simnet_between(&s->net, low, high);
}

uint64_t sim_local(const struct sim *s, const struct sim_node *p)
{
	return p->still ? p->still_ms : s->now_ms + p->offset_ms;
}

/* Sets a node's timer. An entry that is early stays: it will find that it is early. */
void sim_arm(struct sim *s, uint32_t n)
{
	struct sim_node *p = &s->node[n];
	if (!p->alive || !p->core || p->still)
		return;
	uint64_t local = sim_local(s, p), at = s->now_ms;
	if (p->deadline_ms > local && __builtin_add_overflow(at, p->deadline_ms - local, &at))
		at = SIM_NEVER;
	if (at < p->timer_at_ms) {
		p->timer_at_ms = at;
		sim_push(s, at, SIM_TIMER, n, ++p->timer);
	}
}

static void timer(struct sim *s, uint32_t n, uint32_t which)
{
	struct sim_node *p = &s->node[n];
	if (which != p->timer || !p->alive || !p->core)
		return;
	p->timer_at_ms = SIM_NEVER;
	if (s->now_ms < p->frozen_until) {
		p->timer_at_ms = p->frozen_until;
		sim_push(s, p->frozen_until, SIM_TIMER, n, ++p->timer);
		return;
	}
	if (p->still || sim_local(s, p) < p->deadline_ms) {
		sim_arm(s, n);
		return;
	}
	if (p->spin_ms != s->now_ms) {
		p->spin_ms = s->now_ms;
		p->spins = 0;
	}
	if (++p->spins > 1000)
		sim_fail(s, "busy: n%u asks for 1,000 timers at one time", n);
	struct gossip_event e = {.kind = EVENT_TIMER};
	sim_step(s, n, &e);
}

static void happen(struct sim *s, const struct sim_entry *e)
{
	switch (e->kind) {
	case SIM_TIMER:
		timer(s, e->a, e->b);
		break;
	case SIM_ARRIVE:
		sim_receive(s, e->a);
		break;
	case SIM_DIAL:
		network_dial(s, e->a, e->b);
		break;
	case SIM_STREAM:
		network_stream(s, e->a, e->b);
		break;
	case SIM_BREAK:
		network_break(s, e->a, e->b);
		break;
	case SIM_STATUS:
		if (s->node[e->a].life == e->b)
			sim_train(s, e->a);
		break;
	case SIM_FAULT:
		faults_apply(s, e->a, e->b != 0);
		break;
	case SIM_FORGE:
		forger_act(s, e->a);
		break;
	default:
		abort();
	}
}

void sim_run(struct sim *s, uint64_t until_ms)
{
	struct sim_entry e;
	sim_push(s, until_ms, SIM_RUN_END, 0, 0);
	while (!s->failed && simnet_next(&s->net, SIM_NEVER, &e)) {
		if (e.kind == SIM_RUN_END)
			return;
		happen(s, &e);
	}
}

void sim_set_weather(struct sim *s, const struct sim_weather *w)
{
	s->loss = w->loss;
	s->duplicate = w->duplicate;
	s->delay_ms = w->delay_ms;
	s->jitter_ms = w->jitter_ms;
	s->resolve_failure = w->resolve_failure;
}

void sim_init(struct sim *s, const struct sim_config *c)
{
	memset(s, 0, sizeof *s);
	s->n_nodes = c->slots ? c->slots : c->nodes;
	s->node = calloc(s->n_nodes, sizeof *s->node);
	if (!s->node)
		abort();
	simnet_init(&s->net, s->n_nodes, s->node, sizeof *s->node, sizeof(struct sim_packet));
	s->nat_ms = NAT_DOOR_MS;
	s->config = *c;
	sim_set_weather(s, &c->weather);
	s->n_keys = s->n_nodes + c->extra_keys;
	if (!c->members_max)
		s->config.members_max = 2 * s->n_keys + 16;
	rng_seed(&s->rng, c->seed, 0x51a1);
	s->key = calloc(s->n_keys, sizeof *s->key);
	s->dial = calloc((size_t)s->n_nodes * s->n_nodes, sizeof *s->dial);
	s->death_counted = calloc(2 * (size_t)s->n_keys, sizeof *s->death_counted);
	if (!s->key || !s->dial || !s->death_counted)
		abort();
	for (uint32_t i = 0; i < s->n_keys; i++)
		truth_make_id(s, i);
	for (uint32_t i = 0; i < s->n_nodes; i++) {
		struct sim_node *p = &s->node[i];
		p->key = i;
		s->key[i].node[s->key[i].n_nodes++] = i;
		sim_tell_addrs(p, i, c->check ? (uint32_t)rng_mix(c->seed, i, 0xadd7) : 28);
		p->dialable = true;
		p->timer_at_ms = SIM_NEVER;
		p->offset_ms = 1000000000 + sim_between(s, 0, 1000000000);
		/* The first node is everybody's seed; a node may well be its own. */
		p->n_seeds = (int)sim_between(s, 1, SIM_SEEDS_PER_NODE);
		for (int k = 1; k < p->n_seeds; k++)
			p->seed_node[k] = (uint32_t)sim_between(s, 0, c->nodes - 1);
	}
}

void sim_close(struct sim *s)
{
	for (uint32_t i = 0; i < s->n_nodes; i++) {
		free(s->node[i].memory);
		free(s->node[i].shadow);
	}
	simnet_close(&s->net);
	free(s->node);
	free(s->key);
	free(s->dial);
	free(s->published);
	free(s->caught);
	free(s->death_counted);
}

/* SPDX-License-Identifier: MIT */
/* The script of a seed: a few faults drawn from all there are, each with its time, its end and its
 * victims. They may overlap in any way. When faults stop, everything that can be mended is: links,
 * clocks, weather; processes that are gone stay gone. The first node is everybody's seed: it may
 * crash and come back, but it is there in the end, for no flock can find itself without one. */
#include "tests/sim/sim.h"

#include <string.h>

static const char *const names[FAULT_KINDS] = {"partition", "one-way", "bridge", "isolate", "slow",
        "pause", "crash", "restart", "restart-lost", "leave", "leave-return", "clock-forward",
        "clock-back", "clock-still", "late-join", "twin", "weather", "move", "forger", "sybils"};

const char *fault_name(int kind)
{
	return kind >= 0 && kind < FAULT_KINDS ? names[kind] : "?";
}

static void draw_value(struct sim *s, struct sim_fault *f)
{
	switch (f->kind) {
	case FAULT_PARTITION:
		f->value = sim_between(s, 2, 3);
		break;
	case FAULT_SLOW:
		f->value = sim_between(s, 200, 4000);
		break;
	case FAULT_CLOCK_FORWARD:
		f->value = sim_chance(s, 0.5) ? sim_between(s, 1000, 60000)
		                              : sim_between(s, 60000, 6 * 3600000);
		break;
	case FAULT_CLOCK_BACK:
		f->value = sim_between(s, 100, 10000);
		break;
	default:
		f->value = rng_u64(&s->rng);
	}
}

static void add(struct sim *s, uint8_t kind, uint64_t from_ms, uint64_t to_ms)
{
	struct sim_fault *f = &s->fault[s->n_faults++];
	uint32_t nodes = s->config.nodes;
	f->kind = kind;
	f->from_ms = sim_between(s, from_ms, to_ms);
	f->to_ms = sim_between(s, f->from_ms, to_ms);
	f->node = (uint32_t)sim_between(s, 0, nodes - 1);
	f->other = (f->node + (uint32_t)sim_between(s, 1, nodes - 1)) % nodes;
	bool first_stays = kind == FAULT_CRASH || kind == FAULT_LEAVE || kind == FAULT_LATE_JOIN ||
	                   kind == FAULT_MOVE || kind == FAULT_TWIN;
	if (first_stays && f->node == 0)
		f->node = (uint32_t)sim_between(s, 1, nodes - 1);
	if (kind == FAULT_TWIN) {
		f->other = nodes; /* the slot that is kept for it */
		s->node[nodes].n_seeds = 1;
	}
	if (kind == FAULT_FORGER || kind == FAULT_SYBILS)
		f->node = nodes + 1;
	draw_value(s, f);
}

void faults_draw(struct sim *s, uint64_t from_ms, uint64_t to_ms)
{
	int n = (int)sim_between(s, 1, 10);
	bool twin = false, forger = false;
	while (n-- > 0) {
		uint8_t kind = (uint8_t)sim_between(s, 0, FAULT_KINDS - 1);
		/* There is one slot for each of these; sybils have seeds of their own. */
		if (kind == FAULT_SYBILS || (kind == FAULT_TWIN && twin) ||
		        (kind == FAULT_FORGER && forger))
			continue;
		twin |= kind == FAULT_TWIN;
		forger |= kind == FAULT_FORGER;
		add(s, kind, from_ms, to_ms);
	}
}

void faults_add(struct sim *s, uint8_t kind, uint64_t from_ms, uint64_t to_ms)
{
	if (s->n_faults < SIM_FAULTS)
		add(s, kind, from_ms, to_ms);
}

static void set_still(struct sim *s, uint32_t n, bool still)
{
	struct sim_node *p = &s->node[n];
	if (still == p->still)
		return;
	if (still) {
		p->still_ms = sim_local(s, p);
		p->still = true;
	} else {
		p->still = false;
		p->offset_ms = p->still_ms - s->now_ms;
		sim_arm(s, n);
	}
}

static void begin_link_fault(struct sim *s, const struct sim_fault *f)
{
	struct sim_node *p = &s->node[f->node];
	uint64_t bits = f->value;
	switch (f->kind) {
	case FAULT_PARTITION:
		for (uint32_t i = 0; i < s->n_nodes; i++)
			s->node[i].group = (uint32_t)sim_between(s, 0, f->value - 1);
		break;
	case FAULT_ONE_WAY:
		simnet_way(&s->net, f->node, f->other)->blocked = true;
		for (uint32_t i = 0; i < s->n_nodes; i++)
			if (i != f->node && bits >> (i & 63) & 1 && bits & 0x8000)
				simnet_way(&s->net, f->node, i)->blocked = true;
		break;
	case FAULT_BRIDGE:
		simnet_way(&s->net, f->node, f->other)->blocked = true;
		simnet_way(&s->net, f->other, f->node)->blocked = true;
		break;
	case FAULT_ISOLATE:
		p->isolated = true;
		break;
	default:
		s->loss = (double)sim_between(s, 0, 50) / 100;
		s->duplicate = (double)sim_between(s, 0, 30) / 100;
		s->jitter_ms = (uint32_t)sim_between(s, 0, 1500);
		s->resolve_failure = 0.5;
	}
}

static void begin_host_fault(struct sim *s, const struct sim_fault *f)
{
	struct sim_node *p = &s->node[f->node];
	switch (f->kind) {
	case FAULT_SLOW:
		p->slow_ms = (uint32_t)f->value;
		break;
	case FAULT_PAUSE:
		p->frozen_until = f->to_ms;
		break;
	case FAULT_CLOCK_FORWARD:
		p->offset_ms += f->value;
		sim_arm(s, f->node);
		break;
	case FAULT_CLOCK_BACK:
		p->offset_ms -= f->value;
		break;
	case FAULT_CLOCK_STILL:
		set_still(s, f->node, true);
		break;
	case FAULT_MOVE:
		sim_move(s, f->node);
		break;
	default:
		break;
	}
}

static void begin_process_fault(struct sim *s, const struct sim_fault *f)
{
	bool refuses = f->value & 1;
	switch (f->kind) {
	case FAULT_CRASH:
	case FAULT_RESTART:
	case FAULT_RESTART_LOST:
		sim_stop(s, f->node, refuses);
		break;
	case FAULT_LEAVE:
	case FAULT_LEAVE_RETURN:
		if (s->now_ms >= s->node[f->node].frozen_until)
			sim_leave(s, f->node);
		break;
	case FAULT_TWIN:
		/* Somebody copies the key to another machine, with or without the state. */
		if (s->node[f->other].alive)
			break;
		s->node[f->other].generation = f->value & 2 ? s->node[f->node].generation - 1 : 0;
		s->liar = true; /* two counts under one name */
		s->key[f->other].n_nodes = 0;
		s->node[f->other].key = s->node[f->node].key;
		s->key[s->node[f->node].key].node[1] = f->other;
		s->key[s->node[f->node].key].n_nodes = 2;
		sim_start(s, f->other, f->value & 2 && s->node[f->node].generation > 0);
		break;
	case FAULT_SYBILS:
		s->sybils = true;
		s->liar = true; /* counts of those for whom some had room and others had none */
		forger_start(s, f->node);
		break;
	case FAULT_FORGER:
		forger_start(s, f->node);
		break;
	default:
		break;
	}
}

static void end_fault(struct sim *s, const struct sim_fault *f)
{
	switch (f->kind) {
	case FAULT_PARTITION:
		for (uint32_t i = 0; i < s->n_nodes; i++)
			s->node[i].group = 0;
		break;
	case FAULT_ONE_WAY:
	case FAULT_BRIDGE:
		for (uint32_t i = 0; i < s->n_nodes * s->n_nodes; i++)
			s->net.way[i].blocked = false;
		break;
	case FAULT_ISOLATE:
		s->node[f->node].isolated = false;
		break;
	case FAULT_SLOW:
		s->node[f->node].slow_ms = 0;
		break;
	case FAULT_CLOCK_STILL:
		set_still(s, f->node, false);
		break;
	case FAULT_RESTART:
	case FAULT_LEAVE_RETURN:
	case FAULT_LATE_JOIN:
	case FAULT_RESTART_LOST:
		if (s->node[f->node].alive)
			break;
		/* Its count comes back only as far as those whom it meets remember it. */
		s->liar |= f->kind == FAULT_RESTART_LOST;
		sim_start(s, f->node, f->kind != FAULT_RESTART_LOST);
		break;
	case FAULT_TWIN:
		if (f->value & 4)
			sim_stop(s, f->value & 8 ? f->other : f->node, f->value & 1);
		break;
	case FAULT_WEATHER:
		sim_set_weather(s, &s->config.weather);
		break;
	case FAULT_FORGER:
	case FAULT_SYBILS:
		forger_stop(s, f->node);
		break;
	default:
		break;
	}
}

void faults_apply(struct sim *s, uint32_t i, bool end)
{
	const struct sim_fault *f = &s->fault[i];
	sim_say(s, "-- %s n%u n%u %llu %s", names[f->kind], f->node, f->other,
	        (unsigned long long)f->value, end ? "ends" : "begins");
	if (end) {
		end_fault(s, f);
		return;
	}
	if (f->kind <= FAULT_ISOLATE || f->kind == FAULT_WEATHER)
		begin_link_fault(s, f);
	begin_host_fault(s, f);
	begin_process_fault(s, f);
}

void faults_stop(struct sim *s)
{
	for (uint32_t i = 0; i < s->n_nodes; i++) {
		struct sim_node *p = &s->node[i];
		p->group = 0;
		p->isolated = false;
		p->slow_ms = 0;
		set_still(s, i, false);
		if (p->forger)
			forger_stop(s, i);
		for (uint32_t k = 0; k < s->n_nodes; k++)
			simnet_way(&s->net, i, k)->blocked = false;
	}
	sim_set_weather(s, &s->config.weather);
	s->loss = s->duplicate = s->resolve_failure = 0;
	if (!s->node[0].alive)
		sim_start(s, 0, true);
}

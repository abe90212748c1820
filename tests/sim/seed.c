/* SPDX-License-Identifier: MIT */
/* One seed: it draws a flock, its weather and its faults, lets them happen with every invariant
 * checked after every step, stops the faults and gives the flock a minute to agree. */
#include "tests/sim/sim.h"

#include <stdio.h>
#include <string.h>

#define AGREE_MS 60000
#define WAN_AGREE_MS 360000 /* a WAN's timings are up to six times longer */
#define SYBILS_AGREE_MS 600000
#define CLOCKS_AGREE_MS 300000 /* the last count of one who is gone may ride on few messages */
#define HOLD_MS 3000           /* views that are equal must stay so */

/* Mostly small: faults meet more often there, and a thousand seeds must not take minutes. */
static uint32_t draw_nodes(struct rng *r)
{
	uint64_t x = rng_below(r, 1000);
	if (x < 600)
		return 3 + (uint32_t)rng_below(r, 6);
	if (x < 880)
		return 9 + (uint32_t)rng_below(r, 8);
	if (x < 970)
		return 17 + (uint32_t)rng_below(r, 16);
	return 33 + (uint32_t)rng_below(r, 32);
}

static struct sim_config draw_config(const struct seed_options *o)
{
	struct rng r;
	rng_seed(&r, o->seed, 0x5eed);
	struct sim_config c = {.seed = o->seed, .check = true, .verbose = o->verbose};
	uint32_t drawn = draw_nodes(&r);
	c.nodes = o->nodes ? o->nodes : drawn;
	c.slots = c.nodes + 2; /* for a twin and a forger */
	bool wan = rng_below(&r, 25) == 0;
	c.profile = wan ? gossip_wan : gossip_lan;
	c.weather.delay_ms = (uint32_t)rng_below(&r, wan ? 150 : 20);
	c.weather.jitter_ms = (uint32_t)rng_below(&r, rng_below(&r, 4) ? 10 : 200);
	static const double loss[] = {0, 0, 0.01, 0.05, 0.1, 0.3};
	c.weather.loss = loss[rng_below(&r, 6)];
	c.weather.duplicate = loss[rng_below(&r, 5)];
	c.status_every_ms = 500 + (uint32_t)rng_below(&r, 3000);
	/* More members than there is room for, now and then. */
	if (rng_below(&r, 25) == 0 || o->only == FAULT_SYBILS) {
		c.extra_keys = 4 * c.nodes + 64;
		c.members_max = 2 * c.nodes + 16;
	}
	return c;
}

static void start_all(struct sim *s)
{
	for (uint32_t i = 0; i < s->config.nodes; i++) {
		bool late = false;
		for (int k = 0; k < s->n_faults; k++)
			late |= s->fault[k].kind == FAULT_LATE_JOIN && s->fault[k].node == i;
		s->node[i].dialable = i == 0 || !sim_chance(s, 0.1);
		if (!late && !s->failed)
			sim_start(s, i, true);
	}
}

/* Two running processes with one key must both have been told. */
static bool twins_told(const struct sim *s, char *why, size_t bytes)
{
	for (uint32_t k = 0; k < s->n_keys; k++) {
		const struct sim_key *key = &s->key[k];
		const struct sim_node *a = &s->node[key->node[0]], *b = &s->node[key->node[1]];
		if (key->n_nodes == 2 && a->alive && b->alive &&
		        (!a->told_same_key || !b->told_same_key)) {
			snprintf(why, bytes, "of one key, n%u was%s told, n%u was%s", key->node[0],
			        a->told_same_key ? "" : " not", key->node[1],
			        b->told_same_key ? "" : " not");
			return false;
		}
	}
	return true;
}

/* Runs until views are equal and stay so; how long that took, or SIM_NEVER. */
static uint64_t wait_views(struct sim *s, uint64_t limit_ms, char *why, size_t bytes)
{
	uint64_t begin = s->now_ms, since = SIM_NEVER;
	while (!s->failed && s->now_ms < begin + limit_ms) {
		sim_run(s, s->now_ms + 500);
		if (!check_views_equal(s, why, bytes) || !twins_told(s, why, bytes))
			since = SIM_NEVER;
		else if (since == SIM_NEVER)
			since = s->now_ms;
		if (since != SIM_NEVER && s->now_ms - since >= HOLD_MS)
			break;
	}
	return since == SIM_NEVER ? SIM_NEVER : since - begin;
}

static void agree(struct sim *s, struct seed_result *out)
{
	char why[256] = "";
	bool wan = s->config.profile.probe_interval != gossip_lan.probe_interval;
	/* Made-up members must be found dead one by one before there is room again. */
	uint64_t limit = s->sybils ? SYBILS_AGREE_MS : wan ? WAN_AGREE_MS : AGREE_MS;
	faults_stop(s);
	s->quiet = true;
	out->healed_ms = wait_views(s, limit, why, sizeof why);
	if (out->healed_ms == SIM_NEVER)
		sim_fail(s, "equal: after all faults have ended, %s", why);
	uint64_t begin = s->now_ms;
	while (!s->failed && !check_clocks_equal(s, why, sizeof why)) {
		if (s->now_ms > begin + CLOCKS_AGREE_MS)
			sim_fail(s, "equal: after all faults have ended, %s", why);
		sim_run(s, s->now_ms + 500);
	}
	/* Who never knew one of the dead may have heard of it only now. */
	if (!s->failed && wait_views(s, limit, why, sizeof why) == SIM_NEVER)
		sim_fail(s, "equal: and then not, %s", why);
}

struct seed_result seed_run(const struct seed_options *o)
{
	static struct sim s; /* some 60 kB */
	struct seed_result out = {0};
	struct sim_config c = draw_config(o);
	sim_init(&s, &c);
	uint64_t from = sim_between(&s, 0, 15000), to = from + sim_between(&s, 5000, 60000);
	if (o->only >= 0)
		faults_add(&s, (uint8_t)o->only, from, to);
	else
		faults_draw(&s, from, to);
	if (c.extra_keys && o->only < 0)
		faults_add(&s, FAULT_SYBILS, from, to);
	sim_say(&s, "seed %llu: %u nodes, loss %.2f, delay %u + %u ms, faults until %.1f s",
	        (unsigned long long)o->seed, c.nodes, c.weather.loss, c.weather.delay_ms,
	        c.weather.jitter_ms, (double)to / 1000);
	for (int i = 0; i < s.n_faults; i++) {
		sim_push(&s, s.fault[i].from_ms, SIM_FAULT, (uint32_t)i, 0);
		sim_push(&s, s.fault[i].to_ms, SIM_FAULT, (uint32_t)i, 1);
	}
	start_all(&s);
	sim_run(&s, to);
	if (!s.failed)
		agree(&s, &out);
	out.failed = s.failed;
	out.nodes = c.nodes;
	out.hash = s.hash;
	out.steps = s.stats.steps;
	out.virtual_ms = s.now_ms;
	out.forged = s.stats.forged;
	snprintf(out.failure, sizeof out.failure, "%s", s.failure);
	sim_close(&s);
	return out;
}

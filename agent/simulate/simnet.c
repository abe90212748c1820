/* SPDX-License-Identifier: MIT */
/* Time, chance, hosts, and datagrams, which are lost, doubled, late and out of order. */
#include "agent/simulate/simnet.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void simnet_init(struct simnet *s, uint32_t n_hosts, void *host, size_t stride, size_t parcel_bytes)
{
	memset(s, 0, sizeof *s);
	s->n_hosts = n_hosts;
	s->host = host;
	s->stride = stride;
	s->parcel_bytes = parcel_bytes;
	s->way = calloc((size_t)n_hosts * n_hosts, sizeof *s->way);
	if (!s->way)
		abort();
}

void simnet_close(struct simnet *s)
{
	for (uint32_t i = 0; i < s->n_chunks; i++)
		free(s->chunk[i]);
	free(s->chunk);
	free(s->way);
	queue_close(&s->queue);
}

void simnet_push(struct simnet *s, uint64_t after_ms, uint32_t kind, uint32_t a, uint32_t b)
{
	queue_push(&s->queue,
	        (struct sim_entry){.at_ms = s->now_ms + after_ms, .kind = kind, .a = a, .b = b});
}

bool simnet_next(struct simnet *s, uint64_t until_ms, struct sim_entry *out)
{
	if (s->queue.n == 0 || s->queue.entry[0].at_ms > until_ms || !queue_pop(&s->queue, out))
		return false;
	assert(out->at_ms >= s->now_ms);
	s->now_ms = out->at_ms;
	return true;
}

bool simnet_chance(struct simnet *s, double p)
{
	return p > 0 && rng_f64(&s->rng) < p;
}

uint64_t simnet_between(struct simnet *s, uint64_t low, uint64_t high)
{
	return low + rng_below(&s->rng, high - low + 1);
}

/* ---- hosts */

struct simnet_host *simnet_host(const struct simnet *s, uint32_t i)
{
	return (struct simnet_host *)(void *)((uint8_t *)s->host + i * s->stride);
}

bool simnet_frozen(struct simnet *s, uint32_t host, const struct sim_entry *e)
{
	uint64_t until = simnet_host(s, host)->frozen_until;
	if (until <= s->now_ms)
		return false;
	simnet_push(s, until - s->now_ms, e->kind, e->a, e->b);
	return true;
}

bool simnet_open(const struct simnet *s, uint32_t from, uint32_t to)
{
	const struct simnet_host *a = simnet_host(s, from), *b = simnet_host(s, to);
	return a->group == b->group && !a->isolated && !b->isolated &&
	       !simnet_way(s, from, to)->blocked;
}

bool simnet_open_both(const struct simnet *s, uint32_t a, uint32_t b)
{
	return simnet_open(s, a, b) && simnet_open(s, b, a);
}

/* ---- datagrams */

uint64_t simnet_delay(struct simnet *s)
{
	return s->delay_ms + simnet_between(s, 0, s->jitter_ms);
}

/* Behind a NAT nothing comes in but answers. */
static bool door_is_open(const struct simnet *s, uint32_t from, uint32_t to)
{
	uint64_t door = simnet_way(s, to, from)->datagram_ms;
	return simnet_host(s, to)->dialable || s->nat_ms == 0 ||
	       (door != 0 && s->now_ms - (door - 1) <= s->nat_ms);
}

int simnet_datagram(struct simnet *s, uint32_t from, uint32_t to, uint64_t after_ms[2])
{
	int arrive = 0, copies = 1 + simnet_chance(s, s->duplicate);
	simnet_way(s, from, to)->datagram_ms = s->now_ms + 1;
	if (!simnet_host(s, to)->alive || !simnet_open(s, from, to) || !door_is_open(s, from, to)) {
		s->lost++;
		return 0;
	}
	while (copies-- > 0)
		if (simnet_chance(s, s->loss))
			s->lost++;
		else
			after_ms[arrive++] = simnet_delay(s);
	return arrive;
}

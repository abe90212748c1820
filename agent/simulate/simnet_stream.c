/* SPDX-License-Identifier: MIT */
/* Parcels and streams. A parcel has a number, by which entries of the queue name it; its memory
 * stays where it is, for events borrow from it. Only its header is cleared: what simulations carry
 * is large, and most of it unused. */
#include "agent/simulate/simnet.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK 64

static struct simnet_parcel *header(const struct simnet *s, uint32_t parcel)
{
	return simnet_parcel(s, parcel);
}

void *simnet_parcel(const struct simnet *s, uint32_t parcel)
{
	return s->chunk[(parcel - 1) / CHUNK] + (parcel - 1) % CHUNK * s->parcel_bytes;
}

static void more_parcels(struct simnet *s)
{
	s->chunk = reallocarray(s->chunk, s->n_chunks + 1, sizeof *s->chunk);
	if (!s->chunk || !(s->chunk[s->n_chunks] = calloc(CHUNK, s->parcel_bytes)))
		abort();
	uint32_t first = CHUNK * s->n_chunks++ + 1;
	for (uint32_t i = first + CHUNK; i-- > first;)
		simnet_parcel_free(s, i);
}

uint32_t simnet_parcel_new(struct simnet *s, uint32_t from, uint32_t to)
{
	if (!s->free_parcel)
		more_parcels(s);
	uint32_t i = s->free_parcel;
	s->free_parcel = header(s, i)->next;
	*header(s, i) = (struct simnet_parcel){.from = from, .to = to};
	return i;
}

void simnet_parcel_free(struct simnet *s, uint32_t parcel)
{
	header(s, parcel)->next = s->free_parcel;
	s->free_parcel = parcel;
}

/* ---- ways */

struct simnet_way *simnet_way(const struct simnet *s, uint32_t from, uint32_t to)
{
	return &s->way[simnet_way_number(s, from, to)];
}

uint32_t simnet_way_number(const struct simnet *s, uint32_t from, uint32_t to)
{
	return from * s->n_hosts + to;
}

uint32_t simnet_way_from(const struct simnet *s, uint32_t number)
{
	return number / s->n_hosts;
}

uint32_t simnet_way_to(const struct simnet *s, uint32_t number)
{
	return number % s->n_hosts;
}

void simnet_append(struct simnet *s, uint32_t parcel)
{
	struct simnet_parcel *p = header(s, parcel);
	struct simnet_way *w = simnet_way(s, p->from, p->to);
	p->next = 0;
	if (w->last)
		header(s, w->last)->next = parcel;
	else
		w->first = parcel;
	w->last = parcel;
	w->n++;
}

uint32_t simnet_take(struct simnet *s, struct simnet_way *w)
{
	uint32_t parcel = w->first;
	if (!parcel)
		return 0;
	w->first = header(s, parcel)->next;
	if (!w->first)
		w->last = 0;
	w->n--;
	return parcel;
}

/* ---- streams */

void simnet_dial(struct simnet *s, uint32_t from, uint32_t to, uint64_t after_ms, uint32_t kind)
{
	struct simnet_way *w = simnet_way(s, from, to);
	w->dialling = true;
	w->since_ms = s->now_ms;
	simnet_push(s, after_ms, kind, simnet_way_number(s, from, to), w->epoch);
}

bool simnet_dials(const struct simnet *s, uint32_t number, uint32_t epoch)
{
	return s->way[number].dialling && s->way[number].epoch == epoch;
}

void simnet_connect(struct simnet *s, uint32_t a, uint32_t b)
{
	struct simnet_way *both[2] = {simnet_way(s, a, b), simnet_way(s, b, a)};
	for (int i = 0; i < 2; i++) {
		both[i]->up = 1;
		both[i]->dialling = both[i]->stalled = both[i]->moving = false;
		both[i]->epoch++;
		both[i]->last_ms = s->now_ms;
	}
}

void simnet_clear(struct simnet *s, struct simnet_way *w)
{
	for (uint32_t parcel; (parcel = simnet_take(s, w)) != 0;)
		simnet_parcel_free(s, parcel);
	w->up = 0;
	w->dialling = w->stalled = w->moving = false;
	w->epoch++;
}

bool simnet_cut(struct simnet *s, uint32_t a, uint32_t b)
{
	bool was_up = simnet_way(s, a, b)->up > 0;
	simnet_clear(s, simnet_way(s, a, b));
	simnet_clear(s, simnet_way(s, b, a));
	return was_up;
}

void simnet_stall(const struct simnet *s, struct simnet_way *w)
{
	if (!w->stalled)
		w->since_ms = s->now_ms;
	w->stalled = true;
}

uint64_t simnet_in_order(uint64_t *last_ms, uint64_t at_ms)
{
	*last_ms = at_ms > *last_ms ? at_ms : *last_ms;
	return *last_ms;
}

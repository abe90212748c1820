/* SPDX-License-Identifier: MIT */
/* Streams: in order, each with its own delays. When one breaks, each direction is cut somewhere in
 * what was under way; each end learns of it in its own time, and may have dialled a new one before
 * the other end has read the last of the old. */
#include "tests/sim/exchange_sim.h"

#include <stdlib.h>

static struct simnet_way *way(struct xsim *f, int from, int to)
{
	return simnet_way(&f->net, (uint32_t)from, (uint32_t)to);
}

static uint32_t dial(struct xsim *f, int from, int to)
{
	if (f->n_streams == f->room_streams) {
		f->room_streams = f->room_streams ? 2 * f->room_streams : 64;
		f->stream = realloc(f->stream, f->room_streams * sizeof *f->stream);
		if (!f->stream)
			abort();
	}
	uint32_t i = f->n_streams++;
	uint64_t a = xsim_between(f, 5, 60), b = a + xsim_between(f, 0, 40);
	f->stream[i] =
	        (struct xsim_stream){.who = {from, to}, .last_ms = {f->now_ms + a, f->now_ms + b}};
	xsim_push(f, a, XSIM_OPEN, i, 0);
	xsim_push(f, b, XSIM_OPEN, i, 1);
	return i;
}

static void cut(struct xsim *f, struct xsim_stream *s, int end)
{
	uint64_t left = s->last_ms[end] > f->now_ms ? s->last_ms[end] - f->now_ms : 0;
	s->cut_ms[end] = f->now_ms + (xsim_chance(f, 0.5) ? xsim_between(f, 0, left) : 0);
}

static void break_stream(struct xsim *f, uint32_t i)
{
	struct xsim_stream *s = &f->stream[i];
	if (s->broken)
		return;
	s->broken = true;
	uint64_t back_ms = f->now_ms + xsim_between(f, 0, f->setup.away_ms);
	for (int end = 0; end < 2 && f->setup.away_ms; end++)
		way(f, s->who[end], s->who[!end])->barred_ms = back_ms;
	for (int end = 0; end < 2; end++) {
		cut(f, s, end);
		xsim_push(f, s->cut_ms[end] - f->now_ms + xsim_between(f, 1, 300), XSIM_CLOSE, i,
		        (uint32_t)end);
		if (xsim_chance(f, f->setup.false_gone))
			xsim_push(f, xsim_between(f, 1, 3000), XSIM_GONE, (uint32_t)s->who[end],
			        (uint32_t)s->who[!end]);
	}
}

void links_post(struct xsim *f, int from, int to, const struct exchange_message *m)
{
	uint32_t i = f->n_streams;
	int end = 0;      /* the sender's */
	while (i-- > 0) { /* the newest that the sender thinks is there */
		const struct xsim_stream *s = &f->stream[i];
		end = s->who[0] == from ? 0 : 1;
		if (s->who[end] == from && s->who[!end] == to && !s->closed[end] &&
		        (s->open[end] || end == 0))
			break;
	}
	if (i == UINT32_MAX && f->now_ms < way(f, from, to)->barred_ms)
		return;
	if (i == UINT32_MAX) {
		i = dial(f, from, to);
		end = 0;
	}
	struct xsim_stream *s = &f->stream[i];
	bool slow = xsim_chance(f, f->setup.slow_chance);
	uint64_t at = f->now_ms + xsim_between(f, 1, 50) + (slow ? xsim_between(f, 0, 2000) : 0);
	at = simnet_in_order(&s->last_ms[!end], at);
	if (!s->broken && !xsim_chance(f, f->setup.lose_chance)) {
		uint32_t parcel = simnet_parcel_new(&f->net, (uint32_t)from, (uint32_t)to);
		struct xsim_packet *p = simnet_parcel(&f->net, parcel);
		p->stream = i;
		p->end = !end;
		p->message = *m;
		xsim_push(f, at - f->now_ms, XSIM_ARRIVE, parcel, 0);
	}
	if (xsim_chance(f, f->setup.break_chance))
		break_stream(f, i);
}

void links_dead(struct xsim *f, int who)
{
	for (uint32_t i = 0; i < f->n_streams; i++) {
		struct xsim_stream *s = &f->stream[i];
		int end = s->who[0] == who ? 0 : 1;
		if (s->who[end] != who || s->closed[end])
			continue;
		s->closed[end] = true; /* and nobody is told at that end */
		break_stream(f, i);
	}
	for (int i = 0; i < f->setup.n; i++)
		way(f, who, i)->up = 0;
}

static void arrive(struct xsim *f, uint32_t parcel)
{
	const struct xsim_packet *p = simnet_parcel(&f->net, parcel);
	const struct xsim_stream *s = &f->stream[p->stream];
	struct exchange_terms ours = xsim_terms(f);
	if (!s->closed[p->end] && !(s->broken && f->now_ms > s->cut_ms[p->end]))
		xsim_step(f, (int)p->parcel.to,
		        (struct exchange_event){.kind = EXCHANGE_EVENT_RECEIVED,
		                .peer = f->agent[p->parcel.from].id,
		                .received = {.message = &p->message,
		                        .ours = &ours,
		                        .deadline_ms = 8000}});
	simnet_parcel_free(&f->net, parcel);
}

void links_event(struct xsim *f, const struct sim_entry *e)
{
	if (e->kind == XSIM_ARRIVE) {
		arrive(f, e->a);
		return;
	}
	struct xsim_stream *s = &f->stream[e->a];
	int me = s->who[e->b], other = s->who[!e->b];
	bool up = e->kind == XSIM_OPEN;
	if (s->closed[e->b] || !f->agent[me].alive)
		return;
	if (up && s->broken) /* it broke while it was dialled */
		return;
	if (!up)
		s->closed[e->b] = true;
	if (!up && !s->open[e->b])
		return;
	s->open[e->b] = up;
	struct simnet_way *w = way(f, me, other);
	w->up = up ? w->up + 1 : w->up - 1;
	if (w->up == (up ? 1 : 0))
		xsim_step(f, me,
		        (struct exchange_event){
		                .kind = up ? EXCHANGE_EVENT_UP : EXCHANGE_EVENT_DOWN,
		                .peer = f->agent[other].id});
}

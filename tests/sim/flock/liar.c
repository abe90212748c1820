/* SPDX-License-Identifier: MIT */
/* Agents that do not belong here: a liar, whose messages and parameters are changed on their way
 * out, and a stranger, which trains another model and may claim that it does not.
 *
 * Each lie that must not be believed is remembered by the number of its exchange, or by the tag of
 * its state. Nobody may apply the one or, with witnesses, adopt the other. */
#include "tests/sim/flock/flock_sim.h"

#include <math.h>

void liar_draw(struct fsim *w)
{
	w->liar = w->stranger = -1;
	if (w->setup.still || w->setup.only >= 0 || w->setup.byzantine || w->setup.pace)
		return;
	int who = (int)world_between(w, 1, (uint64_t)w->n - 1);
	if (w->n >= 4 && world_chance(w, 0.2))
		w->liar = who;
	else if (w->n >= 3 && world_chance(w, 0.1))
		w->stranger = who;
	w->stranger_lies = world_chance(w, 0.5);
}

bool liar_is_odd(const struct fsim *w, int i)
{
	return i == w->liar || i == w->stranger;
}

static void remember(struct fsim *w, uint64_t exchange)
{
	w->lie_in_data[w->n_lies % FSIM_LIES] = false;
	w->lie[w->n_lies++ % FSIM_LIES] = exchange;
}

static void remember_data(struct fsim *w, uint64_t exchange)
{
	remember(w, exchange);
	w->lie_in_data[(w->n_lies - 1) % FSIM_LIES] = true;
}

/* A kept connection broke before any of it had come, and another is used. */
static void forget_data(struct fsim *w, uint64_t exchange)
{
	for (int k = 0; k < FSIM_LIES; k++)
		if (w->lie[k] == exchange && w->lie_in_data[k])
			w->lie[k] = 0;
}

bool liar_said(const struct fsim *w, uint64_t exchange)
{
	for (int k = 0; k < FSIM_LIES; k++)
		if (w->lie[k] == exchange)
			return true;
	return false;
}

int liar_gave(const struct fsim *w, int i)
{
	int n = 0;
	for (int k = 0; k < FSIM_VECTORS * w->params; k++)
		n += (w->agent[i].from[k] & FSIM_STATE_LIE) != 0;
	return n;
}

/* Terms that are not the run's. Whether the run is over only who hears it knows: see rules.c. */
static void foreign_terms(struct fsim *w, struct exchange_message *m)
{
	uint64_t what = rng_below(&w->more, 4);
	if (what == 3) {
		m->terms.final = true;
		m->terms.format = 0;
		return;
	}
	if (what == 0)
		m->terms.mode = EXCHANGE_PULL;
	else if (what == 1)
		m->terms.beta = 0.9f;
	else
		m->terms.sketch_length = 0;
	remember(w, m->exchange);
}

void liar_message(struct fsim *w, int from, struct exchange_message *m)
{
	if (from != w->liar)
		return;
	if (m->kind == EXCHANGE_OFFER && rng_f64(&w->more) < 0.2)
		foreign_terms(w, m);
	if (m->kind == EXCHANGE_ACCEPT && rng_f64(&w->more) < 0.1) {
		m->terms.sketch_length = 0;
		remember(w, m->exchange);
	}
	if ((m->kind == EXCHANGE_OFFER || m->kind == EXCHANGE_ACCEPT) && world_chance(w, 0.3))
		m->terms.clock += w->total;
	if (m->kind == EXCHANGE_ACCEPT && world_chance(w, 0.2)) {
		m->terms.beta = m->terms.beta < 0.6f ? 0.9f : 0.5f;
		remember(w, m->exchange);
	} else if (m->kind == EXCHANGE_END && world_chance(w, 0.2)) {
		m->end.factor[0] = world_chance(w, 0.5) ? NAN : 2;
		remember(w, m->exchange);
	} else if (m->kind == EXCHANGE_BUSY && world_chance(w, 0.2))
		m->busy.why = EXCHANGE_UNLIKE; /* its own manifest says the opposite */
}

/* Of some exchanges it does not tell how they end, though it is there and well. */
bool liar_swallows(const struct fsim *w, int from, const struct exchange_message *m)
{
	return from == w->liar && m->exchange % 5 == 0 &&
	       (m->kind == EXCHANGE_COMMIT || m->kind == EXCHANGE_ACK ||
	               m->kind == EXCHANGE_SETTLE || m->kind == EXCHANGE_ABORT);
}

/* Numbers that are none, or of another model. */
void liar_data(struct fsim *w, int from, struct fsim_conn *c)
{
	if (from != w->liar || c->n_data == 0)
		return;
	bool state = c->how.use != USE_EXCHANGE;
	if (!state)
		forget_data(w, c->exchange);
	if (!state && world_chance(w, 0.2)) {
		c->data[rng_below(&w->rng, c->n_data)] = NAN;
		remember_data(w, c->exchange);
	} else if (world_chance(w, state ? 0.7 : 0.2)) {
		for (uint64_t p = 0; p < c->n_data; p++)
			c->data[p] = world_chance(w, 0.5) ? 4 : -4;
		if (state)
			c->tag |= FSIM_STATE_LIE;
		else
			remember_data(w, c->exchange);
	}
}

void liar_record(struct fsim *w, struct gossip_message *m)
{
	struct manifest common = w->manifest;
	for (int k = 0; k < m->n_updates && w->stranger >= 0 && w->stranger_lies; k++)
		if (m->update[k].kind == UPDATE_RECORD &&
		        world_find(w, &m->update[k].record.id) == w->stranger)
			m->update[k].record.status.model = manifest_hash(&common);
}

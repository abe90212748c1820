/* SPDX-License-Identifier: MIT */
/* Bulk connections, and the transfers over them.
 *
 *     OPEN ── round trip ──► BULK_CAME at both ends ──► TRANSFER at both: parameters go both ways
 *                                                        at once ──► TRANSFERRED at each end
 *
 * An end is done when what it sends and what it receives are through. What is received is worked
 * out when both ends have begun, since either may use its buffers again before the other is done;
 * the core uses none of it before it is told. A partner that is gone or cut off says nothing: the
 * transfer ends by its deadline. One that cancels or closes does say so. */
#include "net/bulk/bulk.h"
#include "agent/simulate/flock/world.h"
#include "net/bulk/convert.h"
#include "net/codec/frame.h"

#include <stdlib.h>
#include <string.h>

#define FRAME_BYTES (FRAME_HEADER_BYTES + 16)
#define OPEN_BYTES 70 /* BULK_OPEN, and its answer */

static struct world_conn *find(struct world_agent *a, uint64_t exchange)
{
	for (int i = 0; i < WORLD_CONNS; i++)
		if (a->conn[i].exchange == exchange && exchange != 0)
			return &a->conn[i];
	return NULL;
}

static uint32_t entry_of(const struct world *w, uint32_t i, const struct world_conn *c)
{
	return i * WORLD_CONNS + (uint32_t)(c - w->agent[i].conn);
}

static void tell(struct world *w, uint32_t i, uint32_t with, uint64_t exchange, uint8_t how,
        uint64_t after_ms)
{
	uint32_t item = world_item(w, i, FLOCK_EVENT_BULK);
	struct flock_event *e = &world_get(w, item)->e;
	e->peer = w->agent[with].id;
	e->exchange = exchange;
	e->bulk = how;
	world_later(w, item, after_ms);
}

static struct world_conn *make(struct world *w, uint32_t i, uint32_t with, uint64_t exchange)
{
	struct world_agent *a = &w->agent[i];
	struct world_conn *c = NULL;
	for (int k = 0; k < WORLD_CONNS && !find(a, exchange); k++)
		if (a->conn[k].exchange == 0)
			c = &a->conn[k];
	if (c)
		*c = (struct world_conn){
		        .exchange = exchange, .with = with, .op = ++a->ops, .since_ms = w->now_ms};
	return c;
}

static void open_connection(struct world *w, uint32_t from, const struct flock_action *a)
{
	uint32_t to = world_find(w, &a->peer);
	if (to == WORLD_NOBODY)
		return;
	uint64_t there = world_latency_ms(w, from, to, OPEN_BYTES);
	uint64_t back = world_latency_ms(w, to, from, OPEN_BYTES);
	bool works = world_reaches(w, from, to) && simnet_way(&w->net, from, to)->up;
	struct world_conn *c = works ? make(w, from, to, a->exchange) : NULL;
	sim_count(w->sim, OPEN_BYTES, 0);
	if (c && make(w, to, from, a->exchange)) {
		tell(w, from, to, a->exchange, BULK_CAME, there + back);
		tell(w, to, from, a->exchange, BULK_CAME, 2 * there + back);
		return;
	}
	if (c)
		c->exchange = 0;
	tell(w, from, to, a->exchange, BULK_FAILED, works ? there + back : 3000);
}

/* ---- ends */

static void ends(struct world *w, uint32_t i, struct world_conn *c, uint8_t how, uint64_t after_ms)
{
	c->op = ++w->agent[i].ops;
	c->how.kind = how;
	simnet_push(&w->net, after_ms, WORLD_END, entry_of(w, i, c), c->op);
}

/* This end is closed: the other sees it, unless nothing gets through. */
static void other_sees(struct world *w, uint32_t i, const struct world_conn *c)
{
	struct world_conn *d = find(&w->agent[c->with], c->exchange);
	if (d && d->with == i && d->started && world_reaches(w, i, c->with))
		ends(w, c->with, d, FLOCK_DO_CLOSE, world_latency_ms(w, i, c->with, 40));
}

void world_bulk_gone(struct world *w, uint32_t i)
{
	struct world_agent *a = &w->agent[i];
	for (int k = 0; k < WORLD_CONNS; k++)
		a->conn[k].exchange = 0;
	a->sending = a->receiving = 0;
}

/* ---- parameters under way */

static uint64_t sealed(uint64_t count, enum convert_format f)
{
	uint64_t bytes = convert_bytes(f, count);
	return bytes + FRAME_BYTES * ((bytes + BULK_CHUNK_BYTES - 1) / BULK_CHUNK_BYTES + 1);
}

static void fly(struct world *w, uint32_t from, struct world_conn *c)
{
	struct world_flight *f = malloc(sizeof *f);
	struct err e = {0};
	if (!f)
		abort();
	*f = (struct world_flight){c->exchange, {w->agent[from].life, w->agent[c->with].life}};
	struct sim_note n = {
	        .tag = WORLD_BYTES, .from = from, .to = c->with, .bytes = c->bytes_out, .arg = f};
	w->agent[from].sending++;
	w->agent[c->with].receiving++;
	int rc = sim_send(w->sim, &n, c->n_out > 0, &e);
	if (rc)
		world_fail(w, rc, e.msg);
}

static void done(struct world *w, uint32_t i, struct world_conn *c)
{
	if (c->sent && c->received)
		ends(w, i, c, FLOCK_DO_MEASURE, 0);
}

/* Also where nothing came: the note is ours again. */
void world_bytes(struct world *w, const struct sim_note *n, bool came)
{
	struct world_flight f = *(struct world_flight *)n->arg;
	struct world_agent *a = &w->agent[n->from], *b = &w->agent[n->to];
	bool here = a->alive && a->life == f.life[0], there = b->alive && b->life == f.life[1];
	struct world_conn *c = here ? find(a, f.exchange) : NULL;
	struct world_conn *d = there ? find(b, f.exchange) : NULL;
	free(n->arg);
	if (here && a->sending > 0)
		a->sending--;
	if (there && b->receiving > 0)
		b->receiving--;
	if (!came)
		return;
	if (c && c->started && c->with == n->to) {
		c->sent = true;
		done(w, n->from, c);
	}
	if (d && d->started && d->with == n->from) {
		d->received = true;
		done(w, n->to, d);
	}
}

/* Both ends have begun. */
static void run(struct world *w, uint32_t i, struct world_conn *c)
{
	struct world_conn *d = find(&w->agent[c->with], c->exchange);
	uint32_t who[2] = {i, c->with};
	if (!d || !d->started || d->with != i)
		return;
	struct world_conn *end[2] = {c, d};
	for (int s = 0; s < 2; s++) {
		struct world_conn *to = end[!s];
		enum convert_format f = CONVERT_FP32;
		if (end[s]->how.use == USE_EXCHANGE)
			f = (enum convert_format)end[s]->how.transfer.format;
		end[s]->bytes_out = sealed(end[s]->n_out, f);
		to->bytes_in = end[s]->bytes_out;
		to->n_in = to->how.transfer.receives ? end[s]->n_out : 0;
		if (to->how.use == USE_EXCHANGE && to->n_in > 0)
			world_receive(w, who[s], who[!s], to->how.transfer.format);
		else if (to->how.use == USE_FETCH && w->trains) {
			struct world_agent *g = &w->agent[who[!s]];
			uint64_t at = to->how.transfer.offset;
			if (!g->fetched)
				g->fetched = world_vector((size_t)w->vectors * w->n_total);
			if (w->agent[who[s]].donated)
				memcpy(g->fetched + at, w->agent[who[s]].donated + at,
				        ((size_t)w->vectors * w->n_total - at) * sizeof(float));
		}
		fly(w, who[s], end[s]);
	}
}

static void transfer(struct world *w, uint32_t i, const struct flock_action *a)
{
	struct world_agent *g = &w->agent[i];
	struct world_conn *c = find(g, a->exchange);
	uint64_t count = w->base.manifest.count;
	if (!c || c->started) { /* it has closed meanwhile */
		uint32_t item = world_item(w, i, FLOCK_EVENT_TRANSFERRED);
		struct flock_event *e = &world_get(w, item)->e;
		e->exchange = a->exchange;
		e->code = ERR_IO;
		e->transferred.use = a->use;
		world_later(w, item, 0);
		return;
	}
	c->started = true;
	c->how = *a;
	if (a->use == USE_FETCH)
		c->how.transfer.receives = true;
	if (a->use == USE_EXCHANGE)
		c->n_out = a->transfer.sends ? count : 0;
	else if (a->use >= USE_DONATE)
		c->n_out = (uint64_t)w->vectors * count - a->transfer.offset;
	ends(w, i, c, FLOCK_DO_TRANSFER, a->transfer.deadline_ms);
	if (!find(&w->agent[c->with], a->exchange))
		ends(w, i, c, FLOCK_DO_CLOSE, world_latency_ms(w, i, c->with, 40));
	else
		run(w, i, c);
}

void world_bulk(struct world *w, uint32_t i, const struct flock_action *a)
{
	struct world_conn *c = find(&w->agent[i], a->exchange);
	switch (a->kind) {
	case FLOCK_DO_OPEN:
		open_connection(w, i, a);
		break;
	case FLOCK_DO_TRANSFER:
		transfer(w, i, a);
		break;
	case FLOCK_DO_CLOSE:
		if (c && !c->started) {
			other_sees(w, i, c);
			c->exchange = 0;
		}
		break;
	default: /* FLOCK_DO_CANCEL */
		if (c && c->started)
			ends(w, i, c, FLOCK_DO_CANCEL, 0);
		break;
	}
}

/* An entry of the queue: how the transfer ended is in how.kind. */
void world_bulk_ends(struct world *w, uint32_t i, int conn, uint32_t op)
{
	struct world_agent *g = &w->agent[i];
	struct world_conn *c = &g->conn[conn];
	if (!g->alive || c->exchange == 0 || c->op != op)
		return;
	int code = c->how.kind == FLOCK_DO_MEASURE  ? 0
	           : c->how.kind == FLOCK_DO_CLOSE  ? ERR_IO
	           : c->how.kind == FLOCK_DO_CANCEL ? ERR_CANCELLED
	                                            : ERR_TIMEOUT;
	uint32_t item = world_item(w, i, FLOCK_EVENT_TRANSFERRED);
	struct flock_event *e = &world_get(w, item)->e;
	e->exchange = c->exchange;
	e->code = code;
	e->transferred.use = c->how.use;
	e->transferred.received = code == 0 || c->received ? c->n_in : 0;
	e->transferred.bytes_sent = c->sent ? c->bytes_out : 0;
	e->transferred.bytes_received = c->received ? c->bytes_in : 0;
	if (code == 0 && c->how.transfer.receives && c->n_in == 0)
		e->code = ERR_IO;
	if (code != 0)
		other_sees(w, i, c);
	c->exchange = 0;
	world_later(w, item, 0);
}

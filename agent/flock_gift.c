/* SPDX-License-Identifier: MIT */
/* Giving our state to those who join: parameters and the optimiser's vectors, as they were between
 * two steps, in fp32.
 *
 * The happy path: FETCH comes, the learner copies its state (one copy for all who ask while it is
 * fresh), GIFT says what will be sent, the joiner opens a bulk connection, the state goes out. A
 * joiner whose connection broke asks for the rest of the same copy, so it is kept for a while.
 *
 * What can fail: the joiner goes (its slot is freed by the transfer's end or by time), too many ask
 * at once or the upload cap is reached (BUSY), there is no memory for the copy (BUSY). */
#include "agent/base/log.h"
#include "agent/flock_core.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define FRESH_MS 15000 /* a copy so old is not given to somebody new */
#define KEEP_MS 60000  /* but kept so long for those who have a part of it */
#define OPEN_MS 15000  /* from GIFT to the connection */

static void refuse(struct flock_agent *f, const struct peer_id *to, uint64_t exchange,
        enum exchange_why why, const char *words)
{
	struct exchange_message m = {.kind = EXCHANGE_BUSY, .exchange = exchange};
	m.busy.why = (uint8_t)why;
	m.busy.manifest = f->manifest;
	strncpy(m.busy.words, words, EXCHANGE_WORDS_MAX);
	node_post(f->node, to, &m);
}

static size_t gift_words(const struct flock_agent *f)
{
	return f->n_total * f->gift_info.vectors;
}

static void announce(struct flock_agent *f, struct flock_gift *g)
{
	struct exchange_message m = {.kind = EXCHANGE_GIFT, .exchange = g->exchange};
	m.gift.manifest = f->manifest;
	m.gift.snapshot = f->gift_id;
	if (g->offset >= gift_words(f))
		g->offset = 0;
	m.gift.offset = g->offset;
	m.gift.step = f->gift_info.step;
	m.gift.samples = f->gift_info.samples;
	m.gift.clock = f->gift_info.clock;
	m.gift.optim_steps = f->gift_info.optim_steps;
	m.gift.optimizer = f->gift_info.optimizer;
	m.gift.vectors = f->gift_info.vectors;
	m.gift.n = (uint8_t)f->groups->n;
	memcpy(m.gift.radius, f->gift_radius, sizeof m.gift.radius);
	g->waiting = false;
	g->since_ms = f->now_ms;
	if (!node_post(f->node, &g->to, &m))
		g->used = false;
}

/* A copy on its way, or one that is fresh. False: there is no memory. */
static bool have_copy(struct flock_agent *f)
{
	size_t vectors = (size_t)trainer_vectors(learner_trainer(f->learner));
	if (f->gift_taking || (f->gift_ready && f->now_ms - f->gift_ms < FRESH_MS))
		return true;
	for (int i = 0; i < FLOCK_GIFTS; i++)
		if (f->gifts[i].used && !f->gifts[i].waiting)
			return f->gift_ready; /* somebody reads the old one: it serves once more */
	if (!f->gift)
		f->gift = convert_vector(vectors * f->n_total);
	if (!f->gift || !learner_get_state(f->learner, f->gift))
		return false;
	f->gift_ready = false;
	f->gift_taking = true;
	return true;
}

void flock__gift_state(struct flock_agent *f, const struct learner_state *s)
{
	f->gift_taking = false;
	f->gift_ready = true;
	f->gift_info = *s;
	f->gift_ms = f->now_ms;
	randombytes_buf(&f->gift_id, sizeof f->gift_id);
	f->gift_id |= 1; /* never 0 */
	clip_export(&f->clip, flock__moved(f), f->gift_radius);
	for (int i = 0; i < FLOCK_GIFTS; i++)
		if (f->gifts[i].used && f->gifts[i].waiting)
			announce(f, &f->gifts[i]);
}

static struct flock_gift *slot_for(struct flock_agent *f, const struct peer_id *to)
{
	struct flock_gift *open = NULL;
	for (int i = 0; i < FLOCK_GIFTS; i++) {
		struct flock_gift *g = &f->gifts[i];
		if (!g->used && !g->bulk)
			open = g;
		/* It asks anew: the transfer before is lost to it. */
		if (g->used && peer_id_equal(&g->to, to)) {
			if (g->bulk)
				bulk_cancel(g->bulk);
			else
				return g;
		}
	}
	return open;
}

static void on_fetch(
        struct flock_agent *f, const struct peer_id *from, const struct exchange_message *m)
{
	if (manifest_compare(&m->fetch.manifest, &f->manifest) != MANIFEST_SAME) {
		refuse(f, from, m->exchange, EXCHANGE_UNLIKE, "another run or model");
		return;
	}
	bool trained = f->last.r.step > 0 || f->joined;
	if (!trained || f->phase < FLOCK_TRAINING || f->phase >= FLOCK_LEAVING) {
		refuse(f, from, m->exchange, EXCHANGE_JOINING, "nothing to give now");
		return;
	}
	enum exchange_why why = partners_admit(f->partners, from, f->now_ms);
	if (why == EXCHANGE_WILLING && !gate_admits(f->gate, f->now_ms))
		why = EXCHANGE_BUDGET;
	struct flock_gift *g = why == EXCHANGE_WILLING ? slot_for(f, from) : NULL;
	if (why == EXCHANGE_WILLING && !g)
		why = EXCHANGE_ENGAGED;
	if (why != EXCHANGE_WILLING) {
		refuse(f, from, m->exchange, why, "no gift now");
		return;
	}
	*g = (struct flock_gift){.f = f,
	        .used = true,
	        .waiting = true,
	        .to = *from,
	        .exchange = m->exchange,
	        .since_ms = f->now_ms};
	/* The rest of the copy that it has a part of; or of any, when its donor is gone. */
	bool rest = f->gift_ready && m->fetch.snapshot == f->gift_id;
	if (rest || m->fetch.snapshot == 0)
		g->offset = m->fetch.offset;
	if (rest) {
		announce(f, g);
		return;
	}
	if (!have_copy(f)) {
		g->used = false;
		refuse(f, from, m->exchange, EXCHANGE_OTHER, "no memory for a copy");
	} else if (f->gift_ready)
		announce(f, g);
}

static struct flock_gift *find(struct flock_agent *f, const struct peer_id *id, uint64_t exchange)
{
	for (int i = 0; i < FLOCK_GIFTS; i++) {
		struct flock_gift *g = &f->gifts[i];
		if (g->used && g->exchange == exchange && peer_id_equal(&g->to, id))
			return g;
	}
	return NULL;
}

bool flock__gift_message(
        struct flock_agent *f, const struct peer_id *from, const struct exchange_message *m)
{
	struct err e;
	if (m->kind == EXCHANGE_FETCH) {
		on_fetch(f, from, m);
		return true;
	}
	struct flock_gift *g = find(f, from, m->exchange);
	if (!g)
		return false;
	/* It cannot dial us. */
	if (m->kind == EXCHANGE_OPEN && !g->waiting && !g->bulk &&
	        node_bulk(f->node, from, m->exchange, &e) != 0)
		g->used = false;
	if (m->kind == EXCHANGE_ABORT && !g->bulk)
		g->used = false;
	return true;
}

static void on_given(void *arg, const struct bulk_result *r)
{
	struct flock_gift *g = arg;
	struct flock_agent *f = g->f;
	char id[13];
	f->now_ms = uv_now(f->c.loop);
	g->bulk = NULL;
	g->used = false;
	node_short_id(&g->to, id);
	f->counts.bytes_sent += r->bytes_sent;
	f->counts.bytes_received += r->bytes_received;
	f->counts.gift_bytes += r->bytes_sent;
	gate_spent(f->gate, f->now_ms, r->bytes_sent, false, false);
	if (r->err.code == 0) {
		f->counts.gifts++;
		log_info("gift %s: it has our state of step %llu", id,
		        (unsigned long long)f->gift_info.step);
	} else
		log_info("gift %s: broken off: %s", id, r->err.msg);
}

bool flock__gift_wire(
        struct flock_agent *f, const struct peer_id *id, uint64_t exchange, struct flock_wire *w)
{
	struct flock_gift *g = find(f, id, exchange);
	struct err e = {0};
	if (!g || g->waiting || g->bulk)
		return false;
	if (w->fd < 0) {
		g->used = false;
		return true;
	}
	struct bulk_config b = {.loop = f->c.loop,
	        .fd = w->fd,
	        .keys = &w->keys,
	        .we_dialled = w->we_dialled,
	        .aead = w->aead,
	        .format = CONVERT_FP32,
	        .send = f->gift + g->offset,
	        .send_count = gift_words(f) - g->offset,
	        .deadline_ms = 600000,
	        .arg = g,
	        .done_cb = on_given};
	if (bulk_start(&g->bulk, &b, &e) != 0) {
		log_warn("gift: %s", e.msg);
		g->bulk = NULL;
		g->used = false;
	}
	return true;
}

void flock__gift_tick(struct flock_agent *f)
{
	bool used = false;
	for (int i = 0; i < FLOCK_GIFTS; i++) {
		struct flock_gift *g = &f->gifts[i];
		if (g->used && !g->bulk && f->now_ms - g->since_ms > OPEN_MS)
			g->used = false;
		used = used || g->used || g->bulk;
	}
	if (used)
		f->idle_since_ms = f->now_ms; /* who has finished stays for them, too */
	if (f->gift && !used && !f->gift_taking && f->now_ms - f->gift_ms > KEEP_MS) {
		free(f->gift);
		f->gift = NULL;
		f->gift_ready = false;
	}
}

void flock__gift_close(struct flock_agent *f)
{
	for (int i = 0; i < FLOCK_GIFTS; i++)
		if (f->gifts[i].bulk)
			bulk_cancel(f->gifts[i].bulk);
		else
			f->gifts[i].used = false;
}

bool flock__gift_busy(const struct flock_agent *f)
{
	for (int i = 0; i < FLOCK_GIFTS; i++)
		if (f->gifts[i].bulk)
			return true;
	return false;
}

/* SPDX-License-Identifier: MIT */
/* Taking a peer's state, so that a late joiner is useful at once.
 *
 *     FETCH ──► donor        GIFT: this copy, so many vectors, from that word on
 *     bulk connection ══►    words come in, checked finite, chunk by chunk
 *     compare with sketches of other peers ──► the learner adopts it ──► training
 *
 * What can fail, and then: the donor is busy or says nothing (another is asked), the connection
 * breaks (the rest is asked for, from the same copy; or, if that donor is gone, from another one
 * whose parameters are near the first one's, by their sketches; else it starts over), the result
 * does not look like a model of this flock (the donor is quarantined, another is asked). With
 * nobody left to ask it trains from what it has, and says so. */
#include "agent/base/log.h"
#include "agent/flock_core.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_MS 5000 /* for GIFT */
#define OPEN_MS 10000  /* for the connection */
#define RETRY_MS 200
#define ATTEMPTS_MAX 40
#define PEERS_COMPARED 8
#define DONORS_MAX 64 /* to draw one from */

static bool shunned(const struct flock_join *j, const struct peer_id *id)
{
	for (int i = 0; i < j->n_shunned; i++)
		if (peer_id_equal(&j->shunned[i], id))
			return true;
	return false;
}

static void shun(struct flock_join *j)
{
	if (j->has_donor && !shunned(j, &j->donor))
		j->shunned[j->n_shunned++ % FLOCK_SHUNNED] = j->donor;
	if (j->n_shunned > FLOCK_SHUNNED)
		j->n_shunned = FLOCK_SHUNNED;
	j->has_donor = false;
}

static void again(struct flock_agent *f)
{
	struct flock_join *j = &f->join;
	j->exchange = 0;
	flock__wire_close(&j->wire);
	j->retry_ms = f->now_ms + RETRY_MS + randombytes_uniform(RETRY_MS);
}

/* Who adopts another flock's state does not want one of its own. */
static bool on_side(const struct flock_agent *f, const struct peer_id *id)
{
	struct sketch s;
	return !f->join.has_side ||
	       (flock__peer_sketch(f, id, &s) &&
	               sketch_distance(&s, &f->join.side) < sketch_distance(&s, &f->sketch));
}

/* A donor at random; first the one that an earlier attempt had. */
static bool choose_donor(struct flock_agent *f)
{
	struct flock_join *j = &f->join;
	const struct gossip *g = node_gossip(f->node);
	struct peer_id fit[DONORS_MAX], perhaps[DONORS_MAX];
	uint32_t n = 0, n_perhaps = 0;
	struct member_view v;
	if (j->has_donor && gossip_find(g, &j->donor, &v) && v.state == MEMBER_ALIVE)
		return true;
	f->candidates_ms = 0;
	flock__candidates(f);
	for (int i = 0; i < f->n_candidates && n < DONORS_MAX; i++) {
		const struct peer_id *id = &f->candidate[i];
		const struct partner *p = partners_find(f->partners, id);
		if (shunned(j, id) || (p && p->quarantine_ms > f->now_ms) || !on_side(f, id))
			continue;
		/* News of its steps may be on its way. */
		if (gossip_find(g, id, &v) && v.record.status.step > 0)
			fit[n++] = *id;
		else if (n_perhaps < DONORS_MAX)
			perhaps[n_perhaps++] = *id;
	}
	if (n + n_perhaps == 0)
		return false;
	j->donor = n > 0 ? fit[randombytes_uniform(n)] : perhaps[randombytes_uniform(n_perhaps)];
	j->has_donor = true;
	return true;
}

/* The words that we have are of another donor's copy. Parameters may stay where the two are near
 * each other, the next exchanges mix what is left between them; the optimiser's vectors are all of
 * one. */
static void meet_other_donor(struct flock_agent *f)
{
	struct flock_join *j = &f->join;
	struct sketch now, peers[PEERS_COMPARED];
	if (j->words == 0 || j->snapshot == 0)
		return;
	int n = flock__peer_sketches(f, peers, PEERS_COMPARED);
	bool near = j->has_donor_sketch && flock__peer_sketch(f, &j->donor, &now) && n >= 2 &&
	            sketch_distance(&j->donor_sketch, &now) <= 4 * sketch_consensus(peers, n);
	if (near) {
		log_info(
		        "join: going on with another donor, whose parameters are near the first's");
		j->words = j->words < f->n_total ? j->words : f->n_total;
		j->mixed = true;
	} else {
		log_info("join: starting over with another donor");
		j->words = 0;
	}
}

static void finish(struct flock_agent *f, bool from_donor)
{
	struct flock_join *j = &f->join;
	free(j->state);
	flock__wire_close(&j->wire);
	*j = (struct flock_join){.wire = {.fd = -1}};
	flock__joined(f, from_donor);
}

/* Who was away has to find the others again first: it waits for one as long as a start does. */
static void give_up(struct flock_agent *f)
{
	struct flock_join *j = &f->join;
	uint64_t wait_ms = (uint64_t)(f->c.config->gossip.join_s * 1000);
	bool over = flock__clock(f) >= f->total;
	if (flock__stale(f) && f->now_ms - j->began_ms < wait_ms) {
		j->attempts = 0;
		again(f);
		return;
	}
	if (!over || !flock__stale(f))
		log_warn("join: no peer has a state to give; training from %s",
		        j->merging_flocks || f->c.resumed ? "our own" : "the initial weights");
	finish(f, false);
}

static void ask(struct flock_agent *f)
{
	struct flock_join *j = &f->join;
	struct peer_id before = j->donor;
	bool had = j->has_donor;
	char id[13];
	j->retry_ms = 0;
	if (++j->attempts > ATTEMPTS_MAX || !choose_donor(f)) {
		if (j->attempts <= ATTEMPTS_MAX && j->n_shunned > 0) {
			j->n_shunned = 0; /* from the beginning: who was busy may be free now */
			again(f);
		} else
			give_up(f);
		return;
	}
	bool other = had && !peer_id_equal(&before, &j->donor);
	if (other || !had)
		meet_other_donor(f);
	struct exchange_message m = {.kind = EXCHANGE_FETCH};
	randombytes_buf(&j->exchange, sizeof j->exchange);
	j->exchange |= 1;
	m.exchange = j->exchange;
	m.fetch.manifest = f->manifest;
	m.fetch.snapshot = j->words > 0 && !other && had ? j->snapshot : 0;
	m.fetch.offset = j->words;
	j->deadline_ms = f->now_ms + ANSWER_MS;
	node_short_id(&j->donor, id);
	log_debug("join: asking %s, from word %zu", id, j->words);
	if (!node_post(f->node, &j->donor, &m)) {
		shun(j);
		again(f);
	}
}

void flock__join_begin(struct flock_agent *f, const struct peer_id *from, bool merging_flocks)
{
	struct flock_join *j = &f->join;
	if (j->active)
		return;
	flock__phase(f, FLOCK_JOINING);
	*j = (struct flock_join){.active = true,
	        .merging_flocks = merging_flocks,
	        .began_ms = f->now_ms,
	        .wire = {.fd = -1}};
	if (from) {
		j->donor = *from;
		j->has_donor = true;
		j->has_side =
		        merging_flocks && f->has_sketch && flock__peer_sketch(f, from, &j->side);
	}
	ask(f);
}

/* ---- the donor's answer */

static int take_offer(struct flock_agent *f, const struct exchange_message *m)
{
	struct flock_join *j = &f->join;
	const struct trainer *t = learner_trainer(f->learner);
	uint8_t vectors = (uint8_t)trainer_vectors(t);
	if (manifest_compare(&m->gift.manifest, &f->manifest) != MANIFEST_SAME ||
	        m->gift.vectors != vectors || m->gift.optimizer != t->config->train.optim.kind ||
	        m->gift.snapshot == 0)
		return ERR_MISMATCH;
	size_t total = vectors * f->n_total; /* by our own model, not by its word */
	if (!j->state) {
		j->state = convert_vector(total);
		if (!j->state)
			return ERR_NOMEM;
	}
	j->total = total;
	if (m->gift.offset != j->words) {
		if (m->gift.offset != 0)
			return ERR_MISMATCH;
		j->words = 0; /* its copy is another one by now */
	}
	j->mixed = j->mixed && j->words > 0;
	j->snapshot = m->gift.snapshot;
	j->info = (struct learner_state){.step = m->gift.step,
	        .samples = m->gift.samples,
	        .clock = m->gift.clock,
	        .optim_steps = m->gift.optim_steps,
	        .optimizer = m->gift.optimizer,
	        .vectors = m->gift.vectors};
	node_samples(f->node, &j->donor, m->gift.samples);
	j->n_radius = m->gift.n + 1;
	memcpy(j->radius, m->gift.radius, sizeof j->radius);
	j->has_donor_sketch = flock__peer_sketch(f, &j->donor, &j->donor_sketch);
	return 0;
}

static void open_wire(struct flock_agent *f)
{
	struct flock_join *j = &f->join;
	struct err e = {0};
	int rc = node_bulk(f->node, &j->donor, j->exchange, &e);
	j->deadline_ms = f->now_ms + OPEN_MS;
	if (rc == ERR_UNSUPPORTED) {
		struct exchange_message open = {.kind = EXCHANGE_OPEN, .exchange = j->exchange};
		if (node_post(f->node, &j->donor, &open))
			return;
	}
	if (rc != 0) {
		shun(j);
		again(f);
	}
}

bool flock__join_message(
        struct flock_agent *f, const struct peer_id *from, const struct exchange_message *m)
{
	struct flock_join *j = &f->join;
	char id[13];
	if (!j->active || m->exchange != j->exchange || !peer_id_equal(from, &j->donor))
		return m->kind == EXCHANGE_GIFT; /* nobody else wants one */
	node_short_id(from, id);
	if (m->kind == EXCHANGE_GIFT && !j->bulk && !j->checking && !j->adopting) {
		int rc = take_offer(f, m);
		if (rc == 0) {
			open_wire(f);
			return true;
		}
		log_warn("join: %s offers what does not fit: %s", id, err_text(rc));
		shun(j);
		again(f);
	} else if (m->kind == EXCHANGE_BUSY) {
		log_debug("join: %s: %s", id, m->busy.words);
		shun(j);
		again(f);
	}
	return true;
}

/* ---- the state comes in */

static void on_check(uv_work_t *w)
{
	struct flock_agent *f = w->data;
	struct flock_join *j = &f->join;
	memset(&j->result, 0, sizeof j->result);
	sketch_add(&j->result, j->state, 0, learner_trainer(f->learner)->arch.n_train);
}

static void on_checked(uv_work_t *w, int status)
{
	struct flock_agent *f = w->data;
	struct flock_join *j = &f->join;
	struct sketch peers[PEERS_COMPARED];
	char id[13];
	f->now_ms = uv_now(f->c.loop);
	j->checking = false;
	if (!j->active || status != 0)
		return;
	int n = flock__witnesses(
	        f, &j->donor, j->has_side ? &j->side : NULL, peers, PEERS_COMPARED);
	node_short_id(&j->donor, id);
	/* Of a donor and a single witness nobody knows who lies. */
	if (!sketch_plausible(&j->result, peers, n < 2 ? 0 : n)) {
		log_warn("join: what %s gave is no model of this flock, by %d sketches", id, n);
		if (!j->mixed) /* else it may have been the other */
			partners_quarantine(f->partners, &j->donor,
			        "gave a state that is no model of this flock", f->now_ms);
		j->words = 0;
		shun(j);
		again(f);
		return;
	}
	log_info("join: the state of %s, step %" PRIu64 ", compared with %d sketches, is taken", id,
	        j->info.step, n);
	clip_init(&f->clip, f->groups->n);
	clip_inherit(&f->clip, j->radius, j->n_radius);
	gate_renew(f->gate);
	j->adopting = learner_adopt(f->learner, j->state, &j->info);
	if (!j->adopting)
		again(f);
}

void flock__join_adopted(struct flock_agent *f, const struct err *e)
{
	struct flock_join *j = &f->join;
	uint64_t took = f->now_ms - j->began_ms;
	if (!j->active)
		return;
	j->adopting = false;
	if (e->code) {
		log_warn("join: %s", e->msg);
		partners_quarantine(
		        f->partners, &j->donor, "gave a state that no optimiser has", f->now_ms);
		j->words = 0;
		shun(j);
		again(f);
		return;
	}
	f->counts.adoptions++;
	f->adopted_ms = f->now_ms;
	f->sketch = j->result;
	f->has_sketch = true;
	f->sketch_ms = 0; /* and a fresh one soon */
	f->last.moved = 0;
	log_info("joined in %.2f s, at %.1f %% of the run", (double)took / 1000,
	        100.0 * (double)flock__clock(f) / (double)f->total);
	finish(f, true);
}

static void on_arrived(void *arg, const struct bulk_result *r)
{
	struct flock_agent *f = arg;
	struct flock_join *j = &f->join;
	f->now_ms = uv_now(f->c.loop);
	j->bulk = NULL;
	f->counts.bytes_sent += r->bytes_sent;
	f->counts.bytes_received += r->bytes_received;
	if (!j->active)
		return;
	j->words += r->words;
	if (r->err.code != 0 || j->words != j->total) {
		log_info("join: broken off after %zu of %zu words: %s", j->words, j->total,
		        r->err.msg);
		if (r->err.code == ERR_NONFINITE || r->err.code == ERR_FORMAT) {
			partners_quarantine(f->partners, &j->donor,
			        "gave a state with numbers that are not finite", f->now_ms);
			j->words = 0;
			shun(j);
		} else if (r->err.code == ERR_TIMEOUT)
			shun(j); /* another may be faster */
		again(f);
		return;
	}
	j->work.data = f;
	j->checking = uv_queue_work(f->c.loop, &j->work, on_check, on_checked) == 0;
	if (!j->checking)
		again(f);
}

bool flock__join_wire(
        struct flock_agent *f, const struct peer_id *id, uint64_t exchange, struct flock_wire *w)
{
	struct flock_join *j = &f->join;
	struct err e = {0};
	if (!j->active || exchange != j->exchange || exchange == 0 || j->bulk || j->checking ||
	        j->adopting || !peer_id_equal(id, &j->donor))
		return false;
	if (w->fd < 0 || !j->state) {
		shun(j);
		again(f);
		return w->fd < 0;
	}
	struct bulk_config b = {.loop = f->c.loop,
	        .fd = w->fd,
	        .keys = &w->keys,
	        .we_dialled = w->we_dialled,
	        .aead = w->aead,
	        .format = CONVERT_FP32,
	        .staging = j->state + j->words,
	        .receive_count = j->total - j->words,
	        .deadline_ms =
	                2000 + 8 * partners_deadline(f->partners, id, 4 * (j->total - j->words)),
	        .arg = f,
	        .done_cb = on_arrived};
	if (bulk_start(&j->bulk, &b, &e) != 0) {
		log_warn("join: %s", e.msg);
		j->bulk = NULL;
		again(f);
	}
	return true;
}

/* ---- time, and the end */

void flock__join_gone(struct flock_agent *f, const struct peer_id *id)
{
	struct flock_join *j = &f->join;
	if (!j->active || !j->has_donor || !peer_id_equal(id, &j->donor) || j->checking ||
	        j->adopting)
		return;
	if (j->bulk) {
		bulk_cancel(j->bulk); /* its end asks again */
		return;
	}
	again(f);
}

void flock__join_tick(struct flock_agent *f)
{
	struct flock_join *j = &f->join;
	if (!j->active || j->bulk || j->checking || j->adopting)
		return;
	if (j->retry_ms == 0 && f->now_ms >= j->deadline_ms) {
		shun(j);
		again(f);
	} else if (j->retry_ms != 0 && f->now_ms >= j->retry_ms)
		ask(f);
}

void flock__join_close(struct flock_agent *f)
{
	f->join.active = false;
	if (f->join.bulk)
		bulk_cancel(f->join.bulk);
}

bool flock__join_busy(const struct flock_agent *f)
{
	return f->join.bulk || f->join.checking;
}

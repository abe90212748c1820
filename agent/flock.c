/* SPDX-License-Identifier: MIT */
/* The phases of an agent's part in its flock.
 *
 *     looking ──► training ◄──► paused
 *        │          ▲  │
 *        └► joining ┘  └─► merging ──► finished ──► leaving
 *
 * Looking: with seeds, an agent waits a little for peers before its first step, since what it would
 * train alone from the initial weights is of little use to a flock that is far ahead. It joins if
 * the flock has trained more than a share of the run since our own state (the run's clock says so),
 * else it trains at once; alone, it says so and keeps looking.
 *
 * How it ends is in flock_end.c. */
#include "agent/base/log.h"
#include "agent/flock_core.h"

#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TICK_MS 100
#define CANDIDATES_MS 200
#define FRESH_STEPS 100 /* who has trained so many batches has something to give */
#define ANSWER_MS 3000  /* that peers of another manifest have to tell it */
#define SEEN_MS 700     /* from the first peer to the decision: the others' news */

void flock__phase(struct flock_agent *f, enum flock_phase p)
{
	if (f->phase == p)
		return;
	log_debug("phase %s", flock_phase_text(p));
	f->phase = p;
}

void flock__candidates(struct flock_agent *f)
{
	const struct gossip *g = node_gossip(f->node);
	if (f->candidates_ms != 0 && f->now_ms - f->candidates_ms < CANDIDATES_MS)
		return;
	f->candidates_ms = f->now_ms;
	f->n_candidates = 0;
	f->n_unlike = 0;
	for (uint32_t i = 0; i < gossip_count(g); i++) {
		struct member_view v = gossip_member(g, i);
		if (v.state != MEMBER_ALIVE || v.record.status.model == 0)
			continue;
		if (v.record.status.model != f->model_hash ||
		        unlike_differs(&f->unlike, &v.record.id, f->model_hash) != 0)
			f->n_unlike++;
		else if (!v.unreachable && (v.connected || v.record.dialable) &&
		         f->n_candidates < FLOCK_CANDIDATES)
			f->candidate[f->n_candidates++] = v.record.id;
	}
}

/* ---- looking */

uint64_t flock__fresh(const struct flock_agent *f)
{
	const struct config *c = f->c.config;
	return FRESH_STEPS * (uint64_t)(c->train.batch * c->train.accumulate);
}

void flock__joined(struct flock_agent *f, bool from_donor)
{
	f->joined = from_donor;
	if (!from_donor && flock__stale(f) && flock__clock(f) >= f->total) {
		flock__end_stale(f);
		return;
	}
	/* What the donor has we have; what nobody could give is lost, and the run goes on. */
	flock__in_touch(f);
	f->exchanged_ms = f->idle_since_ms = f->now_ms;
	flock__tell_status(f);
	if (f->run_over) {
		flock__merge_begin(f);
		return;
	}
	flock__phase(f, FLOCK_TRAINING);
	learner_train(f->learner);
}

static void look(struct flock_agent *f)
{
	flock__candidates(f);
	if (f->n_candidates > 0 && f->seen_ms == 0)
		f->seen_ms = f->now_ms;
	bool decided = f->seen_ms != 0 && f->now_ms - f->seen_ms >= SEEN_MS;
	if (!decided && f->now_ms < f->look_until_ms)
		return;
	if (f->n_candidates == 0) {
		if (flock__unlike_count(f).unknown > 0 && f->now_ms < f->look_until_ms + ANSWER_MS)
			return; /* they were asked what they train */
		if (flock__unlike_all(f))
			return;
		log_info("alone: no peer of this run yet; training alone, and looking on");
		flock__joined(f, false);
		return;
	}
	uint64_t limit = f->c.resumed ? (uint64_t)(f->c.config->gossip.stale * (double)f->total)
	                              : flock__fresh(f);
	uint64_t m = flock__missed(f);
	log_info("%d peers of this run; they have trained %llu samples that we do not know: %s",
	        f->n_candidates, (unsigned long long)m,
	        m > limit ? "joining by a peer's state" : "training at once");
	if (m > limit)
		flock__join_begin(f, NULL, false);
	else
		flock__joined(f, false);
}

/* ---- the end of the run */

static void on_done(void *arg, uint64_t clock)
{
	struct flock_agent *f = arg;
	if (f->phase == FLOCK_LEAVING)
		return;
	f->now_ms = uv_now(f->c.loop);
	if (clock < f->total) {
		log_info("stopped after %lld steps (run.stop_after)",
		        (long long)f->c.config->run.stop_after);
		flock__phase(f, FLOCK_LEAVING);
		f->c.finished_cb(f->c.arg, 0);
		return;
	}
	log_info("the run's %llu samples are trained (%llu by this agent)",
	        (unsigned long long)clock, (unsigned long long)flock__samples(f));
	flock__tell_status(f);
	f->run_over = true;
	/* Who has not joined yet does so first: untrained weights are nothing to merge. */
	if (f->phase != FLOCK_LOOKING && f->phase != FLOCK_JOINING)
		flock__merge_begin(f);
}

/* ---- the learner's answers */

static void on_steps(void *arg, const struct learner_step *s, int n)
{
	struct flock_agent *f = arg;
	f->now_ms = uv_now(f->c.loop);
	for (int i = 0; i < n; i++) {
		f->loss = f->has_loss ? f->loss + (s[i].r.loss - f->loss) / 50 : s[i].r.loss;
		f->has_loss = true;
	}
	f->last = s[n - 1];
	if (f->now_ms - f->rate_ms >= 2000) {
		f->samples_per_s =
		        f->rate_ms ? 1000.0 * (double)(f->last.r.samples - f->rate_samples) /
		                             (double)(f->now_ms - f->rate_ms)
		                   : 0;
		f->rate_ms = f->now_ms;
		f->rate_samples = f->last.r.samples;
	}
	if (f->phase == FLOCK_TRAINING)
		flock__exchange_steps(f, s, n);
}

static void on_snapshot(void *arg, uint64_t step)
{
	struct flock_agent *f = arg;
	f->now_ms = uv_now(f->c.loop);
	flock__snapshot_taken(f, step);
}

static void on_applied(void *arg, uint64_t step)
{
	struct flock_agent *f = arg;
	(void)step;
	f->now_ms = uv_now(f->c.loop);
	flock__exchange_event(f, &(struct exchange_event){.kind = EXCHANGE_EVENT_APPLIED});
}

static void on_state(void *arg, const struct learner_state *s)
{
	struct flock_agent *f = arg;
	f->now_ms = uv_now(f->c.loop);
	flock__gift_state(f, s);
}

static void on_adopted(void *arg, const struct err *e)
{
	struct flock_agent *f = arg;
	f->now_ms = uv_now(f->c.loop);
	flock__join_adopted(f, e);
}

static void on_saved(void *arg, const char *path, uint64_t step, const struct err *e)
{
	struct flock_agent *f = arg;
	f->now_ms = uv_now(f->c.loop);
	if (e->code) {
		log_warn("%s%s", e->msg,
		        f->owes ? "" : ": training goes on, the next checkpoint may succeed");
	} else {
		log_debug("checkpoint %s", path);
		f->saves++;
		f->saved_step = step;
		f->saved_ms = f->now_ms;
	}
	/* Asked for behind the export, or when it left: of the last state. */
	if (f->exported || f->learner_stopping) {
		f->kept = e->code == 0;
		f->result_asked = false;
	}
}

static void on_exported(void *arg, const char *path, const struct err *e)
{
	struct flock_agent *f = arg;
	f->exported = true;
	f->finished = e->code == 0;
	if (e->code)
		log_warn("%s", e->msg);
	else
		log_info("weights: %s", path);
}

static void tell_eval(const struct flock_agent *f, const struct learner_eval *v, const char *what,
        const struct eval_result *r)
{
	log_info("epoch %.2f  step %llu  %s: loss %.4f  accuracy %.2f%% of %lld",
	        (double)v->clock * f->c.config->train.epochs / (double)f->total,
	        (unsigned long long)v->step, what, r->loss,
	        100.0 * (double)r->correct / (double)r->count, (long long)r->count);
}

static void on_eval(void *arg, const struct learner_eval *v, const struct err *e)
{
	struct flock_agent *f = arg;
	f->now_ms = uv_now(f->c.loop);
	bool tested = e->code == 0 && v->r.count > 0;
	if (e->code)
		log_warn("evaluation: %s", e->msg);
	if (e->code == 0 && v->validation.count > 0) {
		tell_eval(f, v,
		        !v->asked            ? "validation"
		        : f->merge_evaluated ? "merged model, validation"
		                             : "local model, validation",
		        &v->validation);
		f->validation = *v;
		f->has_validation = true;
	}
	if (tested) {
		tell_eval(f, v,
		        !v->asked            ? "test"
		        : f->merge_evaluated ? "merged model"
		                             : "local model",
		        &v->r);
		f->eval = *v;
		f->has_eval = true;
	}
	if (!v->asked)
		return;
	if (!f->merge_evaluated) {
		f->local = *v;
		f->has_local = tested;
		f->merge_until_ms = f->now_ms + (uint64_t)(f->c.config->gossip.merge_s * 1000) + 1;
	} else {
		f->merged = *v;
		f->has_merged = tested;
	}
}

static void on_failed(void *arg, const struct err *e)
{
	struct flock_agent *f = arg;
	f->learner_failed = true;
	if (f->phase == FLOCK_LEAVING)
		return;
	log_error("training failed: %s", e->msg);
	if (e->code == ERR_NONFINITE)
		log_error("try a lower --lr, a longer --warmup-epochs, or --clip 1");
	flock__phase(f, FLOCK_FAILED);
	f->c.finished_cb(f->c.arg, e->code);
}

/* ---- the node's news */

void flock_up(struct flock_agent *f, const struct peer_id *id, bool up)
{
	f->now_ms = uv_now(f->c.loop);
	flock__exchange_event(
	        f, &(struct exchange_event){
	                   .kind = up ? EXCHANGE_EVENT_UP : EXCHANGE_EVENT_DOWN, .peer = *id});
	if (!up)
		flock__join_gone(f, id);
}

void flock_gone(struct flock_agent *f, const struct peer_id *id)
{
	f->now_ms = uv_now(f->c.loop);
	f->candidates_ms = 0;
	flock__exchange_event(
	        f, &(struct exchange_event){.kind = EXCHANGE_EVENT_GONE, .peer = *id});
	flock__join_gone(f, id);
}

void flock_message(
        struct flock_agent *f, const struct peer_id *from, const struct exchange_message *m)
{
	f->now_ms = uv_now(f->c.loop);
	flock__unlike_heard(f, from, m);
	if (flock__join_message(f, from, m) || flock__gift_message(f, from, m))
		return;
	flock__exchange_message(f, from, m);
}

void flock_bulk(struct flock_agent *f, const struct peer_id *id, uint64_t exchange, int fd,
        bool we_dialled, const struct frame_bulk *keys, const struct aead *aead)
{
	struct flock_wire w = {.fd = fd, .we_dialled = we_dialled, .aead = aead};
	f->now_ms = uv_now(f->c.loop);
	if (fd >= 0)
		w.keys = *keys;
	if (flock__join_wire(f, id, exchange, &w) || flock__gift_wire(f, id, exchange, &w) ||
	        flock__exchange_wire(f, id, exchange, &w))
		flock__wire_used(&w);
	else
		flock__wire_close(&w);
}

/* ---- time */

/* It was away while the others trained: it takes a peer's state, as if it had just come. */
static bool catch_up(struct flock_agent *f)
{
	if (!flock__stale(f) || !flock__exchange_idle(f))
		return false;
	log_warn("stale: the flock has trained %llu samples without us; taking a peer's state",
	        (unsigned long long)flock__missed(f));
	f->adopt_ms = 0;
	learner_pause(f->learner);
	flock__join_begin(f, NULL, true);
	return true;
}

static void on_tick(uv_timer_t *t)
{
	struct flock_agent *f = t->data;
	f->now_ms = uv_now(f->c.loop);
	flock__tell_status(f);
	flock__join_tick(f);
	flock__gift_tick(f);
	switch (f->phase) {
	case FLOCK_LOOKING:
		flock__unlike_tick(f);
		look(f);
		break;
	case FLOCK_TRAINING:
		flock__candidates(f);
		if (catch_up(f))
			break;
		flock__unlike_tick(f);
		if (flock__unlike_all(f))
			break;
		if (f->adopt_ms != 0 && f->now_ms >= f->adopt_ms && flock__exchange_idle(f)) {
			f->adopt_ms = 0;
			learner_pause(f->learner);
			flock__join_begin(f, &f->adopt_from, true);
		} else
			flock__sketch_soon(f);
		break;
	case FLOCK_PAUSED: /* for longer than the run: what is left to do is not training */
		flock__candidates(f);
		if (flock__clock(f) >= f->total)
			catch_up(f);
		break;
	case FLOCK_MERGING:
		flock__merge_tick(f);
		break;
	case FLOCK_FINISHED:
		flock__stay_tick(f);
		break;
	default:
		break;
	}
}

/* ---- what a user asks for */

int flock_pause(struct flock_agent *f, struct err *e)
{
	if (f->phase == FLOCK_PAUSED)
		return 0;
	if (f->phase != FLOCK_TRAINING)
		return err_set(e, ERR_INVALID, "it does not train now: it is %s",
		        flock_phase_text(f->phase));
	flock__phase(f, FLOCK_PAUSED);
	learner_pause(f->learner);
	log_info("paused");
	return 0;
}

int flock_resume(struct flock_agent *f, struct err *e)
{
	if (f->phase == FLOCK_TRAINING)
		return 0;
	if (f->phase != FLOCK_PAUSED)
		return err_set(
		        e, ERR_INVALID, "it is not paused: it is %s", flock_phase_text(f->phase));
	f->now_ms = uv_now(f->c.loop);
	log_info("resumed");
	flock__phase(f, FLOCK_TRAINING);
	learner_train(f->learner);
	return 0;
}

int flock_checkpoint(struct flock_agent *f, struct err *e)
{
	if (f->phase == FLOCK_LEAVING || f->phase == FLOCK_FAILED)
		return err_set(e, ERR_INVALID, "too late: it is %s", flock_phase_text(f->phase));
	if (f->last.r.step == 0 && !f->joined && !f->c.resumed)
		return err_set(e, ERR_INVALID, "there is nothing to keep yet: no step was made");
	return learner_save(f->learner) ? 0 : err_set(e, ERR_BUSY, "too much is asked at once");
}

/* ---- beginning and end */

int flock_new(struct flock_agent **out, const struct flock_config *c, struct err *e)
{
	struct flock_agent *f = calloc(1, sizeof *f);
	*out = NULL;
	if (!f)
		return err_set(e, ERR_NOMEM, "no memory for exchanges");
	f->c = *c;
	f->learner = c->learner;
	f->groups = learner_groups(c->learner);
	flock__wire_used(&f->join.wire);
	f->n_total = c->manifest.count;
	f->total = c->manifest.total;
	f->manifest = c->manifest;
	f->model_hash = manifest_hash(&f->manifest);
	int rc = flock__exchange_open(f, e);
	if (rc) {
		flock_free(f);
		return rc;
	}
	const struct trainer *t = learner_trainer(f->learner);
	f->last.r.step = t->step;
	f->last.r.samples = t->samples;
	f->others_then = t->others;
	if (c->samples > t->samples)
		f->samples_base = c->samples - t->samples;
	/* The learner was told of our own earlier samples among the others'. */
	if (t->others > f->samples_base)
		f->others_kept = t->others - f->samples_base;
	f->own_then = flock__samples(f);
	gate_quota_set(f->gate, &c->quota, (uint64_t)time(NULL));
	*out = f;
	return 0;
}

struct member_status flock_status(const struct flock_agent *f)
{
	return (struct member_status){.model = f->model_hash,
	        .step = f->last.r.step,
	        .samples = flock__samples(f),
	        .loss = NAN};
}

uint64_t flock_samples(const struct flock_agent *f)
{
	return flock__samples(f);
}

struct gate_quota flock_quota(const struct flock_agent *f, uint64_t wall_s)
{
	return gate_quota_get(f->gate, wall_s);
}

void flock_start(struct flock_agent *f, struct node *node, bool alone)
{
	uv_timer_t *timers[] = {&f->tick, &f->exchange_timer, &f->leave_timer};
	f->node = node;
	f->now_ms = uv_now(f->c.loop);
	f->sought = !alone;
	f->look_until_ms = f->now_ms + (alone ? 0 : (uint64_t)(f->c.config->gossip.join_s * 1000));
	for (int i = 0; i < 3; i++) {
		uv_timer_init(f->c.loop, timers[i]);
		timers[i]->data = f;
	}
	f->handles = 3;
	struct learner_callbacks cb = {.arg = f,
	        .steps_cb = on_steps,
	        .snapshot_cb = on_snapshot,
	        .measured_cb = flock__measured,
	        .applied_cb = on_applied,
	        .state_cb = on_state,
	        .adopted_cb = on_adopted,
	        .saved_cb = on_saved,
	        .eval_cb = on_eval,
	        .exported_cb = on_exported,
	        .done_cb = on_done,
	        .failed_cb = on_failed,
	        .stopped_cb = flock__learner_stopped};
	learner_set_callbacks(f->learner, &cb);
	learner_begin(f->learner);
	uv_timer_start(&f->tick, on_tick, 0, TICK_MS);
}

void flock_free(struct flock_agent *f)
{
	if (!f)
		return;
	flock__exchange_close(f);
	flock__wire_close(&f->join.wire);
	free(f->join.state);
	free(f->gift);
	free(f);
}

/* SPDX-License-Identifier: MIT */
/* A flock's view as JSON. What was not measured is null, and so is a number that is not finite: a
 * reader need not know that a 0 means nothing here.
 *
 * Every list is bounded: the newest entries, the partners used last. Nothing can fail but memory.
 */
#include "agent/control/control_flock.h"

#include "model/graph/outer.h"
#include "net/bulk/convert.h"

#include <math.h>

static const char *const outers[] = {"none", "noloco", "qgm"};
static const char *const modes[] = {"pair", "push", "pull"};
static const char *const formats[] = {"fp32", "bf16", "mod8", "mod4"};
_Static_assert(
        EXCHANGE_PULL == 2 && EXCHANGE_MODES == 3 && CONVERT_MOD4 == 3 && CONVERT_FORMATS == 4,
        "the lists above follow their enums");

static const char *format_text(uint8_t format)
{
	return format < CONVERT_FORMATS ? formats[format] : NULL;
}

static uint64_t since(uint64_t now_ms, uint64_t then_ms)
{
	return now_ms > then_ms ? now_ms - then_ms : 0;
}

static void real_or_null(struct json_out *j, const char *key, bool known, double v)
{
	json_real(j, key, known ? v : NAN);
}

/* ---- training */

/* Of tokens e^loss; else null. */
static void print_perplexity(struct json_out *j, const struct agent_view *f, double loss)
{
	real_or_null(j, "perplexity", f->context > 0, exp(loss));
}

static void print_eval(struct json_out *j, const struct agent_view *f, const char *key, bool known,
        const struct flock_eval *v)
{
	if (!known) {
		json_null(j, key);
		return;
	}
	json_open(j, key, '{');
	real_or_null(j, "value", v->count > 0, (double)v->correct / (double)v->count);
	json_count(j, "correct", (uint64_t)v->correct);
	json_count(j, "count", (uint64_t)v->count);
	json_count(j, "step", v->step);
	json_count(j, "clock", v->clock);
	json_bool(j, "whole", v->whole);
	print_perplexity(j, f, v->loss);
	json_close(j, '}');
}

static void print_validation(struct json_out *j, const struct agent_view *f)
{
	const struct learner_eval *v = &f->validation;
	const struct eval_result *r = &v->validation;
	if (!f->has_validation) {
		json_null(j, "validation");
		return;
	}
	json_open(j, "validation", '{');
	json_real(j, "loss", r->loss);
	json_real(j, "accuracy", (double)r->correct / (double)r->count);
	json_count(j, "count", (uint64_t)r->count);
	json_count(j, "step", v->step);
	real_or_null(j, "best_loss", v->best_step > 0, v->best_loss);
	json_count(j, "best_step", v->best_step);
	print_perplexity(j, f, r->loss);
	json_close(j, '}');
}

static void print_join(struct json_out *j, const struct agent_view *f)
{
	if (f->core.phase != FLOCK_JOINING) {
		json_null(j, "join");
		return;
	}
	json_open(j, "join", '{');
	json_id(j, "donor", &f->core.donor);
	json_count(j, "words", f->core.join_count);
	json_count(j, "total", f->core.join_total);
	json_close(j, '}');
}

static void print_checkpoint(struct json_out *j, const struct agent_view *f)
{
	if (f->core.saved_step == 0) {
		json_null(j, "checkpoint");
		return;
	}
	json_open(j, "checkpoint", '{');
	json_count(j, "step", f->core.saved_step);
	json_seconds(j, "ago_s", f->saved_ago_ms);
	json_count(j, "count", f->core.saves);
	json_close(j, '}');
}

static void print_final(struct json_out *j, const struct agent_view *f)
{
	if (!f->core.has_local && !f->core.has_merged && f->core.merge_rounds == 0) {
		json_null(j, "final");
		return;
	}
	json_open(j, "final", '{');
	print_eval(j, f, "local", f->core.has_local, &f->core.local);
	print_eval(j, f, "merged", f->core.has_merged, &f->core.merged);
	json_count(j, "rounds", f->core.merge_rounds);
	json_close(j, '}');
}

static void print_training(struct json_out *j, const struct agent_view *f)
{
	json_open(j, "training", '{');
	json_text(j, "phase", flock_phase_text(f->core.phase));
	json_text(j, "run", f->run);
	json_text(j, "model", f->model);
	json_text(j, "device", f->device);
	json_text(j, "out", f->out);
	json_count(j, "parameters", f->parameters);
	json_count(j, "step", f->core.step);
	json_count(j, "samples", f->core.samples);
	json_count(j, "clock", f->core.clock);
	json_count(j, "total", f->core.total);
	if (f->context > 0)
		json_count(j, "tokens", f->core.samples * f->context);
	else
		json_null(j, "tokens");
	json_real(j, "epoch", f->epoch);
	real_or_null(j, "loss", f->core.has_loss, f->core.loss);
	json_real(j, "lr", f->core.lr);
	if (f->core.batch > 0)
		json_count(j, "batch", f->core.batch);
	else
		json_null(j, "batch");
	real_or_null(j, "noise", f->core.noise > 0, f->core.noise);
	json_real(j, "samples_per_s", f->samples_per_s);
	print_eval(j, f, "accuracy", f->core.has_eval, &f->core.eval);
	print_validation(j, f);
	json_bool(j, "resumed", f->resumed);
	json_bool(j, "joined", f->core.joined);
	print_join(j, f);
	print_checkpoint(j, f);
	print_final(j, f);
	json_count(j, "steps_dropped", f->steps_dropped);
	json_close(j, '}');
}

/* ---- gate and ledger */

static void print_entry(struct json_out *j, const struct ledger_entry *e, uint64_t now_ms)
{
	json_open(j, NULL, '{');
	json_count(j, "number", e->number);
	json_count(j, "step", e->step);
	json_seconds(j, "ago_s", since(now_ms, e->at_ms));
	json_count(j, "steps", e->steps);
	json_text(j, "reason", gate_reason_text(e->reason));
	real_or_null(j, "change", e->has_change, e->change);
	json_real(j, "delta", e->delta);
	if (e->tried)
		json_id(j, "peer", &e->peer);
	else
		json_null(j, "peer");
	json_text(j, "outcome", e->tried && e->settled ? exchange_outcome_text(e->outcome) : NULL);
	json_count(j, "bytes", e->bytes);
	json_count(j, "saved", e->saved);
	json_close(j, '}');
}

static void print_entries(struct json_out *j, const char *key, const struct agent_view *f,
        uint32_t max, uint64_t now_ms)
{
	uint32_t n = ledger_count(f->core.ledger);
	json_open(j, key, '[');
	for (uint32_t i = 0; i < n && i < max; i++)
		print_entry(j, ledger_get(f->core.ledger, i), now_ms);
	json_close(j, ']');
}

static void print_gate(struct json_out *j, const struct agent_view *f, uint64_t now_ms)
{
	const struct gate_view *g = &f->gate;
	uint64_t steps = g->local + g->communicating;
	json_open(j, "gate", '{');
	json_text(j, "mode", gate_mode_text(g->mode));
	json_bool(j, "warm", g->warm);
	json_bool(j, "owed", g->owed);
	real_or_null(j, "change", g->has_change, g->change);
	json_real(j, "delta", g->delta);
	json_real(j, "average", g->average);
	real_or_null(j, "lssr", steps > 0, (double)g->local / (double)steps);
	json_count(j, "local", g->local);
	json_count(j, "communicating", g->communicating);
	json_open(j, "reasons", '{');
	for (int i = 0; i < REASONS; i++)
		json_count(j, gate_reason_text((enum gate_reason)i), g->by_reason[i]);
	json_close(j, '}');
	real_or_null(j, "budget_left", g->budget_left >= 0, g->budget_left);
	real_or_null(j, "cap_left", g->cap_left >= 0, g->cap_left);
	json_count(j, "day_bytes", g->day_bytes);
	print_entries(j, "last", f, CONTROL_LAST, now_ms);
	json_close(j, '}');
}

static void print_guard(struct json_out *j, const struct agent_view *f)
{
	const struct guard_view *g = &f->core.guard;
	double step = (double)f->step_samples;
	json_open(j, "guard", '{');
	json_bool(j, "on", f->core.guards);
	real_or_null(j, "consensus", g->known, g->consensus);
	real_or_null(j, "target", g->target > 0, g->target);
	real_or_null(j, "interval", f->core.guards && step > 0, g->interval_samples / step);
	json_close(j, '}');
}

static void print_distance(struct json_out *j, const struct agent_view *f)
{
	json_open(j, "distance", '{');
	real_or_null(j, "last", f->core.has_distance, f->core.distance);
	real_or_null(j, "rms", f->core.has_distance, f->core.distance_rms);
	real_or_null(j, "radius", f->core.radius > 0, f->core.radius);
	real_or_null(j, "consensus", f->sketches > 0, f->consensus);
	json_count(j, "sketches", f->sketches > 0 ? (uint64_t)f->sketches : 0);
	json_close(j, '}');
}

/* ---- exchanges */

static void print_exchanges(struct json_out *j, const struct agent_view *f)
{
	const struct flock_counts *c = &f->core.counts;
	json_open(j, "exchanges", '{');
	json_text(j, "state", exchange_state_text(f->core.exchange_state));
	if (f->core.exchange_state == EXCHANGE_IDLE)
		json_null(j, "peer");
	else
		json_id(j, "peer", &f->core.exchange_peer);
	json_text(j, "outer", f->core.outer <= OUTER_QGM ? outers[f->core.outer] : NULL);
	json_open(j, "wire", '{');
	json_text(j, "format", format_text(f->core.format));
	json_text(j, "why", format_why_text((enum format_why)f->core.format_why));
	json_close(j, '}');
	json_count(j, "begun", c->begun);
	json_count(j, "taken", c->taken);
	json_count(j, "busy_given", c->busy_given);
	json_count(j, "clipped", c->clipped);
	json_count(j, "one_sided", c->by_outcome[OUTCOME_ONE_SIDED]);
	json_open(j, "outcomes", '{');
	for (int i = 0; i < OUTCOMES; i++)
		json_count(j, exchange_outcome_text((enum exchange_outcome)i), c->by_outcome[i]);
	json_close(j, '}');
	json_count(j, "bytes_sent", c->bytes_sent);
	json_count(j, "bytes_received", c->bytes_received);
	real_or_null(j, "delay", f->core.timed, f->core.delay);
	real_or_null(j, "delay_decided", f->core.timed, f->core.delay_decided);
	json_count(j, "gifts", c->donations);
	json_count(j, "gift_bytes", c->donated_bytes);
	json_count(j, "adoptions", c->adoptions);
	json_close(j, '}');
}

static void print_result(
        struct json_out *j, uint64_t number, const struct exchange_result *r, uint64_t now_ms)
{
	json_open(j, NULL, '{');
	json_count(j, "number", number);
	json_id(j, "peer", &r->peer);
	json_bool(j, "ours", r->ours);
	json_text(j, "mode", r->mode < EXCHANGE_MODES ? modes[r->mode] : NULL);
	json_text(j, "format", format_text(r->format));
	json_bool(j, "final", r->final);
	json_text(j, "outcome", exchange_outcome_text(r->outcome));
	json_text(j, "why", r->why == EXCHANGE_WILLING ? NULL : exchange_why_text(r->why));
	json_text(j, "words", r->words[0] ? r->words : NULL);
	json_bool(j, "moved", r->moved);
	json_count(j, "step", r->step);
	json_count(j, "bytes_sent", r->bytes_sent);
	json_count(j, "bytes_received", r->bytes_received);
	json_seconds(j, "ago_s", since(now_ms, r->began_ms + r->took_ms));
	json_count(j, "took_ms", r->took_ms);
	json_count(j, "deadline_ms", r->deadline_ms);
	real_or_null(j, "delay", r->timed, (double)r->delay);
	real_or_null(j, "delay_decided", r->timed, (double)r->delay_decided);
	real_or_null(j, "distance", r->distance > 0, r->distance);
	json_real(j, "factor", (double)r->factor);
	json_close(j, '}');
}

/* ---- partners */

static void print_quarantined(struct json_out *j, const struct agent_view *f, uint64_t now_ms)
{
	uint32_t n = partners_count(f->core.partners), told = 0;
	json_open(j, "quarantined", '[');
	for (uint32_t i = 0; i < n && told < CONTROL_PARTNERS; i++) {
		const struct partner *p = partners_get(f->core.partners, i);
		if (p->quarantine_ms <= now_ms)
			continue;
		json_open(j, NULL, '{');
		json_id(j, "id", &p->id);
		json_seconds(j, "for_s", p->quarantine_ms - now_ms);
		json_text(j, "reason", p->reason);
		json_count(j, "times", p->quarantines);
		json_close(j, '}');
		told++;
	}
	json_close(j, ']');
}

/* The partners used last, newest first, by insertion; returns how many. */
static uint32_t used_last(const struct partners *all, const struct partner *last[CONTROL_PARTNERS])
{
	uint32_t n = partners_count(all), kept = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct partner *p = partners_get(all, i);
		uint32_t at = kept;
		while (at > 0 && last[at - 1]->used_ms < p->used_ms)
			at--;
		if (at == CONTROL_PARTNERS)
			continue;
		kept += kept < CONTROL_PARTNERS;
		for (uint32_t k = kept - 1; k > at; k--)
			last[k] = last[k - 1];
		last[at] = p;
	}
	return kept;
}

static void print_deadlines(struct json_out *j, const struct agent_view *f)
{
	const struct partner *last[CONTROL_PARTNERS];
	uint32_t n = used_last(f->core.partners, last);
	json_open(j, "deadlines", '[');
	for (uint32_t i = 0; i < n; i++) {
		const struct partner *p = last[i];
		json_open(j, NULL, '{');
		json_id(j, "id", &p->id);
		json_count(j, "ms", partners_deadline(f->core.partners, &p->id, f->exchange_bytes));
		json_count(j, "exchanged", p->exchanged);
		json_count(j, "failed", p->failed);
		json_real(j, "stretch", (double)p->stretch);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void print_partners(struct json_out *j, const struct agent_view *f, uint64_t now_ms)
{
	json_open(j, "partners", '{');
	json_count(j, "candidates", f->core.candidates);
	json_count(j, "unlike", f->core.unlike);
	json_count(j, "capped", f->core.capped);
	json_count(j, "in_quarantine", f->core.quarantined); /* the list may be cut */
	print_quarantined(j, f, now_ms);
	print_deadlines(j, f);
	json_close(j, '}');
}

/* ---- the whole */

void control__flock(struct json_out *j, const struct agent_view *f, uint64_t now_ms)
{
	if (!f) {
		json_null(j, "training");
		json_null(j, "gate");
		json_null(j, "guard");
		json_null(j, "distance");
		json_null(j, "exchanges");
		json_null(j, "partners");
		return;
	}
	print_training(j, f);
	print_gate(j, f, now_ms);
	print_guard(j, f);
	print_distance(j, f);
	print_exchanges(j, f);
	print_partners(j, f, now_ms);
}

int control__ledger(const struct control_view *v, uint32_t max, struct buf *out)
{
	struct json_out j = {.buf = out};
	print_entries(&j, "entries", v->flock, max, v->now_ms);
	return j.rc;
}

int control__exchanges(const struct control_view *v, uint32_t max, struct buf *out)
{
	const struct flock_view *f = &v->flock->core;
	struct json_out j = {.buf = out};
	json_open(&j, "entries", '[');
	for (uint64_t i = 0; i < f->n_recent && i < FLOCK_RECENT && i < max; i++) {
		uint64_t number = f->n_recent - i;
		print_result(&j, number, &f->recent[(number - 1) % FLOCK_RECENT], v->now_ms);
	}
	json_close(&j, ']');
	return j.rc;
}

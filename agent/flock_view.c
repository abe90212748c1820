/* SPDX-License-Identifier: MIT */
/* What can be told of an agent's part in its flock. Only what was measured; what is not known is
 * left out. */
#include "agent/flock_core.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *flock_phase_text(enum flock_phase p)
{
	static const char *const text[FLOCK_PHASES] = {[FLOCK_LOOKING] = "looking",
	        [FLOCK_JOINING] = "joining",
	        [FLOCK_TRAINING] = "training",
	        [FLOCK_PAUSED] = "paused",
	        [FLOCK_MERGING] = "merging",
	        [FLOCK_FINISHED] = "finished",
	        [FLOCK_LEAVING] = "leaving",
	        [FLOCK_FAILED] = "failed"};
	return text[p];
}

static uint32_t quarantined(const struct flock_agent *f)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < partners_count(f->partners); i++)
		n += partners_get(f->partners, i)->quarantine_ms > f->now_ms;
	return n;
}

/* The first thing that a user should know, then the next. */
static void say_health(const struct flock_agent *f, const struct flock_view *v, char out[200])
{
	size_t at = 0;
	const uint64_t silent_ms = f->now_ms - f->exchanged_ms;
	out[0] = '\0';
#define SAY(...)                                                               \
	do {                                                                   \
		int n_ = snprintf(out + at, 200 - at, __VA_ARGS__);            \
		at = n_ < 0 || (size_t)n_ >= 200 - at ? 199 : at + (size_t)n_; \
	} while (0)
	switch (f->phase) {
	case FLOCK_LOOKING:
		SAY("looking for the flock");
		break;
	case FLOCK_JOINING:
		SAY("fetching a peer's state");
		break;
	case FLOCK_TRAINING:
		if (v->candidates == 0)
			SAY("alone: no peer of this run; training alone and looking on");
		else
			SAY("well: training with %u peer%s", v->candidates,
			        v->candidates == 1 ? "" : "s");
		break;
	case FLOCK_PAUSED:
		SAY("paused by request; `dunlin resume` goes on");
		break;
	case FLOCK_MERGING:
		SAY("trained; merging the flock's models");
		break;
	case FLOCK_FINISHED:
		SAY("finished; here for peers that are still merging");
		break;
	case FLOCK_LEAVING:
		SAY("leaving");
		break;
	default:
		SAY("failed: see the log");
		break;
	}
	if (f->phase == FLOCK_TRAINING && v->candidates > 0 && silent_ms > 60000)
		SAY("; no exchange for %llu s", (unsigned long long)silent_ms / 1000);
	if (v->quarantined > 0)
		SAY("; %u quarantined", v->quarantined);
	if (v->unlike > 0) {
		char keys[MANIFEST_KEYS_MAX + 1] = "";
		if (f->node)
			manifest_keys(flock__unlike_count(f).differs, keys);
		SAY("; %u of another run or model", v->unlike);
		if (keys[0])
			SAY(", or differing in %s", keys);
	}
	if (v->counts.by_outcome[OUTCOME_ONE_SIDED] > 0)
		SAY("; %llu one-sided exchanges",
		        (unsigned long long)v->counts.by_outcome[OUTCOME_ONE_SIDED]);
#undef SAY
}

void flock_view(const struct flock_agent *f, struct flock_view *v)
{
	const struct trainer *t = learner_trainer(f->learner);
	const uint64_t now = uv_now(f->c.loop);
	struct sketch all[65];
	memset(v, 0, sizeof *v);
	v->phase = f->phase;
	v->run = f->c.config->gossip.run;
	v->model = t->arch.preset[0] ? t->arch.preset : "own layers";
	v->device = t->dev->text;
	v->out = f->c.dir->path;
	v->parameters = f->n_total;
	v->exchange_bytes =
	        f->n_total * convert_word((enum convert_format)f->c.config->gossip.wire);
	v->step = f->last.r.step;
	v->samples = flock__samples(f);
	v->clock = flock__clock(f);
	v->total = f->total;
	v->epoch = (double)v->clock * f->c.config->train.epochs / (double)f->total;
	v->has_loss = f->has_loss;
	v->loss = f->loss;
	v->lr = f->last.r.lr;
	v->samples_per_s = f->phase == FLOCK_TRAINING ? f->samples_per_s : 0;
	v->has_eval = f->has_eval;
	v->eval = f->eval;
	v->has_validation = f->has_validation;
	v->validation = f->validation;
	v->gate = gate_view(f->gate, now);
	v->ledger = &f->ledger;
	v->partners = f->partners;
	v->exchange_state = (uint8_t)exchange_state(f->exchange);
	if (v->exchange_state != EXCHANGE_IDLE)
		v->exchange_peer = exchange_peer(f->exchange);
	v->has_distance = f->has_distance;
	v->distance = f->last_distance;
	v->distance_rms = f->rms;
	float radius = clip_radius(&f->clip, -1, flock__moved(f));
	v->radius = isfinite(radius) ? radius : 0;
	v->sketches = f->node ? flock__peer_sketches(f, all, 64) : 0;
	if (f->has_sketch && v->sketches > 0) {
		all[v->sketches] = f->sketch;
		v->consensus = sketch_consensus(all, v->sketches + 1);
	} else
		v->sketches = 0;
	v->counts = f->counts;
	v->recent = f->recent;
	v->n_recent = f->n_recent;
	v->candidates = (uint32_t)f->n_candidates;
	v->unlike = f->n_unlike;
	v->quarantined = quarantined(f);
	v->donor = f->join.donor;
	v->join_words = f->join.words;
	v->join_total = f->join.total;
	v->joined = f->joined;
	v->resumed = f->c.resumed;
	v->saved_step = f->saved_step;
	v->saves = f->saves;
	v->saved_ago_ms = now - f->saved_ms;
	v->steps_dropped = learner_steps_dropped(f->learner);
	v->finished = f->finished;
	v->has_local = f->has_local;
	v->has_merged = f->has_merged;
	v->local = f->local;
	v->merged = f->merged;
	v->merge_rounds = f->merge_rounds;
	say_health(f, v, v->health);
}

void flock_line(const struct flock_view *v, char out[200])
{
	char acc[32] = "", change[32] = "-";
	if (v->has_eval)
		snprintf(acc, sizeof acc, "  acc %.1f%%",
		        100.0 * (double)v->eval.r.correct / (double)v->eval.r.count);
	if (v->gate.has_change)
		snprintf(change, sizeof change, "%.3f", v->gate.change);
	snprintf(out, 200,
	        "%s  step %llu  loss %.3f%s  %.1f%% of the run  %u peer%s  \u0394 %s/%.3f  "
	        "%llu exchanges  \u2191%.1f MB",
	        flock_phase_text(v->phase), (unsigned long long)v->step, v->has_loss ? v->loss : 0,
	        acc, 100.0 * (double)v->clock / (double)v->total, v->candidates,
	        v->candidates == 1 ? "" : "s", change, v->gate.delta,
	        (unsigned long long)(v->counts.begun + v->counts.taken),
	        (double)v->counts.bytes_sent / 1e6);
}

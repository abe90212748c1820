/* SPDX-License-Identifier: MIT */
/* What can be told of an agent's part in its flock. Only what was measured; what is not known is
 * left out. */
#include "agent/drivers/driver_internal.h"

#include <stdio.h>
#include <string.h>

static const char *const state_text[FLOCK_PHASES] = {[FLOCK_LOOKING] = "looking for the flock",
        [FLOCK_JOINING] = "fetching a peer's state",
        [FLOCK_PAUSED] = "paused by request; `dunlin resume` goes on",
        [FLOCK_MERGING] = "trained; merging the flock's models",
        [FLOCK_FINISHED] = "finished; here for peers that are still merging",
        [FLOCK_LEAVING] = "leaving"};

/* The first thing that a user should know, then the next. */
static void say_health(uint64_t silent_ms, const struct flock_view *v, char out[200])
{
	size_t at = 0;
	out[0] = '\0';
#define SAY(...)                                                               \
	do {                                                                   \
		int n_ = snprintf(out + at, 200 - at, __VA_ARGS__);            \
		at = n_ < 0 || (size_t)n_ >= 200 - at ? 199 : at + (size_t)n_; \
	} while (0)
	if (v->phase != FLOCK_TRAINING)
		SAY("%s", state_text[v->phase]);
	else if (v->candidates == 0)
		SAY("alone: no peer of this run; training alone and looking on");
	else
		SAY("well: training with %u peer%s", v->candidates, v->candidates == 1 ? "" : "s");
	if (v->phase == FLOCK_TRAINING && v->candidates > 0 && silent_ms > 60000)
		SAY("; no exchange for %llu s", (unsigned long long)silent_ms / 1000);
	if (v->quarantined > 0)
		SAY("; %u quarantined", v->quarantined);
	if (v->unlike > 0) {
		char keys[MANIFEST_KEYS_MAX + 1] = "";
		manifest_keys(v->differs, keys);
		SAY("; %u with other settings or of another run", v->unlike);
		if (keys[0])
			SAY(" (%s)", keys);
	}
	if (v->counts.by_outcome[OUTCOME_ONE_SIDED] > 0)
		SAY("; %llu one-sided exchanges",
		        (unsigned long long)v->counts.by_outcome[OUTCOME_ONE_SIDED]);
#undef SAY
}

void driver_view(const struct driver *d, struct agent_view *v)
{
	const struct learner *l = d->c.learner;
	const struct config *c = d->c.config;
	const uint64_t now = uv_now(d->c.loop);
	memset(v, 0, sizeof *v);
	flock_view(d->core, &v->core);
	v->run = c->gossip.run;
	v->model = l->info.model;
	v->device = l->info.device;
	v->out = d->c.out;
	v->parameters = d->n_total;
	v->context = l->info.context;
	v->exchange_bytes = d->c.core.exchange_bytes[d->c.core.format];
	v->epoch = (double)v->core.clock * c->train.epochs / (double)v->core.total;
	v->samples_per_s = v->core.phase == FLOCK_TRAINING ? d->samples_per_s : 0;
	v->sketches = flock_consensus(d->core, &v->consensus);
	v->has_validation = d->has_validation;
	v->validation = d->validation;
	v->gate = gate_view(v->core.gate, now);
	v->step_samples = d->c.core.gate.step_samples;
	v->resumed = d->c.core.resumed;
	v->saved_ago_ms = now - v->core.saved_ms;
	v->steps_dropped = l->steps_dropped;
	say_health(now - v->core.exchanged_ms, &v->core, v->health);
}

void agent_view_line(const struct agent_view *a, char out[200])
{
	const struct flock_view *v = &a->core;
	char acc[32] = "", change[32] = "-";
	if (v->has_eval)
		snprintf(acc, sizeof acc, "  acc %.1f%%",
		        100.0 * (double)v->eval.correct / (double)v->eval.count);
	if (a->gate.has_change)
		snprintf(change, sizeof change, "%.3f", a->gate.change);
	snprintf(out, 200,
	        "%s  step %llu  loss %.3f%s  %.1f%% of the run  %u peer%s  \u0394 %s/%.3f  "
	        "%llu exchanges  \u2191%.1f MB",
	        flock_phase_text(v->phase), (unsigned long long)v->step, v->has_loss ? v->loss : 0,
	        acc, 100.0 * (double)v->clock / (double)v->total, v->candidates,
	        v->candidates == 1 ? "" : "s", change, a->gate.delta,
	        (unsigned long long)(v->counts.begun + v->counts.taken),
	        (double)v->counts.bytes_sent / 1e6);
}

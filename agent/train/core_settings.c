/* SPDX-License-Identifier: MIT */
#include "agent/train/core_settings.h"

#include "net/bulk/convert.h"

#define FRESH_STEPS 100 /* an agent that has trained so many batches has something to give */

/* `every` and the longest silence are told in steps of the batch that training begins with: they
 * count samples, so that larger batches do not thin the mixing. */
static struct gate_config gate_settings(const struct config *c, uint64_t exchange_bytes)
{
	const uint64_t step = (uint64_t)(c->train.batch * c->train.accumulate);
	return (struct gate_config){.mode = (enum gate_mode)c->gossip.gate,
	        .delta = c->gossip.delta,
	        .smooth = c->gossip.gate == GATE_SELSYNC ? 0.01 : 0.16,
	        .slow = 0.02,
	        .warm = 25,
	        .every_samples = (uint64_t)c->gossip.every * step,
	        .chance = c->gossip.chance,
	        .exchanges_per_s = c->gossip.exchanges_per_s,
	        .bytes_per_s = c->gossip.bytes_per_s,
	        .bytes_per_day = c->gossip.bytes_per_day,
	        .incoming_share = c->gossip.incoming_share,
	        .cap_bytes_per_s = c->gossip.upload_cap,
	        .silence_samples = (uint64_t)c->gossip.silence_steps * step,
	        .silence_ms = (uint64_t)(c->gossip.silence_s * 1000),
	        .exchange_bytes = exchange_bytes,
	        .step_samples = step};
}

static bool guards(const struct config *c)
{
	if (c->gossip.guard != GUARD_AUTO)
		return c->gossip.guard == GUARD_ON;
	return c->gossip.gate == GATE_SIGNIFICANCE || c->gossip.gate == GATE_BUDGET;
}

/* How near two models can come. bf16 has 8 significant bits: rounding adds the square of 2^-7 of a
 * number's binade, over 12, which is 2.75e-6 of the number's own square on average; two models that
 * differ by rounding alone are twice that apart, and half of it is a sample of Ξ². */
static double floor2_of(enum convert_format format)
{
	return format == CONVERT_BF16 ? 2.75e-6 : 0;
}

/* gossip.wire lists auto, then the formats. */
static struct format_choice wire_of(const struct flock_config *f, const struct config *c)
{
	return format_choose(&(struct format_config){.stated = c->gossip.wire - 1,
	        .accepted = f->manifest.formats,
	        .scaled = f->scaled,
	        .fine = CONVERT_MOD8,
	        .plain = f->plain,
	        .mode = f->mode});
}

void core_settings(struct flock_config *f, const struct config *c)
{
	f->optimizer = (uint8_t)c->train.optim.kind;
	f->peer_rate = c->gossip.peer_rate;
	f->rate_cap = c->gossip.rate_cap;
	f->mode = (uint8_t)c->gossip.exchange;
	/* Also of an agent that cannot: an offer of such a format it answers with the plain one. */
	f->scaled = CONVERT_LATTICES;
	f->plain = CONVERT_BF16;
	f->merge = CONVERT_MOD8;
	const struct format_choice wire = wire_of(f, c);
	f->format = wire.format;
	f->format_why = wire.why;
	f->n_formats = CONVERT_FORMATS;
	for (int i = 0; i < CONVERT_FORMATS; i++)
		f->exchange_bytes[i] = convert_bytes((enum convert_format)i, f->manifest.count);
	f->guard = guards(c);
	f->momentum =
	        c->train.optim.kind == OPTIM_SGD ? c->train.optim.momentum : c->train.optim.beta1;
	f->lr_peak = c->train.optim.lr;
	for (int i = 0; i < CONVERT_FORMATS; i++)
		f->floor2[i] = floor2_of((enum convert_format)i);
	f->gate = gate_settings(c, f->exchange_bytes[f->format]);
	if (f->scaled >> f->format & 1)
		f->gate.first_bytes = f->exchange_bytes[f->plain];
	f->beta = (float)c->gossip.beta;
	f->stale = c->gossip.stale;
	f->fresh = FRESH_STEPS * (uint64_t)(c->train.batch * c->train.accumulate);
	f->join_ms = (uint64_t)(c->gossip.join_s * 1000);
	f->merge_ms = (uint64_t)(c->gossip.merge_s * 1000);
	f->stay_ms = (uint64_t)(c->gossip.stay_s * 1000);
	f->leave_ms = (uint64_t)(c->agent.leave_s * 1000);
}

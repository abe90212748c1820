/* SPDX-License-Identifier: MIT */
/* The rules that a gate's configuration must keep, and its words. The range of each setting stands
 * with the setting and is not repeated here. Only what the mode uses is looked at, so that settings
 * of other modes never stand in the way. */
#include "gossip/policy/gate.h"

#include <assert.h>

int gate_check(const struct gate_config *c, struct err *e)
{
	bool average =
	        c->mode == GATE_SIGNIFICANCE || c->mode == GATE_SELSYNC || c->mode == GATE_BUDGET;
	bool budget = c->mode == GATE_BUDGET;
	assert((unsigned)c->mode < GATE_MODES);
	assert(!average || (c->smooth > 0 && c->smooth <= 1));
	assert(!average || c->mode == GATE_SELSYNC || (c->slow > 0 && c->slow <= c->smooth));
	assert(c->mode != GATE_SELSYNC || (c->warm >= 1 && c->warm <= GATE_WINDOW_MAX));
	assert(!budget || c->exchanges_per_s > 0 || c->bytes_per_s > 0 || c->bytes_per_day > 0);
	assert((!budget && c->cap_bytes_per_s <= 0) || c->exchange_bytes > 0);
	uint64_t bytes = c->first_bytes > c->exchange_bytes ? c->first_bytes : c->exchange_bytes;
	if (budget && c->bytes_per_day > 0 && c->bytes_per_day < (double)bytes)
		return err_set(e, ERR_INVALID,
		        "gossip.bytes_per_day: %.0f bytes are not enough for one exchange of %.0f",
		        c->bytes_per_day, (double)bytes);
	return 0;
}

const char *gate_mode_text(enum gate_mode m)
{
	switch (m) {
	case GATE_SIGNIFICANCE:
		return "significance";
	case GATE_SELSYNC:
		return "selsync-code";
	case GATE_BUDGET:
		return "budget";
	case GATE_EVERY:
		return "every";
	case GATE_ALWAYS:
		return "always";
	case GATE_RANDOM:
		return "random";
	default:
		return "unknown";
	}
}

const char *gate_reason_text(enum gate_reason r)
{
	switch (r) {
	case REASON_LOCAL:
		return "local";
	case REASON_WARMUP:
		return "warm-up";
	case REASON_SIGNIFICANT:
		return "significant";
	case REASON_SILENCE:
		return "silence";
	case REASON_OWED:
		return "owed";
	case REASON_MODE:
		return "mode";
	case REASON_BUDGET:
		return "budget";
	case REASON_CAP:
		return "cap";
	case REASON_GUARD:
		return "guard";
	default:
		return "unknown";
	}
}

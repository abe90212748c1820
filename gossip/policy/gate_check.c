/* SPDX-License-Identifier: MIT */
/* What a gate may be told to do, and its words. Only what the mode uses is looked at, so that a
 * setting of another mode never stands in the way. */
#include "gossip/policy/gate.h"

#include <math.h>

static bool within(double x, double low, double high)
{
	return isfinite(x) && x >= low && x <= high;
}

static int check_budget(const struct gate_config *c, struct err *e)
{
	if (!within(c->exchanges_per_s, 0, 1e9))
		return err_set(e, ERR_INVALID, "exchanges per second: not within 0 … 1e9");
	if (!within(c->bytes_per_s, 0, 1e15))
		return err_set(e, ERR_INVALID, "bytes per second: not within 0 … 1e15");
	if (!within(c->bytes_per_day, 0, 1e18))
		return err_set(e, ERR_INVALID, "bytes per day: not within 0 … 1e18");
	if (c->exchanges_per_s <= 0 && c->bytes_per_s <= 0 && c->bytes_per_day <= 0)
		return err_set(e, ERR_INVALID,
		        "a budget needs a target: exchanges per second, "
		        "bytes per second or bytes per day");
	if (!within(c->incoming_share, 0, 1))
		return err_set(e, ERR_INVALID, "share for incoming exchanges: not within 0 … 1");
	if (c->bytes_per_day > 0 && c->bytes_per_day < (double)c->exchange_bytes)
		return err_set(e, ERR_INVALID, "bytes per day: not enough for one exchange");
	return 0;
}

int gate_check(const struct gate_config *c, struct err *e)
{
	bool average =
	        c->mode == GATE_SIGNIFICANCE || c->mode == GATE_SELSYNC || c->mode == GATE_BUDGET;
	if ((unsigned)c->mode >= GATE_MODES)
		return err_set(e, ERR_INVALID, "mode: no such");
	if (!within(c->delta, 0, GATE_CHANGE_MAX))
		return err_set(e, ERR_INVALID, "delta: not within 0 … 1e9");
	if (!within(c->smooth, 0, 1) || (average && c->smooth <= 0))
		return err_set(e, ERR_INVALID, "smoothing: not over 0 and at most 1");
	if (c->mode == GATE_SELSYNC && (c->warm < 1 || c->warm > GATE_WINDOW_MAX))
		return err_set(e, ERR_INVALID, "window of selsync-code: not within 1 … %d",
		        GATE_WINDOW_MAX);
	if (c->mode == GATE_EVERY && c->every < 1)
		return err_set(e, ERR_INVALID, "every: at least 1 step");
	if (c->mode == GATE_RANDOM && !within(c->chance, 0, 1))
		return err_set(e, ERR_INVALID, "chance: not within 0 … 1");
	if (!within(c->cap_bytes_per_s, 0, 1e15))
		return err_set(e, ERR_INVALID, "upload cap: not within 0 … 1e15 bytes per second");
	if ((c->mode == GATE_BUDGET || c->cap_bytes_per_s > 0) && c->exchange_bytes == 0)
		return err_set(e, ERR_INVALID,
		        "bytes of an exchange: 0, and something is to be "
		        "paid with them");
	return c->mode == GATE_BUDGET ? check_budget(c, e) : 0;
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
	default:
		return "unknown";
	}
}

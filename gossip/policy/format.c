/* SPDX-License-Identifier: MIT */
#include "gossip/policy/format.h"

#include "gossip/exchange/exchange.h"

#include <stdbool.h>

const char *format_why_text(enum format_why w)
{
	static const char text[FORMAT_WHYS][16] = {[FORMAT_STATED] = "stated",
	        [FORMAT_PACKS] = "packs",
	        [FORMAT_UNPACKED] = "unpacked",
	        [FORMAT_ONE_WAY] = "one-way",
	        [FORMAT_FIRST] = "first",
	        [FORMAT_MERGE] = "merge"};
	return text[w];
}

static bool has(uint64_t formats, int format)
{
	return format >= 0 && format < 64 && formats >> format & 1;
}

struct format_choice format_choose(const struct format_config *c)
{
	bool automatic = c->stated == FORMAT_AUTO;
	int wanted = automatic ? c->fine : c->stated;
	if (has(c->scaled, wanted) && c->mode != EXCHANGE_PAIR)
		return (struct format_choice){c->plain, FORMAT_ONE_WAY};
	if (!has(c->accepted, wanted))
		return (struct format_choice){c->plain, FORMAT_UNPACKED};
	return (struct format_choice){(uint8_t)wanted, automatic ? FORMAT_PACKS : FORMAT_STATED};
}

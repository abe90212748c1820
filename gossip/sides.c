/* SPDX-License-Identifier: MIT */
#include "gossip/sides.h"

#include <string.h>

void sides_add(
        struct sides *s, const struct peer_id *id, const struct sketch *sketch, uint64_t samples)
{
	bool self = peer_id_equal(id, &s->self), peer = peer_id_equal(id, &s->peer);
	if (!self && (samples < s->fresh || (!peer && !sketch)))
		return;
	bool there = peer || (!self && sketch_nearer(sketch, &s->theirs, &s->ours));
	struct side *x = there ? &s->they : &s->we;
	x->agents++;
	x->samples += samples;
}

enum sides_verdict sides_decide(const struct sides *s)
{
	bool less;
	if (s->they.agents == 0)
		return SIDES_NONE;
	if (s->we.agents != s->they.agents)
		less = s->we.agents < s->they.agents;
	else if (s->we.samples != s->they.samples)
		less = s->we.samples < s->they.samples;
	else
		less = memcmp(&s->self, &s->peer, sizeof s->self) > 0;
	return less ? SIDES_ADOPT : SIDES_STAY;
}

/* SPDX-License-Identifier: MIT */
#include "gossip/policy/adoption.h"

#include <string.h>

void adoption_add(
        struct adoption *s, const struct peer_id *id, const struct sketch *sketch, uint64_t samples)
{
	bool self = peer_id_equal(id, &s->self), peer = peer_id_equal(id, &s->peer);
	if (!self && (samples < s->fresh || (!peer && !sketch)))
		return;
	bool there = peer || (!self && sketch_nearer(sketch, &s->theirs, &s->ours));
	struct side *x = there ? &s->they : &s->we;
	x->agents++;
	x->samples += samples;
}

enum adoption_verdict adoption_decide(const struct adoption *s)
{
	bool less;
	if (s->they.agents == 0)
		return ADOPTION_NONE;
	if (s->we.agents != s->they.agents)
		less = s->we.agents < s->they.agents;
	else if (s->we.samples != s->they.samples)
		less = s->we.samples < s->they.samples;
	else
		less = memcmp(&s->self, &s->peer, sizeof s->self) > 0;
	return less ? ADOPTION_ADOPT : ADOPTION_STAY;
}

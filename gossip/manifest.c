/* SPDX-License-Identifier: MIT */
/* What two agents must have in common, and how to say in words what they have not. The order of the
 * comparison is the order of causes: another model has other initial weights, too. */
#include "gossip/exchange_core.h"

#include <string.h>

enum manifest_field manifest_compare(const struct manifest *a, const struct manifest *b)
{
	if (a->run != b->run)
		return MANIFEST_RUN;
	if (a->model != b->model)
		return MANIFEST_MODEL;
	if (a->count != b->count)
		return MANIFEST_COUNT;
	if (a->init != b->init)
		return MANIFEST_INIT;
	if (a->total != b->total)
		return MANIFEST_TOTAL;
	return MANIFEST_SAME;
}

uint64_t manifest_hash(const struct manifest *m)
{
	uint64_t h = rng_mix(rng_mix(m->run, m->model, m->init), m->count, m->total);
	return h ? h : 1;
}

void exchange__unlike(const struct manifest *theirs, const char *their_name,
        const struct manifest *ours, const char *our_name, char words[EXCHANGE_WORDS_MAX + 1])
{
	struct err e = {0};
	switch (manifest_compare(theirs, ours)) {
	case MANIFEST_RUN:
		err_set(&e, ERR_MISMATCH, "the run's name differs (gossip.run)");
		break;
	case MANIFEST_MODEL:
		err_set(&e, ERR_MISMATCH, "the model differs (model)");
		break;
	case MANIFEST_COUNT:
		err_set(&e, ERR_MISMATCH, "the parameters differ: %s %llu, %s %llu (model)",
		        their_name, (unsigned long long)theirs->count, our_name,
		        (unsigned long long)ours->count);
		break;
	case MANIFEST_INIT:
		err_set(&e, ERR_MISMATCH,
		        "the initial weights differ (train.seed or run.init_from)");
		break;
	case MANIFEST_TOTAL:
		err_set(&e, ERR_MISMATCH,
		        "the run's samples differ: %s %llu, %s %llu (train.epochs, data)",
		        their_name, (unsigned long long)theirs->total, our_name,
		        (unsigned long long)ours->total);
		break;
	case MANIFEST_SAME:
		break;
	}
	exchange__words(words, e.msg);
}

void exchange__words(char words[EXCHANGE_WORDS_MAX + 1], const char *from)
{
	size_t n = 0;
	while (from && n < EXCHANGE_WORDS_MAX && from[n])
		n++;
	if (n > 0)
		memcpy(words, from, n);
	words[n] = '\0';
}

/* ---- texts */

const char *exchange_why_text(enum exchange_why w)
{
	static const char text[EXCHANGE_WHYS][12] = {
	        [EXCHANGE_WILLING] = "willing",
	        [EXCHANGE_OTHER] = "other",
	        [EXCHANGE_ENGAGED] = "engaged",
	        [EXCHANGE_BUDGET] = "budget",
	        [EXCHANGE_RATE] = "rate",
	        [EXCHANGE_JOINING] = "joining",
	        [EXCHANGE_PAUSED] = "paused",
	        [EXCHANGE_LEAVING] = "leaving",
	        [EXCHANGE_STALE] = "stale",
	        [EXCHANGE_APART] = "apart",
	        [EXCHANGE_QUARANTINED] = "quarantined",
	        [EXCHANGE_UNLIKE] = "unlike",
	        [EXCHANGE_UNKNOWN] = "unknown",
	};
	return (unsigned)w < EXCHANGE_WHYS ? text[w] : "other";
}

const char *exchange_outcome_text(enum exchange_outcome o)
{
	static const char text[OUTCOMES][12] = {
	        [OUTCOME_EXCHANGED] = "exchanged",
	        [OUTCOME_BUSY] = "busy",
	        [OUTCOME_UNLIKE] = "unlike",
	        [OUTCOME_CROSSED] = "crossed",
	        [OUTCOME_TIMEOUT] = "timeout",
	        [OUTCOME_BROKEN] = "broken",
	        [OUTCOME_BAD] = "bad",
	        [OUTCOME_ONE_SIDED] = "one-sided",
	        [OUTCOME_CANCELLED] = "cancelled",
	};
	return (unsigned)o < OUTCOMES ? text[o] : "unknown";
}

const char *exchange_state_text(enum exchange_state s)
{
	static const char text[EXCHANGE_STATES][12] = {
	        [EXCHANGE_IDLE] = "idle",
	        [EXCHANGE_OFFERED] = "offered",
	        [EXCHANGE_PREPARING] = "preparing",
	        [EXCHANGE_MOVING] = "moving",
	        [EXCHANGE_ENDING] = "ending",
	        [EXCHANGE_COMMITTED] = "committed",
	        [EXCHANGE_APPLYING] = "applying",
	        [EXCHANGE_ACKING] = "acking",
	        [EXCHANGE_UNSETTLED] = "unsettled",
	};
	return (unsigned)s < EXCHANGE_STATES ? text[s] : "unknown";
}

/* SPDX-License-Identifier: MIT */
/* What two agents must have in common, and how to say in words what they have not. The table's
 * order is the order of causes, and what merely follows from an earlier difference is not told. */
#include "gossip/exchange/exchange_internal.h"

#include <stddef.h>
#include <string.h>

enum compare { COMPARE_EQUAL, COMPARE_COMMON /* of two sets: one element at least */ };
enum tell { TELL_NOTHING, TELL_NUMBERS, TELL_NAMES };

#define NAMES_MAX 3
static const struct row {
	size_t offset;
	enum compare compare;
	char words[28], keys[28]; /* arrays: pointers would be variables of ours */
	enum tell tell;           /* the two values */
	char names[NAMES_MAX][8];
	uint32_t follows; /* from these */
} rows[MANIFEST_FIELDS] = {
        [MANIFEST_RUN] = {.offset = offsetof(struct manifest, run),
                .words = "the run's name differs",
                .keys = "gossip.run"},
        [MANIFEST_MODEL] = {.offset = offsetof(struct manifest, model),
                .words = "the model differs",
                .keys = "model"},
        [MANIFEST_COUNT] = {.offset = offsetof(struct manifest, count),
                .words = "the parameters differ",
                .keys = "model",
                .tell = TELL_NUMBERS,
                .follows = MANIFEST_BIT(MANIFEST_MODEL)},
        [MANIFEST_INIT] = {.offset = offsetof(struct manifest, init),
                .words = "the initial weights differ",
                .keys = "train.seed or run.init_from",
                .follows = MANIFEST_BIT(MANIFEST_MODEL) | MANIFEST_BIT(MANIFEST_COUNT)},
        [MANIFEST_TOTAL] = {.offset = offsetof(struct manifest, total),
                .words = "the run's samples differ",
                .keys = "train.epochs, data",
                .tell = TELL_NUMBERS},
        [MANIFEST_OPTIMIZER] = {.offset = offsetof(struct manifest, optimizer),
                .words = "the optimizer differs",
                .keys = "train.optimizer",
                .tell = TELL_NAMES,
                .names = {"sgd", "adamw"}},
        [MANIFEST_MODE] = {.offset = offsetof(struct manifest, mode),
                .words = "the exchange mode differs",
                .keys = "gossip.exchange",
                .tell = TELL_NAMES,
                .names = {[EXCHANGE_PAIR] = "pair",
                        [EXCHANGE_PUSH] = "push",
                        [EXCHANGE_PULL] = "pull"}},
        [MANIFEST_FORMATS] = {.offset = offsetof(struct manifest, formats),
                .compare = COMPARE_COMMON,
                .words = "no wire format is common",
                .keys = "gossip.wire"},
        [MANIFEST_OUTER] = {.offset = offsetof(struct manifest, outer),
                .words = "the outer optimizer differs",
                .keys = "gossip.outer",
                .tell = TELL_NAMES,
                .names = {"none", "noloco", "qgm"}},
        [MANIFEST_DATA] = {.offset = offsetof(struct manifest, data),
                .words = "the data differ",
                .keys = "data",
                .tell = TELL_NUMBERS,
                .follows = MANIFEST_BIT(MANIFEST_TOTAL)},
};

static uint64_t value(const struct manifest *m, const struct row *r)
{
	uint64_t v;
	memcpy(&v, (const char *)m + r->offset, sizeof v);
	return v;
}

uint32_t manifest_compare(const struct manifest *a, const struct manifest *b)
{
	uint32_t set = 0;
	for (int i = 0; i < MANIFEST_FIELDS; i++) {
		uint64_t x = value(a, &rows[i]), y = value(b, &rows[i]);
		bool alike = rows[i].compare == COMPARE_COMMON ? (x & y) != 0 : x == y;
		if (!alike)
			set |= MANIFEST_BIT(i);
	}
	return set;
}

uint64_t manifest_hash(const struct manifest *m)
{
	uint64_t h = 0;
	for (int i = 0; i < MANIFEST_FIELDS; i++) {
		uint64_t v = value(m, &rows[i]);
		if (i > MANIFEST_FORMATS && v == 0) /* as of those that do not know the field */
			continue;
		if (rows[i].compare == COMPARE_EQUAL)
			h = rng_mix(h, v, (uint64_t)i);
	}
	return h ? h : 1;
}

struct text {
	char *out;
	size_t at, room; /* room: NUL not included */
};

/* What has no room is cut. */
static void add(struct text *t, const char *text)
{
	while (*text && t->at < t->room)
		t->out[t->at++] = *text++;
	t->out[t->at] = '\0';
}

static void add_value(struct text *t, const struct row *r, const struct manifest *m)
{
	uint64_t v = value(m, r);
	char digits[21] = "";
	int i = 20;
	if (r->tell == TELL_NAMES && v < NAMES_MAX && r->names[v][0]) {
		add(t, r->names[v]);
		return;
	}
	do
		digits[--i] = (char)('0' + v % 10);
	while ((v /= 10) > 0);
	add(t, digits + i);
}

void manifest_words(const struct manifest *theirs, const struct manifest *ours,
        char out[MANIFEST_WORDS_MAX + 1])
{
	struct text t = {.out = out, .room = MANIFEST_WORDS_MAX};
	uint32_t set = manifest_compare(theirs, ours);
	out[0] = '\0';
	for (int i = 0; i < MANIFEST_FIELDS; i++) {
		const struct row *r = &rows[i];
		if (!(set & MANIFEST_BIT(i)) || set & r->follows)
			continue;
		add(&t, t.at > 0 ? "; " : "");
		add(&t, r->words);
		if (r->tell != TELL_NOTHING) {
			add(&t, ": theirs ");
			add_value(&t, r, theirs);
			add(&t, ", ours ");
			add_value(&t, r, ours);
		}
		add(&t, " (");
		add(&t, r->keys);
		add(&t, ")");
	}
}

void manifest_keys(uint32_t differences, char out[MANIFEST_KEYS_MAX + 1])
{
	struct text t = {.out = out, .room = MANIFEST_KEYS_MAX};
	out[0] = '\0';
	for (int i = 0; i < MANIFEST_FIELDS; i++) {
		if (!(differences & MANIFEST_BIT(i)) || differences & rows[i].follows)
			continue;
		add(&t, t.at > 0 ? ", " : "");
		add(&t, rows[i].keys);
	}
}

void exchange__unlike(const struct manifest *theirs, const struct manifest *ours,
        char words[EXCHANGE_WORDS_MAX + 1])
{
	char all[MANIFEST_WORDS_MAX + 1] = "";
	manifest_words(theirs, ours, all);
	if (all[EXCHANGE_WORDS_MAX] != '\0') /* too long: the settings, at least */
		manifest_keys(manifest_compare(theirs, ours), all);
	exchange__words(words, all);
}

void exchange__words(char words[EXCHANGE_WORDS_MAX + 1], const char *from)
{
	struct text t = {.out = words, .room = EXCHANGE_WORDS_MAX};
	words[0] = '\0';
	if (from)
		add(&t, from);
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

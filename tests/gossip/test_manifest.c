/* SPDX-License-Identifier: MIT */
/* What two agents must have in common: each difference by itself and in words, how an exchange ends
 * by one, and when nobody is left to train with. */
#include "gossip/policy/unlike.h"
#include "tests/gossip/exchange_support.h"

#include <stddef.h>

/* Each field of a manifest: its bit, its words, the settings that they name. */
static const struct {
	size_t offset;
	uint64_t other;
	uint32_t bit;
	const char *words, *keys;
} fields[] = {
        {offsetof(struct manifest, run), 9, MANIFEST_BIT(MANIFEST_RUN),
                "the run's name differs (gossip.run)", "gossip.run"},
        {offsetof(struct manifest, model), 9, MANIFEST_BIT(MANIFEST_MODEL),
                "the model differs (model)", "model"},
        {offsetof(struct manifest, count), 9, MANIFEST_BIT(MANIFEST_COUNT),
                "the parameters differ: theirs 9, ours 4 (model)", "model"},
        {offsetof(struct manifest, init), 9, MANIFEST_BIT(MANIFEST_INIT),
                "the initial weights differ (train.seed or run.init_from)",
                "train.seed or run.init_from"},
        {offsetof(struct manifest, total), 9, MANIFEST_BIT(MANIFEST_TOTAL),
                "the run's samples differ: theirs 9, ours 1200000 (train.epochs, data)",
                "train.epochs, data"},
        {offsetof(struct manifest, optimizer), 0, MANIFEST_BIT(MANIFEST_OPTIMIZER),
                "the optimizer differs: theirs sgd, ours adamw (train.optimizer)",
                "train.optimizer"},
        {offsetof(struct manifest, mode), EXCHANGE_PULL, MANIFEST_BIT(MANIFEST_MODE),
                "the exchange mode differs: theirs pull, ours pair (gossip.exchange)",
                "gossip.exchange"},
        {offsetof(struct manifest, formats), 4, MANIFEST_BIT(MANIFEST_FORMATS),
                "no wire format is common (gossip.wire)", "gossip.wire"},
        {offsetof(struct manifest, outer), 2, MANIFEST_BIT(MANIFEST_OUTER),
                "the outer optimizer differs: theirs qgm, ours none (gossip.outer)",
                "gossip.outer"},
        {offsetof(struct manifest, data), 9, MANIFEST_BIT(MANIFEST_DATA),
                "the data differ: theirs 9, ours 0 (data)", "data"},
};
#define N_MANIFEST ((int)(sizeof fields / sizeof fields[0]))

static struct manifest with(int i)
{
	struct manifest m = like;
	memcpy((char *)&m + fields[i].offset, &fields[i].other, sizeof fields[i].other);
	return m;
}

static void test_manifest(void **unused)
{
	(void)unused;
	char words[MANIFEST_WORDS_MAX + 1], keys[MANIFEST_KEYS_MAX + 1];
	assert_int_equal(N_MANIFEST, MANIFEST_FIELDS);
	assert_int_equal(manifest_compare(&like, &like), MANIFEST_SAME);
	for (int i = 0; i < N_MANIFEST; i++) {
		struct manifest m = with(i);
		bool format = fields[i].bit == MANIFEST_BIT(MANIFEST_FORMATS);
		assert_int_equal(manifest_compare(&m, &like), fields[i].bit);
		assert_int_equal(manifest_hash(&m) == manifest_hash(&like), format);
		manifest_words(&m, &like, words);
		assert_string_equal(words, fields[i].words);
		manifest_keys(fields[i].bit, keys);
		assert_string_equal(keys, fields[i].keys);
	}
	/* Records carry the hash, also to agents of another version: the number stays. */
	struct manifest m = like;
	assert_true(manifest_hash(&m) == 0xdbd510baea03a465u);
	m.outer = 2;
	m.data = 9;
	assert_true(manifest_hash(&m) == 0x0f6623a2eb5da79du);
	/* One common format is enough, in either direction. */
	m = like;
	m.formats = 2 | 1ull << 63;
	assert_int_equal(manifest_compare(&m, &like) | manifest_compare(&like, &m), MANIFEST_SAME);
	m = like;
	m.optimizer = 3; /* of a newer version */
	manifest_words(&m, &like, words);
	assert_string_equal(words, "the optimizer differs: theirs 3, ours adamw (train.optimizer)");
	/* All at once, as long as they get: what follows from another model is not told. */
	memset(&m, 0xff, sizeof m);
	m.formats = 4;
	manifest_words(&m, &like, words);
	assert_string_equal(words,
	        "the run's name differs (gossip.run); the model differs (model); the run's samples "
	        "differ: theirs 18446744073709551615, ours 1200000 (train.epochs, data); the "
	        "optimizer differs: theirs 18446744073709551615, ours adamw (train.optimizer); the "
	        "exchange mode differs: theirs 18446744073709551615, ours pair (gossip.exchange); "
	        "no wire format is common (gossip.wire); the outer optimizer differs: theirs "
	        "18446744073709551615, ours none (gossip.outer)");
	m.model = like.model;
	struct manifest huge = like;
	huge.count = huge.total = huge.optimizer = huge.mode = huge.outer = UINT64_MAX - 1;
	manifest_words(&m, &huge, words);
	assert_true(strlen(words) < MANIFEST_WORDS_MAX);
	assert_string_equal(words + strlen(words) - 14, "(gossip.outer)");
	manifest_keys(MANIFEST_BIT(MANIFEST_FIELDS) - 1 - MANIFEST_BIT(MANIFEST_MODEL) -
	                      MANIFEST_BIT(MANIFEST_COUNT),
	        keys);
	assert_string_equal(keys, "gossip.run, train.seed or run.init_from, train.epochs, data, "
	                          "train.optimizer, gossip.exchange, gossip.wire, "
	                          "gossip.outer");
	assert_true(strlen(keys) < MANIFEST_KEYS_MAX);
}

static void test_unlike(void **unused)
{
	(void)unused;
	for (int i = 0; i < N_MANIFEST; i++) {
		struct fixture f;
		struct exchange_terms t = terms(EXCHANGE_PAIR);
		t.manifest = with(i);
		begin(&f);
		offer(&f, t, EXCHANGE_STALE); /* the other reasons follow from this one */
		const struct exchange_message *m = sent(&f, EXCHANGE_BUSY);
		assert_int_equal(m->busy.why, EXCHANGE_UNLIKE);
		assert_memory_equal(&m->busy.manifest, &like, sizeof like);
		ended(&f, OUTCOME_UNLIKE, false);
		assert_false(f.a.result.ours);
		assert_string_equal(f.a.result.words, fields[i].words);
		assert_false(f.a.cancel);
		end(&f);
		/* Crossing: our own offer ends with it. */
		begin(&f);
		f.peer = id(3);
		start(&f, EXCHANGE_PAIR);
		uint64_t own = f.number;
		offer(&f, t, EXCHANGE_WILLING);
		sent(&f, EXCHANGE_BUSY);
		f.number = own;
		ended(&f, OUTCOME_UNLIKE, false);
		assert_true(f.a.result.ours);
		end(&f);
		/* Told by the peer: its manifest counts, not its words. */
		struct exchange_message b = {.kind = EXCHANGE_BUSY};
		b.busy.why = EXCHANGE_UNLIKE;
		b.busy.manifest = with(i);
		memcpy(b.busy.words, "trust me", 9);
		reach(&f, EXCHANGE_OFFERED, true, EXCHANGE_PAIR, false);
		hear(&f, b);
		ended(&f, OUTCOME_UNLIKE, false);
		assert_string_equal(f.a.result.words, fields[i].words);
		end(&f);
	}
	/* More words than there is room for: the settings alone. */
	struct fixture f;
	struct exchange_terms t = terms(EXCHANGE_PAIR);
	memset(&t.manifest, 0xff, sizeof t.manifest);
	begin(&f);
	offer(&f, t, EXCHANGE_WILLING);
	assert_string_equal(f.a.result.words,
	        "gossip.run, model, train.epochs, data, train.optimizer, gossip.exchange, "
	        "gossip.outer");
	end(&f);
}

/* ---- who is left to train with */

#define NOBODY ((struct unlike_count){0})
#define OURS 1000
#define OTHERS 2000

static void test_unlike_peers(void **unused)
{
	(void)unused;
	static struct unlike u;
	const uint32_t optimizer = MANIFEST_BIT(MANIFEST_OPTIMIZER),
	               mode = MANIFEST_BIT(MANIFEST_MODE), run = MANIFEST_BIT(MANIFEST_RUN);
	struct peer_id a = id(1), b = id(2), c = id(3);
	struct unlike_count n = NOBODY;
	memset(&u, 0, sizeof u);
	/* Who differs only by its record is asked, once in a while. */
	assert_true(unlike_ask(&u, &a, OTHERS, 0));
	assert_false(unlike_ask(&u, &a, OTHERS, UNLIKE_EVERY_MS - 1));
	assert_true(unlike_ask(&u, &a, OTHERS, UNLIKE_EVERY_MS + 1));
	unlike_count(&u, &n, &a, OTHERS, OURS);
	assert_true(n.unknown == 1 && unlike_verdict(&n) == 0);
	/* One is enough where there is no other ... */
	assert_true(unlike_heard(&u, &a, OTHERS, optimizer, 5));
	assert_false(unlike_heard(&u, &a, OTHERS, optimizer, 6)); /* no news */
	assert_false(unlike_ask(&u, &a, OTHERS, 1000000));
	n = NOBODY;
	unlike_count(&u, &n, &a, OTHERS, OURS);
	assert_int_equal(unlike_verdict(&n), optimizer);
	/* ... but not where another may be of our run, */
	unlike_count(&u, &n, &b, OTHERS, OURS);
	assert_true(n.unknown == 1 && unlike_verdict(&n) == 0);
	/* and two are, whoever else is unknown. All that differs is named. */
	assert_true(unlike_heard(&u, &b, OTHERS, mode, 7));
	n = NOBODY;
	unlike_count(&u, &n, &a, OTHERS, OURS);
	unlike_count(&u, &n, &b, OTHERS, OURS);
	unlike_count(&u, &n, &c, OTHERS, OURS);
	assert_int_equal(unlike_verdict(&n), optimizer | mode);
	/* Other runs do not count, and one that is like us does. */
	assert_true(unlike_heard(&u, &c, OTHERS, run | mode, 8));
	n = NOBODY;
	unlike_count(&u, &n, &c, OTHERS, OURS);
	assert_true(n.other_run == 1 && unlike_verdict(&n) == 0);
	unlike_count(&u, &n, &a, OTHERS, OURS);
	unlike_count(&u, &n, &b, OTHERS, OURS);
	assert_true(unlike_verdict(&n) != 0);
	struct peer_id d = id(4);
	unlike_count(&u, &n, &d, OURS, OURS);
	assert_true(n.like == 1 && unlike_verdict(&n) == 0);
	/* Formats are no part of the hash: then its manifest says more than its record. */
	assert_true(unlike_heard(&u, &d, OURS, MANIFEST_BIT(MANIFEST_FORMATS), 9));
	assert_true(unlike_differs(&u, &d, OURS) != 0);
	n = NOBODY;
	unlike_count(&u, &n, &d, OURS, OURS);
	assert_true(n.unlike == 1 && unlike_verdict(&n) != 0);
	/* It came back with other settings: what was heard is of the past. */
	n = NOBODY;
	unlike_count(&u, &n, &a, OTHERS + 1, OURS);
	assert_int_equal(n.unknown, 1);
	assert_true(unlike_ask(&u, &a, OTHERS + 1, 10));
	/* Who changes its mind with each word is not told of each time. */
	assert_true(unlike_heard(&u, &a, OTHERS + 1, mode, 11));
	assert_false(unlike_heard(&u, &a, OTHERS + 1, optimizer, 12));
	assert_false(unlike_heard(&u, &a, OTHERS + 1, MANIFEST_SAME, 13));
	assert_int_equal(unlike_differs(&u, &a, OTHERS + 1), 0);
	/* Any number of them takes no more room. */
	for (int i = 0; i < 1000; i++) {
		struct peer_id p = {{(uint8_t)i, (uint8_t)(i >> 8), 1}};
		unlike_heard(&u, &p, OTHERS, mode, (uint64_t)(100 + i));
	}
	assert_int_equal(u.n, UNLIKE_PEERS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_manifest),
	        cmocka_unit_test(test_unlike),
	        cmocka_unit_test(test_unlike_peers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

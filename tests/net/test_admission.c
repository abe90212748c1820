/* SPDX-License-Identifier: MIT */
/* Who is admitted: certificates in a table, how many of an invite count, what expires and what is
 * revoked, and that an invite's holder cannot fill the table. */
#include "net/transport/admission.h"
#include "tests/support.h"

#include <sodium.h>

#define NOW 1000
#define AGENTS 1200

struct key {
	uint8_t public[SIGN_PUBLIC_BYTES], secret[SIGN_SECRET_BYTES];
};

static struct key owner_key, stranger, invites[3], agents[AGENTS];
static struct owner owner;

static void make(struct key *k, uint8_t seed)
{
	uint8_t bytes[crypto_sign_ed25519_SEEDBYTES];
	memset(bytes, seed, sizeof bytes);
	crypto_sign_ed25519_seed_keypair(k->public, k->secret, bytes);
}

static int compare_keys(const void *a, const void *b)
{
	return memcmp(a, b, SIGN_PUBLIC_BYTES);
}

/* The lower the number, the lower the id. */
static struct peer_id id_of(int number)
{
	struct peer_id id;
	memcpy(id.bytes, agents[number].public, sizeof id.bytes);
	return id;
}

static const char *const labels[] = {"one", "two", "three"};

/* Invite k is for k + 1 agents. */
static void certify_by(
        const struct key *by, uint8_t out[CERTIFICATE_BYTES], int k, int number, uint64_t expires_s)
{
	struct invite v = {.agents = (uint32_t)k + 1, .expires_s = expires_s};
	uint8_t invite[INVITE_BYTES];
	struct peer_id id = id_of(number);
	snprintf(v.label, sizeof v.label, "%s", labels[k]);
	memcpy(v.key, invites[k].public, sizeof v.key);
	invite_sign(&v, by->secret, invite);
	certificate_sign(invite, invites[k].secret, &id, agents[number].secret, out);
}

static int add(struct admission *a, int k, int number, uint64_t expires_s)
{
	uint8_t bytes[CERTIFICATE_BYTES];
	certify_by(&owner_key, bytes, k, number, expires_s);
	return admission_add(a, bytes, sizeof bytes, NULL);
}

static enum admission_verdict look(const struct admission *a, int number)
{
	struct peer_id id = id_of(number);
	return admission_look(a, &id);
}

static void live(struct admission *a, int number, bool is)
{
	struct peer_id id = id_of(number);
	admission_live(a, &id, is);
}

/* Ourselves are number 0, of the invite for one. */
static struct admission *open_it(uint32_t max)
{
	uint8_t own[CERTIFICATE_BYTES];
	struct admission *a;
	struct err e = {0};
	certify_by(&owner_key, own, 0, 0, 2 * NOW);
	if (admission_new(&a, &owner, own, max, NOW, &e))
		fail_msg("%s", e.msg);
	return a;
}

static int setup(void **state)
{
	(void)state;
	if (sodium_init() < 0)
		return -1;
	make(&owner_key, 1);
	make(&stranger, 2);
	for (int i = 0; i < 3; i++)
		make(&invites[i], (uint8_t)(10 + i));
	memcpy(owner.key, owner_key.public, sizeof owner.key);
	for (int i = 0; i < AGENTS; i++) {
		uint8_t seed[crypto_sign_ed25519_SEEDBYTES] = {(uint8_t)i, (uint8_t)(i >> 8)};
		crypto_sign_ed25519_seed_keypair(agents[i].public, agents[i].secret, seed);
	}
	qsort(agents, AGENTS, sizeof agents[0], compare_keys);
	return 0;
}

static void test_only_with_a_certificate(void **state)
{
	struct admission *a = open_it(16);
	uint8_t bytes[CERTIFICATE_BYTES];
	bool worked;
	(void)state;
	assert_int_equal(look(a, 0), ADMITTED);
	assert_int_equal(look(a, 1), ADMISSION_UNKNOWN);
	certify_by(&stranger, bytes, 1, 1, 2 * NOW);
	assert_int_equal(admission_add(a, bytes, sizeof bytes, &worked), ERR_MISMATCH);
	assert_true(worked);
	assert_int_equal(admission_add(a, bytes, 10, &worked), ERR_FORMAT);
	assert_false(worked);
	assert_int_equal(look(a, 1), ADMISSION_UNKNOWN);
	assert_int_equal(add(a, 1, 1, 2 * NOW), 0);
	assert_int_equal(look(a, 1), ADMITTED);
	struct peer_id id = id_of(1);
	assert_string_equal(admission_invite(a, &id)->label, "two");
	certify_by(&owner_key, bytes, 1, 1, 2 * NOW);
	assert_memory_equal(admission_find(a, &id), bytes, sizeof bytes);
	assert_int_equal(admission_add(a, bytes, sizeof bytes, &worked), 0);
	assert_false(worked); /* known: nothing to verify */
	admission_free(a);
}

static void test_expires_and_is_renewed(void **state)
{
	struct admission *a = open_it(16);
	(void)state;
	assert_int_equal(add(a, 1, 1, NOW), ERR_STALE);
	assert_int_equal(add(a, 1, 1, NOW + 5), 0);
	admission_time(a, NOW + 5);
	assert_int_equal(look(a, 1), ADMISSION_EXPIRED);
	assert_int_equal(add(a, 1, 1, NOW + 50), 0);
	assert_int_equal(look(a, 1), ADMITTED);
	assert_int_equal(add(a, 1, 1, NOW + 6), 0); /* the older one changes nothing */
	admission_time(a, NOW + 49);
	assert_int_equal(look(a, 1), ADMITTED);
	admission_free(a);
}

/* The holder of an invite for one, who has a low id itself, certifies others' ids with it, for
 * longer than they have: they would be too many of that invite. */
static void test_nobody_is_moved_into_anothers_invite(void **state)
{
	struct admission *a = open_it(16);
	struct invite v = {.label = "one", .agents = 1, .expires_s = 9 * NOW};
	uint8_t invite[INVITE_BYTES], bytes[CERTIFICATE_BYTES];
	(void)state;
	memcpy(v.key, invites[0].public, sizeof v.key);
	invite_sign(&v, owner_key.secret, invite);
	assert_int_equal(add(a, 2, 7, 2 * NOW), 0);
	live(a, 7, true);
	assert_int_equal(add(a, 0, 1, 9 * NOW), 0);
	live(a, 1, true);
	struct peer_id victim = id_of(7), self = id_of(0);
	certificate_sign(invite, invites[0].secret, &victim, agents[1].secret, bytes);
	assert_int_equal(admission_add(a, bytes, sizeof bytes, NULL), ERR_MISMATCH);
	assert_int_equal(look(a, 7), ADMITTED);
	assert_string_equal(admission_invite(a, &victim)->label, "three");
	/* Ours stays whatever a peer sends, signed by us or not. */
	certificate_sign(invite, invites[0].secret, &self, agents[1].secret, bytes);
	assert_int_equal(admission_add(a, bytes, sizeof bytes, NULL), 0);
	assert_int_equal(add(a, 2, 0, 9 * NOW), 0);
	assert_string_equal(admission_invite(a, &self)->label, "one");
	assert_int_equal(admission_invite(a, &self)->expires_s, 2 * NOW);
	assert_int_equal(look(a, 0), ADMITTED);
	admission_free(a);
}

/* Whatever order they come in. */
static void test_the_lowest_that_live_count(void **state)
{
	static const int orders[][4] = {{1, 2, 3, 4}, {4, 3, 2, 1}, {3, 1, 4, 2}};
	(void)state;
	for (size_t o = 0; o < sizeof orders / sizeof orders[0]; o++) {
		struct admission *a = open_it(16);
		for (int i = 0; i < 4; i++) {
			assert_int_equal(add(a, 2, orders[o][i], 2 * NOW), 0);
			live(a, orders[o][i], true);
		}
		for (int i = 1; i <= 4; i++)
			assert_int_equal(look(a, i), i <= 3 ? ADMITTED : ADMISSION_FULL);
		live(a, 4, false); /* as the recheck does it */
		assert_int_equal(look(a, 4), ADMISSION_FULL);
		live(a, 2, false);
		assert_int_equal(look(a, 4), ADMITTED);
		assert_int_equal(look(a, 2), ADMITTED); /* may come back */
		live(a, 4, true);
		assert_int_equal(look(a, 4), ADMITTED);
		live(a, 2, true);
		assert_int_equal(look(a, 4), ADMISSION_FULL);
		/* Other invites have nothing to do with it. */
		assert_int_equal(add(a, 1, 99, 2 * NOW), 0);
		assert_int_equal(look(a, 99), ADMITTED);
		admission_free(a);
	}
}

static void test_an_invite_fills_no_table(void **state)
{
	struct admission *a = open_it(64);
	int known = 0;
	(void)state;
	assert_int_equal(add(a, 2, 5, 2 * NOW), 0);
	live(a, 5, true);
	for (int i = 1000; i < 1200; i++)
		assert_int_equal(add(a, 1, i, 2 * NOW), 0);
	for (int i = 1000; i < 1200; i++)
		known += look(a, i) != ADMISSION_UNKNOWN;
	assert_int_equal(known, 2 * 2 + 8);
	assert_int_equal(look(a, 5), ADMITTED);
	assert_int_equal(look(a, 0), ADMITTED);
	admission_free(a);
	/* All that live, and no room. */
	a = open_it(2);
	for (int i = 1; i < 3; i++) {
		assert_int_equal(add(a, 2, i, 2 * NOW), 0);
		live(a, i, true);
	}
	assert_int_equal(add(a, 2, 3, 2 * NOW), ERR_LIMIT);
	live(a, 2, false);
	assert_int_equal(add(a, 2, 3, 2 * NOW), 0);
	assert_int_equal(look(a, 2), ADMISSION_UNKNOWN);
	assert_int_equal(look(a, 0), ADMITTED);
	admission_free(a);
}

/* An invite of its own for agent `number`, for ever unless it is said. */
static int add_alone(struct admission *a, int number, uint64_t expires_s)
{
	struct invite v = {.label = "one", .agents = 1, .expires_s = expires_s};
	uint8_t invite[INVITE_BYTES], bytes[CERTIFICATE_BYTES];
	struct peer_id id = id_of(number);
	memcpy(v.key, agents[number].public, sizeof v.key); /* another key for each */
	invite_sign(&v, owner_key.secret, invite);
	certificate_sign(invite, agents[number].secret, &id, agents[number].secret, bytes);
	return admission_add(a, bytes, sizeof bytes, NULL);
}

static void test_old_invites_give_way(void **state)
{
	struct admission *a = open_it(1000);
	(void)state;
	/* With our own, all places are taken; number 2 lives, 7 and 9 expire soon. */
	for (int i = 1; i < ADMISSION_INVITES; i++)
		assert_int_equal(add_alone(a, i, i == 7 || i == 9 ? NOW + 5 : 3 * NOW), 0);
	live(a, 2, true);
	live(a, 9, true);
	admission_time(a, NOW + 5);
	assert_int_equal(look(a, 7), ADMISSION_EXPIRED);
	for (int i = 500; i < 502; i++)
		assert_int_equal(add_alone(a, i, 3 * NOW), 0);
	assert_int_equal(look(a, 7), ADMISSION_UNKNOWN);
	assert_int_equal(look(a, 9), ADMISSION_UNKNOWN);
	assert_int_equal(look(a, 1), ADMITTED);
	/* Now the oldest of which nobody lives; never our own. */
	assert_int_equal(add_alone(a, 502, 3 * NOW), 0);
	assert_int_equal(look(a, 1), ADMISSION_UNKNOWN);
	for (int i = 503; i < 900; i++)
		assert_int_equal(add_alone(a, i, 3 * NOW), 0);
	assert_int_equal(look(a, 2), ADMITTED);
	assert_int_equal(look(a, 0), ADMITTED);
	assert_int_equal(look(a, 899), ADMITTED);
	assert_int_equal(look(a, 510), ADMISSION_UNKNOWN);
	/* Not even when it has expired. */
	admission_time(a, 2 * NOW);
	assert_int_equal(add_alone(a, 900, 3 * NOW), 0);
	assert_int_equal(look(a, 0), ADMISSION_EXPIRED);
	admission_free(a);
}

/* Two invites with one label are one label: the owner has signed both. */
static void test_what_a_label_stands_for(void **state)
{
	struct admission *a = open_it(16);
	struct peer_id id = id_of(1);
	struct invite v;
	(void)state;
	assert_false(admission_label(a, &id, &v));
	assert_int_equal(add(a, 0, 1, 2 * NOW), 0);
	assert_true(admission_label(a, &id, &v));
	assert_int_equal(v.agents, 1);
	assert_int_equal(add_alone(a, 2, NOW + 5), 0);
	assert_int_equal(add(a, 2, 3, 2 * NOW), 0); /* another label */
	assert_true(admission_label(a, &id, &v));
	assert_int_equal(v.agents, 2);
	assert_string_equal(v.label, "one");
	admission_time(a, NOW + 5);
	assert_true(admission_label(a, &id, &v));
	assert_int_equal(v.agents, 1);
	admission_free(a);
}

static size_t list(uint8_t *out, const struct key *by, uint64_t version, int number)
{
	struct revocations r = {.version = version, .expires_s = NOW + 100, .n = 2};
	struct peer_id id = id_of(number);
	r.entry[0].kind = REVOKED_ID;
	memcpy(r.entry[0].name, id.bytes, sizeof id.bytes);
	r.entry[1].kind = REVOKED_LABEL;
	memcpy(r.entry[1].name, "three", 5);
	return revocations_sign(&r, by->secret, out);
}

static void test_revoked(void **state)
{
	struct admission *a = open_it(16);
	uint8_t bytes[REVOCATIONS_BYTES(REVOKED_MAX)];
	(void)state;
	assert_int_equal(add(a, 1, 1, 2 * NOW), 0);
	assert_int_equal(add(a, 1, 2, 2 * NOW), 0);
	assert_int_equal(add(a, 2, 3, 2 * NOW), 0);
	size_t n = list(bytes, &stranger, 9, 1);
	assert_int_equal(admission_revoke(a, bytes, n, NULL), ERR_MISMATCH);
	assert_int_equal(look(a, 1), ADMITTED);
	n = list(bytes, &owner_key, 2, 1);
	assert_int_equal(admission_revoke(a, bytes, n, NULL), 0);
	assert_int_equal(look(a, 1), ADMISSION_REVOKED);
	assert_int_equal(look(a, 2), ADMITTED);
	assert_int_equal(look(a, 3), ADMISSION_REVOKED);
	assert_int_equal(admission_revoke(a, bytes, n, NULL), ERR_CANCELLED);
	n = list(bytes, &owner_key, 1, 2);
	assert_int_equal(admission_revoke(a, bytes, n, NULL), ERR_CANCELLED);
	n = list(bytes, &owner_key, 3, 2);
	assert_int_equal(admission_revoke(a, bytes, n, NULL), 0);
	assert_int_equal(look(a, 1), ADMITTED);
	assert_int_equal(look(a, 2), ADMISSION_REVOKED);
	assert_int_equal(admission_revoked_version(a), 3);
	assert_int_equal(admission_revoked(a)->len, n);
	admission_time(a, NOW + 100); /* it has expired */
	assert_int_equal(look(a, 2), ADMITTED);
	admission_free(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_only_with_a_certificate),
	        cmocka_unit_test(test_expires_and_is_renewed),
	        cmocka_unit_test(test_nobody_is_moved_into_anothers_invite),
	        cmocka_unit_test(test_the_lowest_that_live_count),
	        cmocka_unit_test(test_an_invite_fills_no_table),
	        cmocka_unit_test(test_old_invites_give_way),
	        cmocka_unit_test(test_what_a_label_stands_for),
	        cmocka_unit_test(test_revoked),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}

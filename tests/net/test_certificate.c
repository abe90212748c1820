/* SPDX-License-Identifier: MIT */
/* The chain from an owner to an agent: each link forged, each field out of range, each byte
 * changed, each length cut. */
#include "net/crypto/certificate.h"
#include "tests/support.h"

#include <sodium.h>

#define NOW 1000000

struct key {
	uint8_t public[SIGN_PUBLIC_BYTES], secret[SIGN_SECRET_BYTES];
};

static struct key owner_key, other_owner, invite_key, other_invite, agent;
static struct owner owner;
static uint8_t good[CERTIFICATE_BYTES];

static void make(struct key *k, uint8_t seed)
{
	uint8_t bytes[crypto_sign_ed25519_SEEDBYTES];
	memset(bytes, seed, sizeof bytes);
	crypto_sign_ed25519_seed_keypair(k->public, k->secret, bytes);
}

static struct invite plain_invite(void)
{
	struct invite v = {.label = "lab-1", .expires_s = NOW + 1, .agents = 3, .rate = 5000};
	memcpy(v.key, invite_key.public, sizeof v.key);
	return v;
}

static struct peer_id id_of(const struct key *k)
{
	struct peer_id id;
	memcpy(id.bytes, k->public, sizeof id.bytes);
	return id;
}

static void certify(uint8_t out[CERTIFICATE_BYTES], const struct invite *v,
        const struct key *owners, const struct key *invites, const struct key *agents)
{
	uint8_t invite[INVITE_BYTES];
	struct peer_id id = id_of(agents);
	invite_sign(v, owners->secret, invite);
	certificate_sign(invite, invites->secret, &id, agents->secret, out);
}

static int setup(void **state)
{
	(void)state;
	if (sodium_init() < 0)
		return -1;
	make(&owner_key, 1);
	make(&other_owner, 2);
	make(&invite_key, 3);
	make(&other_invite, 4);
	make(&agent, 5);
	memcpy(owner.key, owner_key.public, sizeof owner.key);
	struct invite v = plain_invite();
	certify(good, &v, &owner_key, &invite_key, &agent);
	return 0;
}

static int verify(const uint8_t *bytes, size_t len, uint64_t now_s)
{
	struct certificate c;
	struct err e = {0};
	int rc = certificate_verify(&c, bytes, len, &owner, now_s, &e);
	assert_int_equal(e.code, rc);
	assert_true(rc == 0 || e.msg[0]);
	return rc;
}

/* ---- the chain */

static void test_a_whole_chain(void **state)
{
	struct certificate c;
	(void)state;
	assert_int_equal(certificate_verify(&c, good, sizeof good, &owner, NOW, NULL), 0);
	assert_string_equal(c.invite.label, "lab-1");
	assert_int_equal(c.invite.expires_s, NOW + 1);
	assert_int_equal(c.invite.agents, 3);
	assert_int_equal(c.invite.rate, 5000);
	assert_memory_equal(c.invite.key, invite_key.public, SIGN_PUBLIC_BYTES);
	assert_memory_equal(c.id.bytes, agent.public, SIGN_PUBLIC_BYTES);
}

static void test_expires(void **state)
{
	(void)state;
	assert_int_equal(verify(good, sizeof good, NOW), 0);
	assert_int_equal(verify(good, sizeof good, NOW + 1), ERR_STALE);
	assert_int_equal(verify(good, sizeof good, UINT64_MAX), ERR_STALE);
	assert_int_equal(verify(good, sizeof good, 0), 0);
}

static void test_an_invite_that_the_owner_did_not_sign(void **state)
{
	uint8_t bytes[CERTIFICATE_BYTES];
	struct invite v = plain_invite();
	(void)state;
	certify(bytes, &v, &other_owner, &invite_key, &agent);
	assert_int_equal(verify(bytes, sizeof bytes, NOW), ERR_MISMATCH);
	/* An agent that makes an invite of its own for itself. */
	memcpy(v.key, agent.public, sizeof v.key);
	certify(bytes, &v, &agent, &agent, &agent);
	assert_int_equal(verify(bytes, sizeof bytes, NOW), ERR_MISMATCH);
}

static void test_an_id_that_the_invite_did_not_sign(void **state)
{
	uint8_t bytes[CERTIFICATE_BYTES];
	struct invite v = plain_invite();
	(void)state;
	certify(bytes, &v, &owner_key, &other_invite, &agent);
	assert_int_equal(verify(bytes, sizeof bytes, NOW), ERR_MISMATCH);
	assert_int_equal(certificate_verify_id(bytes), ERR_MISMATCH);
	/* Another's certificate with one's own id. */
	memcpy(bytes, good, sizeof bytes);
	memcpy(bytes + INVITE_BYTES, other_invite.public, SIGN_PUBLIC_BYTES);
	assert_int_equal(verify(bytes, sizeof bytes, NOW), ERR_MISMATCH);
}

/* Whoever has an invite, but not the key of the id, certifies nobody else. */
static void test_an_id_that_has_not_signed(void **state)
{
	uint8_t bytes[CERTIFICATE_BYTES], invite[INVITE_BYTES];
	struct invite v = plain_invite();
	struct peer_id victim = id_of(&agent);
	(void)state;
	v.expires_s += 1000;
	invite_sign(&v, owner_key.secret, invite);
	certificate_sign(invite, invite_key.secret, &victim, other_invite.secret, bytes);
	assert_int_equal(verify(bytes, sizeof bytes, NOW), ERR_MISMATCH);
	assert_int_equal(certificate_verify_id(bytes), ERR_MISMATCH);
	/* What it has signed for another invite does not do. */
	memcpy(bytes + sizeof bytes - 64, good + sizeof good - 64, 64);
	assert_int_equal(verify(bytes, sizeof bytes, NOW), ERR_MISMATCH);
	certificate_sign(invite, invite_key.secret, &victim, agent.secret, bytes);
	assert_int_equal(verify(bytes, sizeof bytes, NOW), 0);
}

/* The id's signature covers the invite's own: it cannot be moved below a later invite. */
static void test_an_id_is_of_one_invite(void **state)
{
	uint8_t bytes[CERTIFICATE_BYTES];
	struct invite v = plain_invite();
	(void)state;
	v.expires_s += 1000;
	invite_sign(&v, owner_key.secret, bytes);
	memcpy(bytes + INVITE_BYTES, good + INVITE_BYTES, sizeof good - INVITE_BYTES);
	assert_int_equal(verify(bytes, sizeof bytes, NOW), ERR_MISMATCH);
}

static void test_every_byte_counts(void **state)
{
	uint8_t bytes[CERTIFICATE_BYTES];
	(void)state;
	for (size_t i = 0; i < sizeof good; i++)
		for (int bit = 0; bit < 8; bit++) {
			memcpy(bytes, good, sizeof bytes);
			bytes[i] ^= (uint8_t)(1 << bit);
			assert_int_not_equal(verify(bytes, sizeof bytes, NOW), 0);
		}
}

static void test_every_length_but_one(void **state)
{
	uint8_t bytes[CERTIFICATE_BYTES + 64] = {0};
	(void)state;
	memcpy(bytes, good, sizeof good);
	for (size_t n = 0; n <= sizeof bytes; n++)
		assert_int_equal(verify(bytes, n, NOW), n == CERTIFICATE_BYTES ? 0 : ERR_FORMAT);
	struct invite v;
	for (size_t n = 0; n <= sizeof bytes; n++)
		assert_int_equal(invite_verify(&v, bytes, n, &owner, NOW, NULL),
		        n == INVITE_BYTES ? 0 : ERR_FORMAT);
}

/* ---- ranges */

static void test_labels(void **state)
{
	(void)state;
	assert_int_equal(label_check("a", NULL), 0);
	assert_int_equal(label_check("Uni.of-X_2", NULL), 0);
	assert_int_equal(label_check("1234567890123456789012345678901", NULL), 0);
	assert_int_equal(label_check("12345678901234567890123456789012", NULL), ERR_INVALID);
	assert_int_equal(label_check("", NULL), ERR_INVALID);
	assert_int_equal(label_check("two words", NULL), ERR_INVALID);
	assert_int_equal(label_check("a\nb", NULL), ERR_INVALID);
	assert_int_equal(label_check("\xc3\xa4", NULL), ERR_INVALID);
}

/* Malformed before any signature is looked at. */
static void test_ranges(void **state)
{
	struct invite v;
	uint8_t bytes[INVITE_BYTES];
	const struct {
		int at, n;
		uint8_t byte;
	} wrong[] = {{0, 1, 0}, {0, 32, 'a'}, {3, 1, ' '}, {30, 1, 'x'}, {64, 8, 0}, {72, 4, 0},
	        {75, 1, 1}, {83, 1, 1}};
	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		memcpy(bytes, good, sizeof bytes);
		memset(bytes + wrong[i].at, wrong[i].byte, (size_t)wrong[i].n);
		assert_int_equal(invite_read(&v, bytes, sizeof bytes), ERR_FORMAT);
	}
}

/* ---- what is revoked */

static size_t plain_list(struct revocations *r, uint8_t *bytes)
{
	*r = (struct revocations){.version = 7, .expires_s = NOW + 5, .n = 2};
	r->entry[0].kind = REVOKED_LABEL;
	memcpy(r->entry[0].name, "lab-2", 5);
	r->entry[1].kind = REVOKED_ID;
	memcpy(r->entry[1].name, agent.public, 32);
	return revocations_sign(r, owner_key.secret, bytes);
}

static void test_a_list_of_the_revoked(void **state)
{
	uint8_t bytes[REVOCATIONS_BYTES(REVOKED_MAX)];
	struct revocations r, got;
	struct invite v = plain_invite();
	struct peer_id id = id_of(&agent), other = id_of(&other_invite);
	struct owner wrong;
	size_t n = plain_list(&r, bytes);
	(void)state;
	assert_int_equal(n, REVOCATIONS_BYTES(2));
	assert_int_equal(revocations_verify(&got, bytes, n, &owner, NOW, NULL), 0);
	assert_int_equal(got.version, 7);
	assert_int_equal(got.expires_s, NOW + 5);
	assert_int_equal(got.n, 2);
	assert_true(revocations_have(&got, &v, &id));
	assert_false(revocations_have(&got, &v, &other));
	assert_false(revocations_have(&got, &v, NULL));
	memcpy(v.label, "lab-2", 6);
	assert_true(revocations_have(&got, &v, &other));
	memcpy(v.label, "lab-22", 7);
	assert_false(revocations_have(&got, &v, &other));
	assert_int_equal(revocations_verify(&got, bytes, n, &owner, NOW + 5, NULL), ERR_STALE);
	memcpy(wrong.key, other_owner.public, sizeof wrong.key);
	assert_int_equal(revocations_verify(&got, bytes, n, &wrong, NOW, NULL), ERR_MISMATCH);
}

static void test_every_byte_of_a_list_counts(void **state)
{
	uint8_t bytes[REVOCATIONS_BYTES(REVOKED_MAX) + 1];
	struct revocations r, got;
	size_t n = plain_list(&r, bytes);
	(void)state;
	for (size_t i = 0; i < n; i++)
		for (int bit = 0; bit < 8; bit++) {
			bytes[i] ^= (uint8_t)(1 << bit);
			assert_int_not_equal(
			        revocations_verify(&got, bytes, n, &owner, NOW, NULL), 0);
			bytes[i] ^= (uint8_t)(1 << bit);
		}
	for (size_t k = 0; k <= sizeof bytes; k++)
		assert_int_equal(revocations_verify(&got, bytes, k, &owner, NOW, NULL),
		        k == n ? 0 : ERR_FORMAT);
}

static void test_a_full_list(void **state)
{
	uint8_t bytes[REVOCATIONS_BYTES(REVOKED_MAX)];
	struct revocations r = {.version = 1, .expires_s = NOW + 1, .n = REVOKED_MAX}, got;
	(void)state;
	for (int i = 0; i < REVOKED_MAX; i++) {
		r.entry[i].kind = REVOKED_ID;
		r.entry[i].name[0] = (uint8_t)i;
	}
	size_t n = revocations_sign(&r, owner_key.secret, bytes);
	assert_int_equal(n, sizeof bytes);
	assert_int_equal(revocations_verify(&got, bytes, n, &owner, NOW, NULL), 0);
	assert_memory_equal(&got, &r, sizeof r);
	bytes[16]++; /* one more than there may be */
	assert_int_equal(revocations_verify(&got, bytes, n, &owner, NOW, NULL), ERR_FORMAT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_a_whole_chain),
	        cmocka_unit_test(test_expires),
	        cmocka_unit_test(test_an_invite_that_the_owner_did_not_sign),
	        cmocka_unit_test(test_an_id_that_the_invite_did_not_sign),
	        cmocka_unit_test(test_an_id_that_has_not_signed),
	        cmocka_unit_test(test_an_id_is_of_one_invite),
	        cmocka_unit_test(test_every_byte_counts),
	        cmocka_unit_test(test_every_length_but_one),
	        cmocka_unit_test(test_labels),
	        cmocka_unit_test(test_ranges),
	        cmocka_unit_test(test_a_list_of_the_revoked),
	        cmocka_unit_test(test_every_byte_of_a_list_counts),
	        cmocka_unit_test(test_a_full_list),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}

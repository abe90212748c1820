/* SPDX-License-Identifier: MIT */
/* Any bytes as an invite, a certificate and a list of revocations. What is read must be in range
 * and, signed anew by a key of ours, give the same bytes but for the signature; what was changed is
 * accepted by nobody. The first byte says which of the three is meant. */
#include "net/crypto/certificate.h"
#include "tests/fuzz/input.h"

#include <sodium.h>
#include <string.h>

static uint8_t public[SIGN_PUBLIC_BYTES], secret[SIGN_SECRET_BYTES];
static struct owner owner;

static void start(void)
{
	static const uint8_t seed[crypto_sign_ed25519_SEEDBYTES] = {7};
	if (owner.key[0])
		return;
	if (sodium_init() < 0)
		abort();
	crypto_sign_ed25519_seed_keypair(public, secret, seed);
	memcpy(owner.key, public, sizeof owner.key);
}

static void need(bool ok)
{
	if (!ok)
		abort();
}

/* The owner of this process has signed nothing that comes from outside. */
static void an_invite(const uint8_t *bytes, size_t len)
{
	uint8_t again[INVITE_BYTES];
	struct invite v;
	struct err e = {0};
	int rc = invite_verify(&v, bytes, len, &owner, 1, &e);
	need(rc && e.code == rc && e.msg[0]);
	if (invite_read(&v, bytes, len))
		return;
	invite_sign(&v, secret, again);
	need(memcmp(again, bytes, INVITE_BYTES - 64) == 0);
	need(invite_verify(&v, again, sizeof again, &owner, v.expires_s - 1, NULL) == 0);
	need(invite_verify(&v, again, sizeof again, &owner, v.expires_s, NULL) == ERR_STALE);
	again[len % INVITE_BYTES] ^= 1;
	need(invite_verify(&v, again, sizeof again, &owner, 0, NULL) != 0);
}

static void a_certificate(const uint8_t *bytes, size_t len)
{
	struct certificate c;
	struct err e = {0};
	int rc = certificate_verify(&c, bytes, len, &owner, 1, &e);
	need(rc && e.code == rc && e.msg[0]);
	if (certificate_read(&c, bytes, len))
		return;
	need(label_check(c.invite.label, NULL) == 0 && c.invite.agents >= 1);
	/* An invite of ours certifies our own id, and no other. */
	uint8_t invite[INVITE_BYTES], again[CERTIFICATE_BYTES];
	struct peer_id ours, theirs = c.id;
	struct invite v = c.invite;
	memcpy(ours.bytes, public, sizeof ours.bytes);
	memcpy(v.key, public, sizeof v.key);
	invite_sign(&v, secret, invite);
	certificate_sign(invite, secret, &ours, secret, again);
	need(certificate_verify(&c, again, sizeof again, &owner, 0, NULL) == 0);
	certificate_sign(invite, secret, &theirs, secret, again);
	need(peer_id_equal(&theirs, &ours) || certificate_verify_id(again) == ERR_MISMATCH);
}

static void a_list(const uint8_t *bytes, size_t len)
{
	static uint8_t again[REVOCATIONS_BYTES(REVOKED_MAX)];
	static struct revocations r;
	struct invite v = {.label = "a"};
	struct peer_id id = {{1}};
	struct err e = {0};
	int rc = revocations_verify(&r, bytes, len, &owner, 1, &e);
	need(rc && e.code == rc && e.msg[0]);
	revocations_have(&r, &v, &id);
	if (rc == ERR_FORMAT)
		return;
	need(revocations_sign(&r, secret, again) == len);
	need(memcmp(again, bytes, len - 64) == 0);
	need(revocations_verify(&r, again, len, &owner, 0, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	start();
	if (size == 0)
		return 0;
	switch (data[0] % 3) {
	case 0:
		an_invite(data + 1, size - 1);
		break;
	case 1:
		a_certificate(data + 1, size - 1);
		break;
	default:
		a_list(data + 1, size - 1);
		break;
	}
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* Who is admitted, by the certificates that are known (net/crypto/certificate.h).
 *
 *     admission_add ──► certificates by id, invites that they are of
 *     admission_live, admission_revoke, the time ──► admission_look: may that id be a member?
 *
 * An invite stands for a number of agents, but whoever has it can certify any number of ids. Of its
 * ids that are alive, the lowest count, as many as the invite says. So all agents that know the
 * same members agree without a word, whatever they have heard first; one that is dead or has left
 * gives its place free. Whoever has the invite can thereby push its other agents out, and nobody
 * else's: an id is of the invites that it has signed for itself. Of two the one that expires later
 * counts; ours is the one that we have begun with.
 *
 * Verified are the owner's signature, once for an invite, and the invite's and the id's, once for
 * an id. Memory is bounded: max ids in all, of an invite twice its agents and a few; ids that are
 * not alive give way. So do whole invites, of which there is room for ADMISSION_INVITES: first
 * those that have expired, then the oldest of which nobody lives. Nothing here has a clock: the
 * time is told. */
#ifndef DUNLIN_NET_TRANSPORT_ADMISSION_H
#define DUNLIN_NET_TRANSPORT_ADMISSION_H

#include "net/crypto/certificate.h"
#include "net/crypto/owner.h"

enum admission_verdict {
	ADMITTED,
	ADMISSION_UNKNOWN, /* no certificate */
	ADMISSION_EXPIRED,
	ADMISSION_REVOKED,
	ADMISSION_FULL, /* its invite has as many agents with lower ids as it may */
};

struct admission;

/* own: of the agent itself, verified here, in words. max: ids that are kept. */
int admission_new(struct admission **out, const struct owner *owner,
        const uint8_t own[CERTIFICATE_BYTES], uint32_t max, uint64_t now_s,
        struct err *e) MUST_CHECK;
void admission_free(struct admission *a); /* takes NULL */

void admission_time(struct admission *a, uint64_t now_s);

enum admission_verdict admission_look(const struct admission *a, const struct peer_id *id);
/* For the one who is not admitted, or for the log. */
const char *admission_words(enum admission_verdict v);

/* A certificate from anyone. 0: it is known now, or one of the same id that lasts as long; worked,
 * if not NULL, says whether a signature was verified for it. ERR_FORMAT, ERR_MISMATCH: malformed or
 * forged, so its sender has not checked it. ERR_STALE, ERR_LIMIT: expired, no room. */
int admission_add(struct admission *a, const uint8_t *bytes, size_t len, bool *worked) MUST_CHECK;

/* CERTIFICATE_BYTES, borrowed until the next call; NULL: not known. */
const uint8_t *admission_find(const struct admission *a, const struct peer_id *id);
const uint8_t *admission_own(const struct admission *a);
/* Its label and its rate; NULL: not known. Borrowed alike. */
const struct invite *admission_invite(const struct admission *a, const struct peer_id *id);
/* The same for all invites with that label which are known and have not expired: the sum of their
 * agents, and the highest rate, or 0 if one of them states none. False: not known. */
bool admission_label(const struct admission *a, const struct peer_id *id, struct invite *out);

/* A member is alive, or no longer. */
void admission_live(struct admission *a, const struct peer_id *id, bool live);

/* A list of revocations from anyone. 0: it is in force now; ERR_CANCELLED: not newer than ours;
 * else as revocations_verify. */
int admission_revoke(
        struct admission *a, const uint8_t *bytes, size_t len, struct err *e) MUST_CHECK;
/* The list in force as it travels, len 0: none; and its version. */
const struct revocations_text *admission_revoked(const struct admission *a);
uint64_t admission_revoked_version(const struct admission *a);

#endif

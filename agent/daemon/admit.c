/* SPDX-License-Identifier: MIT */
/* The happy path: agent.owner is a key, the invite certifies our id, the whole chain is good, and
 * the certificate is kept. Without an invite the certificate that was kept does. Whoever is not
 * admitted hears so here, and not as silence from its peers.
 *
 * Of the lists of revocations, the one in the settings and the one kept, the newer counts. One that
 * has expired counts for nothing; one that is not the owner's is an error. */
#include "agent/daemon/admit.h"

#include "agent/base/log.h"
#include "net/crypto/owner.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static int path_in(const struct state_dir *s, const char *name, char out[LIMIT_PATH], struct err *e)
{
	int n = snprintf(out, LIMIT_PATH, "%s/%s", s->path, name);
	return n < LIMIT_PATH
	               ? 0
	               : err_set(e, ERR_LIMIT, "the path of the state directory is too long");
}

/* From the invite, or as it was kept. */
static int find_certificate(const struct config *c, const struct state_dir *state,
        const struct identity *i, uint8_t out[CERTIFICATE_BYTES], struct err *e)
{
	char path[LIMIT_PATH];
	struct certificate x;
	int rc = path_in(state, "certificate", path, e);
	if (rc)
		return rc;
	if (c->agent.invite[0]) {
		rc = invite_use(c->agent.invite, &i->id, identity_sign_secret(i), out, e);
		return rc ? err_prefix(e, "agent.invite") : 0;
	}
	rc = certificate_load(path, out, e);
	if (rc == ERR_NOTFOUND)
		return err_set(e, rc,
		        "agent.owner: only certified agents are members, and this one has no "
		        "certificate yet: ask the owner for an invite, --invite FILE");
	if (rc)
		return rc;
	if (certificate_read(&x, out, CERTIFICATE_BYTES) || !peer_id_equal(&x.id, &i->id))
		return err_set(e, ERR_MISMATCH,
		        "%s is another agent's: remove it, and use an invite, --invite FILE", path);
	return 0;
}

void admit_outdated(uint64_t version, uint64_t in_force)
{
	log_warn("agent.revoked: its version %" PRIu64
	         " is not in force, since a later one, %" PRIu64
	         ", is known here: make the list from the newest file, which is \"revoked\" in the "
	         "state directory",
	        version, in_force);
}

/* The newest of our lists is put in force. */
static int read_lists(
        struct admission *a, const struct config *c, const struct state_dir *state, struct err *e)
{
	char kept[LIMIT_PATH];
	struct revocations_text text;
	int rc = path_in(state, "revoked", kept, e);
	if (rc)
		return rc;
	if (c->agent.revoked[0]) {
		rc = revocations_load(c->agent.revoked, &text, e);
		if (rc == 0)
			rc = admission_revoke(a, text.bytes, text.len, e);
		if (rc == ERR_STALE)
			log_warn("agent.revoked: %s", e->msg);
		else if (rc)
			return err_prefix(e, "agent.revoked");
	}
	uint64_t stated = admission_revoked_version(a);
	rc = revocations_load(kept, &text, e);
	if (rc == 0)
		rc = admission_revoke(a, text.bytes, text.len, e);
	if (rc == 0 && stated)
		admit_outdated(stated, admission_revoked_version(a));
	if (rc && rc != ERR_NOTFOUND && rc != ERR_CANCELLED && rc != ERR_STALE)
		log_warn("%s is not used: %s", kept, e->msg); /* of an owner before, perhaps */
	return 0;
}

static int keep(const struct config *c, const struct state_dir *state,
        const uint8_t bytes[CERTIFICATE_BYTES], struct err *e)
{
	char path[LIMIT_PATH];
	int rc = path_in(state, "certificate", path, e);
	if (rc == 0 && c->agent.invite[0])
		rc = certificate_save(path, bytes, e);
	return rc;
}

int admit_open(struct admission **out, const struct config *c, const struct state_dir *state,
        const struct identity *i, bool save, struct err *e)
{
	struct owner owner;
	uint8_t own[CERTIFICATE_BYTES];
	*out = NULL;
	if (!c->agent.owner[0] && (c->agent.invite[0] || c->agent.revoked[0]))
		return err_set(e, ERR_INVALID,
		        "agent.owner: an invite, or a list of revoked agents, needs the owner's "
		        "public key too, --owner KEY");
	if (!c->agent.owner[0])
		return 0;
	int rc = owner_parse(&owner, c->agent.owner, e);
	if (rc)
		return err_prefix(e, "agent.owner");
	rc = find_certificate(c, state, i, own, e);
	if (rc == 0)
		rc = admission_new(
		        out, &owner, own, (uint32_t)c->agent.members_max, (uint64_t)time(NULL), e);
	if (rc == 0)
		rc = read_lists(*out, c, state, e);
	if (rc == 0 && admission_look(*out, &i->id) == ADMISSION_REVOKED)
		rc = err_set(e, ERR_INVALID,
		        "this agent, or its label %s, is revoked by the owner: ask for a new "
		        "invite",
		        admission_invite(*out, &i->id)->label);
	if (rc == 0 && save)
		rc = keep(c, state, own, e);
	if (rc) {
		admission_free(*out);
		*out = NULL;
	}
	return rc;
}

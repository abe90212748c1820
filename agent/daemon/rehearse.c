/* SPDX-License-Identifier: MIT */
/* dunlin agent --dry-run: the checks of a start in the order of a start, and the same words and
 * exit codes where one fails.
 *
 * What a start would take, make or bind is only looked at: the state folder's lock is tried and let
 * go, the identity read, the certificate verified as it would be by peers, and whether the port is
 * free is read off the kernel's tables. Between this and a start all of it may change. */
#include "agent/base/log.h"
#include "agent/config/hostport.h"
#include "agent/config/paths.h"
#include "agent/daemon/agent.h"
#include "agent/daemon/startup.h"
#include "agent/daemon/training.h"
#include "agent/json/jsonout.h"
#include "agent/train/learner_thread.h"
#include "net/crypto/identity.h"
#include "net/crypto/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

struct rehearsal {
	const struct agent_options *o;
	const struct config *c; /* of o */
	struct startup startup;
	struct training training;
	uv_loop_t loop;
	char state[LIMIT_PATH], from[RUN_DIR_PATH];
	struct peer_id id;
	bool known; /* the identity is there already */
};

/* ---- the state folder */

/* The folder itself, or the nearest one above it that is there. */
static int may_write(const char *path, struct err *e)
{
	char at[LIMIT_PATH];
	snprintf(at, sizeof at, "%s", path);
	while (access(at, F_OK) != 0 && errno == ENOENT) {
		char *slash = strrchr(at, '/');
		if (!slash) {
			strcpy(at, ".");
			break;
		}
		slash[slash == at] = '\0';
	}
	return access(at, W_OK | X_OK) == 0 ? 0 : err_errno(e, "%s: write in %s", path, at);
}

static int try_lock(const char *folder, const char *what, struct err *e)
{
	char path[LIMIT_PATH + 16];
	snprintf(path, sizeof path, "%s/.lock", folder);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), rc = 0;
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : err_errno(e, "%s", path);
	if (flock(fd, LOCK_EX | LOCK_NB) != 0)
		rc = err_set(e, ERR_BUSY,
		        "another agent runs with this %s, %s: give this one another --name, or end "
		        "that one with `dunlin leave`",
		        what, folder);
	close(fd);
	return rc;
}

static int look_at_state(struct rehearsal *r, struct err *e)
{
	int rc = paths_state(r->c, r->state, e);
	if (rc == 0)
		rc = may_write(r->state, e);
	if (rc == 0)
		rc = try_lock(r->state, "state", e);
	if (rc)
		return rc;
	rc = identity_look(&r->id, r->state, e);
	r->known = rc == 0;
	return rc == ERR_NOTFOUND ? 0 : rc;
}

/* ---- admission */

static int look_at_invite(const struct config *c, const struct owner *owner, struct err *e)
{
	uint8_t bytes[INVITE_FILE_BYTES];
	struct invite v;
	int rc = invite_load(c->agent.invite, bytes, e);
	if (rc == 0)
		rc = invite_verify(&v, bytes, INVITE_BYTES, owner, (uint64_t)time(NULL), e);
	explicit_bzero(bytes, sizeof bytes);
	return rc ? err_prefix(e, "agent.invite") : 0;
}

static int look_at_certificate(const struct rehearsal *r, const struct owner *owner, struct err *e)
{
	char path[LIMIT_PATH + 16];
	uint8_t bytes[CERTIFICATE_BYTES];
	struct certificate x;
	snprintf(path, sizeof path, "%s/certificate", r->state);
	int rc = r->known ? certificate_load(path, bytes, e) : ERR_NOTFOUND;
	if (rc == ERR_NOTFOUND)
		return err_set(e, rc,
		        "agent.owner: only certified agents are members, and this one has no "
		        "certificate yet: ask the owner for an invite, --invite FILE");
	if (rc == 0)
		rc = certificate_verify(&x, bytes, sizeof bytes, owner, (uint64_t)time(NULL), e);
	if (rc == 0 && !peer_id_equal(&x.id, &r->id))
		rc = err_set(e, ERR_MISMATCH, "%s is another agent's", path);
	return rc;
}

static int look_at_admission(const struct rehearsal *r, struct err *e)
{
	const struct config *c = r->c;
	struct owner owner;
	if (!c->agent.owner[0] && (c->agent.invite[0] || c->agent.revoked[0]))
		return err_set(e, ERR_INVALID,
		        "agent.owner: an invite, or a list of revoked agents, needs the owner's "
		        "public key too, --owner KEY");
	if (!c->agent.owner[0])
		return 0;
	int rc = owner_parse(&owner, c->agent.owner, e);
	if (rc)
		return err_prefix(e, "agent.owner");
	return c->agent.invite[0] ? look_at_invite(c, &owner, e)
	                          : look_at_certificate(r, &owner, e);
}

/* ---- the port */

/* One line of the kernel's tables: "0: 0100007F:3629 …"; false: it is none. */
static bool read_line(const char *line, struct peer_addr *a, unsigned *state)
{
	char ip[40];
	unsigned port, word;
	if (sscanf(line, " %*u: %39[0-9A-F]:%4x %*[0-9A-F]:%*4x %2x", ip, &port, state) != 3)
		return false;
	*a = (struct peer_addr){.family = strlen(ip) == 8 ? 4 : 6, .port = (uint16_t)port};
	for (size_t i = 0; i < strlen(ip) / 8 && i < 4; i++) {
		if (sscanf(ip + 8 * i, "%8x", &word) != 1)
			return false;
		memcpy(a->ip + 4 * i, &word, 4);
	}
	return true;
}

static bool taken_in(const char *table, unsigned state, const struct peer_addr *want, bool dual)
{
	FILE *f = fopen(table, "re");
	char line[512];
	bool taken = false;
	while (f && !taken && fgets(line, sizeof line, f)) {
		struct peer_addr a;
		unsigned is;
		if (!read_line(line, &a, &is) || is != state || a.port != want->port)
			continue;
		bool same_family = a.family == want->family;
		taken = (same_family && (hostport_any(&a) || hostport_any(want) ||
		                                memcmp(a.ip, want->ip, sizeof a.ip) == 0)) ||
		        (dual && !same_family);
	}
	if (f)
		fclose(f);
	return taken;
}

static int look_at_port(const struct rehearsal *r, struct err *e)
{
	const struct driver_config *n = &r->startup.node;
	struct peer_addr want = peer_addr_from((const struct sockaddr *)&n->listen);
	char text[64];
	bool dual = n->dual_stack;
	if (want.port == 0)
		return 0;
	if (!taken_in("/proc/net/tcp", 0x0a, &want, dual) &&
	        !taken_in("/proc/net/tcp6", 0x0a, &want, dual) &&
	        !taken_in("/proc/net/udp", 0x07, &want, dual) &&
	        !taken_in("/proc/net/udp6", 0x07, &want, dual))
		return 0;
	return err_set(e, ERR_IO,
	        "%s is in use: choose another port with --listen, or :0 for any that is free",
	        peer_addr_text(&want, text));
}

/* ---- what is told */

static int print(const struct rehearsal *r, bool json, struct buf *out)
{
	const struct driver_config *n = &r->startup.node;
	const struct training *t = &r->training;
	struct peer_addr listen = peer_addr_from((const struct sockaddr *)&n->listen);
	struct json_out j = {.buf = out};
	char flock[FLOCK_TEXT], text[64];
	flock_text(&r->startup.secrets.flock[0], flock);
	peer_addr_text(&listen, text);
	const char *device = t->learner ? learner_trainer(t->learner)->device_why : NULL;
	if (!json) {
		int rc = buf_printf(out,
		        "agent %s · flock %s · would listen on %s\nstate in %s, %s\n",
		        r->c->agent.name, flock, text, r->state,
		        r->known ? "of an identity that is there" : "with a new identity");
		if (rc == 0 && device)
			rc = buf_printf(out,
			        "would train on %s\n%zu parameters, %llu samples in all, from %s\n",
			        device, t->learner->info.n_total,
			        (unsigned long long)t->learner->info.total,
			        r->from[0] ? r->from : "the beginning");
		return rc ? rc
		          : buf_printf(out, "all checks passed; nothing was bound or written\n");
	}
	json_open(&j, NULL, '{');
	json_bool(&j, "ok", true);
	json_text(&j, "name", r->c->agent.name);
	json_text(&j, "flock", flock);
	json_text(&j, "listen", text);
	json_text(&j, "state", r->state);
	if (r->known)
		json_id(&j, "id", &r->id);
	else
		json_null(&j, "id");
	json_text(&j, "device", device);
	json_count(&j, "parameters", t->learner ? t->learner->info.n_total : 0);
	json_count(&j, "run_samples", t->learner ? t->learner->info.total : 0);
	json_text(&j, "checkpoint", r->from[0] ? r->from : NULL);
	json_close(&j, '}');
	return j.rc ? j.rc : buf_append(out, "\n", 1);
}

static int told(const struct rehearsal *r, bool json)
{
	struct buf out;
	buf_init(&out, 65536);
	int rc = print(r, json, &out);
	int status = rc ? r->o->fail_cb(EXIT_FAILED, "%s", err_text(rc)) : r->o->print_cb(&out);
	buf_close(&out);
	return status;
}

/* With the settings' files read. */
static int rehearse(struct rehearsal *r, bool json)
{
	struct err e;
	int status = EXIT_FAILED;
	int rc = look_at_state(r, &e);
	if (rc == 0 && (rc = look_at_admission(r, &e)) != 0)
		return r->o->fail_cb(rc == ERR_NOMEM ? EXIT_FAILED : EXIT_CONFIG, "%s", e.msg);
	if (rc == 0 && (rc = uv_loop_init(&r->loop)) != 0)
		return r->o->fail_cb(EXIT_FAILED, "start an event loop: %s", uv_strerror(rc));
	if (rc)
		return r->o->fail_cb(exit_code(rc, EXIT_FAILED), "%s", e.msg);
	rc = training_rehearse(&r->training, r->c, &r->loop, r->from, &status, &e);
	if (rc == 0 && r->training.learner) {
		status = EXIT_FAILED;
		rc = may_write(r->training.out, &e);
		if (rc == 0)
			rc = try_lock(r->training.out, "folder of results", &e);
	}
	if (rc == 0) {
		status = EXIT_FAILED;
		rc = look_at_port(r, &e);
	}
	status = rc ? r->o->fail_cb(exit_code(rc, status), "%s", e.msg) : told(r, json);
	training_close(&r->training);
	uv_run(&r->loop, UV_RUN_DEFAULT);
	uv_loop_close(&r->loop);
	return status;
}

int agent_rehearse(const struct agent_options *o, bool json)
{
	static struct rehearsal r; /* too large for a stack */
	struct err e;
	r = (struct rehearsal){.o = o, .c = o->config};
	int rc = startup_open(&r.startup, r.c, &e);
	if (rc)
		return o->fail_cb(exit_code(rc, EXIT_CONFIG), "%s", e.msg);
	int status = rehearse(&r, json);
	startup_close(&r.startup);
	return status;
}

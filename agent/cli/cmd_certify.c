/* SPDX-License-Identifier: MIT */
/* dunlin certify, dunlin revoke: what an owner signs, on the machine that has the owner's key. No
 * agent is asked and nothing is sent: the files that are written are carried to the agents.
 *
 * An invite is a secret, since whoever has it can certify agents; it is created for its owner alone
 * and one that is there is never overwritten. A list of revocations is none: revoke reads the one
 * that is there, adds to it, and replaces it by one with a higher version. A version is the time,
 * so that a list which is begun anew, since the file was lost, is later than those before it. */
#include "agent/cli/cli.h"
#include "net/crypto/owner.h"
#include "net/transport/lists.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DAY_S 86400
#define REVOKED_DAYS 366 /* a list's life, unless --expires says another */
#define DATE_TEXT 32

/* 2027-01-31, the whole of that day included, or 2027-01-31T12:00:00Z. UTC. */
static int parse_date(const char *text, uint64_t *out, struct err *e)
{
	struct tm tm = {0}, check;
	int len = 0, time_len = 0;
	int n = sscanf(text, "%4d-%2d-%2d%nT%2d:%2d:%2dZ%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
	        &len, &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &time_len);
	bool whole_day = n == 3 && len == 10 && !text[len];
	bool moment = n == 6 && time_len == 20 && !text[time_len];
	tm.tm_year -= 1900;
	tm.tm_mon--;
	check = tm;
	time_t t = timegm(&check);
	/* timegm takes a 31 February, and makes it a day in March. */
	if ((!whole_day && !moment) || t <= 0 || check.tm_mday != tm.tm_mday ||
	        check.tm_mon != tm.tm_mon || check.tm_hour != tm.tm_hour ||
	        check.tm_min != tm.tm_min || check.tm_sec != tm.tm_sec)
		return err_set(e, ERR_INVALID,
		        "--expires: \"%.40s\" is no date: write 2027-01-31, or "
		        "2027-01-31T12:00:00Z (UTC)",
		        text);
	*out = (uint64_t)t + (whole_day ? DAY_S : 0);
	if (*out <= (uint64_t)time(NULL))
		return err_set(e, ERR_INVALID, "--expires: %s is over", text);
	return 0;
}

static const char *date_text(uint64_t s, char out[DATE_TEXT])
{
	time_t t = (time_t)s;
	struct tm tm;
	gmtime_r(&t, &tm);
	strftime(out, DATE_TEXT, "%Y-%m-%d %H:%M:%S UTC", &tm);
	return out;
}

/* ---- certify */

static int read_invite(const struct cli_args *a, struct invite *v, struct err *e)
{
	const char *label = cli_own(a, CMD_CERTIFY, "--label");
	const char *rate = cli_own(a, CMD_CERTIFY, "--rate");
	int rc = label_check(label, e);
	if (rc)
		return err_prefix(e, "--label");
	snprintf(v->label, sizeof v->label, "%s", label);
	v->agents = (uint32_t)strtoul(cli_own(a, CMD_CERTIFY, "--agents"), NULL, 10);
	v->rate = rate ? strtoul(rate, NULL, 10) : 0;
	return parse_date(cli_own(a, CMD_CERTIFY, "--expires"), &v->expires_s, e);
}

static int certify(const struct cli_args *a, struct invite *v)
{
	const char *out = cli_own(a, CMD_CERTIFY, "--out");
	struct owner owner;
	uint8_t *secret;
	char date[DATE_TEXT];
	struct err e = {0};
	int rc = owner_load(cli_own(a, CMD_CERTIFY, "--owner-key"), &owner, &secret, &e);
	if (rc)
		return cli_fail(exit_code(rc, EXIT_CONFIG), "--owner-key: %s", e.msg);
	rc = invite_create(out, v, secret, &e);
	owner_forget(secret);
	if (rc)
		return cli_fail(EXIT_FAILED, "%s", e.msg);
	printf("%s: an invite of label %s for %" PRIu32 " agent%s, until %s; copy it to their "
	       "machines, in a way that nobody else can read: dunlin agent --invite %s\n",
	        out, v->label, v->agents, v->agents == 1 ? "" : "s", date_text(v->expires_s, date),
	        out);
	return EXIT_OK;
}

int cmd_certify(int argc, char **argv)
{
	static const char *const needed[] = {
	        "--owner-key", "--label", "--agents", "--expires", "--out"};
	struct config c;
	struct cli_args a;
	struct invite v = {0};
	struct err e = {0};
	int status;
	if (!cli_begin(&c, &a, CMD_CERTIFY, argc, argv, &status))
		return status;
	status = EXIT_OK;
	for (size_t i = 0; status == EXIT_OK && i < sizeof needed / sizeof *needed; i++)
		if (!cli_own(&a, CMD_CERTIFY, needed[i]))
			status = cli_usage_error(CMD_CERTIFY, "needs %s", needed[i]);
	if (status == EXIT_OK)
		status = read_invite(&a, &v, &e) ? cli_usage_error(CMD_CERTIFY, "%s", e.msg)
		                                 : certify(&a, &v);
	config_close(&c);
	return status;
}

/* ---- revoke */

/* A label, or the 64 digits of an id; labels are shorter. */
static int read_entry(const char *text, struct revoked_entry *out, struct err *e)
{
	struct id_list ids;
	*out = (struct revoked_entry){.kind = REVOKED_ID};
	if (strlen(text) == 2 * sizeof out->name) {
		int rc = id_list_parse(&ids, text, strlen(text), e);
		if (rc == 0 && ids.n == 1)
			memcpy(out->name, ids.id[0].bytes, sizeof out->name);
		else if (rc == 0)
			rc = err_set(e, ERR_INVALID, "\"%s\" is no id", text);
		id_list_close(&ids);
		return rc;
	}
	out->kind = REVOKED_LABEL;
	int rc = label_check(text, e);
	if (rc == 0)
		memcpy(out->name, text, strlen(text));
	return rc ? err_prefix(e, "\"%.70s\" is no id, which has 64 digits", text) : 0;
}

static bool listed(const struct revocations *r, const struct revoked_entry *x)
{
	for (int i = 0; i < r->n; i++)
		if (memcmp(&r->entry[i], x, sizeof *x) == 0)
			return true;
	return false;
}

static int add_entries(struct revocations *r, const struct cli_args *a, struct err *e)
{
	struct revoked_entry x;
	for (int i = 0; i < a->n_files; i++) {
		int rc = read_entry(a->file[i], &x, e);
		if (rc)
			return rc;
		if (listed(r, &x))
			continue;
		if (r->n == REVOKED_MAX)
			return err_set(e, ERR_LIMIT,
			        "more than %d labels and ids: revoke whole labels, or make a new "
			        "owner",
			        REVOKED_MAX);
		r->entry[r->n++] = x;
	}
	return 0;
}

/* The list that is there, or none. */
static int read_list(
        const char *path, const struct owner *owner, struct revocations *r, struct err *e)
{
	struct revocations_text text;
	int rc = revocations_load(path, &text, e);
	*r = (struct revocations){0};
	if (rc == ERR_NOTFOUND)
		return 0;
	if (rc == 0)
		rc = revocations_verify(r, text.bytes, text.len, owner, 0, e);
	return rc ? err_prefix(e, "--out") : 0;
}

static uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int revoke(const struct cli_args *a, struct err *e)
{
	const char *out = cli_own(a, CMD_REVOKE, "--out");
	const char *date = cli_own(a, CMD_REVOKE, "--expires");
	struct revocations r;
	struct revocations_text text;
	struct owner owner;
	uint8_t *secret;
	char shown[DATE_TEXT];
	int rc = owner_load(cli_own(a, CMD_REVOKE, "--owner-key"), &owner, &secret, e);
	if (rc)
		return err_prefix(e, "--owner-key");
	rc = read_list(out, &owner, &r, e);
	bool fresh = rc == 0 && r.version == 0;
	const uint64_t now = now_ms();
	r.version = now > r.version ? now : r.version + 1;
	r.expires_s = (uint64_t)time(NULL) + (uint64_t)REVOKED_DAYS * DAY_S;
	if (rc == 0 && date)
		rc = parse_date(date, &r.expires_s, e);
	if (rc == 0)
		rc = add_entries(&r, a, e);
	if (rc == 0) {
		text.len = revocations_sign(&r, secret, text.bytes);
		rc = revocations_save(out, &text, e);
	}
	owner_forget(secret);
	if (rc == 0 && fresh)
		printf("%s: a new list, which takes the place of every earlier one: what those "
		       "revoked, and this one does not name, is admitted again\n",
		        out);
	if (rc == 0)
		printf("%s: version %" PRIu64 ", %d revoked, until %s; give it to one agent or "
		       "more, --revoked %s, which pass it on; invites that end later than it does "
		       "need a newer one by then\n",
		        out, r.version, r.n, date_text(r.expires_s, shown), out);
	return rc;
}

int cmd_revoke(int argc, char **argv)
{
	struct config c;
	struct cli_args a;
	struct err e = {0};
	int status;
	if (!cli_begin(&c, &a, CMD_REVOKE, argc, argv, &status))
		return status;
	if (!cli_own(&a, CMD_REVOKE, "--owner-key") || !cli_own(&a, CMD_REVOKE, "--out")) {
		status = cli_usage_error(CMD_REVOKE, "needs --owner-key FILE and --out FILE");
	} else {
		int rc = revoke(&a, &e);
		status = rc ? cli_fail(exit_code(rc, EXIT_CONFIG), "%s", e.msg) : EXIT_OK;
	}
	config_close(&c);
	return status;
}

/* SPDX-License-Identifier: MIT */
/* dunlin join: from a token to an agent.
 *
 * The happy path: the token is read from a file, stdin or a prompt, the state folder is locked, the
 * secret and the invite go into files of mode 0600 in it, a peer tells the settings of the run, the
 * user sees them, says where the data are, and agrees; they become config.json in the state
 * folder, the invite takes its name there, and an agent is started with them. `dunlin agent
 * --config` starts it again.
 *
 * What can fail: a token that is damaged, has expired or is of another flock (3), no peer that
 * answers (9), a user who says no (0), and what can fail at an agent's start. Until the user has
 * agreed, no file that was there is replaced, and files that were made here are removed again. */
#include "agent/base/log.h"
#include "agent/base/textlist.h"
#include "agent/cli/cli.h"
#include "agent/cli/setup/prompt.h"
#include "agent/config/options.h"
#include "agent/config/paths.h"
#include "agent/daemon/admit.h"
#include "agent/daemon/agent.h"
#include "agent/daemon/fetch.h"
#include "agent/json/jsontext.h"
#include "agent/node/run_settings.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FILE_MAX (LIMIT_PATH + 32)

struct join {
	struct config config;
	struct cli_args args;
	struct token token;
	struct manifest manifest;
	char state[LIMIT_PATH];
	char key[FILE_MAX], invite[FILE_MAX], new_invite[FILE_MAX], file[FILE_MAX]; /* in it */
	bool made_key, made_invite; /* the new one */
	int status;                 /* what to exit with if it fails */
};

/* ---- the token */

static int read_token(struct join *j, struct err *e)
{
	const char *path = cli_own(&j->args, CMD_JOIN, "--token-file");
	char text[TOKEN_FILE_MAX];
	size_t len = 0;
	int rc;
	if (j->args.n_files > 0) {
		rc = token_parse(&j->token, j->args.file[0], strlen(j->args.file[0]), e);
		j->status = EXIT_CONFIG;
		if (rc || !token_is_secret(&j->token))
			return rc;
		j->status = EXIT_USAGE;
		return err_set(e, ERR_USAGE,
		        "this token has a secret in it, and everybody on this machine can see "
		        "arguments: give it at the prompt, on stdin or by --token-file; if others "
		        "use this machine, make a new secret");
	}
	if (path) {
		rc = token_load(&j->token, path, e);
		return rc ? err_prefix(e, "--token-file") : 0;
	}
	rc = prompt_secret("token: ", text, sizeof text, &len, e);
	if (rc == 0)
		rc = token_parse(&j->token, text, len, e);
	explicit_bzero(text, sizeof text);
	return rc;
}

/* ---- files of the state folder */

static int in_state(const struct join *j, const char *name, char out[FILE_MAX])
{
	return snprintf(out, FILE_MAX, "%s/%s", j->state, name) < FILE_MAX ? 0 : ERR_LIMIT;
}

/* So that the config can be used from any folder. */
static int whole_path(char *path, size_t size, struct err *e)
{
	char here[LIMIT_PATH], was[LIMIT_PATH];
	if (!path[0] || path[0] == '/')
		return 0;
	snprintf(was, sizeof was, "%s", path);
	if (!getcwd(here, sizeof here) || snprintf(path, size, "%s/%s", here, was) >= (int)size)
		return err_set(e, ERR_LIMIT, "%.100s: the whole path is too long", was);
	return 0;
}

static int whole_list(char *list, struct err *e)
{
	char was[LIMIT_LIST], path[LIMIT_PATH];
	memcpy(was, list, sizeof was);
	memset(list, 0, LIMIT_LIST);
	for (const char *s = NULL; (s = textlist_next(was, s));) {
		snprintf(path, sizeof path, "%s", s);
		int rc = whole_path(path, sizeof path, e);
		if (rc == 0)
			rc = textlist_add(list, LIMIT_LIST, path);
		if (rc)
			return err_set(e, rc, "%.100s: the list is too long", s);
	}
	return 0;
}

static int whole_paths(struct config *c, struct err *e)
{
	static const char *const kinds[] = {"FILE", "DIR", "PATH"};
	int rc = 0;
	for (int i = 0; i < n_settings && rc == 0; i++) {
		const struct setting *s = &settings[i];
		char *value = (char *)c + s->offset;
		bool path = false;
		for (int k = 0; k < 3 && s->value; k++)
			path = path || strcmp(s->value, kinds[k]) == 0;
		if (path && s->type == SET_TEXT)
			rc = whole_path(value, s->size, e);
		else if (path && s->type == SET_LIST)
			rc = whole_list(value, e);
	}
	return rc;
}

static int foreign(const struct join *j, const char *path, struct err *e)
{
	char flock[FLOCK_TEXT];
	struct flock_id id = {{0}};
	memcpy(id.bytes, j->token.flock, sizeof j->token.flock);
	return err_set(e, ERR_MISMATCH,
	        "the token is of another flock, %s, than the secret in %s: choose another --name, "
	        "or the key of that flock",
	        flock_text(&id, flock), path);
}

/* The secrets that the agent will have. */
static int load_keys(struct join *j, struct secrets *s, struct err *e)
{
	const char *paths[SECRETS_MAX];
	int n = textlist_items(j->config.agent.keys, paths, SECRETS_MAX);
	j->status = EXIT_CONFIG;
	if (n == 0)
		return err_set(e, ERR_INVALID,
		        "the token is without the flock's secret: give its key file, --key FILE");
	int rc = secrets_load(s, paths, n, e);
	if (rc)
		return err_prefix(e, "agent.keys");
	for (int i = 0; i < s->n; i++)
		if (memcmp(s->flock[i].bytes, j->token.flock, sizeof j->token.flock) == 0)
			return 0;
	secrets_close(s);
	return foreign(j, paths[0], e);
}

/* A key that was given is taken; else the token's goes into a file, where it may be already. */
static int keep_key(struct join *j, struct err *e)
{
	if (j->config.agent.keys[0] || !j->token.has_secret)
		return 0;
	int rc = secret_keep(j->key, j->token.secret, e);
	j->made_key = rc == 0;
	if (rc && rc != ERR_BUSY)
		return rc;
	return textlist_add(j->config.agent.keys, sizeof j->config.agent.keys, j->key);
}

/* Under another name: what is there may be of a flock that this token is not of. */
static int keep_invite(struct join *j, struct err *e)
{
	struct config *c = &j->config;
	char owner[OWNER_TEXT_MAX];
	if (!j->token.has_owner)
		return c->agent.owner[0] ? err_set(e, ERR_MISMATCH,
		                                   "agent.owner: the token's flock has no owner")
		                         : 0;
	owner_text(&j->token.owner, owner);
	if (c->agent.owner[0] && strcmp(c->agent.owner, owner) != 0)
		return err_set(
		        e, ERR_MISMATCH, "agent.owner: the token is of a flock of another owner");
	memcpy(c->agent.owner, owner, sizeof owner);
	if (c->agent.invite[0] || !j->token.has_invite)
		return 0;
	if (strlen(j->new_invite) >= sizeof c->agent.invite)
		return err_set(e, ERR_LIMIT, "the state folder's path is too long");
	int rc = invite_save(j->new_invite, j->token.invite, e);
	j->made_invite = rc == 0;
	strcpy(c->agent.invite, j->new_invite);
	return rc;
}

/* The user has agreed. The config names the invite as it will be. */
static int place_invite(struct join *j, struct err *e)
{
	if (j->made_invite && rename(j->new_invite, j->invite))
		return err_errno(e, "rename %s", j->new_invite);
	j->made_invite = false;
	return 0;
}

static void undo(const struct join *j)
{
	if (j->made_key)
		unlink(j->key);
	if (j->made_invite)
		unlink(j->new_invite);
}

/* ---- the settings */

/* What was said here, then the token's. */
static int add_seeds(struct join *j, struct err *e)
{
	char *seeds = j->config.agent.seeds;
	struct token t = j->token;
	j->token.n_seeds = 0;
	for (const char *s = NULL; (s = textlist_next(seeds, s));)
		token_add_seed(&j->token, s);
	for (int i = 0; i < t.n_seeds; i++)
		token_add_seed(&j->token, t.seed[i]);
	for (int i = 0; i < t.n_seeds; i++) {
		bool there = false;
		for (const char *s = NULL; (s = textlist_next(seeds, s));)
			there = there || strcmp(s, t.seed[i]) == 0;
		if (!there && textlist_count(seeds) < GOSSIP_SEEDS_MAX &&
		        textlist_add(seeds, LIMIT_LIST, t.seed[i]))
			return err_set(e, ERR_LIMIT, "agent.seeds: too many");
	}
	token_wipe(&t);
	return 0;
}

static int take_settings(struct join *j, const struct buf *got, struct err *e)
{
	struct config theirs;
	j->status = EXIT_CONFIG;
	int rc = run_settings_read(&theirs, &j->manifest, got->data, got->len, e);
	if (rc)
		err_prefix(e, "the run's settings");
	else
		rc = run_settings_take(&j->config, &theirs, j->args.given, e);
	config_close(&theirs);
	return rc;
}

static int fetch(struct join *j, const struct state_dir *state, struct err *e)
{
	struct identity identity;
	struct secrets secrets;
	struct admission *admission = NULL;
	struct buf got;
	char from[64], flock[FLOCK_TEXT], run[JSON_SHOWN];
	int rc = identity_open(&identity, j->state, e);
	if (rc)
		return rc;
	buf_init(&got, SETTINGS_BYTES_MAX);
	rc = load_keys(j, &secrets, e);
	if (rc)
		goto out;
	rc = admit_open(&admission, &j->config, state, &identity, false, e);
	struct fetch f = {&identity, &secrets, admission, &j->token, FETCH_MS};
	if (rc == 0) {
		j->status = EXIT_NO_AGENT;
		rc = fetch_settings(&f, &got, from, e);
		if (rc == ERR_MISMATCH)
			j->status = EXIT_CONFIG;
	}
	if (rc == 0)
		rc = take_settings(j, &got, e);
	if (rc == 0)
		printf("flock %s, run \"%s\": %" PRIu64 " parameters, %" PRIu64
		       " samples; its settings, from %s:\n",
		        flock_text(&secrets.flock[0], flock), json_shown(j->token.run, run),
		        j->manifest.count, j->manifest.total, from);
	admission_free(admission);
	secrets_close(&secrets);
out:
	buf_close(&got);
	identity_close(&identity);
	return rc;
}

static int show(const struct join *j, struct err *e)
{
	struct buf b;
	buf_init(&b, LIMIT_CONFIG_BYTES);
	int rc = run_settings_file(&j->config, false, &b);
	if (rc)
		err_set(e, rc, "%s", err_text(rc));
	else if (cli_print(&b) != EXIT_OK)
		rc = err_set(e, ERR_IO, "nobody can see the settings");
	else
		puts("All else is as `dunlin config init` has it.");
	fflush(stdout);
	buf_close(&b);
	return rc;
}

static bool says_data(const struct config *c)
{
	struct config plain;
	config_defaults(&plain);
	bool same = strcmp(c->data.path, plain.data.path) == 0 &&
	            strcmp(c->data.train_images, plain.data.train_images) == 0;
	config_close(&plain);
	return !same;
}

static int unasked(struct err *e)
{
	return err_prefix(e, "say --yes to be asked nothing");
}

static int ask_user(struct join *j, bool *yes, struct err *e)
{
	struct config *c = &j->config;
	char path[LIMIT_PATH];
	int rc = 0;
	*yes = true;
	if (cli_own(&j->args, CMD_JOIN, "--yes"))
		return 0;
	j->status = EXIT_USAGE;
	if (!says_data(c)) {
		printf("Data stay on each machine. Empty: %s and its like\n", c->data.train_images);
		fflush(stdout);
		rc = prompt_line("folder or file of the data: ", path, sizeof path, e);
		if (rc == 0) {
			memcpy(c->data.path, path, sizeof path);
			rc = whole_path(c->data.path, sizeof c->data.path, e);
		}
	}
	if (rc == 0)
		rc = prompt_yes("join this run? [y/N] ", yes, e);
	return rc ? unasked(e) : 0;
}

static int write_text(int fd, void *arg, struct err *e)
{
	const struct buf *b = arg;
	return file_write_all(fd, b->data, b->len, e);
}

static int write_config(struct join *j, struct err *e)
{
	static struct config_problems p;
	struct buf b;
	config_problems_init(&p, NULL);
	j->status = EXIT_CONFIG;
	if (j->made_invite)
		strcpy(j->config.agent.invite, j->invite);
	if (config_check(&j->config, &p))
		return err_set(e, ERR_INVALID, "%s", p.list[0].text);
	j->status = EXIT_FAILED;
	buf_init(&b, LIMIT_CONFIG_BYTES);
	int rc = run_settings_file(&j->config, true, &b);
	if (rc)
		err_set(e, rc, "%s", err_text(rc));
	else
		rc = file_replace(j->file, 0600, write_text, &b, e);
	buf_close(&b);
	return rc;
}

/* ---- all of it */

static int prepare(struct join *j, bool *yes, struct err *e)
{
	struct state_dir state;
	j->status = EXIT_CONFIG;
	int rc = token_check_invite(&j->token, (uint64_t)time(NULL), e);
	if (rc == 0)
		rc = whole_paths(&j->config, e);
	if (rc == 0)
		rc = add_seeds(j, e);
	if (rc == 0)
		rc = paths_state(&j->config, j->state, e);
	if (rc == 0)
		rc = whole_path(j->state, sizeof j->state, e);
	if (rc == 0 && (in_state(j, "flock.key", j->key) || in_state(j, "invite", j->invite) ||
	                       in_state(j, "invite.new", j->new_invite) ||
	                       in_state(j, "config.json", j->file)))
		rc = err_set(e, ERR_LIMIT, "the state folder's path is too long");
	if (rc)
		return rc;
	j->status = EXIT_FAILED;
	rc = state_dir_open(&state, j->state, e);
	if (rc)
		return rc;
	rc = keep_key(j, e);
	if (rc == 0) {
		j->status = EXIT_CONFIG;
		rc = keep_invite(j, e);
	}
	if (rc == 0)
		rc = fetch(j, &state, e);
	if (rc == 0)
		rc = show(j, e);
	if (rc == 0)
		rc = ask_user(j, yes, e);
	if (rc == 0 && *yes)
		rc = write_config(j, e);
	if (rc == 0 && *yes)
		rc = place_invite(j, e);
	if (rc || !*yes)
		undo(j);
	state_dir_close(&state);
	return rc;
}

static int join(struct join *j)
{
	struct err e = {0};
	bool yes = false;
	j->status = EXIT_CONFIG;
	int rc = read_token(j, &e);
	if (rc == 0)
		rc = prepare(j, &yes, &e);
	token_wipe(&j->token);
	if (rc)
		return cli_fail(
		        rc == ERR_STALE ? EXIT_CONFIG : exit_code(rc, j->status), "%s", e.msg);
	if (!yes) {
		puts("not joined");
		return EXIT_OK;
	}
	printf("written: %s; later `dunlin agent --config` with it starts this agent again\n",
	        j->file);
	fflush(stdout);
	return agent_run(&(struct agent_options){.config = &j->config,
	        .config_path = j->file,
	        .expected = &j->manifest,
	        .print_cb = cli_print,
	        .fail_cb = cli_fail});
}

int cmd_join(int argc, char **argv)
{
	struct join *j = calloc(1, sizeof *j);
	int status = EXIT_FAILED;
	if (!j)
		return cli_fail(EXIT_FAILED, "%s", err_text(ERR_NOMEM));
	signal(SIGHUP, SIG_IGN); /* until it is taken: see signals.h */
	if (cli_begin(&j->config, &j->args, CMD_JOIN, argc, argv, &status)) {
		status = join(j);
		config_close(&j->config);
	}
	free(j);
	return status;
}

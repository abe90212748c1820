/* SPDX-License-Identifier: MIT */
/* dunlin invite: a token that joins the run of an agent on this machine.
 *
 * The happy path: the agent tells the token without a secret and the files of its keys; the secret
 * is read here, so that only who may read the file gets it, and the whole is printed, or written to
 * a file of mode 0600. It goes past the buffers of stdio, which nobody wipes. */
#include "agent/cli/ask.h"
#include "agent/config/hostport.h"
#include "agent/json/jsonout.h"
#include "agent/node/token.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define JSON_BYTES_MAX 65536

static int add_secret(struct token *t, const char *path, struct err *e)
{
	struct secrets s;
	int rc = secrets_load(&s, &path, 1, e);
	if (rc)
		return rc;
	for (int i = 0; i < s.n && !t->has_secret; i++) {
		if (memcmp(s.flock[i].bytes, t->flock, sizeof t->flock) != 0)
			continue;
		memcpy(t->secret, s.secret[i], sizeof t->secret);
		t->has_secret = true;
	}
	secrets_close(&s);
	return t->has_secret ? 0
	                     : err_set(e, ERR_MISMATCH,
	                               "%s has not the secret that the agent started with", path);
}

static int add_invite(struct token *t, const char *path, struct err *e)
{
	if (!t->has_owner)
		return err_set(e, ERR_INVALID, "--invite: the flock has no owner");
	int rc = invite_load(path, t->invite, e);
	t->has_invite = rc == 0;
	return rc ? rc : token_check_invite(t, (uint64_t)time(NULL), e);
}

/* One that was named comes first. */
static int add_seed(struct token *t, const char *seed, struct err *e)
{
	char before[TOKEN_SEEDS_MAX][LIMIT_HOST_PORT];
	const int n = t->n_seeds;
	struct hostport h;
	int rc = hostport_parse(seed, &h, e);
	if (rc == 0 && (!h.host[0] || h.port == 0 || strlen(seed) > UINT8_MAX))
		rc = err_set(e, ERR_INVALID, "\"%s\" is no address that others can dial", seed);
	if (rc)
		return err_prefix(e, "--seed");
	memcpy(before, t->seed, sizeof before);
	t->n_seeds = 0;
	token_add_seed(t, seed);
	for (int i = 0; i < n; i++)
		token_add_seed(t, before[i]);
	return 0;
}

static int fill(struct asked *a, struct token *t, struct err *e)
{
	const cJSON *text = asked_at(a->reply, "token");
	const cJSON *first = cJSON_GetArrayItem(asked_at(a->reply, "keys"), 0);
	const char *key = cli_own(&a->args, CMD_INVITE, "--key");
	const char *invite = cli_own(&a->args, CMD_INVITE, "--invite");
	const char *seed = cli_own(&a->args, CMD_INVITE, "--seed");
	if (!cJSON_IsString(text))
		return err_set(e, ERR_LIMIT,
		        "the run's settings are too many to be sent: others need its config");
	int rc = token_parse(t, text->valuestring, strlen(text->valuestring), e);
	if (!key && cJSON_IsString(first))
		key = first->valuestring;
	if (rc == 0 && !cli_own(&a->args, CMD_INVITE, "--no-secret"))
		rc = key ? add_secret(t, key, e)
		         : err_set(e, ERR_NOTFOUND,
		                   "the agent's key file is gone: name a copy with --key");
	if (rc == 0 && invite)
		rc = add_invite(t, invite, e);
	if (rc == 0 && seed)
		rc = add_seed(t, seed, e);
	if (rc == 0 && t->n_seeds == 0)
		rc = err_set(e, ERR_INVALID,
		        "the agent cannot be dialled and knows no peer that can: name an address "
		        "with --seed");
	return rc;
}

static int print_bytes(const char *text, size_t len)
{
	struct err e = {0};
	if (file_write_all(STDOUT_FILENO, text, len, &e))
		return cli_fail(EXIT_FAILED, "standard output: %s", e.msg);
	return EXIT_OK;
}

static int print_json(const struct token *t, const char *text)
{
	struct buf b;
	struct json_out j = {.buf = &b};
	char flock[FLOCK_TEXT];
	struct flock_id id = {{0}};
	memcpy(id.bytes, t->flock, sizeof t->flock);
	buf_init(&b, JSON_BYTES_MAX);
	b.data = malloc(b.max + 1); /* all of it, so that it never moves and leaves a copy */
	if (!b.data)
		return cli_fail(EXIT_FAILED, "%s", err_text(ERR_NOMEM));
	b.cap = b.max + 1;
	json_open(&j, NULL, '{');
	json_text(&j, "token", text);
	json_bool(&j, "secret", token_is_secret(t));
	json_text(&j, "flock", flock_text(&id, flock));
	json_text(&j, "run", t->run);
	json_open(&j, "seeds", '[');
	for (int i = 0; i < t->n_seeds; i++)
		json_text(&j, NULL, t->seed[i]);
	json_close(&j, ']');
	json_close(&j, '}');
	int rc = j.rc ? j.rc : buf_append(&b, "\n", 1);
	int status = rc ? cli_fail(EXIT_FAILED, "%s", err_text(rc)) : print_bytes(b.data, b.len);
	explicit_bzero(b.data, b.cap);
	buf_close(&b);
	return status;
}

static int print_token(const struct token *t, const char *text)
{
	int status = print_bytes(text, strlen(text));
	if (status == EXIT_OK && token_is_secret(t) && isatty(STDOUT_FILENO))
		fputs("dunlin: this is a secret: who has it can join, and learns the flock's key. "
		      "`dunlin join` reads it at its prompt.\n",
		        stderr);
	return status;
}

/* line: the token and a newline. */
static int deliver(struct asked *a, const struct token *t, char *line)
{
	const char *out = cli_own(&a->args, CMD_INVITE, "--out");
	struct err e = {0};
	if (out) {
		int rc = token_create(out, line, &e);
		if (rc)
			return cli_fail(EXIT_FAILED, "%s", e.msg);
		printf("%s: a token; `dunlin join --token-file %s` joins by it\n", out, out);
		return EXIT_OK;
	}
	if (!a->json)
		return print_token(t, line);
	line[strlen(line) - 1] = '\0';
	return print_json(t, line);
}

int cmd_invite(int argc, char **argv)
{
	struct asked a;
	struct token t = {0};
	struct err e = {0};
	char line[TOKEN_TEXT_MAX + 1];
	int status;
	if (!ask_open(&a, CMD_INVITE, argc, argv, &status))
		return status;
	status = ask(&a, "{\"cmd\":\"invite\"}");
	int rc = status == EXIT_OK ? fill(&a, &t, &e) : 0;
	if (rc) {
		status = cli_fail(
		        rc == ERR_STALE ? EXIT_CONFIG : exit_code(rc, EXIT_CONFIG), "%s", e.msg);
	} else if (status == EXIT_OK) {
		token_print(&t, line);
		strcat(line, "\n");
		status = deliver(&a, &t, line);
		explicit_bzero(line, sizeof line);
	}
	token_wipe(&t);
	ask_close(&a);
	return status;
}

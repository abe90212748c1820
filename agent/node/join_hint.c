/* SPDX-License-Identifier: MIT */
/* The lines that join this agent are meant to be pasted, so they must be exact: everything that
 * agents of one run must have alike, addresses, the port that was really bound, and words quoted
 * where a shell would take them apart. They name files, never what is in them. What is this agent's
 * own affair (its name, folders, threads, device, limits) is left out.
 *
 * The line for another machine does not do on this one, where the name and the default port are
 * taken, so there is one for each. */
#include "agent/node/join_hint.h"

#include "agent/base/textlist.h"
#include "agent/config/hostport.h"
#include "agent/config/options.h"
#include "net/transport/transport.h"

#include <ctype.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A word as a shell reads it back: as it is, or in single quotes. */
static int shell_word(struct buf *out, const char *word)
{
	static const char plain[] =
	        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=,";
	if (word[0] && strspn(word, plain) == strlen(word))
		return buf_printf(out, "%s", word);
	int rc = buf_append(out, "'", 1);
	for (; *word && rc == 0; word++)
		rc = *word == '\'' ? buf_append(out, "'\\''", 4) : buf_append(out, word, 1);
	return rc ? rc : buf_append(out, "'", 1);
}

static int add_flag(struct buf *out, const char *flag, const char *value)
{
	/* What begins with -- would be taken for the next flag. */
	int rc = buf_printf(out, strncmp(value, "--", 2) == 0 ? " %s=" : " %s ", flag);
	return rc ? rc : shell_word(out, value);
}

static int add_setting(struct buf *out, const struct setting *s, const struct config *c)
{
	struct buf value;
	buf_init(&value, LIMIT_PATH);
	int rc = setting_print_text(s, c, &value);
	const char *text = value.data ? value.data : "";
	if (rc == 0 && s->type == SET_BOOL)
		rc = buf_printf(out, " --%s%s", text[0] == 't' ? "" : "no-", s->flag + 2);
	else if (rc == 0)
		rc = add_flag(out, s->flag, text);
	buf_close(&value);
	return rc;
}

/* The config, the keys, and what else all agents of the run have alike: of that what was said by a
 * flag or in the environment, since the file has the rest. */
static int add_common(const struct join_hint *g, struct buf *out)
{
	int rc = buf_printf(out, "dunlin agent");
	if (rc == 0 && g->config_path)
		rc = add_flag(out, "--config", g->config_path);
	for (const char *k = NULL; rc == 0 && (k = textlist_next(g->config->agent.keys, k));)
		rc = add_flag(out, "--key", k);
	for (int i = 0; rc == 0 && i < n_settings; i++) {
		const struct setting *s = &settings[i];
		bool said = (g->given && g->given[i]) || (s->env && getenv(s->env));
		if (s->shared && said)
			rc = add_setting(out, s, g->config);
	}
	return rc;
}

/* What the config or the environment says of this agent alone must not become another's: the
 * settings of these keys are emptied. */
static int add_empty(
        const struct join_hint *g, const char *const *keys, int n_keys, struct buf *out)
{
	int rc = 0;
	for (int k = 0; rc == 0 && k < n_keys; k++) {
		int i = setting_find(keys[k]);
		const char *value = (const char *)g->config + settings[i].offset;
		if (value[0] && !(g->given && g->given[i]))
			rc = add_flag(out, settings[i].flag, "");
	}
	return rc;
}
static const char *const own_keys[] = {
        "agent.advertise", "agent.state_dir", "agent.socket", "run.out", "run.metrics"};

static int print_elsewhere(const struct join_hint *g, struct buf *out)
{
	char seed[64];
	int rc = buf_printf(out, "join from elsewhere:  ");
	if (rc == 0)
		rc = add_common(g, out);
	if (rc == 0)
		rc = add_empty(g, own_keys, 1, out);
	for (int i = 0; rc == 0 && i < g->n_advertise; i++)
		rc = add_flag(out, "--seed", peer_addr_text(&g->advertise[i], seed));
	return rc ? rc : buf_printf(out, "\n");
}

/* agent, agent2, agent3, … */
static void next_name(const char *name, char out[LIMIT_NAME])
{
	size_t n = strlen(name), digits = 0;
	while (digits < n && isdigit((unsigned char)name[n - digits - 1]))
		digits++;
	if (digits > 6)
		digits = 0;
	int number = digits ? atoi(name + n - digits) : 1;
	n -= digits;
	snprintf(out, LIMIT_NAME, "%.*s%d", (int)(n < 32 ? n : 32), name, number + 1);
}

/* Without a host it listens on both, and IPv4 is there also where IPv6 is switched off. */
static struct peer_addr from_here(const struct join_hint *g)
{
	const struct peer_addr *bound = &g->listen;
	struct peer_addr four = {.family = 4, .ip = {127, 0, 0, 1}, .port = bound->port};
	struct peer_addr six = {.family = 6, .ip = {[15] = 1}, .port = bound->port};
	struct hostport h;
	struct err e;
	bool both = hostport_parse(g->config->agent.listen, &h, &e) == 0 && !h.host[0];
	if (!hostport_any(bound))
		return *bound;
	return bound->family == 4 || both ? four : six;
}

/* A name and a port of its own, and the address that is surely reached from here. */
static int print_beside(const struct join_hint *g, struct buf *out)
{
	struct peer_addr seed = from_here(g), listen = g->listen;
	char name[LIMIT_NAME], text[64];
	bool any = hostport_any(&listen) || g->config->agent.interface[0];
	listen.port = 0;
	next_name(g->config->agent.name, name);
	int rc = buf_printf(out, "join on this machine: ");
	if (rc == 0)
		rc = add_common(g, out);
	if (rc == 0)
		rc = add_empty(g, own_keys, sizeof own_keys / sizeof *own_keys, out);
	if (rc == 0)
		rc = add_flag(out, "--name", name);
	if (rc == 0)
		rc = add_flag(out, "--listen", any ? ":0" : peer_addr_text(&listen, text));
	if (rc == 0)
		rc = add_flag(out, "--seed", peer_addr_text(&seed, text));
	return rc ? rc : buf_printf(out, "\n");
}

/* Without the secret, so that it may be shown: the joiner needs the key file. */
static int print_token(const struct join_hint *g, struct buf *out)
{
	struct token t = *g->token;
	char text[TOKEN_TEXT_MAX], seed[64];
	for (int i = 0; i < g->n_advertise; i++)
		token_add_seed(&t, peer_addr_text(&g->advertise[i], seed));
	token_print(&t, text);
	int rc = buf_printf(out, "join by a token:      dunlin join %s", text);
	for (const char *k = NULL; rc == 0 && (k = textlist_next(g->config->agent.keys, k));)
		rc = add_flag(out, "--key", k);
	return rc ? rc : buf_printf(out, "\n");
}

int join_hint_print(const struct join_hint *g, struct buf *out)
{
	char id[2 * sizeof g->id.bytes + 1], flock[FLOCK_TEXT], listen[64];
	sodium_bin2hex(id, sizeof id, g->id.bytes, sizeof g->id.bytes);
	int rc = buf_printf(out, "dunlin %s\nagent %s · flock %s · listening on %s\n", id,
	        g->config->agent.name, flock_text(&g->flock, flock),
	        peer_addr_text(&g->listen, listen));
	if (rc == 0 && g->device)
		rc = buf_printf(out, "trains on %s\n", g->device);
	if (rc == 0 && !g->config->agent.dialable)
		return buf_printf(
		        out, "not dialable (agent.dialable): others join through another agent\n");
	if (rc == 0)
		rc = print_elsewhere(g, out);
	if (rc == 0)
		rc = print_beside(g, out);
	return rc || !g->token ? rc : print_token(g, out);
}

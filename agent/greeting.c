/* SPDX-License-Identifier: MIT */
/* The line that joins this agent from elsewhere is meant to be pasted, so it must be exact: the
 * address that peers are told, the port that was really bound, and paths quoted where a shell would
 * take them apart. It names files, never what is in them. */
#include "agent/greeting.h"

#include "agent/textlist.h"
#include "net/transport.h"

#include <string.h>

int shell_word(struct buf *out, const char *word)
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
	int rc = buf_printf(out, " %s ", flag);
	return rc ? rc : shell_word(out, value);
}

static int print_join(const struct greeting *g, struct buf *out)
{
	char seed[64];
	const char *keys = g->config->agent.keys;
	int rc = buf_printf(out, "join from elsewhere:  dunlin agent");
	if (rc == 0 && g->config_path)
		rc = add_flag(out, "--config", g->config_path);
	for (const char *k = NULL; rc == 0 && (k = textlist_next(keys, k));)
		rc = add_flag(out, "--key", k);
	if (rc == 0)
		rc = add_flag(out, "--seed", peer_addr_text(&g->advertise, seed));
	return rc ? rc : buf_printf(out, "\n");
}

int greeting_print(const struct greeting *g, struct buf *out)
{
	char id[2 * sizeof g->id.bytes + 1], flock[FLOCK_TEXT], listen[64];
	for (size_t i = 0; i < sizeof g->id.bytes; i++) {
		id[2 * i] = "0123456789abcdef"[g->id.bytes[i] >> 4];
		id[2 * i + 1] = "0123456789abcdef"[g->id.bytes[i] & 15];
	}
	id[sizeof id - 1] = '\0';
	int rc = buf_printf(out, "dunlin %s\nagent %s · flock %s · listening on %s\n", id,
	        g->config->agent.name, flock_text(&g->flock, flock),
	        peer_addr_text(&g->listen, listen));
	if (rc == 0 && g->device)
		rc = buf_printf(out, "trains on %s\n", g->device);
	if (rc == 0 && !g->config->agent.dialable)
		return buf_printf(
		        out, "not dialable (agent.dialable): others join through another agent\n");
	return rc ? rc : print_join(g, out);
}

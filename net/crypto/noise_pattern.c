/* SPDX-License-Identifier: MIT */
/* The table of patterns, and the names of protocols.
 *
 * Only the patterns that Dunlin uses or can check against published vectors are here. A modifier
 * pskN puts a psk token at the start of the first message (N = 0) or at the end of the Nth. */
#include "net/crypto/noise_pattern.h"

#include <string.h>

#define PREFIX "Noise_"
#define SUFFIX "_25519_ChaChaPoly_SHA256"

#define E TOKEN_E
#define S TOKEN_S
#define EE TOKEN_EE
#define ES TOKEN_ES
#define SE TOKEN_SE
#define SS TOKEN_SS

static const struct noise_pattern patterns[] = {
        {"NN", false, 2, 0, {{E}, {E, EE}}},
        {"XX", false, 3, 0, {{E}, {E, EE, S, ES}, {S, SE}}},
        {"IK", true, 2, 0, {{E, ES, S, SS}, {E, EE, SE}}},
};

/* The longest list has four tokens; a psk before it, one after it and the end must fit as well. */
_Static_assert(NOISE_TOKENS_MAX >= 4 + 2 + 1, "modifiers need room");

static void add_psk(struct noise_pattern *p, int at)
{
	uint8_t *t = p->tokens[at ? at - 1 : 0];
	if (at == 0) {
		memmove(t + 1, t, NOISE_TOKENS_MAX - 1);
		t[0] = TOKEN_PSK;
	} else {
		t[strlen((const char *)t)] = TOKEN_PSK; /* TOKEN_END is 0 */
	}
	p->n_psks++;
}

/* "", "psk0", "psk0+psk3": each at most once, in rising order, which is the order of the psks. */
static bool add_modifiers(struct noise_pattern *p, const char *s, size_t len)
{
	int last = -1;
	for (size_t i = 0; i < len; i += 5) {
		int at = len - i >= 4 ? s[i + 3] - '0' : -1;
		if (at <= last || at > p->n_messages || memcmp(s + i, "psk", 3) != 0)
			return false;
		if (len - i > 4 && (s[i + 4] != '+' || len - i == 5))
			return false;
		add_psk(p, at);
		last = at;
	}
	return true;
}

int noise__pattern(struct noise_pattern *p, const char *protocol, struct err *e)
{
	size_t len = strlen(protocol), prefix = sizeof PREFIX - 1, suffix = sizeof SUFFIX - 1;
	if (len >= prefix + 2 + suffix && strncmp(protocol, PREFIX, prefix) == 0 &&
	        strcmp(protocol + len - suffix, SUFFIX) == 0) {
		const char *name = protocol + prefix;
		for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
			if (strncmp(name, patterns[i].name, 2) != 0)
				continue;
			*p = patterns[i];
			if (add_modifiers(p, name + 2, len - prefix - 2 - suffix))
				return 0;
		}
	}
	return err_set(e, ERR_UNSUPPORTED, "no such handshake: %.80s", protocol);
}

/* Whether a side sends its static key or needs it to understand the other. */
static bool wants_static(const struct noise_pattern *p, bool initiator)
{
	if (p->knows_responder && !initiator)
		return true;
	for (int i = initiator ? 0 : 1; i < p->n_messages; i += 2)
		if (memchr(p->tokens[i], TOKEN_S, NOISE_TOKENS_MAX))
			return true;
	return false;
}

int noise__check(const struct noise_pattern *p, const struct noise_config *c, struct err *e)
{
	bool s = wants_static(p, c->initiator), rs = p->knows_responder && c->initiator;
	if (s != (c->static_secret != NULL) || s != (c->static_public != NULL))
		return err_set(
		        e, ERR_INVALID, "%s wants %s static key pair", c->protocol, s ? "a" : "no");
	if (rs != (c->remote_static != NULL))
		return err_set(e, ERR_INVALID, "%s wants %s remote static key", c->protocol,
		        rs ? "a" : "no");
	if (c->n_psks != p->n_psks)
		return err_set(e, ERR_INVALID, "%s wants %d psks, not %d", c->protocol, p->n_psks,
		        c->n_psks);
	if (c->prologue_len > NOISE_PROLOGUE_MAX)
		return err_set(e, ERR_LIMIT, "a prologue of %zu bytes", c->prologue_len);
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* From the name of a protocol to the tokens of its messages. Internal to the handshake. */
#ifndef DUNLIN_NET_CRYPTO_NOISE_PATTERN_H
#define DUNLIN_NET_CRYPTO_NOISE_PATTERN_H

#include "net/crypto/noise.h"

enum noise_token { TOKEN_END, TOKEN_E, TOKEN_S, TOKEN_EE, TOKEN_ES, TOKEN_SE, TOKEN_SS, TOKEN_PSK };

struct noise_pattern {
	char name[4];
	bool knows_responder; /* the initiator has the responder's static key beforehand */
	uint8_t n_messages;
	uint8_t n_psks;
	uint8_t tokens[NOISE_MESSAGES_MAX][NOISE_TOKENS_MAX];
};

/* "Noise_XXpsk0+psk3_25519_ChaChaPoly_SHA256": ERR_UNSUPPORTED for what the table has not, and for
 * psk modifiers out of order. */
int noise__pattern(struct noise_pattern *p, const char *protocol, struct err *e) MUST_CHECK;

/* Whether the configuration has the keys that the pattern wants, and no others. */
int noise__check(
        const struct noise_pattern *p, const struct noise_config *c, struct err *e) MUST_CHECK;

#endif

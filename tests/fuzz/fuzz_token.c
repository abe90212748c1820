/* SPDX-License-Identifier: MIT */
/* Any bytes as a token's text; and as what is in one, with a checksum that fits. What is accepted
 * must print, and read back to the same. */
#include "agent/node/token.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define MUST(x)                  \
	do {                     \
		if (!(x))        \
			abort(); \
	} while (0)

static void read_text(const char *text, size_t len)
{
	struct token t, back;
	struct err e = {0};
	char out[TOKEN_TEXT_MAX];
	if (token_parse(&t, text, len, &e)) {
		MUST(e.code && e.msg[0]);
		return;
	}
	MUST(t.n_seeds >= 0 && t.n_seeds <= TOKEN_SEEDS_MAX);
	MUST(memchr(t.run, '\0', sizeof t.run));
	for (int i = 0; i < t.n_seeds; i++)
		MUST(memchr(t.seed[i], '\0', sizeof t.seed[i]));
	MUST(t.has_owner || !t.has_invite);
	token_print(&t, out);
	MUST(strlen(out) < sizeof out);
	MUST(token_parse(&back, out, strlen(out), &e) == 0);
	MUST(memcmp(&t, &back, sizeof t) == 0);
	(void)!token_check_invite(&t, 1, &e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t domain[] = "dunlin1";
	uint8_t bytes[TOKEN_BYTES_MAX], hash[32];
	char text[TOKEN_TEXT_MAX] = "dunlin1";
	crypto_generichash_state st;
	read_text((const char *)data, size);
	if (size > sizeof bytes - TOKEN_CHECKSUM)
		return 0;
	if (size > 0)
		memcpy(bytes, data, size);
	crypto_generichash_init(&st, NULL, 0, sizeof hash);
	crypto_generichash_update(&st, domain, sizeof domain);
	crypto_generichash_update(&st, bytes, size);
	crypto_generichash_final(&st, hash, sizeof hash);
	memcpy(bytes + size, hash, TOKEN_CHECKSUM);
	sodium_bin2base64(text + 7, sizeof text - 7, bytes, size + TOKEN_CHECKSUM,
	        sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	read_text(text, strlen(text));
	return 0;
}

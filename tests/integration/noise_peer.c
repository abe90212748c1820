/* SPDX-License-Identifier: MIT */
/* One side of our handshake on stdin and stdout, a message a line in hexadecimal, for another
 * implementation to talk to:
 *
 *     noise_peer initiator|responder PSK STATIC-SECRET PROLOGUE PAYLOAD-BYTES
 *
 * Each message of ours carries a payload of that many bytes x; each that comes is answered by
 * "payload HEX" before we go on. Then come "hash HEX", "remote HEX", a sealed "from C" by every
 * provider of the cipher, and for the sealed line that follows "opened HEX". What it does not like
 * it answers with "refused". */
#include "net/crypto/aead.h"
#include "net/crypto/noise.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE (2 * NOISE_MESSAGE_MAX + 2)

static uint8_t message[NOISE_MESSAGE_MAX], payload[NOISE_MESSAGE_MAX];
static char line[LINE];

static void say(const char *word, const uint8_t *bytes, size_t n)
{
	fputs(word, stdout);
	for (size_t i = 0; i < n; i++)
		printf("%02x", bytes[i]);
	putchar('\n');
	fflush(stdout);
}

static int hear(size_t *len)
{
	if (!fgets(line, sizeof line, stdin))
		return -1;
	line[strcspn(line, "\n")] = '\0';
	return sodium_hex2bin(message, sizeof message, line, strlen(line), NULL, len, NULL);
}

static int handshake(struct noise *n, size_t payload_bytes)
{
	size_t len, got;
	while (!noise_done(n)) {
		if (noise_my_turn(n)) {
			memset(payload, 'x', payload_bytes);
			if (noise_write(n, payload, payload_bytes, message, sizeof message, &len))
				return -1;
			say("", message, len);
		} else {
			if (hear(&len) ||
			        noise_read(n, message, len, payload, sizeof payload, &got))
				return -1;
			say("payload ", payload, got);
		}
	}
	return 0;
}

static int session(struct noise *n)
{
	uint8_t send[32], receive[32], hash[32], remote[32];
	size_t len;
	struct aead_key k;
	memcpy(remote, noise_remote_static(n), sizeof remote);
	if (noise_split(n, send, receive, hash))
		return -1;
	say("hash ", hash, sizeof hash);
	say("remote ", remote, sizeof remote);
	uint64_t counter = 0;
	for (int i = 0; aead_list[i]; i++) {
		if (aead_list[i]->id != AEAD_CHACHA20_POLY1305)
			continue;
		if (aead_init(&k, aead_list[i], send) ||
		        aead_seal(&k, counter++, NULL, 0, (const uint8_t *)"from C", 6, message))
			return -1;
		say("sealed ", message, 6 + aead_tag(&k));
		aead_close(&k);
	}
	if (hear(&len) || aead_init(&k, aead_list[0], receive))
		return -1;
	int rc = aead_open(&k, 0, NULL, 0, message, len, payload);
	if (rc == 0)
		say("opened ", payload, len - aead_tag(&k));
	aead_close(&k);
	return rc;
}

int main(int argc, char **argv)
{
	struct noise n;
	struct err e;
	uint8_t psk[1][32], secret[32], public[32];
	if (argc != 6 || sodium_init() < 0 ||
	        sodium_hex2bin(psk[0], 32, argv[2], strlen(argv[2]), NULL, NULL, NULL) ||
	        sodium_hex2bin(secret, 32, argv[3], strlen(argv[3]), NULL, NULL, NULL))
		return 2;
	crypto_scalarmult_curve25519_base(public, secret);
	const struct noise_config c = {.protocol = NOISE_PROTOCOL,
	        .initiator = strcmp(argv[1], "initiator") == 0,
	        .prologue = argv[4],
	        .prologue_len = strlen(argv[4]),
	        .static_secret = secret,
	        .static_public = public,
	        .psks = (const uint8_t(*)[32])psk,
	        .n_psks = 1};
	if (noise_init(&n, &c, &e)) {
		fprintf(stderr, "%s\n", e.msg);
		return 2;
	}
	if (handshake(&n, strtoul(argv[5], NULL, 10)) || session(&n))
		puts("refused");
	noise_close(&n);
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* attack NAME PORT KEYFILE FOLDER [ARGUMENT…]: attacks the agent at 127.0.0.1:PORT as somebody who
 * has that flock's secret, or some other. Identities are made in FOLDER. The code is 0 if the agent
 * withstood it, 1 if not, 2 if the attack could not be made. */
#include "tests/attack/attack.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	int (*run)(struct attack *k);
} attacks[] = {
        {"honest", attack_honest},
        {"flip-sent", attack_flip_sent},
        {"flip-received", attack_flip_received},
        {"cut", attack_cut},
        {"proxy", attack_proxy},
        {"wrong-key", attack_wrong_key},
        {"replay", attack_replay},
        {"half-open", attack_half_open},
        {"slow", attack_slow},
        {"noise", attack_noise},
        {"bombs", attack_bombs},
        {"floods", attack_floods},
        {"forge", attack_forge},
        {"forge-flood", attack_forge_flood},
        {"accuse", attack_accuse},
        {"stall", attack_stall},
        {"other-run", attack_other_run},
        {"fetch", attack_fetch},
        {"forge-on", attack_forge_on},
        {"accuse-on", attack_accuse_on},
        {"claim-address", attack_claim_address},
        {"retire-on", attack_retire_on},
        {"strangers", attack_strangers},
        {"idle", attack_idle},
        {"path", attack_path},
        {"sessions", attack_sessions},
};

int parse_id(const char *text, struct peer_id *id)
{
	for (size_t i = 0; i < sizeof id->bytes; i++)
		if (sscanf(text + 2 * i, "%2hhx", &id->bytes[i]) != 1)
			return -1;
	return text[2 * sizeof id->bytes] == '\0' ? 0 : -1;
}

static int prepare(struct attack *k, char **argv, struct err *e)
{
	const char *paths[] = {argv[3]};
	int rc = secrets_load(&k->secrets, paths, 1, e);
	if (rc == 0)
		rc = aead_measure(&k->ciphers, e);
	for (int i = 0; rc == 0 && i < ATTACKERS; i++) {
		struct attacker *a = &k->attacker[i];
		char folder[4096];
		snprintf(folder, sizeof folder, "%s/attacker%d", argv[4], i);
		a->target.sin_family = AF_INET;
		a->target.sin_port = htons((uint16_t)atoi(argv[2]));
		a->target.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		a->secrets = &k->secrets;
		a->ciphers = &k->ciphers;
		rc = identity_open(&a->identity, folder, e);
	}
	return rc;
}

int main(int argc, char **argv)
{
	struct err e = {0};
	size_t i = 0, n = sizeof attacks / sizeof *attacks;
	while (argc > 1 && i < n && strcmp(attacks[i].name, argv[1]) != 0)
		i++;
	if (argc < 5 || i == n) {
		fputs("usage: attack NAME PORT KEYFILE FOLDER [ARGUMENT...], of\n", stderr);
		for (i = 0; i < n; i++)
			fprintf(stderr, "  %s\n", attacks[i].name);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	struct attack *k = calloc(1, sizeof *k);
	if (!k)
		return 2;
	k->argc = argc - 5;
	k->argv = argv + 5;
	int rc = prepare(k, argv, &e);
	if (rc != 0)
		fprintf(stderr, "attack: %s\n", e.msg);
	rc = rc != 0 ? 2 : attacks[i].run(k) != 0;
	for (int j = 0; j < ATTACKERS; j++)
		identity_close(&k->attacker[j].identity);
	secrets_close(&k->secrets);
	free(k);
	return rc;
}

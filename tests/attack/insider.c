/* SPDX-License-Identifier: MIT */
/* What a member of the flock might do that has lost its mind, or its machine: it has the secret,
 * its sessions stand, and then it sends what no agent would. Nothing of it may cost the agent more
 * than that one session: not its memory, not its time, not its picture of the others. */
#include "tests/attack/attack.h"

#include "agent/base/rng.h"
#include "tests/net/wire_fill.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int stand(struct session *s, const struct attacker *a)
{
	int rc = session_open(s, a, 5);
	if (rc != 0)
		printf("a session does not come about: %s\n", err_text(rc));
	return rc;
}

/* The agent's last words on a session, if it ends; what else it says is passed over. */
static int last_words(struct session *s, struct wire_refusal *out)
{
	struct wire_message m;
	int rc;
	out->words[0] = '\0';
	while ((rc = session_read(s, &m)) == 0 || rc == ERR_UNSUPPORTED)
		if (rc == 0 && m.kind == WIRE_BYE)
			*out = m.refusal;
	session_shut(s);
	return session_drain(s);
}

/* Pings, and waits for the answer. */
static int answers(struct session *s, uint64_t nonce)
{
	struct wire_message m = {.kind = WIRE_PING};
	m.nonce = nonce;
	int rc = session_send(s, &m);
	do {
		if (rc == 0)
			rc = session_read(s, &m);
	} while (rc == 0 && !(m.kind == WIRE_PONG && m.nonce == nonce));
	return rc;
}

/* ---- messages that are none */

/* head, then the byte `fill` up to len. */
static const struct bomb {
	const char *what;
	const char *head;
	size_t head_len, len;
	uint8_t fill;
} bombs[] = {
#define HEAD(text) text, sizeof text - 1
        {"an array of 4 billion", HEAD("\xdd\xff\xff\xff\xff"), 5, 0},
        {"a map of 4 billion", HEAD("\xdf\xff\xff\xff\xff"), 5, 0},
        {"a string of 4 GB", HEAD("\x92\x04\xdb\xff\xff\xff\xff"), 7, 0},
        {"bytes of 4 GB", HEAD("\x92\x04\xc6\xff\xff\xff\xff"), 7, 0},
        {"an extension of 4 GB", HEAD("\x92\x04\xc9\xff\xff\xff\xff\x01"), 8, 0},
        {"arrays in arrays in arrays", HEAD("\x92\x04"), FRAME_MESSAGE_MAX, 0x91},
        {"maps in maps", HEAD("\x92\x04"), FRAME_MESSAGE_MAX, 0x81},
        {"100 million updates", HEAD("\x92\x04\xdd\x05\xf5\xe1\x00"), FRAME_MESSAGE_MAX, 0x90},
        {"60,000 values promised, some there", HEAD("\x93\x05\xc3\xdc\xea\x60"), FRAME_MESSAGE_MAX,
                0xc0},
        {"2,000 values that are nothing", HEAD("\x93\x05\xc3\xdc\x07\xd0"), 2006, 0xc0},
        {"a value that does not exist", HEAD("\xc1"), 1, 0},
        {"half a message", HEAD("\x94\x00\xcf\x10"), 4, 0},
        {"nothing", HEAD(""), 0, 0},
        {"zeros", HEAD(""), FRAME_MESSAGE_MAX, 0},
#undef HEAD
};

static int throw_bomb(const struct attacker *a, const struct bomb *b)
{
	static uint8_t bytes[FRAME_MESSAGE_MAX];
	struct session s;
	struct wire_refusal r = {0};
	memset(bytes, b->fill, sizeof bytes);
	memcpy(bytes, b->head, b->head_len);
	int rc = stand(&s, a);
	if (rc == 0)
		rc = answers(&s, 1);
	if (rc == 0)
		rc = session_send_bytes(&s, FRAME_MESSAGE, bytes, b->len);
	if (rc == 0)
		rc = last_words(&s, &r);
	printf("# %s: %s\n", b->what, r.words[0] ? r.words : "the connection was closed");
	if (rc != 0)
		printf("%s: the session did not end: %s\n", b->what, err_text(rc));
	session_close(&s);
	return rc;
}

int attack_bombs(struct attack *k)
{
	int bad = 0;
	for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++)
		bad |= throw_bomb(&k->attacker[i % ATTACKERS], &bombs[i]) != 0;
	return bad;
}

/* ---- far too much of what is well-formed */

#define FLOOD_PINGS 400000 /* more than the sockets' buffers could hold for the agent */
#define FLOOD_UNKNOWN 300

/* Questions without end, whose answers are never read: they must not pile up in the agent, which
 * may stop to listen. */
static int flood_pings(const struct attacker *a)
{
	struct session s;
	struct wire_message m = {.kind = WIRE_PING};
	struct timeval second = {.tv_sec = 1};
	int sent = 0, small = 4096, rc = stand(&s, a);
	setsockopt(s.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
	setsockopt(s.fd, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
	for (m.nonce = 0; rc == 0 && sent < FLOOD_PINGS; m.nonce++, sent++)
		if (session_send(&s, &m) != 0)
			break;
	printf("# %d pings whose answers nobody reads\n", sent);
	session_close(&s);
	return rc;
}

/* Kinds that a later version may have: passed over, as long as they come. */
static int flood_unknown(const struct attacker *a)
{
	static uint8_t bytes[1024] = {0xdc, 0x01, 0x00, 0x7f}; /* [127, 0, 0, … 255 of them] */
	struct session s;
	int sent = 0, rc = stand(&s, a);
	while (rc == 0 && sent < FLOOD_UNKNOWN) {
		rc = session_send_bytes(&s, FRAME_MESSAGE, bytes, 3 + 256);
		sent++;
	}
	if (rc == 0)
		rc = answers(&s, 2);
	printf("# %d messages of an unknown kind: %s\n", sent, rc ? err_text(rc) : "passed over");
	session_close(&s);
	return rc;
}

int attack_floods(struct attack *k)
{
	return flood_pings(&k->attacker[0]) != 0 || flood_unknown(&k->attacker[1]) != 0;
}

/* ---- lies */

static void random_id(struct rng *r, struct peer_id *id)
{
	for (size_t i = 0; i < sizeof id->bytes; i++)
		id->bytes[i] = (uint8_t)rng_u64(r);
}

static void make_lie(struct rng *r, const struct peer_id *about, struct gossip_update *u)
{
	uint8_t signature[64];
	memset(u, 0, sizeof *u);
	fill_bytes(r, signature, sizeof signature);
	if (rng_below(r, 2)) {
		u->kind = UPDATE_ACCUSATION;
		u->accusation.about = *about;
		random_id(r, &u->accusation.by);
		u->accusation.generation = 1 + rng_below(r, 1000);
		u->accusation.dead = true;
	} else {
		u->kind = UPDATE_RECORD;
		u->record.id = *about;
		u->record.generation = 1000 + rng_below(r, 1000);
		u->record.left = rng_below(r, 2);
		u->record.status.samples = 1u << 30;
	}
	forge(u, signature);
}

/* Whether the agent ended the session, and said why. */
static bool was_told_why(struct session *s, const char *why)
{
	struct wire_refusal r = {0};
	return last_words(s, &r) == 0 && strstr(r.words, why);
}

/* forge ID…: news of these members and of some that do not exist, that nobody has signed. */
int attack_forge(struct attack *k)
{
	struct session s;
	struct rng r;
	int sent = 0, rc = stand(&s, &k->attacker[2]);
	rng_seed(&r, 1, 0);
	while (rc == 0 && sent < 300) {
		struct wire_message m = {.kind = MESSAGE_SYNC};
		m.gossip.kind = MESSAGE_SYNC;
		m.gossip.n_updates = GOSSIP_UPDATES_MAX;
		for (int i = 0; i < GOSSIP_UPDATES_MAX; i++) {
			struct peer_id id;
			if (i >= k->argc || parse_id(k->argv[i], &id) != 0)
				random_id(&r, &id);
			make_lie(&r, &id, &m.gossip.update[i]);
		}
		rc = session_send(&s, &m);
		sent++;
	}
	bool told = sent > 0 && was_told_why(&s, "signature");
	printf("%s%d pages of forged news: the session %s\n", told ? "# " : "", sent,
	        told ? "was ended, with the reason" : "was not ended with a reason");
	session_close(&s);
	return !told;
}

/* forge-flood SECONDS: forged records as fast as they are taken; when a session is ended, the next
 * one is opened at once. The key is one and the signature is that of another record by it: of
 * random bytes most are refused before the costly part of the verification. */
int attack_forge_flood(struct attack *k)
{
	const struct identity *signer = &k->attacker[5].identity;
	struct wire_message m = {.kind = MESSAGE_GOSSIP};
	struct gossip_update u = {.kind = UPDATE_RECORD};
	uint8_t signature[64];
	int sessions = 0, sent = 0, rc = 0;
	long long end = now_ms() + (k->argc > 0 ? atoi(k->argv[0]) : 2) * 1000;
	m.gossip.kind = MESSAGE_GOSSIP;
	m.gossip.n_updates = GOSSIP_UPDATES_MAX;
	u.record.id = signer->id;
	u.record.generation = 1;
	wire_sign_update(signer, &u);
	memcpy(signature, u.raw.bytes + u.raw.length - sizeof signature, sizeof signature);
	while (rc == 0 && now_ms() < end) {
		struct session s;
		rc = stand(&s, &k->attacker[4]);
		sessions++;
		while (rc == 0 && now_ms() < end) {
			for (int i = 0; i < GOSSIP_UPDATES_MAX; i++) {
				u.record.version++;
				m.gossip.update[i] = u;
				forge(&m.gossip.update[i], signature);
			}
			if (session_send(&s, &m) != 0)
				break;
			sent += GOSSIP_UPDATES_MAX;
		}
		session_close(&s);
	}
	printf("# %d forged records in %d sessions\n", sent, sessions);
	return rc;
}

/* accuse ID GENERATION INCARNATION: a lie about a member, properly signed by the liar, who becomes
 * a member for it, since others are not heard, and leaves afterwards. */
int attack_accuse(struct attack *k)
{
	const struct identity *liar = &k->attacker[3].identity;
	struct session s;
	struct wire_message m = {.kind = MESSAGE_GOSSIP};
	struct gossip_update self = {.kind = UPDATE_RECORD};
	struct gossip_update lie = {.kind = UPDATE_ACCUSATION, .accusation.dead = true};
	m.gossip.kind = MESSAGE_GOSSIP;
	m.gossip.n_updates = 1;
	if (k->argc != 3 || parse_id(k->argv[0], &lie.accusation.about) != 0)
		return -1;
	lie.accusation.generation = strtoull(k->argv[1], NULL, 10);
	lie.accusation.incarnation = strtoull(k->argv[2], NULL, 10);
	lie.accusation.by = self.record.id = liar->id;
	self.record.generation = liar->generation;
	int rc = stand(&s, &k->attacker[3]);
	struct gossip_update *const say[] = {&self, &lie, &self};
	for (uint64_t i = 0; rc == 0 && i < 3; i++) {
		self.record.left = i == 2;
		self.record.version = i;
		wire_sign_update(liar, say[i]);
		m.gossip.update[0] = *say[i];
		rc = session_send(&s, &m);
		if (rc == 0)
			rc = answers(&s, 4 + i);
	}
	session_close(&s);
	return rc;
}

/* sessions N FOLDER: as many under as many ids, which say nothing, until SIGUSR1. That the agent
 * ends some of them is its right. */
int attack_sessions(struct attack *k)
{
	int n = k->argc == 2 ? atoi(k->argv[0]) : 0, open = 0;
	struct session *s = calloc((size_t)n, sizeof *s);
	sigset_t set;
	if (n == 0 || !s)
		return -1;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (int i = 0; i < n; i++) {
		struct attacker a = k->attacker[0];
		struct err e = {0};
		char folder[4096];
		snprintf(folder, sizeof folder, "%s/many%d", k->argv[1], i);
		if (identity_open(&a.identity, folder, &e) != 0)
			return -1;
		open += session_open(&s[i], &a, (unsigned)i) == 0;
		identity_close(&a.identity);
	}
	printf("# %d sessions of %d were opened\n", open, n);
	fflush(stdout);
	sigtimedwait(&set, NULL, &(struct timespec){.tv_sec = 120});
	for (int i = 0; i < n; i++)
		session_close(&s[i]);
	free(s);
	return open == n ? 0 : -1;
}

/* SPDX-License-Identifier: MIT */
/* The real agent, gone wrong on purpose, for tests of those who meet it. It is linked from the
 * agent's own objects; the linker puts the functions below between them (-Wl,--wrap=…), so that the
 * product has no hooks. The environment says what is wrong; without any of it this is an agent.
 *
 *     ROGUE_POISON=KIND[,N]      what it sends in exchanges, from its N-th transfer on: nan, inf,
 *                                huge (×10⁶), flip (−x), stale (the first it sent), random, zero
 *     ROGUE_DIE=STATE,ROLE,N[,late]
 *                                SIGKILL in its N-th exchange in that role (offer, take): on
 *                                entering the state, before it says a word of it; late: when the
 *                                next thing happens in it, so that its words are out
 *     ROGUE_MUTE=KIND            never says end, commit or ack
 *     ROGUE_MANIFEST=FIELD       says another run, model, init, count or total in its offers
 *     ROGUE_GIFT=KIND            what joiners get from it, as ROGUE_POISON
 *     ROGUE_DRIP=BYTES           a second, that its transfers send
 *     ROGUE_CUT=1                closes a kept bulk connection once it is used again
 *     ROGUE_DONOR=HEX            asks nobody for a state before it has asked that peer
 *     ROGUE_CLAIM=SAMPLES        says that it has trained so many
 *     ROGUE_SLOW=TIMES           so many times slower: it rests after each step
 *     ROGUE_LATER=1              speaks as a later version, which has more fields (later.c)
 *
 * Nothing here fails quietly: a word that is not known ends the program before it is an agent. */
#include "agent/base/rng.h"
#include "agent/train/trainer.h"
#include "gossip/exchange/exchange.h"
#include "gossip/membership/gossip.h"
#include "net/bulk/bulk.h"
#include "net/bulk/lattice.h"
#include "net/transport/transport.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum poison {
	HONEST,
	POISON_NAN,
	POISON_INF,
	POISON_HUGE,
	POISON_FLIP,
	POISON_STALE,
	POISON_RANDOM,
	POISON_ZERO
};
static const char *const poisons[] = {
        "", "nan", "inf", "huge", "flip", "stale", "random", "zero", NULL};
static const char *const states[] = {"idle", "offered", "preparing", "moving", "ending",
        "committed", "applying", "acking", "unsettled", NULL};
static const char *const words[] = {"end", "commit", "ack", NULL};
static const uint8_t word_kinds[] = {EXCHANGE_END, EXCHANGE_COMMIT, EXCHANGE_ACK};
static const char *const fields[] = {
        "run", "model", "init", "count", "total", "optimizer", "mode", "formats", NULL};
static const char *const roles[] = {"take", "offer", NULL};

static struct {
	enum poison poison, gift;
	long poison_from;
	int die_state, mute, field; /* −1: not */
	bool die_ours, die_late;
	long die_at, drip, cut;
	const char *donor;
	unsigned long long claim;
	long slow;
} rogue;

/* ---- what it is told */

static void refuse(const char *name, const char *value)
{
	fprintf(stderr, "rogue: %s=%s: not known\n", name, value);
	exit(2);
}

/* The place of text, up to a comma, in a list. */
static int place(const char *const *list, const char *name, const char *text)
{
	size_t n = strcspn(text, ",");
	for (int i = 0; list[i]; i++)
		if (strlen(list[i]) == n && memcmp(list[i], text, n) == 0)
			return i;
	refuse(name, text);
	return -1;
}

static int place_of(const char *const *list, const char *name)
{
	const char *text = getenv(name);
	return text ? place(list, name, text) : -1;
}

static const char *after_comma(const char *text)
{
	const char *comma = text ? strchr(text, ',') : NULL;
	return comma ? comma + 1 : NULL;
}

static long number(const char *name, long otherwise)
{
	const char *text = getenv(name);
	return text ? atol(text) : otherwise;
}

static void __attribute__((constructor)) read_environment(void)
{
	const char *poison = after_comma(getenv("ROGUE_POISON"));
	const char *die = getenv("ROGUE_DIE"), *role = after_comma(die);
	const char *at = after_comma(role), *late = after_comma(at);
	int kind = place_of(poisons, "ROGUE_POISON"), gift = place_of(poisons, "ROGUE_GIFT");
	rogue.poison = kind > 0 ? (enum poison)kind : HONEST;
	rogue.poison_from = poison ? atol(poison) : 1;
	rogue.gift = gift > 0 ? (enum poison)gift : HONEST;
	rogue.die_state = place_of(states, "ROGUE_DIE");
	if (die) {
		rogue.die_ours = role && place(roles, "ROGUE_DIE", role) == 1;
		rogue.die_at = at ? atol(at) : 0;
		rogue.die_late = late && strcmp(late, "late") == 0;
		if (rogue.die_at <= 0 || (late && !rogue.die_late))
			refuse("ROGUE_DIE", die);
	}
	rogue.mute = place_of(words, "ROGUE_MUTE");
	rogue.field = place_of(fields, "ROGUE_MANIFEST");
	rogue.drip = number("ROGUE_DRIP", 0);
	rogue.cut = number("ROGUE_CUT", 0);
	rogue.donor = getenv("ROGUE_DONOR");
	rogue.claim = (unsigned long long)number("ROGUE_CLAIM", 0);
	rogue.slow = number("ROGUE_SLOW", 1);
}

/* ---- poison and drip */

static float poisoned(enum poison kind, float x, struct rng *r, size_t i)
{
	switch (kind) {
	case POISON_NAN:
		return i % 97 == 96 ? NAN : x; /* here and there is enough, and harder to see */
	case POISON_INF:
		return i % 97 == 96 ? INFINITY : x;
	case POISON_HUGE:
		return x * 1e6f;
	case POISON_FLIP:
		return -x;
	case POISON_RANDOM:
		return (float)(2 * rng_f64(r) - 1);
	case POISON_ZERO:
		return 0;
	default:
		return x;
	}
}

/* The transfer borrows it, so it is kept for many transfers. */
static const void *keep(uint8_t *bad)
{
	static uint8_t *kept[64];
	static size_t n_kept;
	free(kept[n_kept % 64]);
	kept[n_kept++ % 64] = bad;
	return bad;
}

/* Its parameters, as it last sent them in numbers: what a lattice's records tell is modulo that. */
static struct {
	float *x;
	size_t n;
} own;

static float *numbers(size_t n)
{
	float *x = malloc(n * sizeof *x);
	if (!x)
		exit(1);
	return x;
}

static void remember(const struct bulk_config *c)
{
	struct convert_sums sums = {0};
	if (own.n != c->send_count) {
		free(own.x);
		own.x = numbers(c->send_count);
		own.n = c->send_count;
	}
	convert_best()->take(c->format, own.x, c->send, NULL, c->send_count, TAKE_WORDS, &sums);
}

static void spoil_numbers(enum poison kind, float *x, size_t n)
{
	static float *first;
	static size_t n_first;
	struct rng r;
	if (kind == POISON_STALE && (!first || n_first != n)) {
		first = numbers(n);
		memcpy(first, x, n * sizeof *first);
		n_first = n;
	}
	rng_seed(&r, 1, n);
	for (size_t i = 0; i < n; i++)
		x[i] = kind == POISON_STALE ? first[i] : poisoned(kind, x[i], &r, i);
}

/* Noise is any bytes, sums too. Else they are packed as they should be, of wrong parameters, which
 * do not move any more. */
static void spoil_records(enum poison kind, const struct bulk_config *c, uint8_t *bad, float *x)
{
	const struct lattice l = {.bits = convert_rows[c->format].bits,
	        .count = c->send_count,
	        .shift = scales_shift(c->send_count),
	        .scale = c->scales};
	struct rng r;
	if (kind != POISON_RANDOM && own.n == c->send_count) {
		memcpy(x, own.x, own.n * sizeof *x);
		spoil_numbers(kind, x, own.n);
		(void)!lattice_pack(&l, bad, x, 0, own.n, NULL);
		return;
	}
	rng_seed(&r, 1, c->send_count);
	for (size_t i = 0; i < convert_bytes(c->format, c->send_count); i++)
		bad[i] = (uint8_t)rng_u64(&r);
}

static const void *spoil(enum poison kind, const struct bulk_config *c)
{
	const size_t n = c->send_count;
	struct convert_sums sums = {0};
	if (kind == HONEST || n == 0)
		return c->send;
	float *x = numbers(n);
	uint8_t *bad = malloc(convert_bytes(c->format, n));
	if (!bad)
		exit(1);
	if (c->format >= CONVERT_WORDS)
		spoil_records(kind, c, bad, x);
	else {
		convert_best()->take(c->format, x, c->send, NULL, n, TAKE_WORDS, &sums);
		spoil_numbers(kind, x, n);
		convert_best()->pack(c->format, bad, x, n);
	}
	free(x);
	return keep(bad);
}

int __real_bulk_start(struct bulk **out, const struct bulk_config *c, struct err *e);
int __wrap_bulk_start(struct bulk **out, const struct bulk_config *c, struct err *e);
int __wrap_bulk_start(struct bulk **out, const struct bulk_config *c, struct err *e)
{
	static long transfers;
	struct bulk_config mine = *c;
	bool gift = c->send_count > 0 && !c->staging;
	if (!gift && c->send_count > 0 && c->format < CONVERT_WORDS)
		remember(c);
	if (gift)
		mine.send = spoil(rogue.gift, c);
	else if (++transfers >= rogue.poison_from)
		mine.send = spoil(rogue.poison, c);
	return __real_bulk_start(out, &mine, e);
}

ssize_t __real_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags)
{
	size_t most = (size_t)rogue.drip / 20 + 1;
	if (rogue.drip > 0) {
		nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
		len = len < most ? len : most;
	}
	return __real_send(fd, bytes, len, flags);
}

/* ---- kept connections */

/* What lies in it unread makes the end a reset. */
static void *cut(void *arg)
{
	struct pollfd in = {.fd = (int)(intptr_t)arg, .events = POLLIN};
	while (poll(&in, 1, -1) <= 0)
		;
	close(in.fd);
	return NULL;
}

void __real_transport_bulk_keep(struct transport *t, const struct peer_id *id, int fd);
void __wrap_transport_bulk_keep(struct transport *t, const struct peer_id *id, int fd);
void __wrap_transport_bulk_keep(struct transport *t, const struct peer_id *id, int fd)
{
	pthread_t thread;
	if (rogue.cut && pthread_create(&thread, NULL, cut, (void *)(intptr_t)fd) == 0)
		pthread_detach(thread);
	else
		__real_transport_bulk_keep(t, id, fd);
}

/* ---- death in an exchange */

void __real_exchange_step(
        struct exchange *x, const struct exchange_event *e, struct exchange_actions *a);
void __wrap_exchange_step(
        struct exchange *x, const struct exchange_event *e, struct exchange_actions *a);
void __wrap_exchange_step(
        struct exchange *x, const struct exchange_event *e, struct exchange_actions *a)
{
	static bool ours;
	static long number_of[2]; /* in each role, that went beyond the offer */
	int before = (int)exchange_state(x);
	bool due =
	        rogue.die_state >= 0 && ours == rogue.die_ours && number_of[ours] >= rogue.die_at;
	if (due && rogue.die_late && before == rogue.die_state)
		raise(SIGKILL);
	__real_exchange_step(x, e, a);
	int now = (int)exchange_state(x);
	if (before == EXCHANGE_IDLE && now == EXCHANGE_OFFERED)
		number_of[ours = true]++;
	if (now == EXCHANGE_PREPARING && before != now && !(before == EXCHANGE_OFFERED && a->open))
		number_of[ours = false]++;
	due = rogue.die_state >= 0 && ours == rogue.die_ours && number_of[ours] >= rogue.die_at;
	if (due && !rogue.die_late && now == rogue.die_state && before != now)
		raise(SIGKILL);
}

/* ---- words */

static void lie(struct manifest *m)
{
	uint64_t *const of[] = {&m->run, &m->model, &m->init, &m->count, &m->total, &m->optimizer,
	        &m->mode, &m->formats};
	if (rogue.field >= 0) /* of the formats, one that nobody knows */
		*of[rogue.field] = *of[rogue.field] == m->formats ? 1u << 20 : *of[rogue.field] + 1;
}

static bool is_donor(const struct peer_id *id)
{
	char hex[65];
	sodium_bin2hex(hex, sizeof hex, id->bytes, sizeof id->bytes);
	return strncmp(hex, rogue.donor, strlen(rogue.donor)) == 0;
}

bool __real_transport_post(struct transport *t, const struct peer_id *to,
        const struct peer_addrs *addrs, const struct exchange_message *m);
bool __wrap_transport_post(struct transport *t, const struct peer_id *to,
        const struct peer_addrs *addrs, const struct exchange_message *m);
bool __wrap_transport_post(struct transport *t, const struct peer_id *to,
        const struct peer_addrs *addrs, const struct exchange_message *m)
{
	struct exchange_message mine = *m;
	if (rogue.mute >= 0 && m->kind == word_kinds[rogue.mute])
		return true;
	if (m->kind == EXCHANGE_FETCH && rogue.donor) {
		if (!is_donor(to))
			return false;
		rogue.donor = NULL;
	}
	if (m->kind == EXCHANGE_OFFER || m->kind == EXCHANGE_ACCEPT)
		lie(&mine.terms.manifest);
	else if (m->kind == EXCHANGE_GIFT)
		lie(&mine.gift.manifest);
	return __real_transport_post(t, to, addrs, &mine);
}

void __real_gossip_step(struct gossip *g, const struct gossip_event *e, struct gossip_actions *a);
void __wrap_gossip_step(struct gossip *g, const struct gossip_event *e, struct gossip_actions *a);
void __wrap_gossip_step(struct gossip *g, const struct gossip_event *e, struct gossip_actions *a)
{
	struct gossip_event mine = *e;
	if (e->kind == EVENT_STATUS && rogue.claim > 0)
		mine.status.samples = rogue.claim;
	__real_gossip_step(g, &mine, a);
}

/* ---- slowness */

int __real_trainer_step(struct trainer *t, struct step_result *r, struct err *e);
int __wrap_trainer_step(struct trainer *t, struct step_result *r, struct err *e);
int __wrap_trainer_step(struct trainer *t, struct step_result *r, struct err *e)
{
	struct timespec begin, end;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	int rc = __real_trainer_step(t, r, e);
	clock_gettime(CLOCK_MONOTONIC, &end);
	long took = (end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec;
	long rest = took * (rogue.slow - 1);
	if (rest > 0)
		nanosleep(&(struct timespec){rest / 1000000000, rest % 1000000000}, NULL);
	return rc;
}

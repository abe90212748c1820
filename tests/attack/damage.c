/* SPDX-License-Identifier: MIT */
/* One bit flipped, or everything cut off, at each byte of a session in turn.
 *
 *     sent      first message │ third message │ ping 1 │ ping 2 │ end
 *     received        second message │ whatever the agent says, pongs among it
 *
 * An undamaged session comes first and says where these borders are. What a damage may at most
 * achieve follows from where it is: nothing at all is answered to a damaged first message, no frame
 * to a damaged third, no pong to a damaged ping or to what comes after it. In the other direction
 * the damage must be noticed here, by the same code that agents dial with.
 *
 * Positions are taken by a few threads, each with an identity of its own. Each comes from an
 * address of its own, so that no budget is at an end where we think that the damage was seen. */
#include "tests/attack/attack.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define PATIENCE_MS 60000

enum stage { FIRST, THIRD, PING_1, PING_2, END, STAGES };

struct outcome {
	size_t border[STAGES]; /* where what is sent in each stage ends */
	size_t second;         /* where the second message ends */
	size_t received;
	int frames, pongs;
	bool closed; /* by the agent */
	int code;    /* 0: everything went as if nothing were damaged */
};

static int ping(struct session *s, uint64_t nonce)
{
	struct wire_message m = {.kind = WIRE_PING};
	m.nonce = 0x1000000000000000u + nonce; /* always 9 bytes on the wire */
	return session_send(s, &m);
}

static struct outcome play(const struct attacker *a, unsigned from, struct damage d)
{
	struct outcome o = {0};
	struct session s;
	struct wire_message m;
	o.code = session_dial(&s, a, from, d);
	if (o.code != 0) {
		session_close(&s);
		return o;
	}
	o.code = session_shake(&s, a);
	o.border[FIRST] = s.first_len;
	o.border[THIRD] = s.sent;
	o.second = s.received;
	for (int i = 0; i < 2; i++) {
		if (o.code == 0)
			o.code = ping(&s, (uint64_t)i);
		o.border[PING_1 + i] = s.sent;
	}
	while (o.pongs < 2 && o.code == 0) {
		o.code = session_read(&s, &m);
		o.frames += o.code == 0;
		o.pongs += o.code == 0 && m.kind == WIRE_PONG;
	}
	if (o.code == 0)
		o.code = session_send_bytes(&s, FRAME_END, NULL, 0);
	o.border[END] = s.sent;
	if (o.code != 0)
		session_shut(&s); /* we have seen enough: the agent may go */
	o.closed = session_drain(&s) == 0;
	o.received = s.received;
	session_close(&s);
	return o;
}

int attack_honest(struct attack *k)
{
	struct outcome o = play(&k->attacker[0], 0, NO_DAMAGE);
	printf("# an undamaged session: code %d, %d pongs, borders %zu %zu %zu %zu %zu, second "
	       "%zu\n",
	        o.code, o.pongs, o.border[0], o.border[1], o.border[2], o.border[3], o.border[4],
	        o.second);
	return o.code != 0 || o.pongs != 2 || !o.closed;
}

/* What is wrong with the outcome of damage in what we sent, NULL if nothing is. */
static const char *judge_sent(const struct outcome *o, enum stage at)
{
	if (!o->closed)
		return "the connection was not closed";
	if (at == FIRST && o->received > 0)
		return "a damaged first message was answered";
	if (at > FIRST && o->received == 0)
		return "it was refused before the damage";
	if (at == THIRD && o->frames > 0)
		return "a damaged third message was answered";
	if (at == PING_1 && o->pongs > 0)
		return "a damaged ping was answered";
	if (at == PING_2 && o->pongs > 1)
		return "what followed a damaged frame was answered";
	return NULL;
}

static const char *judge_received(const struct outcome *o)
{
	if (!o->closed)
		return "the connection was not closed";
	if (o->received == 0)
		return "it was refused before the damage";
	return o->code == 0 ? "the damage was not seen" : NULL;
}

enum kind { FLIP_SENT, FLIP_RECEIVED, CUT };

struct work {
	struct attack *k;
	enum kind kind;
	struct outcome honest;
	size_t positions;
	atomic_size_t next;
	atomic_int workers, bad, retries;
};

static void try_position(struct work *w, const struct attacker *a, size_t at)
{
	struct damage d = NO_DAMAGE;
	*(w->kind == FLIP_SENT   ? &d.flip_sent
	        : w->kind == CUT ? &d.cut
	                         : &d.flip_received) = (long)at;
	enum stage stage = FIRST;
	while (stage < END && at >= w->honest.border[stage])
		stage++;
	long long end = now_ms() + PATIENCE_MS;
	struct outcome o = play(a, 1 + (unsigned)at, d);
	while (o.received == 0 && (w->kind == FLIP_RECEIVED || stage > FIRST) && now_ms() < end) {
		atomic_fetch_add(&w->retries, 1);
		poll(NULL, 0, 100);
		o = play(a, 1 + (unsigned)at, d);
	}
	const char *wrong = w->kind == FLIP_RECEIVED ? judge_received(&o) : judge_sent(&o, stage);
	if (wrong) {
		printf("byte %zu, stage %d: %s (code %d, %zu bytes and %d pongs received)\n", at,
		        (int)stage, wrong, o.code, o.received, o.pongs);
		atomic_fetch_add(&w->bad, 1);
	}
}

static void *worker(void *arg)
{
	struct work *w = arg;
	const struct attacker *a = &w->k->attacker[atomic_fetch_add(&w->workers, 1)];
	size_t at;
	while ((at = atomic_fetch_add(&w->next, 1)) < w->positions)
		try_position(w, a, at);
	return NULL;
}

static int everywhere(struct attack *k, enum kind kind)
{
	struct work w = {.k = k, .kind = kind};
	pthread_t thread[ATTACKERS];
	int n = 0;
	long long end = now_ms() + PATIENCE_MS;
	do {
		w.honest = play(&k->attacker[0], 0, NO_DAMAGE);
	} while (w.honest.received == 0 && now_ms() < end && poll(NULL, 0, 100) == 0);
	if (w.honest.code != 0) {
		printf("an undamaged session fails: %s\n", err_text(w.honest.code));
		return -1;
	}
	/* The second message and the shortest frame: a pong's. */
	size_t pong = w.honest.border[PING_2] - w.honest.border[PING_1];
	w.positions = kind == FLIP_RECEIVED ? w.honest.second + pong : w.honest.border[END];
	while (n < ATTACKERS && pthread_create(&thread[n], NULL, worker, &w) == 0)
		n++;
	for (int i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	printf("# %zu positions, %d of them did harm; %d tried again\n", w.positions, w.bad,
	        w.retries);
	return n == 0 || w.bad > 0;
}

int attack_flip_sent(struct attack *k)
{
	return everywhere(k, FLIP_SENT);
}

int attack_flip_received(struct attack *k)
{
	return everywhere(k, FLIP_RECEIVED);
}

int attack_cut(struct attack *k)
{
	return everywhere(k, CUT);
}

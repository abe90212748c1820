/* SPDX-License-Identifier: MIT */
/* Members that take an agent's time and give nothing: offers that are never carried out, offers of
 * another run, donor slots that are held. Each goes on for SECONDS and reaches all agents named by
 * PORT, so that its cost to a flock can be measured (tests/bench/bench-attack). */
#include "tests/attack/member.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OFFER_MS 20    /* between two offers: the least of the usual peer_rate */
#define FETCH_MS 100   /* after a refusal, until a state is asked for again */
#define SIP_RATE 72000 /* bytes a second of a state: a little over the least that agents accept */
#define SIP_BYTES 4096
#define SIP_MS 20
#define ANSWER_MS 1000 /* for the manifest */

/* An offer with the agent's own terms. */
static struct exchange_message offer(struct member *m)
{
	struct exchange_message x = {.kind = EXCHANGE_OFFER, .exchange = ++m->number};
	member_terms(m, &x.terms);
	return x;
}

/* Asks for the run's manifest, as anybody may: an offer that does not fit is answered with it. */
static int learn_manifest(struct member *m)
{
	struct wire_message w;
	if (m->manifest.run != 0)
		return 0;
	struct exchange_message x = offer(m);
	x.terms.manifest.formats = 1;
	int rc = member_post(m, &x);
	while (rc == 0 && m->manifest.run == 0) {
		int got = member_serve(m, ANSWER_MS, &w);
		if (got <= 0)
			rc = got < 0 ? got : ERR_BUSY;
	}
	return rc;
}

static int report(long done, const char *what)
{
	printf("# %ld %s\n", done, what);
	return done < 0 ? -1 : 0;
}

/* Whether its session stands and it knows the run; else the caller tries again. */
static bool ready(struct member *m, const struct siege *s)
{
	return (m->open || member_open(m, s) == 0) && learn_manifest(m) == 0;
}

/* ---- offers, and what is offered to it, accepted and never carried out */

static void accept_and_stall(struct member *m, const struct exchange_message *theirs)
{
	struct exchange_message x = {.kind = EXCHANGE_ACCEPT, .exchange = theirs->exchange};
	member_terms(m, &x.terms);
	x.terms.mode = theirs->terms.mode;
	x.terms.format = theirs->terms.format;
	x.terms.final = theirs->terms.final;
	x.terms.beta = theirs->terms.beta;
	(void)member_post(m, &x);
}

static void stall(struct siege *s)
{
	struct member m = {.takes_offers = true};
	struct wire_message w;
	while (now_ms() < s->end_ms) {
		if (!ready(&m, s))
			continue;
		struct exchange_message x = offer(&m);
		if (member_post(&m, &x) != 0)
			continue;
		while (member_serve(&m, OFFER_MS, &w) == 1) {
			s->done += w.exchange.kind == EXCHANGE_ACCEPT;
			if (w.exchange.kind == EXCHANGE_OFFER)
				accept_and_stall(&m, &w.exchange);
		}
	}
	member_close(&m);
}

/* stall SECONDS PORT… */
int attack_stall(struct attack *k)
{
	return report(besiege(k, 1, stall), "offers accepted and never carried out");
}

/* ---- offers of another run */

static void other_run(struct siege *s)
{
	struct member m = {0};
	struct wire_message w;
	while (now_ms() < s->end_ms) {
		if (!ready(&m, s))
			continue;
		struct exchange_message x = offer(&m);
		x.terms.manifest.run++;
		if (member_post(&m, &x) == 0)
			s->done++;
		/* What has come is read, so that the answers do not end the session. */
		while (member_serve(&m, 0, &w) == 1)
			;
	}
	member_close(&m);
}

/* other-run SECONDS PORT… */
int attack_other_run(struct attack *k)
{
	return report(besiege(k, 1, other_run), "offers of another run");
}

/* ---- donor slots */

/* Takes what is due by now of a state that it has been reading since then; false: it has ended. */
static bool sip(int fd, long long since_ms, long *taken)
{
	uint8_t bytes[SIP_BYTES];
	while (*taken < SIP_RATE * (now_ms() - since_ms) / 1000) {
		ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			return false;
		if (n < 0)
			break;
		*taken += n;
	}
	return true;
}

/* From the promise to the end of the transfer, whoever ends it. */
static void read_slowly(struct member *m, struct siege *s)
{
	const struct attacker a = {.target = s->target};
	struct wire_message w;
	long long since_ms = now_ms();
	long taken = 0;
	int small = SIP_BYTES, fd = session_bulk(&m->session, &a, 600 + s->thread, m->number);
	if (fd < 0)
		return;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
	while (now_ms() < s->end_ms && sip(fd, since_ms, &taken) &&
	        member_serve(m, SIP_MS, &w) >= 0)
		;
	close(fd);
}

static void fetch(struct siege *s)
{
	struct member m = {0};
	struct wire_message w;
	while (now_ms() < s->end_ms) {
		struct exchange_message x = {.kind = EXCHANGE_FETCH};
		bool promised = false;
		if (!ready(&m, s))
			continue;
		x.exchange = ++m.number;
		x.fetch.manifest = m.manifest;
		int got = member_post(&m, &x) == 0 ? member_serve(&m, ANSWER_MS, &w) : -1;
		while (got == 1 && !promised) {
			promised = w.exchange.kind == EXCHANGE_GIFT;
			if (w.exchange.kind == EXCHANGE_BUSY)
				break;
			got = promised ? 1 : member_serve(&m, ANSWER_MS, &w);
		}
		s->done += promised;
		if (promised)
			read_slowly(&m, s);
		else
			(void)member_serve(&m, FETCH_MS, &w);
	}
	member_close(&m);
}

/* fetch SECONDS PORT…: four ids ask every agent for its state, and take it as slowly as they may,
 * again and again. */
int attack_fetch(struct attack *k)
{
	return report(besiege(k, 4, fetch), "states promised and taken slowly");
}

/* SPDX-License-Identifier: MIT */
/* Members that take an agent's time and give nothing: offers that are never carried out, offers of
 * another run, donor slots that are held. Each goes on for SECONDS and reaches all agents named by
 * PORT, so that its cost to a flock can be measured (tests/bench/bench-attack). */
#include "tests/attack/member.h"

#include <stdio.h>
#include <string.h>

#define OFFER_MS 20    /* between two offers: the usual peer_rate */
#define FETCH_MS 4000  /* between two requests for a state: before the slot would be taken back */
#define ANSWER_MS 1000 /* for the manifest */

/* Asks for the run's manifest, as anybody may: an offer that does not fit is answered with it. */
static int learn_manifest(struct member *m)
{
	struct exchange_message x = {.kind = EXCHANGE_OFFER, .exchange = ++m->number};
	struct wire_message w;
	if (m->manifest.run != 0)
		return 0;
	member_terms(m, &x.terms);
	x.terms.manifest.formats = 1;
	int rc = member_post(m, &x);
	while (rc == 0 && m->manifest.run == 0) {
		int got = member_serve(m, ANSWER_MS, &w);
		if (got <= 0)
			rc = got < 0 ? got : ERR_BUSY;
	}
	return rc;
}

/* ---- offers, and what is offered to it, accepted and never carried out */

static void accept_and_stall(struct member *m, const struct exchange_message *offer)
{
	struct exchange_message x = {.kind = EXCHANGE_ACCEPT, .exchange = offer->exchange};
	member_terms(m, &x.terms);
	x.terms.mode = offer->terms.mode;
	x.terms.format = offer->terms.format;
	x.terms.final = offer->terms.final;
	x.terms.beta = offer->terms.beta;
	(void)member_post(m, &x);
}

static void stall(struct siege *s)
{
	struct member m = {.takes_offers = true};
	struct wire_message w;
	while (now_ms() < s->end_ms) {
		struct exchange_message x = {.kind = EXCHANGE_OFFER};
		if (!m.open && member_open(&m, s) != 0)
			continue;
		if (learn_manifest(&m) != 0)
			continue;
		x.exchange = ++m.number;
		member_terms(&m, &x.terms);
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
	long done = besiege(k, 1, stall);
	printf("# %ld offers accepted and never carried out\n", done);
	return done < 0 ? -1 : 0;
}

/* ---- offers of another run */

static void other_run(struct siege *s)
{
	struct member m = {0};
	struct wire_message w;
	while (now_ms() < s->end_ms) {
		struct exchange_message x = {.kind = EXCHANGE_OFFER};
		if (!m.open && member_open(&m, s) != 0)
			continue;
		if (learn_manifest(&m) != 0)
			continue;
		x.exchange = ++m.number;
		member_terms(&m, &x.terms);
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
	long done = besiege(k, 1, other_run);
	printf("# %ld offers of another run\n", done);
	return done < 0 ? -1 : 0;
}

/* ---- donor slots */

static void fetch(struct siege *s)
{
	struct member m = {0};
	struct wire_message w;
	while (now_ms() < s->end_ms) {
		struct exchange_message x = {.kind = EXCHANGE_FETCH};
		if (!m.open && member_open(&m, s) != 0)
			continue;
		if (learn_manifest(&m) != 0)
			continue;
		x.exchange = ++m.number;
		x.fetch.manifest = m.manifest;
		int rc = member_post(&m, &x);
		long long again = now_ms() + FETCH_MS;
		while (rc == 0 && now_ms() < again && now_ms() < s->end_ms) {
			int got = member_serve(&m, 100, &w);
			rc = got < 0 ? got : 0;
			s->done += got == 1 && w.exchange.kind == EXCHANGE_GIFT;
		}
	}
	member_close(&m);
}

/* fetch SECONDS PORT…: four ids ask every agent for its state and never take it. */
int attack_fetch(struct attack *k)
{
	long done = besiege(k, 4, fetch);
	printf("# %ld states promised and not taken\n", done);
	return done < 0 ? -1 : 0;
}

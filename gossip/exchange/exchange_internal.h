/* SPDX-License-Identifier: MIT */
/* Inside the exchange: exchange.c goes up to COMMIT, settle.c from there on and keeps the memory of
 * what is over, aside.c has what was put aside unsettled, manifest.c has the words. Nobody else
 * includes this. */
#ifndef DUNLIN_GOSSIP_EXCHANGE_EXCHANGE_INTERNAL_H
#define DUNLIN_GOSSIP_EXCHANGE_EXCHANGE_INTERNAL_H

#include "gossip/exchange/exchange.h"

#define EXCHANGE__ASK_MS 1000 /* SETTLE is said again so often */

/* Of a finished exchange: what a late question is answered with. */
struct exchange__memory {
	struct peer_id peer;
	uint64_t exchange; /* 0: a free slot */
	bool moved;
};

/* An unsettled exchange that makes no claim on snapshot and staging any more: what has moved has
 * moved, and what has not never will. */
struct exchange__aside {
	bool used;
	bool over;                     /* result is whole, and to be told */
	struct exchange_result result; /* until then all but outcome, why and words */
	uint64_t until_ms, ask_ms;     /* when it is given up; when to ask the peer again */
};

struct exchange {
	struct exchange_config config;
	struct rng rng;
	bool stopped;
	uint8_t state;
	uint64_t now; /* of this step */
	struct exchange_actions *out;

	/* The current one; all zero while idle. */
	struct exchange__current {
		struct peer_id peer;
		uint64_t exchange;
		bool ours; /* we offered */
		uint8_t mode, format;
		bool final;
		float beta;
		uint64_t step, entry, began_ms, deadline_ms;
		uint16_t n_scales;         /* ours, and the peer's once it has told them; 0: none */
		int8_t scales[SCALES_MAX]; /* the peer's */
		bool snapshot, bulk;       /* are there */
		bool opened;               /* we were told to open the bulk connection */
		bool asked;                /* the peer was, since we cannot dial */
		bool again;                /* a kept connection was broken: a fresh one is due */
		bool has_end, has_ack;     /* the peer's; an ACK: it has applied */
		bool lost;    /* while applying: the peer will never say that it has applied */
		bool applied; /* our parameters have moved */
		float factor[EXCHANGE_GROUPS_MAX], theirs[EXCHANGE_GROUPS_MAX];
		float smallest;            /* that was applied */
		struct exchange_word word; /* the peer's; far: of whoever offered */
		uint64_t bytes_sent, bytes_received;
		double distance;
		uint64_t timer_ms; /* what the state waits for is over then */
		uint64_t ask_ms;   /* UNSETTLED: when to say it again */
		/* Before COMMIT: when the deadline is over. */
		uint64_t until_ms; /* from COMMIT on: when it is given up, here or put aside */
	} cur;

	struct exchange__aside aside[EXCHANGE_ASIDE_MAX];
	struct exchange__memory memory[EXCHANGE_REMEMBERED];
	uint32_t n_memories; /* ever */
};

/* Room for one more message to that peer, its kind and number set. */
struct exchange_message *exchange__send(struct exchange *x, const struct peer_id *to,
        enum exchange_message_kind k, uint64_t exchange);
void exchange__abort_to(struct exchange *x, const struct peer_id *to, uint64_t exchange,
        enum exchange_why why, const char *words);

/* What is told of the current one; outcome, why and words are to be added. */
struct exchange_result exchange__describe(const struct exchange *x);
/* The current one is over: result, memory, idle. */
void exchange__finish(struct exchange *x, enum exchange_outcome o, enum exchange_why why,
        const char *words, int code);

/* now + ms, without going round. */
uint64_t exchange__after(uint64_t now, uint64_t ms);

/* ---- settle.c */

void exchange__commit(struct exchange *x); /* staging is whole, both ENDs are there */
void exchange__apply(struct exchange *x);  /* k is set; only from here are parameters moved */
void exchange__applied(struct exchange *x);
/* One about the current exchange, after our COMMIT or while we apply. */
void exchange__settle_message(struct exchange *x, const struct exchange_message *m);
void exchange__settle_up(struct exchange *x);
void exchange__settle_down(struct exchange *x);
void exchange__settle_gone(struct exchange *x);
void exchange__settle_timer(struct exchange *x);
/* One about an exchange that is not the current one. */
void exchange__late_message(
        struct exchange *x, const struct peer_id *from, const struct exchange_message *m);
void exchange__remember(
        struct exchange *x, const struct peer_id *peer, uint64_t exchange, bool moved);
const struct exchange__memory *exchange__recall(
        const struct exchange *x, const struct peer_id *peer, uint64_t exchange);

void exchange__say_settle(struct exchange *x, const struct peer_id *to, uint64_t exchange,
        enum exchange_settlement s);

/* ---- aside.c */

void exchange__put_aside(struct exchange *x); /* the current one; idle then */
struct exchange__aside *exchange__find_aside(
        struct exchange *x, const struct peer_id *peer, uint64_t exchange);
void exchange__aside_message(
        struct exchange *x, struct exchange__aside *p, const struct exchange_message *m);
void exchange__aside_link(struct exchange *x, const struct exchange_event *e); /* UP, GONE */
/* At the end of a step: asks and tells what is due, as far as there is room. Returns when there is
 * more to do. */
uint64_t exchange__aside_time(struct exchange *x);

/* ---- manifest.c */

/* In what they differ. */
void exchange__unlike(const struct manifest *theirs, const struct manifest *ours,
        char words[EXCHANGE_WORDS_MAX + 1]);
/* Copies text (NULL: none), cut to what there is room for. */
void exchange__words(char words[EXCHANGE_WORDS_MAX + 1], const char *from);

#endif

/* SPDX-License-Identifier: MIT */
/* Sessions that stand for as long as an attack lasts. An agent ends those that are silent, and
 * membership those that do not answer, so probes are answered; everything else an agent says is
 * kept in as far as a liar can use it: records, a sketch, the run's manifest and clock. */
#include "tests/attack/member.h"

#include "net/transport/transport.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define AGAIN_MS 250 /* after a session that did not come about */
#define TELL_MS 1000
#define SIEGES_MAX 64

/* ---- threads */

struct thread {
	pthread_t id;
	struct siege siege;
	void (*run)(struct siege *s);
};

static void *run_thread(void *arg)
{
	struct thread *t = arg;
	t->run(&t->siege);
	return NULL;
}

static long sum(struct thread *all, int n)
{
	long done = 0;
	for (int i = 0; i < n; i++)
		done += all[i].siege.done;
	return done;
}

long besiege(struct attack *k, int each, void (*run)(struct siege *s))
{
	struct thread *all = calloc(SIEGES_MAX, sizeof *all);
	int victims = k->argc > 0 ? k->argc - 1 : 0, n = 0;
	long done = 0;
	if (!all || victims < 1 || victims * each > SIEGES_MAX || each > ATTACKERS) {
		free(all);
		return -1;
	}
	for (int i = 0; i < victims * each; i++) {
		struct siege *s = &all[i].siege;
		s->attack = k;
		s->attacker = &k->attacker[i % each];
		s->target = k->attacker[0].target;
		s->target.sin_port = htons((uint16_t)atoi(k->argv[1 + i / each]));
		s->thread = (unsigned)i;
		s->end_ms = now_ms() + (long long)(1000 * atof(k->argv[0]));
		all[i].run = run;
		if (pthread_create(&all[i].id, NULL, run_thread, &all[i]) != 0)
			break;
		n++;
	}
	while (n == victims * each && now_ms() < all[0].siege.end_ms) {
		poll(NULL, 0, TELL_MS);
		printf("# so far %ld\n", sum(all, n));
		fflush(stdout);
	}
	for (int i = 0; i < n; i++)
		pthread_join(all[i].id, NULL);
	done = sum(all, n);
	free(all);
	return n == victims * each ? done : -1;
}

/* ---- a session */

void member_close(struct member *m)
{
	if (m->open)
		session_close(&m->session);
	m->open = false;
}

static int send_or_close(struct member *m, const struct wire_message *w)
{
	int rc = m->open ? session_send(&m->session, w) : ERR_IO;
	if (rc != 0)
		member_close(m);
	return rc;
}

int member_say(struct member *m, const struct gossip_update *u)
{
	struct wire_message w = {.kind = MESSAGE_GOSSIP};
	w.gossip.kind = MESSAGE_GOSSIP;
	w.gossip.n_updates = 1;
	w.gossip.update[0] = *u;
	return send_or_close(m, &w);
}

int member_post(struct member *m, const struct exchange_message *x)
{
	struct wire_message w = {.kind = WIRE_EXCHANGE};
	w.exchange = *x;
	return send_or_close(m, &w);
}

static void sign_self(const struct member *m, struct gossip_update *u)
{
	memset(u, 0, sizeof *u);
	u->kind = UPDATE_RECORD;
	u->record = m->self;
	wire_sign_update(&m->attacker->identity, u);
}

int member_open(struct member *m, const struct siege *s)
{
	struct wire_message w = {.kind = MESSAGE_SYNC};
	struct attacker a = *s->attacker;
	a.target = s->target;
	m->attacker = s->attacker;
	m->self.id = a.identity.id;
	m->self.generation = m->self.nonce = a.identity.generation;
	m->self.protocol_min = m->self.protocol_max = PROTOCOL_MAX;
	if (m->self.incarnation == 0)
		m->self.incarnation = 1;
	m->number = (uint64_t)now_ms() << 16 | (uint64_t)s->thread << 8;
	int rc = session_dial(&m->session, &a, m->from ? m->from : 600 + s->thread, NO_DAMAGE);
	if (rc == 0)
		rc = session_shake(&m->session, &a);
	m->open = true;
	if (rc != 0) {
		member_close(m);
		poll(NULL, 0, AGAIN_MS);
		return rc;
	}
	w.gossip.kind = MESSAGE_SYNC;
	w.gossip.want_reply = true;
	w.gossip.n_updates = 1;
	sign_self(m, &w.gossip.update[0]);
	return send_or_close(m, &w);
}

/* ---- what it hears */

const struct member_record *member_find(const struct member *m, const struct peer_id *id)
{
	for (int i = 0; i < m->n_known; i++)
		if (memcmp(&m->known[i].id, id, sizeof *id) == 0)
			return &m->known[i];
	return NULL;
}

static bool newer(const struct member_record *a, const struct member_record *b)
{
	if (a->generation != b->generation)
		return a->generation > b->generation;
	if (a->incarnation != b->incarnation)
		return a->incarnation > b->incarnation;
	return a->version >= b->version;
}

/* Who trains what the others train is one of them. */
static void hear_record(struct member *m, const struct member_record *r)
{
	struct gossip_update u;
	struct member_record *known = (struct member_record *)member_find(m, &r->id);
	if (memcmp(&r->id, &m->self.id, sizeof r->id) == 0)
		return;
	if (!known && m->n_known < MEMBER_KNOWN) {
		known = &m->known[m->n_known++];
		*known = *r;
	}
	if (known && newer(r, known))
		*known = *r;
	if (m->self.status.model == 0 && r->status.model != 0) {
		m->self.status.model = r->status.model;
		m->self.version++;
		sign_self(m, &u);
		(void)member_say(m, &u);
	}
}

static void hear_updates(struct member *m, const struct gossip_message *g)
{
	for (int i = 0; i < g->n_updates; i++) {
		const struct gossip_update *u = &g->update[i];
		if (u->kind == UPDATE_RECORD) {
			hear_record(m, &u->record);
		} else if (memcmp(&u->accusation.about, &m->self.id, sizeof m->self.id) == 0 &&
		           u->accusation.incarnation >= m->self.incarnation) {
			struct gossip_update self;
			m->self.incarnation = u->accusation.incarnation + 1;
			sign_self(m, &self);
			(void)member_say(m, &self);
		}
	}
	if (g->kind == MESSAGE_PING) {
		struct wire_message w = {.kind = MESSAGE_ACK};
		w.gossip.kind = MESSAGE_ACK;
		w.gossip.nonce = g->nonce;
		(void)send_or_close(m, &w);
	}
}

static void hear_exchange(struct member *m, const struct exchange_message *x)
{
	if (x->kind == EXCHANGE_OFFER || x->kind == EXCHANGE_ACCEPT) {
		m->manifest = x->terms.manifest;
		m->clock = x->terms.clock;
		m->sketch_length = x->terms.sketch_length;
		memcpy(m->sketch, x->terms.sketch, sizeof m->sketch);
	} else if (x->kind == EXCHANGE_BUSY && x->busy.why == EXCHANGE_UNLIKE) {
		m->manifest = x->busy.manifest;
	}
	if (x->kind == EXCHANGE_OFFER && !m->takes_offers) {
		struct exchange_message no = {.kind = EXCHANGE_BUSY, .exchange = x->exchange};
		no.busy.why = EXCHANGE_PAUSED;
		(void)member_post(m, &no);
	}
}

/* True: it is about an exchange. */
static bool hear(struct member *m, struct wire_message *w)
{
	switch (w->kind) {
	case WIRE_PING:
		w->kind = WIRE_PONG;
		(void)send_or_close(m, w);
		return false;
	case MESSAGE_SKETCH:
		if (m->sketch_length == 0 && w->gossip.sketch.length <= sizeof m->sketch) {
			m->sketch_length = w->gossip.sketch.length;
			memcpy(m->sketch, w->gossip.sketch.bytes, sizeof m->sketch);
		}
		return false;
	case WIRE_EXCHANGE:
		hear_exchange(m, &w->exchange);
		return true;
	default:
		if (w->kind <= MESSAGE_SYNC)
			hear_updates(m, &w->gossip);
		return false;
	}
}

/* More bytes within ms: 1; none: 0; the end: negative. */
static int feed(struct session *s, int ms)
{
	struct pollfd p = {.fd = s->fd, .events = POLLIN};
	size_t room;
	int ready = poll(&p, 1, ms);
	if (ready <= 0)
		return ready < 0 && errno != EINTR ? ERR_IO : 0;
	uint8_t *to = frame_room(&s->reader, &room);
	ssize_t n = recv(s->fd, to, room, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return ERR_IO;
	frame_fed(&s->reader, (size_t)n);
	return 1;
}

int member_serve(struct member *m, int ms, struct wire_message *out)
{
	long long end = now_ms() + ms;
	while (m->open) {
		struct frame f;
		int rc = frame_read(&m->session.reader, &f, NULL);
		if (rc == 1 && f.type == FRAME_MESSAGE) {
			if (wire_decode(f.payload, f.len, out, NULL) == 0 && hear(m, out))
				return 1;
			continue;
		}
		long long left = end - now_ms();
		if (rc == 0 && left < 0)
			return 0;
		if (rc != 0 || feed(&m->session, (int)left) < 0)
			member_close(m);
	}
	return ERR_IO;
}

void member_terms(const struct member *m, struct exchange_terms *t)
{
	*t = (struct exchange_terms){
	        .manifest = m->manifest, .step = 1, .samples = 1, .clock = m->clock, .beta = 0.5f};
	for (int i = 0; m->clock == 0 && i < m->n_known; i++)
		t->clock += m->known[i].status.samples;
	t->mode = (uint8_t)m->manifest.mode;
	t->sketch_length = m->sketch_length;
	memcpy(t->sketch, m->sketch, sizeof t->sketch);
}

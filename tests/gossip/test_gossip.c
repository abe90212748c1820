/* SPDX-License-Identifier: MIT */
/* The rules of membership one at a time, on a single core that is fed by hand. What many cores do
 * together under faults is the simulator's (tests/sim). */
#include "gossip/membership/gossip.h"
#include "tests/support.h"

struct fixture {
	void *memory;
	struct gossip *g;
	struct gossip_actions out;
	struct gossip_message message;
	uint64_t now;
	bool (*match)(const struct gossip_send *); /* sends that are counted, */
	int seen;                                  /* over all steps */
};

static struct peer_id id(unsigned n)
{
	struct peer_id x = {{0}};
	x.bytes[0] = (uint8_t)n;
	x.bytes[1] = (uint8_t)(n >> 8);
	x.bytes[31] = 0x77;
	return x;
}

static struct peer_addr addr(unsigned n)
{
	return (struct peer_addr){4, {10, 0, (uint8_t)(n >> 8), (uint8_t)n}, 7946};
}

static void step(struct fixture *f, struct gossip_event e)
{
	e.now_ms = f->now;
	gossip_step(f->g, &e, &f->out);
	for (int i = 0; i < f->out.n_sends; i++)
		f->seen += f->match && f->match(&f->out.send[i]);
}

static void begin(struct fixture *f, uint32_t members_max)
{
	struct gossip_config c = {.profile = gossip_lan,
	        .self = id(0),
	        .generation = 3,
	        .nonce = 1000,
	        .seed = 42,
	        .addrs = {1, {addr(0)}},
	        .dialable = true,
	        .members_max = members_max};
	struct err e;
	memset(f, 0, sizeof *f);
	f->memory = calloc(1, gossip_size(&c));
	assert_int_equal(gossip_init(&f->g, f->memory, gossip_size(&c), &c, &e), 0);
	f->now = 1000000;
	step(f, (struct gossip_event){.kind = EVENT_START});
}

static void end(struct fixture *f)
{
	free(f->memory);
}

static struct gossip_update record(unsigned n, uint64_t incarnation)
{
	return (struct gossip_update){.kind = UPDATE_RECORD,
	        .record = {.id = id(n),
	                .generation = 1,
	                .nonce = 2000 + n,
	                .incarnation = incarnation,
	                .dialable = true,
	                .addrs = {1, {addr(n)}},
	                .status.samples = 100}};
}

static struct gossip_update accuse(unsigned by, unsigned about, uint64_t incarnation, bool dead)
{
	return (struct gossip_update){.kind = UPDATE_ACCUSATION,
	        .accusation = {.about = id(about),
	                .generation = about == 0 ? 3 : 1,
	                .incarnation = incarnation,
	                .by = id(by),
	                .dead = dead}};
}

/* As the network does it: what is not wanted is not passed on. */
static bool hear(struct fixture *f, unsigned from, uint8_t kind, struct gossip_update u)
{
	bool wanted = gossip_wants(f->g, &u);
	memset(&f->message, 0, sizeof f->message);
	f->message.kind = kind;
	f->message.update[0] = u;
	f->message.n_updates = wanted ? 1 : 0;
	step(f, (struct gossip_event){.kind = EVENT_RECEIVED,
	                .received = {id(from), addr(from),
	                        kind == MESSAGE_SYNC ? CHANNEL_STREAM : CHANNEL_DATAGRAM,
	                        &f->message}});
	return wanted;
}

static bool gossip(struct fixture *f, struct gossip_update u)
{
	return hear(f, 1, MESSAGE_GOSSIP, u);
}

static int state(struct fixture *f, unsigned n)
{
	struct member_view v;
	struct peer_id x = id(n);
	return gossip_find(f->g, &x, &v) ? v.state : -1;
}

static int noticed(const struct fixture *f, enum notice_kind k)
{
	int n = 0;
	for (int i = 0; i < f->out.n_notices; i++)
		n += f->out.notice[i].kind == k;
	return n;
}

/* Time passes in the steps that the core asks for; counts notices of a kind on the way. */
static int wait_ms(struct fixture *f, uint64_t ms, enum notice_kind k)
{
	uint64_t until = f->now + ms;
	int n = 0;
	while (f->now < until) {
		f->now = f->out.deadline_ms < until ? f->out.deadline_ms : until;
		step(f, (struct gossip_event){.kind = EVENT_TIMER});
		n += noticed(f, k);
	}
	return n;
}

static void only_later_news_counts(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, 8);
	assert_true(gossip(&f, record(1, 5)));
	assert_int_equal(noticed(&f, NOTICE_JOINED), 1);
	assert_false(gossip(&f, record(1, 5)));
	assert_false(gossip(&f, record(1, 4)));
	struct gossip_update u = record(1, 5);
	u.record.version = 1;
	u.record.status.samples = 150;
	assert_true(gossip(&f, u));
	assert_int_equal(gossip_clock(f.g), 150);
	u.record.version = 2;
	u.record.status.samples = 20; /* restarted from an older checkpoint */
	assert_true(gossip(&f, u));
	assert_int_equal(gossip_clock(f.g), 150);
	assert_int_equal(gossip_count(f.g), 1);
	end(&f);
}

static bool says_we_are_7(const struct gossip_send *s)
{
	for (int i = 0; i < s->message.n_updates; i++) {
		const struct gossip_update *u = &s->message.update[i];
		if (u->ours && u->kind == UPDATE_RECORD && u->record.incarnation == 7)
			return true;
	}
	return false;
}

static void accused_we_say_no(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, 8);
	gossip(&f, record(1, 1));
	assert_false(gossip(&f, accuse(1, 0, 0, true))); /* of an incarnation long gone */
	assert_false(gossip(&f, accuse(1, 0, 6, true))); /* or one that we never had */
	for (uint64_t i = 1; i < 7; i++)
		assert_true(gossip(&f, accuse(1, 0, i, false)));
	assert_int_equal(gossip_self(f.g)->incarnation, 7);
	assert_int_equal(noticed(&f, NOTICE_REFUTED), 1);
	assert_int_equal(gossip_health(f.g), 6);
	/* and it goes out with the next news */
	f.match = says_we_are_7;
	wait_ms(&f, 2000, NOTICE_JOINED);
	assert_true(f.seen > 0);
	end(&f);
}

/* Agents of another run or model are no part of this run, and a peer may tell its count itself. */
static void the_clock_is_the_runs(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, 8);
	struct gossip_update other = record(1, 1);
	other.record.status.model = 9;
	assert_true(gossip(&f, other));
	assert_int_equal(gossip_clock(f.g), 0);
	assert_true(gossip(&f, record(2, 1)));
	assert_int_equal(gossip_clock(f.g), 100);
	step(&f, (struct gossip_event){.kind = EVENT_SAMPLES, .samples = {id(2), 130}});
	assert_int_equal(gossip_clock(f.g), 130);
	step(&f, (struct gossip_event){.kind = EVENT_SAMPLES, .samples = {id(2), 120}});
	step(&f, (struct gossip_event){.kind = EVENT_SAMPLES, .samples = {id(1), 500}});
	step(&f, (struct gossip_event){.kind = EVENT_SAMPLES, .samples = {id(3), 500}});
	step(&f, (struct gossip_event){
	                 .kind = EVENT_SAMPLES, .samples = {id(2), GOSSIP_SAMPLES_MAX + 1}});
	assert_int_equal(gossip_clock(f.g), 130);
	end(&f);
}

/* Somebody holds it dead, and it does not say no. */
static void kill_member(struct fixture *f, unsigned n, uint64_t incarnation)
{
	assert_true(gossip(f, accuse(1, n, incarnation, true)));
	assert_int_equal(state(f, n), MEMBER_SUSPECT);
	for (int i = 0; i < 20 && state(f, n) == MEMBER_SUSPECT; i++)
		wait_ms(f, 1000, NOTICE_FAILED);
	assert_int_equal(state(f, n), MEMBER_DEAD);
}

static void the_dead_stay_dead(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, 8);
	gossip(&f, record(1, 1));
	gossip(&f, record(2, 5));
	kill_member(&f, 2, 5);
	assert_false(gossip(&f, record(2, 5)));
	struct gossip_update u = record(2, 5); /* its last count may still arrive */
	u.record.version = 9;
	u.record.status.samples = 170;
	assert_true(gossip(&f, u));
	assert_int_equal(state(&f, 2), MEMBER_DEAD);
	assert_int_equal(gossip_clock(f.g), 270);
	assert_true(gossip(&f, record(2, 6)));
	assert_int_equal(state(&f, 2), MEMBER_ALIVE);
	assert_int_equal(noticed(&f, NOTICE_JOINED), 1);
	/* accused of an incarnation that it never signed, it stays */
	assert_false(gossip(&f, accuse(1, 2, 9, true)));
	assert_int_equal(state(&f, 2), MEMBER_ALIVE);
	end(&f);
}

static void a_new_process_begins_anew(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, 8);
	gossip(&f, record(1, 1));
	struct gossip_update u = record(2, 8);
	u.record.left = true;
	assert_true(gossip(&f, u));
	assert_int_equal(state(&f, 2), MEMBER_LEFT);
	u = record(2, 1);
	u.record.generation = 2;
	u.record.nonce = 5;
	assert_true(gossip(&f, u));
	assert_int_equal(state(&f, 2), MEMBER_ALIVE);
	end(&f);
}

static void accusers_must_be_known_and_others(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, 8);
	gossip(&f, record(1, 1));
	gossip(&f, record(2, 1));
	assert_false(gossip(&f, accuse(7, 2, 1, true)));
	assert_false(gossip(&f, accuse(2, 2, 1, true)));
	assert_false(gossip(&f, accuse(0, 2, 1, true)));
	assert_true(gossip(&f, accuse(1, 2, 1, false)));
	assert_int_equal(state(&f, 2), MEMBER_SUSPECT);
	end(&f);
}

/* Eight alive: 4 s with three accusers, 24 s with one. */
static void suspicion_shrinks_with_accusers(void **s)
{
	(void)s;
	for (unsigned accusers = 1; accusers <= 3; accusers += 2) {
		struct fixture f;
		begin(&f, 16);
		for (unsigned i = 1; i <= 7; i++)
			gossip(&f, record(i, 1));
		uint64_t from = f.now;
		for (unsigned i = 1; i <= accusers; i++)
			assert_true(gossip(&f, accuse(i, 7, 1, false)));
		assert_false(gossip(&f, accuse(1, 7, 1, false)));
		/* The others answer every probe, the accused none; our own accusation is not
		 * counted here: its probe is kept from failing by the health of the rest. */
		while (state(&f, 7) == MEMBER_SUSPECT && f.now < from + 60000) {
			f.now = f.out.deadline_ms;
			step(&f, (struct gossip_event){.kind = EVENT_TIMER});
			for (int k = 0; k < f.out.n_sends; k++) {
				const struct gossip_send *x = &f.out.send[k];
				struct gossip_message ack = {
				        .kind = MESSAGE_ACK, .nonce = x->message.nonce};
				if (x->message.kind != MESSAGE_PING)
					continue;
				struct gossip_event e = {.kind = EVENT_RECEIVED,
				        .received = {id(6), addr(6), CHANNEL_DATAGRAM, &ack}};
				step(&f, e);
				break;
			}
		}
		assert_int_equal(state(&f, 7), MEMBER_DEAD);
		uint64_t took = f.now - from;
		if (accusers == 3)
			assert_true(took >= 3500 && took <= 4500);
		else
			assert_true(took >= 20000 && took <= 26000);
		end(&f);
	}
}

/* Nobody is dead on another's word; who was refuted is not heard about that member for a while. */
static void certify(struct fixture *f, unsigned n, uint64_t label)
{
	step(f, (struct gossip_event){
	                .kind = EVENT_CERTIFIED, .certified = {id(n), label, 100 * label, 0}});
}

/* Eight alive, three of which have one invite: beside other labels they are one voice. */
static void accusers_of_one_label_count_once(void **s)
{
	(void)s;
	for (unsigned labels = 1; labels <= 2; labels++) {
		struct fixture f;
		struct member_view v;
		struct peer_id two = id(2);
		begin(&f, 0);
		for (unsigned i = 1; i <= 7; i++)
			gossip(&f, record(i, 1));
		for (unsigned i = 0; i <= 7; i++)
			certify(&f, i, i >= 1 && i <= 3 ? 1 : labels);
		assert_true(gossip_find(f.g, &two, &v));
		assert_int_equal(v.label, 1);
		assert_int_equal(v.rate, 100);
		assert_true(gossip(&f, accuse(1, 7, 1, false)));
		assert_int_equal(gossip(&f, accuse(2, 7, 1, false)), labels == 1);
		assert_int_equal(gossip(&f, accuse(3, 7, 1, false)), labels == 1);
		assert_int_equal(gossip(&f, accuse(4, 7, 1, false)), labels == 2);
		end(&f);
	}
}

static void one_accuser_decides_nothing(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, 16);
	for (unsigned i = 1; i <= 7; i++)
		gossip(&f, record(i, 1));
	assert_true(gossip(&f, accuse(1, 7, 1, true)));
	assert_int_equal(state(&f, 7), MEMBER_SUSPECT);
	assert_true(gossip(&f, accuse(2, 7, 1, true)));
	assert_int_equal(state(&f, 7), MEMBER_SUSPECT);
	assert_true(gossip(&f, record(7, 2)));
	assert_int_equal(state(&f, 7), MEMBER_ALIVE);
	assert_false(gossip(&f, accuse(1, 7, 2, true)));
	assert_false(gossip(&f, accuse(1, 7, 2, false)));
	assert_int_equal(state(&f, 7), MEMBER_ALIVE);
	/* about others it is, and others are about this one */
	assert_true(gossip(&f, accuse(1, 6, 1, false)));
	assert_true(gossip(&f, accuse(5, 7, 2, false)));
	assert_true(gossip(&f, record(7, 3)));
	/* and in the end it is heard again */
	for (int i = 0; i < 61; i++) {
		wait_ms(&f, 1000, NOTICE_FAILED);
		for (unsigned k = 1; k <= 7; k++)
			gossip(&f, record(k, 4u + (unsigned)i));
	}
	assert_true(gossip(&f, accuse(1, 7, 64, false)));
	end(&f);
}

/* Eight alive: another's "dead" leaves the accused the shortest time, not none. */
static void being_called_dead_shortens_a_suspicion(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, 16);
	for (unsigned i = 1; i <= 7; i++)
		gossip(&f, record(i, 1));
	uint64_t from = f.now;
	assert_true(gossip(&f, accuse(1, 7, 1, true)));
	assert_false(gossip(&f, accuse(1, 7, 1, true)));
	while (state(&f, 7) == MEMBER_SUSPECT && f.now < from + 60000)
		wait_ms(&f, 100, NOTICE_FAILED);
	assert_true(f.now - from >= 3500 && f.now - from <= 4500);
	end(&f);
}

static void whole_states_accuse_softly(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, 8);
	gossip(&f, record(1, 1));
	gossip(&f, record(2, 1));
	/* alive to us: suspect */
	assert_true(hear(&f, 1, MESSAGE_SYNC, accuse(1, 2, 1, true)));
	assert_int_equal(state(&f, 2), MEMBER_SUSPECT);
	/* never seen alive: dead at once */
	assert_true(hear(&f, 1, MESSAGE_SYNC, record(3, 1)));
	assert_true(hear(&f, 1, MESSAGE_SYNC, accuse(1, 3, 1, true)));
	assert_int_equal(state(&f, 3), MEMBER_DEAD);
	end(&f);
}

static void a_lost_generation_is_found_again(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, 8);
	struct gossip_update u = record(0, 4);
	u.record.generation = 9;
	u.record.nonce = 77;
	u.record.status.samples = 5000;
	assert_true(gossip(&f, u));
	assert_int_equal(gossip_self(f.g)->generation, 10);
	assert_int_equal(noticed(&f, NOTICE_GENERATION), 1);
	assert_int_equal(noticed(&f, NOTICE_SAME_KEY), 0);
	assert_int_equal(gossip_self(f.g)->status.samples, 5000);
	assert_int_equal(gossip_clock(f.g), 5000);
	assert_false(gossip(&f, u));
	/* The same process answers: it is running. */
	f.now += 20000;
	step(&f, (struct gossip_event){.kind = EVENT_TIMER});
	u.record.generation = 11;
	wait_ms(&f, 11000, NOTICE_JOINED);
	assert_true(gossip(&f, u));
	assert_int_equal(noticed(&f, NOTICE_SAME_KEY), 1);
	end(&f);
}

static void a_peer_that_lost_its_generation_is_told(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, 8);
	struct gossip_update u = record(1, 1);
	u.record.generation = 6;
	gossip(&f, u);
	wait_ms(&f, 1500, NOTICE_JOINED);
	struct gossip_update lost = record(1, 1);
	lost.record.nonce = 31;
	assert_true(hear(&f, 1, MESSAGE_GOSSIP, lost));
	bool told = false;
	for (int i = 0; i < f.out.n_sends; i++) {
		const struct gossip_message *m = &f.out.send[i].message;
		struct peer_id one = id(1);
		told = told || (m->n_updates > 0 && m->update[0].kind == UPDATE_RECORD &&
		                       peer_id_equal(&f.out.send[i].id, &one) &&
		                       m->update[0].record.generation == 6);
	}
	assert_true(told);
	assert_false(hear(&f, 1, MESSAGE_GOSSIP, lost)); /* not at once again */
	end(&f);
}

static void over_the_bound_the_oldest_dead_go(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, 3);
	for (unsigned i = 1; i <= 3; i++)
		gossip(&f, record(i, 1));
	assert_true(gossip(&f, record(4, 1)));
	assert_int_equal(noticed(&f, NOTICE_REFUSED), 1);
	assert_int_equal(state(&f, 4), -1);
	assert_int_equal(gossip_counters(f.g).refused, 1);
	assert_int_equal(gossip_clock(f.g), 300);
	kill_member(&f, 3, 1);
	kill_member(&f, 2, 1);
	gossip(&f, record(1, 2)); /* it did not answer either */
	assert_true(gossip(&f, record(4, 1)));
	assert_int_equal(state(&f, 3), -1);
	assert_int_equal(state(&f, 2), MEMBER_DEAD);
	assert_int_equal(state(&f, 4), MEMBER_ALIVE);
	assert_int_equal(gossip_counters(f.g).evicted, 1);
	assert_int_equal(gossip_clock(f.g), 400);
	/* The forgotten one comes back: its samples are not counted twice. */
	struct gossip_update u = record(3, 2);
	u.record.status.samples = 130;
	assert_true(gossip(&f, u));
	assert_int_equal(state(&f, 3), MEMBER_ALIVE);
	assert_int_equal(gossip_clock(f.g), 430);
	assert_int_equal(gossip_count(f.g), 3);
	end(&f);
}

/* More come and go than can be remembered. None is refused, and the clock never falls; from the
 * time on that names are lost, an unknown one's first claim is what it begins with. */
static void the_longest_gone_lose_their_names(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, 3);
	uint64_t clock = 0;
	for (unsigned i = 1; i <= 60; i++) {
		struct gossip_update u = record(i, 1);
		u.record.left = true;
		assert_true(gossip(&f, u));
		assert_int_equal(state(&f, i), MEMBER_LEFT);
		assert_true(gossip_clock(f.g) >= clock);
		clock = gossip_clock(f.g);
	}
	assert_int_equal(gossip_counters(f.g).refused, 0);
	assert_int_equal(gossip_counters(f.g).evicted, 57);
	struct gossip_update u = record(58, 2); /* remembered: only what is new counts */
	u.record.status.samples = 107;
	assert_true(gossip(&f, u));
	assert_int_equal(gossip_clock(f.g), clock + 7);
	u = record(1, 2); /* forgotten: only what follows */
	u.record.status.samples = 150;
	assert_true(gossip(&f, u));
	assert_int_equal(gossip_clock(f.g), clock + 7);
	u.record.version = 1;
	u.record.status.samples = 160;
	assert_true(gossip(&f, u));
	assert_int_equal(gossip_clock(f.g), clock + 17);
	end(&f);
}

static bool tells_of_2(const struct gossip_send *s)
{
	struct peer_id two = id(2);
	for (int i = 0; i < s->message.n_updates; i++)
		if (s->message.update[i].kind == UPDATE_RECORD
		                ? peer_id_equal(&s->message.update[i].record.id, &two)
		                : peer_id_equal(&s->message.update[i].accusation.about, &two))
			return true;
	return false;
}

/* Whom the lists forbid: gone, and nobody is told of it; its samples stay in the clock. */
static void the_forbidden_are_not_there(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, 8);
	gossip(&f, record(1, 1));
	gossip(&f, record(2, 1));
	f.match = tells_of_2;
	step(&f, (struct gossip_event){.kind = EVENT_FORBIDDEN, .peer.id = id(2)});
	assert_int_equal(noticed(&f, NOTICE_FAILED), 1);
	assert_int_equal(state(&f, 2), MEMBER_DEAD);
	assert_int_equal(gossip_clock(f.g), 200);
	f.seen = 0;
	struct gossip_message ask = {.kind = MESSAGE_SYNC, .want_reply = true};
	step(&f, (struct gossip_event){.kind = EVENT_RECEIVED,
	                 .received = {id(1), addr(1), CHANNEL_STREAM, &ask}});
	wait_ms(&f, 20000, NOTICE_FAILED);
	assert_int_equal(f.seen, 0);
	/* permitted again, it is not accused of anything, and its next word is enough */
	struct gossip_message ping = {.kind = MESSAGE_PING, .target = id(0)};
	step(&f, (struct gossip_event){.kind = EVENT_RECEIVED,
	                 .received = {id(2), addr(2), CHANNEL_DATAGRAM, &ping}});
	for (int i = 0; i < f.out.n_sends; i++)
		for (int k = 0; k < f.out.send[i].message.n_updates; k++)
			assert_int_equal(f.out.send[i].message.update[k].kind, UPDATE_RECORD);
	struct gossip_update u = record(2, 1);
	u.record.version = 1;
	assert_true(gossip(&f, u));
	assert_int_equal(state(&f, 2), MEMBER_ALIVE);
	end(&f);
}

/* What an agent had trained whose checkpoint we went on from: once, whether it is met or not. */
static void the_departed_count_once(void **s)
{
	(void)s;
	struct gossip_config c = {.profile = gossip_lan,
	        .self = id(0),
	        .generation = 3,
	        .nonce = 1000,
	        .departed = {.id = id(7), .samples = 90}};
	struct fixture f = {.now = 1000000};
	struct err e;
	f.memory = calloc(1, gossip_size(&c));
	assert_int_equal(gossip_init(&f.g, f.memory, gossip_size(&c), &c, &e), 0);
	step(&f, (struct gossip_event){.kind = EVENT_START});
	assert_int_equal(gossip_clock(f.g), 90);
	gossip(&f, record(1, 1));
	assert_int_equal(gossip_clock(f.g), 190);
	gossip(&f, record(7, 1));
	assert_int_equal(gossip_clock(f.g), 200);
	/* Our own samples are not another's. */
	c.departed.id = id(0);
	memset(f.memory, 0, gossip_size(&c));
	assert_int_equal(gossip_init(&f.g, f.memory, gossip_size(&c), &c, &e), 0);
	assert_int_equal(gossip_clock(f.g), 0);
	end(&f);
}

static void a_leap_of_the_clock_kills_nobody(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, 8);
	gossip(&f, record(1, 1));
	gossip(&f, record(2, 1));
	gossip(&f, accuse(1, 2, 1, false));
	f.now += 3600 * 1000;
	step(&f, (struct gossip_event){.kind = EVENT_TIMER});
	assert_int_equal(noticed(&f, NOTICE_TIME_JUMP), 1);
	assert_int_equal(noticed(&f, NOTICE_FAILED), 0);
	assert_int_equal(state(&f, 2), MEMBER_SUSPECT);
	assert_true(f.out.deadline_ms >= f.now && f.out.deadline_ms <= f.now + 10000);
	f.now -= 1800 * 1000;
	step(&f, (struct gossip_event){.kind = EVENT_TIMER});
	assert_int_equal(noticed(&f, NOTICE_FAILED), 0);
	assert_true(f.out.deadline_ms >= f.now && f.out.deadline_ms <= f.now + 10000);
	end(&f);
}

static bool asks_for_all(const struct gossip_send *s)
{
	return s->message.kind == MESSAGE_SYNC && s->message.want_reply;
}

static void the_silent_are_found_out(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, 8);
	gossip(&f, record(1, 1));
	assert_true(wait_ms(&f, 120000, NOTICE_FAILED) == 1);
	assert_int_equal(state(&f, 1), MEMBER_DEAD);
	/* and are tried for ever */
	f.match = asks_for_all;
	for (int hour = 0; hour < 3; hour++) {
		f.seen = 0;
		wait_ms(&f, 3600 * 1000, NOTICE_JOINED);
		assert_true(f.seen >= 100);
	}
	end(&f);
}

static bool is_datagram(const struct gossip_send *s)
{
	return s->channel == CHANNEL_DATAGRAM;
}

static bool is_stream(const struct gossip_send *s)
{
	return s->channel == CHANNEL_STREAM;
}

static void who_cannot_be_dialled_gets_no_datagrams(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, 8);
	struct gossip_update u = record(1, 1);
	u.record.dialable = false;
	gossip(&f, u);
	f.match = is_datagram;
	wait_ms(&f, 2000, NOTICE_JOINED);
	step(&f, (struct gossip_event){.kind = EVENT_PEER_UP, .peer.id = id(1)});
	wait_ms(&f, 2000, NOTICE_JOINED);
	assert_int_equal(f.seen, 0);
	f.match = is_stream;
	wait_ms(&f, 2000, NOTICE_JOINED);
	assert_true(f.seen > 0);
	end(&f);
}

static void leaving_is_said_to_all(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, 8);
	for (unsigned i = 1; i <= 5; i++)
		gossip(&f, record(i, 1));
	step(&f, (struct gossip_event){.kind = EVENT_LEAVE});
	assert_int_equal(f.out.n_sends, 5);
	for (int i = 0; i < 5; i++) {
		const struct gossip_update *u = &f.out.send[i].message.update[0];
		assert_true(u->ours && u->record.left && u->record.incarnation == 2);
	}
	assert_true(f.out.deadline_ms == UINT64_MAX);
	end(&f);
}

static void datagrams_fit(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, 64);
	for (unsigned i = 1; i <= 60; i++)
		gossip(&f, record(i, 1));
	for (unsigned i = 20; i <= 40; i++)
		gossip(&f, accuse(1, i, 1, i % 2 == 0));
	int most = 0;
	for (int i = 0; i < 200; i++) {
		f.now = f.out.deadline_ms;
		step(&f, (struct gossip_event){.kind = EVENT_TIMER});
		for (int k = 0; k < f.out.n_sends; k++) {
			const struct gossip_send *x = &f.out.send[k];
			if (x->channel != CHANNEL_DATAGRAM)
				continue;
			assert_true(gossip_message_bytes(&x->message) <= GOSSIP_DATAGRAM_BYTES);
			most = x->message.n_updates > most ? x->message.n_updates : most;
		}
	}
	assert_true(most >= 4);
	end(&f);
}

static void bad_configurations_are_refused(void **s)
{
	(void)s;
	struct gossip_config c = {.profile = gossip_lan, .generation = 1};
	struct gossip *g;
	struct err e;
	size_t size = gossip_size(&c);
	void *m = malloc(size);
	assert_int_equal(gossip_init(&g, m, size - 1, &c, &e), ERR_NOMEM);
	c.generation = 0;
	assert_int_equal(gossip_init(&g, m, size, &c, &e), ERR_INVALID);
	c.generation = 1;
	c.members_max = GOSSIP_MEMBERS_MAX + 1;
	assert_int_equal(gossip_init(&g, m, size, &c, &e), ERR_LIMIT);
	free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(only_later_news_counts),
	        cmocka_unit_test(accused_we_say_no),
	        cmocka_unit_test(the_clock_is_the_runs),
	        cmocka_unit_test(the_dead_stay_dead),
	        cmocka_unit_test(accusers_of_one_label_count_once),
	        cmocka_unit_test(one_accuser_decides_nothing),
	        cmocka_unit_test(being_called_dead_shortens_a_suspicion),
	        cmocka_unit_test(the_longest_gone_lose_their_names),
	        cmocka_unit_test(the_forbidden_are_not_there),
	        cmocka_unit_test(a_new_process_begins_anew),
	        cmocka_unit_test(accusers_must_be_known_and_others),
	        cmocka_unit_test(suspicion_shrinks_with_accusers),
	        cmocka_unit_test(whole_states_accuse_softly),
	        cmocka_unit_test(a_lost_generation_is_found_again),
	        cmocka_unit_test(a_peer_that_lost_its_generation_is_told),
	        cmocka_unit_test(over_the_bound_the_oldest_dead_go),
	        cmocka_unit_test(the_departed_count_once),
	        cmocka_unit_test(a_leap_of_the_clock_kills_nobody),
	        cmocka_unit_test(the_silent_are_found_out),
	        cmocka_unit_test(who_cannot_be_dialled_gets_no_datagrams),
	        cmocka_unit_test(leaving_is_said_to_all),
	        cmocka_unit_test(datagrams_fit),
	        cmocka_unit_test(bad_configurations_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

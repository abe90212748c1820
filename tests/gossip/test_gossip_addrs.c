/* SPDX-License-Identifier: MIT */
/* A peer with several addresses: which of them are used, and what proves one. A single core is fed
 * by hand; the peer answers at some of its addresses only. */
#include "gossip/membership/gossip.h"
#include "tests/support.h"

static const struct peer_id self = {{1}}, peer = {{2}};
static const struct peer_addr dead = {4, {192, 0, 2, 1}, 7946}, four = {4, {10, 0, 0, 2}, 7946},
                              six = {6, {0xfd, [15] = 2}, 7946}, any = {4, {0}, 7946},
                              many = {4, {224, 0, 0, 1}, 7946}, six_any = {6, {0}, 7946},
                              six_many = {6, {0xff, 2}, 7946}, no_port = {4, {10, 0, 0, 2}, 0},
                              mapped = {6, {[10] = 0xff, 0xff, 10, 0, 0, 2}, 7946};

struct fixture {
	void *memory;
	struct gossip *g;
	struct gossip_actions out;
	uint64_t now;
	struct peer_addr live; /* where the peer is */
	int pings, lost;       /* datagram pings to it: all, and those that went nowhere */
	bool failed;           /* it was suspected */
};

static void step(struct fixture *f, struct gossip_event e)
{
	e.now_ms = f->now;
	gossip_step(f->g, &e, &f->out);
	for (int i = 0; i < f->out.n_notices; i++)
		f->failed |= f->out.notice[i].kind == NOTICE_SUSPECT;
}

static void hear(struct fixture *f, struct gossip_message m, struct peer_addr from)
{
	step(f, (struct gossip_event){
	                .kind = EVENT_RECEIVED, .received = {peer, from, CHANNEL_DATAGRAM, &m}});
}

static void begin(struct fixture *f, struct peer_addrs told, struct peer_addr live)
{
	struct gossip_config c = {
	        .profile = gossip_lan, .self = self, .generation = 1, .dialable = true};
	struct gossip_message m = {.kind = MESSAGE_GOSSIP, .n_updates = 1};
	m.update[0].record = (struct member_record){
	        .id = peer, .generation = 1, .dialable = true, .addrs = told};
	memset(f, 0, sizeof *f);
	f->live = live;
	f->memory = calloc(1, gossip_size(&c));
	assert_int_equal(gossip_init(&f->g, f->memory, gossip_size(&c), &c, NULL), 0);
	step(f, (struct gossip_event){.kind = EVENT_START});
	assert_true(gossip_wants(f->g, &m.update[0]));
	hear(f, m, (struct peer_addr){0});
}

/* The peer answers pings at its live address, from an address that says nothing. */
static void answer(struct fixture *f)
{
	struct gossip_actions out = f->out;
	for (int i = 0; i < out.n_sends; i++) {
		const struct gossip_send *s = &out.send[i];
		for (int k = 0; k < s->addrs.n; k++)
			assert_true(peer_addr_usable(&s->addrs.at[k]));
		if (s->channel != CHANNEL_DATAGRAM || s->message.kind != MESSAGE_PING)
			continue;
		f->pings++;
		if (peer_addr_equal(&s->addrs.at[0], &f->live))
			hear(f,
			        (struct gossip_message){
			                .kind = MESSAGE_ACK, .nonce = s->message.nonce},
			        (struct peer_addr){4, {10, 9, 9, 9}, 1});
		else
			f->lost++;
	}
}

static void run(struct fixture *f, uint64_t ms)
{
	f->pings = f->lost = 0;
	f->failed = false;
	for (uint64_t until = f->now + ms; f->now < until;) {
		f->now = f->out.deadline_ms > f->now ? f->out.deadline_ms : f->now;
		step(f, (struct gossip_event){.kind = EVENT_TIMER});
		answer(f);
	}
}

static struct peer_addrs addrs(struct fixture *f)
{
	struct member_view v;
	assert_true(gossip_find(f->g, &peer, &v));
	return v.addrs;
}

static void the_one_that_answers_is_used(void **state)
{
	(void)state;
	struct peer_addrs told[] = {
	        {2, {dead, four}}, {2, {dead, six}}, {1, {six}}, {3, {dead, any, six}}};
	for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
		struct fixture f;
		begin(&f, told[i], told[i].at[told[i].n - 1]);
		run(&f, 3000);
		assert_false(f.failed);
		assert_true(f.lost <= 1);
		assert_true(peer_addr_equal(&addrs(&f).at[0], &f.live));
		run(&f, 20000); /* the dead one is left alone */
		assert_true(f.pings > 10 && f.lost == 0);
		free(f.memory);
	}
}

static void another_is_found_when_it_fails(void **state)
{
	(void)state;
	struct fixture f;
	begin(&f, (struct peer_addrs){3, {four, dead, six}}, four);
	run(&f, 3000);
	f.live = six;
	run(&f, 20000);
	assert_false(f.failed);
	assert_true(peer_addr_equal(&addrs(&f).at[0], &six));
	/* All at once: nobody is there. */
	f.live = any;
	run(&f, 10000);
	assert_true(f.failed);
	free(f.memory);
}

static void what_nobody_can_use_is_not_used(void **state)
{
	(void)state;
	struct peer_addr bad[] = {any, many, six_any, six_many, no_port, mapped, {0}, {5, {1}, 1}};
	for (size_t i = 0; i + 4 <= sizeof bad / sizeof *bad; i++) {
		struct fixture f;
		struct peer_addrs told = {4, {bad[i], bad[i + 1], bad[i + 2], bad[i + 3]}};
		begin(&f, told, four);
		assert_int_equal(addrs(&f).n, 0);
		run(&f, 5000);
		assert_int_equal(f.pings, 0);
		free(f.memory);
	}
	struct gossip_update u = {.kind = UPDATE_RECORD,
	        .record = {.id = {{3}}, .generation = 1, .addrs = {.n = MEMBER_ADDRS_MAX + 1}}};
	struct fixture f;
	begin(&f, (struct peer_addrs){1, {four}}, four);
	assert_false(gossip_wants(f.g, &u));
	free(f.memory);
}

/* Its own word, or where it seems to come from, is a hint until an address has answered. */
static void only_an_answer_proves(void **state)
{
	(void)state;
	struct fixture f;
	struct gossip_message news = {.kind = MESSAGE_GOSSIP};
	begin(&f, (struct peer_addrs){3, {dead, four, six}}, four);
	hear(&f, news, six);
	assert_true(peer_addr_equal(&addrs(&f).at[0], &six));
	run(&f, 3000);
	assert_true(peer_addr_equal(&addrs(&f).at[0], &four));
	hear(&f, news, six);
	assert_true(peer_addr_equal(&addrs(&f).at[0], &four));
	/* A stream that we dialled is an answer, one that it dialled is none. */
	step(&f, (struct gossip_event){.kind = EVENT_PEER_UP, .peer = {peer, {0}}});
	assert_true(peer_addr_equal(&addrs(&f).at[0], &four));
	step(&f, (struct gossip_event){.kind = EVENT_PEER_UP, .peer = {peer, six}});
	assert_true(peer_addr_equal(&addrs(&f).at[0], &six));
	free(f.memory);
}

/* The address in use stays where a new record still has it. */
static void a_new_record_keeps_what_works(void **state)
{
	(void)state;
	struct fixture f;
	begin(&f, (struct peer_addrs){2, {dead, six}}, six);
	run(&f, 3000);
	struct gossip_message m = {.kind = MESSAGE_GOSSIP, .n_updates = 1};
	m.update[0].record = (struct member_record){.id = peer,
	        .generation = 1,
	        .version = 1,
	        .dialable = true,
	        .addrs = {3, {four, dead, six}}};
	hear(&f, m, (struct peer_addr){0});
	struct peer_addrs now = addrs(&f);
	assert_int_equal(now.n, 3);
	assert_true(peer_addr_equal(&now.at[0], &six) && peer_addr_equal(&now.at[1], &four));
	m.update[0].record.version = 2;
	m.update[0].record.addrs = (struct peer_addrs){1, {four}};
	hear(&f, m, (struct peer_addr){0});
	assert_true(peer_addr_equal(&addrs(&f).at[0], &four));
	free(f.memory);
}

static bool dials(const struct fixture *f, const struct peer_addr *a)
{
	for (int i = 0; i < f->out.n_sends; i++)
		if (!f->out.send[i].to_id && peer_addr_equal(&f->out.send[i].addrs.at[0], a))
			return true;
	return false;
}

/* A seed's address in somebody's record does not hide the seed; one that has answered there does:
 * it is the seed. */
static void only_a_proven_address_is_known(void **s)
{
	(void)s;
	struct fixture f;
	struct gossip_event resolved = {
	        .kind = EVENT_RESOLVED, .resolved = {.n = 1, .address = {four}}};
	begin(&f, (struct peer_addrs){2, {six, four}}, six);
	run(&f, 3000); /* it answers, elsewhere */
	step(&f, resolved);
	assert_true(dials(&f, &four));
	free(f.memory);
	begin(&f, (struct peer_addrs){1, {four}}, four);
	run(&f, 3000);
	step(&f, resolved);
	assert_false(dials(&f, &four));
	free(f.memory);
}

/* Updates in the ACK to a ping from there. */
static int acked_with(struct fixture *f, struct peer_addr from)
{
	hear(f, (struct gossip_message){.kind = MESSAGE_PING, .nonce = 7, .target = self}, from);
	for (int i = 0; i < f->out.n_sends; i++)
		if (f->out.send[i].message.kind == MESSAGE_ACK)
			return f->out.send[i].message.n_updates;
	return -1;
}

/* Who sends from an address that has not answered us is told of itself at most. */
static void no_news_to_an_unproven_source(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, (struct peer_addrs){2, {four, six}}, four);
	assert_int_equal(acked_with(&f, four), 0); /* our own record is news, and not told */
	assert_int_equal(acked_with(&f, dead), 1); /* that we know it elsewhere */
	run(&f, 3000);
	step(&f, (struct gossip_event){.kind = EVENT_ADDRESS, .address = {.dialable = true}});
	assert_int_equal(acked_with(&f, six), 0);
	assert_int_equal(acked_with(&f, four), 1);
	free(f.memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(the_one_that_answers_is_used),
	        cmocka_unit_test(another_is_found_when_it_fails),
	        cmocka_unit_test(what_nobody_can_use_is_not_used),
	        cmocka_unit_test(only_an_answer_proves),
	        cmocka_unit_test(a_new_record_keeps_what_works),
	        cmocka_unit_test(only_a_proven_address_is_known),
	        cmocka_unit_test(no_news_to_an_unproven_source),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* A run's settings, which one who is about to join asks an agent for. */
#include "tests/net/transport_pair.h"

#include "net/codec/wire.h"

#define BYTES (2 * SETTINGS_PART + 100)

static uint8_t sent[SETTINGS_BYTES_MAX], got[SETTINGS_BYTES_MAX];
static uint32_t have, total;
static int answers, refused;
static struct peer_addr from;

static void on_settings(void *arg, const struct peer_addr *dialled, const struct wire_settings *s)
{
	struct side *me = arg;
	from = *dialled;
	if (!s) {
		refused++;
		return;
	}
	assert_true(s->offset == have && s->length <= sizeof got - have);
	memcpy(got + have, s->bytes, s->length);
	have += s->length;
	total = s->total;
	answers++;
	if (have < total)
		assert_true(transport_ask_settings(me->t, dialled, have));
}

static void open_asker(struct pair *p, const char *dir, uint32_t bytes)
{
	pair_open(p, dir);
	for (size_t i = 0; i < sizeof sent; i++)
		sent[i] = (uint8_t)(i * 7 + i / 251);
	have = total = 0;
	answers = refused = 0;
	p->side[0].t->config.callbacks.settings_cb = on_settings;
	p->side[1].t->config.callbacks.settings_cb = on_settings;
	p->side[1].t->config.settings = sent;
	p->side[1].t->config.settings_length = bytes;
}

static bool answered(const struct pair *p)
{
	(void)p;
	return refused > 0 || (answers > 0 && have == total);
}

static void ask(struct pair *p)
{
	struct peer_addr at = transport_bound(p->side[1].t);
	assert_true(transport_ask_settings(p->side[0].t, &at, 0));
	assert_true(await(p, answered));
	assert_true(peer_addr_equal(&from, &at));
}

static void test_they_come_in_parts(void **state)
{
	static const struct {
		uint32_t bytes;
		int parts;
	} cases[] = {{1, 1}, {SETTINGS_PART, 1}, {BYTES, 3}, {SETTINGS_BYTES_MAX, 16}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct pair p;
		open_asker(&p, *state, cases[i].bytes);
		ask(&p);
		assert_int_equal(have, cases[i].bytes);
		assert_int_equal(answers, cases[i].parts);
		assert_memory_equal(got, sent, cases[i].bytes);
		assert_int_equal(p.side[0].t->counters.streams_dialled, 1);
		assert_int_equal(refused, 0);
		pair_close(&p);
	}
}

static void test_an_agent_without_a_run(void **state)
{
	struct pair p;
	open_asker(&p, *state, 0);
	ask(&p);
	assert_true(answers == 1 && total == 0 && have == 0);
	pair_close(&p);
}

static void test_nobody_is_there(void **state)
{
	struct pair p;
	open_asker(&p, *state, BYTES);
	struct peer_addr at = transport_bound(p.side[1].t);
	at.port = 1; /* nobody's, on loopback */
	assert_true(transport_ask_settings(p.side[0].t, &at, 0));
	assert_true(await(&p, answered));
	assert_true(refused == 1 && answers == 0 && peer_addr_equal(&from, &at));
	pair_close(&p);
}

/* Whose agent ends before it has answered. */
static void test_the_peer_goes(void **state)
{
	struct pair p;
	open_asker(&p, *state, BYTES);
	p.side[1].t->config.protocol_min = p.side[1].t->config.protocol_max = 9;
	ask(&p);
	assert_true(refused == 1 && answers == 0);
	pair_close(&p);
}

static void tell(struct pair *p, int side, const struct wire_message *m)
{
	uint8_t bytes[WIRE_BYTES_MAX];
	size_t len;
	struct conn *c = transport__find(p->side[side].t, &p->side[1 - side].identity.id);
	assert_non_null(c);
	assert_int_equal(wire_encode(m, bytes, sizeof bytes, &len), 0);
	assert_true(conn__send(c, NULL, bytes, len));
}

/* An offset beyond the end gets no answer, and no bytes from there. */
static void test_beyond_the_end(void **state)
{
	struct pair p;
	open_asker(&p, *state, BYTES);
	struct peer_addr at = transport_bound(p.side[1].t);
	assert_true(transport_ask_settings(p.side[0].t, &at, BYTES + 1));
	ask(&p);
	assert_true(answers == 3 && have == BYTES);
	pair_close(&p);
}

/* Nobody takes what was not asked for. */
static void test_what_is_ignored(void **state)
{
	struct pair p;
	struct wire_message m = {.kind = WIRE_SETTINGS, .settings = {.total = 5, .length = 5}};
	open_asker(&p, *state, BYTES);
	connect_pair(&p, 0);
	tell(&p, 0, &m);
	assert_true(post(&p, 0, &(struct peer_addr){0}, 7));
	assert_true(await(&p, second_has_post));
	assert_true(answers == 0 && refused == 0);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_they_come_in_parts),
	        cmocka_unit_test(test_an_agent_without_a_run),
	        cmocka_unit_test(test_nobody_is_there),
	        cmocka_unit_test(test_the_peer_goes),
	        cmocka_unit_test(test_beyond_the_end),
	        cmocka_unit_test(test_what_is_ignored),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

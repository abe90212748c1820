/* SPDX-License-Identifier: MIT */
/* Certificates between two transports: in the handshake, asked for, forged; the owner's list. */
#include "tests/net/transport_pair.h"

#include <sodium.h>
#include <time.h>

static uint8_t owner_secret[SIGN_SECRET_BYTES], invite_secret[SIGN_SECRET_BYTES];
static struct owner owner;
static uint8_t invite[INVITE_BYTES];
static int records; /* that the second was told of */

static void on_news(void *arg, const struct peer_id *from, const struct peer_addr *address,
        enum gossip_channel channel, struct gossip_message *m)
{
	on_message(arg, from, address, channel, m);
	records += m->n_updates;
}

static int setup(void **state)
{
	struct invite v = {.label = "lab", .agents = 4, .expires_s = (uint64_t)time(NULL) + 3600};
	if (sodium_init() < 0)
		return -1;
	crypto_sign_ed25519_keypair(owner.key, owner_secret);
	crypto_sign_ed25519_keypair(v.key, invite_secret);
	invite_sign(&v, owner_secret, invite);
	return make_folder(state);
}

static void admit(struct side *s)
{
	uint8_t own[CERTIFICATE_BYTES];
	struct err e = {0};
	certificate_sign(
	        invite, invite_secret, &s->identity.id, identity_sign_secret(&s->identity), own);
	struct admission *a;
	if (admission_new(&a, &owner, own, 8, (uint64_t)time(NULL), &e))
		fail_msg("%s", e.msg);
	s->t->config.admission = a;
	s->t->config.callbacks.message_cb = on_news;
	records = 0;
}

static void close_admitted(struct pair *p)
{
	struct admission *a[2] = {p->side[0].t->config.admission, p->side[1].t->config.admission};
	pair_close(p);
	admission_free(a[0]);
	admission_free(a[1]);
}

static struct peer_id id_at(const struct pair *p, int side)
{
	return p->side[side].identity.id;
}

static bool first_was_refused(const struct pair *p)
{
	return p->side[0].ups == 1 && p->side[0].t->counters.connections == 0;
}

static void test_without_a_certificate(void **state)
{
	struct pair p;
	pair_open(&p, *state);
	admit(&p.side[1]);
	struct gossip_send s = {.channel = CHANNEL_STREAM,
	        .addrs = one(transport_bound(p.side[1].t)),
	        .message = {.kind = MESSAGE_GOSSIP}};
	transport_send(p.side[0].t, &s);
	assert_true(await(&p, first_was_refused));
	assert_int_equal(p.side[1].ups, 0);
	assert_int_equal(p.side[1].gossips, 0);
	close_admitted(&p);
}

static bool second_has_record(const struct pair *p)
{
	(void)p;
	return records > 0;
}

/* A third's record comes before its certificate: it is held back and comes once that is there. */
static void test_a_certificate_is_asked_for(void **state)
{
	struct pair p;
	struct identity third;
	struct err e = {0};
	char path[300];
	uint8_t bytes[CERTIFICATE_BYTES];
	snprintf(path, sizeof path, "%s/third", (const char *)*state);
	assert_int_equal(identity_open(&third, path, &e), 0);
	pair_open(&p, *state);
	admit(&p.side[0]);
	admit(&p.side[1]);
	connect_pair(&p, 0);
	certificate_sign(invite, invite_secret, &third.id, identity_sign_secret(&third), bytes);
	struct gossip_send s = {.channel = CHANNEL_STREAM,
	        .to_id = true,
	        .id = id_at(&p, 1),
	        .message = {.kind = MESSAGE_GOSSIP, .n_updates = 1}};
	s.message.update[0] = (struct gossip_update){.kind = UPDATE_RECORD,
	        .ours = true,
	        .record = {.id = third.id, .generation = 1, .incarnation = 1}};
	wire_sign_update(&third, &s.message.update[0]);
	assert_int_equal(
	        admission_add(p.side[0].t->config.admission, bytes, sizeof bytes, NULL), 0);
	assert_int_equal(
	        admission_look(p.side[1].t->config.admission, &third.id), ADMISSION_UNKNOWN);
	transport_send(p.side[0].t, &s);
	assert_true(await(&p, second_has_record));
	assert_int_equal(records, 1);
	assert_int_equal(admission_look(p.side[1].t->config.admission, &third.id), ADMITTED);
	close_admitted(&p);
	identity_close(&third);
}

static struct peer_id numbered(int i)
{
	struct peer_id id = {{(uint8_t)(i + 1), (uint8_t)((i + 1) >> 8), 7}};
	return id;
}

/* Records whose certificate nobody has, each from a peer of its own that cannot be reached. */
static int hold(struct transport *t, int from, int n)
{
	int held = 0;
	for (int i = from; i < from + n; i++) {
		struct peer_id speaker = numbered(1000 + i);
		struct peer_addr at = {4, {127, 0, 0, 1}, (uint16_t)(1 + i)};
		struct gossip_update u = {.kind = UPDATE_RECORD, .record.id = numbered(i)};
		held += certificates__hold(t, &speaker, &at, CHANNEL_DATAGRAM, &u);
	}
	return held;
}

static int dialling(const struct transport *t)
{
	int n = 0;
	for (const struct conn *c = t->conns; c; c = c->next)
		n += c->initiator && c->state < CONN_UP;
	return n;
}

static bool nobody_is_dialled(const struct pair *p)
{
	return dialling(p->side[1].t) == 0;
}

static void test_what_is_asked_for_is_bounded(void **state)
{
	struct pair p;
	pair_open(&p, *state);
	admit(&p.side[1]);
	struct transport *t = p.side[1].t;
	assert_int_equal(hold(t, 0, 2 * CERTIFICATES_WANTED), 2 * CERTIFICATES_WANTED);
	assert_int_equal(certificates__held(t), CERTIFICATES_WANTED);
	certificates__ask(t, transport__now(t));
	assert_int_equal(dialling(t), CERTIFICATES_DIALS);
	/* Nobody is dialled twice at one time. */
	certificates__ask(t, transport__now(t) + 5000);
	assert_int_equal(dialling(t), CERTIFICATES_DIALS);
	assert_true(await(&p, nobody_is_dialled));
	/* Nobody answers: they are given up, and there is room. */
	certificates__ask(t, transport__now(t) + CERTIFICATES_HELD_MS - 5000);
	assert_int_equal(certificates__held(t), CERTIFICATES_WANTED);
	assert_true(await(&p, nobody_is_dialled));
	hold(t, 1, 1); /* news of one that waits does not make it wait for longer */
	certificates__ask(t, transport__now(t) + CERTIFICATES_HELD_MS + 5000);
	assert_int_equal(certificates__held(t), 0);
	close_admitted(&p);
}

static bool second_is_alone(const struct pair *p)
{
	return p->side[1].t->counters.connections == 0;
}

/* By one who has the invite: of an id whose key it does not have. */
static void test_a_forged_certificate_ends_the_session(void **state)
{
	struct pair p;
	struct wire_message m = {.kind = WIRE_CERTIFICATES};
	uint8_t bytes[WIRE_BYTES_MAX];
	size_t len;
	pair_open(&p, *state);
	admit(&p.side[0]);
	admit(&p.side[1]);
	connect_pair(&p, 0);
	struct peer_id to = id_at(&p, 1), id = {{1, 2, 3}};
	certificate_sign(invite, invite_secret, &id, identity_sign_secret(&p.side[0].identity),
	        m.admission.bytes);
	m.admission.length = CERTIFICATE_BYTES;
	assert_int_equal(wire_encode(&m, bytes, sizeof bytes, &len), 0);
	assert_true(conn__send(transport__find(p.side[0].t, &to), NULL, bytes, len));
	assert_true(await(&p, second_is_alone));
	close_admitted(&p);
}

static bool second_has_list(const struct pair *p)
{
	return admission_revoked_version(p->side[1].t->config.admission) == 2;
}

/* One that is known when the connection is made, then a newer one. */
static void test_the_owners_list_is_passed_on(void **state)
{
	struct pair p;
	struct revocations r = {.expires_s = (uint64_t)time(NULL) + 3600, .n = 1};
	struct revocations_text text;
	pair_open(&p, *state);
	admit(&p.side[0]);
	admit(&p.side[1]);
	r.entry[0].kind = REVOKED_ID;
	for (r.version = 1; r.version <= 2; r.version++) {
		text.len = revocations_sign(&r, owner_secret, text.bytes);
		assert_int_equal(
		        admission_revoke(p.side[0].t->config.admission, text.bytes, text.len, NULL),
		        0);
		if (r.version == 1)
			connect_pair(&p, 0);
		else
			transport_revoked(p.side[0].t);
	}
	assert_true(await(&p, second_has_list));
	close_admitted(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_without_a_certificate),
	        cmocka_unit_test(test_a_certificate_is_asked_for),
	        cmocka_unit_test(test_what_is_asked_for_is_bounded),
	        cmocka_unit_test(test_a_forged_certificate_ends_the_session),
	        cmocka_unit_test(test_the_owners_list_is_passed_on),
	};
	return cmocka_run_group_tests(tests, setup, remove_folder);
}

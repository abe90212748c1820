/* SPDX-License-Identifier: MIT */
/* What is signed, to the byte; and what a later version says of itself, through agents that do not
 * know all of it. */
#include "net/crypto/identity.h"
#include "tests/net/wire_fill.h"
#include "tests/support.h"

#include <sodium.h>

struct fixture {
	struct identity me, other;
};

static int setup(void **state)
{
	static struct fixture f;
	char path[512];
	void *folder;
	struct err e = {0};
	if (sodium_init() < 0 || make_folder(&folder) != 0)
		return -1;
	snprintf(path, sizeof path, "%s/me", (char *)folder);
	int rc = identity_open(&f.me, path, &e);
	snprintf(path, sizeof path, "%s/other", (char *)folder);
	rc = rc ? rc : identity_open(&f.other, path, &e);
	*state = &f;
	return rc || remove_folder(&folder) ? -1 : 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	identity_close(&f->me);
	identity_close(&f->other);
	return 0;
}

static struct gossip_update a_record(const struct peer_id *id)
{
	struct gossip_update u = {.kind = UPDATE_RECORD, .ours = true};
	u.record = (struct member_record){.id = *id,
	        .generation = 3,
	        .nonce = 2,
	        .incarnation = 1,
	        .version = 4,
	        .dialable = true,
	        .addrs = {2, {{4, {10, 0, 0, 7}, 7946}, {6, {0xfd, [15] = 7}, 1}}},
	        .protocol_min = 1,
	        .protocol_max = 0x0203,
	        .status = {.model = 5, .step = 6, .samples = 7, .loss = 1.5f}};
	return u;
}

static struct gossip_update an_accusation(const struct peer_id *by)
{
	struct gossip_update u = {.kind = UPDATE_ACCUSATION, .ours = true};
	u.accusation = (struct accusation){
	        .about = {{9, 9}}, .generation = 8, .incarnation = 7, .by = *by, .dead = true};
	return u;
}

/* The signature is the last element, over the domain and all bytes before it. */
static void is_signed(
        const struct peer_id *by, const char *domain, const uint8_t *bytes, size_t len)
{
	uint8_t text[2000];
	size_t n = strlen(domain) + 1;
	assert_true(len > 66 && n + len <= sizeof text);
	memcpy(text, domain, n);
	memcpy(text + n, bytes, len - 66);
	assert_memory_equal(bytes + len - 66, "\xc4\x40", 2);
	assert_int_equal(crypto_sign_ed25519_verify_detached(
	                         bytes + len - 64, text, n + len - 66, by->bytes),
	        0);
}

/* Agents of different builds sign for each other. */
static void test_what_is_signed(void **state)
{
	const struct fixture *f = *state;
	struct gossip_update u = a_record(&f->me.id);
	struct gossip_message m = {.kind = MESSAGE_SKETCH};
	uint8_t out[WIRE_BYTES_MAX];
	size_t len;
	wire_sign_update(&f->me, &u);
	is_signed(&f->me.id, "dunlin update v1", u.raw.bytes, u.raw.length);
	assert_int_equal(u.raw.bytes[0], 0x9f);
	u = an_accusation(&f->me.id);
	wire_sign_update(&f->me, &u);
	is_signed(&f->me.id, "dunlin update v1", u.raw.bytes, u.raw.length);
	assert_int_equal(u.raw.bytes[0], 0x97);
	m.sketch = (struct member_sketch){.id = f->me.id,
	        .generation = 0x0102,
	        .step = 3,
	        .length = 2,
	        .bytes = {0xfe, 0xff}};
	wire_sign_sketch(&f->me, &m.sketch);
	assert_int_equal(wire_encode_gossip(&m, out, sizeof out, &len), 0);
	is_signed(&f->me.id, "dunlin sketch v1", out, len);
}

/* Through a GOSSIP message: ERR_FORMAT if it is none any more, else what its signature says. */
static int received(const struct gossip_update *u, struct gossip_update *out)
{
	struct gossip_message m = {.kind = MESSAGE_GOSSIP, .n_updates = 1};
	struct wire_message back;
	uint8_t bytes[WIRE_BYTES_MAX];
	size_t len;
	m.update[0] = *u;
	assert_int_equal(wire_encode_gossip(&m, bytes, sizeof bytes, &len), 0);
	if (wire_decode(bytes, len, &back, NULL) != 0)
		return ERR_FORMAT;
	*out = back.gossip.update[0];
	return wire_verify_update(out);
}

static void test_every_byte_counts(void **state)
{
	const struct fixture *f = *state;
	struct gossip_update said[] = {a_record(&f->me.id), an_accusation(&f->me.id)}, u;
	for (int k = 0; k < 2; k++) {
		wire_sign_update(&f->me, &said[k]);
		assert_int_equal(received(&said[k], &u), 0);
		assert_int_equal(u.raw.length, said[k].raw.length);
		for (size_t i = 0; i < u.raw.length; i++) {
			struct gossip_update changed = said[k];
			changed.raw.bytes[i] ^= 0x10;
			assert_int_not_equal(received(&changed, &u), 0);
		}
		/* By another, whose id stands in its place. */
		struct gossip_update stolen = said[k];
		memcpy(stolen.raw.bytes + (k == 0 ? 4 : 3 + 33 + 2 + 2), f->other.id.bytes, 32);
		assert_int_not_equal(received(&stolen, &u), 0);
	}
	u = a_record(&f->me.id); /* with no bytes at all */
	assert_int_equal(wire_verify_update(&u), ERR_FORMAT);
	u.raw.length = GOSSIP_UPDATE_BYTES + 1;
	assert_int_equal(wire_verify_update(&u), ERR_FORMAT);
}

static void test_sketches(void **state)
{
	const struct fixture *f = *state;
	struct member_sketch sketch = {.id = f->me.id,
	                             .generation = 1,
	                             .step = 2,
	                             .length = GOSSIP_SKETCH_BYTES},
	                     s;
	wire_sign_sketch(&f->me, &sketch);
	assert_int_equal(wire_verify_sketch(&sketch), 0);
	s = sketch, s.length--;
	assert_int_equal(wire_verify_sketch(&s), ERR_MISMATCH);
	s = sketch, s.bytes[GOSSIP_SKETCH_BYTES - 1]++;
	assert_int_equal(wire_verify_sketch(&s), ERR_MISMATCH);
	s = sketch, s.step++;
	assert_int_equal(wire_verify_sketch(&s), ERR_MISMATCH);
	s = sketch, s.generation++;
	assert_int_equal(wire_verify_sketch(&s), ERR_MISMATCH);
	s = sketch, s.id = f->other.id;
	assert_int_equal(wire_verify_sketch(&s), ERR_MISMATCH);
}

/* As a later version signs it, with all of today's fields: `more` stands for elements that are not
 * known here. */
static void sign_later(
        const struct identity *i, struct gossip_update *u, const char *more, size_t len, int count)
{
	uint8_t text[17 + GOSSIP_UPDATE_BYTES] = "dunlin update v1", *bytes = text + 17;
	const struct wire__head h = {1, {u->kind}, (uint8_t)(count + 1)};
	struct wire__layout all = wire__updates[u->kind];
	all.least = all.n;
	size_t n = wire__put(bytes, GOSSIP_UPDATE_BYTES, &h, &all,
	        u->kind == UPDATE_RECORD ? (void *)&u->record : &u->accusation);
	assert_true(n > 0 && n + len + 66 <= GOSSIP_UPDATE_BYTES);
	memcpy(bytes + n, more, len);
	n += len;
	memcpy(bytes + n, "\xc4\x40", 2);
	identity__sign(i, text, 17 + n, bytes + n + 2);
	memcpy(u->raw.bytes, bytes, n + 66);
	u->raw.length = (uint16_t)(n + 66);
}

#define NEWS "\xcd\x12\x34\xa5words\x92\xc3\xc0" /* a number, a text, an array */
#define NEWS_COUNT 3

/* The record reaches an agent that does not know its last fields. What this agent's core sends on
 * is still what was signed. */
static void test_a_longer_record_travels_on(void **state)
{
	static struct gossip_actions a;
	const struct fixture *f = *state;
	struct gossip_update said = a_record(&f->me.id), heard, again;
	struct gossip_config c = {
	        .profile = gossip_lan, .self = f->other.id, .generation = 1, .nonce = 1};
	struct gossip *g;
	void *memory = calloc(1, gossip_size(&c));
	assert_int_equal(gossip_init(&g, memory, gossip_size(&c), &c, NULL), 0);

	sign_later(&f->me, &said, NEWS, sizeof NEWS - 1, NEWS_COUNT);
	assert_int_equal(received(&said, &heard), 0);
	assert_int_equal(heard.record.status.samples, 7);
	assert_true(heard.record.status.loss == 1.5f && heard.record.addrs.n == 2);

	struct gossip_message m = {.kind = MESSAGE_GOSSIP, .n_updates = 1};
	m.update[0] = heard;
	gossip_step(g, &(struct gossip_event){.kind = EVENT_START, .now_ms = 1000}, &a);
	gossip_step(g,
	        &(struct gossip_event){.kind = EVENT_RECEIVED,
	                .now_ms = 1000,
	                .received = {{{1}}, {0}, CHANNEL_STREAM, &m}},
	        &a);
	struct gossip_message ask = {.kind = MESSAGE_SYNC, .want_reply = true};
	gossip_step(g,
	        &(struct gossip_event){.kind = EVENT_RECEIVED,
	                .now_ms = 1001,
	                .received = {{{1}}, {0}, CHANNEL_STREAM, &ask}},
	        &a);
	int seen = 0;
	for (int i = 0; i < a.n_sends; i++) {
		const struct gossip_message *page = &a.send[i].message;
		for (int k = 0; k < page->n_updates; k++) {
			if (page->update[k].ours)
				continue;
			assert_int_equal(received(&page->update[k], &again), 0);
			assert_int_equal(again.raw.length, said.raw.length);
			assert_memory_equal(again.raw.bytes, said.raw.bytes, said.raw.length);
			seen++;
		}
	}
	assert_true(seen >= 1);
	free(memory);
}

/* Changed, moved or cut off on the way: none of it passes. */
static void test_what_is_not_known_is_signed(void **state)
{
	const struct fixture *f = *state;
	struct gossip_update said[] = {a_record(&f->me.id), an_accusation(&f->me.id)}, u;
	for (int k = 0; k < 2; k++) {
		struct gossip_update plain = said[k];
		sign_later(&f->me, &said[k], NEWS, sizeof NEWS - 1, NEWS_COUNT);
		assert_int_equal(received(&said[k], &u), 0);
		for (size_t i = 0; i < sizeof NEWS - 1; i++) {
			struct gossip_update changed = said[k];
			changed.raw.bytes[said[k].raw.length - 66 - sizeof NEWS + 1 + i] ^= 1;
			assert_int_not_equal(received(&changed, &u), 0);
		}
		/* Without what follows, under the same signature. */
		wire_sign_update(&f->me, &plain);
		memcpy(plain.raw.bytes + plain.raw.length - 64,
		        said[k].raw.bytes + said[k].raw.length - 64, 64);
		assert_int_equal(received(&plain, &u), ERR_MISMATCH);
	}
}

/* As long as it may be, and one byte more: no peer decides how much we keep. */
static void test_a_record_has_a_bound(void **state)
{
	const struct fixture *f = *state;
	struct gossip_update u = a_record(&f->me.id), back;
	uint8_t message[GOSSIP_UPDATE_BYTES + 8] = {0x92, 0x04, 0x91};
	struct wire_message m;
	struct err e = {0};
	char more[GOSSIP_UPDATE_BYTES] = "\xc4";
	sign_later(&f->me, &u, "\xc4\x00", 2, 1);
	size_t room = GOSSIP_UPDATE_BYTES - (size_t)u.raw.length;
	more[1] = (char)room;
	sign_later(&f->me, &u, more, room + 2, 1);
	assert_int_equal(u.raw.length, GOSSIP_UPDATE_BYTES);
	assert_int_equal(received(&u, &back), 0);
	assert_memory_equal(&back.raw, &u.raw, sizeof u.raw);

	size_t at = (size_t)u.raw.length - 66 - room - 1;
	memcpy(message + 3, u.raw.bytes, at);
	message[3 + at] = (uint8_t)(room + 1);
	memcpy(message + 3 + at + 2, u.raw.bytes + at + 1, GOSSIP_UPDATE_BYTES - at - 1);
	assert_int_equal(wire_decode(message, 3 + GOSSIP_UPDATE_BYTES + 1, &m, &e), ERR_FORMAT);
	assert_non_null(strstr(e.msg, "update: 321 bytes, at most 320"));
}

/* A sketch has no more than its five fields; what follows is passed over. */
static void test_a_longer_sketch(void **state)
{
	const struct fixture *f = *state;
	struct gossip_message m = {.kind = MESSAGE_SKETCH};
	struct wire_message back;
	uint8_t out[WIRE_BYTES_MAX];
	size_t len;
	m.sketch = (struct member_sketch){
	        .id = f->me.id, .generation = 2, .step = 3, .length = 2, .bytes = {0xfe, 0xff}};
	wire_sign_sketch(&f->me, &m.sketch);
	assert_int_equal(wire_encode_gossip(&m, out, sizeof out, &len), 0);
	out[0]++;
	out[len++] = 0xc0;
	assert_int_equal(wire_decode(out, len, &back, NULL), 0);
	assert_int_equal(wire_verify_sketch(&back.gossip.sketch), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_what_is_signed),
	        cmocka_unit_test(test_every_byte_counts),
	        cmocka_unit_test(test_sketches),
	        cmocka_unit_test(test_a_longer_record_travels_on),
	        cmocka_unit_test(test_what_is_not_known_is_signed),
	        cmocka_unit_test(test_a_record_has_a_bound),
	        cmocka_unit_test(test_a_longer_sketch),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}

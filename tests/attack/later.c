/* SPDX-License-Identifier: MIT */
/* An agent of a later version: with ROGUE_LATER=1 the rogue agent says more than today's table has,
 * two elements at the end of every message and two fields in every record that it signs. It is
 * linked as rogue.c says, between the agent's own objects. */
#include "net/codec/wire.h"
#include "net/codec/wire_table.h"
#include "net/crypto/identity.h"

#include <stdlib.h>
#include <string.h>

#define MORE "\xcd\x12\x34\x92\xc3\xa5later" /* a number, an array */
#define MORE_BYTES (sizeof MORE - 1)

/* Two elements at the end of the array in out. */
static int add(uint8_t *out, size_t cap, size_t *len, int rc)
{
	if (rc != 0 || !getenv("ROGUE_LATER"))
		return rc;
	if ((out[0] & 0xf0) != 0x90 || out[0] > 0x9d || *len + MORE_BYTES > cap)
		return ERR_LIMIT;
	out[0] = (uint8_t)(out[0] + 2);
	memcpy(out + *len, MORE, MORE_BYTES);
	*len += MORE_BYTES;
	return 0;
}

/* The same of an exchange's message, whose optional fields are there then even if they are zero. */
static int exchange(const struct exchange_message *x, uint8_t *out, size_t cap, size_t *len)
{
	struct wire__layout all = wire__exchanges[x->kind];
	const struct wire__head h = {2, {WIRE_EXCHANGE, x->kind}, 2};

	all.least = all.n;
	*len = wire__put(out, cap, &h, &all, x);
	if (*len == 0 || *len + MORE_BYTES > cap)
		return ERR_LIMIT;
	memcpy(out + *len, MORE, MORE_BYTES);
	*len += MORE_BYTES;
	return 0;
}

int __real_wire_encode(const struct wire_message *m, uint8_t *out, size_t cap, size_t *len);
int __wrap_wire_encode(const struct wire_message *m, uint8_t *out, size_t cap, size_t *len);
int __wrap_wire_encode(const struct wire_message *m, uint8_t *out, size_t cap, size_t *len)
{
	if (m->kind == WIRE_EXCHANGE && getenv("ROGUE_LATER"))
		return exchange(&m->exchange, out, cap, len);
	int rc = __real_wire_encode(m, out, cap, len);
	/* What comes after an optional element makes it be sent, even if it is empty. */
	if (rc == 0 && getenv("ROGUE_LATER") && m->kind == WIRE_HELLO && out[0] == 0x99 &&
	        *len + 2 <= cap) {
		out[0]++;
		memcpy(out + *len, "\xc4", 2); /* no bytes of a certificate */
		*len += 2;
	}
	return add(out, cap, len, rc);
}

int __real_wire_encode_gossip(
        const struct gossip_message *m, uint8_t *out, size_t cap, size_t *len);
int __wrap_wire_encode_gossip(
        const struct gossip_message *m, uint8_t *out, size_t cap, size_t *len);
int __wrap_wire_encode_gossip(const struct gossip_message *m, uint8_t *out, size_t cap, size_t *len)
{
	return add(out, cap, len, __real_wire_encode_gossip(m, out, cap, len));
}

/* Today's record and a longer table. */
struct later_record {
	struct member_record today;
	uint64_t number;
	char text[12];
};

void __real_wire_sign_update(const struct identity *i, struct gossip_update *u);
void __wrap_wire_sign_update(const struct identity *i, struct gossip_update *u);
void __wrap_wire_sign_update(const struct identity *i, struct gossip_update *u)
{
	const struct wire__layout *today = &wire__updates[UPDATE_RECORD];
	struct later_record r = {u->record, 1ull << 40, "later"};
	struct wire__field field[32];
	uint8_t text[17 + GOSSIP_UPDATE_BYTES] = "dunlin update v1", *bytes = text + 17;
	const struct wire__head h = {1, {UPDATE_RECORD}, 1};
	if (u->kind != UPDATE_RECORD || !getenv("ROGUE_LATER")) {
		__real_wire_sign_update(i, u);
		return;
	}
	memcpy(field, today->field, today->n * sizeof *field);
	field[today->n] = (struct wire__field){
	        "number", FIELD_UINT, WIRE__AT(later_record, number), .max = UINT64_MAX};
	field[today->n + 1] =
	        (struct wire__field){"text", FIELD_TEXT, WIRE__AT(later_record, text)};
	const struct wire__layout later = {"record", field, (uint8_t)(today->n + 2), today->least};
	size_t n = wire__put(bytes, GOSSIP_UPDATE_BYTES - 66, &h, &later, &r);
	if (n == 0)
		abort();
	memcpy(bytes + n, "\xc4\x40", 2);
	identity__sign(i, text, 17 + n, bytes + n + 2);
	u->raw.length = (uint16_t)(n + 66);
	memcpy(u->raw.bytes, bytes, u->raw.length);
}

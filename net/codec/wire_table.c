/* SPDX-License-Identifier: MIT */
/* Every field of every message: its name, type, range and place (wire_table.h says how to add one).
 *
 * A peer's numbers will move weights, so each float has its range here, where it enters: beta in
 * (0, 1], factors in [0, 1], radii finite and not negative. What a number means to us (is that our
 * model? do we know that format?) is the core's to judge. A loss may be anything: it is still what
 * was signed. */
#include "net/codec/wire_table.h"

#include "net/codec/wire.h"

#include <float.h>

/* clang-format off */
#define UINT(s, f, name, lo, hi) \
	{name, FIELD_UINT, WIRE__AT(s, f), .min = (lo), .max = (hi)}
#define ANY(s, f, name) UINT(s, f, name, 0, UINT64_MAX)
#define BYTE(s, f, name) UINT(s, f, name, 0, UINT8_MAX)
#define FLAGS(s, f, name, n) {name, FIELD_FLAGS, .at = offsetof(struct s, f), .size = (n)}
#define BOOL(s, f, name) {name, FIELD_BOOL, WIRE__AT(s, f)}
#define FLOAT(s, f, name, lo, hi) {name, FIELD_FLOAT, WIRE__AT(s, f), .low = (lo), .high = (hi)}
#define FLOATS(s, f, count, name, more, hi) \
	{name, FIELD_FLOATS, WIRE__AT(s, f), WIRE__COUNT(s, count), .extra = (more), .high = (hi)}
#define BYTES(s, f, name) {name, FIELD_BYTES, WIRE__AT(s, f)}
#define BLOB(s, f, count, name) {name, FIELD_BLOB, WIRE__AT(s, f), WIRE__COUNT(s, count)}
#define TEXT(s, f, name) {name, FIELD_TEXT, WIRE__AT(s, f)}
#define ADDR(s, f, name) {name, FIELD_ADDR, WIRE__AT(s, f)}
#define ADDRS(s, f, name) {name, FIELD_ADDRS, WIRE__AT(s, f)}
#define MANIFEST(s, f) {"manifest", FIELD_INNER, WIRE__AT(s, f), .inner = &manifests}
#define PROTOCOL(s, f, g) \
	UINT(s, f, "protocol_min", 0, UINT16_MAX), \
	{"protocol_max", FIELD_UINT, WIRE__AT(s, g), .max = UINT16_MAX, .ordered = true}
/* clang-format on */

/* ---- membership */

static const struct wire__field record[] = {
        BYTES(member_record, id, "id"),
        UINT(member_record, generation, "generation", 1, UINT64_MAX),
        ANY(member_record, nonce, "nonce"),
        ANY(member_record, incarnation, "incarnation"),
        ANY(member_record, version, "version"),
        FLAGS(member_record, left, "flags", 2), /* left, dialable */
        ADDRS(member_record, addrs, "addresses"),
        PROTOCOL(member_record, protocol_min, protocol_max),
        ANY(member_record, status.model, "model"),
        ANY(member_record, status.step, "step"),
        ANY(member_record, status.samples, "samples"),
        FLOAT(member_record, status.loss, "loss", 0, 0),
};
_Static_assert(offsetof(struct member_record, dialable) == offsetof(struct member_record, left) + 1,
        "flags are bools in a row");

static const struct wire__field accusation[] = {
        BYTES(accusation, about, "about"),
        UINT(accusation, generation, "generation", 1, UINT64_MAX),
        ANY(accusation, incarnation, "incarnation"),
        BYTES(accusation, by, "by"),
        BOOL(accusation, dead, "dead"),
};

const struct wire__layout wire__updates[] = {
        [UPDATE_RECORD] = WIRE__LAYOUT("record", record, 13),
        [UPDATE_ACCUSATION] = WIRE__LAYOUT("accusation", accusation, 5),
};

#define NONCE ANY(gossip_message, nonce, "nonce")
#define TARGET BYTES(gossip_message, target, "target")
#define UPDATES                                                            \
	{                                                                  \
		"updates", FIELD_UPDATES, WIRE__AT(gossip_message, update) \
	}

static const struct wire__field ping[] = {NONCE, TARGET, UPDATES};
static const struct wire__field ack[] = {NONCE, UPDATES};
static const struct wire__field nack[] = {NONCE, UPDATES};
static const struct wire__field ping_req[] = {
        NONCE, TARGET, ADDR(gossip_message, address, "address"), UPDATES};
static const struct wire__field gossip[] = {UPDATES};
static const struct wire__field sync[] = {BOOL(gossip_message, want_reply, "want_reply"), UPDATES};
static const struct wire__field sketch[] = {
        BYTES(member_sketch, id, "id"),
        UINT(member_sketch, generation, "generation", 1, UINT64_MAX),
        ANY(member_sketch, step, "step"),
        BLOB(member_sketch, bytes, length, "bytes"),
        BYTES(member_sketch, signature, "signature"),
};

/* ---- sessions */

#define HELLO                                                           \
	PROTOCOL(wire_message, hello.protocol_min, hello.protocol_max), \
	        BLOB(wire_message, hello.cipher, hello.n_ciphers, "ciphers")
static const struct wire__field hello[] = {HELLO};
static const struct wire__field hello_full[] = {
        HELLO,
        BYTES(wire_message, hello.id, "id"),
        BYTES(wire_message, hello.signature, "signature"),
        UINT(wire_message, hello.generation, "generation", 1, UINT64_MAX),
        ADDRS(wire_message, hello.addrs, "addresses"),
        FLAGS(wire_message, hello.dialable, "flags", 1),
        BLOB(wire_message, hello.certificate, hello.certificate_length, "certificate"),
};
const struct wire__layout wire__hello_full = WIRE__LAYOUT("hello", hello_full, 8);

static const struct wire__field refusal[] = {
        UINT(wire_message, refusal.why, "why", 0, UINT16_MAX),
        TEXT(wire_message, refusal.words, "words"),
};
static const struct wire__field session_ping[] = {ANY(wire_message, nonce, "nonce")};
static const struct wire__field bulk_open[] = {
        BYTES(wire_message, bulk.session, "session"),
        BYTES(wire_message, bulk.token, "token"),
        ANY(wire_message, bulk.exchange, "exchange"),
        UINT(wire_message, bulk.attempt, "attempt", 1, UINT64_MAX),
};
static const struct wire__field admission[] = {
        BLOB(wire_message, admission.bytes, admission.length, "bytes"),
};

#define SETTINGS_OFFSET UINT(wire_message, settings.offset, "offset", 0, SETTINGS_BYTES_MAX)
static const struct wire__field want_settings[] = {SETTINGS_OFFSET};
static const struct wire__field settings[] = {
        SETTINGS_OFFSET,
        UINT(wire_message, settings.total, "total", 0, SETTINGS_BYTES_MAX),
        BLOB(wire_message, settings.bytes, settings.length, "bytes"),
};

const struct wire__layout wire__messages[WIRE__MESSAGES] = {
        [MESSAGE_PING] = WIRE__LAYOUT("ping", ping, 3),
        [MESSAGE_ACK] = WIRE__LAYOUT("ack", ack, 2),
        [MESSAGE_NACK] = WIRE__LAYOUT("nack", nack, 2),
        [MESSAGE_PING_REQ] = WIRE__LAYOUT("ping-req", ping_req, 4),
        [MESSAGE_GOSSIP] = WIRE__LAYOUT("gossip", gossip, 1),
        [MESSAGE_SYNC] = WIRE__LAYOUT("sync", sync, 2),
        [MESSAGE_SKETCH] = WIRE__LAYOUT("sketch", sketch, 5),
        [WIRE_HELLO] = WIRE__LAYOUT("hello", hello, 3),
        [WIRE_REFUSE] = WIRE__LAYOUT("refuse", refusal, 2),
        [WIRE_PING] = WIRE__LAYOUT("session ping", session_ping, 1),
        [WIRE_PONG] = WIRE__LAYOUT("session pong", session_ping, 1),
        [WIRE_BULK_OPEN] = WIRE__LAYOUT("bulk-open", bulk_open, 4),
        [WIRE_BYE] = WIRE__LAYOUT("bye", refusal, 2),
        [WIRE_EXCHANGE] = {"exchange", NULL, 0, 0}, /* by its own kind, below */
        [WIRE_CERTIFICATES] = WIRE__LAYOUT("certificates", admission, 1),
        [WIRE_WANT_CERTIFICATES] = WIRE__LAYOUT("want-certificates", admission, 1),
        [WIRE_REVOKED] = WIRE__LAYOUT("revoked", admission, 1),
        [WIRE_WANT_SETTINGS] = WIRE__LAYOUT("want-settings", want_settings, 1),
        [WIRE_SETTINGS] = WIRE__LAYOUT("settings", settings, 3),
};

/* ---- exchanges */

static const struct wire__field manifest[] = {
        ANY(manifest, run, "run"),
        ANY(manifest, model, "model"),
        ANY(manifest, init, "init"),
        ANY(manifest, count, "count"),
        ANY(manifest, total, "total"),
        ANY(manifest, optimizer, "optimizer"),
        ANY(manifest, mode, "mode"),
        ANY(manifest, formats, "formats"),
        ANY(manifest, outer, "outer"), /* optional, as what follows: none */
        ANY(manifest, data, "data"),
};
static const struct wire__layout manifests = WIRE__LAYOUT("manifest", manifest, 8);

#define NUMBER UINT(exchange_message, exchange, "exchange", 1, UINT64_MAX)

static const struct wire__field terms[] = {
        NUMBER,
        MANIFEST(exchange_message, terms.manifest),
        ANY(exchange_message, terms.step, "step"),
        ANY(exchange_message, terms.samples, "samples"),
        ANY(exchange_message, terms.clock, "clock"),
        BYTE(exchange_message, terms.mode, "mode"),
        BYTE(exchange_message, terms.format, "format"),
        BOOL(exchange_message, terms.final, "final"),
        FLOAT(exchange_message, terms.beta, "beta", FLT_TRUE_MIN, 1),
        BLOB(exchange_message, terms.sketch, terms.sketch_length, "sketch"),
        BLOB(exchange_message, terms.scales, terms.n_scales, "scales"),
        UINT(exchange_message, terms.step_ms, "step_ms", 0, UINT32_MAX),
};
static const struct wire__field busy[] = {
        NUMBER,
        {"why", FIELD_UINT, WIRE__AT(exchange_message, busy.why), .max = EXCHANGE_WHYS - 1,
                .unknown = EXCHANGE_OTHER},
        TEXT(exchange_message, busy.words, "words"),
        MANIFEST(exchange_message, busy.manifest), /* with EXCHANGE_UNLIKE */
};
static const struct wire__field open_bulk[] = {NUMBER};
static const struct wire__field commit[] = {NUMBER};
static const struct wire__field applied[] = {NUMBER};
static const struct wire__field end[] = {
        NUMBER,
        FLOATS(exchange_message, end.factor, end.n, "factor", 0, 1),
        FLOAT(exchange_message, end.word.x2, "x2", 0, FLT_MAX),
        FLOAT(exchange_message, end.word.lr, "lr", 0, FLT_MAX),
        BOOL(exchange_message, end.word.far, "far"),
};
static const struct wire__field settle[] = {
        NUMBER, UINT(exchange_message, settlement, "settlement", 0, SETTLE_APPLIED)};
static const struct wire__field fetch[] = {
        NUMBER,
        MANIFEST(exchange_message, fetch.manifest),
        ANY(exchange_message, fetch.snapshot, "snapshot"),
        ANY(exchange_message, fetch.offset, "offset"),
};
static const struct wire__field gift[] = {
        NUMBER,
        MANIFEST(exchange_message, gift.manifest),
        ANY(exchange_message, gift.snapshot, "snapshot"),
        ANY(exchange_message, gift.offset, "offset"),
        ANY(exchange_message, gift.step, "step"),
        ANY(exchange_message, gift.samples, "samples"),
        ANY(exchange_message, gift.clock, "clock"),
        ANY(exchange_message, gift.optim_steps, "optim_steps"),
        BYTE(exchange_message, gift.optimizer, "optimizer"),
        UINT(exchange_message, gift.vectors, "vectors", 2, 3),
        FLOATS(exchange_message, gift.radius, gift.n, "radius", 1, FLT_MAX),
        /* Optional. */
        ANY(exchange_message, gift.batch, "batch"),
        FLOAT(exchange_message, gift.noise, "noise", 0, FLT_MAX),
        FLOAT(exchange_message, gift.signal, "signal", -FLT_MAX, FLT_MAX),
};
static const struct wire__field soon[] = {
        NUMBER, UINT(exchange_message, step_ms, "step_ms", 0, UINT32_MAX)};

const struct wire__layout wire__exchanges[EXCHANGE_KINDS] = {
        [EXCHANGE_OFFER] = WIRE__LAYOUT("offer", terms, 10),
        [EXCHANGE_ACCEPT] = WIRE__LAYOUT("accept", terms, 10),
        [EXCHANGE_BUSY] = WIRE__LAYOUT("busy", busy, 3),
        [EXCHANGE_OPEN] = WIRE__LAYOUT("open", open_bulk, 1),
        [EXCHANGE_END] = WIRE__LAYOUT("end", end, 2),
        [EXCHANGE_COMMIT] = WIRE__LAYOUT("commit", commit, 1),
        [EXCHANGE_ACK] = WIRE__LAYOUT("exchange ack", applied, 1),
        [EXCHANGE_ABORT] = WIRE__LAYOUT("abort", busy, 3),
        [EXCHANGE_SETTLE] = WIRE__LAYOUT("settle", settle, 2),
        [EXCHANGE_FETCH] = WIRE__LAYOUT("fetch", fetch, 4),
        [EXCHANGE_GIFT] = WIRE__LAYOUT("gift", gift, 11),
        [EXCHANGE_SOON] = WIRE__LAYOUT("soon", soon, 2),
};
_Static_assert(WIRE__MESSAGES == WIRE_SETTINGS + 1, "the table ends with the last kind");

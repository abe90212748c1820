/* SPDX-License-Identifier: MIT */
/* From a line of JSON to a line of JSON; no socket, so that tests and a fuzzer can ask anything.
 *
 * Most answers are small and printed at once. That of `peers` is not: thousands of members take
 * milliseconds to print, more than the loop may be held up. So what is known is copied first, which
 * is quick and a view of one moment, and printed in slices later.
 *
 * What can fail is the request, which is answered with an error, or memory. */
#include "agent/control/control.h"

#include "agent/base/textlist.h"
#include "agent/config/options.h"
#include "agent/control/control_flock.h"
#include "agent/json/jsonout.h"
#include "agent/json/jsontext.h"
#include "agent/node/token.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEALTH_POOR 4 /* of GOSSIP_HEALTH_MAX: worth a word */
#define NO_TRAINING "this agent does not train (--no-train)"

static const char *const states[] = {"alive", "suspect", "dead", "left"};
_Static_assert(MEMBER_LEFT == 3, "the list above follows its enum");

struct control_row {
	struct peer_id id;
	struct peer_addrs addrs;
	struct peer_addr in_use;
	uint8_t state;
	bool connected, unreachable, dialable;
	uint16_t protocol_min, protocol_max;
	float loss;
	uint64_t since_ms, step, samples, generation, incarnation;
};

/* ---- status */

static int print_addrs(const struct peer_addrs *a, struct buf *out)
{
	char text[64];
	int rc = buf_printf(out, ",\"addrs\":[");
	for (int i = 0; i < a->n && rc == 0; i++)
		rc = buf_printf(out, "%s\"%s\"", i ? "," : "", peer_addr_text(&a->at[i], text));
	return rc ? rc : buf_printf(out, "]");
}

static int print_agent(const struct control_view *v, struct buf *out)
{
	const struct member_record *self = gossip_self(v->gossip);
	char id[ID_HEX], listen[64], advertise[64];
	id_hex(&self->id, id);
	int rc = buf_printf(out, ",\"name\":");
	if (rc == 0)
		rc = buf_json_string(out, v->name);
	if (rc)
		return rc;
	rc = buf_printf(out,
	        ",\"id\":\"%s\",\"version\":\"%s\",\"protocol\":[%u,%u],\"generation\":%" PRIu64
	        ",\"uptime_s\":%.3f,\"listen\":\"%s\",\"advertise\":\"%s\",\"dialable\":%s,"
	        "\"profile\":\"%s\"",
	        id, v->version, self->protocol_min, self->protocol_max, self->generation,
	        (double)v->uptime_ms / 1000, peer_addr_text(&v->listen, listen),
	        peer_addr_text(&self->addrs.at[0], advertise), self->dialable ? "true" : "false",
	        v->wan ? "wan" : "lan");
	return rc ? rc : print_addrs(&self->addrs, out);
}

static int print_membership(const struct control_view *v, struct buf *out)
{
	const struct gossip *g = v->gossip;
	struct gossip_counters c = gossip_counters(g);
	return buf_printf(out,
	        ",\"peers\":{\"alive\":%u,\"suspect\":%u,\"dead\":%u,\"left\":%u},"
	        "\"clock\":%" PRIu64 ",\"membership\":{\"refused\":%" PRIu64 ",\"evicted\":%" PRIu64
	        ",\"dropped_relays\":%" PRIu64 ",\"dropped_syncs\":%" PRIu64
	        ",\"dropped_notices\":%" PRIu64 ",\"refutations\":%" PRIu64 ",\"probes\":%" PRIu64
	        ",\"probes_failed\":%" PRIu64 ",\"time_jumps\":%" PRIu64 "}",
	        gossip_count_state(g, MEMBER_ALIVE), gossip_count_state(g, MEMBER_SUSPECT),
	        gossip_count_state(g, MEMBER_DEAD), gossip_count_state(g, MEMBER_LEFT),
	        gossip_clock(g), c.refused, c.evicted, c.dropped_relays, c.dropped_syncs,
	        c.dropped_notices, c.refutations, c.probes, c.probes_failed, c.time_jumps);
}

static int print_loop_and_net(const struct control_view *v, struct buf *out)
{
	const struct transport_counters *n = &v->net;
	return buf_printf(out,
	        ",\"loop\":{\"lag_us_last\":%" PRIu64 ",\"lag_us_p99\":%" PRIu64
	        ",\"lag_us_max\":%" PRIu64 ",\"slow_callbacks\":%" PRIu64
	        "},\"net\":{\"bytes_sent\":%" PRIu64 ",\"bytes_received\":%" PRIu64
	        ",\"datagrams_sent\":%" PRIu64 ",\"datagrams_received\":%" PRIu64
	        ",\"datagrams_refused\":%" PRIu64 ",\"streams_dialled\":%" PRIu64
	        ",\"streams_accepted\":%" PRIu64 ",\"handshakes_failed\":%" PRIu64
	        ",\"strangers_refused\":%" PRIu64 ",\"messages_dropped\":%" PRIu64
	        ",\"news_forbidden\":%" PRIu64 ",\"news_forged\":%" PRIu64
	        ",\"news_unverified\":%" PRIu64
	        ",\"connections\":%u,\"half_open\":%u},\"rss_kb\":%" PRIu64,
	        v->lag.last_us, v->lag.p99_us, v->lag.max_us, v->lag.slow_callbacks, n->bytes_sent,
	        n->bytes_received, n->datagrams_sent, n->datagrams_received, n->datagrams_refused,
	        n->streams_dialled, n->streams_accepted, n->handshakes_failed, n->strangers_refused,
	        n->messages_dropped, n->news_forbidden, n->news_forged, n->news_unverified,
	        n->connections, n->half_open, v->rss_kb);
}

/* For an agent that keeps membership and nothing else; a flock has its own words. */
static const char *membership_words(const struct gossip *g)
{
	if (gossip_health(g) >= HEALTH_POOR)
		return "slow to answer: this machine or its network is overloaded";
	if (gossip_count_state(g, MEMBER_ALIVE) == 0)
		return gossip_count(g) ? "no peer is alive: looking for them"
		                       : "no peers yet: looking for them";
	if (gossip_count_state(g, MEMBER_SUSPECT) > 0)
		return "keeps membership only; some peers do not answer at the moment";
	return "keeps membership only; all is well";
}

static int print_health_and_flock(const struct control_view *v, struct buf *out)
{
	struct json_out j = {.buf = out};
	json_open(&j, "health", '{');
	json_count(&j, "score", gossip_health(v->gossip));
	json_text(&j, "words", v->flock ? v->flock->health : membership_words(v->gossip));
	json_close(&j, '}');
	control__flock(&j, v->flock, v->now_ms);
	return j.rc;
}

/* ---- peers */

static int take_rows(const struct control_view *v, struct control_rows *rows)
{
	uint32_t n = gossip_count(v->gossip);
	*rows = (struct control_rows){.n = n};
	rows->row = malloc((n + 1) * sizeof *rows->row);
	if (!rows->row)
		return ERR_NOMEM;
	for (uint32_t i = 0; i < n; i++) {
		struct member_view m = gossip_member(v->gossip, i);
		rows->row[i] = (struct control_row){.id = m.record.id,
		        .addrs = m.record.addrs,
		        .in_use = m.addrs.n > 0 ? m.addrs.at[0] : (struct peer_addr){0},
		        .state = m.state,
		        .connected = m.connected,
		        .unreachable = m.unreachable,
		        .dialable = m.record.dialable,
		        .protocol_min = m.record.protocol_min,
		        .protocol_max = m.record.protocol_max,
		        .loss = m.record.status.loss,
		        .since_ms = v->now_ms > m.since_ms ? v->now_ms - m.since_ms : 0,
		        .step = m.record.status.step,
		        .samples = m.record.status.samples,
		        .generation = m.record.generation,
		        .incarnation = m.record.incarnation};
	}
	return 0;
}

void control_rows_close(struct control_rows *rows)
{
	free(rows->row);
	*rows = (struct control_rows){0};
}

static int print_row(const struct control_row *r, bool first, struct buf *out)
{
	char id[ID_HEX], addr[64], loss[32] = "null"; /* JSON has no NaN */
	id_hex(&r->id, id);
	if (isfinite(r->loss))
		snprintf(loss, sizeof loss, "%.6g", (double)r->loss);
	int rc = buf_printf(out,
	        "%s{\"id\":\"%s\",\"addr\":\"%s\",\"state\":\"%s\",\"since_s\":%" PRIu64 ".%03u,"
	        "\"connected\":%s,\"unreachable\":%s,\"dialable\":%s,\"protocol\":[%u,%u],"
	        "\"step\":%" PRIu64 ",\"samples\":%" PRIu64 ",\"loss\":%s,\"generation\":%" PRIu64
	        ",\"incarnation\":%" PRIu64,
	        first ? "" : ",", id, peer_addr_text(&r->in_use, addr), states[r->state & 3],
	        r->since_ms / 1000, (unsigned)(r->since_ms % 1000), r->connected ? "true" : "false",
	        r->unreachable ? "true" : "false", r->dialable ? "true" : "false", r->protocol_min,
	        r->protocol_max, r->step, r->samples, loss, r->generation, r->incarnation);
	if (rc == 0)
		rc = print_addrs(&r->addrs, out);
	return rc ? rc : buf_printf(out, "}");
}

int control_rows_print(struct control_rows *rows, uint32_t max, struct buf *out)
{
	int rc = 0;
	for (uint32_t i = 0; i < max && rows->at < rows->n && rc == 0; i++, rows->at++)
		rc = print_row(&rows->row[rows->at], rows->at == 0, out);
	if (rc == 0 && rows->at == rows->n) {
		rc = buf_printf(out, "]}\n");
		control_rows_close(rows);
	}
	return rc;
}

/* ---- the requests */

static int print_status(const struct control_view *v, uint32_t max, struct buf *out)
{
	int rc = print_agent(v, out);
	(void)max;
	if (rc == 0)
		rc = print_membership(v, out);
	if (rc == 0)
		rc = print_loop_and_net(v, out);
	return rc ? rc : print_health_and_flock(v, out);
}

static int print_peers(const struct control_view *v, uint32_t max, struct buf *out)
{
	(void)v, (void)max;
	return buf_printf(out, ",\"peers\":[");
}

static int print_step(const struct control_view *v, uint32_t max, struct buf *out)
{
	(void)max;
	return buf_printf(out, ",\"step\":%" PRIu64, v->flock->core.step);
}

static int print_checkpoint(const struct control_view *v, uint32_t max, struct buf *out)
{
	const struct flock_view *f = &v->flock->core;
	struct json_out j = {.buf = out, .rc = print_step(v, max, out)};
	/* A client that waits for the new checkpoint sees either number grow. */
	if (f->saved_step)
		json_count(&j, "last", f->saved_step);
	else
		json_null(&j, "last");
	json_count(&j, "count", f->saves);
	return j.rc;
}

static int print_leave(const struct control_view *v, uint32_t max, struct buf *out)
{
	(void)max;
	int rc = print_agent(v, out);
	return rc ? rc : buf_printf(out, ",\"leave_s\":%.3f", v->leave_s);
}

/* Our own first address, peers that live, then what else we advertise: the run may survive us. */
static void add_seeds(const struct gossip *g, struct token *t)
{
	const struct member_record *self = gossip_self(g);
	int own = self->dialable ? self->addrs.n : 0;
	char text[64];
	if (own > 0)
		token_add_seed(t, peer_addr_text(&self->addrs.at[0], text));
	for (uint32_t i = 0; i < gossip_count(g) && t->n_seeds < TOKEN_SEEDS_MAX; i++) {
		struct member_view m = gossip_member(g, i);
		if (m.state == MEMBER_ALIVE && m.record.dialable && m.addrs.n > 0)
			token_add_seed(t, peer_addr_text(&m.addrs.at[0], text));
	}
	for (int i = 1; i < own; i++)
		token_add_seed(t, peer_addr_text(&self->addrs.at[i], text));
}

/* The secret does not go through here: who asks reads it from its file, if it may. */
static int print_invite(const struct control_view *v, uint32_t max, struct buf *out)
{
	struct json_out j = {.buf = out};
	char text[TOKEN_TEXT_MAX];
	(void)max;
	if (v->token) {
		struct token t = *v->token;
		add_seeds(v->gossip, &t);
		token_print(&t, text);
	}
	json_text(&j, "token", v->token ? text : NULL);
	json_open(&j, "keys", '[');
	for (const char *k = NULL; v->keys && (k = textlist_next(v->keys, k));)
		json_text(&j, NULL, k);
	json_close(&j, ']');
	return j.rc;
}

static int print_version(const struct control_view *v, uint32_t max, struct buf *out)
{
	const struct member_record *self = gossip_self(v->gossip);
	(void)max;
	return buf_printf(out, ",\"version\":\"%s\",\"protocol\":[%u,%u]", v->version,
	        self->protocol_min, self->protocol_max);
}

#define WISH(w) .trains = true, .wishes = true, .wish = w

/* A new request is a row here, and the form of its answer in control.schema.json. */
static const struct request_kind {
	const char *name;
	/* The members of the answer. max: how many entries are wanted. */
	int (*print)(const struct control_view *v, uint32_t max, struct buf *out);
	uint32_t max; /* the largest "max" of a request; 0: it takes none */
	bool trains;  /* only an agent that trains can answer */
	bool wishes;  /* the agent must agree to: */
	enum flock_wish wish;
	enum control_then then;
} kinds[] = {
        {.name = "status", .print = print_status},
        {.name = "peers", .print = print_peers, .then = CONTROL_THEN_ROWS},
        {.name = "ledger", .print = control__ledger, .trains = true, .max = LEDGER_ENTRIES},
        {.name = "exchanges", .print = control__exchanges, .trains = true, .max = FLOCK_RECENT},
        {.name = "pause", .print = print_step, WISH(WISH_PAUSE)},
        {.name = "resume", .print = print_step, WISH(WISH_RESUME)},
        {.name = "checkpoint", .print = print_checkpoint, WISH(WISH_SAVE)},
        {.name = "leave", .print = print_leave, .then = CONTROL_THEN_LEAVE},
        {.name = "version", .print = print_version},
        {.name = "invite", .print = print_invite, .trains = true},
};
#define KINDS (sizeof kinds / sizeof *kinds)

/* ---- reading a request */

struct request {
	const struct request_kind *kind;
	const cJSON *tag; /* borrowed from the tree; NULL: none */
	uint32_t max;     /* of entries */
};

static int find_kind(const cJSON *cmd, struct request *r, char why[256])
{
	const char *names[KINDS + 1] = {NULL};
	char shown[JSON_SHOWN], all[160] = "";
	for (size_t i = 0, n = 0; i < KINDS && n < sizeof all; i++) {
		names[i] = kinds[i].name;
		n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", names[i]);
		if (cJSON_IsString(cmd) && strcmp(names[i], cmd->valuestring) == 0) {
			r->kind = &kinds[i];
			return 0;
		}
	}
	const char *meant = cJSON_IsString(cmd) ? nearest(cmd->valuestring, names) : NULL;
	if (!cJSON_IsString(cmd))
		snprintf(why, 256, "\"cmd\" must be one of %s", all);
	else if (meant)
		snprintf(why, 256, "unknown cmd \"%s\"; did you mean \"%s\"?",
		        json_shown(cmd->valuestring, shown), meant);
	else
		snprintf(why, 256, "unknown cmd \"%s\"; use one of %s",
		        json_shown(cmd->valuestring, shown), all);
	return ERR_FORMAT;
}

static int read_max(const cJSON *max, struct request *r, char why[256])
{
	r->max = CONTROL_ENTRIES;
	if (!max)
		return 0;
	double n = cJSON_IsNumber(max) ? max->valuedouble : 0;
	if (r->kind->max > 0 && n >= 1 && n <= r->kind->max && n == floor(n)) {
		r->max = (uint32_t)n;
		return 0;
	}
	if (r->kind->max > 0)
		snprintf(why, 256, "\"max\" must be a whole number from 1 to %u", r->kind->max);
	else
		snprintf(why, 256, "%s takes no \"max\"", r->kind->name);
	return ERR_FORMAT;
}

/* What is wrong with it goes into why. */
static int read_request(const cJSON *root, struct request *r, char why[256])
{
	static const char *const names[] = {"cmd", "tag", "max"};
	const cJSON *met[3] = {NULL};
	char shown[JSON_SHOWN];
	*r = (struct request){0};
	if (!cJSON_IsObject(root)) {
		snprintf(why, 256, "a request must be an object, {\"cmd\":\"status\"}, not %s",
		        json_kind(root));
		return ERR_FORMAT;
	}
	for (const cJSON *m = root->child; m; m = m->next) {
		int i = 0;
		while (i < 3 && strcmp(m->string, names[i]) != 0)
			i++;
		if (i == 3 || met[i]) {
			snprintf(why, 256,
			        "\"%s\" is %s; a request has a \"cmd\", and may have a "
			        "\"tag\" and a \"max\"",
			        json_shown(m->string, shown), i < 3 ? "given twice" : "unknown");
			return ERR_FORMAT;
		}
		met[i] = m;
		if (i == 1 && (cJSON_IsString(m) || cJSON_IsNumber(m)))
			r->tag = m; /* comes back whatever else is wrong */
	}
	if (met[1] && !r->tag) {
		snprintf(why, 256, "\"tag\" must be a string or a number");
		return ERR_FORMAT;
	}
	int rc = find_kind(met[0], r, why);
	return rc ? rc : read_max(met[2], r, why);
}

/* ---- answering it */

static int print_tag(const cJSON *tag, struct buf *out)
{
	char text[REAL_TEXT];
	if (!tag)
		return 0;
	int rc = buf_printf(out, ",\"tag\":");
	if (rc)
		return rc;
	return cJSON_IsString(tag) ? buf_json_string(out, tag->valuestring)
	                           : buf_printf(out, "%s", real_text(tag->valuedouble, text));
}

/* {"ok":false,"error":why} with the tag, and a newline. */
static int print_refusal(const cJSON *tag, const char *why, struct buf *out)
{
	int rc = buf_printf(out, "{\"ok\":false");
	if (rc == 0)
		rc = print_tag(tag, out);
	if (rc == 0)
		rc = buf_printf(out, ",\"error\":");
	if (rc == 0)
		rc = buf_json_string(out, why);
	return rc ? rc : buf_printf(out, "}\n");
}

int control_error(struct buf *out, const char *text)
{
	return print_refusal(NULL, text, out);
}

/* Before there is anything to answer: does the agent train, and does it agree? */
static int may_answer(const struct control_config *c, const struct control_view *v,
        const struct request *r, char why[256])
{
	struct err e = {0};
	if (r->kind->trains && !v->flock) {
		snprintf(why, 256, NO_TRAINING);
		return ERR_INVALID;
	}
	int rc = r->kind->wishes ? c->act_cb(c->arg, r->kind->wish, &e) : 0;
	if (rc)
		snprintf(why, 256, "%s", e.msg);
	return rc;
}

static int print_answer(const struct control_view *v, const struct request *r, struct buf *out,
        struct control_rows *rows)
{
	int rc = buf_printf(out, "{\"ok\":true");
	if (rc == 0)
		rc = print_tag(r->tag, out);
	if (rc == 0)
		rc = r->kind->print(v, r->max, out);
	if (rc)
		return rc;
	return r->kind->then == CONTROL_THEN_ROWS ? take_rows(v, rows) : buf_printf(out, "}\n");
}

int control_answer(const struct control_config *c, const struct control_view *v, const char *line,
        size_t len, struct buf *out, struct control_rows *rows, enum control_then *then)
{
	struct json_fault f;
	struct request r;
	char why[256];
	*then = CONTROL_THEN_NOTHING;
	*rows = (struct control_rows){0};
	cJSON *root = json_parse(line, len, false, &f);
	if (!root) {
		snprintf(why, sizeof why, "not JSON: column %d: %s", f.column, f.text);
		return control_error(out, why);
	}
	int rc = read_request(root, &r, why);
	if (rc == 0)
		rc = may_answer(c, v, &r, why);
	if (rc == 0)
		*then = r.kind->then;
	rc = rc ? print_refusal(r.tag, why, out) : print_answer(v, &r, out, rows);
	cJSON_Delete(root);
	return rc;
}

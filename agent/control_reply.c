/* SPDX-License-Identifier: MIT */
/* From a line of JSON to a line of JSON; no socket, so that tests and a fuzzer can ask anything.
 *
 * Most answers are small and printed at once. That of `peers` is not: thousands of members take
 * milliseconds to print, more than the loop may be held up. So what is known is copied first, which
 * is quick and a view of one moment, and printed in slices later.
 *
 * What can fail is the request, which is answered with an error, or memory. */
#include "agent/control.h"

#include "agent/jsontext.h"
#include "agent/options.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum control_cmd { CTL_STATUS, CTL_PEERS, CTL_LEAVE, CTL_VERSION, CTL_CMDS };
static const char *const cmds[CTL_CMDS + 1] = {"status", "peers", "leave", "version", NULL};

static const char *const states[] = {"alive", "suspect", "dead", "left"};
_Static_assert(MEMBER_LEFT == 3, "the list above follows its enum");

struct control_row {
	struct peer_id id;
	struct peer_addr addr;
	uint8_t state;
	bool connected, unreachable, dialable;
	uint16_t protocol_min, protocol_max;
	float loss;
	uint64_t since_ms, step, samples, generation, incarnation;
};

static void id_hex(const struct peer_id *id, char out[65])
{
	for (size_t i = 0; i < sizeof id->bytes; i++) {
		out[2 * i] = "0123456789abcdef"[id->bytes[i] >> 4];
		out[2 * i + 1] = "0123456789abcdef"[id->bytes[i] & 15];
	}
	out[64] = '\0';
}

int control_error(struct buf *out, const char *text)
{
	int rc = buf_printf(out, "{\"ok\":false,\"error\":");
	if (rc == 0)
		rc = buf_json_string(out, text);
	return rc ? rc : buf_printf(out, "}\n");
}

/* ---- status */

static int print_agent(const struct control_view *v, struct buf *out)
{
	const struct member_record *self = gossip_self(v->gossip);
	char id[65], listen[64], advertise[64];
	id_hex(&self->id, id);
	int rc = buf_printf(out, ",\"name\":");
	if (rc == 0)
		rc = buf_json_string(out, v->name);
	if (rc)
		return rc;
	return buf_printf(out,
	        ",\"id\":\"%s\",\"version\":\"%s\",\"protocol\":[%u,%u],\"generation\":%" PRIu64
	        ",\"uptime_s\":%.3f,\"listen\":\"%s\",\"advertise\":\"%s\",\"dialable\":%s,"
	        "\"profile\":\"%s\"",
	        id, v->version, self->protocol_min, self->protocol_max, self->generation,
	        (double)v->uptime_ms / 1000, peer_addr_text(&v->listen, listen),
	        peer_addr_text(&self->addr, advertise), self->dialable ? "true" : "false",
	        v->wan ? "wan" : "lan");
}

static int print_membership(const struct control_view *v, struct buf *out)
{
	const struct gossip *g = v->gossip;
	struct gossip_counters c = gossip_counters(g);
	return buf_printf(out,
	        ",\"peers\":{\"alive\":%u,\"suspect\":%u,\"dead\":%u,\"left\":%u},\"health\":%u,"
	        "\"clock\":%" PRIu64 ",\"membership\":{\"refused\":%" PRIu64 ",\"evicted\":%" PRIu64
	        ",\"dropped_relays\":%" PRIu64 ",\"dropped_syncs\":%" PRIu64
	        ",\"dropped_notices\":%" PRIu64 ",\"refutations\":%" PRIu64 ",\"probes\":%" PRIu64
	        ",\"probes_failed\":%" PRIu64 ",\"time_jumps\":%" PRIu64 "}",
	        gossip_count_state(g, MEMBER_ALIVE), gossip_count_state(g, MEMBER_SUSPECT),
	        gossip_count_state(g, MEMBER_DEAD), gossip_count_state(g, MEMBER_LEFT),
	        gossip_health(g), gossip_clock(g), c.refused, c.evicted, c.dropped_relays,
	        c.dropped_syncs, c.dropped_notices, c.refutations, c.probes, c.probes_failed,
	        c.time_jumps);
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
	        ",\"connections\":%u,\"half_open\":%u},\"rss_kb\":%" PRIu64,
	        v->lag.last_us, v->lag.p99_us, v->lag.max_us, v->lag.slow_callbacks, n->bytes_sent,
	        n->bytes_received, n->datagrams_sent, n->datagrams_received, n->datagrams_refused,
	        n->streams_dialled, n->streams_accepted, n->handshakes_failed, n->strangers_refused,
	        n->messages_dropped, n->connections, n->half_open, v->rss_kb);
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
		        .addr = m.record.addr,
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
	char id[65], addr[64], loss[32] = "null"; /* JSON has no NaN */
	id_hex(&r->id, id);
	if (isfinite(r->loss))
		snprintf(loss, sizeof loss, "%.6g", (double)r->loss);
	return buf_printf(out,
	        "%s{\"id\":\"%s\",\"addr\":\"%s\",\"state\":\"%s\",\"since_s\":%" PRIu64 ".%03u,"
	        "\"connected\":%s,\"unreachable\":%s,\"dialable\":%s,\"protocol\":[%u,%u],"
	        "\"step\":%" PRIu64 ",\"samples\":%" PRIu64 ",\"loss\":%s,\"generation\":%" PRIu64
	        ",\"incarnation\":%" PRIu64 "}",
	        first ? "" : ",", id, peer_addr_text(&r->addr, addr), states[r->state & 3],
	        r->since_ms / 1000, (unsigned)(r->since_ms % 1000), r->connected ? "true" : "false",
	        r->unreachable ? "true" : "false", r->dialable ? "true" : "false", r->protocol_min,
	        r->protocol_max, r->step, r->samples, loss, r->generation, r->incarnation);
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

/* ---- requests */

struct request {
	enum control_cmd cmd;
	const cJSON *tag; /* borrowed from the tree; NULL: none */
};

/* What is wrong with it goes into why. */
static int read_request(const cJSON *root, struct request *r, char why[256])
{
	const cJSON *cmd = NULL;
	char shown[JSON_SHOWN];
	*r = (struct request){0};
	if (!cJSON_IsObject(root)) {
		snprintf(why, 256, "a request is an object, {\"cmd\":\"status\"}, not %s",
		        json_kind(root));
		return ERR_FORMAT;
	}
	for (const cJSON *m = root->child; m; m = m->next) {
		bool is_cmd = strcmp(m->string, "cmd") == 0, is_tag = strcmp(m->string, "tag") == 0;
		if ((!is_cmd && !is_tag) || (is_cmd && cmd) || (is_tag && r->tag)) {
			snprintf(why, 256, "\"%s\" is %s; a request has a cmd and perhaps a tag",
			        json_shown(m->string, shown),
			        is_cmd || is_tag ? "given twice" : "unknown");
			return ERR_FORMAT;
		}
		*(is_cmd ? &cmd : &r->tag) = m;
	}
	if (r->tag && !cJSON_IsString(r->tag) && !cJSON_IsNumber(r->tag)) {
		r->tag = NULL;
		snprintf(why, 256, "tag wants a string or a number");
		return ERR_FORMAT;
	}
	if (!cJSON_IsString(cmd)) {
		snprintf(why, 256, "cmd wants one of status, peers, leave, version");
		return ERR_FORMAT;
	}
	for (int i = 0; i < CTL_CMDS; i++)
		if (strcmp(cmds[i], cmd->valuestring) == 0) {
			r->cmd = (enum control_cmd)i;
			return 0;
		}
	const char *meant = nearest(cmd->valuestring, cmds);
	snprintf(why, 256, "unknown cmd \"%s\"; %s%s%s", json_shown(cmd->valuestring, shown),
	        meant ? "did you mean \"" : "there are ",
	        meant ? meant : "status, peers, leave, version", meant ? "\"?" : "");
	return ERR_FORMAT;
}

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

static int print_answer(const struct control_view *v, const struct request *r, struct buf *out,
        struct control_rows *rows, enum control_then *then)
{
	int rc = buf_printf(out, "{\"ok\":true");
	if (rc == 0)
		rc = print_tag(r->tag, out);
	if (rc)
		return rc;
	switch (r->cmd) {
	case CTL_STATUS:
		if ((rc = print_agent(v, out)) || (rc = print_membership(v, out)))
			return rc;
		rc = print_loop_and_net(v, out);
		break;
	case CTL_PEERS:
		*then = CONTROL_THEN_ROWS;
		rc = buf_printf(out, ",\"peers\":[");
		return rc ? rc : take_rows(v, rows);
	case CTL_LEAVE:
		*then = CONTROL_THEN_LEAVE;
		rc = print_agent(v, out);
		break;
	case CTL_VERSION:
		rc = buf_printf(out, ",\"version\":\"%s\",\"protocol\":[%u,%u]", v->version,
		        gossip_self(v->gossip)->protocol_min, gossip_self(v->gossip)->protocol_max);
		break;
	case CTL_CMDS:
		break;
	}
	return rc ? rc : buf_printf(out, "}\n");
}

int control_answer(const struct control_view *v, const char *line, size_t len, struct buf *out,
        struct control_rows *rows, enum control_then *then)
{
	struct json_fault f;
	struct request r;
	char why[256];
	int rc;
	*then = CONTROL_THEN_NOTHING;
	*rows = (struct control_rows){0};
	cJSON *root = json_parse(line, len, false, &f);
	if (!root) {
		snprintf(why, sizeof why, "not JSON: column %d: %s", f.column, f.text);
		return control_error(out, why);
	}
	if (read_request(root, &r, why) == 0) {
		rc = print_answer(v, &r, out, rows, then);
	} else {
		rc = buf_printf(out, "{\"ok\":false");
		if (rc == 0)
			rc = print_tag(r.tag, out);
		if (rc == 0)
			rc = buf_printf(out, ",\"error\":");
		if (rc == 0)
			rc = buf_json_string(out, why);
		if (rc == 0)
			rc = buf_printf(out, "}\n");
	}
	cJSON_Delete(root);
	return rc;
}

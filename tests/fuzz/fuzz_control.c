/* SPDX-License-Identifier: MIT */
/* Any bytes as what a client writes to the control socket, line by line, and as the file of known
 * peers. Every line gets exactly one line of answer, which is JSON and can drive no terminal, from
 * an agent that trains and from one that does not; peers that are accepted print and read back to
 * the same. */
#include "agent/control/control.h"
#include "agent/drivers/driver.h"
#include "agent/json/jsontext.h"
#include "agent/node/state_dir.h"

#include <stdlib.h>
#include <string.h>

#define MUST(x)                  \
	do {                     \
		if (!(x))        \
			abort(); \
	} while (0)

/* A core that knows three members, made once. */
static const struct gossip *core(void)
{
	static struct gossip *g;
	static struct gossip_actions actions;
	struct gossip_config c = {.profile = gossip_lan,
	        .generation = 1,
	        .dialable = true,
	        .protocol_min = 1,
	        .protocol_max = 1,
	        .members_max = 8};
	struct gossip_event start = {.kind = EVENT_START, .now_ms = 1};
	if (g)
		return g;
	static _Alignas(max_align_t) char memory[1 << 20];
	MUST(gossip_size(&c) <= sizeof memory);
	MUST(gossip_init(&g, memory, sizeof memory, &c, NULL) == 0);
	gossip_step(g, &start, &actions);
	for (uint8_t i = 1; i <= 3; i++) {
		struct gossip_update u = {.kind = UPDATE_RECORD,
		        .record = {.id = {{i}}, .generation = 1, .nonce = i, .incarnation = 1}};
		struct gossip_message m = {.kind = MESSAGE_GOSSIP, .n_updates = 1, .update = {u}};
		struct gossip_event e = {.kind = EVENT_RECEIVED,
		        .now_ms = 1,
		        .received = {u.record.id, {0}, CHANNEL_STREAM, &m}};
		gossip_step(g, &e, &actions);
	}
	return g;
}

/* A flock of which everything is known, and full lists; made once. */
static const struct agent_view *flock(void)
{
	static struct agent_view v;
	static struct ledger ledger;
	static struct exchange_result recent[FLOCK_RECENT];
	static _Alignas(max_align_t) char memory[1 << 20];
	struct partners *partners = (struct partners *)(void *)memory;
	struct partners_config c = {.seed = 1, .rate = 1, .burst = 1, .per_byte_ms = 0.001};
	if (v.run)
		return &v;
	MUST(partners_size() <= sizeof memory);
	partners_init(partners, &c);
	ledger_init(&ledger);
	for (uint32_t i = 1; i <= 1000; i++) {
		struct gate_decision d = {.exchange = i % 3 == 0,
		        .reason = (uint8_t)(i % REASONS),
		        .has_change = true};
		struct peer_id peer = {{(uint8_t)i}};
		uint64_t n = ledger_decision(&ledger, i, i, &d, 1000);
		ledger_tried(&ledger, n, &peer);
		ledger_outcome(&ledger, n, (enum exchange_outcome)(i % OUTCOMES), 1000);
		partners_quarantine(partners, &peer, "x\x1b\xff", i);
	}
	for (int i = 0; i < FLOCK_RECENT; i++) {
		recent[i] = (struct exchange_result){.peer = {{(uint8_t)i}},
		        .outcome = (uint8_t)(i % OUTCOMES),
		        .why = (uint8_t)(i % EXCHANGE_WHYS),
		        .distance = 1};
		memset(recent[i].words, "\"\x1b\xff\xc2"[i % 4], EXCHANGE_WORDS_MAX);
	}
	v = (struct agent_view){.run = "r",
	        .model = "m",
	        .device = "d",
	        .out = "o",
	        .core.ledger = &ledger,
	        .core.partners = partners,
	        .core.recent = recent,
	        .core.n_recent = 500,
	        .core.has_loss = true,
	        .core.has_eval = true,
	        .core.has_local = true,
	        .core.has_merged = true,
	        .core.phase = FLOCK_JOINING,
	        .core.saved_step = 1,
	        .core.has_distance = true,
	        .sketches = 1};
	return &v;
}

static int act(void *arg, enum flock_wish w, struct err *e)
{
	int *acted = arg;
	MUST(w == WISH_PAUSE || w == WISH_RESUME || w == WISH_SAVE);
	(*acted)++;
	return w == WISH_RESUME ? err_set(e, ERR_INVALID, "it is not paused") : 0;
}

static void ask(const char *line, size_t len, bool trains)
{
	int acted = 0;
	struct control_config config = {.arg = &acted, .act_cb = act};
	struct control_view v = {.name = "n",
	        .version = "1",
	        .gossip = core(),
	        .now_ms = 5,
	        .flock = trains ? flock() : NULL};
	struct control_rows rows;
	enum control_then then;
	struct json_fault f;
	struct buf out;
	/* The tag comes back, perhaps escaped. */
	buf_init(&out, LIMIT_CONTROL_OUT);
	MUST(control_answer(&config, &v, line, len, &out, &rows, &then) == 0);
	MUST((then == CONTROL_THEN_ROWS) == (rows.row != NULL));
	for (int turns = 0; rows.row; turns++) {
		MUST(turns < 4);
		MUST(control_rows_print(&rows, 1, &out) == 0);
	}
	MUST(out.len > 0 && out.data[out.len - 1] == '\n');
	for (size_t i = 0; i + 1 < out.len; i++)
		MUST((unsigned char)out.data[i] >= ' ' && out.data[i] != 0x7f);
	cJSON *o = json_parse(out.data, out.len, false, &f);
	MUST(cJSON_IsObject(o));
	bool ok = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "ok"));
	MUST(ok != cJSON_IsString(cJSON_GetObjectItemCaseSensitive(o, "error")));
	MUST(ok || then == CONTROL_THEN_NOTHING);
	MUST(acted <= trains);
	cJSON_Delete(o);
	buf_close(&out);
}

static void read_peers(const char *text, size_t len)
{
	struct peer_addr met[STATE_DIR_PEERS], again[STATE_DIR_PEERS];
	struct err e = {0};
	struct buf out;
	int n, n_again;
	if (peers_parse(text, len, met, &n, &e)) {
		MUST(n == 0 && e.code && e.msg[0]);
		return;
	}
	MUST(n >= 0 && n <= STATE_DIR_PEERS);
	buf_init(&out, LIMIT_PEERS_FILE);
	MUST(peers_print(met, n, &out) == 0);
	MUST(peers_parse(out.data, out.len, again, &n_again, &e) == 0);
	MUST(n_again == n && memcmp(met, again, (size_t)n * sizeof *met) == 0);
	buf_close(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *at = (const char *)data, *end = at + size;
	read_peers(at, size);
	while (size > 0 && at < end) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));
		size_t len = (size_t)((stop ? stop : end) - at);
		if (len < LIMIT_CONTROL_LINE) {
			for (int trains = 0; trains < 2; trains++)
				ask(at, len, trains == 1);
		}
		at += len + 1;
	}
	return 0;
}

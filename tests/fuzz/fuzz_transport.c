/* SPDX-License-Identifier: MIT */
/* Any bytes as what happens to three agents' transports on a network of the input's making
 * (fake_uv.h): two of one flock, and a third process with the first one's identity. They dial,
 * send, post and open bulk connections; connections come about, are refused or hang; bytes arrive
 * in pieces, changed, or not at all; strangers connect and say anything; an insider seals frames of
 * any content; datagrams are lost, changed and repeated; time passes; lists change.
 *
 * Whatever happens: memory is used rightly and all of it is given back, a peer comes up once before
 * it goes down, nobody is heard who is neither of the flock nor permitted, no bulk key is handed
 * out twice, and a transport that closes is closed within seconds. Random bytes are counted from
 * the same beginning, so every input runs the same way each time. Not reached: real sockets, so
 * what handed-out bulk connections do; IPv6 and dual-stack binding. */
#include "net/transport/transport_internal.h"
#include "tests/fuzz/fake_uv.h"
#include "tests/fuzz/input.h"

#include <arpa/inet.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#define AGENTS 3
#define IDENTITIES 2 /* the third agent is a copy of the first */
#define EVENTS_MAX 300
#define TOKENS_MAX 256
#define CLOSE_MS 10000
#define BULK_NUMBERS 4

static struct agent {
	struct transport *t; /* NULL: closed */
	struct lists lists;
	bool up[IDENTITIES];
	bool closed;
} agent[AGENTS];

static struct identity identity[IDENTITIES];
static struct secrets secrets;
static struct aead_order ciphers;
static struct frame_bulk bulks[AGENTS][TOKENS_MAX];
static int n_bulks[AGENTS];
static struct fake_packet replay;

/* ---- randomness and keys that are the same in every run */

static uint64_t chance;

static void fill(void *to, size_t n)
{
	static const uint8_t zeros[randombytes_SEEDBYTES];
	uint8_t seed[randombytes_SEEDBYTES];
	memcpy(seed, zeros, sizeof seed);
	memcpy(seed, &chance, sizeof chance);
	chance++;
	/* Not randombytes_buf_deterministic for each call: it is slow for small ones. */
	crypto_stream_chacha20_ietf(to, n, (const uint8_t *)"dunlin fuzz 0", seed);
}

static const char *fill_name(void)
{
	return "counted";
}

static uint32_t fill_word(void)
{
	uint32_t x;
	fill(&x, sizeof x);
	return x;
}

static struct randombytes_implementation counted = {
        .implementation_name = fill_name, .random = fill_word, .buf = fill};

static void make_keys(void)
{
	char dir[] = "/tmp/dunlin-fuzz-XXXXXX", path[64], generation[64];
	static uint8_t secret[1][SECRET_BYTES] = {{7}};
	struct err e = {0};
	demand(randombytes_set_implementation(&counted) == 0 && sodium_init() >= 0);
	demand(mkdtemp(dir) != NULL);
	for (int i = 0; i < IDENTITIES; i++) {
		demand(identity_open(&identity[i], dir, &e) == 0);
		snprintf(path, sizeof path, "%s/identity.key", dir);
		snprintf(generation, sizeof generation, "%s/generation", dir);
		demand(unlink(path) == 0 && unlink(generation) == 0);
	}
	demand(rmdir(dir) == 0);
	secrets.n = 1;
	secrets.secret = (const uint8_t(*)[SECRET_BYTES])secret;
	ciphers.n = 1;
	ciphers.id[0] = (uint8_t)aead_list[0]->id;
	ciphers.best[aead_list[0]->id] = aead_list[0];
}

/* ---- what agents are told */

/* Which of the flock's identities it is; it must be one of them. */
static int known(const struct peer_id *id)
{
	int i = 0;
	while (i < IDENTITIES && !peer_id_equal(id, &identity[i].id))
		i++;
	demand(i < IDENTITIES);
	return i;
}

static int other(const struct agent *a, const struct peer_id *id)
{
	int who = known(id);
	demand(!peer_id_equal(id, &a->t->config.identity->id));
	return who;
}

static void on_up(void *arg, const struct peer_id *id, const struct peer_addr *dialled)
{
	struct agent *a = arg;
	int who = other(a, id);
	(void)dialled;
	demand(!a->up[who] && !a->closed && lists_permit(&a->lists, id));
	a->up[who] = true;
}

static void on_down(void *arg, const struct peer_id *id)
{
	struct agent *a = arg;
	demand(!a->closed);
	a->up[other(a, id)] = false;
}

static void on_message(void *arg, const struct peer_id *from, const struct peer_addr *address,
        enum gossip_channel channel, struct gossip_message *m)
{
	struct agent *a = arg;
	(void)address;
	other(a, from);
	demand(!a->closed && lists_permit(&a->lists, from));
	demand(m->n_updates <= GOSSIP_UPDATES_MAX && m->kind <= MESSAGE_SKETCH);
	demand(channel == CHANNEL_STREAM || m->kind < MESSAGE_SYNC);
}

static void on_exchange(void *arg, const struct peer_id *from, const struct exchange_message *m)
{
	struct agent *a = arg;
	other(a, from);
	demand(!a->closed && lists_permit(&a->lists, from));
	demand(m->exchange != 0 && m->kind < EXCHANGE_KINDS);
}

static void on_bulk(void *arg, const struct peer_id *id, uint64_t exchange, int fd, bool we_dialled,
        bool kept, const struct frame_bulk *keys, const struct aead *aead)
{
	struct agent *a = arg;
	int who = (int)(a - agent);
	(void)exchange;
	known(id);
	demand(!kept);
	demand(!a->closed && fd == -1);
	if (!keys) {
		demand(we_dialled && !aead);
		return;
	}
	for (int i = 0; i < n_bulks[who]; i++)
		demand(memcmp(&bulks[who][i], keys, sizeof *keys) != 0);
	if (n_bulks[who] < TOKENS_MAX)
		bulks[who][n_bulks[who]++] = *keys;
}

static void on_say(void *arg, enum transport_level level, const char *text)
{
	(void)arg;
	demand(level <= TRANSPORT_WARN && text[0]);
}

static void on_closed(void *arg)
{
	((struct agent *)arg)->t = NULL;
}

/* ---- agents */

static struct sockaddr_in address(uint8_t host)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(1)};
	a.sin_addr.s_addr = htonl(0x0a000001u + host);
	return a;
}

/* Of an agent, or a place where none is. */
static struct peer_addr peer_address(uint8_t host)
{
	struct sockaddr_in a = address(host % (AGENTS + 1));
	return peer_addr_from((struct sockaddr *)&a);
}

static void open_agent(int i, uint8_t how)
{
	struct agent *a = &agent[i];
	struct sockaddr_in at = address((uint8_t)i);
	struct err e = {0};
	lists_init(&a->lists);
	struct transport_config c = {.identity = &identity[i % IDENTITIES],
	        .secrets = &secrets,
	        .ciphers = &ciphers,
	        .lists = &a->lists,
	        .generation = 1 + (uint64_t)i / IDENTITIES,
	        .advertise = {1, {peer_address((uint8_t)i)}},
	        .dialable = !(how >> i & 1),
	        .protocol_min = 1,
	        .protocol_max = how == 0xff && i == 1 ? 2 : 1,
	        .peers_max = 4};
	if (how == 0xfe && i == 1)
		c.protocol_min = c.protocol_max = 2;
	memcpy(&c.listen, &at, sizeof at);
	c.callbacks = (struct transport_callbacks){.arg = a,
	        .message_cb = on_message,
	        .up_cb = on_up,
	        .down_cb = on_down,
	        .exchange_cb = on_exchange,
	        .bulk_cb = on_bulk,
	        .say_cb = on_say};
	demand(transport_new(&a->t, &c, &e) == 0);
}

static void check(void)
{
	for (int i = 0; i < AGENTS; i++) {
		const struct agent *a = &agent[i];
		uint32_t n = 0, listed = 0;
		if (!a->t)
			continue;
		for (const struct conn *c = a->t->conns; c; c = c->next) {
			n++;
			listed += c->listed;
			demand(c->in_len <= CONN_IN_BYTES && fake_find(c) >= 0);
			demand(!c->listed || c->state == CONN_UP);
			demand(c->state != CONN_UP || (c->framed && !c->in));
			demand(!c->framed || c->state == CONN_CLOSING ||
			        !c->buf == (frame_held(&c->reader) == 0));
			demand(c->slot < BUDGET_SLOTS_ALL);
		}
		demand(n == transport_counters(a->t).connections && listed <= IDENTITIES);
		for (int k = 0; k < IDENTITIES && !a->closed; k++)
			demand(a->up[k] == (transport__find(a->t, &identity[k].id) != NULL));
	}
}

/* ---- what happens */

static void send_gossip(struct input *in, struct agent *a, uint8_t b)
{
	struct gossip_send s = {.channel = b & 1, .to_id = !(b & 1) || b & 2};
	s.id = identity[b >> 2 & 1].id;
	s.addrs.n = 1 + (b >> 3 & 1);
	s.addrs.at[0] = peer_address(take(in));
	s.addrs.at[1] = peer_address(b >> 4);
	s.message.kind = b & 1 ? MESSAGE_SYNC : MESSAGE_PING;
	s.message.nonce = b;
	s.message.target = s.id;
	if (!s.to_id || !peer_id_equal(&s.id, &a->t->config.identity->id))
		transport_send(a->t, &s);
}

static void post(struct input *in, struct agent *a, uint8_t b)
{
	struct exchange_message m = {.kind = EXCHANGE_COMMIT, .exchange = 1 + (uint64_t)b};
	struct peer_addrs addrs = {1, {peer_address(take(in))}};
	const struct peer_id *to = &identity[b & 1].id;
	if (!peer_id_equal(to, &a->t->config.identity->id))
		(void)transport_post(a->t, to, &addrs, &m);
}

static void open_bulk(struct agent *a, uint8_t b)
{
	struct err e = {0};
	int rc = transport_bulk(a->t, &identity[b & 1].id, b % BULK_NUMBERS, false, &e);
	demand(rc == 0 || rc == ERR_NOTFOUND || rc == ERR_UNSUPPORTED || rc == ERR_IO);
}

/* A stranger: bytes that may look like an opening. */
static void stranger(struct input *in, uint8_t b)
{
	struct sockaddr_in to = address(b % AGENTS), from = address((uint8_t)(100 + (b >> 6)));
	uint8_t bytes[512] = {0};
	size_t n = take(in) * 2u;
	int i = b & 0x20 ? take(in) % FAKE_HANDLES : fake_dial(&to, &from);
	if (i < 0 || !fake_is_tcp(i) || fake_handle[i].peer >= 0)
		return;
	for (size_t k = 0; k < n && in->left > 0; k++)
		bytes[k] = take(in);
	if (b & 0x10)
		opening_header(bytes, b & 8 ? OPENING_BULK : OPENING_HANDSHAKE,
		        n > OPENING_HEADER_BYTES ? n - OPENING_HEADER_BYTES : 1);
	(void)fake_put(i, bytes, n);
}

/* A peer that has the keys and no manners: any frame on one of its connections. */
static void insider(struct input *in, struct agent *a, uint8_t b)
{
	uint8_t payload[512], out[sizeof payload + FRAME_OVERHEAD_MAX];
	size_t n = 0, len;
	struct conn *c = a->t->conns;
	while (c && (c->state != CONN_UP || b-- > 1))
		c = c->next;
	if (!c)
		return;
	int i = fake_find(c);
	fake_flush(i, 0);
	int to = fake_handle[i].peer;
	enum frame_type type = b & 0x80 ? FRAME_CHUNK : FRAME_MESSAGE;
	for (size_t want = take(in) * 2u; n < want && in->left > 0; n++)
		payload[n] = take(in);
	if (to >= 0 && fake_is_tcp(i) && frame_seal(&c->writer, type, payload, n, out, &len) == 0)
		(void)fake_put(to, out, len);
}

static void datagram(struct input *in, uint8_t b)
{
	struct fake_packet p = b & 0x10 ? replay : fake_packet[b % FAKE_PACKETS];
	if (b & 0x20 && p.len > 0)
		p.bytes[take(in) * 5u % p.len] ^= take(in);
	if (b & 0x40 && p.len > 0)
		p.len = 1 + take(in) * 5u % p.len;
	fake_packet_arrives(&p);
	if (!(b & 0x10))
		replay = p;
}

static void change(struct agent *a, uint8_t b)
{
	struct peer_addrs addrs = {1, {peer_address(b)}};
	if (b < 0x40) {
		a->lists.only_allowed = b & 1;
		transport_recheck(a->t);
	} else if (b < 0x80)
		transport_generation(a->t, &identity[b & 1].id, 1 + (b >> 1 & 3));
	else
		transport_set_self(a->t, 1 + (b & 7), &addrs, b & 8);
}

/* The network as it should be, for a while. */
static void go_on(int rounds)
{
	while (rounds-- > 0) {
		for (int i = 0; i < FAKE_HANDLES; i++) {
			fake_connect(i, 0);
			fake_flush(i, 0);
		}
		for (int i = 0; i < FAKE_HANDLES; i++)
			fake_deliver(i, FAKE_BYTES);
		fake_reap();
	}
}

static void tamper(struct input *in, int i)
{
	size_t n = fake_handle[i].n_in;
	if (fake_is_tcp(i) && n > 0) {
		size_t at = (size_t)(take(in) << 8 | take(in)) % n;
		fake_handle[i].in[at] ^= take(in);
	}
}

static void one_event(struct input *in)
{
	uint8_t b = take(in), x = take(in);
	struct agent *a = &agent[(b >> 4) % AGENTS];
	int i = x % FAKE_HANDLES;
	switch (b & 15) {
	case 0:
		send_gossip(in, a, x);
		break;
	case 1:
		post(in, a, x);
		break;
	case 2:
		open_bulk(a, x);
		break;
	case 3:
		fake_connect(i, b & 0x80 ? UV_ECONNREFUSED : b & 0x40 ? UV_ETIMEDOUT : 0);
		break;
	case 4:
		fake_deliver(i, b & 0x80 ? FAKE_BYTES : take(in));
		break;
	case 5:
		fake_flush(i, b >= 0xe0 ? UV_EPIPE : 0);
		break;
	case 6:
		tamper(in, i);
		break;
	case 7:
		stranger(in, x);
		break;
	case 8:
		if (fake_is_tcp(i))
			fake_cut(i);
		break;
	case 9:
		fake_pass(x < 0xe0 ? x * 4u : x * 200u);
		break;
	case 10:
		insider(in, a, x);
		break;
	case 11:
		datagram(in, x);
		break;
	case 12:
		change(a, x);
		break;
	case 13:
		fake_reap();
		break;
	default:
		go_on(1 + x % 4);
	}
}

static void close_all(void)
{
	bool open = true;
	for (int i = 0; i < AGENTS; i++) {
		agent[i].closed = true;
		transport_close(agent[i].t, on_closed, &agent[i]);
	}
	for (uint64_t from = fake_now_ms; open; fake_pass(100)) {
		demand(fake_now_ms - from < CLOSE_MS);
		fake_reap();
		check();
		open = agent[0].t || agent[1].t || agent[2].t;
	}
	for (int i = 0; i < FAKE_HANDLES; i++)
		demand(fake_handle[i].kind == FAKE_FREE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	if (secrets.n == 0)
		make_keys();
	chance = 1u << 20;
	memset(agent, 0, sizeof agent);
	memset(n_bulks, 0, sizeof n_bulks);
	replay.len = 0;
	fake_reset();
	uint8_t how = take(&in);
	for (int i = 0; i < AGENTS; i++)
		open_agent(i, how);
	for (int i = 0; i < EVENTS_MAX && in.left > 0; i++) {
		one_event(&in);
		check();
	}
	close_all();
	for (int i = 0; i < AGENTS; i++)
		lists_close(&agent[i].lists);
	return 0;
}

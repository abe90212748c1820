/* SPDX-License-Identifier: MIT */
/* Bulk connections that are kept for the pair's next exchange: whichever side begins it uses them,
 * with keys that were never used; what an attacker on the way repeats, cuts or makes up ends them
 * and nothing else; and they give way to everything. */
#include "tests/net/transport_pair.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

static struct pair p;
static struct peer_id *second;
static uint64_t dialled;

static bool first_keeps_none(const struct pair *q)
{
	return kept__find(q->side[0].t, &q->side[1].identity.id) == NULL;
}

static bool second_keeps_none(const struct pair *q)
{
	return kept__find(q->side[1].t, &q->side[0].identity.id) == NULL;
}

static uint64_t dials(int i)
{
	return transport_counters(p.side[i].t).streams_dialled;
}

static void set_up(void **state, int initiator)
{
	pair_open(&p, *state);
	connect_pair(&p, initiator);
	second = &p.side[1].identity.id;
}

/* A bulk connection for an exchange, asked for by that side; both ends are in fd[0]. */
static void open_bulk(int from, uint64_t exchange)
{
	struct err e = {0};
	p.side[0].bulks = p.side[1].bulks = 0;
	if (transport_bulk(p.side[from].t, &p.side[1 - from].identity.id, exchange, false, &e) != 0)
		fail_msg("%s", e.msg);
	assert_true(await(&p, both_have_bulk));
	dialled = dials(0) + dials(1);
}

static void keep(int i)
{
	transport_bulk_keep(p.side[i].t, &p.side[1 - i].identity.id, p.side[i].fd[0]);
}

/* On both ends: which side asked, and other secrets than any before. */
static void check_used(int from, uint64_t exchange, bool kept)
{
	static struct frame_bulk before[32];
	static int n;
	struct side *a = &p.side[from], *b = &p.side[1 - from];
	assert_true(a->we_dialled[0] && !b->we_dialled[0]);
	assert_true(a->kept[0] == kept && b->kept[0] == kept);
	assert_true(a->exchange[0] == exchange && b->exchange[0] == exchange);
	assert_memory_equal(&a->keys[0], &b->keys[0], sizeof a->keys[0]);
	for (int i = 0; i < n; i++) {
		assert_memory_not_equal(before[i].token, a->keys[0].token, FRAME_TOKEN_BYTES);
		assert_memory_not_equal(before[i].from_dialler, a->keys[0].from_dialler, 32);
		assert_memory_not_equal(before[i].from_listener, a->keys[0].from_listener, 32);
	}
	assert_true(n < 32);
	before[n++] = a->keys[0];
}

/* The same exchange's number over and over, by turns: one socket, always other keys. */
static void both_sides_use_it(void **state)
{
	for (int initiator = 0; initiator < 2; initiator++) {
		set_up(state, initiator);
		open_bulk(0, 7);
		check_used(0, 7, false);
		for (int round = 0; round < 6; round++) {
			uint64_t before = dialled;
			keep(0);
			keep(1);
			open_bulk(round % 2, 7);
			check_used(round % 2, 7, true);
			assert_true(dialled == before);
		}
		char c = 0;
		assert_int_equal(send(p.side[0].fd[0], "x", 1, 0), 1);
		struct pollfd in = {.fd = p.side[1].fd[0], .events = POLLIN};
		assert_int_equal(poll(&in, 1, DEADLINE_MS), 1);
		assert_int_equal(recv(p.side[1].fd[0], &c, 1, 0), 1);
		assert_int_equal(c, 'x');
		close(p.side[0].fd[0]);
		close(p.side[1].fd[0]);
		pair_close(&p);
	}
}

/* Asked for a fresh one, or when the other's end is gone, or something lies in it: the peer is
 * dialled. */
static void else_it_dials(void **state)
{
	for (int how = 0; how < 3; how++) {
		struct err e = {0};
		set_up(state, 0);
		open_bulk(0, 1);
		keep(0);
		if (how == 0)
			keep(1);
		else if (how == 1)
			close(p.side[1].fd[0]);
		else
			assert_int_equal(send(p.side[1].fd[0], "x", 1, 0), 1);
		struct pollfd in = {.events = POLLIN};
		struct conn *c = p.side[0].t->conns;
		while (!c->kept)
			c = c->next;
		assert_int_equal(uv_fileno((uv_handle_t *)&c->tcp, &in.fd), 0);
		if (how > 0)
			assert_int_equal(poll(&in, 1, DEADLINE_MS), 1);
		uint64_t before = dialled;
		p.side[0].bulks = p.side[1].bulks = 0;
		assert_int_equal(transport_bulk(p.side[0].t, second, 2, how == 0, &e), 0);
		assert_true(await(&p, both_have_bulk));
		check_used(0, 2, false);
		assert_true(dials(0) + dials(1) == before + 1);
		close(p.side[0].fd[0]);
		close(p.side[1].fd[0]);
		pair_close(&p);
	}
}

/* The opening of an attempt, as the dialler of the stream would make it. */
static size_t opening_of(uint64_t exchange, uint64_t attempt, uint8_t out[128])
{
	const struct conn *c = transport__find(p.side[0].t, second);
	struct wire_message m = {
	        .kind = WIRE_BULK_OPEN, .bulk = {.exchange = exchange, .attempt = attempt}};
	struct frame_bulk k;
	size_t len;
	frame_bulk(&k, c->exporter, &(struct frame_bulk_use){exchange, attempt, c->initiator});
	memcpy(m.bulk.session, c->session, sizeof m.bulk.session);
	memcpy(m.bulk.token, k.token, sizeof m.bulk.token);
	assert_int_equal(wire_encode(&m, out + OPENING_HEADER_BYTES, 100, &len), 0);
	opening_header(out, OPENING_BULK, len);
	return OPENING_HEADER_BYTES + len;
}

/* The other end of fd is closed, and was not handed out. */
static void await_end(int fd)
{
	struct pollfd in = {.fd = fd, .events = POLLIN};
	while (poll(&in, 1, 0) == 0) {
		uv_run(&p.loop, UV_RUN_ONCE);
		assert_int_equal(p.side[1].bulks, 0);
	}
	assert_int_equal(p.side[1].bulks, 0);
}

/* Who cannot dial the other could not replace one that is dead: the other opens it. */
static void who_cannot_dial_opens_none(void **state)
{
	struct err e = {0};
	set_up(state, 1);
	open_bulk(1, 7);
	keep(0);
	keep(1);
	transport__find(p.side[0].t, second)->peer_dialable = false;
	assert_int_equal(transport_bulk(p.side[0].t, second, 8, false, &e), ERR_UNSUPPORTED);
	open_bulk(1, 8);
	check_used(1, 8, true);
	close(p.side[0].fd[0]);
	close(p.side[1].fd[0]);
	pair_close(&p);
}

/* One that is in use already is none that waits. */
static void handed_out_is_not_kept(void **state)
{
	set_up(state, 0);
	open_bulk(0, 7);
	keep(0);
	keep(1);
	struct conn *c = kept__find(p.side[0].t, second);
	assert_non_null(c);
	c->handed_out = true;
	assert_null(kept__find(p.side[0].t, second));
	pair_close(&p);
}

/* Somebody on the way writes that to the second's kept end: it ends, and nobody is told. */
static void tamper(const uint8_t *bytes, size_t len)
{
	open_bulk(0, 5);
	keep(1);
	p.side[1].bulks = 0;
	assert_int_equal(send(p.side[0].fd[0], bytes, len, 0), (ssize_t)len);
	shutdown(p.side[0].fd[0], SHUT_WR);
	assert_true(await(&p, second_keeps_none));
	await_end(p.side[0].fd[0]);
	assert_int_equal(p.side[1].bulks_failed, 0);
	assert_non_null(transport__find(p.side[1].t, &p.side[0].identity.id));
	close(p.side[0].fd[0]);
}

static void what_is_made_up_ends_it(void **state)
{
	uint8_t opening[128], other[128];
	set_up(state, 0);
	size_t len = opening_of(5, 1, opening); /* what the first open_bulk will have used */
	tamper(opening, len);
	size_t cut = opening_of(5, 9, other);
	for (size_t at = 0; at < cut; at += 7)
		tamper(other, at); /* cut, before it was used */
	for (size_t at = 0; at < cut; at += 5) {
		uint8_t changed[128];
		memcpy(changed, other, cut);
		changed[at] ^= 0x40;
		tamper(changed, cut);
	}
	static const uint8_t handshake[3 + 32] = "\x01\x20\x00 no handshake here, to be sure";
	static const uint8_t frame[32] = "\0\0\0\3 a frame that was recorded";
	tamper(handshake, sizeof handshake);
	tamper(frame, sizeof frame);
	pair_close(&p);
}

/* Another peer's opening is nothing for it, though its token is good. */
static void it_is_one_peers(void **state)
{
	uint8_t opening[128];
	int fd[2];
	set_up(state, 0);
	struct peer_id stranger = {{1, 2, 3}};
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
	conn__keep(p.side[1].t, &stranger, fd[1]);
	size_t len = opening_of(5, 1, opening);
	assert_int_equal(send(fd[0], opening, len, 0), (ssize_t)len);
	await_end(fd[0]);
	close(fd[0]);
	pair_close(&p);
}

static int kept_by(const struct transport *t)
{
	int n = 0;
	for (const struct conn *c = t->conns; c; c = c->next)
		n += c->kept && c->state == CONN_OPENING;
	return n;
}

/* A kept connection with a peer of that number; the other end is left open until the test ends. */
static void keep_another(uint8_t number, int *other)
{
	int fd[2];
	struct peer_id id = {{number}};
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
	conn__keep(p.side[0].t, &id, fd[1]);
	*other = fd[0];
}

static void there_are_four_at_most(void **state)
{
	int other[BULK_KEPT];
	struct peer_id first = {{1}}, next = {{2}};
	set_up(state, 0);
	for (int i = 0; i < BULK_KEPT; i++)
		keep_another((uint8_t)(i + 1), &other[i]);
	for (int round = 0; round < 2; round++) { /* the second takes the place of its own peer's */
		open_bulk(0, 3);
		keep(0);
		assert_int_equal(kept_by(p.side[0].t), BULK_KEPT);
		assert_null(kept__find(p.side[0].t, &first));
		assert_non_null(kept__find(p.side[0].t, &next));
		assert_non_null(kept__find(p.side[0].t, second));
		close(p.side[1].fd[0]);
		if (round == 0)
			assert_true(await(&p, first_keeps_none));
	}
	for (int i = 0; i < BULK_KEPT; i++)
		close(other[i]);
	pair_close(&p);
}

static void they_give_way(void **state)
{
	int other;
	for (int how = 0; how < 4; how++) {
		set_up(state, 0);
		open_bulk(0, 3);
		keep(0);
		keep_another(1, &other);
		struct transport *t = p.side[0].t;
		struct conn *c = t->conns;
		assert_int_equal(kept_by(t), 2);
		if (how == 0) { /* its session has ended */
			transport_expel(t, second, "because");
			assert_int_equal(kept_by(t), 1);
		} else if (how == 1) { /* descriptors are short */
			t->config.connections_max = t->counters.connections;
			conn__accept(t);
			assert_int_equal(kept_by(t), 0);
		} else if (how == 2) { /* idle */
			c->began_ms = 0;
			conn__tick(c, BULK_KEPT_MS);
			assert_int_equal(kept_by(t), 2);
			conn__tick(c, BULK_KEPT_MS + 1);
			assert_int_equal(kept_by(t), 1);
		} else { /* the fd comes back when the session is over */
			conn__close(transport__find(t, second));
			int fd = dup(p.side[1].fd[0]);
			transport_bulk_keep(t, second, fd);
			assert_int_equal(kept_by(t), 1);
			assert_true(fcntl(fd, F_GETFD) < 0);
		}
		close(other);
		close(p.side[1].fd[0]);
		pair_close(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(both_sides_use_it),
	        cmocka_unit_test(who_cannot_dial_opens_none),
	        cmocka_unit_test(handed_out_is_not_kept),
	        cmocka_unit_test(else_it_dials),
	        cmocka_unit_test(what_is_made_up_ends_it),
	        cmocka_unit_test(it_is_one_peers),
	        cmocka_unit_test(there_are_four_at_most),
	        cmocka_unit_test(they_give_way),
	};
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

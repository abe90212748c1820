/* SPDX-License-Identifier: MIT */
/* The control socket, asked over a real one by clients of every kind: hasty, slow, silent, gone,
 * too many, and talking nonsense. Loop and clients share one thread: the loop is turned while a
 * client waits. The core behind it is a real one that was told of members. */
#include "agent/control/control.h"
#include "agent/json/jsontext.h"
#include "tests/agent/replies.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

struct fixture {
	uv_loop_t loop;
	struct control *control;
	struct gossip *g;
	void *memory;
	struct gossip_actions *actions;
	char path[108];
	uint64_t idle_ms; /* 0: as usual */
	int left;
	bool closed;
};

static struct peer_addr addr_of(uint32_t n)
{
	return (struct peer_addr){.family = 4,
	        .ip = {10, (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n},
	        .port = 7946};
}

static struct peer_id id_of(uint32_t n)
{
	struct peer_id id = {{0xab, (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n}};
	return id;
}

static void add_member(struct fixture *f, uint32_t n, struct gossip_update u)
{
	struct gossip_message m = {.kind = MESSAGE_GOSSIP, .n_updates = 1, .update = {u}};
	struct gossip_event e = {.kind = EVENT_RECEIVED,
	        .now_ms = 1000,
	        .received = {id_of(n), addr_of(n), CHANNEL_STREAM, &m}};
	assert_true(gossip_wants(f->g, &u));
	gossip_step(f->g, &e, f->actions);
}

static struct gossip_update record_of(uint32_t n)
{
	return (struct gossip_update){.kind = UPDATE_RECORD,
	        .record = {.id = id_of(n),
	                .generation = 5,
	                .nonce = n,
	                .incarnation = 1,
	                .dialable = n % 2 == 0,
	                .addrs = {1, {addr_of(n)}},
	                .protocol_min = 1,
	                .protocol_max = 3,
	                .status = {.samples = 1ull << 40, .step = n, .loss = n ? 0.5f : NAN}}};
}

static void make_core(struct fixture *f, uint32_t members)
{
	struct gossip_config c = {.profile = gossip_lan,
	        .self = {{0xee}},
	        .generation = 4,
	        .nonce = 1,
	        .addrs = {2, {addr_of(9), addr_of(10)}},
	        .dialable = true,
	        .protocol_min = 1,
	        .protocol_max = 2,
	        .members_max = members > 8 ? members : 8};
	struct gossip_event start = {.kind = EVENT_START, .now_ms = 1000};
	f->memory = calloc(1, gossip_size(&c));
	f->actions = calloc(1, sizeof *f->actions);
	assert_true(f->memory && f->actions);
	assert_int_equal(gossip_init(&f->g, f->memory, gossip_size(&c), &c, NULL), 0);
	gossip_step(f->g, &start, f->actions);
	for (uint32_t i = 0; i < members; i++)
		add_member(f, i, record_of(i));
	assert_int_equal(gossip_count(f->g), members);
}

static void free_core(struct fixture *f)
{
	free(f->memory);
	free(f->actions);
}

static void look(void *arg, struct control_view *out)
{
	struct fixture *f = arg;
	*out = (struct control_view){.name = "he\"ron",
	        .version = "1.2",
	        .gossip = f->g,
	        .listen = addr_of(8),
	        .now_ms = 61500,
	        .uptime_ms = 2500,
	        .rss_kb = 77,
	        .net = {.bytes_sent = 1, .half_open = 12},
	        .lag = {.p99_us = 4000}};
}

static void on_leave(void *arg)
{
	((struct fixture *)arg)->left++;
}

static void on_closed(void *arg)
{
	((struct fixture *)arg)->closed = true;
}

static int listen_at(struct fixture *f, struct err *e)
{
	struct control_config c = {.loop = &f->loop,
	        .path = f->path,
	        .idle_ms = f->idle_ms ? f->idle_ms : CONTROL_IDLE_MS,
	        .arg = f,
	        .look_cb = look,
	        .leave_cb = on_leave};
	return control_new(&f->control, &c, e);
}

static void begin_with(struct fixture *f, void **state, uint32_t members, uint64_t idle_ms)
{
	struct err e;
	memset(f, 0, sizeof *f);
	f->idle_ms = idle_ms;
	snprintf(f->path, sizeof f->path, "%s/run/c.sock", (char *)*state);
	make_core(f, members);
	assert_int_equal(uv_loop_init(&f->loop), 0);
	if (listen_at(f, &e))
		fail_msg("%s", e.msg);
}

static void begin(struct fixture *f, void **state, uint32_t members)
{
	begin_with(f, state, members, 0);
}

static void end(struct fixture *f)
{
	struct stat st;
	control_close(f->control, on_closed, f);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_true(f->closed);
	assert_int_equal(uv_loop_close(&f->loop), 0);
	assert_int_equal(stat(f->path, &st), -1);
	free_core(f);
}

/* ---- clients */

static int dial(const struct fixture *f)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	strcpy(to.sun_path, f->path);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
	return fd;
}

static void put(struct fixture *f, int fd, const char *text, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, text, len, MSG_NOSIGNAL);
		if (n > 0) {
			text += n;
			len -= (size_t)n;
		} else if (n < 0 && errno == EPIPE) {
			return;
		}
		uv_run(&f->loop, UV_RUN_NOWAIT);
	}
}

/* Reads a line, or up to the end; the loop turns meanwhile. False: the end came first. */
static bool get_line(struct fixture *f, int fd, struct buf *line)
{
	line->len = 0;
	for (;;) {
		char c[4096];
		ssize_t n = recv(fd, c, sizeof c, MSG_PEEK);
		if (n < 0 && errno != EAGAIN)
			return false;
		if (n == 0)
			return false;
		if (n > 0) {
			char *newline = memchr(c, '\n', (size_t)n);
			size_t take = newline ? (size_t)(newline - c) + 1 : (size_t)n;
			assert_int_equal(recv(fd, c, take, 0), take);
			assert_int_equal(buf_append(line, c, take), 0);
			if (newline)
				return true;
		}
		uv_run(&f->loop, UV_RUN_NOWAIT);
	}
}

/* An answer, to that request; NULL: to any. */
static cJSON *hear_to(struct fixture *f, int fd, const char *request)
{
	struct buf line;
	buf_init(&line, 32 << 20);
	assert_true(get_line(f, fd, &line));
	cJSON *o = cJSON_ParseWithLengthOpts(line.data, line.len + 1, NULL, true);
	if (!cJSON_IsObject(o))
		fail_msg("no JSON: %s", line.data);
	buf_close(&line);
	reply_check(request, o);
	return o;
}

static cJSON *hear(struct fixture *f, int fd)
{
	return hear_to(f, fd, NULL);
}

static cJSON *ask(struct fixture *f, int fd, const char *request)
{
	put(f, fd, request, strlen(request));
	return hear_to(f, fd, request);
}

static void expect_end(struct fixture *f, int fd)
{
	struct buf rest;
	buf_init(&rest, 1 << 20);
	assert_false(get_line(f, fd, &rest));
	assert_int_equal(rest.len, 0);
	buf_close(&rest);
}

static const cJSON *at(const cJSON *o, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
	assert_non_null(v);
	return v;
}

static void expect_error(struct fixture *f, int fd, const char *request, const char *part)
{
	cJSON *o = ask(f, fd, request);
	assert_true(cJSON_IsFalse(at(o, "ok")));
	if (!strstr(at(o, "error")->valuestring, part))
		fail_msg("%s gave %s", request, at(o, "error")->valuestring);
	cJSON_Delete(o);
}

/* ---- tests */

static void test_status(void **state)
{
	struct fixture f;
	begin(&f, state, 3);
	add_member(&f, 1,
	        (struct gossip_update){.kind = UPDATE_ACCUSATION,
	                .accusation = {.about = id_of(2),
	                        .generation = 5,
	                        .incarnation = 1,
	                        .by = id_of(1),
	                        .dead = false}});
	int fd = dial(&f);
	cJSON *o = ask(&f, fd, "{\"cmd\":\"status\",\"tag\":\"x\\u00e9\"}\n");
	assert_true(cJSON_IsTrue(at(o, "ok")));
	assert_string_equal(at(o, "tag")->valuestring, "xé");
	assert_string_equal(at(o, "name")->valuestring, "he\"ron");
	assert_string_equal(at(o, "version")->valuestring, "1.2");
	assert_int_equal(strlen(at(o, "id")->valuestring), 64);
	assert_memory_equal(at(o, "id")->valuestring, "ee00", 4);
	assert_int_equal(cJSON_GetArrayItem(at(o, "protocol"), 1)->valueint, 2);
	assert_int_equal(at(o, "generation")->valueint, 4);
	assert_true(at(o, "uptime_s")->valuedouble == 2.5);
	assert_string_equal(at(o, "listen")->valuestring, "10.0.0.8:7946");
	assert_string_equal(at(o, "advertise")->valuestring, "10.0.0.9:7946");
	assert_int_equal(cJSON_GetArraySize(at(o, "addrs")), 2);
	assert_string_equal(cJSON_GetArrayItem(at(o, "addrs"), 1)->valuestring, "10.0.0.10:7946");
	assert_true(cJSON_IsTrue(at(o, "dialable")));
	assert_string_equal(at(o, "profile")->valuestring, "lan");
	assert_int_equal(at(at(o, "peers"), "alive")->valueint, 2);
	assert_int_equal(at(at(o, "peers"), "suspect")->valueint, 1);
	assert_true(at(o, "clock")->valuedouble == 3.0 * (double)(1ull << 40));
	assert_int_equal(at(at(o, "loop"), "lag_us_p99")->valueint, 4000);
	assert_int_equal(at(at(o, "net"), "bytes_sent")->valueint, 1);
	assert_int_equal(at(at(o, "net"), "half_open")->valueint, 12);
	assert_int_equal(at(at(o, "membership"), "probes")->valueint, 0);
	assert_int_equal(at(o, "rss_kb")->valueint, 77);
	assert_int_equal(at(at(o, "health"), "score")->valueint, 0);
	assert_string_equal(at(at(o, "health"), "words")->valuestring,
	        "keeps membership only; some peers do not answer at the moment");
	assert_true(cJSON_IsNull(at(o, "training")));
	cJSON_Delete(o);
	o = ask(&f, fd, "{\"cmd\":\"version\",\"tag\":-1.5}\r\n");
	assert_true(at(o, "tag")->valuedouble == -1.5);
	assert_string_equal(at(o, "version")->valuestring, "1.2");
	cJSON_Delete(o);
	close(fd);
	end(&f);
}

static void check_peers(const cJSON *o, uint32_t members)
{
	uint32_t n = 0;
	const cJSON *p;
	cJSON_ArrayForEach(p, at(o, "peers"))
	{
		uint32_t i = (uint32_t)at(p, "step")->valueint;
		struct peer_id id = id_of(i);
		char hex[9], addr[64];
		snprintf(hex, sizeof hex, "%02x%02x%02x%02x", id.bytes[0], id.bytes[1], id.bytes[2],
		        id.bytes[3]);
		struct peer_addr a = addr_of(i);
		assert_memory_equal(at(p, "id")->valuestring, hex, 8);
		assert_string_equal(at(p, "addr")->valuestring, peer_addr_text(&a, addr));
		assert_string_equal(at(p, "addrs")->child->valuestring, addr);
		assert_string_equal(at(p, "state")->valuestring, "alive");
		assert_true(at(p, "since_s")->valuedouble == 60.5);
		assert_int_equal(cJSON_IsTrue(at(p, "dialable")), i % 2 == 0);
		assert_false(cJSON_IsTrue(at(p, "unreachable")));
		assert_int_equal(cJSON_GetArrayItem(at(p, "protocol"), 1)->valueint, 3);
		assert_true(at(p, "samples")->valuedouble == (double)(1ull << 40));
		if (i == 0)
			assert_true(cJSON_IsNull(at(p, "loss")));
		else
			assert_true(at(p, "loss")->valuedouble == 0.5);
		assert_int_equal(at(p, "generation")->valueint, 5);
		assert_int_equal(at(p, "incarnation")->valueint, 1);
		(void)at(p, "connected");
		n++;
	}
	assert_int_equal(n, members);
}

static void test_peers_in_slices(void **state)
{
	static const uint32_t counts[] = {0, 1, CONTROL_SLICE, CONTROL_SLICE + 1, 4096};
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
		struct fixture f;
		begin(&f, state, counts[i]);
		int fd = dial(&f);
		/* Two at once: the answers must not mix. */
		cJSON *o = ask(&f, fd, "{\"cmd\":\"peers\"}\n{\"cmd\":\"peers\"}\n");
		check_peers(o, counts[i]);
		cJSON_Delete(o);
		o = hear(&f, fd);
		check_peers(o, counts[i]);
		cJSON_Delete(o);
		close(fd);
		end(&f);
	}
}

static void test_nonsense(void **state)
{
	struct fixture f;
	begin(&f, state, 0);
	int fd = dial(&f);
	expect_error(
	        &f, fd, "{\"cmd\":\"leaf\"}\n", "unknown cmd \"leaf\"; did you mean \"leave\"?");
	expect_error(&f, fd, "{\"cmd\":\"zzzzzz\"}\n", "use one of status, peers, ledger, exch");
	expect_error(&f, fd, "hello\n", "not JSON: column 1: expected a value");
	expect_error(&f, fd, "[1]\n", "a request must be an object");
	expect_error(&f, fd, "{}\n", "\"cmd\" must be one of");
	expect_error(&f, fd, "{\"cmd\":1}\n", "\"cmd\" must be one of");
	expect_error(&f, fd, "{\"cmd\":\"status\",\"cmd\":\"leave\"}\n", "\"cmd\" is given twice");
	expect_error(&f, fd, "{\"cmd\":\"status\",\"x\\u001b\":1}\n", "\"x\\x1b\" is unknown");
	expect_error(&f, fd, "{\"cmd\":\"status\",\"tag\":[]}\n",
	        "\"tag\" must be a string or a number");
	expect_error(&f, fd, "{\"cmd\":\"status\"} {}\n", "expected the end of the text");
	expect_error(&f, fd, "{\"cmd\":\"\\u0000\"}\n", "\\u0000 is not allowed");
	put(&f, fd, "{\"cmd\":\"version\"}\0\n", 19);
	cJSON *o = hear(&f, fd);
	assert_true(cJSON_IsFalse(at(o, "ok")));
	cJSON_Delete(o);
	assert_int_equal(f.left, 0);
	/* and it still answers, blank lines and all */
	o = ask(&f, fd, "\n \t\r\n\n{\"cmd\":\"version\"}\n");
	assert_true(cJSON_IsTrue(at(o, "ok")));
	cJSON_Delete(o);
	close(fd);
	end(&f);
}

static void test_long_lines(void **state)
{
	struct fixture f;
	char *text = malloc(LIMIT_CONTROL_LINE + 1);
	begin(&f, state, 0);
	int fd = dial(&f);
	memset(text, ' ', LIMIT_CONTROL_LINE);
	memcpy(text, "{\"cmd\":\"version\"}", 17);
	text[LIMIT_CONTROL_LINE - 1] = '\n';
	put(&f, fd, text, LIMIT_CONTROL_LINE);
	cJSON *o = hear(&f, fd);
	assert_true(cJSON_IsTrue(at(o, "ok")));
	cJSON_Delete(o);
	text[LIMIT_CONTROL_LINE - 1] = ' ';
	put(&f, fd, text, LIMIT_CONTROL_LINE);
	o = hear(&f, fd);
	assert_non_null(strstr(at(o, "error")->valuestring, "less than 65536 bytes"));
	cJSON_Delete(o);
	expect_end(&f, fd);
	close(fd);
	free(text);
	end(&f);
}

static void test_end_of_input(void **state)
{
	struct fixture f;
	begin(&f, state, 300);
	int fd = dial(&f);
	/* All that was asked is answered, the last line without a newline too. */
	put(&f, fd, "{\"cmd\":\"peers\"}\n{\"cmd\":\"version\"}", 33);
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	cJSON *o = hear(&f, fd);
	check_peers(o, 300);
	cJSON_Delete(o);
	o = hear(&f, fd);
	(void)at(o, "version");
	cJSON_Delete(o);
	expect_end(&f, fd);
	close(fd);
	/* Clients that go away at any moment harm nobody. */
	for (int turns = 0; turns < 8; turns++) {
		fd = dial(&f);
		put(&f, fd, "{\"cmd\":\"peers\"}\n{\"cmd\":\"peers\"}\n", 32);
		for (int i = 0; i < turns; i++)
			uv_run(&f.loop, UV_RUN_NOWAIT);
		close(fd);
	}
	fd = dial(&f);
	o = ask(&f, fd, "{\"cmd\":\"version\"}\n");
	cJSON_Delete(o);
	close(fd);
	end(&f);
}

/* A client that asks and asks and never reads is answered no further than the socket's buffer. */
static void test_client_that_does_not_read(void **state)
{
	struct fixture f;
	begin(&f, state, 2000);
	int deaf = dial(&f), fd = dial(&f);
	static const char request[] = "{\"cmd\":\"peers\"}\n";
	size_t sent = 0;
	for (int stuck = 0; stuck < 100;) {
		ssize_t n = send(deaf, request, sizeof request - 1, MSG_NOSIGNAL);
		stuck = n < 0 ? stuck + 1 : 0;
		sent += n > 0 ? (size_t)n : 0;
		uv_run(&f.loop, UV_RUN_NOWAIT);
	}
	assert_true(sent < 4 << 20);
	cJSON *o = ask(&f, fd, "{\"cmd\":\"peers\"}\n");
	check_peers(o, 2000);
	cJSON_Delete(o);
	close(fd);
	close(deaf);
	end(&f);
}

static void test_too_many_clients(void **state)
{
	struct fixture f;
	int fd[LIMIT_CONTROL_CLIENTS];
	begin(&f, state, 0);
	for (int i = 0; i < LIMIT_CONTROL_CLIENTS; i++) {
		fd[i] = dial(&f);
		cJSON *o = ask(&f, fd[i], "{\"cmd\":\"version\"}\n");
		cJSON_Delete(o);
	}
	int extra = dial(&f);
	cJSON *o = hear(&f, extra);
	assert_non_null(strstr(at(o, "error")->valuestring, "too many connections"));
	cJSON_Delete(o);
	expect_end(&f, extra);
	close(extra);
	close(fd[5]);
	uv_run(&f.loop, UV_RUN_NOWAIT);
	fd[5] = dial(&f);
	o = ask(&f, fd[5], "{\"cmd\":\"version\"}\n");
	assert_true(cJSON_IsTrue(at(o, "ok")));
	cJSON_Delete(o);
	for (int i = 0; i < LIMIT_CONTROL_CLIENTS; i++)
		close(fd[i]);
	end(&f);
}

/* Whoever has been silent for longest gives way, busy ones do not. */
static void test_idle_client_gives_way(void **state)
{
	struct fixture f;
	int fd[LIMIT_CONTROL_CLIENTS];
	begin_with(&f, state, 0, 5);
	for (int i = 0; i < LIMIT_CONTROL_CLIENTS; i++) {
		fd[i] = dial(&f);
		cJSON_Delete(ask(&f, fd[i], "{\"cmd\":\"version\"}\n"));
	}
	for (uint64_t from = uv_now(&f.loop); uv_now(&f.loop) < from + 10;)
		uv_run(&f.loop, UV_RUN_NOWAIT);
	for (int i = 0; i < LIMIT_CONTROL_CLIENTS; i++)
		if (i != 7)
			cJSON_Delete(ask(&f, fd[i], "{\"cmd\":\"version\"}\n"));
	int extra = dial(&f);
	cJSON *o = ask(&f, extra, "{\"cmd\":\"version\"}\n");
	assert_true(cJSON_IsTrue(at(o, "ok")));
	cJSON_Delete(o);
	expect_end(&f, fd[7]);
	close(extra);
	for (int i = 0; i < LIMIT_CONTROL_CLIENTS; i++)
		close(fd[i]);
	end(&f);
}

/* Somebody has opened the socket to all: another user is told no, and nothing else. */
static void test_another_user(void **state)
{
	struct fixture f;
	char folder[128];
	if (geteuid() != 0)
		skip(); /* nobody else can be had */
	begin(&f, state, 1);
	snprintf(folder, sizeof folder, "%s/run", (char *)*state);
	assert_int_equal(chmod(f.path, 0666) | chmod(folder, 0755) | chmod(*state, 0755), 0);
	assert_int_equal(seteuid(65534), 0);
	int fd = dial(&f);
	assert_int_equal(seteuid(0), 0);
	put(&f, fd, "{\"cmd\":\"leave\"}\n", 16);
	cJSON *o = hear(&f, fd);
	assert_true(cJSON_IsFalse(at(o, "ok")));
	assert_non_null(strstr(at(o, "error")->valuestring, "another user's"));
	cJSON_Delete(o);
	assert_int_equal(f.left, 0);
	assert_int_equal(chmod(folder, 0700) | chmod(*state, 0700), 0);
	close(fd);
	end(&f);
}

static void test_leave(void **state)
{
	struct fixture f;
	begin(&f, state, 0);
	int fd = dial(&f);
	cJSON *o = ask(&f, fd, "{\"cmd\":\"leave\"}\n");
	assert_true(cJSON_IsTrue(at(o, "ok")));
	assert_string_equal(at(o, "name")->valuestring, "he\"ron");
	cJSON_Delete(o);
	assert_int_equal(f.left, 1);
	/* The connection stands until the agent is gone. */
	o = ask(&f, fd, "{\"cmd\":\"version\"}\n");
	cJSON_Delete(o);
	end(&f);
	char c;
	assert_int_equal(recv(fd, &c, 1, 0), 0);
	close(fd);
}

static void test_socket_file(void **state)
{
	struct fixture f, other;
	struct stat st;
	struct err e;
	char folder[128];
	begin(&f, state, 0);
	snprintf(folder, sizeof folder, "%s/run", (char *)*state);
	assert_int_equal(stat(folder, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(stat(f.path, &st), 0);
	assert_true(S_ISSOCK(st.st_mode));
	assert_int_equal(st.st_mode & 0777, 0600);
	/* A living agent's socket is left alone. */
	memset(&other, 0, sizeof other);
	strcpy(other.path, f.path);
	assert_int_equal(uv_loop_init(&other.loop), 0);
	assert_int_equal(listen_at(&other, &e), ERR_BUSY);
	assert_non_null(strstr(e.msg, "--name"));
	end(&f);
	/* A dead one's is replaced. */
	int dead = socket(AF_UNIX, SOCK_STREAM, 0);
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	strcpy(a.sun_path, other.path);
	assert_int_equal(bind(dead, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(dead, 1), 0);
	close(dead);
	assert_int_equal(stat(other.path, &st), 0);
	assert_int_equal(listen_at(&other, &e), 0);
	/* What is no longer ours is not removed. */
	assert_int_equal(unlink(other.path), 0);
	write_file(other.path, "mine", 4);
	control_close(other.control, NULL, NULL);
	uv_run(&other.loop, UV_RUN_DEFAULT);
	assert_int_equal(stat(other.path, &st), 0);
	/* A file is not a socket. */
	assert_int_equal(listen_at(&other, &e), ERR_INVALID);
	assert_non_null(strstr(e.msg, "not a socket"));
	uv_run(&other.loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&other.loop), 0);
	unlink(other.path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_status),
	        cmocka_unit_test(test_peers_in_slices),
	        cmocka_unit_test(test_nonsense),
	        cmocka_unit_test(test_long_lines),
	        cmocka_unit_test(test_end_of_input),
	        cmocka_unit_test(test_client_that_does_not_read),
	        cmocka_unit_test(test_too_many_clients),
	        cmocka_unit_test(test_idle_client_gives_way),
	        cmocka_unit_test(test_another_user),
	        cmocka_unit_test(test_leave),
	        cmocka_unit_test(test_socket_file),
	};
	signal(SIGPIPE, SIG_IGN); /* as main does */
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

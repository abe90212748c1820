/* SPDX-License-Identifier: MIT */
/* The state directory: its lock between real processes, known peers through damage and back; and
 * what else of an agent's start needs no network: places, addresses, the greeting. */
#include "agent/base/textlist.h"
#include "agent/cli/cli.h"
#include "agent/config/hostport.h"
#include "agent/config/options.h"
#include "agent/config/paths.h"
#include "agent/node/join_hint.h"
#include "agent/node/state_dir.h"
#include "agent/node/state_writer.h"
#include "net/transport/transport.h"
#include "tests/support.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <wordexp.h>

static char *path_in(void **state, const char *name)
{
	static char path[512];
	snprintf(path, sizeof path, "%s/%s", (char *)*state, name);
	return path;
}

static struct peer_addr addr(const char *text)
{
	struct peer_addr a;
	assert_int_equal(peer_addr_parse(text, &a, NULL), 0);
	return a;
}

static void test_folder_is_private(void **state)
{
	struct state_dir d;
	struct stat st;
	struct err e;
	const char *path = path_in(state, "new/deep/state");
	assert_int_equal(state_dir_open(&d, path, &e), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	state_dir_close(&d);
	assert_int_equal(state_dir_open(&d, path, &e), 0); /* again */
	state_dir_close(&d);
	assert_int_equal(chmod(path, 0770), 0);
	assert_int_equal(state_dir_open(&d, path, &e), ERR_INVALID);
	assert_non_null(strstr(e.msg, "chmod go-w"));
	if (geteuid() == 0) { /* else nobody else's folder can be made */
		assert_int_equal(chmod(path, 0700), 0);
		assert_int_equal(chown(path, 65534, 65534), 0);
		assert_int_equal(state_dir_open(&d, path, &e), ERR_INVALID);
		assert_non_null(strstr(e.msg, "belongs to user 65534"));
	}
	path = path_in(state, "file");
	write_file(path, "x", 1);
	assert_true(state_dir_open(&d, path, &e) < 0);
	assert_non_null(strstr(e.msg, "not a folder"));
	assert_true(state_dir_open(&d, path_in(state, "file/in"), &e) < 0);
	/* Trailing and double slashes are the same folder. */
	assert_int_equal(folder_make_private(path_in(state, "slash//"), &e), 0);
	assert_int_equal(stat(path_in(state, "slash"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
}

/* In another process: what a second agent would be told. */
static int open_elsewhere(const char *path, char said[256])
{
	int pipes[2], status;
	assert_int_equal(pipe(pipes), 0);
	pid_t child = fork();
	if (child == 0) {
		struct state_dir d;
		struct err e = {0};
		int rc = state_dir_open(&d, path, &e);
		ssize_t n = write(pipes[1], e.msg, sizeof e.msg);
		_exit(n == sizeof e.msg ? -rc : 99);
	}
	assert_int_equal(read(pipes[0], said, 256), 256);
	assert_int_equal(waitpid(child, &status, 0), child);
	close(pipes[0]);
	close(pipes[1]);
	return -WEXITSTATUS(status);
}

static void test_one_agent_at_a_time(void **state)
{
	struct state_dir d;
	struct err e;
	char said[256], pid[32];
	const char *path = path_in(state, "locked");
	assert_int_equal(state_dir_open(&d, path, &e), 0);
	assert_int_equal(open_elsewhere(path, said), ERR_BUSY);
	snprintf(pid, sizeof pid, "process %ld:", (long)getpid());
	assert_non_null(strstr(said, pid));
	assert_non_null(strstr(said, "--name"));
	state_dir_close(&d);
	assert_int_equal(open_elsewhere(path, said), 0);
	/* It has ended, and so the lock is free whatever it left behind. */
	assert_int_equal(state_dir_open(&d, path, &e), 0);
	state_dir_close(&d);
}

static void test_peers_are_kept(void **state)
{
	struct state_dir d;
	struct err e, damage;
	struct peer_addr many[STATE_DIR_PEERS], met[STATE_DIR_PEERS];
	int n = -1;
	assert_int_equal(state_dir_open(&d, path_in(state, "peers"), &e), 0);
	assert_int_equal(state_dir_load_peers(&d, met, &n, &damage, &e), 0);
	assert_int_equal(n, 0);
	assert_int_equal(damage.code, 0);
	for (int i = 0; i < STATE_DIR_PEERS; i++) {
		many[i] = addr(i % 2 ? "10.0.0.5:1" : "[2001:db8:1111:2222:3333:4444:5555:6666]:1");
		many[i].port = (uint16_t)(65535 - i);
	}
	assert_int_equal(state_dir_save_peers(&d, many, STATE_DIR_PEERS, &e), 0);
	assert_int_equal(state_dir_load_peers(&d, met, &n, &damage, &e), 0);
	assert_int_equal(n, STATE_DIR_PEERS);
	assert_memory_equal(met, many, sizeof many);
	assert_int_equal(state_dir_save_peers(&d, many, 0, &e), 0);
	assert_int_equal(state_dir_load_peers(&d, met, &n, &damage, &e), 0);
	assert_int_equal(n, 0);
	state_dir_close(&d);
}

static void test_damaged_peers_are_put_aside(void **state)
{
	static const char *const bad[] = {"", "{\"version\": 1, \"peers\": [\"10.0.0.5:1\"",
	        "{\"version\": 2, \"peers\": []}", "[]", "{\"version\": 1, \"peers\": [1]}",
	        "{\"version\": 1, \"peers\": [\"h:1\"]}",
	        "{\"version\": 1, \"peers\": [\"1.2.3.4:0\"]}", "\xff\xfe\0"};
	struct state_dir d;
	struct err e, damage;
	struct peer_addr met[STATE_DIR_PEERS];
	struct stat st;
	char path[LIMIT_PATH + 16], aside[LIMIT_PATH + 32];
	int n;
	assert_int_equal(state_dir_open(&d, path_in(state, "damaged"), &e), 0);
	snprintf(path, sizeof path, "%s/peers.json", d.path);
	snprintf(aside, sizeof aside, "%s.damaged", path);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		write_file(path, bad[i], strlen(bad[i]));
		n = -1;
		assert_int_equal(state_dir_load_peers(&d, met, &n, &damage, &e), 0);
		assert_int_equal(n, 0);
		assert_true(damage.code != 0 && damage.msg[0]);
		assert_int_equal(stat(path, &st), -1);
		assert_int_equal(stat(aside, &st), 0);
	}
	/* Too large, and too many. */
	struct buf text;
	buf_init(&text, 1 << 20);
	assert_int_equal(buf_printf(&text, "{\"version\": 1, \"peers\": ["), 0);
	for (int i = 0; i <= STATE_DIR_PEERS; i++)
		assert_int_equal(buf_printf(&text, "%s\"1.2.3.4:5\"", i ? "," : ""), 0);
	assert_int_equal(buf_printf(&text, "]}%70000s", ""), 0);
	write_file(path, text.data, text.len);
	assert_int_equal(state_dir_load_peers(&d, met, &n, &damage, &e), 0);
	assert_int_equal(damage.code, ERR_LIMIT);
	write_file(path, text.data, text.len - 70000);
	assert_int_equal(state_dir_load_peers(&d, met, &n, &damage, &e), 0);
	assert_int_equal(n, 0);
	assert_non_null(strstr(damage.msg, "more than 256"));
	buf_close(&text);
	state_dir_close(&d);
}

/* ---- whom to remember, out of what a core knows */

static void tell(struct gossip *g, struct gossip_update u)
{
	static struct gossip_actions actions;
	struct gossip_message m = {.kind = MESSAGE_GOSSIP, .n_updates = 1, .update = {u}};
	struct gossip_event e = {
	        .kind = EVENT_RECEIVED, .now_ms = 1, .received = {{{1}}, {0}, CHANNEL_STREAM, &m}};
	assert_true(gossip_wants(g, &u));
	gossip_step(g, &e, &actions);
}

static struct gossip_update member(uint8_t n, bool left)
{
	return (struct gossip_update){.kind = UPDATE_RECORD,
	        .record = {.id = {{n}},
	                .generation = 1,
	                .nonce = n,
	                .incarnation = 1,
	                .version = left,
	                .left = left,
	                .dialable = n % 2,
	                .addrs = {2, {{4, {10, 0, 0, n}, 13865}, {4, {10, 1, 0, n}, 13865}}}}};
}

static void test_whom_to_remember(void **state)
{
	(void)state;
	static struct state_writer_peers out, before;
	static struct gossip_actions actions;
	struct gossip_config c = {
	        .profile = gossip_lan, .generation = 1, .nonce = 1, .members_max = 8};
	struct gossip_event start = {.kind = EVENT_START, .now_ms = 1};
	struct gossip *g;
	void *memory = calloc(1, gossip_size(&c));
	assert_int_equal(gossip_init(&g, memory, gossip_size(&c), &c, NULL), 0);
	gossip_step(g, &start, &actions);
	for (uint8_t n = 1; n <= 6; n++) /* 1, 3 and 5 are dialable */
		tell(g, member(n, false));
	tell(g, (struct gossip_update){.kind = UPDATE_ACCUSATION,
	                .accusation = {{{1}}, .generation = 1, .incarnation = 1, {{2}}, true}});
	tell(g, member(3, true));
	before.n = 2;
	before.addr[0] = addr("10.0.0.5:13865");
	before.addr[1] = addr("10.0.0.77:13865");
	state_writer_choose(&out, g, &before);
	assert_int_equal(out.n, 5);
	assert_int_equal(out.addr[0].ip[3], 5); /* known before */
	assert_int_equal(out.addr[1].ip[3], 77);
	assert_int_equal(out.addr[2].ip[3], 1);                        /* dead: it may come back */
	assert_true(out.addr[3].ip[1] == 1 && out.addr[3].ip[3] == 5); /* their second ones */
	assert_true(out.addr[4].ip[1] == 1 && out.addr[4].ip[3] == 1);
	for (before.n = 0; before.n < STATE_DIR_PEERS; before.n++)
		before.addr[before.n] = (struct peer_addr){4, {11, 0, 0, (uint8_t)before.n}, 13865};
	/* Addresses that nobody has answered at take no place from these; one that answers does. */
	state_writer_choose(&out, g, &before);
	assert_int_equal(out.n, STATE_DIR_PEERS);
	assert_memory_equal(out.addr, before.addr, sizeof before.addr);
	struct gossip_event up = {.kind = EVENT_PEER_UP, .now_ms = 2};
	up.peer.id = (struct peer_id){{5}};
	up.peer.address = addr("10.1.0.5:13865");
	gossip_step(g, &up, &actions);
	state_writer_choose(&out, g, &before);
	assert_int_equal(out.n, STATE_DIR_PEERS);
	assert_true(peer_addr_equal(&out.addr[0], &up.peer.address));
	free(memory);
}

static void test_places(void **state)
{
	(void)state;
	struct config c;
	struct err e;
	char out[LIMIT_PATH];
	config_defaults(&c);
	setenv("HOME", "/home/h", 1);
	unsetenv("XDG_STATE_HOME");
	unsetenv("XDG_RUNTIME_DIR");
	assert_int_equal(paths_state(&c, out, &e), 0);
	assert_string_equal(out, "/home/h/.local/state/dunlin/agent");
	assert_int_equal(paths_socket(&c, out, &e), 0);
	assert_string_equal(out, "/home/h/.local/state/dunlin/agent/agent.sock");
	setenv("XDG_STATE_HOME", "relative", 1); /* to be ignored */
	assert_int_equal(paths_state(&c, out, &e), 0);
	assert_string_equal(out, "/home/h/.local/state/dunlin/agent");
	setenv("XDG_STATE_HOME", "/s", 1);
	setenv("XDG_RUNTIME_DIR", "/r", 1);
	strcpy(c.agent.name, "two");
	assert_int_equal(paths_state(&c, out, &e), 0);
	assert_string_equal(out, "/s/dunlin/two");
	assert_int_equal(paths_socket(&c, out, &e), 0);
	assert_string_equal(out, "/r/dunlin/two.sock");
	strcpy(c.agent.state_dir, "own");
	assert_int_equal(paths_socket(&c, out, &e), 0);
	assert_string_equal(out, "own/agent.sock");
	strcpy(c.agent.socket, "x.sock");
	assert_int_equal(paths_socket(&c, out, &e), 0);
	assert_string_equal(out, "x.sock");
	memset(c.agent.socket, 'x', 108);
	assert_int_equal(paths_socket(&c, out, &e), ERR_LIMIT);
	assert_non_null(strstr(e.msg, "--socket"));
	c.agent.state_dir[0] = 0;
	unsetenv("XDG_STATE_HOME");
	unsetenv("HOME");
	assert_int_equal(paths_state(&c, out, &e), ERR_NOTFOUND);
	assert_non_null(strstr(e.msg, "--state-dir"));
	config_close(&c);
}

static void test_dialable(void)
{
	static const char *const no[] = {"0.0.0.0:1", "[::]:1", "224.0.0.1:1", "239.255.255.255:1",
	        "255.255.255.255:1", "[ff02::1]:1"};
	static const char *const yes[] = {
	        "127.0.0.1:1", "223.0.0.1:1", "10.255.255.255:1", "[::1]:1", "[fe80::1]:1"};
	struct peer_addr a;
	for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
		a = addr(no[i]);
		assert_false(hostport_dialable(&a));
	}
	for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
		a = addr(yes[i]);
		assert_true(hostport_dialable(&a));
	}
}

/* What a text is read as: its host, its port, and whether that was given. */
static void reads(const char *text, const char *host, int port, bool has_port)
{
	struct hostport h;
	struct err e;
	if (hostport_parse(text, &h, &e))
		fail_msg("%s", e.msg);
	assert_string_equal(h.host, host);
	assert_int_equal(h.port, port);
	assert_int_equal(h.has_port, has_port);
}

static void test_ports_may_be_left_out(void **state)
{
	(void)state;
	static const char *const refused[] = {"h:", "[::1]:", "[::1", "[::1]80", "[]", "80", "h:x",
	        "h:65536", "h:-1", "::1:80", "fd77::1:2", "fd77::1:99999", "::1:", "a:b:c", "::g"};
	static struct config c;
	struct hostport h;
	struct err e;
	reads("heron.example", "heron.example", HOSTPORT_PORT, false);
	reads("heron.example:80", "heron.example", 80, true);
	reads("10.0.0.5", "10.0.0.5", HOSTPORT_PORT, false);
	reads("[::1]", "::1", HOSTPORT_PORT, false);
	reads("[::1:80]:0", "::1:80", 0, true);
	reads("::1", "::1", HOSTPORT_PORT, false);
	reads("2001:db8::5", "2001:db8::5", HOSTPORT_PORT, false);
	reads("fd77::1:abcd", "fd77::1:abcd", HOSTPORT_PORT, false);
	reads("1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8", HOSTPORT_PORT, false);
	reads(":0", "", 0, true);
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		if (hostport_parse(refused[i], &h, &e) != ERR_FORMAT)
			fail_msg("%s is taken", refused[i]);
	config_defaults(&c);
	reads(c.agent.listen, "", HOSTPORT_PORT, true);
	config_close(&c);
}

static void test_addresses(void **state)
{
	(void)state;
	struct hostport h;
	struct peer_addr a;
	struct err e;
	assert_int_equal(hostport_parse(":0", &h, &e), 0);
	assert_int_equal(hostport_resolve(&h, &a, &e), 0);
	assert_int_equal(a.family, 6);
	assert_true(hostport_any(&a));
	assert_int_equal(hostport_parse("[::]:65535", &h, &e), 0);
	assert_int_equal(h.port, 65535);
	assert_int_equal(hostport_resolve(&h, &a, &e), 0);
	assert_true(a.family == 6 && hostport_any(&a));
	assert_int_equal(hostport_parse("127.0.0.1:7", &h, &e), 0);
	assert_int_equal(hostport_resolve(&h, &a, &e), 0);
	assert_false(hostport_any(&a));
	test_dialable();
	assert_int_equal(hostport_interface("lo", &a, &e), 0);
	assert_true(a.family == 4 && a.ip[0] == 127);
	assert_int_equal(hostport_interface("no-such", &a, &e), ERR_NOTFOUND);
	assert_non_null(strstr(e.msg, "ip link"));
	for (uint8_t family = 4; family <= 6; family += 2) {
		a = hostport_primary(family);
		assert_true(
		        a.port == 0 && (!a.family || (a.family == family && !hostport_any(&a))));
		assert_true(family == 6 || a.ip[0] != 127);
		assert_true(family == 4 || a.ip[0] != 0xfe);
		a = hostport_loopback(family);
		assert_true(a.family == family && a.ip[family == 4 ? 3 : 15] == 1);
	}
}

static void test_progress(void **state)
{
	struct state_dir d;
	struct state_dir_progress p = {0xabcdef0123456789, 1234567, 1700000000, 42}, q;
	struct err e;
	const char *none = "run 1 samples 99999999999999999999 day 1 bytes 1\n";
	assert_int_equal(state_dir_open(&d, path_in(state, "progressing"), &e), 0);
	state_dir_load_progress(&d, &q);
	assert_true(q.run == 0 && q.samples == 0 && q.day_bytes == 0);
	assert_int_equal(state_dir_save_progress(&d, &p, &e), 0);
	state_dir_load_progress(&d, &q);
	assert_memory_equal(&p, &q, sizeof p);
	write_file(path_in(state, "progressing/progress"), none, strlen(none));
	state_dir_load_progress(&d, &q);
	assert_true(q.run == 0 && q.samples == 0);
	write_file(path_in(state, "progressing/progress"), "run", 3);
	state_dir_load_progress(&d, &q);
	assert_true(q.run == 0 && q.day_start_s == 0);
	state_dir_close(&d);
}

static void test_greeting(void **state)
{
	(void)state;
	static struct config c;
	struct join_hint g = {.config = &c, .config_path = "it's mine.json"};
	struct buf out;
	config_defaults(&c);
	assert_int_equal(textlist_add(c.agent.keys, sizeof c.agent.keys, "a.key"), 0);
	assert_int_equal(textlist_add(c.agent.keys, sizeof c.agent.keys, "b c.key"), 0);
	g.listen = addr("[::]:13865"); /* as the default is bound */
	g.advertise[0] = addr("[2001:db8::5]:13865");
	g.advertise[1] = addr("10.0.0.5:13865");
	g.n_advertise = 2;
	buf_init(&out, 65536);
	assert_int_equal(join_hint_print(&g, &out), 0);
	assert_non_null(strstr(out.data, "dunlin 0000000000000000"));
	assert_non_null(strstr(out.data, "listening on [::]:13865\njoin"));
	assert_non_null(strstr(out.data,
	        "join from elsewhere:  dunlin agent --config 'it'\\''s mine.json' --key a.key "
	        "--key 'b c.key' --seed '[2001:db8::5]:13865' --seed 10.0.0.5:13865\n"));
	assert_non_null(strstr(out.data,
	        "\njoin on this machine: dunlin agent --config 'it'\\''s mine.json' --key a.key "
	        "--key 'b c.key' --name agent2 --listen :0 --seed 127.0.0.1:13865\n"));
	/* What a config says of one agent alone is not for the next. */
	strcpy(c.agent.name, "b9");
	assert_int_equal(textlist_add(c.agent.advertise, sizeof c.agent.advertise, "h:1"), 0);
	strcpy(c.agent.state_dir, "s");
	strcpy(c.run.out, "o");
	g.listen = addr("[fd77::5]:1");
	out.len = 0;
	assert_int_equal(join_hint_print(&g, &out), 0);
	assert_non_null(strstr(out.data,
	        "'b c.key' --advertise '' --seed '[2001:db8::5]:13865' --seed 10.0.0.5:13865\n"));
	assert_non_null(strstr(out.data,
	        "'b c.key' --advertise '' --state-dir '' --out '' --name b10 --listen "
	        "'[fd77::5]:0' --seed '[fd77::5]:1'\n"));
	c.agent.dialable = false;
	g.listen = addr("0.0.0.0:13865");
	g.device = "cpu: no GPU";
	out.len = 0;
	assert_int_equal(join_hint_print(&g, &out), 0);
	assert_null(strstr(out.data, "--seed"));
	assert_non_null(strstr(out.data, "13865\ntrains on cpu: no GPU\n"));
	buf_close(&out);
	config_close(&c);
}

/* The words of the printed line that begins so, as a shell reads them, from its subcommand on. */
static void pasted(const char *text, const char *label, wordexp_t *words)
{
	const char *from = strstr(text, label);
	assert_non_null(from);
	from += strlen(label);
	char *line = strndup(from, strcspn(from, "\n"));
	assert_int_equal(wordexp(line, words, WRDE_NOCMD | WRDE_UNDEF), 0);
	assert_string_equal(words->we_wordv[0], "dunlin");
	free(line);
}

/* Whatever all agents of a run have alike and was said by flags or in the environment is in the
 * lines; what is one agent's own is not. */
static void test_greeting_repeats_the_run(void **state)
{
	(void)state;
	static char *const argv[] = {"agent", "--key", "k$HOME", "--model", "mlp", "--train-images",
	        "a b", "--test-images", "", "--test-labels=", "--epochs", "0.1", "--batch", "7",
	        "--optimizer", "adamw", "--no-nesterov", "--flip", "--train-seed",
	        "9007199254740991", "--run=--it's \"mine\"", "--lr", "1e-7", "--beta", "0.25",
	        "--profile", "wan", "--gate", "every", "--every", "3", "--wire", "fp32",
	        "--exchange", "pull", "--threads", "3", "--name", "heron", "--out", "here",
	        "--upload-cap", "5", "--data-seed", "6"};
	static const char *const labels[] = {"join from elsewhere:  ", "join on this machine: "};
	static struct config c, again;
	struct cli_args args, args_again;
	struct buf out;
	int status;
	assert_true(cli_parse(
	        &c, &args, CMD_AGENT, sizeof argv / sizeof *argv, (char **)argv, &status));
	struct join_hint g = {.config = &c, .given = args.given};
	g.listen = g.advertise[0] = addr("10.0.0.5:80");
	g.n_advertise = 1;
	assert_int_equal(setenv("DUNLIN_TRAIN_LABELS", "there", 1), 0);
	strcpy(c.data.train_labels, "there");
	buf_init(&out, 65536);
	assert_int_equal(join_hint_print(&g, &out), 0);
	assert_int_equal(unsetenv("DUNLIN_TRAIN_LABELS"), 0);
	for (int l = 0; l < 2; l++) {
		wordexp_t words;
		pasted(out.data, labels[l], &words);
		assert_true(cli_parse(&again, &args_again, CMD_AGENT, (int)words.we_wordc - 1,
		        words.we_wordv + 1, &status));
		for (int i = 0; i < n_settings; i++) {
			const struct setting *s = &settings[i];
			if (s->shared && memcmp((char *)&c + s->offset, (char *)&again + s->offset,
			                         s->size) != 0)
				fail_msg("%s differs: %s", s->key, out.data);
		}
		assert_string_equal(again.agent.keys, "k$HOME");
		assert_string_equal(again.agent.seeds, "10.0.0.5:80");
		assert_string_equal(again.agent.name, l ? "heron2" : "agent");
		assert_true(again.run.threads == 0 && again.data.seed == 1 && !again.run.out[0] &&
		            again.gossip.upload_cap == 0);
		config_close(&again);
		wordfree(&words);
	}
	buf_close(&out);
	config_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_folder_is_private),
	        cmocka_unit_test(test_one_agent_at_a_time),
	        cmocka_unit_test(test_peers_are_kept),
	        cmocka_unit_test(test_damaged_peers_are_put_aside),
	        cmocka_unit_test(test_whom_to_remember),
	        cmocka_unit_test(test_places),
	        cmocka_unit_test(test_addresses),
	        cmocka_unit_test(test_ports_may_be_left_out),
	        cmocka_unit_test(test_progress),
	        cmocka_unit_test(test_greeting),
	        cmocka_unit_test(test_greeting_repeats_the_run),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

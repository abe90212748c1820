/* SPDX-License-Identifier: MIT */
/* Agents that are watched, played by sockets of this process, and what is shown of them. */
#include "agent/cli/top_view.h"
#include "tests/support.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- an agent that says what the test wants it to */

struct played {
	char dir[64], path[80];
	int listener, fd; /* -1: none */
	struct watched w;
};

static void listen_there(struct played *p)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	strcpy(at.sun_path, p->path);
	p->listener = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_true(p->listener >= 0);
	assert_int_equal(bind(p->listener, (struct sockaddr *)&at, sizeof at), 0);
	assert_int_equal(listen(p->listener, 4), 0);
}

static void hang_up(struct played *p)
{
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}

static void stop_listening(struct played *p)
{
	if (p->listener >= 0)
		close(p->listener);
	p->listener = -1;
	unlink(p->path);
}

static int set_up(void **state)
{
	struct played *p = calloc(1, sizeof *p);
	assert_non_null(p);
	strcpy(p->dir, "/tmp/watch.XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	snprintf(p->path, sizeof p->path, "%s/heron.sock", p->dir);
	p->listener = p->fd = -1;
	watch_init(&p->w, p->path);
	*state = p;
	return 0;
}

static int tear_down(void **state)
{
	struct played *p = *state;
	watch_close(&p->w);
	hang_up(p);
	stop_listening(p);
	rmdir(p->dir);
	free(p);
	return 0;
}

/* It is asked, and the question is read. */
static void be_asked(struct played *p, int64_t now_ms)
{
	char question[64];
	watch_ask(&p->w, now_ms);
	assert_true(p->w.asked);
	if (p->fd < 0)
		p->fd = accept(p->listener, NULL, NULL);
	ssize_t n = read(p->fd, question, sizeof question);
	assert_int_equal(n, strlen("{\"cmd\":\"status\"}\n"));
	assert_memory_equal(question, "{\"cmd\":\"status\"}\n", (size_t)n);
}

static void say(struct played *p, const char *words)
{
	assert_int_equal(write(p->fd, words, strlen(words)), strlen(words));
	watch_read(&p->w);
}

#define STATUS                                                                                     \
	"{\"ok\":true,\"name\":\"heron\",\"peers\":{\"alive\":3},\"net\":{\"bytes_sent\":500000}," \
	"\"training\":{\"phase\":\"training\",\"step\":1410,\"samples\":90240,\"clock\":60000,"    \
	"\"total\":120000,\"loss\":0.25,\"lr\":null,\"samples_per_s\":1e999,"                      \
	"\"accuracy\":{\"value\":0.836,\"step\":1400},\"final\":null},"                            \
	"\"gate\":{\"mode\":\"significance\",\"change\":0.0436,\"delta\":0.15,\"lssr\":0.968,"     \
	"\"local\":1000,\"last\":[{\"reason\":\"local\",\"steps\":3,\"saved\":3000},"              \
	"{\"reason\":\"owed\",\"steps\":1,\"saved\":0}]},"                                         \
	"\"guard\":{\"on\":true,\"consensus\":1.5,\"target\":2,\"interval\":null},"              \
	"\"distance\":{\"last\":2.5,\"consensus\":\"near\"},"                                      \
	"\"exchanges\":{\"begun\":4,\"taken\":5,\"bytes_sent\":1500000,\"bytes_received\":7}}"

/* ---- asking */

static void test_comes_and_goes(void **state)
{
	struct played *p = *state;
	watch_ask(&p->w, 0);
	assert_int_equal(p->w.state, WATCH_ABSENT);
	assert_string_equal(p->w.name, "heron");
	listen_there(p);
	be_asked(p, 0);
	assert_int_equal(p->w.state, WATCH_ABSENT);
	say(p, STATUS "\n");
	assert_int_equal(p->w.state, WATCH_UP);
	assert_false(p->w.asked);
	be_asked(p, 1000);
	hang_up(p);
	watch_read(&p->w);
	assert_int_equal(p->w.state, WATCH_UP); /* a connection ends for many reasons */
	stop_listening(p);
	watch_ask(&p->w, 2000);
	assert_int_equal(p->w.state, WATCH_GONE);
	assert_true(p->w.value[WATCH_STEP] == 1410);
	listen_there(p);
	be_asked(p, 3000);
	say(p, "{\"ok\":true,\"name\":\"again\"}\n");
	assert_int_equal(p->w.state, WATCH_UP);
	assert_string_equal(p->w.name, "again");
	assert_string_equal(p->w.phase, "member");
	assert_true(isnan(p->w.value[WATCH_STEP]));
}

static void test_fields(void **state)
{
	struct played *p = *state;
	const double *v = p->w.value;
	listen_there(p);
	be_asked(p, 0);
	say(p, STATUS "\n");
	assert_string_equal(p->w.phase, "training");
	assert_string_equal(p->w.mode, "significance");
	assert_string_equal(p->w.reason, "local");
	assert_true(v[WATCH_PEERS] == 3 && v[WATCH_CLOCK] == 60000 && v[WATCH_LOSS] == 0.25);
	assert_true(v[WATCH_ACCURACY] == 0.836 && v[WATCH_ACCURACY_STEP] == 1400);
	assert_true(v[WATCH_SAVED] == 1000 * 1000.0);             /* local steps, 1000 bytes each */
	assert_true(isnan(v[WATCH_LR]) && isnan(v[WATCH_SPEED])); /* null, infinite */
	assert_true(isnan(v[WATCH_CONSENSUS]) && isnan(v[WATCH_MERGED])); /* text, nothing */
}

/* One that is stopped: nothing waits for it, and its late answer counts. */
static void test_silence(void **state)
{
	struct played *p = *state;
	listen_there(p);
	be_asked(p, 0);
	say(p, STATUS "\n");
	be_asked(p, 1000);
	watch_ask(&p->w, 1000 + WATCH_SILENT_MS - 1);
	assert_int_equal(p->w.state, WATCH_UP);
	watch_ask(&p->w, 1000 + WATCH_SILENT_MS);
	assert_int_equal(p->w.state, WATCH_SILENT);
	watch_read(&p->w); /* returns */
	/* It was asked once, not again and again. */
	char more;
	assert_int_equal(recv(p->fd, &more, 1, MSG_DONTWAIT), -1);
	say(p, "{\"ok\":true,\"name\":");
	assert_int_equal(p->w.state, WATCH_SILENT);
	say(p, "\"heron\"}\n");
	assert_int_equal(p->w.state, WATCH_UP);
	be_asked(p, 9000);
	watch_ask(&p->w, 9000 + WATCH_SILENT_MS);
	hang_up(p);
	stop_listening(p);
	watch_read(&p->w);
	watch_ask(&p->w, 20000);
	assert_int_equal(p->w.state, WATCH_GONE);
}

/* A backlog that nobody empties takes no connection, and nobody waits for that either. */
static void test_full_backlog(void **state)
{
	struct played *p = *state;
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int others[64], n = 0;
	listen_there(p);
	strcpy(at.sun_path, p->path);
	for (; n < 64; n++) {
		others[n] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
		if (connect(others[n], (struct sockaddr *)&at, sizeof at) != 0)
			break;
	}
	assert_true(n < 64);
	watch_ask(&p->w, 0);
	assert_int_equal(p->w.state, WATCH_SILENT);
	for (; n >= 0; n--)
		close(others[n]);
}

static void test_foreign_words(void **state)
{
	static const char *const bad[] = {"\n", "hello\n", "[1]\n", "{\"ok\":false}\n",
	        "{\"ok\":true}\nmore\n", "{\"ok\":\"true\"}\n", "{\"ok\":true\n", "null\n"};
	struct played *p = *state;
	listen_there(p);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		p->w.state = WATCH_UP;
		be_asked(p, 0);
		say(p, bad[i]);
		assert_int_equal(p->w.state, WATCH_SILENT);
		assert_int_equal(p->w.client.fd, -1);
		hang_up(p);
	}
	/* Words that nobody asked for. */
	be_asked(p, 0);
	say(p, "{\"ok\":true}\n");
	assert_int_equal(p->w.state, WATCH_UP);
	say(p, "{\"ok\":true}\n");
	assert_int_equal(p->w.state, WATCH_SILENT);
	assert_int_equal(p->w.client.fd, -1);
}

static void test_endless_answer(void **state)
{
	struct played *p = *state;
	char part[4096];
	size_t said = 0;
	memset(part, ' ', sizeof part);
	listen_there(p);
	be_asked(p, 0);
	while (p->w.client.fd >= 0 && said <= 2 * WATCH_REPLY_MAX) {
		assert_int_equal(write(p->fd, part, sizeof part), sizeof part);
		said += sizeof part;
		watch_read(&p->w);
	}
	assert_true(said <= WATCH_REPLY_MAX + 2 * sizeof part);
	assert_int_equal(p->w.state, WATCH_SILENT);
	assert_int_equal(p->w.answer.len, 0);
}

static void test_text_is_escaped(void **state)
{
	struct played *p = *state;
	struct buf out;
	listen_there(p);
	be_asked(p, 0);
	say(p, "{\"ok\":true,\"name\":\"a\\u001b[2J\\tb\",\"training\":{\"phase\":\"\\n\\u009b1m\"}"
	       ","
	       "\"gate\":{\"mode\":\"x\\r\",\"last\":[{\"reason\":\"\\u0007\"}]}}\n");
	assert_int_equal(p->w.state, WATCH_UP);
	buf_init(&out, 65536);
	assert_int_equal(top_table(&out, &p->w, 1, 200, false), 0);
	assert_null(strchr(out.data, '\033'));
	assert_null(strchr(out.data, '\t'));
	assert_null(strchr(out.data, '\r'));
	assert_null(strchr(out.data, '\a'));
	assert_null(strstr(out.data, "\xc2\x9b"));
	out.len = 0;
	assert_int_equal(top_log_line(&out, &p->w, 0), 0);
	int tabs = 0;
	for (const char *c = out.data; *c; c++)
		tabs += *c == '\t';
	assert_int_equal(tabs, 4 + WATCH_FIELD_COUNT);
	assert_ptr_equal(strchr(out.data, '\n'), out.data + out.len - 1);
	buf_close(&out);
}

/* ---- showing */

static int columns_of(const char *line, size_t len)
{
	int n = 0;
	for (size_t i = 0; i < len; i++)
		n += ((unsigned char)line[i] & 0xc0) != 0x80;
	return n;
}

static void test_table(void **state)
{
	struct played *p = *state;
	struct buf out;
	listen_there(p);
	be_asked(p, 0);
	say(p, STATUS "\n");
	buf_init(&out, 65536);
	assert_int_equal(top_table(&out, &p->w, 1, 200, false), 0);
	assert_non_null(strstr(out.data,
	        "\nheron       training     1410   0.250   83.60%   50.0%      3    0.044/0.15  "
	        "local        0.968     2.500       9   2.00 MB\n"));
	out.len = 0;
	p->w.state = WATCH_GONE;
	assert_int_equal(top_table(&out, &p->w, 1, 200, true), 0);
	assert_non_null(strstr(out.data, "\033[2mheron       gone         1410"));
	assert_non_null(strstr(out.data, "\033[0m\n"));
	buf_close(&out);
}

static void test_table_fits(void **state)
{
	struct played *p = *state;
	struct watched two[2];
	struct buf out;
	listen_there(p);
	be_asked(p, 0);
	say(p, STATUS "\n");
	two[0] = two[1] = p->w;
	strcpy(two[1].name, "ééééééééééééééé");
	two[1].value[WATCH_STEP] = 1e300;
	two[1].value[WATCH_DISTANCE] = 1e300;
	buf_init(&out, 65536);
	for (int width = 1; width < 140; width++) {
		int lines = 0;
		out.len = 0;
		assert_int_equal(top_table(&out, two, 2, width, false), 0);
		for (const char *at = out.data, *end; *at; at = end + 1, lines++) {
			end = strchr(at, '\n');
			assert_non_null(end);
			assert_in_range(columns_of(at, (size_t)(end - at)), 0, width);
		}
		assert_int_equal(lines, 3);
		if (width >= 20) /* cut after ten characters, not bytes */
			assert_non_null(strstr(out.data, "\néééééééééé  training"));
		/* What matters most is left out last. */
		bool has_loss = strstr(out.data, "LOSS"), has_reason = strstr(out.data, "REASON");
		assert_true(has_loss == (width >= 54));
		assert_true(has_reason == (width >= 123));
	}
	buf_close(&out);
}

static void test_log(void **state)
{
	struct played *p = *state;
	struct buf out;
	listen_there(p);
	be_asked(p, 0);
	say(p, STATUS "\n");
	buf_init(&out, 65536);
	assert_int_equal(top_log_header(&out), 0);
	assert_string_equal(out.data,
	        "time\tname\tstate\tphase\treason\tstep\tsamples\tclock\ttotal\tloss\tlr\t"
	        "samples_per_s\taccuracy\taccuracy_step\tlocal_accuracy\tmerged_accuracy\tpeers\t"
	        "change\tdelta\tlssr\tlocal_steps\tdistance\tconsensus\tbegun\ttaken\tbytes_sent\t"
	        "bytes_received\tnet_bytes_sent\tsaved_bytes\tguard_consensus\tguard_target\t"
	        "guard_interval\n");
	out.len = 0;
	assert_int_equal(top_log_line(&out, &p->w, 1794850414.777), 0);
	assert_string_equal(out.data,
	        "1794850414.777\theron\tup\ttraining\tlocal\t1410\t90240\t60000\t120000\t0.25\t-\t-"
	        "\t0.836\t1400\t-\t-\t3\t0.0436\t0.15\t0.968\t1000\t2.5\t-\t4\t5\t1500000\t7"
	        "\t500000\t1000000\t1.5\t2\t-\n");
	buf_close(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_comes_and_goes, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_fields, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_silence, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_full_backlog, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_foreign_words, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_endless_answer, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_text_is_escaped, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_table, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_table_fits, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_log, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

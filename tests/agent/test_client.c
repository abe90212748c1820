/* SPDX-License-Identifier: MIT */
/* When an agent has ended: not with its connections, but with its process. */
#include "agent/control/client.h"
#include "tests/support.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process that takes a connection, closes it as an agent does that is about to end, says so, and
 * then only ends when it is killed. */
struct fixture {
	char path[100];
	pid_t pid;
	int said;
};

static void be_agent(int listener, int say)
{
	int fd = accept(listener, NULL, NULL);
	if (fd < 0 || close(fd) || close(listener) || write(say, "", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

static void begin(struct fixture *f, void **state)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int says[2];
	snprintf(f->path, sizeof f->path, "%s/agent.sock", (const char *)*state);
	strcpy(at.sun_path, f->path);
	unlink(f->path);
	assert_int_equal(pipe(says), 0);
	f->pid = fork();
	assert_true(f->pid >= 0);
	if (f->pid == 0) {
		int fd = socket(AF_UNIX, SOCK_STREAM, 0);
		/* The kernel names the process that listens. It ends with this test. */
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) ||
		        bind(fd, (const struct sockaddr *)&at, sizeof at) || listen(fd, 1) ||
		        write(says[1], "", 1) != 1)
			_exit(1);
		be_agent(fd, says[1]);
	}
	close(says[1]);
	f->said = says[0];
}

static void await_word(const struct fixture *f)
{
	char c;
	assert_int_equal(read(f->said, &c, 1), 1);
}

/* Connected, and the connection is closed already. */
static void open_client(struct fixture *f, struct client *c, void **state)
{
	struct err e;
	begin(f, state);
	await_word(f);
	assert_int_equal(client_open(c, f->path, &e), 0);
	assert_int_equal(c->pid, f->pid);
	await_word(f);
}

static void test_end_is_that_of_the_process(void **state)
{
	struct fixture f;
	struct client c;
	struct err e;
	open_client(&f, &c, state);
	assert_int_equal(client_wait_end(&c, 0, &e), ERR_TIMEOUT);
	assert_int_equal(client_wait_end(&c, 50, &e), ERR_TIMEOUT);
	kill(f.pid, SIGKILL);
	/* Nobody has waited for it yet, but it holds nothing any more. */
	if (c.pidfd >= 0)
		assert_int_equal(client_wait_end(&c, 20000, &e), 0);
	assert_int_equal(waitpid(f.pid, NULL, 0), f.pid);
	close(f.said);
	client_close(&c);
}

static void test_end_without_a_pidfd(void **state)
{
	struct fixture f;
	struct client c;
	struct err e;
	open_client(&f, &c, state);
	if (c.pidfd >= 0)
		close(c.pidfd);
	c.pidfd = -1;
	assert_int_equal(client_wait_end(&c, 50, &e), ERR_TIMEOUT);
	c.pid = 0; /* cannot be seen: the end of the connection must do */
	assert_int_equal(client_wait_end(&c, 20000, &e), 0);
	c.pid = f.pid;
	kill(f.pid, SIGKILL);
	assert_int_equal(waitpid(f.pid, NULL, 0), f.pid);
	assert_int_equal(client_wait_end(&c, 20000, &e), 0);
	close(f.said);
	client_close(&c);
}

/* Another user's process listens at the path. */
static void test_another_users_socket(void **state)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct client c;
	struct err e;
	char path[100];
	if (geteuid() != 0)
		skip(); /* nobody else can be had */
	snprintf(path, sizeof path, "%s/foreign.sock", (const char *)*state);
	strcpy(at.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
	assert_int_equal(chmod(path, 0666) | chmod(*state, 0755), 0);
	assert_int_equal(seteuid(65533), 0);
	assert_int_equal(listen(fd, 4), 0);
	assert_int_equal(client_open(&c, path, &e), 0); /* that user's own */
	client_close(&c);
	assert_int_equal(seteuid(0) | seteuid(65534), 0);
	int rc = client_open(&c, path, &e);
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(rc, ERR_INVALID);
	assert_int_equal(c.fd, -1);
	assert_non_null(strstr(e.msg, "user 65533"));
	assert_int_equal(client_open(&c, path, &e), 0); /* root may ask everybody's */
	client_close(&c);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_end_is_that_of_the_process),
	        cmocka_unit_test(test_end_without_a_pidfd),
	        cmocka_unit_test(test_another_users_socket),
	};
	return cmocka_run_group_tests_name("client", tests, make_folder, remove_folder);
}

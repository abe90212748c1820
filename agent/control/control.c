/* SPDX-License-Identifier: MIT */
/* A Unix socket that a shell, a script or `dunlin status` can talk to.
 *
 *     reading ── a line ──► answer it ──► writing ── written ──► rows left? write on : reading
 *
 * A client is either reading or writing, never both: while an answer is on its way nothing more is
 * read from it. So a client holds at most one line and one slice of an answer, however fast it asks
 * or however slowly it reads, and needs no queue. Long answers are made slice by slice, one for
 * each turn of the loop.
 *
 * The happy path is accept, read, answer, read on, end of file, close. What can fail: a line that
 * is too long (answered, closed), a client that goes away (closed), too many clients (the one that
 * has been idle for longest gives way; if none has been for a minute, the new one is refused in
 * words).
 *
 * The socket's mode is set before it has a name, so that there is no moment at which others could
 * connect. */
#include "agent/control/control.h"

#include "agent/node/state_dir.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define TEXT_OF(x) #x
#define DECIMAL(x) TEXT_OF(x)
#define TOO_LONG "a request has less than " DECIMAL(LIMIT_CONTROL_LINE) " bytes"

struct client_end {
	uv_pipe_t pipe; /* first */
	uv_write_t write;
	struct control *control; /* borrowed */
	struct buf in, out;
	struct control_rows rows;
	uint64_t active_ms;        /* when something last came or went */
	bool writing, ended, last; /* ended: its input; last: close when this is written */
};

struct control {
	uv_pipe_t listener;
	struct control_config config;
	struct sockaddr_un address;
	dev_t dev; /* of the socket's file, to remove only our own */
	ino_t ino;
	struct client_end *client[LIMIT_CONTROL_CLIENTS]; /* owned */
	int handles;                                      /* not yet closed */
	bool closing;
	void (*closed_cb)(void *arg);
	void *closed_arg;
	char incoming[LIMIT_CONTROL_LINE]; /* of whichever client is being read */
};

/* ---- the end */

static void handle_closed(struct control *c)
{
	if (--c->handles > 0 || !c->closing)
		return;
	void (*closed_cb)(void *) = c->closed_cb;
	void *arg = c->closed_arg;
	free(c);
	if (closed_cb)
		closed_cb(arg);
}

static void on_client_closed(uv_handle_t *h)
{
	struct client_end *k = (struct client_end *)(void *)h;
	struct control *c = k->control;
	buf_close(&k->in);
	buf_close(&k->out);
	control_rows_close(&k->rows);
	free(k);
	handle_closed(c);
}

static void drop(struct client_end *k)
{
	if (uv_is_closing((uv_handle_t *)&k->pipe))
		return;
	for (int i = 0; i < LIMIT_CONTROL_CLIENTS; i++)
		if (k->control->client[i] == k)
			k->control->client[i] = NULL;
	uv_close((uv_handle_t *)&k->pipe, on_client_closed);
}

/* ---- answering */

static void serve(struct client_end *k);

static void on_written(uv_write_t *w, int status)
{
	struct client_end *k = w->data;
	k->writing = false;
	k->active_ms = uv_now(k->control->config.loop);
	if (status != 0 || k->last)
		drop(k);
	else
		serve(k);
}

/* Sends what is in out. Nothing is read meanwhile: on_read has stopped it. */
static void send_out(struct client_end *k)
{
	uv_buf_t b = uv_buf_init(k->out.data, (unsigned)k->out.len);
	k->writing = true;
	k->write.data = k;
	if (uv_write(&k->write, (uv_stream_t *)&k->pipe, &b, 1, on_written) != 0)
		drop(k);
}

static void answer(struct client_end *k, const char *line, size_t len)
{
	struct control *c = k->control;
	struct control_view view = {0};
	enum control_then then;
	c->config.look_cb(c->config.arg, &view);
	if (control_answer(&c->config, &view, line, len, &k->out, &k->rows, &then) != 0) {
		drop(k);
		return;
	}
	send_out(k);
	if (then == CONTROL_THEN_LEAVE)
		c->config.leave_cb(c->config.arg);
}

static void refuse(struct client_end *k, const char *why)
{
	k->last = true;
	if (control_error(&k->out, why) == 0)
		send_out(k);
	else
		drop(k);
}

/* Takes the first line out of in; false: there is none. At the end of the input its rest is a line
 * too, since not everybody writes a newline. */
static bool take_line(struct client_end *k, struct buf *line)
{
	char *end = k->in.len ? memchr(k->in.data, '\n', k->in.len) : NULL;
	if (!end && !(k->ended && k->in.len))
		return false;
	size_t n = end ? (size_t)(end - k->in.data) : k->in.len, used = end ? n + 1 : n;
	if (buf_append(line, k->in.data, n)) {
		k->ended = true; /* no memory */
		return false;
	}
	memmove(k->in.data, k->in.data + used, k->in.len - used + 1);
	k->in.len -= used;
	return true;
}

static void on_alloc(uv_handle_t *h, size_t wanted, uv_buf_t *b)
{
	struct client_end *k = (struct client_end *)(void *)h;
	(void)wanted;
	*b = uv_buf_init(k->control->incoming, (unsigned)(LIMIT_CONTROL_LINE - k->in.len));
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
	struct client_end *k = (struct client_end *)(void *)s;
	if (n == 0)
		return;
	k->active_ms = uv_now(k->control->config.loop);
	if (n < 0) {
		k->ended = true;
	} else if (buf_append(&k->in, b->base, (size_t)n) != 0) {
		drop(k); /* no memory: on_alloc sees to it that it fits */
		return;
	}
	uv_read_stop(s);
	serve(k);
}

/* Whatever is next for a client that is neither reading nor writing. */
static void serve(struct client_end *k)
{
	struct buf line;
	k->out.len = 0;
	if (k->rows.row) {
		if (control_rows_print(&k->rows, CONTROL_SLICE, &k->out) == 0)
			send_out(k);
		else
			drop(k);
		return;
	}
	buf_init(&line, LIMIT_CONTROL_LINE);
	bool found;
	do {
		line.len = 0;
		found = take_line(k, &line);
	} while (found && strspn(line.data, " \t\r") == line.len);
	if (found)
		answer(k, line.data, line.len);
	else if (k->ended)
		drop(k);
	else if (k->in.len == LIMIT_CONTROL_LINE)
		refuse(k, TOO_LONG);
	else if (uv_read_start((uv_stream_t *)&k->pipe, on_alloc, on_read) != 0)
		drop(k);
	buf_close(&line);
}

/* ---- accepting */

/* A place for one more client; NULL: all are taken by somebody who is using it. */
static struct client_end **find_place(struct control *c)
{
	struct client_end **oldest = &c->client[0];
	for (int i = 0; i < LIMIT_CONTROL_CLIENTS; i++) {
		if (!c->client[i])
			return &c->client[i];
		if (c->client[i]->active_ms < (*oldest)->active_ms)
			oldest = &c->client[i];
	}
	if (uv_now(c->config.loop) - (*oldest)->active_ms < c->config.idle_ms)
		return NULL;
	drop(*oldest);
	return oldest;
}

/* The last words to one that is not served. */
static void turn_away(struct client_end *k, const char *answer)
{
	uv_buf_t b = uv_buf_init((char *)(uintptr_t)answer, (unsigned)strlen(answer));
	uv_try_write((uv_stream_t *)&k->pipe, &b, 1);
	drop(k);
}

/* The socket's mode says the same, as long as nobody changes it. */
static bool is_ours(const struct client_end *k)
{
	struct ucred who;
	socklen_t size = sizeof who;
	uv_os_fd_t fd;
	return uv_fileno((const uv_handle_t *)&k->pipe, &fd) == 0 &&
	       getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
	       (who.uid == geteuid() || who.uid == 0);
}

static void on_connection(uv_stream_t *s, int status)
{
	struct control *c = s->data;
	struct client_end *k = status == 0 && !c->closing ? calloc(1, sizeof *k) : NULL;
	if (!k || uv_pipe_init(c->config.loop, &k->pipe, 0) != 0) {
		free(k);
		return;
	}
	c->handles++;
	k->control = c;
	k->active_ms = uv_now(c->config.loop);
	buf_init(&k->in, LIMIT_CONTROL_LINE);
	buf_init(&k->out, LIMIT_CONTROL_OUT);
	if (uv_accept(s, (uv_stream_t *)&k->pipe) != 0) {
		drop(k);
		return;
	}
	if (!is_ours(k)) {
		turn_away(k, "{\"ok\":false,\"error\":\"this agent is another user's: only that "
		             "user and root may ask it\"}\n");
		return;
	}
	struct client_end **place = find_place(c);
	if (!place) {
		turn_away(k, "{\"ok\":false,\"error\":\"too many connections to this agent's "
		             "socket\"}\n");
		return;
	}
	*place = k;
	serve(k);
}

/* ---- the socket */

/* Makes way at the path: 0, or an agent answers there, or it is something else. */
static int clear_path(const struct sockaddr_un *a, struct err *e)
{
	struct stat st;
	if (lstat(a->sun_path, &st) != 0)
		return errno == ENOENT ? 0 : err_errno(e, "%s", a->sun_path);
	if (!S_ISSOCK(st.st_mode))
		return err_set(e, ERR_INVALID, "%s is there and is not a socket", a->sun_path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_errno(e, "open a socket");
	int rc = connect(fd, (const struct sockaddr *)a, sizeof *a), cause = errno;
	close(fd);
	if (rc == 0 || cause != ECONNREFUSED) /* a full backlog is a living agent's too */
		return err_set(e, ERR_BUSY,
		        "an agent answers at %s: give this one another --name or --socket",
		        a->sun_path);
	return unlink(a->sun_path) == 0 ? 0 : err_errno(e, "remove %s", a->sun_path);
}

static int open_socket(struct control *c, const char *path, struct err *e)
{
	char folder[sizeof c->address.sun_path];
	struct stat st;
	if (strlen(path) >= sizeof c->address.sun_path)
		return err_set(e, ERR_LIMIT, "%.120s: too long for a socket's path", path);
	c->address.sun_family = AF_UNIX;
	strcpy(c->address.sun_path, path);
	strcpy(folder, path);
	char *slash = strrchr(folder, '/');
	int rc = 0;
	if (slash && slash != folder) {
		*slash = '\0';
		rc = folder_make_private(folder, e);
	}
	if (rc == 0)
		rc = clear_path(&c->address, e);
	if (rc)
		return rc;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_errno(e, "open a socket");
	if (fchmod(fd, 0600) || bind(fd, (const struct sockaddr *)&c->address, sizeof c->address) ||
	        chmod(path, 0600) || stat(path, &st)) {
		rc = err_errno(e, "%s", path);
		close(fd);
		return rc;
	}
	c->dev = st.st_dev;
	c->ino = st.st_ino;
	rc = uv_pipe_open(&c->listener, fd);
	if (rc)
		close(fd);
	else
		rc = uv_listen((uv_stream_t *)&c->listener, 16, on_connection);
	if (rc == 0)
		return 0;
	unlink(path);
	return err_set(e, ERR_SYSTEM, "listen on %s: %s", path, uv_strerror(rc));
}

int control_new(struct control **out, const struct control_config *config, struct err *e)
{
	struct control *c = calloc(1, sizeof *c);
	*out = NULL;
	if (!c || uv_pipe_init(config->loop, &c->listener, 0) != 0) {
		free(c);
		return err_set(e, ERR_NOMEM, "no memory for a control socket");
	}
	c->config = *config;
	c->config.path = NULL; /* address has it */
	c->handles = 1;
	c->listener.data = c;
	int rc = open_socket(c, config->path, e);
	if (rc)
		control_close(c, NULL, NULL);
	else
		*out = c;
	return rc;
}

static void on_listener_closed(uv_handle_t *h)
{
	handle_closed(h->data);
}

void control_close(struct control *c, void (*closed_cb)(void *arg), void *arg)
{
	struct stat st;
	assert(!c->closing);
	c->closing = true;
	c->closed_cb = closed_cb;
	c->closed_arg = arg;
	for (int i = 0; i < LIMIT_CONTROL_CLIENTS; i++)
		if (c->client[i])
			drop(c->client[i]);
	if (c->ino && lstat(c->address.sun_path, &st) == 0 && st.st_dev == c->dev &&
	        st.st_ino == c->ino)
		unlink(c->address.sun_path);
	uv_close((uv_handle_t *)&c->listener, on_listener_closed);
}

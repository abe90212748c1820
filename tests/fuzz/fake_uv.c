/* SPDX-License-Identifier: MIT */
#include "tests/fuzz/fake_uv.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

struct fake_handle fake_handle[FAKE_HANDLES];
struct fake_packet fake_packet[FAKE_PACKETS];
uint64_t fake_now_ms;
static unsigned next_packet;
static uint64_t looks;

int fake_find(const void *handle)
{
	for (int i = 0; i < FAKE_HANDLES; i++)
		if (fake_handle[i].kind != FAKE_FREE && fake_handle[i].h == handle)
			return i;
	return -1;
}

static struct fake_handle *of(const void *handle)
{
	int i = fake_find(handle);
	if (i < 0)
		abort(); /* it was closed, or never opened */
	return &fake_handle[i];
}

bool fake_is_tcp(int i)
{
	return fake_handle[i].kind == FAKE_TCP && !fake_handle[i].closing;
}

static int open_handle(uv_handle_t *h, enum fake_kind kind)
{
	for (int i = 0; i < FAKE_HANDLES; i++) {
		struct fake_handle *f = &fake_handle[i];
		if (f->kind != FAKE_FREE)
			continue;
		memset(f, 0, offsetof(struct fake_handle, in));
		memset(&f->connection_cb, 0,
		        sizeof *f - offsetof(struct fake_handle, connection_cb));
		f->kind = kind;
		f->h = h;
		f->peer = f->accepts = -1;
		f->due_ms = UINT64_MAX;
		return 0;
	}
	return UV_EMFILE;
}

void fake_reset(void)
{
	for (int i = 0; i < FAKE_HANDLES; i++)
		fake_handle[i].kind = FAKE_FREE;
	memset(fake_packet, 0, sizeof fake_packet);
	next_packet = 0;
	looks = 0;
	fake_now_ms = 1000000;
}

/* ---- libuv's names */

uint64_t uv_now(const uv_loop_t *loop)
{
	(void)loop;
	return fake_now_ms;
}

void uv_update_time(uv_loop_t *loop)
{
	(void)loop;
}

uint64_t uv_hrtime(void)
{
	/* Every look takes a tenth of a millisecond, so that what is bounded by time is met. */
	return fake_now_ms * 1000000 + ++looks * 100000;
}

uv_buf_t uv_buf_init(char *base, unsigned len)
{
	return (uv_buf_t){.base = base, .len = len};
}

const char *uv_strerror(int err)
{
	(void)err;
	return "an error";
}

int uv_translate_sys_error(int err)
{
	return -err;
}

int uv_fileno(const uv_handle_t *h, uv_os_fd_t *fd)
{
	(void)h;
	*fd = -1;
	return UV_EBADF;
}

int uv_is_closing(const uv_handle_t *h)
{
	return of(h)->closing;
}

void uv_close(uv_handle_t *h, uv_close_cb cb)
{
	struct fake_handle *f = of(h);
	if (f->closing)
		abort();
	f->closing = true;
	f->close_cb = cb;
	f->due_ms = UINT64_MAX;
	if (f->kind == FAKE_TCP && f->peer >= 0) {
		fake_handle[f->peer].cut = true;
		fake_handle[f->peer].peer = -1;
	}
}

int uv_tcp_init(uv_loop_t *loop, uv_tcp_t *h)
{
	(void)loop;
	return open_handle((uv_handle_t *)h, FAKE_TCP);
}

int uv_tcp_nodelay(uv_tcp_t *h, int enable)
{
	(void)enable;
	return of(h)->closing ? UV_EBADF : 0;
}

int uv_tcp_keepalive(uv_tcp_t *h, int enable, unsigned delay)
{
	(void)delay;
	return uv_tcp_nodelay(h, enable);
}

int uv_tcp_bind(uv_tcp_t *h, const struct sockaddr *a, unsigned flags)
{
	(void)flags;
	memcpy(&of(h)->addr, a, sizeof of(h)->addr);
	return 0;
}

int uv_listen(uv_stream_t *s, int backlog, uv_connection_cb cb)
{
	(void)backlog;
	of(s)->kind = FAKE_LISTENER;
	of(s)->connection_cb = cb;
	return 0;
}

static int name(const struct fake_handle *f, struct sockaddr *out, int *len)
{
	if (*len < (int)sizeof f->addr)
		return UV_EINVAL;
	memcpy(out, &f->addr, sizeof f->addr);
	*len = sizeof f->addr;
	return 0;
}

int uv_tcp_getsockname(const uv_tcp_t *h, struct sockaddr *out, int *len)
{
	return name(of(h), out, len);
}

int uv_tcp_getpeername(const uv_tcp_t *h, struct sockaddr *out, int *len)
{
	return name(of(h), out, len);
}

int uv_accept(uv_stream_t *server, uv_stream_t *client)
{
	struct fake_handle *s = of(server), *c = of(client);
	c->addr = s->from;
	c->peer = s->accepts;
	if (c->peer >= 0)
		fake_handle[c->peer].peer = (int)(c - fake_handle);
	return 0;
}

int uv_tcp_connect(uv_connect_t *req, uv_tcp_t *h, const struct sockaddr *a, uv_connect_cb cb)
{
	struct fake_handle *f = of(h);
	memcpy(&f->addr, a, sizeof f->addr);
	f->connect = req;
	f->connect_cb = cb;
	return 0;
}

int uv_read_start(uv_stream_t *s, uv_alloc_cb alloc_cb, uv_read_cb read_cb)
{
	struct fake_handle *f = of(s);
	if (f->closing)
		return UV_EINVAL;
	f->reading = true;
	f->alloc_cb = alloc_cb;
	f->read_cb = read_cb;
	return 0;
}

int uv_read_stop(uv_stream_t *s)
{
	of(s)->reading = false;
	return 0;
}

int uv_write(uv_write_t *req, uv_stream_t *s, const uv_buf_t bufs[], unsigned n, uv_write_cb cb)
{
	struct fake_handle *f = of(s);
	struct fake_write *w = malloc(sizeof *w), **at = &f->first;
	if (!w || n != 1 || f->closing)
		abort();
	*w = (struct fake_write){.req = req, .cb = cb, .buf = bufs[0]};
	while (*at)
		at = &(*at)->next;
	*at = w;
	return 0;
}

size_t uv_stream_get_write_queue_size(const uv_stream_t *s)
{
	size_t sum = 0;
	for (const struct fake_write *w = of(s)->first; w; w = w->next)
		sum += w->buf.len;
	return sum;
}

int uv_timer_init(uv_loop_t *loop, uv_timer_t *h)
{
	(void)loop;
	return open_handle((uv_handle_t *)h, FAKE_TIMER);
}

int uv_timer_start(uv_timer_t *h, uv_timer_cb cb, uint64_t timeout, uint64_t repeat)
{
	struct fake_handle *f = of(h);
	f->timer_cb = cb;
	f->due_ms = fake_now_ms + timeout;
	f->repeat_ms = repeat;
	return 0;
}

int uv_idle_init(uv_loop_t *loop, uv_idle_t *h)
{
	(void)loop;
	return open_handle((uv_handle_t *)h, FAKE_IDLE);
}

int uv_idle_start(uv_idle_t *h, uv_idle_cb cb)
{
	of(h)->idle_cb = cb;
	return 0;
}

int uv_idle_stop(uv_idle_t *h)
{
	of(h)->idle_cb = NULL;
	return 0;
}

int uv_udp_init_ex(uv_loop_t *loop, uv_udp_t *h, unsigned flags)
{
	(void)loop;
	(void)flags;
	return open_handle((uv_handle_t *)h, FAKE_UDP);
}

int uv_udp_bind(uv_udp_t *h, const struct sockaddr *a, unsigned flags)
{
	(void)flags;
	memcpy(&of(h)->addr, a, sizeof of(h)->addr);
	return 0;
}

int uv_udp_recv_start(uv_udp_t *h, uv_alloc_cb alloc_cb, uv_udp_recv_cb recv_cb)
{
	of(h)->alloc_cb = alloc_cb;
	of(h)->recv_cb = recv_cb;
	return 0;
}

size_t uv_udp_get_send_queue_count(const uv_udp_t *h)
{
	return of(h)->n_in; /* those that wait for fake_flush */
}

int uv_udp_send(uv_udp_send_t *req, uv_udp_t *h, const uv_buf_t bufs[], unsigned n,
        const struct sockaddr *to, uv_udp_send_cb cb)
{
	struct fake_packet *p = &fake_packet[next_packet++ % FAKE_PACKETS];
	struct fake_handle *f = of(h);
	struct fake_write *w = malloc(sizeof *w);
	if (!w || n != 1 || bufs[0].len > FAKE_PACKET_BYTES || f->closing)
		abort();
	p->len = bufs[0].len;
	p->from = f->addr;
	memcpy(&p->to, to, sizeof p->to);
	memcpy(p->bytes, bufs[0].base, p->len);
	/* The request ends with the next reap. */
	*w = (struct fake_write){.next = f->first, .udp = req, .udp_cb = cb};
	f->first = w;
	f->n_in++;
	return 0;
}

/* ---- what the test lets happen */

void fake_cut(int i)
{
	struct fake_handle *f = &fake_handle[i];
	if (f->peer >= 0) {
		fake_handle[f->peer].cut = true;
		fake_handle[f->peer].peer = -1;
	}
	f->cut = true;
	f->peer = -1;
}

bool fake_put(int i, const uint8_t *bytes, size_t len)
{
	struct fake_handle *f = &fake_handle[i];
	if (len > FAKE_BYTES - f->n_in)
		return false;
	memcpy(f->in + f->n_in, bytes, len);
	f->n_in += len;
	return true;
}

static int listener_at(const struct sockaddr_in *a)
{
	for (int i = 0; i < FAKE_HANDLES; i++) {
		const struct fake_handle *f = &fake_handle[i];
		if (f->kind == FAKE_LISTENER && !f->closing &&
		        f->addr.sin_addr.s_addr == a->sin_addr.s_addr)
			return i;
	}
	return -1;
}

/* Whoever listens accepts a connection with `with`; returns its new handle. */
static int accepted(int listener, int with, const struct sockaddr_in *from)
{
	struct fake_handle *s = &fake_handle[listener];
	bool was[FAKE_HANDLES];
	for (int i = 0; i < FAKE_HANDLES; i++)
		was[i] = fake_handle[i].kind != FAKE_FREE;
	s->accepts = with;
	s->from = *from;
	s->connection_cb((uv_stream_t *)s->h, 0);
	for (int i = 0; i < FAKE_HANDLES; i++)
		if (!was[i] && fake_is_tcp(i))
			return i;
	return -1;
}

int fake_dial(const struct sockaddr_in *to, const struct sockaddr_in *from)
{
	int s = listener_at(to);
	return s < 0 ? -1 : accepted(s, -1, from);
}

void fake_connect(int i, int status)
{
	struct fake_handle *f = &fake_handle[i];
	uv_connect_t *req = f->connect;
	if (f->kind != FAKE_TCP || f->closing || !req)
		return;
	int s = listener_at(&f->addr);
	struct sockaddr_in from = {.sin_family = AF_INET, .sin_port = htons(9)};
	from.sin_addr.s_addr = htonl(0x0a000100 + (uint32_t)i % 4);
	f->connect = NULL;
	if (status == 0 && s >= 0 && accepted(s, i, &from) < 0)
		f->cut = true;
	f->connect_cb(req, status);
}

void fake_flush(int i, int status)
{
	struct fake_handle *f = &fake_handle[i];
	while (f->kind == FAKE_TCP && !f->closing && f->first) {
		struct fake_write *w = f->first;
		if (status == 0 && f->peer >= 0 &&
		        !fake_put(f->peer, (const uint8_t *)w->buf.base, w->buf.len))
			return;
		f->first = w->next;
		w->cb(w->req, status);
		free(w);
	}
}

void fake_deliver(int i, size_t n)
{
	struct fake_handle *f = &fake_handle[i];
	while (f->kind == FAKE_TCP && !f->closing && f->reading && f->n_in > 0 && n > 0) {
		uv_buf_t b = {0};
		f->alloc_cb(f->h, FAKE_BYTES, &b);
		size_t k = n < f->n_in ? n : f->n_in;
		k = k < b.len ? k : b.len;
		if (k == 0)
			abort(); /* libuv would say UV_ENOBUFS: nobody wants what has come */
		memcpy(b.base, f->in, k);
		memmove(f->in, f->in + k, f->n_in - k);
		f->n_in -= k;
		n -= k;
		f->read_cb((uv_stream_t *)f->h, (ssize_t)k, &b);
	}
	if (f->kind == FAKE_TCP && !f->closing && f->reading && f->n_in == 0 && f->cut) {
		uv_buf_t none = {0};
		f->read_cb((uv_stream_t *)f->h, UV_EOF, &none);
	}
}

void fake_packet_arrives(const struct fake_packet *p)
{
	for (int i = 0; i < FAKE_HANDLES && p->len > 0; i++) {
		struct fake_handle *f = &fake_handle[i];
		uv_buf_t b = {0};
		if (f->kind != FAKE_UDP || f->closing || !f->recv_cb ||
		        f->addr.sin_addr.s_addr != p->to.sin_addr.s_addr)
			continue;
		f->alloc_cb(f->h, FAKE_BYTES, &b);
		if (b.len < p->len)
			abort();
		memcpy(b.base, p->bytes, p->len);
		f->recv_cb((uv_udp_t *)f->h, (ssize_t)p->len, &b, (const struct sockaddr *)&p->from,
		        0);
	}
}

static void end_writes(struct fake_handle *f, int status)
{
	while (f->first) {
		struct fake_write *w = f->first;
		f->first = w->next;
		if (w->udp)
			w->udp_cb(w->udp, status);
		else
			w->cb(w->req, status);
		free(w);
	}
	if (f->kind == FAKE_UDP)
		f->n_in = 0;
}

void fake_reap(void)
{
	for (int i = 0; i < FAKE_HANDLES; i++) {
		struct fake_handle *f = &fake_handle[i];
		if (f->kind == FAKE_UDP)
			end_writes(f, f->closing ? UV_ECANCELED : 0);
		if (f->kind == FAKE_IDLE && !f->closing && f->idle_cb)
			f->idle_cb((uv_idle_t *)f->h);
		if (f->kind == FAKE_FREE || !f->closing)
			continue;
		if (f->connect)
			f->connect_cb(f->connect, UV_ECANCELED);
		f->connect = NULL;
		end_writes(f, UV_ECANCELED);
		uv_close_cb cb = f->close_cb;
		uv_handle_t *h = f->h;
		f->kind = FAKE_FREE;
		cb(h);
	}
}

void fake_pass(uint64_t ms)
{
	fake_now_ms += ms;
	for (int i = 0; i < FAKE_HANDLES; i++) {
		struct fake_handle *f = &fake_handle[i];
		if (f->kind != FAKE_TIMER || f->closing || f->due_ms > fake_now_ms)
			continue;
		f->due_ms = f->repeat_ms ? fake_now_ms + f->repeat_ms : UINT64_MAX;
		f->timer_cb((uv_timer_t *)f->h);
	}
}

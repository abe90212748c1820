/* SPDX-License-Identifier: MIT */
/* Two processes on loopback that average their parameters, for tests/bench/bench-net.
 *
 *     net_exchange WORDS
 *
 * forks once; the two keep a plain TCP connection to agree on what comes next, and a sealed one for
 * small requests. Each line on stdin is one round; both record when it begins and ends:
 *
 *     exchange fp32|bf16 fast|sodium    a bulk transfer of WORDS parameters each way on a new
 *                                       connection: rounded, sealed, opened, checked, merged
 *     plain fp32|bf16                   the same bytes each way: no cipher, no check, no merge
 *     request fp32|bf16|idle            small requests, one after the other, during a transfer
 *
 * `exchange` and `plain` answer `round MS CPU_S SNAPSHOT_MS`, from the earlier beginning to the
 * later end, with the CPU time of both processes; `request` answers `request US US …`, one value
 * for each round trip. The connection is made and the snapshot is taken before the clock starts,
 * since an agent does this before the transfer; the time of the snapshot is printed as well. Every
 * result is compared with a formula; the first error ends the program with a message on stderr. */
#include "net/bulk/bulk.h"
#include "net/bulk/lattice.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define REQUEST_BYTES 64
#define REQUESTS_MAX 4096
#define REQUEST_EVERY_MS 1
#define IDLE_REQUESTS 200
#define BETA 0.5f

enum work { WORK_EXCHANGE, WORK_PLAIN, WORK_REQUEST, WORK_IDLE };

/* What the parent tells the child before each round. */
struct order {
	int work, format, aead; /* aead: an index into aead_list */
	uint64_t n;             /* rounds so far: for keys of their own */
};

/* What a process has measured of a round. */
struct stamps {
	uint64_t begin_ns, end_ns, snapshot_ns;
	double cpu_s;
};

struct peer {
	int id; /* 0: the parent, who accepts */
	size_t count;
	float *x, *snapshot, *staging;
	uint8_t *words; /* the snapshot as it travels: itself, or rounded */
	uint8_t *rounded;
	int sync;     /* plain, blocking */
	int listener; /* the parent's */
	struct sockaddr_in address;
	uv_loop_t loop;
	bool done;
	struct bulk_result result;

	/* small requests */
	int control;
	struct frame_writer writer;
	struct frame_reader reader;
	uint8_t *read_buf;
	uv_poll_t poll;
	uv_timer_t timer;
	uint64_t asked_ns;
	double took_us[REQUESTS_MAX];
	int n_took;
};

static void die(const char *what)
{
	fprintf(stderr, "net_exchange: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void must(bool ok, const char *what)
{
	if (!ok)
		die(what);
}

/* ---- sockets */

static void write_all(int fd, const void *data, size_t len)
{
	const char *p = data;
	while (len > 0) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
		must(n > 0, "send");
		p += n;
		len -= (size_t)n;
	}
}

static void read_all(int fd, void *data, size_t len)
{
	char *p = data;
	while (len > 0) {
		ssize_t n = recv(fd, p, len, 0);
		must(n > 0, "the other process is gone");
		p += n;
		len -= (size_t)n;
	}
}

/* A new connection between the two. */
static int connection(struct peer *p)
{
	int one = 1, fd;
	if (p->id == 0) {
		fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
		must(fd >= 0, "accept");
	} else {
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		must(fd >= 0 && connect(fd, (struct sockaddr *)&p->address, sizeof p->address) == 0,
		        "connect");
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	return fd;
}

/* Both have come here. */
static void meet(struct peer *p)
{
	char c = 1;
	write_all(p->sync, &c, 1);
	read_all(p->sync, &c, 1);
}

/* ---- parameters: a formula, so that what an exchange must give is known */

static float value(int id, size_t i)
{
	uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)id * 97797u;
	return (float)(h >> 8 & 0xffff) / 65536.0f - (id ? 0.25f : 0.5f);
}

static float as_sent(int format, float x)
{
	uint8_t wire[4];
	struct convert_sums sums = {0};
	convert_best()->pack((enum convert_format)format, wire, &x, 1);
	convert_best()->take((enum convert_format)format, &x, wire, NULL, 1, TAKE_WORDS, &sums);
	return x;
}

/* In the lattices D of all parameters is under √2: x and y are a quarter apart, and noise. */
static int8_t scales[SCALES_MAX];

static struct lattice lattice_of(const struct peer *p, int format)
{
	memset(scales, 1, sizeof scales);
	return (struct lattice){.bits = convert_rows[format].bits,
	        .count = p->count,
	        .shift = scales_shift(p->count),
	        .scale = scales};
}

/* y − x as it is sent. */
static float difference(const struct peer *p, int format, float x, float y)
{
	if (format < (int)CONVERT_WORDS)
		return as_sent(format, y) - as_sent(format, x);
	struct lattice l = lattice_of(p, format);
	float step = lattice_step(&l, 0);
	return step * (rintf(y / step) - rintf(x / step));
}

static void fill(struct peer *p)
{
	for (size_t i = 0; i < p->count; i++)
		p->x[i] = value(p->id, i);
}

static void check(const struct peer *p, int format)
{
	for (size_t i = 0; i < p->count; i += 1 + p->count / 1000) {
		float x = value(p->id, i), y = value(!p->id, i);
		float want = x + BETA * difference(p, format, x, y);
		if (fabsf(p->x[i] - want) > 1e-6f) {
			fprintf(stderr, "net_exchange: parameter %zu is %g, not %g\n", i,
			        (double)p->x[i], (double)want);
			exit(1);
		}
	}
}

/* ---- rounds */

static double cpu_s(void)
{
	struct rusage r;
	getrusage(RUSAGE_SELF, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
	       1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

static void on_done(void *arg, const struct bulk_result *r)
{
	struct peer *p = arg;
	p->result = *r;
	p->done = true;
}

static void transfer(struct peer *p, const struct order *o, int fd)
{
	static const uint8_t exporter[FRAME_SECRET_BYTES] = {4, 2};
	bool packed = o->format >= (int)CONVERT_WORDS;
	struct frame_bulk keys;
	struct bulk *b;
	struct err e;
	frame_bulk(&keys, exporter, &(struct frame_bulk_use){.attempt = 1 + (uint64_t)o->n});
	struct bulk_config c = {
	        .loop = &p->loop,
	        .fd = fd,
	        .keys = &keys,
	        .we_dialled = p->id == 1,
	        .aead = aead_list[o->aead],
	        .format = (enum convert_format)o->format,
	        .send = p->words,
	        .send_count = p->count,
	        .staging = packed ? NULL : p->staging,
	        .packed = packed ? (uint8_t *)p->staging : NULL,
	        .scales = scales,
	        .receive_count = p->count,
	        .ours = p->words,
	        .difference = true,
	        .arg = p,
	        .done_cb = on_done,
	};
	p->done = false;
	if (bulk_start(&b, &c, &e)) {
		fprintf(stderr, "net_exchange: %s\n", e.msg);
		exit(1);
	}
	while (!p->done)
		uv_run(&p->loop, UV_RUN_ONCE);
	if (p->result.err.code) {
		fprintf(stderr, "net_exchange: %s\n", p->result.err.msg);
		exit(1);
	}
}

/* An agent's snapshot comes rounded; here that is a part of what the exchange costs. */
static void round_words(struct peer *p, const struct order *o)
{
	if (o->format >= (int)CONVERT_WORDS) {
		const struct lattice l = lattice_of(p, o->format);
		p->words = p->rounded;
		must(lattice_pack(&l, p->rounded, p->x, 0, p->count, NULL), "numbers");
		return;
	}
	p->words = (uint8_t *)p->snapshot;
	if (o->format == CONVERT_FP32)
		return;
	convert_best()->pack((enum convert_format)o->format, p->rounded, p->snapshot, p->count);
	p->words = p->rounded;
}

#define PIECE 16384 /* parameters, that stay in a cache */

static void apply(struct peer *p, int format)
{
	static float d[PIECE];
	if (format < (int)CONVERT_WORDS) {
		convert_best()->add(p->x, p->staging, BETA, p->count);
		return;
	}
	const struct lattice l = lattice_of(p, format);
	for (size_t at = 0, n; at < p->count; at += n) {
		n = p->count - at < PIECE ? p->count - at : PIECE;
		lattice_unpack(&l, d, (const uint8_t *)p->staging, at, n);
		convert_best()->add(p->x + at, d, BETA, n);
	}
}

static void exchange(struct peer *p, const struct order *o, struct stamps *s)
{
	int fd = connection(p);
	fill(p);
	uint64_t before = uv_hrtime();
	memcpy(p->snapshot, p->x, p->count * sizeof *p->x);
	s->snapshot_ns = uv_hrtime() - before;
	meet(p);
	double cpu = cpu_s();
	s->begin_ns = uv_hrtime();
	round_words(p, o);
	transfer(p, o, fd);
	apply(p, o->format);
	s->end_ns = uv_hrtime();
	s->cpu_s = cpu_s() - cpu;
	check(p, o->format);
}

struct pipe_end {
	int fd;
	char *data;
	size_t len;
};

static void send_plain(void *arg)
{
	struct pipe_end *e = arg;
	for (size_t at = 0; at < e->len; at += BULK_CHUNK_BYTES)
		write_all(e->fd, e->data + at,
		        e->len - at < BULK_CHUNK_BYTES ? e->len - at : BULK_CHUNK_BYTES);
}

static void plain(struct peer *p, const struct order *o, struct stamps *s)
{
	size_t len = convert_bytes((enum convert_format)o->format, p->count);
	int fd = connection(p);
	struct pipe_end out = {fd, (char *)p->snapshot, len};
	uv_thread_t sender;
	s->snapshot_ns = 0;
	meet(p);
	double cpu = cpu_s();
	s->begin_ns = uv_hrtime();
	must(uv_thread_create(&sender, send_plain, &out) == 0, "thread");
	read_all(fd, p->staging, len);
	uv_thread_join(&sender);
	s->end_ns = uv_hrtime();
	s->cpu_s = cpu_s() - cpu;
	meet(p);
	close(fd);
}

/* ---- small requests: the parent asks, the child answers from its loop */

static void send_small(struct peer *p)
{
	uint8_t out[REQUEST_BYTES + FRAME_OVERHEAD_MAX];
	size_t len;
	static const uint8_t words[REQUEST_BYTES] = "ping";
	must(frame_seal(&p->writer, FRAME_MESSAGE, words, sizeof words, out, &len) == 0, "seal");
	write_all(p->control, out, len); /* so little always fits */
}

static void on_small(uv_poll_t *h, int status, int events)
{
	struct peer *p = h->data;
	struct frame f;
	struct err e;
	size_t room;
	(void)status, (void)events;
	uint8_t *to = frame_room(&p->reader, &room);
	ssize_t n = recv(p->control, to, room, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	must(n > 0, "control connection");
	frame_fed(&p->reader, (size_t)n);
	while (frame_read(&p->reader, &f, &e) > 0) {
		if (p->id == 1) {
			send_small(p);
			continue;
		}
		if (p->n_took < REQUESTS_MAX)
			p->took_us[p->n_took++] = (double)(uv_hrtime() - p->asked_ns) * 1e-3;
		p->asked_ns = 0;
	}
}

static void on_ask(uv_timer_t *h)
{
	struct peer *p = h->data;
	if (p->asked_ns)
		return;
	p->asked_ns = uv_hrtime();
	send_small(p);
}

/* The child has nothing to do but its part of the transfer: it answers whenever its loop runs, and
 * that is also between rounds. */
static void requests(struct peer *p, const struct order *o, struct stamps *s)
{
	*s = (struct stamps){0};
	p->n_took = 0;
	if (p->id == 1 && o->work == WORK_IDLE)
		return;
	if (p->id == 0)
		uv_timer_start(&p->timer, on_ask, 0, REQUEST_EVERY_MS);
	if (o->work == WORK_REQUEST) {
		int fd = connection(p);
		fill(p);
		memcpy(p->snapshot, p->x, p->count * sizeof *p->x);
		round_words(p, o);
		meet(p);
		transfer(p, o, fd);
	} else {
		while (p->n_took < IDLE_REQUESTS)
			uv_run(&p->loop, UV_RUN_ONCE);
	}
	uv_timer_stop(&p->timer);
	while (p->asked_ns)
		uv_run(&p->loop, UV_RUN_ONCE);
}

static struct stamps run_round(struct peer *p, const struct order *o)
{
	struct stamps s;
	if (o->work == WORK_EXCHANGE)
		exchange(p, o, &s);
	else if (o->work == WORK_PLAIN)
		plain(p, o, &s);
	else
		requests(p, o, &s);
	return s;
}

/* ---- the two processes */

static void peer_open(struct peer *p)
{
	static const uint8_t secret[2][FRAME_SECRET_BYTES] = {{1}, {2}};
	size_t bytes = p->count * sizeof *p->x, cap = frame_reader_bytes(0);
	p->x = convert_vector(p->count);
	p->snapshot = convert_vector(p->count);
	p->staging = convert_vector(p->count);
	p->rounded = (uint8_t *)convert_vector(p->count / 2 + 1);
	p->read_buf = malloc(cap);
	must(p->x && p->snapshot && p->staging && p->rounded && p->read_buf, "memory");
	memset(p->snapshot, 0, bytes);
	memset(p->rounded, 0, bytes / 2);
	memset(p->staging, 0, bytes);
	p->sync = connection(p);
	p->control = connection(p);
	must(uv_loop_init(&p->loop) == 0 && uv_timer_init(&p->loop, &p->timer) == 0 &&
	                uv_poll_init(&p->loop, &p->poll, p->control) == 0,
	        "loop");
	p->poll.data = p->timer.data = p;
	must(frame_writer_init(&p->writer, aead_list[0], secret[p->id], 0) == 0 &&
	                frame_reader_init(
	                        &p->reader, aead_list[0], secret[!p->id], 0, p->read_buf, cap) == 0,
	        "frames");
	must(uv_poll_start(&p->poll, UV_READABLE, on_small) == 0, "poll");
}

static void on_order(uv_poll_t *h, int status, int events)
{
	(void)status, (void)events;
	*(bool *)h->data = true;
}

static void child(struct peer *p)
{
	struct order o;
	bool ready;
	uv_poll_t orders;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	peer_open(p);
	must(uv_poll_init(&p->loop, &orders, p->sync) == 0, "loop");
	orders.data = &ready;
	for (;;) {
		ready = false;
		uv_poll_start(&orders, UV_READABLE, on_order);
		while (!ready)
			uv_run(&p->loop, UV_RUN_ONCE);
		uv_poll_stop(&orders);
		fcntl(p->sync, F_SETFL, 0); /* libuv has made it non-blocking */
		read_all(p->sync, &o, sizeof o);
		struct stamps s = run_round(p, &o);
		write_all(p->sync, &s, sizeof s);
	}
}

/* Seals and opens a little: seconds for it, or infinity if it does not run here. */
static double try_cipher(const struct aead *a)
{
	static uint8_t buf[65536 + AEAD_TAG_MAX];
	static const uint8_t key[AEAD_KEY_BYTES] = {3};
	struct aead_key k;
	if (aead_init(&k, a, key))
		return HUGE_VAL;
	double best = HUGE_VAL;
	for (uint64_t i = 0; i < 20; i++) {
		uint64_t begin = uv_hrtime();
		if (aead_seal(&k, i, NULL, 0, buf, 65536, buf) ||
		        aead_open(&k, i, NULL, 0, buf, 65536 + a->tag_bytes, buf))
			break;
		double took = (double)(uv_hrtime() - begin);
		best = took < best ? took : best;
	}
	aead_close(&k);
	return best;
}

/* The fastest of all, or of libsodium's. */
static int choose_cipher(bool sodium_only)
{
	int best = 0;
	double best_took = HUGE_VAL;
	for (int i = 0; aead_list[i]; i++) {
		if (sodium_only && strcmp(aead_list[i]->provider, "libsodium"))
			continue;
		double took = try_cipher(aead_list[i]);
		if (took < best_took) {
			best = i;
			best_took = took;
		}
	}
	printf("cipher %s %s %s\n", sodium_only ? "sodium" : "fast",
	        aead_name((int)aead_list[best]->id), aead_list[best]->provider);
	return best;
}

static void answer(struct peer *p, const struct order *o)
{
	struct stamps theirs;
	write_all(p->sync, o, sizeof *o);
	struct stamps ours = run_round(p, o);
	read_all(p->sync, &theirs, sizeof theirs);
	if (o->work == WORK_REQUEST || o->work == WORK_IDLE) {
		printf("request");
		for (int i = 0; i < p->n_took; i++)
			printf(" %.1f", p->took_us[i]);
		printf("\n");
		return;
	}
	/* Both read the same clock. */
	uint64_t begin = ours.begin_ns < theirs.begin_ns ? ours.begin_ns : theirs.begin_ns;
	uint64_t end = ours.end_ns > theirs.end_ns ? ours.end_ns : theirs.end_ns;
	printf("round %.3f %.4f %.3f\n", (double)(end - begin) * 1e-6, ours.cpu_s + theirs.cpu_s,
	        (double)ours.snapshot_ns * 1e-6);
}

static bool parse(char *line, struct order *o, const int cipher[2])
{
	char work[16], format[16] = "", kind[16] = "fast";
	if (sscanf(line, "%15s %15s %15s", work, format, kind) < 2)
		return false;
	o->format = CONVERT_FP32;
	for (int i = 0; i < CONVERT_FORMATS; i++)
		if (!strcmp(format, convert_rows[i].name))
			o->format = i;
	o->aead = cipher[!strcmp(kind, "sodium")];
	if (!strcmp(work, "exchange"))
		o->work = WORK_EXCHANGE;
	else if (!strcmp(work, "plain"))
		o->work = WORK_PLAIN;
	else if (!strcmp(work, "request"))
		o->work = strcmp(format, "idle") ? WORK_REQUEST : WORK_IDLE;
	else
		return false;
	o->n++;
	return true;
}

int main(int argc, char **argv)
{
	static struct peer p;
	struct order o = {0};
	char line[64];
	socklen_t len = sizeof p.address;
	p.count = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;
	if (p.count == 0 || p.count > 1u << 30) {
		fprintf(stderr, "usage: net_exchange WORDS < rounds\n");
		return 2;
	}
	must(sodium_init() >= 0, "libsodium");
	p.address.sin_family = AF_INET;
	p.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	p.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	must(p.listener >= 0 &&
	                bind(p.listener, (struct sockaddr *)&p.address, sizeof p.address) == 0 &&
	                listen(p.listener, 4) == 0 &&
	                getsockname(p.listener, (struct sockaddr *)&p.address, &len) == 0,
	        "listen");
	pid_t pid = fork();
	must(pid >= 0, "fork");
	if (pid == 0) {
		p.id = 1;
		child(&p);
	}
	peer_open(&p);
	int cipher[2] = {choose_cipher(false), choose_cipher(true)};
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (!parse(line, &o, cipher)) {
			fprintf(stderr, "net_exchange: what is %s", line);
			break;
		}
		answer(&p, &o);
		fflush(stdout);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* The dialler's half of Dunlin's protocol in its plainest form: one thread, blocking calls. It is
 * built from the same pieces as an agent (Noise, frames, messages), but none of the agent's own
 * connection code, so that the two check each other.
 *
 * The happy path: session_dial, session_shake, session_send and session_read, session_close. All
 * bytes pass through put() and take(), where they are counted, flipped or cut. A receiver that
 * waits for what never comes is woken by the socket's time limit, which ends the session. */
#include "tests/attack/session.h"

#include "net/transport/transport.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 60
#define QUIET_MS 250

long long now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int dial_from(unsigned n, const struct sockaddr_in *to)
{
	struct sockaddr_in from = {.sin_family = AF_INET};
	struct timeval limit = {.tv_sec = PATIENCE_S};
	from.sin_addr.s_addr = htonl(0x7f010001u + (n / 250 % 250 << 8) + n % 250);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	if (bind(fd, (struct sockaddr *)&from, sizeof from) != 0 ||
	        connect(fd, (const struct sockaddr *)to, sizeof *to) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

void session_shut(struct session *s)
{
	s->shut = true;
	shutdown(s->fd, SHUT_WR);
}

static int put(struct session *s, const uint8_t *bytes, size_t len)
{
	uint8_t copy[FRAME_MESSAGE_MAX + FRAME_OVERHEAD_MAX];
	long flip = s->damage.flip_sent - (long)s->sent, cut = s->damage.cut - (long)s->sent;
	size_t want = len, done = 0;
	if (s->shut || len > sizeof copy)
		return ERR_IO;
	memcpy(copy, bytes, len);
	if (s->damage.flip_sent >= 0 && flip >= 0 && flip < (long)len)
		copy[flip] ^= (uint8_t)(1u << (s->damage.flip_sent % 8));
	if (s->damage.cut >= 0 && cut < (long)len)
		want = cut > 0 ? (size_t)cut : 0;
	while (done < want) {
		ssize_t n = send(s->fd, copy + done, want - done, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return ERR_IO;
		done += (size_t)n;
	}
	s->sent += done;
	if (want < len)
		session_shut(s);
	return 0;
}

/* What is there, at most len; 0: the end. A damaged session may leave both sides waiting for each
 * other: then, after QUIET_MS without a byte, our side is shut. */
static size_t take(struct session *s, uint8_t *out, size_t len)
{
	struct pollfd p = {.fd = s->fd, .events = POLLIN};
	bool damaged = s->damage.flip_sent >= 0 || s->damage.flip_received >= 0;
	if (damaged && poll(&p, 1, QUIET_MS) == 0)
		session_shut(s);
	ssize_t n;
	do {
		n = recv(s->fd, out, len, 0);
	} while (n < 0 && errno == EINTR);
	if (n <= 0)
		return 0;
	long flip = s->damage.flip_received - (long)s->received;
	if (s->damage.flip_received >= 0 && flip >= 0 && flip < n)
		out[flip] ^= (uint8_t)(1u << (s->damage.flip_received % 8));
	s->received += (size_t)n;
	return (size_t)n;
}

static int take_all(struct session *s, uint8_t *out, size_t len)
{
	size_t done = 0;
	while (done < len) {
		size_t n = take(s, out + done, len - done);
		if (n == 0)
			return ERR_IO;
		done += n;
	}
	return 0;
}

int session_dial(struct session *s, const struct attacker *a, unsigned from, struct damage d)
{
	struct noise_config c = {.protocol = NOISE_PROTOCOL,
	        .initiator = true,
	        .static_secret = identity_static_secret(&a->identity),
	        .static_public = a->identity.static_public,
	        .psks = a->secrets->secret,
	        .n_psks = 1};
	struct {
		char name[16];
		struct flock_id flock;
	} prologue = {"dunlin control", a->secrets->flock[0]};
	c.prologue = &prologue;
	c.prologue_len = sizeof prologue;
	memset(s, 0, sizeof *s);
	s->damage = d;
	s->fd = dial_from(from, &a->target);
	return s->fd < 0 ? ERR_IO : noise_init(&s->noise, &c, NULL);
}

static int put_hello(struct session *s, const struct attacker *a, bool identified)
{
	struct wire_message m = {.kind = WIRE_HELLO};
	uint8_t payload[WIRE_HELLO_MAX], out[OPENING_HEADER_BYTES + OPENING_BYTES_MAX];
	size_t len, written;
	m.hello.protocol_min = m.hello.protocol_max = PROTOCOL_MAX;
	m.hello.n_ciphers = a->ciphers->n;
	memcpy(m.hello.cipher, a->ciphers->id, a->ciphers->n);
	m.hello.identified = identified;
	m.hello.id = a->identity.id;
	memcpy(m.hello.signature, a->identity.static_signature, sizeof m.hello.signature);
	m.hello.generation = a->identity.generation;
	int rc = wire_encode(&m, payload, sizeof payload, &len);
	if (rc == 0)
		rc = noise_write(&s->noise, payload, len, out + OPENING_HEADER_BYTES,
		        OPENING_BYTES_MAX, &written);
	if (rc != 0)
		return rc;
	opening_header(out, OPENING_HANDSHAKE, written);
	written += OPENING_HEADER_BYTES;
	if (!identified) {
		memcpy(s->first, out, written);
		s->first_len = written;
	}
	return put(s, out, written);
}

static int take_hello(struct session *s, struct wire_message *m)
{
	uint8_t in[OPENING_BYTES_MAX], payload[OPENING_BYTES_MAX];
	struct opening o;
	size_t len;
	int rc = take_all(s, in, OPENING_HEADER_BYTES);
	if (rc == 0)
		rc = opening_parse(in, &o);
	if (rc == 0)
		rc = take_all(s, in, o.length);
	if (rc == 0)
		rc = noise_read(&s->noise, in, o.length, payload, sizeof payload, &len);
	if (rc == 0)
		rc = wire_decode(payload, len, m, NULL);
	if (rc == 0 && (m->kind != WIRE_HELLO || !m->hello.identified))
		rc = ERR_INVALID;
	return rc;
}

int session_shake(struct session *s, const struct attacker *a)
{
	struct wire_message m;
	struct aead_order theirs = {0};
	enum aead_id cipher;
	uint8_t send[32], receive[32], hash[NOISE_HASH_BYTES];
	size_t room = frame_reader_bytes(0);
	int rc = put_hello(s, a, false);
	if (rc == 0)
		rc = take_hello(s, &m);
	if (rc != 0)
		return rc;
	rc = identity_verify_static(&m.hello.id, noise_remote_static(&s->noise), m.hello.signature);
	s->peer = m.hello.id;
	theirs.n = m.hello.n_ciphers;
	memcpy(theirs.id, m.hello.cipher, theirs.n);
	if (rc == 0)
		rc = aead_choose(a->ciphers, &theirs, &cipher);
	if (rc == 0)
		rc = put_hello(s, a, true);
	if (rc == 0)
		rc = noise_split(&s->noise, send, receive, hash);
	if (rc == 0) {
		s->cipher = aead_by_id(a->ciphers, cipher);
		frame_exporter(s->exporter, send, receive, hash);
	}
	s->buf = malloc(room);
	if (rc == 0 && !s->buf)
		rc = ERR_NOMEM;
	if (rc == 0)
		rc = frame_writer_init(&s->writer, s->cipher, send, 0);
	if (rc == 0)
		rc = frame_reader_init(&s->reader, s->cipher, receive, 0, s->buf, room);
	return rc;
}

int session_open(struct session *s, const struct attacker *a, unsigned from)
{
	long long end = now_ms() + PATIENCE_S * 1000;
	for (;;) {
		int rc = session_dial(s, a, from, NO_DAMAGE);
		if (rc == 0)
			rc = session_shake(s, a);
		if (rc != ERR_IO || s->received > 0 || now_ms() > end)
			return rc;
		session_close(s);
		poll(NULL, 0, 100);
	}
}

int session_send_bytes(struct session *s, enum frame_type type, const uint8_t *bytes, size_t len)
{
	uint8_t out[FRAME_MESSAGE_MAX + FRAME_OVERHEAD_MAX];
	size_t n;
	int rc = frame_seal(&s->writer, type, bytes, len, out, &n);
	return rc == 0 ? put(s, out, n) : rc;
}

int session_bulk(struct session *s, const struct attacker *a, unsigned from, uint64_t exchange)
{
	struct frame_bulk_use use = {exchange, ++s->bulk_attempts, true};
	struct wire_message m = {.kind = WIRE_BULK_OPEN};
	struct frame_writer writer;
	struct frame_bulk bulk;
	uint8_t out[OPENING_HEADER_BYTES + OPENING_BYTES_MAX + FRAME_OVERHEAD_MAX];
	size_t n = 0, end = 0;
	frame_bulk(&bulk, s->exporter, &use);
	m.bulk.exchange = exchange;
	m.bulk.attempt = use.attempt;
	frame_session(m.bulk.session, s->exporter);
	memcpy(m.bulk.token, bulk.token, sizeof m.bulk.token);
	int rc = wire_encode(&m, out + OPENING_HEADER_BYTES, OPENING_BYTES_MAX, &n);
	opening_header(out, OPENING_BULK, n);
	n += OPENING_HEADER_BYTES;
	if (rc == 0)
		rc = frame_writer_init(&writer, s->cipher, bulk.from_dialler, 0);
	if (rc != 0)
		return -1;
	rc = frame_seal(&writer, FRAME_END, NULL, 0, out + n, &end);
	frame_writer_close(&writer);
	int fd = rc == 0 ? dial_from(from, &a->target) : -1;
	if (fd >= 0 && send(fd, out, n + end, MSG_NOSIGNAL) == (ssize_t)(n + end))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

int session_send(struct session *s, const struct wire_message *m)
{
	uint8_t bytes[WIRE_BYTES_MAX];
	size_t len;
	int rc = wire_encode(m, bytes, sizeof bytes, &len);
	return rc == 0 ? session_send_bytes(s, FRAME_MESSAGE, bytes, len) : rc;
}

int session_read(struct session *s, struct wire_message *m)
{
	struct frame f;
	for (;;) {
		int rc = frame_read(&s->reader, &f, NULL);
		if (rc < 0)
			return rc;
		if (rc == 1 && f.type == FRAME_MESSAGE)
			return wire_decode(f.payload, f.len, m, NULL);
		if (rc == 1)
			return ERR_IO;
		size_t room;
		uint8_t *to = frame_room(&s->reader, &room);
		size_t n = take(s, to, room);
		if (n == 0)
			return ERR_IO;
		frame_fed(&s->reader, n);
	}
}

int session_drain(struct session *s)
{
	uint8_t bytes[4096];
	long long end = now_ms() + PATIENCE_S * 1000;
	while (now_ms() < end) {
		struct pollfd p = {.fd = s->fd, .events = POLLIN};
		if (poll(&p, 1, QUIET_MS) == 0) {
			session_shut(s);
			continue;
		}
		ssize_t n = recv(s->fd, bytes, sizeof bytes, MSG_DONTWAIT);
		if (n > 0)
			s->received += (size_t)n;
		else if (n == 0 || (errno != EAGAIN && errno != EINTR))
			return 0;
	}
	return ERR_BUSY;
}

void session_close(struct session *s)
{
	noise_close(&s->noise);
	frame_writer_close(&s->writer);
	frame_reader_close(&s->reader);
	free(s->buf);
	s->buf = NULL;
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

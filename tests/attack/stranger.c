/* SPDX-License-Identifier: MIT */
/* What those do who have not the flock's secret: knock with another key, repeat what they
 * overheard, open connections and say nothing, or very little, or send datagrams of noise. An agent
 * owes them nothing: no byte of an answer, except to an overheard first message, whose sender
 * proves itself only by what it says next; that costs a Diffie-Hellman, of which there is a budget.
 */
#include "tests/attack/attack.h"

#include "agent/base/rng.h"
#include "net/codec/datagram.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 60000

int attack_wrong_key(struct attack *k)
{
	struct session s;
	int rc = session_dial(&s, &k->attacker[0], 1, NO_DAMAGE);
	if (rc == 0)
		rc = session_shake(&s, &k->attacker[0]);
	printf("# with another key: %s after %zu bytes\n", err_text(rc), s.received);
	int bad = rc != ERR_IO || s.received != 0 || s.sent == 0;
	if (bad)
		puts("a stranger was answered");
	session_close(&s);
	return bad;
}

/* An honest first message, as somebody on the way would have seen it. */
static int overhear(struct attack *k, uint8_t *out, size_t *len)
{
	struct session s;
	int rc = session_open(&s, &k->attacker[0], 2);
	memcpy(out, s.first, s.first_len);
	*len = s.first_len;
	session_close(&s);
	if (rc != 0)
		printf("an honest handshake fails: %s\n", err_text(rc));
	return rc;
}

#define REPLAYS 400

int attack_replay(struct attack *k)
{
	uint8_t first[OPENING_HEADER_BYTES + OPENING_BYTES_MAX], byte;
	size_t len;
	int answers = 0;
	struct session s;
	if (overhear(k, first, &len) != 0)
		return -1;
	long long began = now_ms();
	for (int i = 0; i < REPLAYS; i++) {
		int fd = dial_from(3, &k->attacker[0].target);
		if (fd < 0 || send(fd, first, len, MSG_NOSIGNAL) < 0) {
			/* Refused before it could be said. */
			if (fd >= 0)
				close(fd);
			continue;
		}
		answers += recv(fd, &byte, 1, 0) == 1;
		close(fd);
	}
	double seconds = (double)(now_ms() - began) / 1000;
	double most = BUDGET_DH_BURST + BUDGET_DH_RATE * seconds + 1;
	printf("# %d replays in %.1f s: %d answered, %.0f allowed\n", REPLAYS, seconds, answers,
	        most);
	int rc = session_dial(&s, &k->attacker[0], 4, NO_DAMAGE);
	if (rc == 0)
		rc = session_shake(&s, &k->attacker[0]);
	session_close(&s);
	if (rc != 0)
		printf("another address is refused meanwhile: %s\n", err_text(rc));
	if (answers == 0)
		puts("no replay was answered: this did not reach what it is about");
	if (answers > most)
		puts("replays cost more than their budget");
	return rc != 0 || answers == 0 || answers > most;
}

/* n connections that have begun, from so many addresses; -1 for those that failed. */
static int begin_many(struct attack *k, struct pollfd *p, int n, unsigned addresses)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	for (int i = 0; i < n; i++) {
		struct sockaddr_in from = {.sin_family = AF_INET};
		from.sin_addr.s_addr = htonl(0x7f020001u + (unsigned)i % addresses);
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (fd < 0 || bind(fd, (struct sockaddr *)&from, sizeof from) != 0) {
			printf("connection %d: %s\n", i, strerror(errno));
			return -1;
		}
		if (connect(fd, (struct sockaddr *)&k->attacker[0].target,
		            sizeof k->attacker[0].target) != 0 &&
		        errno != EINPROGRESS) {
			printf("connection %d: %s\n", i, strerror(errno));
			close(fd);
			return -1;
		}
		p[i] = (struct pollfd){.fd = fd, .events = POLLIN};
	}
	return 0;
}

static volatile sig_atomic_t asked;

static void on_ask(int sig)
{
	(void)sig;
	asked = 1;
}

/* Until the agent has closed all of them; `say` is dripped into each, a byte every tenth of a
 * second. With NULL nothing is said until standard input ends; then a byte each, since a kernel
 * whose queue of connections was full has forgotten some that we still take for open, and says so
 * only when asked. Returns how many bytes came back, -1 if they stay open. */
static long outlast(struct pollfd *p, int n, const uint8_t *say, size_t len)
{
	long long end = now_ms() + PATIENCE_MS, next = now_ms();
	long answered = 0;
	int open = n;
	size_t said = 0;
	const uint8_t zero = 0;
	while (open > 0 && now_ms() < end) {
		if (poll(p, (nfds_t)n, 100) < 0 && errno != EINTR)
			return -1;
		for (int i = 0; i < n; i++) {
			uint8_t in[64];
			if (p[i].fd < 0 || !p[i].revents)
				continue;
			ssize_t got = recv(p[i].fd, in, sizeof in, 0);
			answered += got > 0 ? got : 0;
			if (got > 0 || (got < 0 && errno == EAGAIN))
				continue;
			close(p[i].fd);
			p[i].fd = -1;
			open--;
		}
		bool quiet = say ? said >= len : !asked;
		if (quiet || now_ms() < next)
			continue;
		for (int i = 0; i < n; i++)
			if (p[i].fd >= 0)
				(void)!send(p[i].fd, say ? say + said : &zero, 1,
				        MSG_NOSIGNAL | MSG_DONTWAIT);
		said++;
		next = now_ms() + 100;
	}
	for (int i = 0; i < n; i++)
		if (p[i].fd >= 0)
			close(p[i].fd);
	return open > 0 ? -1 : answered;
}

static int hold(struct attack *k, int n, unsigned addresses, const uint8_t *say, size_t len)
{
	struct pollfd *p = calloc((size_t)n, sizeof *p);
	long answered = -1;
	long long began = now_ms();
	signal(SIGUSR1, on_ask);
	if (p && begin_many(k, p, n, addresses) == 0)
		answered = outlast(p, n, say, len);
	free(p);
	printf("# %d connections from %u addresses: %s, %ld bytes of answers, %.1f s\n", n,
	        addresses, answered < 0 ? "not all were closed" : "all were closed",
	        answered < 0 ? 0 : answered, (double)(now_ms() - began) / 1000);
	if (answered > 0)
		puts("strangers were answered");
	return answered != 0;
}

int attack_half_open(struct attack *k)
{
	return hold(k, k->argc > 0 ? atoi(k->argv[0]) : 2000, 40, NULL, 0);
}

int attack_slow(struct attack *k)
{
	uint8_t first[OPENING_HEADER_BYTES + OPENING_BYTES_MAX];
	size_t len;
	if (overhear(k, first, &len) != 0)
		return -1;
	/* All but the last byte: never a message, always about to be one. */
	return hold(k, 100, 5, first, len - 1);
}

/* noise SECONDS PER-SECOND ID: a third is mere noise, a third looks like a datagram, a third also
 * has the hint of that member of the flock, as somebody on the way could have seen it. */
int attack_noise(struct attack *k)
{
	struct peer_id member;
	struct rng r;
	int sent = 0;
	if (k->argc != 3 || parse_id(k->argv[2], &member) != 0)
		return -1;
	double seconds = atof(k->argv[0]);
	int rate = atoi(k->argv[1]);
	uint64_t hint = datagram_hint(k->secrets.secret[0], &member);
	rng_seed(&r, 1, 0);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	long long began = now_ms();
	while (sent < seconds * rate) {
		uint8_t packet[1500];
		size_t len = (size_t)(rng_u64(&r) % sizeof packet);
		for (size_t i = 0; i < len; i++)
			packet[i] = (uint8_t)rng_u64(&r);
		if (sent % 3 > 0 && len > 0)
			packet[0] = DATAGRAM_VERSION;
		if (sent % 3 > 1 && len > 9)
			for (int i = 0; i < 8; i++)
				packet[1 + i] = (uint8_t)(hint >> 8 * i);
		if (sendto(fd, packet, len, 0, (struct sockaddr *)&k->attacker[0].target,
		            sizeof k->attacker[0].target) < 0 &&
		        errno != ECONNREFUSED)
			break;
		sent++;
		long long due = began + 1000ll * sent / rate;
		if (due > now_ms())
			poll(NULL, 0, (int)(due - now_ms()));
	}
	close(fd);
	printf("# %d datagrams of noise in %.1f s\n", sent, (double)(now_ms() - began) / 1000);
	return sent < seconds * rate;
}

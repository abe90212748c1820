/* SPDX-License-Identifier: MIT */
/* A stranger on the way between agents, for as long as an attack lasts: agents advertise its ports,
 * and it carries everything to theirs, connections and datagrams, and back.
 *
 *     agent ──dials──► LISTEN, here ──dials──► TARGET, another agent
 *
 * It has no key. But the first byte of a bulk connection tells what it is, so it can choose: it
 * loses the first few to the first agent (as a full queue or a firewall would), or flips one bit of
 * one now and then. Everything else passes unharmed. */
#include "tests/attack/attack.h"

#include "agent/base/rng.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATHS_MAX 16
#define CLIENTS_MAX 32 /* senders of datagrams to one agent */
#define LOSSES 8       /* enough that two diallers lose four each */
#define FLIP_EVERY_MS 3000
#define TELL_MS 1000
#define FLIP_AT 20000 /* of a bulk connection's bytes: within its first chunk */

struct path {
	pthread_t streams, datagrams;
	struct sockaddr_in target;
	int listener, socket;
	bool loses, flips;
	long long end_ms;
	atomic_int harmed;
	atomic_llong flipped_ms;
	struct {
		struct sockaddr_in from;
		int fd;
	} client[CLIENTS_MAX];
	int n_clients;
};

struct relay {
	struct path *path;
	int near, far;
};

/* ---- connections */

/* Whether this bulk connection is to be harmed. */
static bool chosen(struct path *p)
{
	if (p->loses)
		return atomic_fetch_add(&p->harmed, 1) < LOSSES;
	long long now = now_ms(), last = atomic_load(&p->flipped_ms);
	return p->flips && now - last >= FLIP_EVERY_MS &&
	       atomic_compare_exchange_strong(&p->flipped_ms, &last, now) &&
	       atomic_fetch_add(&p->harmed, 1) >= 0;
}

static bool pass(int from, int to, long *flip)
{
	uint8_t bytes[65536];
	ssize_t n = recv(from, bytes, sizeof bytes, 0);
	if (n <= 0)
		return false;
	if (*flip >= 0 && *flip < n)
		bytes[*flip] ^= 1;
	*flip -= *flip >= 0 ? n : 0;
	for (ssize_t done = 0; done < n;) {
		ssize_t m = send(to, bytes + done, (size_t)(n - done), MSG_NOSIGNAL);
		if (m <= 0)
			return false;
		done += m;
	}
	return true;
}

static void *carry(void *arg)
{
	struct relay *r = arg;
	uint8_t kind = 0;
	long flip = -1, none = -1;
	bool bulk = recv(r->near, &kind, 1, MSG_PEEK) == 1 && kind == OPENING_BULK;
	bool harm = bulk && chosen(r->path);
	if (harm && !r->path->loses)
		flip = FLIP_AT;
	if (!(harm && r->path->loses))
		r->far = dial_from(1, &r->path->target);
	struct pollfd p[2] = {{.fd = r->near, .events = POLLIN}, {.fd = r->far, .events = POLLIN}};
	/* A direction that has ended is passed on as such; the other may go on. */
	while (r->far >= 0 && (p[0].fd >= 0 || p[1].fd >= 0)) {
		if (poll(p, 2, 1000) < 0 || now_ms() > r->path->end_ms)
			break;
		for (int i = 0; i < 2; i++) {
			int to = i == 0 ? r->far : r->near;
			if (p[i].fd < 0 || !p[i].revents || pass(p[i].fd, to, i ? &none : &flip))
				continue;
			shutdown(to, SHUT_WR);
			p[i].fd = -1;
		}
	}
	close(r->near);
	if (r->far >= 0)
		close(r->far);
	free(r);
	return NULL;
}

static void *run_streams(void *arg)
{
	struct path *p = arg;
	while (now_ms() < p->end_ms) {
		struct pollfd wait = {.fd = p->listener, .events = POLLIN};
		struct relay *r;
		pthread_t thread;
		if (poll(&wait, 1, 200) != 1 || !(r = calloc(1, sizeof *r)))
			continue;
		r->path = p;
		r->far = -1;
		r->near = accept(p->listener, NULL, NULL);
		if (r->near < 0 || pthread_create(&thread, NULL, carry, r) != 0) {
			if (r->near >= 0)
				close(r->near);
			free(r);
			continue;
		}
		pthread_detach(thread);
	}
	return NULL;
}

/* ---- datagrams */

/* The socket that stands for that sender at the target; -1: too many. */
static int socket_for(struct path *p, const struct sockaddr_in *from)
{
	for (int i = 0; i < p->n_clients; i++)
		if (p->client[i].from.sin_port == from->sin_port &&
		        p->client[i].from.sin_addr.s_addr == from->sin_addr.s_addr)
			return p->client[i].fd;
	if (p->n_clients == CLIENTS_MAX)
		return -1;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&p->target, sizeof p->target) != 0)
		return -1;
	p->client[p->n_clients].from = *from;
	p->client[p->n_clients++].fd = fd;
	return fd;
}

static void *run_datagrams(void *arg)
{
	struct path *p = arg;
	while (now_ms() < p->end_ms) {
		struct pollfd wait[CLIENTS_MAX + 1] = {{.fd = p->socket, .events = POLLIN}};
		struct sockaddr_in from;
		socklen_t len = sizeof from;
		uint8_t bytes[2048];
		int n = p->n_clients;
		for (int i = 0; i < n; i++)
			wait[i + 1] = (struct pollfd){.fd = p->client[i].fd, .events = POLLIN};
		if (poll(wait, (nfds_t)n + 1, 200) <= 0)
			continue;
		if (wait[0].revents) {
			ssize_t got = recvfrom(p->socket, bytes, sizeof bytes, MSG_DONTWAIT,
			        (struct sockaddr *)&from, &len);
			int fd = got >= 0 ? socket_for(p, &from) : -1;
			if (fd >= 0)
				(void)!send(fd, bytes, (size_t)got, MSG_DONTWAIT);
		}
		for (int i = 0; i < n; i++) {
			ssize_t got;
			if (!wait[i + 1].revents || (got = recv(p->client[i].fd, bytes,
			                                     sizeof bytes, MSG_DONTWAIT)) < 0)
				continue;
			sendto(p->socket, bytes, (size_t)got, MSG_DONTWAIT,
			        (struct sockaddr *)&p->client[i].from, sizeof p->client[i].from);
		}
	}
	return NULL;
}

/* ---- */

static int open_path(struct path *p, const char *ports)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	const char *target = strchr(ports, ':');
	int yes = 1;
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	p->target = a;
	a.sin_port = htons((uint16_t)atoi(ports));
	p->target.sin_port = htons((uint16_t)(target ? atoi(target + 1) : 0));
	p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	p->socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (!target || p->listener < 0 || p->socket < 0)
		return -1;
	setsockopt(p->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	if (bind(p->listener, (struct sockaddr *)&a, sizeof a) != 0 || listen(p->listener, 64) != 0)
		return -1;
	return bind(p->socket, (struct sockaddr *)&a, sizeof a);
}

/* path lose|flip|pass SECONDS LISTEN:TARGET…: ports of 127.0.0.1; pass harms nothing. */
int attack_path(struct attack *k)
{
	static struct path paths[PATHS_MAX];
	int n = k->argc - 2, harmed = 0;
	if (n < 1 || n > PATHS_MAX)
		return -1;
	for (int i = 0; i < n; i++) {
		struct path *p = &paths[i];
		/* To all agents it would only show how long they leave each other alone. */
		p->loses = i == 0 && strcmp(k->argv[0], "lose") == 0;
		p->flips = strcmp(k->argv[0], "flip") == 0;
		p->end_ms = now_ms() + (long long)(1000 * atof(k->argv[1]));
		p->flipped_ms = now_ms() + i * FLIP_EVERY_MS / n;
		if (open_path(p, k->argv[2 + i]) != 0 ||
		        pthread_create(&p->streams, NULL, run_streams, p) != 0 ||
		        pthread_create(&p->datagrams, NULL, run_datagrams, p) != 0) {
			printf("%s: no way through here\n", k->argv[2 + i]);
			return -1;
		}
	}
	while (now_ms() < paths[0].end_ms) {
		poll(NULL, 0, TELL_MS);
		harmed = 0;
		for (int i = 0; i < n; i++)
			harmed += atomic_load(&paths[i].harmed);
		printf("# so far %d\n", harmed);
		fflush(stdout);
	}
	harmed = 0;
	for (int i = 0; i < n; i++) {
		pthread_join(paths[i].streams, NULL);
		pthread_join(paths[i].datagrams, NULL);
		harmed += atomic_load(&paths[i].harmed);
	}
	printf("# %d bulk connections %s\n", harmed,
	        paths[0].loses ? "came by, of which the first were lost" : "had a bit flipped");
	return 0;
}

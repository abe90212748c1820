/* SPDX-License-Identifier: MIT */
/* Those who only take room: strangers that connect and say nothing, within every limit and again as
 * soon as they are thrown out; and sessions under many ids that do nothing but answer. Each goes on
 * for SECONDS and reaches all agents named by PORT (tests/bench/bench-attack). */
#include "tests/attack/member.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define STRANGERS 256 /* as many as an agent has slots for */
#define ADDRESSES 8   /* that they come from: 32 each, as many as one may have */
#define SESSIONS_MAX 1024

static void raise_limit(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* ---- strangers */

static int connect_from(const struct sockaddr_in *to, unsigned n)
{
	struct sockaddr_in from = {.sin_family = AF_INET};
	from.sin_addr.s_addr = htonl(0x7f030001u + n % ADDRESSES);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&from, sizeof from) != 0 ||
	        (connect(fd, (const struct sockaddr *)to, sizeof *to) != 0 &&
	                errno != EINPROGRESS)) {
		close(fd);
		return -1;
	}
	return fd;
}

static void stand_around(struct siege *s)
{
	struct pollfd p[STRANGERS];
	for (unsigned i = 0; i < STRANGERS; i++)
		p[i] = (struct pollfd){.fd = -1, .events = POLLIN};
	while (now_ms() < s->end_ms) {
		for (unsigned i = 0; i < STRANGERS; i++) {
			if (p[i].fd >= 0 && p[i].revents) {
				close(p[i].fd);
				p[i].fd = -1;
			}
			if (p[i].fd < 0) {
				p[i].fd = connect_from(&s->target, i);
				s->done += p[i].fd >= 0;
			}
			p[i].revents = 0;
		}
		poll(p, STRANGERS, 50);
		poll(NULL, 0, 20); /* one that is closed at once is not tried more often */
	}
	for (unsigned i = 0; i < STRANGERS; i++)
		if (p[i].fd >= 0)
			close(p[i].fd);
}

/* strangers SECONDS PORT… */
int attack_strangers(struct attack *k)
{
	raise_limit();
	long done = besiege(k, 1, stand_around);
	printf("# %ld connections of strangers\n", done);
	return done <= 0 ? -1 : 0;
}

/* ---- sessions */

/* Shared by all threads: the i-th id is at every agent. */
static struct attacker *crowd;
static int n_crowd;

static int make_crowd(struct attack *k, const char *folder, int n)
{
	struct err e = {0};
	crowd = calloc((size_t)n, sizeof *crowd);
	for (n_crowd = 0; crowd && n_crowd < n; n_crowd++) {
		char path[4096];
		snprintf(path, sizeof path, "%s/idle%d", folder, n_crowd);
		crowd[n_crowd] = k->attacker[0];
		if (identity_open(&crowd[n_crowd].identity, path, &e) != 0) {
			printf("%s: %s\n", path, e.msg);
			return -1;
		}
	}
	return crowd ? 0 : -1;
}

static void idle(struct siege *s)
{
	struct member *m = calloc((size_t)n_crowd, sizeof *m);
	struct wire_message w;
	while (m && now_ms() < s->end_ms) {
		for (int i = 0; i < n_crowd && now_ms() < s->end_ms; i++) {
			struct siege as = *s;
			as.attacker = &crowd[i];
			m[i].from = 2000 + (unsigned)i;
			if (!m[i].open && member_open(&m[i], &as) != 0)
				break; /* no room: a while later */
			s->done += m[i].n_known == 0;
			while (member_serve(&m[i], 0, &w) == 1)
				;
		}
		poll(NULL, 0, 50);
	}
	for (int i = 0; m && i < n_crowd; i++)
		member_close(&m[i]);
	free(m);
}

/* idle SECONDS PORT…: ATTACK_IDS sessions at each, 110 unless set; the ids are in ATTACK_FOLDER. */
int attack_idle(struct attack *k)
{
	const char *ids = getenv("ATTACK_IDS"), *folder = getenv("ATTACK_FOLDER");
	int n = ids ? atoi(ids) : 110;
	if (n < 1 || n > SESSIONS_MAX || !folder || make_crowd(k, folder, n) != 0)
		return -1;
	raise_limit();
	long done = besiege(k, 1, idle);
	printf("# %ld sessions, under %d ids\n", done, n_crowd);
	for (int i = 0; i < n_crowd; i++)
		identity_close(&crowd[i].identity);
	free(crowd);
	return done <= 0 ? -1 : 0;
}

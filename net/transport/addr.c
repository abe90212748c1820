/* SPDX-License-Identifier: MIT */
/* Addresses between people, sockets and the membership core. */
#include "net/transport/transport.h"

#include "net/transport/transport_internal.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *peer_addr_text(const struct peer_addr *a, char out[64])
{
	char ip[INET6_ADDRSTRLEN] = "?";
	if (a->family == 0)
		snprintf(out, 64, "unknown");
	else if (!inet_ntop(a->family == 4 ? AF_INET : AF_INET6, a->ip, ip, sizeof ip))
		snprintf(out, 64, "?");
	else
		snprintf(out, 64, a->family == 4 ? "%s:%u" : "[%s]:%u", ip, a->port);
	return out;
}

int peer_addr_parse(const char *text, struct peer_addr *out, struct err *e)
{
	char host[INET6_ADDRSTRLEN + 1], *end;
	const char *colon = strrchr(text, ':');
	bool six = text[0] == '[';
	memset(out, 0, sizeof *out);
	if (!colon || (six && (colon == text || colon[-1] != ']')))
		return err_set(e, ERR_FORMAT, "\"%.80s\": wants IP:PORT or [IPv6]:PORT", text);
	size_t n = (size_t)(colon - text) - (six ? 2 : 0);
	long port = strtol(colon + 1, &end, 10);
	if (end == colon + 1 || *end || port < 0 || port > 65535)
		return err_set(e, ERR_FORMAT, "\"%.80s\": a port is 0 to 65535", text);
	if (n >= sizeof host)
		return err_set(e, ERR_FORMAT, "\"%.80s\": not an IP address", text);
	memcpy(host, text + (six ? 1 : 0), n);
	host[n] = 0;
	out->family = six ? 6 : 4;
	out->port = (uint16_t)port;
	if (inet_pton(six ? AF_INET6 : AF_INET, host, out->ip) != 1)
		return err_set(e, ERR_FORMAT, "\"%.80s\": not an IP address", text);
	return 0;
}

/* An IPv4 address that came through an IPv6 socket is the IPv4 address. */
static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

void peer_addr_map(struct peer_addr *a)
{
	if (a->family != 4)
		return;
	memmove(a->ip + sizeof mapped, a->ip, 4);
	memcpy(a->ip, mapped, sizeof mapped);
	a->family = 6;
}

struct peer_addr peer_addr_from(const struct sockaddr *s)
{
	struct peer_addr a = {0};
	if (s->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)s;
		a.family = 4;
		memcpy(a.ip, &in->sin_addr, 4);
		a.port = ntohs(in->sin_port);
	} else if (s->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const void *)s;
		bool four = memcmp(&in6->sin6_addr, mapped, sizeof mapped) == 0;
		a.family = four ? 4 : 6;
		memcpy(a.ip, (const uint8_t *)&in6->sin6_addr + (four ? 12 : 0), four ? 4 : 16);
		a.port = ntohs(in6->sin6_port);
	}
	return a;
}

void peer_addr_to(const struct peer_addr *a, struct sockaddr_storage *out)
{
	memset(out, 0, sizeof *out);
	if (a->family == 4) {
		struct sockaddr_in *in = (void *)out;
		in->sin_family = AF_INET;
		memcpy(&in->sin_addr, a->ip, 4);
		in->sin_port = htons(a->port);
	} else if (a->family == 6) {
		struct sockaddr_in6 *in6 = (void *)out;
		in6->sin6_family = AF_INET6;
		memcpy(&in6->sin6_addr, a->ip, 16);
		in6->sin6_port = htons(a->port);
	}
}

/* SPDX-License-Identifier: MIT */
/* Settings name machines as people do. They are parsed strictly, so that a typing error is told
 * with the config and not seconds later by a resolver.
 *
 * Which of its addresses a machine is known by cannot be asked for. The kernel's choice of a source
 * address for a far destination is the best guess; connecting a datagram socket shows it without
 * sending anything. What can fail is the DNS, and an interface that is not there or has no address.
 */
#include "agent/hostport.h"

#include "net/transport.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

static int wrong(struct err *e, const char *text, const char *why)
{
	return err_set(e, ERR_FORMAT, "\"%.100s\": %s", text, why);
}

int hostport_parse(const char *text, struct hostport *out, struct err *e)
{
	const char *host = text, *colon = strrchr(text, ':'), *end = colon;
	struct in6_addr six;
	bool brackets = text[0] == '[';
	*out = (struct hostport){0};
	if (!colon || !colon[1])
		return wrong(e, text, "the port is missing, as in heron.example:7946");
	if (strspn(colon + 1, "0123456789") != strlen(colon + 1) || strlen(colon + 1) > 5 ||
	        atoi(colon + 1) > 65535)
		return wrong(e, text, "a port is a number up to 65535");
	if (brackets) {
		host++;
		end--;
		if (end < host || *end != ']')
			return wrong(e, text, "an IPv6 address is written [::1]:7946");
	}
	if ((size_t)(end - host) >= sizeof out->host)
		return wrong(e, text, "the host is too long");
	memcpy(out->host, host, (size_t)(end - host));
	out->port = (uint16_t)atoi(colon + 1);
	if (brackets && inet_pton(AF_INET6, out->host, &six) != 1)
		return wrong(e, text, "what is in brackets is not an IPv6 address");
	if (!brackets && strchr(out->host, ':'))
		return wrong(e, text, "an IPv6 address is written in brackets, [::1]:7946");
	if (!brackets && strspn(out->host, NAME_CHARS) != strlen(out->host))
		return wrong(e, text, "not the name or address of a host");
	return 0;
}

int hostport_resolve(const struct hostport *h, struct peer_addr *out, struct err *e)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found;
	const char *host = h->host[0] ? h->host : "0.0.0.0";
	int rc = getaddrinfo(host, NULL, &hints, &found);
	if (rc)
		return err_set(e, ERR_NOTFOUND, "%.120s: %s", host, gai_strerror(rc));
	*out = peer_addr_from(found->ai_addr);
	out->port = h->port;
	freeaddrinfo(found);
	return 0;
}

int hostport_interface(const char *name, struct peer_addr *out, struct err *e)
{
	struct ifaddrs *list, *best = NULL;
	bool there = false;
	if (getifaddrs(&list))
		return err_errno(e, "list the network interfaces");
	for (struct ifaddrs *i = list; i; i = i->ifa_next) {
		if (strcmp(i->ifa_name, name) != 0)
			continue;
		there = true;
		int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
		if (family == AF_INET6) {
			const struct sockaddr_in6 *six = (const void *)i->ifa_addr;
			/* It would mean nothing to a peer: each link has its own. */
			if (IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))
				continue;
		}
		bool better = !best || best->ifa_addr->sa_family == AF_INET6;
		if (family == AF_INET ? better : family == AF_INET6 && !best)
			best = i;
	}
	if (best)
		*out = peer_addr_from(best->ifa_addr);
	freeifaddrs(list);
	if (!there)
		return err_set(e, ERR_NOTFOUND,
		        "there is no network interface \"%.40s\"; `ip link` lists them", name);
	if (!best)
		return err_set(e, ERR_NOTFOUND, "network interface %.40s has no address", name);
	out->port = 0;
	return 0;
}

bool hostport_any(const struct peer_addr *a)
{
	static const uint8_t none[sizeof a->ip];
	return memcmp(a->ip, none, a->family == 4 ? 4 : sizeof a->ip) == 0;
}

struct peer_addr hostport_primary(uint8_t family)
{
	/* Of the blocks that are kept for documentation: nobody is there, and nothing is sent. */
	struct peer_addr far = {.family = 4, .ip = {192, 0, 2, 1}, .port = 9};
	struct peer_addr found = {.family = 4, .ip = {127, 0, 0, 1}};
	struct sockaddr_storage to, from;
	socklen_t size = sizeof from;
	if (family == 6) {
		far = (struct peer_addr){.family = 6, .ip = {0x20, 0x01, 0x0d, 0xb8}, .port = 9};
		found = (struct peer_addr){.family = 6, .ip = {[15] = 1}};
	}
	peer_addr_to(&far, &to);
	int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return found;
	if (connect(fd, (const struct sockaddr *)&to, sizeof to) == 0 &&
	        getsockname(fd, (struct sockaddr *)&from, &size) == 0)
		found = peer_addr_from((const struct sockaddr *)&from);
	close(fd);
	found.port = 0;
	return found;
}

/* SPDX-License-Identifier: MIT */
/* Settings name machines as people do. They are parsed strictly, so that a typing error is told
 * with the config and not seconds later by a resolver.
 *
 * Which of its addresses a machine is known by cannot be asked for. The kernel's choice of a source
 * address for a far destination is the best guess; connecting a datagram socket shows it without
 * sending anything. What can fail is the DNS, and an interface that is not there or has no address.
 */
#include "agent/config/hostport.h"

#include "net/transport/transport.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFER_SRC_PUBLIC 2 /* of <linux/in6.h>, which does not go with <netinet/in.h> */
#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"
#define DIGITS "0123456789"

static int wrong(struct err *e, const char *text, const char *why)
{
	return err_set(e, ERR_FORMAT, "\"%.100s\": %s", text, why);
}

static bool is_six(const char *host)
{
	struct in6_addr six;
	return inet_pton(AF_INET6, host, &six) == 1;
}

/* A port, or NULL: none is given. */
static int read_port(const char *text, const char *port, struct hostport *out, struct err *e)
{
	out->port = HOSTPORT_PORT;
	out->has_port = port != NULL;
	if (!port)
		return 0;
	if (!port[0])
		return wrong(e, text, "the port after the colon is missing");
	if (strspn(port, DIGITS) != strlen(port) || strlen(port) > 5 || atoi(port) > 65535)
		return wrong(e, text, "the port must be a number up to 65535");
	out->port = (uint16_t)atoi(port);
	return 0;
}

/* An IPv6 address without brackets, which has no port. "::1:80" may be one address, or another and
 * a port: it is refused. */
static int check_bare_six(const char *text, const char *last, struct hostport *h, struct err *e)
{
	bool whole = is_six(h->host);
	h->host[last - text] = '\0';
	bool port = last[1] && strspn(last + 1, DIGITS) == strlen(last + 1) && is_six(h->host);
	h->host[last - text] = ':';
	if (!whole || port)
		return wrong(e, text, "write an IPv6 address with a port in brackets, [::1]:80");
	return 0;
}

int hostport_parse(const char *text, struct hostport *out, struct err *e)
{
	const char *host = text, *colon = strchr(text, ':'), *last = strrchr(text, ':');
	bool brackets = text[0] == '[', bare_six = !brackets && colon != last;
	size_t len = bare_six || !colon ? strlen(text) : (size_t)(colon - text);
	const char *port = bare_six || !colon ? NULL : colon + 1;
	*out = (struct hostport){0};
	if (brackets) {
		const char *end = strchr(text, ']');
		if (!end || (end[1] && end[1] != ':'))
			return wrong(e, text, "write an IPv6 address as [::1] or [::1]:80");
		host++;
		len = (size_t)(end - host);
		port = end[1] ? end + 2 : NULL;
	}
	if (len >= sizeof out->host)
		return wrong(e, text, "the host is too long");
	memcpy(out->host, host, len);
	if (bare_six)
		return check_bare_six(text, last, out, e) ? ERR_FORMAT
		                                          : read_port(text, NULL, out, e);
	if (brackets && !is_six(out->host))
		return wrong(e, text, "the text in brackets is not an IPv6 address");
	if (!brackets && strspn(out->host, NAME_CHARS) != len)
		return wrong(e, text, "not the name or address of a host");
	if (!port && len > 0 && strspn(out->host, DIGITS) == len)
		return wrong(e, text, "write a port alone with a colon, as :80");
	return read_port(text, port, out, e);
}

int hostport_resolve(const struct hostport *h, struct peer_addr *out, struct err *e)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found;
	const char *host = h->host[0] ? h->host : "::";
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

bool hostport_dialable(const struct peer_addr *a)
{
	static const uint8_t everybody[4] = {255, 255, 255, 255};
	bool multicast = a->family == 4 ? a->ip[0] >> 4 == 14 : a->ip[0] == 255;
	return !hostport_any(a) && !multicast &&
	       (a->family != 4 || memcmp(a->ip, everybody, sizeof everybody) != 0);
}

struct peer_addr hostport_loopback(uint8_t family)
{
	struct peer_addr four = {.family = 4, .ip = {127, 0, 0, 1}}, six = {6, {[15] = 1}, 0};
	return family == 4 ? four : six;
}

/* Whether it means the same machine to those elsewhere. */
static bool known_elsewhere(const struct peer_addr *a)
{
	struct peer_addr six = hostport_loopback(6);
	if (hostport_any(a))
		return false;
	if (a->family == 4)
		return a->ip[0] != 127 && !(a->ip[0] == 169 && a->ip[1] == 254);
	return memcmp(a->ip, six.ip, sizeof six.ip) != 0 &&
	       !(a->ip[0] == 0xfe && (a->ip[1] & 0xc0) == 0x80);
}

/* The first one of an interface that is up. */
static struct peer_addr first_of_any(uint8_t family)
{
	struct peer_addr found = {0};
	struct ifaddrs *list;
	if (getifaddrs(&list))
		return found;
	for (struct ifaddrs *i = list; i && !found.family; i = i->ifa_next) {
		if (!i->ifa_addr || !(i->ifa_flags & IFF_RUNNING))
			continue;
		struct peer_addr a = peer_addr_from(i->ifa_addr);
		if (a.family == family && known_elsewhere(&a))
			found = a;
	}
	freeifaddrs(list);
	return found;
}

struct peer_addr hostport_primary(uint8_t family)
{
	/* Of the blocks that are kept for documentation: nobody is there, and nothing is sent. */
	struct peer_addr far = {.family = 4, .ip = {192, 0, 2, 1}, .port = 9}, found = {0};
	struct sockaddr_storage to, from;
	socklen_t size = sizeof from;
	if (family == 6)
		far = (struct peer_addr){.family = 6, .ip = {0x20, 0x01, 0x0d, 0xb8}, .port = 9};
	peer_addr_to(&far, &to);
	int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return found;
	/* Not an address that will be another one tomorrow (RFC 8981). */
	int public = PREFER_SRC_PUBLIC;
	if (family == 6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_ADDR_PREFERENCES, &public, sizeof public);
	if (connect(fd, (const struct sockaddr *)&to, sizeof to) == 0 &&
	        getsockname(fd, (struct sockaddr *)&from, &size) == 0)
		found = peer_addr_from((const struct sockaddr *)&from);
	close(fd);
	if (found.family != family || !known_elsewhere(&found))
		found = first_of_any(family);
	found.port = 0;
	return found;
}

/* SPDX-License-Identifier: MIT */
/* "host:port" or "host" as people write it, and the addresses of this machine. */
#ifndef DUNLIN_AGENT_CONFIG_HOSTPORT_H
#define DUNLIN_AGENT_CONFIG_HOSTPORT_H

#include "agent/base/err.h"
#include "gossip/membership/gossip.h"

#include <stdbool.h>
#include <stdint.h>

#define HOST_MAX 254 /* a name of the DNS, NUL included */

/* Where agents listen unless told: no other program's, and none that Linux gives to connections. */
#define HOSTPORT_PORT 13865

struct hostport {
	char host[HOST_MAX]; /* a name, or an address without brackets; may be empty: any */
	uint16_t port;       /* 0: any; HOSTPORT_PORT where none was given */
	bool has_port;       /* one was given */
};

/* "10.0.0.5:80", "[::1]:80", "heron.example", "::1", ":0". */
int hostport_parse(const char *text, struct hostport *out, struct err *e) MUST_CHECK;

/* Its first address; an empty host is [::]. Asks the DNS, and so may take seconds: not for the
 * loop. */
int hostport_resolve(const struct hostport *h, struct peer_addr *out, struct err *e) MUST_CHECK;

/* The first address of a network interface, IPv4 before IPv6; port is 0. */
int hostport_interface(const char *name, struct peer_addr *out, struct err *e) MUST_CHECK;

/* 0.0.0.0 or ::, which can be listened on but not dialled. */
bool hostport_any(const struct peer_addr *a);

/* Of one machine: not the above, nor multicast or broadcast. */
bool hostport_dialable(const struct peer_addr *a);

/* The address that this machine would send from: what others most likely reach it by; where there
 * is no route to afar, the first one of an interface. family 4 or 6; port is 0. Never loopback or
 * link-local; family 0: there is none. */
struct peer_addr hostport_primary(uint8_t family);
struct peer_addr hostport_loopback(uint8_t family); /* port is 0 */

#endif

/* SPDX-License-Identifier: MIT */
/* All that can be wrong with an agent's settings and was not wrong with their text: a key file that
 * is missing or that others can read, a list with a typing error, a host that nobody knows. It is
 * found here, before anything is locked, written or heard by peers.
 *
 * Which addresses peers are told: those in agent.advertise; or the one listened on; or, where that
 * is any, those that this machine would send from, by IPv4 and by IPv6. Port 0 means the one that
 * will be bound. */
#include "agent/daemon/startup.h"

#include "agent/base/textlist.h"
#include "agent/config/hostport.h"
#include "agent/config/paths.h"
#include "agent/daemon/rlimits.h"

#include <stdio.h>
#include <stdlib.h>

/* DUNLIN_TEST_PROTOCOL=2-3 lets a test play an agent of another version. */
static int read_protocol(struct driver_config *n, struct err *e)
{
	const char *text = getenv("DUNLIN_TEST_PROTOCOL");
	unsigned lo, hi;
	char end;
	n->protocol_min = PROTOCOL_MIN;
	n->protocol_max = PROTOCOL_MAX;
	if (!text)
		return 0;
	if (sscanf(text, "%5u-%5u%c", &lo, &hi, &end) != 2 || lo < 1 || hi < lo || hi > 65535)
		return err_set(e, ERR_INVALID,
		        "environment variable DUNLIN_TEST_PROTOCOL: wants two numbers, as in 2-3");
	n->protocol_min = (uint16_t)lo;
	n->protocol_max = (uint16_t)hi;
	return 0;
}

static int read_advertise(const char *list, struct peer_addrs *out, struct err *e)
{
	struct hostport h;
	for (const char *s = NULL; out->n < MEMBER_ADDRS_MAX && (s = textlist_next(list, s));) {
		struct peer_addr *a = &out->at[out->n++];
		int rc = hostport_parse(s, &h, e);
		if (rc == 0)
			rc = hostport_resolve(&h, a, e);
		if (rc == 0 && !hostport_dialable(a))
			rc = err_set(e, ERR_INVALID,
			        "\"%s\" is not the address of one machine: peers could not dial it",
			        s);
		if (rc)
			return err_prefix(e, "agent.advertise");
		if (!h.has_port)
			a->port = 0;
	}
	return 0;
}

static void find_own(struct peer_addrs *out, bool four, bool six)
{
	struct peer_addr a = hostport_primary(4), b = hostport_primary(6);
	if (four && a.family)
		out->at[out->n++] = a;
	if (six && b.family)
		out->at[out->n++] = b;
	if (out->n == 0)
		out->at[out->n++] = hostport_loopback(four ? 4 : 6);
}

static int read_addresses(const struct config *c, struct driver_config *n, struct err *e)
{
	struct hostport h;
	struct peer_addr listen, own;
	int rc = hostport_parse(c->agent.listen, &h, e);
	if (rc == 0)
		rc = hostport_resolve(&h, &listen, e);
	if (rc)
		return err_prefix(e, "agent.listen");
	n->dual_stack = !h.host[0] && !c->agent.interface[0];
	if (c->agent.interface[0]) {
		if (!hostport_any(&listen))
			return err_set(e, ERR_INVALID,
			        "agent.interface: agent.listen names a host already; leave one of "
			        "the two out");
		rc = hostport_interface(c->agent.interface, &own, e);
		if (rc)
			return err_prefix(e, "agent.interface");
		own.port = listen.port;
		listen = own;
	}
	peer_addr_to(&listen, &n->listen);
	if (!c->agent.advertise[0] && hostport_any(&listen))
		find_own(&n->advertise, n->dual_stack || listen.family == 4, listen.family == 6);
	return read_advertise(c->agent.advertise, &n->advertise, e);
}

static int read_files(struct startup *w, const struct config *c, struct err *e)
{
	const char *keys[SECRETS_MAX];
	int n_keys = textlist_items(c->agent.keys, keys, SECRETS_MAX);
	if (n_keys == 0)
		return err_set(e, ERR_INVALID,
		        "agent.keys: an agent needs its flock's secret, --key FILE; `dunlin keygen "
		        "--out FILE` makes one");
	int rc = secrets_load(&w->secrets, keys, n_keys, e);
	if (rc)
		return err_prefix(e, "agent.keys");
	w->allow = c->agent.allow[0] ? c->agent.allow : NULL;
	w->block = c->agent.block[0] ? c->agent.block : NULL;
	rc = lists_load(&w->lists, w->allow, w->block, e);
	return rc ? err_prefix(e, "allow- and block-list") : 0;
}

int startup_open(struct startup *w, const struct config *c, struct err *e)
{
	*w = (struct startup){0};
	lists_init(&w->lists);
	struct driver_config *n = &w->node;
	n->n_seeds = textlist_items(c->agent.seeds, w->seeds, GOSSIP_SEEDS_MAX);
	n->seeds = w->seeds;
	n->dialable = c->agent.dialable;
	n->wan = c->agent.profile == PROFILE_WAN;
	n->members_max = (uint32_t)c->agent.members_max;
	rlimits_set(); /* before the first key is read */
	n->secrets = &w->secrets;
	n->lists = &w->lists;
	int rc = read_files(w, c, e);
	if (rc == 0)
		rc = read_protocol(n, e);
	if (rc == 0)
		rc = read_addresses(c, n, e);
	if (rc == 0)
		rc = paths_socket(c, w->socket, e);
	if (rc)
		startup_close(w);
	return rc;
}

void startup_close(struct startup *w)
{
	lists_close(&w->lists);
	if (w->secrets.secret)
		secrets_close(&w->secrets);
	w->secrets.secret = NULL;
}

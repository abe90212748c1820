/* SPDX-License-Identifier: MIT */
/* Transfers that share links: each has the rate that max-min fairness gives it.
 *
 *     host a ── uplink ──► trunk of its region ──► downlink ── host b
 *
 * A flow goes over a few links at once, at one rate. Rates are such that no flow could have more
 * without taking from one that has no more than it: progressive filling, by the link that is the
 * narrowest for each of its flows. This is what TCP flows of equal round trips come to.
 *
 * It is pure: the caller has the clock, and a queue in which to note when a flow will be through.
 * Whatever begins or ends changes the rates of flows that share a link with it, directly or through
 * others; those are listed in `changed`, and each of them then has another `end_ms`. Flows that
 * share nothing with it are not looked at, so that the cost of a change is that of its
 * neighbourhood. */
#ifndef DUNLIN_AGENT_SIMULATE_LINKS_H
#define DUNLIN_AGENT_SIMULATE_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#define LINKS_PATH 4 /* links that a flow can go over */
#define LINKS_NEVER UINT64_MAX

struct links_flow {
	uint32_t link[LINKS_PATH];
	uint32_t next[LINKS_PATH],
	        before[LINKS_PATH]; /* of the same link; flow × LINKS_PATH + place */
	uint8_t n;                  /* of link */
	bool there;
	bool seen;   /* while rates are worked out */
	double left; /* bytes, at since_ms */
	double rate; /* bytes/ms */
	uint64_t since_ms;
	uint64_t end_ms;  /* when it will be through; LINKS_NEVER: a link lets nothing through */
	uint32_t version; /* raised when end_ms changes, and when the flow ends */
};

struct links_link {
	double capacity; /* bytes/ms; 0: nothing comes through */
	uint32_t first;  /* of its flows, see `next`; 0: none */
	uint32_t flows;
	bool seen;
	double room; /* while rates are worked out */
	uint32_t open;
};

struct links {
	struct links_link *link; /* owned */
	uint32_t n_links;
	struct links_flow *flow; /* owned, by number from 1 */
	uint32_t n_flows, room_flows;
	uint32_t *spare; /* owned: flows that are free */
	uint32_t n_spare;
	uint32_t *changed; /* owned: flows whose end_ms is another one since the last call */
	uint32_t n_changed;
	uint32_t *near; /* owned: links in the neighbourhood */
	uint32_t n_near;
};

/* All capacities are 0. Aborts without memory. */
void sim_links_init(struct links *l, uint32_t n_links);
void sim_links_close(struct links *l);

/* Each call settles what has come through until now_ms, which never falls, and renews `changed`. */
void sim_links_capacity(struct links *l, uint32_t link, double bytes_per_s, uint64_t now_ms);
/* A flow of that many bytes over n links, all different; returns its number. Without a link it is
 * through at once. */
uint32_t sim_links_start(
        struct links *l, uint64_t bytes, const uint32_t *link, uint8_t n, uint64_t now_ms);
/* It is through, or is given up; returns the bytes that have not come through. */
double sim_links_stop(struct links *l, uint32_t flow, uint64_t now_ms);
/* Whether an entry that was noted for that version of a flow still holds. */
bool sim_links_current(const struct links *l, uint32_t flow, uint32_t version);
/* Bytes/ms that one more flow over that link would have, were all its flows to share it alike. */
double sim_links_share(const struct links *l, uint32_t link);

#endif

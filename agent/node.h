/* SPDX-License-Identifier: MIT */
/* An agent: the membership core, the network and the loop brought together. */
#ifndef DUNLIN_AGENT_NODE_H
#define DUNLIN_AGENT_NODE_H

#include "agent/base/err.h"
#include "gossip/gossip.h"
#include "net/transport.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct node;

struct node_config {
	uv_loop_t *loop;                 /* borrowed */
	const struct identity *identity; /* borrowed */
	const struct secrets *secrets;   /* borrowed */
	const struct lists *lists;    /* borrowed; may be NULL */
	uint64_t generation;             /* already raised and persisted */
	struct sockaddr_storage listen;
	bool dual_stack;             /* see transport.h */
	struct peer_addrs advertise; /* none: the bound address; port 0: the bound one */
	bool dialable;
	bool wan; /* the profile */
	uint16_t protocol_min, protocol_max;
	const char *const *seeds; /* borrowed: as hostport_parse takes them */
	int n_seeds;
	const struct peer_addr *remembered; /* borrowed for node_new */
	int n_remembered;
	uint32_t members_max;
	struct gossip_departed departed;
	struct member_status status; /* of the beginning; model 0: this agent trains nothing */
	/* Called on the loop. */
	void *arg;
	void (*generation_cb)(void *arg, uint64_t generation); /* persist it */
	void (*left_cb)(void *arg); /* after node_leave: everything is closed, node is gone */
	/* Of those who exchange parameters; any may be NULL, and none comes after node_leave. See
	 * transport.h for the first two. */
	void (*exchange_cb)(
	        void *arg, const struct peer_id *from, const struct exchange_message *m);
	void (*bulk_cb)(void *arg, const struct peer_id *id, uint64_t exchange, int fd,
	        bool we_dialled, const struct frame_bulk *keys, const struct aead *aead);
	void (*stream_cb)(void *arg, const struct peer_id *id, bool up);
	void (*gone_cb)(void *arg, const struct peer_id *id); /* dead, or it has left */
};

/* The first of an id's digits, as logs have them; returns out. */
const char *node_short_id(const struct peer_id *id, char out[13]);

/* Opens the sockets; ERR_IO says which address. */
int node_new(struct node **out, const struct node_config *c, struct err *e) MUST_CHECK;

/* Begins to look for peers. */
void node_start(struct node *n);

/* Says goodbye, closes, frees; ends in left_cb. A second call changes nothing. */
void node_leave(struct node *n);

/* Whatever the lists forbid is cut. */
void node_recheck(struct node *n);

/* What this agent says of its training, and what it heard from a peer about the peer's. */
void node_status(struct node *n, const struct member_status *s);
void node_sketch(struct node *n, uint64_t step, const uint8_t *bytes, size_t len);
void node_samples(struct node *n, const struct peer_id *id, uint64_t samples);

/* As transport_post and transport_bulk, to where the peer was last known. */
bool node_post(struct node *n, const struct peer_id *to, const struct exchange_message *m);
int node_bulk(
        struct node *n, const struct peer_id *id, uint64_t exchange, struct err *e) MUST_CHECK;

const struct gossip *node_gossip(const struct node *n);
struct peer_addr node_address(const struct node *n); /* bound, with the real port; [::]: both */
struct transport_counters node_counters(const struct node *n);

/* How late the loop's timers come, in microseconds: the loop's own illness. */
struct node_lag {
	uint64_t max_us, p99_us, last_us;
	uint64_t slow_callbacks; /* over 5 ms */
};
struct node_lag node_lag(const struct node *n);
uint64_t node_uptime_ms(const struct node *n);

#endif

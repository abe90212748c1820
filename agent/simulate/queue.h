/* SPDX-License-Identifier: MIT */
/* What will happen, by time: a binary heap of small entries. Entries of one time come out in the
 * order they were put in, so that a run depends on nothing but its seed. */
#ifndef DUNLIN_AGENT_SIMULATE_QUEUE_H
#define DUNLIN_AGENT_SIMULATE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_entry {
	uint64_t at_ms;
	uint64_t order; /* filled in by queue_push */
	uint32_t kind;
	uint32_t a, b; /* of the kind's own meaning */
};

struct sim_queue {
	struct sim_entry *entry; /* owned */
	size_t n, room;
	uint64_t pushed;
};

/* Grows as needed; a test without memory aborts. */
void queue_push(struct sim_queue *q, struct sim_entry e);
bool queue_pop(struct sim_queue *q, struct sim_entry *out);
void queue_close(struct sim_queue *q);

#endif

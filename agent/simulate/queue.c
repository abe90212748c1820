/* SPDX-License-Identifier: MIT */
/* A binary heap over (time, order of arrival). A sift moves entries of 32 bytes; messages stay in
 * the simulator's pool and are named by number. */
#include "agent/simulate/queue.h"

#include <stdlib.h>

static bool before(const struct sim_entry *x, const struct sim_entry *y)
{
	return x->at_ms != y->at_ms ? x->at_ms < y->at_ms : x->order < y->order;
}

void queue_push(struct sim_queue *q, struct sim_entry e)
{
	if (q->n == q->room) {
		q->room = q->room ? 2 * q->room : 1024;
		q->entry = reallocarray(q->entry, q->room, sizeof *q->entry);
		if (!q->entry)
			abort();
	}
	e.order = q->pushed++;
	size_t i = q->n++;
	while (i > 0 && before(&e, &q->entry[(i - 1) / 2])) {
		q->entry[i] = q->entry[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	q->entry[i] = e;
}

bool queue_pop(struct sim_queue *q, struct sim_entry *out)
{
	if (q->n == 0)
		return false;
	*out = q->entry[0];
	struct sim_entry last = q->entry[--q->n];
	size_t i = 0;
	for (;;) {
		size_t child = 2 * i + 1;
		if (child >= q->n)
			break;
		if (child + 1 < q->n && before(&q->entry[child + 1], &q->entry[child]))
			child++;
		if (!before(&q->entry[child], &last))
			break;
		q->entry[i] = q->entry[child];
		i = child;
	}
	q->entry[i] = last;
	return true;
}

void queue_close(struct sim_queue *q)
{
	free(q->entry);
	*q = (struct sim_queue){0};
}

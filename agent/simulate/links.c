/* SPDX-License-Identifier: MIT */
/* Progressive filling in the neighbourhood of a change.
 *
 * Each link has a list of its flows, through the flows' places. A change marks the links that can
 * be reached from its own, flow by flow; then the narrowest link (its room by the flows that have
 * no rate yet) gives these flows their rate, takes it from their other links, and so on. Ties go to
 * the link that was reached first, so that the result depends on the order of calls alone. */
#include "agent/simulate/links.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *grown(void *p, size_t n, size_t size)
{
	p = reallocarray(p, n, size);
	if (!p)
		abort();
	return p;
}

void sim_links_init(struct links *l, uint32_t n_links)
{
	memset(l, 0, sizeof *l);
	l->n_links = n_links;
	l->link = grown(NULL, n_links + 1, sizeof *l->link);
	memset(l->link, 0, (n_links + 1) * sizeof *l->link);
	l->near = grown(NULL, n_links + 1, sizeof *l->near);
}

void sim_links_close(struct links *l)
{
	free(l->link);
	free(l->flow);
	free(l->spare);
	free(l->changed);
	free(l->near);
	memset(l, 0, sizeof *l);
}

/* ---- lists of flows */

static struct links_flow *flow_at(const struct links *l, uint32_t place)
{
	return &l->flow[place / LINKS_PATH];
}

static void enter(struct links *l, uint32_t flow)
{
	struct links_flow *f = &l->flow[flow];
	for (uint32_t k = 0; k < f->n; k++) {
		struct links_link *link = &l->link[f->link[k]];
		uint32_t place = flow * LINKS_PATH + k;
		f->before[k] = 0;
		f->next[k] = link->first;
		if (link->first)
			flow_at(l, link->first)->before[link->first % LINKS_PATH] = place;
		link->first = place;
		link->flows++;
	}
}

static void take_out(struct links *l, uint32_t flow)
{
	struct links_flow *f = &l->flow[flow];
	for (uint32_t k = 0; k < f->n; k++) {
		struct links_link *link = &l->link[f->link[k]];
		uint32_t next = f->next[k], before = f->before[k];
		if (next)
			flow_at(l, next)->before[next % LINKS_PATH] = before;
		if (before)
			flow_at(l, before)->next[before % LINKS_PATH] = next;
		else
			link->first = next;
		link->flows--;
	}
}

/* ---- rates */

static void near_link(struct links *l, uint32_t i)
{
	struct links_link *link = &l->link[i];
	if (link->seen)
		return;
	link->seen = true;
	link->room = link->capacity;
	link->open = link->flows;
	l->near[l->n_near++] = i;
}

/* Flows that share a link with those in `near`, and their links, and so on. */
static void reach(struct links *l)
{
	for (uint32_t i = 0; i < l->n_near; i++)
		for (uint32_t place = l->link[l->near[i]].first; place;) {
			struct links_flow *f = flow_at(l, place);
			if (!f->seen) {
				f->seen = true;
				l->changed[l->n_changed++] = place / LINKS_PATH;
				for (int k = 0; k < f->n; k++)
					near_link(l, f->link[k]);
			}
			place = f->next[place % LINKS_PATH];
		}
}

static void settle(struct links_flow *f, uint64_t now_ms)
{
	f->left -= f->rate * (double)(now_ms - f->since_ms);
	f->left = f->left > 0 ? f->left : 0;
	f->since_ms = now_ms;
}

static void set_end(struct links_flow *f, uint64_t now_ms)
{
	uint64_t end = LINKS_NEVER;
	/* Less than a thousandth of a byte is what rounding has left. */
	double ms = f->left < 1e-3 ? 0 : f->left / f->rate;
	if (ms < 1e15)
		end = now_ms + (uint64_t)ceil(ms - 1e-9);
	if (end != f->end_ms)
		f->version++;
	f->end_ms = end;
}

static uint32_t narrowest(const struct links *l)
{
	uint32_t best = l->n_links;
	double least = INFINITY;
	for (uint32_t i = 0; i < l->n_near; i++) {
		const struct links_link *link = &l->link[l->near[i]];
		if (link->open > 0 && link->room / link->open < least) {
			least = link->room / link->open;
			best = l->near[i];
		}
	}
	return best;
}

/* The rates of all in `changed`. */
static void fill(struct links *l)
{
	for (uint32_t i; (i = narrowest(l)) < l->n_links;) {
		double rate = l->link[i].room / l->link[i].open;
		for (uint32_t place = l->link[i].first; place;) {
			struct links_flow *f = flow_at(l, place);
			for (int k = 0; f->seen && k < f->n; k++) {
				struct links_link *link = &l->link[f->link[k]];
				link->room = link->room > rate ? link->room - rate : 0;
				link->open--;
			}
			if (f->seen)
				f->rate = rate;
			f->seen = false;
			place = f->next[place % LINKS_PATH];
		}
	}
}

/* Works out what has changed around the links in `near`. */
static void renew(struct links *l, uint64_t now_ms)
{
	uint32_t kept = 0;
	reach(l);
	for (uint32_t i = 0; i < l->n_changed; i++)
		settle(&l->flow[l->changed[i]], now_ms);
	fill(l);
	for (uint32_t i = 0; i < l->n_changed; i++) {
		struct links_flow *f = &l->flow[l->changed[i]];
		uint32_t version = f->version;
		set_end(f, now_ms);
		if (f->version != version)
			l->changed[kept++] = l->changed[i];
	}
	l->n_changed = kept;
	for (uint32_t i = 0; i < l->n_near; i++)
		l->link[l->near[i]].seen = false;
	l->n_near = 0;
}

/* ---- from outside */

void sim_links_capacity(struct links *l, uint32_t link, double bytes_per_s, uint64_t now_ms)
{
	l->n_changed = 0;
	l->link[link].capacity = bytes_per_s / 1000;
	near_link(l, link);
	renew(l, now_ms);
}

static uint32_t new_flow(struct links *l)
{
	if (l->n_spare > 0)
		return l->spare[--l->n_spare];
	if (l->n_flows + 1 >= l->room_flows) {
		uint32_t room = l->room_flows ? 2 * l->room_flows : 64;
		l->flow = grown(l->flow, room, sizeof *l->flow);
		memset(l->flow + l->room_flows, 0, (room - l->room_flows) * sizeof *l->flow);
		l->spare = grown(l->spare, room, sizeof *l->spare);
		l->changed = grown(l->changed, room, sizeof *l->changed);
		l->room_flows = room;
	}
	return ++l->n_flows;
}

uint32_t sim_links_start(
        struct links *l, uint64_t bytes, const uint32_t *link, uint8_t n, uint64_t now_ms)
{
	uint32_t flow = new_flow(l);
	struct links_flow *f = &l->flow[flow];
	*f = (struct links_flow){.n = n,
	        .there = true,
	        .left = (double)bytes,
	        .since_ms = now_ms,
	        .end_ms = LINKS_NEVER,
	        .version = f->version};
	if (n > 0)
		memcpy(f->link, link, n * sizeof *link);
	enter(l, flow);
	l->n_changed = 0;
	for (int k = 0; k < n; k++)
		near_link(l, link[k]);
	renew(l, now_ms);
	if (n == 0) {
		f->end_ms = now_ms;
		f->version++;
		l->changed[l->n_changed++] = flow;
	}
	return flow;
}

double sim_links_stop(struct links *l, uint32_t flow, uint64_t now_ms)
{
	struct links_flow *f = &l->flow[flow];
	settle(f, now_ms);
	take_out(l, flow);
	f->there = false;
	f->version++;
	l->n_changed = 0;
	for (int k = 0; k < f->n; k++)
		near_link(l, f->link[k]);
	renew(l, now_ms);
	l->spare[l->n_spare++] = flow;
	return f->n > 0 ? f->left : 0;
}

bool sim_links_current(const struct links *l, uint32_t flow, uint32_t version)
{
	return flow <= l->n_flows && l->flow[flow].there && l->flow[flow].version == version;
}

double sim_links_share(const struct links *l, uint32_t link)
{
	return l->link[link].capacity / (l->link[link].flows + 1);
}

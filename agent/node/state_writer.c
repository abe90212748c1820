/* SPDX-License-Identifier: MIT */
/* Wishes are noted on the loop; a job takes all that are noted, works on copies of its own on
 * another thread, and is looked at on the loop again. A wish that comes meanwhile waits for the
 * next job, so a burst of them costs two.
 *
 * Whoever met nobody in this run must not forget whom it knew before: known addresses are carried
 * on until newer ones need their place. Only addresses that have answered may take it: anybody can
 * sign records with thousands of others.
 *
 * What can fail is the disk, or a list with an error in it. The agent goes on, and says so. */
#include "agent/node/state_writer.h"

#include "agent/base/log.h"

#include <stdlib.h>
#include <string.h>

static void remember(struct state_writer_peers *p, const struct peer_addr *a)
{
	if (a->family == 0 || a->port == 0 || p->n == STATE_DIR_PEERS)
		return;
	for (int i = 0; i < p->n; i++)
		if (peer_addr_equal(&p->addr[i], a))
			return;
	p->addr[p->n++] = *a;
}

void state_writer_choose(struct state_writer_peers *out, const struct gossip *g,
        const struct state_writer_peers *before)
{
	uint32_t n = gossip_count(g);
	out->n = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct member_view m = gossip_member(g, i);
		if (m.proven && m.record.dialable && m.state != MEMBER_LEFT && m.addrs.n > 0)
			remember(out, &m.addrs.at[0]);
	}
	for (int i = 0; i < before->n; i++)
		remember(out, &before->addr[i]);
	/* The address in use of everyone, then everyone's second one, and so on. */
	for (int pass = 0; pass < 2 * MEMBER_ADDRS_MAX; pass++)
		for (uint32_t i = 0; i < n && out->n < STATE_DIR_PEERS; i++) {
			struct member_view m = gossip_member(g, i);
			bool alive = m.state == MEMBER_ALIVE;
			if (m.record.dialable && m.state != MEMBER_LEFT && pass / 2 < m.addrs.n &&
			        alive == (pass % 2 == 0))
				remember(out, &m.addrs.at[pass / 2]);
		}
}

/* ---- on another thread */

static void on_work(uv_work_t *w)
{
	struct state_writer *u = w->data;
	struct state_writer_job *j = &u->job;
	struct err e;
	if (j->peers && state_dir_save_peers(u->state, j->save.addr, j->save.n, &e))
		j->peers_failed = e;
	if (j->generation &&
	        identity_set_generation(&j->identity, u->state->path, j->generation, &e))
		j->generation_failed = e;
	if (j->keep_progress && state_dir_save_progress(u->state, &j->progress, &e))
		j->progress_failed = e;
	if (j->keep_revoked && state_dir_save_revoked(u->state, &j->revoked, &e))
		j->revoked_failed = e;
	if (j->lists && u->revoked && revocations_load(u->revoked, &j->revoked_read, &e))
		j->revoked_unread = e;
	if (j->lists && lists_load(&j->fresh, u->allow, u->block, &e))
		j->lists_failed = e;
}

/* ---- on the loop */

static void begin(struct state_writer *u);

static void take_lists(struct state_writer *u)
{
	struct state_writer_job *j = &u->job;
	if (j->lists_failed.code) {
		log_error("allow- and block-list: %s; those read before stay in force",
		        j->lists_failed.msg);
		lists_close(&j->fresh);
		return;
	}
	lists_close(u->lists);
	*u->lists = j->fresh;
	log_info("allow- and block-list read again: %zu ids allowed, %zu blocked",
	        u->lists->allow.n, u->lists->block.n);
	u->lists_cb(u->arg);
}

static void on_done(uv_work_t *w, int status)
{
	struct state_writer *u = w->data;
	struct state_writer_job *j = &u->job;
	(void)status; /* nobody cancels it */
	u->busy = false;
	if (j->peers_failed.code)
		log_warn("known peers are not kept: %s", j->peers_failed.msg);
	else if (j->peers)
		u->known = j->save;
	if (j->progress_failed.code)
		log_warn("the count of samples is not kept: %s", j->progress_failed.msg);
	if (j->generation_failed.code)
		log_error("the generation is not kept: %s", j->generation_failed.msg);
	else if (j->generation)
		u->identity->generation = j->generation;
	if (j->revoked_failed.code)
		log_warn("the list of revoked agents is not kept: %s", j->revoked_failed.msg);
	if (j->revoked_unread.code)
		log_error("agent.revoked: %s; the list read before stays in force",
		        j->revoked_unread.msg);
	else if (j->lists && u->revoked)
		u->revoked_cb(u->arg, &j->revoked_read);
	if (j->lists)
		take_lists(u);
	begin(u);
}

static void begin(struct state_writer *u)
{
	struct state_writer_job *j = &u->job;
	if (u->busy ||
	        !(u->want_peers || u->want_lists || u->want_generation || u->want_progress ||
	                u->want_revoked))
		return;
	memset(j, 0, sizeof *j);
	j->peers = u->want_peers;
	j->lists = u->want_lists;
	j->generation = u->want_generation;
	j->keep_progress = u->want_progress;
	j->progress = u->progress;
	j->keep_revoked = u->want_revoked;
	j->revoked = u->revoked_list;
	j->save = u->next;
	j->identity = *u->identity;
	lists_init(&j->fresh);
	u->want_peers = u->want_lists = u->want_progress = u->want_revoked = false;
	u->want_generation = 0;
	u->work.data = u;
	u->busy = uv_queue_work(u->loop, &u->work, on_work, on_done) == 0;
	if (!u->busy)
		log_error("no thread for the agent's files");
}

void state_writer_peers(struct state_writer *u, const struct gossip *g)
{
	state_writer_choose(&u->next, g, &u->known);
	bool same = u->next.n == u->known.n;
	for (int i = 0; i < u->next.n && same; i++)
		same = peer_addr_equal(&u->next.addr[i], &u->known.addr[i]);
	if (!u->busy && same)
		return; /* the disk has them already */
	u->want_peers = true;
	begin(u);
}

void state_writer_progress(struct state_writer *u, const struct state_dir_progress *p)
{
	u->progress = *p;
	u->want_progress = true;
	begin(u);
}

void state_writer_generation(struct state_writer *u, uint64_t generation)
{
	u->want_generation = generation;
	begin(u);
}

void state_writer_revoked(struct state_writer *u, const struct revocations_text *list)
{
	u->revoked_list = *list;
	u->want_revoked = true;
	begin(u);
}

void state_writer_lists(struct state_writer *u)
{
	u->want_lists = true;
	begin(u);
}

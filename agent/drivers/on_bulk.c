/* SPDX-License-Identifier: MIT */
/* Bulk connections and the transfers over them. A connection that came waits until the core uses or
 * closes it; of too many the core hears nothing, and they are closed at once. After an exchange's
 * transfer the transport gets it back, for the next one with that peer. */
#include "agent/base/log.h"
#include "agent/drivers/driver_internal.h"

#include <sodium.h>
#include <string.h>
#include <unistd.h>

/* Of the 3 s that both have until a connection stands; the rest is for dialling. */
#define KEPT_UNHEARD_MS 1000

static void used(struct driver_connection *w)
{
	sodium_memzero(w, sizeof *w);
	w->fd = -1;
}

static void drop(struct driver_connection *w)
{
	if (w->fd >= 0)
		close(w->fd);
	used(w);
}

static struct driver_connection *find(
        struct driver *d, const struct peer_id *peer, uint64_t exchange)
{
	for (int i = 0; i < DRIVER_CONNECTIONS; i++) {
		struct driver_connection *w = &d->connection[i];
		if (w->fd >= 0 && w->exchange == exchange && peer_id_equal(&w->peer, peer))
			return w;
	}
	return NULL;
}

static void tell(struct driver *d, const struct peer_id *peer, uint64_t exchange, uint8_t bulk)
{
	driver__event(d, (struct flock_event){.kind = FLOCK_EVENT_BULK,
	                         .peer = *peer,
	                         .exchange = exchange,
	                         .bulk = bulk});
}

/* A second one for the same exchange: the peer has lost the first, which was a kept one, before we
 * used it. The core knows that one has come. */
void driver__bulk_came(void *arg, const struct peer_id *id, uint64_t exchange, int fd,
        bool we_dialled, bool kept, const struct frame_bulk *keys, const struct aead *aead)
{
	struct driver *d = arg;
	struct driver_connection *free = NULL, *lost = find(d, id, exchange);
	for (int i = 0; i < DRIVER_CONNECTIONS; i++)
		if (d->connection[i].fd < 0)
			free = &d->connection[i];
	if (fd >= 0 && lost && lost->kept && !kept) {
		drop(lost);
		free = lost;
	} else if (fd >= 0 && (!d->c.learner || d->closing || !free || lost)) {
		close(fd);
		return;
	} else {
		lost = NULL;
	}
	if (fd >= 0)
		*free = (struct driver_connection){.fd = fd,
		        .we_dialled = we_dialled,
		        .kept = kept,
		        .keys = *keys,
		        .aead = aead,
		        .peer = *id,
		        .exchange = exchange};
	if (d->c.learner && !lost)
		tell(d, id, exchange, fd >= 0 ? BULK_CAME : BULK_FAILED);
}

/* ---- transfers */

/* Of an exchange whose transfer is whole. */
static void keep_found(struct driver *d, const struct bulk_result *r)
{
	memcpy(d->distance2, r->group_distance2, d->c.core.n_groups * sizeof *d->distance2);
	d->rounding2 = r->rounding2;
	d->wrapped = r->wrapped;
	if (d->format >= CONVERT_WORDS)
		memcpy(d->found, r->found, sizeof d->found);
}

static void ended(struct driver_transfer *t, const struct bulk_result *r)
{
	struct driver *d = t->d;
	struct flock_event e = {
	        .kind = FLOCK_EVENT_TRANSFERRED, .exchange = t->exchange, .code = r->err.code};
	e.transferred.use = t->use;
	e.transferred.received = r->words;
	e.transferred.again = t->kept && r->err.code == ERR_IO && r->words == 0;
	e.transferred.bytes_sent = r->bytes_sent;
	e.transferred.bytes_received = r->bytes_received;
	t->bulk = NULL;
	if (r->err.code != 0)
		log_limited(LOG_DEBUG, "transfer: %s", r->err.msg);
	else if (t->use == USE_EXCHANGE)
		keep_found(d, r);
	driver__event(d, e);
}

static void on_done(void *arg, const struct bulk_result *r)
{
	struct driver_transfer *t = arg;
	if (r->fd >= 0 && t->d->transport)
		transport_bulk_keep(t->d->transport, &t->peer, r->fd);
	else if (r->fd >= 0)
		close(r->fd);
	ended(t, r);
}

static int fill_exchange(struct driver *d, const struct flock_action *a, struct bulk_config *b)
{
	d->format = (enum convert_format)a->transfer.format;
	b->format = d->format;
	b->send = d->snapshot;
	b->send_count = a->transfer.sends ? d->n_total : 0;
	b->staging = d->staging;
	b->receive_count = a->transfer.receives ? d->n_total : 0;
	b->difference = true;
	if (d->format >= CONVERT_WORDS) {
		b->packed = (uint8_t *)d->staging;
		b->scales = d->scales;
	}
	b->unmeasured = d->c.learner->info.measures;
	b->ours = d->snapshot;
	b->n_groups = a->transfer.receives ? d->c.core.n_groups : 0;
	b->group_end = d->c.learner->info.groups.end;
	return d->format >= CONVERT_WORDS && d->lattice.refused ? ERR_LIMIT : 0;
}

static int fill_state(struct driver *d, const struct flock_action *a, struct bulk_config *b)
{
	size_t total = d->vectors * d->n_total, left = total - a->transfer.offset;
	b->format = CONVERT_FP32;
	if (a->use != USE_FETCH) {
		b->send = d->donated + a->transfer.offset;
		b->send_count = left;
		return 0;
	}
	if (!d->fetched)
		d->fetched = convert_vector(total);
	if (!d->fetched)
		return ERR_NOMEM;
	b->staging = d->fetched + a->transfer.offset;
	b->receive_count = left;
	return 0;
}

static void transfer(struct driver *d, const struct flock_action *a)
{
	struct driver_transfer *t = &d->transfer[a->use];
	struct driver_connection *w = find(d, &a->peer, a->exchange);
	struct bulk_result failed = {0};
	*t = (struct driver_transfer){
	        .d = d, .peer = a->peer, .exchange = a->exchange, .use = a->use};
	if (!w) {
		failed.err.code = ERR_IO;
		ended(t, &failed);
		return;
	}
	struct bulk_config b = {.loop = d->c.loop,
	        .fd = w->fd,
	        .keys = &w->keys,
	        .we_dialled = w->we_dialled,
	        .keep = a->use == USE_EXCHANGE,
	        .unheard_ms = w->kept ? KEPT_UNHEARD_MS : 0,
	        .aead = w->aead,
	        .deadline_ms = a->transfer.deadline_ms,
	        .arg = t,
	        .done_cb = on_done};
	int rc = 0;
	t->kept = w->kept;
	if (a->use == USE_EXCHANGE)
		rc = fill_exchange(d, a, &b);
	else
		rc = fill_state(d, a, &b);
	if (rc == 0) {
		rc = bulk_start(&t->bulk, &b, &failed.err);
		used(w); /* its fd is the transfer's now, or closed */
	} else {
		failed.err.code = rc;
		drop(w);
	}
	if (rc != 0) {
		t->bulk = NULL;
		log_limited(LOG_WARN, "transfer: %s",
		        rc == ERR_NOMEM   ? err_text(rc)
		        : rc == ERR_LIMIT ? "a parameter of ours is not finite"
		                          : failed.err.msg);
		ended(t, &failed);
	}
}

/* ---- actions */

static void open_connection(struct driver *d, const struct flock_action *a)
{
	struct err e = {0};
	int rc = transport_bulk(
	        d->transport, &a->peer, a->exchange, a->use != USE_EXCHANGE || a->fresh, &e);
	if (rc != 0)
		tell(d, &a->peer, a->exchange,
		        rc == ERR_UNSUPPORTED ? BULK_CANNOT_DIAL : BULK_FAILED);
}

void driver__bulk_action(struct driver *d, const struct flock_action *a)
{
	struct driver_connection *w;
	switch (a->kind) {
	case FLOCK_DO_OPEN:
		open_connection(d, a);
		break;
	case FLOCK_DO_CLOSE:
		if ((w = find(d, &a->peer, a->exchange)))
			drop(w);
		break;
	case FLOCK_DO_TRANSFER:
		transfer(d, a);
		break;
	default:
		if (d->transfer[a->use].bulk)
			bulk_cancel(d->transfer[a->use].bulk);
		break;
	}
}

void driver__bulk_close(struct driver *d)
{
	for (int i = 0; i < DRIVER_CONNECTIONS; i++)
		drop(&d->connection[i]);
}

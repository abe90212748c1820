/* SPDX-License-Identifier: MIT */
/* One event after the other goes through the core, and its actions are carried out.
 *
 *     driver__event ──► flock_step ──► sends, actions, says ──► transport, bulk, learner, log
 *
 * An action may find at once that something cannot be done: that is an event too, and waits in a
 * short queue until the step that caused it is carried out. */
#include "agent/base/log.h"
#include "agent/drivers/driver_internal.h"

#include <assert.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LAG_EVERY_MS 100
#define SLOW_US 5000
#define TURNS_MAX 64 /* that the core may ask for at once, before others have theirs */

static uint64_t now_us(void)
{
	return uv_hrtime() / 1000;
}

/* ---- stepping */

static void on_timer(uv_timer_t *t)
{
	struct driver *d = t->data;
	driver__event(d, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
}

static void close_all(struct driver *d);

static void act(struct driver *d, const struct flock_action *a)
{
	switch (a->kind) {
	case FLOCK_DO_OPEN:
	case FLOCK_DO_CLOSE:
	case FLOCK_DO_TRANSFER:
	case FLOCK_DO_CANCEL:
		driver__bulk_action(d, a);
		break;
	case FLOCK_DO_LEAVE:
		if (d->c.leave_cb)
			d->c.leave_cb(d->c.arg, a->code);
		break;
	case FLOCK_DO_LEFT:
		close_all(d);
		break;
	default:
		driver__learner_action(d, a);
		break;
	}
}

/* A partner takes a COMMIT without its END for malice: behind what could not be sent to it nothing
 * is. */
static void post(struct driver *d, const struct flock_actions *a)
{
	bool lost[FLOCK_SENDS_MAX];
	for (int i = 0; i < a->n_sends; i++) {
		const struct peer_id *to = &a->send[i].to;
		lost[i] = false;
		for (int k = 0; k < i; k++)
			lost[i] = lost[i] || (lost[k] && peer_id_equal(&a->send[k].to, to));
		lost[i] = lost[i] || !driver__post(d, to, &a->send[i].message);
		if (lost[i])
			driver__event(d, (struct flock_event){.kind = FLOCK_EVENT_UNSENT,
			                         .peer = *to,
			                         .exchange = a->send[i].message.exchange});
	}
}

/* Also counts the time that a machine is suspended, which the loop's clock does not. */
static uint64_t awake_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void step(struct driver *d, struct flock_event *e)
{
	struct flock_actions *a = d->actions;
	e->now_ms = uv_now(d->c.loop);
	e->awake_ms = awake_ms();
	flock_step(d->core, e, a);
	for (int i = 0; i < a->n_says; i++)
		driver__say(d, &a->say[i]);
	driver__membership_actions(d, &a->membership);
	post(d, a);
	for (int i = 0; i < a->n_actions; i++)
		act(d, &a->action[i]);
}

static void sleep_until(struct driver *d, uint64_t wake_ms)
{
	uint64_t now = uv_now(d->c.loop);
	if (d->closing || wake_ms == UINT64_MAX)
		uv_timer_stop(&d->timer);
	else
		uv_timer_start(&d->timer, on_timer, wake_ms > now ? wake_ms - now : 0, 0);
}

void driver__event(struct driver *d, struct flock_event e)
{
	struct flock_event timer = {.kind = FLOCK_EVENT_TIMER};
	uint64_t from = now_us();
	if (d->closing)
		return;
	if (d->stepping) { /* what borrows memory never comes from inside an action */
		assert(d->n_queued < DRIVER_QUEUED);
		d->queued[d->n_queued++] = e;
		return;
	}
	d->stepping = true;
	step(d, &e);
	for (int i = 0; i < d->n_queued && !d->closing; i++)
		step(d, &d->queued[i]);
	d->n_queued = 0;
	for (int i = 0; i < TURNS_MAX && !d->closing; i++) {
		if (d->actions->wake_ms > uv_now(d->c.loop))
			break;
		step(d, &timer);
		for (int k = 0; k < d->n_queued && !d->closing; k++)
			step(d, &d->queued[k]);
		d->n_queued = 0;
	}
	d->stepping = false;
	sleep_until(d, d->actions->wake_ms);
	if (now_us() - from > SLOW_US)
		d->slow++;
}

/* ---- what a user asks for */

static void wish(struct driver *d, enum flock_wish w)
{
	driver__event(d, (struct flock_event){.kind = FLOCK_EVENT_WISH, .wish = (uint8_t)w});
}

int driver_wish(struct driver *d, enum flock_wish w, struct err *e)
{
	struct flock_view v;
	flock_view(d->core, &v);
	bool trains = v.phase == FLOCK_TRAINING || v.phase == FLOCK_PAUSED;
	const char *phase = flock_phase_text(v.phase);
	if (w == WISH_PAUSE && !trains)
		return err_set(e, ERR_INVALID, "the agent is not training now: it is %s", phase);
	if (w == WISH_RESUME && !trains)
		return err_set(e, ERR_INVALID, "the agent is not paused: it is %s", phase);
	if (w == WISH_SAVE && v.phase >= FLOCK_LEAVING)
		return err_set(e, ERR_INVALID, "too late: the agent is %s", phase);
	if (w == WISH_SAVE && v.step == 0 && !v.joined && !d->c.core.resumed)
		return err_set(e, ERR_INVALID, "nothing to save yet: no step has been trained");
	d->save_refused = false;
	wish(d, w);
	if (w == WISH_SAVE && d->save_refused)
		return err_set(e, ERR_BUSY,
		        "the learner has too much to do, no checkpoint was begun: try again");
	return 0;
}

/* ---- the loop's lateness */

static void on_lag_timer(uv_timer_t *t)
{
	struct driver *d = t->data;
	uint64_t now = now_us(), late = now > d->lag_due_us ? now - d->lag_due_us : 0;
	log_left_out();
	d->lag_last_us = late;
	d->lag_max_us = late > d->lag_max_us ? late : d->lag_max_us;
	d->lag_us[d->n_lag++ % DRIVER_LAG_KEPT] = late > UINT32_MAX ? UINT32_MAX : (uint32_t)late;
	d->lag_due_us = now + LAG_EVERY_MS * 1000;
	uv_timer_start(t, on_lag_timer, LAG_EVERY_MS, 0);
}

static int compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return (x > y) - (x < y);
}

struct driver_lag driver_lag(const struct driver *d)
{
	uint32_t sorted[DRIVER_LAG_KEPT];
	uint32_t k = d->n_lag < DRIVER_LAG_KEPT ? d->n_lag : DRIVER_LAG_KEPT;
	struct driver_lag lag = {
	        .max_us = d->lag_max_us, .last_us = d->lag_last_us, .slow_callbacks = d->slow};
	if (k > 0) {
		memcpy(sorted, d->lag_us, k * sizeof *sorted);
		qsort(sorted, k, sizeof *sorted, compare_u32);
		lag.p99_us = sorted[k - 1 - k / 100];
	}
	return lag;
}

/* ---- the end */

/* Everything that points at us is gone: handles, and names that are still being resolved. */
void driver__maybe_closed(struct driver *d)
{
	if (!d->closing || d->handles > 0 || d->resolving > 0)
		return;
	if (d->c.left_cb)
		d->c.left_cb(d->c.arg);
}

static void on_handle_closed(uv_handle_t *h)
{
	struct driver *d = h->data;
	d->handles--;
	driver__maybe_closed(d);
}

static void on_transport_closed(void *arg)
{
	struct driver *d = arg;
	d->transport = NULL;
	uv_close((uv_handle_t *)&d->timer, on_handle_closed);
	uv_close((uv_handle_t *)&d->lag_timer, on_handle_closed);
}

static void close_all(struct driver *d)
{
	d->closing = true;
	uv_timer_stop(&d->timer);
	uv_timer_stop(&d->lag_timer);
	driver__bulk_close(d);
	d->bound = transport_bound(d->transport);
	d->counters = transport_counters(d->transport);
	transport_close(d->transport, on_transport_closed, d);
}

void driver_leave(struct driver *d)
{
	wish(d, WISH_LEAVE);
}

void driver_free(struct driver *d)
{
	if (!d)
		return;
	driver__close_learner(d);
	free(d->actions);
	free(d->memory);
	free(d);
}

/* ---- the beginning */

static int open_core(struct driver *d, struct err *e)
{
	const struct driver_config *c = &d->c;
	struct flock_config f = c->core;
	struct peer_addr bound = transport_bound(d->transport);
	struct peer_addrs addrs = c->advertise;
	if (addrs.n == 0)
		addrs.at[addrs.n++] = bound;
	for (int i = 0; i < addrs.n; i++)
		if (addrs.at[i].port == 0)
			addrs.at[i].port = bound.port;
	transport_set_self(d->transport, c->generation, &addrs, c->dialable);
	f.membership = (struct gossip_config){.profile = c->wan ? gossip_wan : gossip_lan,
	        .self = c->identity->id,
	        .generation = c->generation,
	        .addrs = addrs,
	        .dialable = c->dialable,
	        .protocol_min = c->protocol_min,
	        .protocol_max = c->protocol_max,
	        .n_seeds = c->n_seeds,
	        .members_max = c->members_max,
	        .departed = c->departed};
	randombytes_buf(&f.membership.nonce, sizeof f.membership.nonce);
	randombytes_buf(&f.membership.seed, sizeof f.membership.seed);
	randombytes_buf(&f.seed, sizeof f.seed);
	randombytes_buf(&f.wire_seed, sizeof f.wire_seed);
	randombytes_buf(&f.gate.seed, sizeof f.gate.seed);
	f.learner = c->learner != NULL;
	f.alone = c->n_seeds == 0 && c->n_remembered == 0;
	f.wall_s = (uint64_t)time(NULL);
	d->actions = malloc(sizeof *d->actions);
	d->memory = calloc(1, flock_size(&f));
	if (!d->memory || !d->actions)
		return err_set(e, ERR_NOMEM, "no memory for %u members", c->members_max);
	return flock_init(&d->core, d->memory, flock_size(&f), &f, uv_now(c->loop), e);
}

int driver_new(struct driver **out, const struct driver_config *c, struct err *e)
{
	struct driver *d = calloc(1, sizeof *d);
	*out = NULL;
	if (!d)
		return err_set(e, ERR_NOMEM, "no memory for an agent");
	d->c = *c;
	d->timer.data = d->lag_timer.data = d;
	for (int i = 0; i < DRIVER_CONNECTIONS; i++)
		d->connection[i].fd = -1;
	uint64_t seed;
	randombytes_buf(&seed, sizeof seed);
	verify_init(&d->verify, seed);
	int rc = aead_measure(&d->ciphers, e);
	if (rc == 0 && c->learner)
		rc = driver__open_learner(d, e);
	if (rc == 0)
		rc = driver__open_transport(d, e);
	if (rc == 0) {
		d->started_ms = uv_now(c->loop);
		rc = open_core(d, e);
		if (rc)
			transport_close(d->transport, NULL, NULL);
	}
	if (rc) {
		driver_free(d);
		return rc;
	}
	uv_timer_init(c->loop, &d->timer);
	uv_timer_init(c->loop, &d->lag_timer);
	d->handles = 2;
	for (int i = 0; i < c->n_remembered; i++)
		driver__event(d, (struct flock_event){.kind = FLOCK_EVENT_MEMBERSHIP,
		                         .membership = {.kind = EVENT_REMEMBER,
		                                 .remember = c->remembered[i]}});
	*out = d;
	return 0;
}

void driver_start(struct driver *d)
{
	d->lag_due_us = now_us() + LAG_EVERY_MS * 1000;
	uv_timer_start(&d->lag_timer, on_lag_timer, LAG_EVERY_MS, 0);
	if (d->c.learner)
		driver__begin_learner(d);
	driver__event(d, (struct flock_event){.kind = FLOCK_EVENT_START});
	driver__certify(d, &d->c.identity->id, NULL);
}

/* ---- looking around */

const struct flock *driver_core(const struct driver *d)
{
	return d->core;
}

const struct gossip *driver_gossip(const struct driver *d)
{
	return flock_membership(d->core);
}

uint64_t driver_uptime_ms(const struct driver *d)
{
	return uv_now(d->c.loop) - d->started_ms;
}

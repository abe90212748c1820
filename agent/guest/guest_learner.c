/* SPDX-License-Identifier: MIT */
/* A guest as a learner: requests become jobs, jobs become messages, answers become callbacks.
 *
 *     a request ─► queue ─► kick ─► [worker] ─► REQUEST ═══► … ANSWER ─► [worker] ─► callback
 *
 * One job at a time is under way, so memory that both sides reach has one owner at any moment: this
 * side, but from REQUEST to ANSWER. No callback comes from inside a request: everything goes on
 * in on_kick, on a later turn of the loop.
 *
 * What can fail: the guest goes away, or says what no guest says (both end it: jobs under way fail,
 * gone_cb tells); it hangs (stalled_cb; its jobs wait); its numbers are none (that exchange or file
 * is refused, and it is told). */
#include "agent/guest/guest_internal.h"

#include "agent/base/log.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_MS 1000
#define AT_ONCE 64      /* packets read in one turn of the loop */
#define STALL_STEPS 8.0 /* times the slowest of the last steps */

static struct guest *of(struct learner *base)
{
	return (struct guest *)base;
}

static void kick(struct guest *g)
{
	if (g->begun && !g->closing)
		uv_async_send(&g->kick);
}

/* ---- the end of it */

static void on_closed(uv_handle_t *h)
{
	struct guest *g = h->data;
	if (--g->handles == 0 && g->base.callbacks.stopped_cb)
		g->base.callbacks.stopped_cb(g->base.callbacks.arg);
}

static void close_poll(struct guest *g, uv_poll_t *p)
{
	if (p->data && !uv_is_closing((uv_handle_t *)p))
		uv_close((uv_handle_t *)p, on_closed);
	(void)g;
}

static void close_all(struct guest *g)
{
	struct stat st;
	g->closing = true;
	close_poll(g, &g->poll);
	close_poll(g, &g->listen_poll);
	close_poll(g, &g->pid_poll);
	uv_close((uv_handle_t *)&g->kick, on_closed);
	uv_close((uv_handle_t *)&g->timer, on_closed);
	if (lstat(g->address.sun_path, &st) == 0 && S_ISSOCK(st.st_mode))
		unlink(g->address.sun_path);
}

/* ---- outcomes */

static void tell_outcome(struct guest *g, const struct guest_job *j, const struct err *e)
{
	const struct learner_callbacks *c = &g->base.callbacks;
	const struct guest_answer *a = &g->answer;
	char path[RUN_DIR_PATH];
	switch (j->kind) {
	case JOB_SNAPSHOT:
		if (e->code == 0)
			c->snapshot_cb(c->arg, a->number);
		else if (c->refused_cb)
			c->refused_cb(c->arg, LEARNER_NO_SNAPSHOT, e);
		break;
	case JOB_APPLY: /* of one that is not answered nobody can say */
		if (e->code == 0)
			c->applied_cb(c->arg, a->number);
		break;
	case JOB_STATE:
		if (e->code == 0) {
			const struct learner_state s = {.step = g->last.step,
			        .samples = g->last.samples,
			        .clock = g->last.samples + g->others,
			        .optim_steps = a->number,
			        .optimizer = g->hello.optimizer,
			        .vectors = g->hello.vectors,
			        .moved = g->last.moved};
			c->state_cb(c->arg, &s);
		} else if (c->refused_cb) {
			c->refused_cb(c->arg, LEARNER_NO_STATE, e);
		}
		break;
	case JOB_TRY:
		c->tried_cb(c->arg, e);
		break;
	case JOB_ADOPT:
		c->adopted_cb(c->arg, e);
		break;
	case JOB_RESTORE:
		break;
	case JOB_SAVE:
		c->saved_cb(c->arg, run_dir_file(g->c.dir, j->name, path), g->last.step, e);
		break;
	case JOB_EXPORT:
		c->exported_cb(c->arg, run_dir_file(g->c.dir, j->name, path), e);
		break;
	case JOB_EVALUATE: {
		const struct learner_eval v = {
		        .r = {.loss = a->loss, .correct = a->correct, .count = a->count},
		        .step = g->last.step,
		        .clock = g->last.samples + g->others,
		        .whole = j->whole,
		        .asked = j->whole};
		c->eval_cb(c->arg, &v, e);
		break;
	}
	}
}

static void pop(struct guest *g, const struct err *e)
{
	const struct guest_job j = g->job[0];
	g->n_jobs--;
	memmove(g->job, g->job + 1, (size_t)g->n_jobs * sizeof *g->job);
	g->stage = STAGE_NONE;
	g->tell_request = false;
	guest__memory_close(&g->passed);
	if (e->code == ERR_NONFINITE && !g->warned) {
		g->warned = g->tell_notice = true;
		memcpy(g->notice, e->msg, sizeof g->notice);
		g->notice[sizeof g->notice - 1] = '\0';
	}
	if (e->code == 0 && j.kind == JOB_SNAPSHOT)
		g->warned = false;
	tell_outcome(g, &j, e);
	kick(g);
}

/* Without a guest there is nothing that could be lost but what the script keeps by itself. */
static void fail_jobs(struct guest *g)
{
	while (g->n_jobs > 0 && !g->working) {
		struct err e = {.code = g->job[0].kind == JOB_SAVE ? 0 : ERR_BUSY};
		if (e.code)
			(void)!err_set(&e, ERR_BUSY, "the training script is gone");
		g->answer = (struct guest_answer){0};
		pop(g, &e);
	}
}

static void gone(struct guest *g, const char *why)
{
	if (g->gone || g->closing)
		return;
	g->gone = true;
	log_warn("the training script is gone: %s", why);
	uv_poll_stop(&g->poll);
	if (g->pid_poll.data)
		uv_poll_stop(&g->pid_poll);
	kick(g);
	if (!g->stopping && g->c.gone_cb)
		g->c.gone_cb(g->c.arg);
}

/* ---- telling */

static void on_ready(uv_poll_t *p, int status, int events);

static void wait_writable(struct guest *g, bool wait)
{
	if (g->writing == wait || g->gone)
		return;
	g->writing = wait;
	uv_poll_start(&g->poll, UV_READABLE | (wait ? UV_WRITABLE : 0), on_ready);
}

static enum guest_what what_of(const struct guest_job *j)
{
	switch (j->kind) {
	case JOB_APPLY:
		return GUEST_APPLY;
	case JOB_STATE:
		return GUEST_STATE;
	case JOB_TRY:
		return GUEST_TRY;
	case JOB_ADOPT:
		return GUEST_ADOPT;
	case JOB_RESTORE:
		return GUEST_RESTORE;
	case JOB_EVALUATE:
		return GUEST_EVALUATE;
	default:
		return GUEST_SNAPSHOT;
	}
}

static bool send_request(struct guest *g)
{
	const struct guest_job *j = &g->job[0];
	uint8_t out[GUEST_TOLD_MAX];
	const size_t n = guest_tell_request(out, what_of(j), g->serial, j->state.optim_steps,
	        g->passed.fd >= 0 ? g->passed.bytes : 0);
	return guest__send(g, out, n, g->passed.fd);
}

static bool send_word(struct guest *g, enum guest_told kind)
{
	uint8_t out[GUEST_TOLD_MAX];
	return guest__send(g, out, guest_tell(out, kind), -1);
}

static bool send_clock(struct guest *g)
{
	uint8_t out[GUEST_TOLD_MAX];
	return guest__send(g, out, guest_tell_clock(out, g->others, g->agents), -1);
}

static bool send_notice(struct guest *g)
{
	uint8_t out[GUEST_TOLD_MAX];
	return guest__send(g, out, guest_tell_words(out, GUEST_NOTICE, false, g->notice), -1);
}

/* What has no room yet goes when there is some. Requests come behind what they may rely on. */
static void tell(struct guest *g)
{
	bool room = true;
	if (g->gone)
		return;
	if (g->tell_clock && (room = send_clock(g)))
		g->tell_clock = false;
	if (room && g->tell_train && (room = send_word(g, g->trains ? GUEST_TRAIN : GUEST_PAUSE)))
		g->tell_train = false;
	if (room && g->tell_over && (room = send_word(g, GUEST_OVER)))
		g->tell_over = false;
	if (room && g->tell_notice && (room = send_notice(g)))
		g->tell_notice = false;
	if (room && g->tell_request && (room = send_request(g)))
		g->tell_request = false;
	wait_writable(g, !room);
}

/* ---- jobs */

static void on_worked(uv_work_t *w, int status);

static void on_work(uv_work_t *w)
{
	struct guest *g = w->data;
	if (g->stage == STAGE_BEFORE)
		guest__work_before(g, &g->job[0]);
	else
		guest__work_after(g, &g->job[0]);
}

static void work(struct guest *g, enum guest_stage stage)
{
	g->stage = stage;
	g->outcome = (struct err){0};
	g->work.data = g;
	g->working = uv_queue_work(g->c.loop, &g->work, on_work, on_worked) == 0;
	if (!g->working) {
		const struct err e = {.code = ERR_BUSY, .msg = "no worker"};
		pop(g, &e);
	}
}

static void ask(struct guest *g)
{
	g->stage = STAGE_ASKED;
	g->serial++;
	g->tell_request = true;
	tell(g);
}

static void on_worked(uv_work_t *w, int status)
{
	struct guest *g = w->data;
	(void)status;
	g->working = false;
	if (g->gone)
		kick(g);
	else if (g->stage == STAGE_BEFORE && g->outcome.code == 0)
		ask(g);
	else
		pop(g, &g->outcome);
}

/* Without evaluate() a state is watched, not tried: all that is known is that it is finite. */
static void try_without_looking(struct guest *g)
{
	const struct err ok = {0};
	g->job[0].trial->t = (struct trainer_trial){.loss = 1e300, .own = NAN, .initial = NAN};
	g->answer = (struct guest_answer){0};
	pop(g, &ok);
}

static void begin_job(struct guest *g)
{
	switch (g->job[0].kind) {
	case JOB_TRY:
		if (!g->hello.evaluates) {
			try_without_looking(g);
			break;
		}
		work(g, STAGE_BEFORE);
		break;
	case JOB_APPLY:
	case JOB_STATE:
	case JOB_ADOPT:
		work(g, STAGE_BEFORE);
		break;
	default:
		ask(g);
	}
}

/* An answer is one to the request under way, or no answer at all. */
static void answered(struct guest *g, const struct guest_answer *a)
{
	struct err e = {0};
	if (g->stage != STAGE_ASKED || g->tell_request || a->serial != g->serial) {
		gone(g, "it answers what it was not asked");
		return;
	}
	g->answer = *a;
	const struct guest_job *j = &g->job[0];
	if (a->failed && j->kind == JOB_APPLY) { /* it was agreed on, and the partner has moved */
		gone(g, "it did not add what two agents had agreed on");
		return;
	}
	if (a->failed) {
		(void)!err_set(&e, ERR_INVALID, "the script: %s", a->words);
		pop(g, &e);
		return;
	}
	if (j->kind == JOB_TRY)
		j->trial->t = (struct trainer_trial){
		        .loss = a->loss, .own = a->own, .initial = NAN, .test = true};
	if (j->kind == JOB_SNAPSHOT || j->kind == JOB_STATE || j->kind == JOB_SAVE ||
	        j->kind == JOB_EXPORT)
		work(g, STAGE_AFTER);
	else
		pop(g, &e);
}

static bool push(struct learner *base, const struct guest_job *j)
{
	struct guest *g = of(base);
	/* What two agents have agreed to add cannot be refused: one place is kept for it. */
	const int room = j->kind == JOB_APPLY ? GUEST_JOBS : GUEST_JOBS - 1;
	if (g->stopping || g->n_jobs >= room)
		return false;
	g->job[g->n_jobs++] = *j;
	kick(g);
	return true;
}

/* ---- what it says */

static void look_over(struct guest *g)
{
	if (g->over || g->last.samples + g->others < g->hello.total)
		return;
	g->over = g->tell_over = true;
	kick(g);
}

static void stepped(struct guest *g, const struct guest_step *s)
{
	if (s->step <= g->last.step || s->samples < g->last.samples) {
		gone(g, "its steps run backwards");
		return;
	}
	const struct learner_step l = {.r = {.step = s->step,
	                                       .samples = s->samples,
	                                       .loss = s->loss,
	                                       .grad_norm = s->grad_norm,
	                                       .lr = s->lr,
	                                       .count = 1},
	        .clock = s->samples + g->others,
	        .moved = s->moved,
	        .seconds = s->seconds,
	        .no_loss = !s->has_loss};
	g->last = *s;
	g->slowest = s->seconds > g->slowest ? s->seconds : 0.99 * g->slowest;
	g->base.callbacks.steps_cb(g->base.callbacks.arg, &l, 1);
	look_over(g);
}

static void spoke(struct guest *g)
{
	g->heard_ms = uv_now(g->c.loop);
	if (!g->stalled)
		return;
	g->stalled = false;
	log_info("the training script goes on");
	if (g->c.stalled_cb)
		g->c.stalled_cb(g->c.arg, false);
}

static void heard(struct guest *g, const uint8_t *bytes, size_t len)
{
	struct guest_message m;
	struct err e;
	if (guest_read(&m, bytes, len, &e) != 0) {
		gone(g, e.msg);
		return;
	}
	spoke(g);
	if (m.kind == GUEST_STEP)
		stepped(g, &m.step);
	else if (m.kind == GUEST_ANSWER)
		answered(g, &m.answer);
	else
		gone(g, m.words[0] ? m.words : "it has detached");
}

static void on_ready(uv_poll_t *p, int status, int events)
{
	struct guest *g = p->data;
	uint8_t bytes[1024]; /* more than any message of a guest that is welcome */
	if (events & UV_WRITABLE)
		tell(g);
	for (int i = 0; i < AT_ONCE && !g->gone && !g->closing; i++) {
		ssize_t n = recv(g->fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_TRUNC);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n <= 0)
			gone(g, "its end of the socket is closed");
		else if ((size_t)n > sizeof bytes)
			gone(g, "it says more than a guest has to say");
		else
			heard(g, bytes, (size_t)n);
	}
	if (status < 0)
		gone(g, uv_strerror(status));
}

static void on_dead(uv_poll_t *p, int status, int events)
{
	(void)status, (void)events;
	gone(p->data, "its process has ended");
}

static void on_another(uv_poll_t *p, int status, int events)
{
	struct guest *g = p->data;
	int pid, fd;
	(void)status, (void)events;
	fd = guest__accept(g, &pid);
	if (fd >= 0)
		guest__turn_away(fd, "this agent trains with another script already: start one "
		                     "agent for each, with another --name");
}

/* ---- turns of the loop */

static void end(struct guest *g)
{
	uint8_t out[GUEST_TOLD_MAX];
	if (g->closing || !g->stopping || g->n_jobs > 0)
		return;
	if (!g->gone)
		guest__send(g, out,
		        guest_tell_words(out, GUEST_END, g->over, "the agent leaves the flock"),
		        -1);
	close_all(g);
}

static void on_kick(uv_async_t *h)
{
	struct guest *g = h->data;
	const struct learner_callbacks *c = &g->base.callbacks;
	if (g->over && !g->over_told) {
		g->over_told = true;
		c->done_cb(c->arg, g->last.samples + g->others);
	}
	if (g->gone)
		fail_jobs(g);
	else if (g->stage == STAGE_NONE && g->n_jobs > 0)
		begin_job(g);
	tell(g);
	end(g);
}

static void on_timer(uv_timer_t *t)
{
	struct guest *g = t->data;
	const double steps_ms = 1000 * STALL_STEPS * g->slowest;
	const double most = steps_ms > (double)g->c.stall_ms ? steps_ms : (double)g->c.stall_ms;
	const bool owes = g->stage == STAGE_ASKED || (g->trains && !g->over);
	if (g->gone || g->stalled || !owes)
		return;
	if ((double)(uv_now(g->c.loop) - g->heard_ms) < most)
		return;
	g->stalled = true;
	log_warn("stalled: the training script has said nothing for %.0f s; no exchanges until it "
	         "goes on",
	        most / 1000);
	if (g->c.stalled_cb)
		g->c.stalled_cb(g->c.arg, true);
}

static void open_poll(struct guest *g, uv_poll_t *p, int fd, uv_poll_cb cb)
{
	if (fd < 0 || uv_poll_init(g->c.loop, p, fd) != 0)
		return;
	p->data = g;
	g->handles++;
	uv_poll_start(p, UV_READABLE, cb);
}

static void begin(struct learner *base)
{
	struct guest *g = of(base);
	/* Neither can fail: the loop has had its descriptors since uv_loop_init. */
	int rc = uv_async_init(g->c.loop, &g->kick, on_kick);
	assert(rc == 0 && !g->begun);
	uv_timer_init(g->c.loop, &g->timer);
	g->kick.data = g->timer.data = g;
	g->handles = 2;
	g->begun = true;
	g->heard_ms = uv_now(g->c.loop);
	uv_timer_start(&g->timer, on_timer, LOOK_MS, LOOK_MS);
	open_poll(g, &g->poll, g->fd, on_ready);
	open_poll(g, &g->listen_poll, g->listener, on_another);
	open_poll(g, &g->pid_poll, g->pidfd, on_dead);
	if (!g->poll.data)
		gone(g, "its socket cannot be watched");
	look_over(g);
	kick(g);
}

/* ---- the table */

static void *buffer(struct learner *base, size_t bytes)
{
	(void)base;
	return convert_vector((bytes + sizeof(float) - 1) / sizeof(float));
}

static void buffer_free(struct learner *base, void *p)
{
	(void)base;
	free(p);
}

static void train(struct learner *base)
{
	struct guest *g = of(base);
	g->trains = g->tell_train = true;
	g->heard_ms = uv_now(g->c.loop);
	kick(g);
}

static void pause_training(struct learner *base)
{
	struct guest *g = of(base);
	g->trains = false;
	g->tell_train = true;
	kick(g);
}

static void others(struct learner *base, uint64_t samples)
{
	struct guest *g = of(base);
	g->others = samples > g->others ? samples : g->others;
	g->tell_clock = true;
	look_over(g);
	kick(g);
}

static void agents(struct learner *base, uint64_t n)
{
	of(base)->agents = n;
}

static bool snapshot(struct learner *l, void *to, enum convert_format format, struct sketch *sketch)
{
	return push(l, &(struct guest_job){
	                       .kind = JOB_SNAPSHOT, .to = to, .format = format, .sketch = sketch});
}

static bool apply(struct learner *l, const float *difference, const float *k, int n_groups)
{
	struct guest_job j = {.kind = JOB_APPLY, .from = difference};
	assert(n_groups == l->info.groups.n);
	memcpy(j.k, k, (size_t)n_groups * sizeof *k);
	return push(l, &j);
}

static bool take_state(struct learner *l, float *to)
{
	return push(l, &(struct guest_job){.kind = JOB_STATE, .to = to});
}

static bool try(struct learner *l, const float *from, struct learner_trial *to)
{
	return push(l, &(struct guest_job){.kind = JOB_TRY, .from = from, .trial = to});
}

static bool adopt(struct learner *l, const float *from, const struct learner_state *s)
{
	return push(l, &(struct guest_job){.kind = JOB_ADOPT, .from = from, .state = *s});
}

static bool restore(struct learner *l)
{
	return push(l, &(struct guest_job){.kind = JOB_RESTORE});
}

/* A user can ask for any number while the script does not answer. */
static bool save(struct learner *l, bool wished)
{
	if (wished && of(l)->n_jobs >= GUEST_JOBS / 2)
		return false;
	return push(l, &(struct guest_job){.kind = JOB_SAVE, .name = "latest.safetensors"});
}

static bool evaluate(struct learner *l, bool whole)
{
	return push(l, &(struct guest_job){.kind = JOB_EVALUATE, .whole = whole});
}

static bool export(struct learner *l, const char *name)
{
	struct guest_job j = {.kind = JOB_EXPORT};
	assert(strlen(name) < sizeof j.name && !strchr(name, '/'));
	strcpy(j.name, name);
	return push(l, &j);
}

static void stop(struct learner *l)
{
	of(l)->stopping = true;
	kick(of(l));
}

static void close_guest(struct learner *l)
{
	struct guest *g = of(l);
	assert(!g->begun || (g->closing && g->handles == 0));
	if (g->fd >= 0)
		close(g->fd);
	if (g->pidfd >= 0)
		close(g->pidfd);
	if (g->listener >= 0) {
		if (!g->begun)
			unlink(g->address.sun_path);
		close(g->listener);
	}
	guest_hello_close(&g->hello);
	guest__memory_close(&g->shared);
	guest__memory_close(&g->passed);
	free(g);
}

const struct learner_ops guest__ops = {
        .buffer = buffer,
        .buffer_free = buffer_free,
        .begin = begin,
        .train = train,
        .pause = pause_training,
        .others = others,
        .agents = agents,
        .snapshot = snapshot,
        .apply = apply,
        .take_state = take_state,
        .try = try,
        .adopt = adopt,
        .restore = restore,
        .save = save,
        .evaluate = evaluate,
        .export = export,
        .stop = stop,
        .free = close_guest,
};

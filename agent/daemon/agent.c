/* SPDX-License-Identifier: MIT */
/* An agent joins a flock, trains with it, and leaves when the run is over or it is told to.
 *
 * The happy path: settings, keys and lists; the state directory with its lock, identity and known
 * peers; data, model and checkpoint; then the control socket and the network on one loop, a
 * greeting on stdout, and the loop runs. SIGINT, SIGTERM, a `leave` on the socket or the end of the
 * run end it: the exchange under way, a checkpoint, goodbye to the peers, everything closed, exit
 * 0, or 1 if the checkpoint could not be written. A second signal, a second later or more, ends it
 * at once, even if the loop hangs, and so does agent.leave_seconds. SIGHUP reads the lists again.
 * Signals are taken by a thread of their own (signals.h), which wakes the loop. While the agent
 * starts there is nothing to save: SIGINT and SIGTERM end it at once with 0, SIGHUP does nothing.
 *
 *     leave ──► driver_leave ──► on_left ──► control_close, … ──► the loop is empty
 *
 * What can fail is told before anything is on the network, in the order in which a user can mend
 * it: settings and the files that they name (exit 3), then the machine's own refusals: a lock,
 * data, a device, an address in use. */
#include "agent/daemon/agent.h"

#include "agent/base/log.h"
#include "agent/base/textlist.h"
#include "agent/config/paths.h"
#include "agent/control/control.h"
#include "agent/daemon/admit.h"
#include "agent/daemon/rlimits.h"
#include "agent/daemon/signals.h"
#include "agent/daemon/startup.h"
#include "agent/daemon/training.h"
#include "agent/drivers/driver.h"
#include "agent/guest/guest.h"
#include "agent/node/join_hint.h"
#include "agent/node/run_settings.h"
#include "agent/node/state_writer.h"
#include "agent/node/token.h"
#include "agent/train/learner_thread.h"

#include <assert.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PEERS_EVERY_MS 60000
#define LINE_EVERY_MS 10000
#define PEERS_LOOK_MS 5000 /* the first peers are kept soon: an agent may be killed young */

struct agent {
	struct agent_options o;
	const struct config *config; /* of o */
	struct startup startup;
	struct state_dir state;
	struct identity identity;
	struct admission *admission; /* owned; NULL: the flock has no owner */
	uv_loop_t loop;
	struct driver *driver;   /* owned */
	struct control *control; /* owned */
	struct training training;
	struct buf settings; /* of the run, for joiners */
	struct token token;  /* alike, without secret and seeds */
	char keys[LIMIT_LIST]; /* the files of agent.keys, by whole paths */
	struct state_writer writer;
	uv_timer_t timer, leave_timer;
	uv_async_t signal; /* one of these has come: */
	atomic_bool hang_up, stop;
	uint64_t kept_ms; /* when peers were last kept; 0: not yet */
	uint64_t line_ms;
	uint64_t revoked_kept; /* version of the list that was last written */
	enum admission_verdict admitted;
	struct agent_view view; /* of the answer being given */
	int code;               /* of a run that failed */
	bool leaving, left;
	bool stalled; /* paused since a guest says nothing */
};

static int open_state(struct agent *a, struct err *e)
{
	char path[LIMIT_PATH];
	struct err damage;
	a->state.lock = -1;
	int rc = paths_state(a->config, path, e);
	if (rc == 0)
		rc = state_dir_open(&a->state, path, e);
	if (rc == 0)
		rc = identity_open(&a->identity, path, e);
	if (rc)
		return rc;
	struct state_writer_peers *known = &a->writer.known;
	/* They are a help, not a need. */
	if (state_dir_load_peers(&a->state, known->addr, &known->n, &damage, e))
		log_warn("known peers are not read: %s", e->msg);
	else if (damage.code)
		log_warn("peers.json: %s; it is put aside as peers.json.damaged", damage.msg);
	return 0;
}

/* ---- the end */

static void close_handles(struct agent *a)
{
	signals_to(NULL, NULL);
	uv_close((uv_handle_t *)&a->timer, NULL);
	uv_close((uv_handle_t *)&a->leave_timer, NULL);
	uv_close((uv_handle_t *)&a->signal, NULL);
}

/* Of an agent that has left, or has no more time to. */
static int end_status(const struct agent *a)
{
	if (!a->training.learner)
		return EXIT_OK;
	if (a->code)
		return a->code == ERR_MISMATCH ? EXIT_CONFIG : exit_code(a->code, EXIT_FAILED);
	if (!flock_unsaved(driver_core(a->driver)))
		return EXIT_OK;
	log_error(
	        "the last checkpoint, or the run's result, is not written to %s: make room there, "
	        "or give it more --leave-seconds",
	        a->training.out);
	return EXIT_FAILED;
}

static void on_left(void *arg)
{
	struct agent *a = arg;
	a->left = true;
	log_info("left the flock");
	control_close(a->control, NULL, NULL);
	a->control = NULL;
	close_handles(a);
}

/* A machine that is about to be taken away has no time for a learner or a disk that hangs. */
static void on_leave_timer(uv_timer_t *t)
{
	struct agent *a = t->data;
	log_warn("leaving took longer than agent.leave_seconds (%g)", a->config->agent.leave_s);
	unlink(a->startup.socket);
	_exit(end_status(a));
}

/* Leaving has begun, for whatever reason. */
static void on_leave(void *arg, int code)
{
	struct agent *a = arg;
	a->leaving = true;
	a->code = code;
	state_writer_peers(&a->writer, driver_gossip(a->driver));
	uv_timer_start(
	        &a->leave_timer, on_leave_timer, (uint64_t)(a->config->agent.leave_s * 1000), 0);
	if (!a->training.learner)
		return;
	struct state_dir_progress p = training_progress(&a->training, driver_core(a->driver));
	state_writer_progress(&a->writer, &p);
}

static void leave(void *arg)
{
	struct agent *a = arg;
	driver_leave(a->driver);
}

/* On the waiting thread, like the next. Not a word: what it starts may hang in the log. */
static void on_early_signal(void *arg, int signum)
{
	(void)arg;
	if (signum != SIGHUP)
		_exit(EXIT_OK);
}

static void on_signal(void *arg, int signum)
{
	struct agent *a = arg;
	atomic_store(signum == SIGHUP ? &a->hang_up : &a->stop, true);
	uv_async_send(&a->signal);
}

static void on_signal_told(uv_async_t *h)
{
	struct agent *a = h->data;
	if (atomic_exchange(&a->hang_up, false) && !a->leaving)
		state_writer_lists(&a->writer);
	if (!atomic_exchange(&a->stop, false))
		return;
	log_info("leaving; another signal, a second from now or later, ends it at once");
	leave(a);
}

/* ---- while it runs */

/* Certificates expire, lists of revocations come from peers, invites get too many agents. */
static void check_admission(struct agent *a)
{
	if (!a->admission)
		return;
	driver_recheck(a->driver);
	if (admission_revoked_version(a->admission) != a->revoked_kept) {
		a->revoked_kept = admission_revoked_version(a->admission);
		state_writer_revoked(&a->writer, admission_revoked(a->admission));
	}
	enum admission_verdict v = admission_look(a->admission, &a->identity.id);
	if (v != a->admitted && v != ADMITTED)
		log_error("this agent is not a member any more: %s", admission_words(v));
	a->admitted = v;
}

/* The list in agent.revoked was read anew. */
static void on_revoked(void *arg, const struct revocations_text *list)
{
	struct agent *a = arg;
	struct err e;
	int rc = admission_revoke(a->admission, list->bytes, list->len, &e);
	if (a->left)
		return;
	if (rc == ERR_CANCELLED) {
		const struct revocations_text *in_force = admission_revoked(a->admission);
		if (list->len != in_force->len || memcmp(list->bytes, in_force->bytes, list->len))
			admit_outdated(revocations_version(list->bytes, list->len),
			        admission_revoked_version(a->admission));
		return;
	}
	if (rc) {
		log_error("agent.revoked: %s; the list read before stays in force", e.msg);
		return;
	}
	log_info("the owner's list of revoked agents is read again");
	driver_revoked(a->driver);
}

static void on_timer(uv_timer_t *t)
{
	struct agent *a = t->data;
	if (a->leaving)
		return;
	const struct gossip *g = driver_gossip(a->driver);
	uint64_t now = uv_now(&a->loop);
	check_admission(a);
	if (a->training.learner) {
		struct state_dir_progress p =
		        training_progress(&a->training, driver_core(a->driver));
		state_writer_progress(&a->writer, &p);
	}
	if (a->training.learner && now - a->line_ms >= LINE_EVERY_MS && log_enabled(LOG_INFO)) {
		char line[200];
		a->line_ms = now;
		driver_view(a->driver, &a->view);
		agent_view_line(&a->view, line);
		log_info("%s", line);
	}
	bool due = a->kept_ms ? now - a->kept_ms >= PEERS_EVERY_MS : gossip_count(g) > 0;
	if (!due)
		return;
	a->kept_ms = now;
	state_writer_peers(&a->writer, g);
}

static void on_generation(void *arg, uint64_t generation)
{
	struct agent *a = arg;
	state_writer_generation(&a->writer, generation);
}

static void on_lists(void *arg)
{
	struct agent *a = arg;
	if (!a->left)
		driver_recheck(a->driver);
}

static uint64_t resident_kb(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");
	if (f && fscanf(f, "%*u %lu", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return pages * ((uint64_t)sysconf(_SC_PAGESIZE) / 1024);
}

static void on_look(void *arg, struct control_view *out)
{
	struct agent *a = arg;
	*out = (struct control_view){.name = a->config->agent.name,
	        .version = PACKAGE_VERSION,
	        .gossip = driver_gossip(a->driver),
	        .listen = driver_address(a->driver),
	        .wan = a->startup.node.wan,
	        .leave_s = a->config->agent.leave_s,
	        .now_ms = uv_now(&a->loop),
	        .uptime_ms = driver_uptime_ms(a->driver),
	        .rss_kb = resident_kb(),
	        .net = driver_counters(a->driver),
	        .lag = driver_lag(a->driver)};
	if (a->training.learner) {
		driver_view(a->driver, &a->view);
		out->flock = &a->view;
		out->token = a->settings.len > 0 ? &a->token : NULL;
		out->keys = a->keys;
	}
}

static int on_act(void *arg, enum flock_wish wish, struct err *e)
{
	return driver_wish(((struct agent *)arg)->driver, wish, e);
}

/* ---- the beginning */

static int greet(const struct agent *a)
{
	const struct peer_addrs *told = &gossip_self(driver_gossip(a->driver))->addrs;
	struct join_hint g = {.config = a->config,
	        .config_path = a->o.config_path,
	        .given = a->o.given,
	        .id = a->identity.id,
	        .flock = a->startup.secrets.flock[0],
	        .listen = driver_address(a->driver),
	        .n_advertise = told->n};
	struct buf text;
	memcpy(g.advertise, told->at, sizeof g.advertise);
	if (a->training.guest)
		g.device = a->training.learner->info.device;
	else if (a->training.learner)
		g.device = learner_trainer(a->training.learner)->device_why;
	if (a->settings.len > 0)
		g.token = &a->token;
	buf_init(&text, 65536);
	int rc = join_hint_print(&g, &text);
	int status = rc ? a->o.fail_cb(EXIT_FAILED, "%s", err_text(rc)) : a->o.print_cb(&text);
	buf_close(&text);
	return status;
}

/* The process may change its folder, and who asks has another one. */
static void keep_key_paths(struct agent *a)
{
	for (const char *k = NULL; (k = textlist_next(a->config->agent.keys, k));) {
		char *path = realpath(k, NULL);
		/* What has no room is left out: `invite` can be told the file. */
		if (path && textlist_add(a->keys, sizeof a->keys, path))
			log_debug("%s: too long for the list of keys", k);
		free(path);
	}
}

/* What joiners are told. */
static int open_invitation(struct agent *a, struct err *e)
{
	const struct config *c = a->config;
	struct token *t = &a->token;
	if (a->training.guest) /* its script is no setting */
		return 0;
	int rc = run_settings_print(c, &a->training.core.manifest, &a->settings);
	if (rc == ERR_LIMIT) { /* a model of a thousand layers: others need its config */
		log_warn("the settings of this run are too many for `dunlin join`");
		return 0;
	}
	if (rc)
		return err_set(e, rc, "%s", err_text(rc));
	run_settings_hash(a->settings.data, a->settings.len, t->hash);
	memcpy(t->flock, a->startup.secrets.flock[0].bytes, sizeof t->flock);
	memcpy(t->run, c->gossip.run, sizeof t->run);
	t->has_owner = c->agent.owner[0] != '\0';
	keep_key_paths(a);
	return t->has_owner ? owner_parse(&t->owner, c->agent.owner, e) : 0;
}

/* The run that was to be joined must be the one that these data and settings make. */
static int check_expected(struct agent *a, int *status, struct err *e)
{
	struct manifest theirs;
	char words[MANIFEST_WORDS_MAX + 1];
	if (!a->o.expected)
		return 0;
	theirs = *a->o.expected;
	theirs.formats = a->training.core.manifest.formats;
	if (manifest_compare(&theirs, &a->training.core.manifest) == 0)
		return 0;
	manifest_words(&theirs, &a->training.core.manifest, words);
	*status = EXIT_CONFIG;
	return err_set(e, ERR_MISMATCH, "this is not the run of the token: %s", words);
}

/* The script is gone: goodbye, as for a user who says leave. */
static void on_guest_gone(void *arg)
{
	leave(arg);
}

/* Offers are not taken while nobody would do what they ask for; a user's own pause stays. */
static void on_guest_stalled(void *arg, bool stalled)
{
	struct agent *a = arg;
	struct err e;
	struct flock_view v;
	flock_view(driver_core(a->driver), &v);
	if (stalled)
		a->stalled =
		        v.phase == FLOCK_TRAINING && driver_wish(a->driver, WISH_PAUSE, &e) == 0;
	else if (a->stalled && driver_wish(a->driver, WISH_RESUME, &e) == 0)
		a->stalled = false;
}

static int open_network(struct agent *a, struct err *e)
{
	struct control_config control = {.loop = &a->loop,
	        .path = a->startup.socket,
	        .idle_ms = CONTROL_IDLE_MS,
	        .arg = a,
	        .look_cb = on_look,
	        .act_cb = on_act,
	        .leave_cb = leave};
	struct driver_config *n = &a->startup.node;
	n->loop = &a->loop;
	n->identity = &a->identity;
	n->generation = a->identity.generation;
	n->remembered = a->writer.known.addr;
	n->n_remembered = a->writer.known.n;
	n->arg = a;
	n->generation_cb = on_generation;
	n->leave_cb = on_leave;
	n->left_cb = on_left;
	n->admission = a->admission;
	n->learner = a->training.learner;
	n->connections_max = rlimits_connections(n->learner ? n->learner->info.files : 0);
	if (a->training.guest)
		guest_callbacks(n->learner, a, on_guest_gone, on_guest_stalled);
	if (n->learner) {
		n->settings = (const uint8_t *)a->settings.data;
		n->settings_length = (uint32_t)a->settings.len;
		n->config = &a->training.config;
		n->out = a->training.out;
		n->core = a->training.core;
		n->departed = training_departed(&a->training);
	}
	a->writer.loop = &a->loop;
	a->writer.state = &a->state;
	a->writer.identity = &a->identity;
	a->writer.lists = &a->startup.lists;
	a->writer.allow = a->startup.allow;
	a->writer.block = a->startup.block;
	a->writer.arg = a;
	a->writer.lists_cb = on_lists;
	if (a->admission && a->config->agent.revoked[0])
		a->writer.revoked = a->config->agent.revoked;
	a->writer.revoked_cb = on_revoked;
	/* The socket first: it is refused for the reason that a user understands best, another
	 * agent of that name. Nobody is answered before the loop runs. */
	int rc = control_new(&a->control, &control, e);
	return rc ? rc : driver_new(&a->driver, n, e);
}

static void open_handles(struct agent *a)
{
	uv_timer_init(&a->loop, &a->timer);
	uv_timer_init(&a->loop, &a->leave_timer);
	a->timer.data = a->leave_timer.data = a->signal.data = a;
	/* Cannot fail: the loop has had an eventfd since uv_loop_init. */
	int rc = uv_async_init(&a->loop, &a->signal, on_signal_told);
	assert(rc == 0);
}

static int run(struct agent *a)
{
	struct err e;
	int status = EXIT_OK;
	int rc = uv_loop_init(&a->loop);
	if (rc)
		return a->o.fail_cb(EXIT_FAILED, "start an event loop: %s", uv_strerror(rc));
	open_handles(a);
	rc = training_open(
	        &a->training, a->config, &a->loop, &a->identity.id, &a->state, &status, &e);
	signals_to(on_signal, a); /* told when the loop runs */
	if (rc == 0 && a->training.learner) {
		rc = check_expected(a, &status, &e);
		if (rc == 0)
			rc = open_invitation(a, &e);
	}
	if (rc == 0) {
		status = EXIT_FAILED;
		uv_update_time(&a->loop); /* reading data took its time */
		rc = open_network(a, &e);
	}
	if (rc) {
		status = a->o.fail_cb(exit_code(rc, status), "%s", e.msg);
		if (a->control)
			control_close(a->control, NULL, NULL);
		close_handles(a);
	} else {
		uv_timer_start(&a->timer, on_timer, PEERS_LOOK_MS, PEERS_LOOK_MS);
		status = greet(a);
		uv_update_time(&a->loop);
		driver_start(a->driver);
		if (status != EXIT_OK)
			leave(a);
	}
	uv_run(&a->loop, UV_RUN_DEFAULT);
	if (rc == 0 && a->training.learner && status == EXIT_OK) {
		training_print(&a->training, a->driver);
		status = end_status(a);
	}
	driver_free(a->driver);
	training_close(&a->training);
	uv_run(&a->loop, UV_RUN_DEFAULT); /* its handles */
	rc = uv_loop_close(&a->loop);
	assert(rc == 0);
	return status;
}

static int run_agent(struct agent *a)
{
	struct err e;
	int status;
	log_setup(&(struct log_config){.level = (enum log_level)a->config->log.level,
	        .format = (enum log_format)a->config->log.format,
	        .name = a->config->agent.name});
	int rc = signals_start(on_early_signal, a, false, NULL, &e);
	if (rc)
		return a->o.fail_cb(exit_code(rc, EXIT_FAILED), "%s", e.msg);
	rc = startup_open(&a->startup, a->config, &e);
	if (rc)
		return a->o.fail_cb(exit_code(rc, EXIT_CONFIG), "%s", e.msg);
	rc = open_state(a, &e);
	status = rc ? a->o.fail_cb(exit_code(rc, EXIT_FAILED), "%s", e.msg) : EXIT_OK;
	if (rc == 0 &&
	        (rc = admit_open(&a->admission, a->config, &a->state, &a->identity, true, &e)))
		status = a->o.fail_cb(rc == ERR_NOMEM ? EXIT_FAILED : EXIT_CONFIG, "%s", e.msg);
	if (rc == 0)
		status = run(a);
	admission_free(a->admission);
	buf_close(&a->settings);
	if (a->identity.secrets)
		identity_close(&a->identity);
	state_dir_close(&a->state);
	startup_close(&a->startup);
	return status;
}

int agent_run(const struct agent_options *o)
{
	struct agent *a = calloc(1, sizeof *a);
	if (!a)
		return o->fail_cb(EXIT_FAILED, "%s", err_text(ERR_NOMEM));
	a->o = *o;
	a->config = o->config;
	buf_init(&a->settings, SETTINGS_BYTES_MAX);
	int status = run_agent(a);
	free(a);
	return status;
}

/* SPDX-License-Identifier: MIT */
/* dunlin train: runs a trainer to its end, or until it is told to stop, and keeps its checkpoints.
 *
 * The happy path: settings, trainer, folder, resume or a fresh start, then step after step; after
 * some of them metrics, evaluations and checkpoints; at the end final.safetensors and a summary.
 *
 * How it can end otherwise. A signal: the step under way is finished, a checkpoint written, exit 0;
 * another one, a second or more later, exits at once, and whatever stands in the folder is whole.
 * This thread computes, so another one takes the signals (signals.h). A loss that is not finite:
 * the step is not applied, nothing is written, the last checkpoint is named. A checkpoint that
 * cannot be written (a full disk) is a warning while the run goes on, since the next one may
 * succeed, and an error when it was the last. Progress goes to stderr, results to stdout. */
#include "agent/base/log.h"
#include "agent/cli/cli.h"
#include "agent/cli/commands.h"
#include "agent/cli/progress.h"
#include "agent/config/paths.h"
#include "agent/daemon/signals.h"
#include "agent/train/metrics.h"
#include "agent/train/resume.h"
#include "agent/train/run_dir.h"
#include "agent/train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define METRICS_EVERY_STEPS 50

struct run {
	struct config config;
	struct trainer *trainer; /* owned */
	char out[LIMIT_PATH];
	struct run_dir dir;
	struct metrics metrics;
	struct progress progress;
	double start_s, saved_s;
	uint64_t first_step; /* of this process */
	uint64_t saved_step;
	bool saved; /* there is a checkpoint of saved_step */
	bool resumed;
	bool metrics_told;       /* the user knows that the metrics file is broken */
	atomic_bool signalled;   /* set by the thread that takes signals */
	uint64_t tested_step;    /* the step that test is of */
	struct eval_result test; /* count 0: none yet */
};

static void on_signal(void *arg, int signum)
{
	struct run *r = arg;

	(void)signum;
	atomic_store(&r->signalled, true);
}

static double clock_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int fail(struct run *r, int rc, int busy_with, const struct err *e)
{
	progress_clear(&r->progress);
	log_error("%s", e->msg);
	return exit_code(rc, busy_with);
}

static void watch_metrics(struct run *r)
{
	if (r->metrics.broken.code == 0 || r->metrics_told)
		return;
	r->metrics_told = true;
	progress_clear(&r->progress);
	log_warn("%s: no more metrics are written, training goes on", r->metrics.broken.msg);
}

static int save(struct run *r, struct err *e)
{
	struct trainer *t = r->trainer;
	const double begin_s = clock_s();
	char path[RUN_DIR_PATH];
	int rc;

	if (r->saved && r->saved_step == t->step)
		return 0;
	rc = trainer_save(t, run_dir_checkpoint(&r->dir, t->step, path), e);
	r->saved_s = clock_s(); /* also after a failure: not again at every step */
	if (rc != 0)
		return rc;
	r->saved = true;
	r->saved_step = t->step;
	metrics_checkpoint(&r->metrics, t, path, r->saved_s - begin_s);
	if (run_dir_rotate(&r->dir, r->config.run.keep, e) != 0) {
		progress_clear(&r->progress);
		log_warn("old checkpoints: %s", e->msg);
	}
	return 0;
}

static int evaluate(struct run *r, enum eval_set set, struct err *e)
{
	struct trainer *t = r->trainer;
	const double begin_s = clock_s();
	struct eval_result result;
	char path[RUN_DIR_PATH];
	int rc = trainer_evaluate(t, set, &result, e);

	if (rc != 0)
		return rc;
	metrics_eval(&r->metrics, t, set, &result, clock_s() - begin_s);
	progress_say(&r->progress, "epoch %.3g  %s loss %.4f  acc %.2f%%",
	        (double)t->samples / (double)t->n_train,
	        set == EVAL_VALIDATION ? "validation" : "test", result.loss,
	        100.0 * (double)result.correct / (double)result.count);
	if (set == EVAL_TEST) {
		r->test = result;
		r->tested_step = t->step;
		return 0;
	}
	/* Before the checkpoint that will remember this best: killed in between, the resumed run
	 * comes here again and writes the same file. */
	if (t->best_step == t->step)
		rc = trainer_save(t, run_dir_file(&r->dir, "best.safetensors", path), e);
	return rc;
}

static int evaluate_all(struct run *r, struct err *e)
{
	int rc = 0;

	if (r->trainer->n_val > 0)
		rc = evaluate(r, EVAL_VALIDATION, e);
	if (rc == 0 && r->trainer->has_test)
		rc = evaluate(r, EVAL_TEST, e);
	return rc;
}

/* Metrics, evaluations and checkpoints that are due now. */
static int after_step(struct run *r, const struct step_result *s, bool stop, struct err *e)
{
	const struct config *c = &r->config;
	const bool done = trainer_done(r->trainer), pause = s->epoch_end || done;
	int rc = 0;

	if (s->step % METRICS_EVERY_STEPS == 0 || pause)
		metrics_step(&r->metrics, r->trainer, s, progress_rate(&r->progress));
	if (pause)
		rc = evaluate_all(r, e);
	if (rc == 0 &&
	        (pause || stop ||
	                (c->run.checkpoint_steps > 0 &&
	                        s->step % (uint64_t)c->run.checkpoint_steps == 0) ||
	                (c->run.checkpoint_s > 0 && clock_s() - r->saved_s >= c->run.checkpoint_s)))
		rc = save(r, e);
	watch_metrics(r);
	if (rc == ERR_IO && !stop && !done) {
		progress_clear(&r->progress);
		log_warn("%s: training goes on, the next checkpoint may succeed", e->msg);
		rc = 0;
	}
	return rc;
}

/* Steps until the end or until told to stop. */
static int train(struct run *r, struct err *e)
{
	struct trainer *t = r->trainer;
	const uint64_t limit = (uint64_t)r->config.run.stop_after;
	struct step_result s;
	bool stop = atomic_load(&r->signalled);
	int rc = 0;

	while (rc == 0 && !stop && !trainer_done(t)) {
		const double begin_s = clock_s();

		rc = trainer_step(t, &s, e);
		if (rc != 0)
			break;
		const double end_s = clock_s();

		progress_step(&r->progress, t, &s, end_s - begin_s, end_s);
		stop = atomic_load(&r->signalled) ||
		       (limit > 0 && t->step - r->first_step >= limit);
		rc = after_step(r, &s, stop, e);
		stop = stop || atomic_load(&r->signalled);
	}
	/* Nothing happens here when after_step has just saved. */
	if (rc == 0)
		rc = save(r, e);
	progress_clear(&r->progress);
	return rc;
}

static int resume(struct run *r, struct err *e)
{
	char path[RUN_DIR_PATH];
	int rc = resume_newest(r->trainer, &r->dir, path, e);

	if (rc == ERR_NOTFOUND) {
		progress_say(&r->progress, "no whole checkpoint in %s: starting anew", r->dir.path);
		return 0;
	}
	if (rc != 0)
		return rc;
	r->resumed = true;
	r->saved = true;
	r->saved_step = r->trainer->step;
	progress_say(&r->progress, "resumed %s at step %" PRIu64, path, r->trainer->step);
	return 0;
}

/* A run must not write over another one's files. */
static int check_unused(const struct run *r, struct err *e)
{
	static const char *const names[] = {"best.safetensors", "final.safetensors"};
	char path[RUN_DIR_PATH];
	uint64_t *steps;
	int n, rc = run_dir_list(&r->dir, &steps, &n, e);

	free(steps);
	for (size_t i = 0; rc == 0 && i < sizeof names / sizeof names[0]; i++)
		n += access(run_dir_file(&r->dir, names[i], path), F_OK) == 0;
	if (rc == 0 && n > 0)
		rc = err_set(e, ERR_USAGE,
		        "%s holds an earlier run: go on with it by --resume, or choose another "
		        "--out",
		        r->dir.path);
	return rc;
}

static int open_trainer(struct run *r)
{
	const struct config *c = &r->config;
	enum trainer_part part = TRAINER_DATA;
	struct err e;
	int rc = trainer_new(&r->trainer, c, &part, &e);

	if (rc != 0)
		return fail(r, rc,
		        part == TRAINER_DATA    ? EXIT_DATA
		        : part == TRAINER_MODEL ? EXIT_CONFIG
		                                : EXIT_DEVICE,
		        &e);
	if (!c->run.resume && c->run.init_from[0] != '\0')
		rc = trainer_init_from(r->trainer, c->run.init_from, &e);
	return rc != 0 ? fail(r, rc, EXIT_MODEL, &e) : EXIT_OK;
}

/* The trainer first: what is wrong with the settings must not leave a folder behind. */
static int open_run(struct run *r)
{
	const struct config *c = &r->config;
	char path[RUN_DIR_PATH];
	struct err e;
	int rc, status = open_trainer(r);

	if (status != EXIT_OK)
		return status;
	rc = paths_out(c, false, r->out, &e);
	if (rc == 0)
		rc = run_dir_open(&r->dir, r->out, &e);
	if (rc == 0 && !c->run.resume)
		rc = check_unused(r, &e);
	if (rc != 0)
		return fail(r, rc, EXIT_FAILED, &e);
	if (c->run.resume)
		rc = resume(r, &e);
	/* A run that was resumed needs that file no more. */
	if (rc == 0 && c->run.resume && !r->resumed && c->run.init_from[0] != '\0')
		rc = trainer_init_from(r->trainer, c->run.init_from, &e);
	if (rc != 0)
		return fail(r, rc, EXIT_MODEL, &e);
	rc = metrics_open(&r->metrics,
	        c->run.metrics[0] != '\0' ? c->run.metrics
	                                  : run_dir_file(&r->dir, "metrics.jsonl", path),
	        &e);
	if (rc != 0)
		return fail(r, rc, EXIT_FAILED, &e);
	r->first_step = r->trainer->step;
	return EXIT_OK;
}

static void say_header(struct run *r)
{
	const struct trainer *t = r->trainer;
	char shape[64], validation[48] = "", test[48] = "";

	if (t->n_val > 0)
		snprintf(validation, sizeof validation, ", %" PRIu32 " for validation", t->n_val);
	if (t->has_test)
		snprintf(test, sizeof test, ", %" PRIu32 " for testing", t->test_data.count);
	progress_say(&r->progress, "model   %s, %zu parameters",
	        t->arch.preset[0] != '\0' ? t->arch.preset : "own layers", t->arch.n_train);
	progress_say(&r->progress, "device  %s",
	        t->device_why[0] != '\0' ? t->device_why : t->dev->text);
	progress_say(&r->progress,
	        "data    %" PRIu32 " samples to train on%s%s; %s, %" PRId64 " classes", t->n_train,
	        validation, test, shape_text(&t->arch.input, shape), t->arch.classes);
	progress_say(&r->progress, "output  %s", r->dir.path);
}

static void tell_last_good(const struct run *r)
{
	char path[RUN_DIR_PATH];

	if (r->saved)
		log_error("the last good checkpoint is %s",
		        run_dir_checkpoint(&r->dir, r->saved_step, path));
	else
		log_error("there was no checkpoint yet");
}

static int finish_diverged(struct run *r, const struct err *e)
{
	metrics_end(&r->metrics, r->trainer, "diverged", clock_s() - r->start_s);
	progress_clear(&r->progress);
	log_error("training diverged: %s", e->msg);
	tell_last_good(r);
	log_error("try a lower --lr, a longer --warmup-epochs, or --clip 1");
	return EXIT_DIVERGED;
}

static int finish_stopped(struct run *r)
{
	const struct trainer *t = r->trainer;
	char path[RUN_DIR_PATH];

	metrics_end(&r->metrics, t, atomic_load(&r->signalled) ? "signal" : "stop_after",
	        clock_s() - r->start_s);
	printf("stopped at step %" PRIu64 " of %" PRIu64 ", %s; --resume goes on from there\n",
	        t->step, trainer_steps_total(t), run_dir_checkpoint(&r->dir, t->step, path));
	return EXIT_OK;
}

static int finish_done(struct run *r)
{
	struct trainer *t = r->trainer;
	char path[RUN_DIR_PATH];
	struct err e;
	int rc = trainer_export(t, run_dir_file(&r->dir, "final.safetensors", path), &e);

	/* Resumed after the last step: there was nothing to train, and so nothing measured yet. */
	if (rc == 0 && t->has_test && (r->test.count == 0 || r->tested_step != t->step))
		rc = evaluate(r, EVAL_TEST, &e);
	if (rc != 0)
		return fail(r, rc, EXIT_FAILED, &e);
	metrics_end(&r->metrics, t, "done", clock_s() - r->start_s);
	if (r->test.count > 0)
		printf("test loss %.4f, accuracy %.2f%% (%" PRId64 " of %" PRId64 ")\n",
		        r->test.loss, 100.0 * (double)r->test.correct / (double)r->test.count,
		        r->test.correct, r->test.count);
	if (t->best_step > 0)
		printf("best validation loss %.4f at step %" PRIu64 ": %s/best.safetensors\n",
		        t->best_loss, t->best_step, r->dir.path);
	printf("weights: %s\n", path);
	return EXIT_OK;
}

static int run_train(struct run *r)
{
	struct err e;
	int rc, status = open_run(r);

	if (status != EXIT_OK)
		return status;
	say_header(r);
	if (trainer_done(r->trainer))
		progress_say(&r->progress, "this run is done already; more --epochs would go on");
	metrics_start(&r->metrics, r->trainer, r->resumed);
	r->start_s = r->saved_s = clock_s();
	rc = train(r, &e);
	if (rc == ERR_NONFINITE)
		status = finish_diverged(r, &e);
	else if (rc != 0) {
		metrics_end(&r->metrics, r->trainer, "failed", clock_s() - r->start_s);
		status = fail(r, rc, EXIT_FAILED, &e);
		tell_last_good(r);
	} else
		status = trainer_done(r->trainer) ? finish_done(r) : finish_stopped(r);
	watch_metrics(r);
	return status;
}

int cmd_train(int argc, char **argv)
{
	struct run r = {.dir = {.lock = -1}, .metrics = {.fd = -1}};
	struct cli_args args;
	struct err e;
	int status;

	if (!cli_begin(&r.config, &args, CMD_TRAIN, argc, argv, &status))
		return status;
	progress_init(&r.progress, &r.config);
	/* A closed terminal is a wish to stop, too. */
	if (signals_start(on_signal, &r, true,
	            "\ndunlin: stopped at once; the last checkpoint stands\n", &e) != 0)
		status = fail(&r, ERR_SYSTEM, EXIT_FAILED, &e);
	else
		status = run_train(&r);
	signals_to(NULL, NULL);
	metrics_close(&r.metrics);
	run_dir_close(&r.dir);
	trainer_free(r.trainer);
	config_close(&r.config);
	return status;
}

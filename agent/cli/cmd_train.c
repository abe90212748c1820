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
#include "agent/train/resume.h"
#include "agent/train/train_run.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct run {
	struct config config;
	struct trainer *trainer; /* owned */
	char out[LIMIT_PATH];
	struct run_dir dir;
	struct train_run loop;
	struct progress progress;
	bool resumed;
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

static int fail(struct run *r, int rc, int busy_with, const struct err *e)
{
	progress_clear(&r->progress);
	log_error("%s", e->msg);
	return exit_code(rc, busy_with);
}

/* ---- steps, and what is due behind them */

static void on_stepped(void *arg, const struct step_result *s, double seconds)
{
	struct run *r = arg;

	progress_step(&r->progress, r->trainer, s, seconds, train_run_now_s());
}

static void say_eval(struct run *r, const char *set, const struct eval_result *v)
{
	const struct trainer *t = r->trainer;
	char perplexity[40];

	if (v->count > 0)
		progress_say(&r->progress, "epoch %.3g  %s loss %.4f%s  acc %.2f%%",
		        (double)t->samples / (double)t->n_train, set, v->loss,
		        eval_perplexity(t->arch.tokens, v->loss, perplexity),
		        100.0 * (double)v->correct / (double)v->count);
}

static void note_test(struct run *r, const struct eval_result *v)
{
	say_eval(r, "test", v);
	r->test = *v;
	r->tested_step = r->trainer->step;
}

static int on_evaluated(void *arg, const struct learner_eval *v, const struct err *e)
{
	struct run *r = arg;

	say_eval(r, "validation", &v->validation);
	note_test(r, &v->r);
	return e->code;
}

static int on_saved(void *arg, const struct err *e)
{
	(void)arg;
	return e->code;
}

static void on_warns(void *arg)
{
	struct run *r = arg;

	progress_clear(&r->progress);
}

/* Steps until the end or until told to stop. */
static int train(struct run *r, struct err *e)
{
	int rc = 0;

	while (rc == 0 && !atomic_load(&r->signalled) && !train_run_over(&r->loop)) {
		rc = train_run_step(&r->loop, e);
		if (rc == ERR_IO && !atomic_load(&r->signalled) && !train_run_over(&r->loop)) {
			progress_clear(&r->progress);
			log_warn("%s: training goes on, the next checkpoint may succeed", e->msg);
			rc = 0;
		}
	}
	if (rc == 0)
		rc = train_run_save(&r->loop, e);
	progress_clear(&r->progress);
	return rc;
}

/* ---- the beginning */

static int resume(struct run *r, struct err *e)
{
	char path[RUN_DIR_PATH];
	int rc = resume_newest(r->trainer, &r->dir, path, &r->resumed, e);

	if (rc == 0 && r->resumed)
		progress_say(&r->progress, "resumed %s at step %" PRIu64, path, r->trainer->step);
	else if (rc == 0)
		progress_say(&r->progress, "no whole checkpoint in %s: starting anew", r->dir.path);
	return rc;
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
		return fail(r, rc, trainer_exit_code(rc, part), &e);
	if (!c->run.resume && c->run.init_from[0] != '\0')
		rc = trainer_init_from(r->trainer, c->run.init_from, &e);
	return rc != 0 ? fail(r, rc, EXIT_MODEL, &e) : EXIT_OK;
}

/* The trainer first: what is wrong with the settings must not leave a folder behind. */
static int open_run(struct run *r)
{
	const struct config *c = &r->config;
	const struct train_run_callbacks cb = {.arg = r,
	        .stepped_cb = on_stepped,
	        .evaluated_cb = on_evaluated,
	        .saved_cb = on_saved,
	        .warns_cb = on_warns};
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
	rc = train_run_begin(&r->loop, r->trainer, &r->dir, &cb, r->resumed, &e);
	return rc != 0 ? fail(r, rc, EXIT_FAILED, &e) : EXIT_OK;
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
	        "data    %" PRIu32 " samples to train on%s%s; %s, %" PRId64 " %s", t->n_train,
	        validation, test, shape_text(&t->arch.input, shape), t->arch.classes,
	        t->arch.tokens ? "tokens in the vocabulary" : "classes");
	progress_say(&r->progress, "output  %s", r->dir.path);
}

/* ---- the end */

static void tell_last_good(const struct run *r)
{
	char path[RUN_DIR_PATH];

	if (r->loop.saved)
		log_error("the last good checkpoint is %s",
		        run_dir_checkpoint(&r->dir, r->loop.saved_step, path));
	else
		log_error("there was no checkpoint yet");
}

static int finish_diverged(struct run *r, const struct err *e)
{
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

	printf("stopped at step %" PRIu64 " of %" PRIu64 ", %s; --resume goes on from there\n",
	        t->step, trainer_steps_total(t), run_dir_checkpoint(&r->dir, t->step, path));
	return EXIT_OK;
}

/* The weights, and what was not measured yet: resumed after the last step there was nothing to
 * train. */
static int write_result(struct run *r, struct err *e)
{
	struct trainer *t = r->trainer;
	char path[RUN_DIR_PATH];
	struct eval_result test;
	int rc = trainer_export(t, run_dir_file(&r->dir, "final.safetensors", path), e);

	if (rc != 0 || !t->has_test || (r->test.count > 0 && r->tested_step == t->step))
		return rc;
	rc = train_run_evaluate_set(&r->loop, EVAL_TEST, &test, e);
	if (rc == 0)
		note_test(r, &test);
	return rc;
}

static int finish_done(const struct run *r)
{
	const struct trainer *t = r->trainer;
	char perplexity[40];

	if (r->test.count > 0)
		printf("test loss %.4f%s, accuracy %.2f%% (%" PRId64 " of %" PRId64 ")\n",
		        r->test.loss, eval_perplexity(t->arch.tokens, r->test.loss, perplexity),
		        100.0 * (double)r->test.correct / (double)r->test.count, r->test.correct,
		        r->test.count);
	if (t->best_step > 0)
		printf("best validation loss %.4f at step %" PRIu64 ": %s/best.safetensors\n",
		        t->best_loss, t->best_step, r->dir.path);
	printf("weights: %s/final.safetensors\n", r->dir.path);
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
	rc = train(r, &e);
	const bool trained = rc == 0;

	if (rc == 0 && trainer_done(r->trainer))
		rc = write_result(r, &e);
	train_run_end(&r->loop, rc, "signal");
	if (rc == ERR_NONFINITE && !trained)
		return finish_diverged(r, &e);
	if (rc != 0) {
		status = fail(r, rc, EXIT_FAILED, &e);
		if (!trained)
			tell_last_good(r);
		return status;
	}
	return trainer_done(r->trainer) ? finish_done(r) : finish_stopped(r);
}

int cmd_train(int argc, char **argv)
{
	struct run r = {.dir = {.lock = -1}};
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
	run_dir_close(&r.dir);
	trainer_free(r.trainer);
	config_close(&r.config);
	return status;
}

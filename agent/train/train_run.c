/* SPDX-License-Identifier: MIT */
/* The happy path is in the header. What can fail: a step, which is the caller's to tell; a
 * checkpoint on a full disk, of which the caller decides whether training goes on; the metrics,
 * whose first failure is a warning. */
#include "agent/train/train_run.h"

#include "agent/base/log.h"

#include <uv.h>

#define METRICS_EVERY_STEPS 50

double train_run_now_s(void)
{
	return 1e-9 * (double)uv_hrtime();
}

static void warns(const struct train_run *r)
{
	if (r->cb.warns_cb)
		r->cb.warns_cb(r->cb.arg);
}

static void watch_metrics(struct train_run *r)
{
	if (r->metrics.broken.code == 0 || r->metrics_told)
		return;
	r->metrics_told = true;
	warns(r);
	log_warn("%s: no more metrics are written, training goes on", r->metrics.broken.msg);
}

/* How many of the run's evaluations are behind its clock. */
static uint64_t evaluations(const struct train_run *r)
{
	const struct trainer *t = r->trainer;
	double epochs = (double)trainer_clock(t) / (double)trainer_epoch_samples(t);

	return (uint64_t)(epochs / t->config->run.eval_epochs);
}

int train_run_begin(struct train_run *r, struct trainer *t, const struct run_dir *dir,
        const struct train_run_callbacks *cb, bool resumed, struct err *e)
{
	const char *name = t->config->run.metrics;
	char path[RUN_DIR_PATH];
	int rc;

	*r = (struct train_run){.trainer = t,
	        .dir = dir,
	        .cb = *cb,
	        .unsaved = !resumed,
	        .saved = resumed,
	        .saved_step = t->step,
	        .first_step = t->step,
	        .begin_s = train_run_now_s()};
	r->saved_s = r->begin_s;
	r->evaluations = evaluations(r);
	rc = metrics_open(
	        &r->metrics, name[0] != '\0' ? name : run_dir_file(dir, "metrics.jsonl", path), e);
	if (rc != 0)
		r->metrics.broken = *e;
	r->metrics_told = rc != 0;
	if (t->config->train.batch_adapt != BATCH_ADAPT_OFF &&
	        t->config->data.partition.kind == PARTITION_LABEL)
		log_warn("train.batch_adapt with data.partition.kind \"label\": the norm test is "
		         "proven for agents whose data are alike; these batches may grow too soon");
	metrics_start(&r->metrics, t, resumed);
	return rc;
}

bool train_run_over(const struct train_run *r)
{
	const struct trainer *t = r->trainer;
	const uint64_t limit = (uint64_t)t->config->run.stop_after;

	return trainer_done(t) || (limit > 0 && t->step - r->first_step >= limit);
}

int train_run_save(struct train_run *r, struct err *e)
{
	struct trainer *t = r->trainer;
	const double begin_s = train_run_now_s();
	char path[RUN_DIR_PATH];
	struct err why;
	int rc;

	if (!r->unsaved)
		return 0;
	rc = trainer_save(t, run_dir_checkpoint(r->dir, t->step, path), e);
	r->saved_s = train_run_now_s(); /* also after a failure: not again at every step */
	if (rc != 0)
		return rc;
	r->unsaved = false;
	r->saved = true;
	r->saved_step = t->step;
	metrics_checkpoint(&r->metrics, t, path, r->saved_s - begin_s);
	if (run_dir_rotate(r->dir, t->config->run.keep, &why) != 0) {
		warns(r);
		log_warn("old checkpoints: %s", why.msg);
	}
	return 0;
}

int train_run_evaluate_set(
        struct train_run *r, enum eval_set set, struct eval_result *out, struct err *e)
{
	const double begin_s = train_run_now_s();
	int rc = trainer_evaluate(r->trainer, set, out, e);

	if (rc == 0)
		metrics_eval(&r->metrics, r->trainer, set, out, train_run_now_s() - begin_s);
	return rc;
}

/* Two models of one step may be looked at, before and after the merge rounds: the loss tells which
 * is meant. Before the checkpoint that will remember this best: killed in between, a resumed run
 * comes here again and writes the same file. */
static int keep_best(struct train_run *r, const struct eval_result *validation, struct err *e)
{
	struct trainer *t = r->trainer;
	char path[RUN_DIR_PATH];

	if (t->best_step != t->step || t->best_loss != validation->loss)
		return 0;
	return trainer_save(t, run_dir_file(r->dir, "best.safetensors", path), e);
}

int train_run_evaluate(struct train_run *r, bool whole, struct learner_eval *v, struct err *e)
{
	struct trainer *t = r->trainer;
	const double begin_s = train_run_now_s();
	enum eval_set set = whole || t->part_loader == NULL ? EVAL_TEST : EVAL_TEST_PART;
	int rc = 0;

	*v = (struct learner_eval){
	        .step = t->step, .clock = trainer_clock(t), .whole = set == EVAL_TEST};
	if (t->n_val > 0)
		rc = train_run_evaluate_set(r, EVAL_VALIDATION, &v->validation, e);
	if (rc == 0 && t->has_test)
		rc = train_run_evaluate_set(r, set, &v->r, e);
	v->best_step = t->best_step;
	v->best_loss = t->best_loss;
	v->seconds = train_run_now_s() - begin_s;
	return rc == 0 && t->n_val > 0 ? keep_best(r, &v->validation, e) : rc;
}

static bool save_due(const struct train_run *r, uint64_t step)
{
	const struct config *c = r->trainer->config;
	const uint64_t steps = (uint64_t)c->run.checkpoint_steps;

	return (steps > 0 && step % steps == 0) ||
	       (c->run.checkpoint_s > 0 && train_run_now_s() - r->saved_s >= c->run.checkpoint_s);
}

/* A run of one agent alone looks, and keeps, at the end of each epoch and of the run. */
static int after_step(struct train_run *r, const struct step_result *s, struct err *e)
{
	struct trainer *t = r->trainer;
	const bool epoch = !t->flock && (s->epoch_end || trainer_done(t));
	const bool due = epoch || (t->flock && evaluations(r) > r->evaluations);
	struct learner_eval v;
	int rc = 0;

	*e = (struct err){0};
	if (s->step % METRICS_EVERY_STEPS == 0 || due || trainer_done(t)) {
		metrics_step(&r->metrics, t, s, (double)r->busy_samples / r->busy_s);
		r->busy_s = 0;
		r->busy_samples = 0;
	}
	r->evaluations = evaluations(r);
	if (due && trainer_evaluates(t)) {
		e->code = train_run_evaluate(r, false, &v, e);
		rc = r->cb.evaluated_cb(r->cb.arg, &v, e);
	}
	if (rc == 0 && (epoch || save_due(r, s->step))) {
		e->code = train_run_save(r, e);
		rc = r->cb.saved_cb(r->cb.arg, e);
	}
	watch_metrics(r);
	return rc;
}

int train_run_step(struct train_run *r, struct err *e)
{
	const double begin_s = train_run_now_s();
	struct step_result s;
	double seconds;
	int rc = trainer_step(r->trainer, &s, e);

	if (rc != 0)
		return rc;
	seconds = train_run_now_s() - begin_s;
	r->unsaved = true;
	r->busy_s += seconds;
	r->busy_samples += s.step_samples;
	r->cb.stepped_cb(r->cb.arg, &s, seconds);
	return after_step(r, &s, e);
}

void train_run_end(struct train_run *r, int failed, const char *stopped)
{
	const char *reason = stopped;

	if (!r->trainer)
		return;
	if (failed != 0)
		reason = failed == ERR_NONFINITE ? "diverged" : "failed";
	else if (train_run_over(r))
		reason = trainer_done(r->trainer) ? "done" : "stop_after";
	metrics_end(&r->metrics, r->trainer, reason, train_run_now_s() - r->begin_s);
	watch_metrics(r);
	metrics_close(&r->metrics);
	r->trainer = NULL;
}

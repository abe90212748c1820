/* SPDX-License-Identifier: MIT */
/* The trainer: brings data, model, device and optimiser together and runs them step by step.
 *
 * Everything that a run does is a function of its config and of two counters, step and samples:
 * which samples come next (the loader's position), the learning rate (a schedule over samples), the
 * dropout masks (a mix of seed, step and micro-batch). So a checkpoint needs no generator states,
 * and a resumed run gives the same bits.
 *
 * The happy path: trainer_new, trainer_step until trainer_done. What can fail: files in
 * trainer_new, the device at any time, and training itself, when the loss leaves the finite
 * numbers; then the step is not applied. Saving and restoring are in trainer_state.c. */
#include "agent/trainer.h"

#include "agent/base/rng.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

uint32_t *index_all(uint32_t n)
{
	uint32_t *index = malloc(n * sizeof *index);

	for (uint32_t i = 0; index != NULL && i < n; i++)
		index[i] = i;
	return index;
}

static int open_test(struct trainer *t, struct err *e)
{
	const struct config *c = t->config;
	char have[64], want[64];
	int rc;

	if (c->data.test_images[0] == '\0')
		return 0;
	rc = dataset_read_idx(
	        &t->test_data, c->data.test_images, c->data.test_labels, t->train_data.classes, e);
	if (rc != 0)
		return rc;
	t->has_test = true;
	if (!shape_equal(&t->test_data.shape, &t->train_data.shape))
		return err_set(e, ERR_MISMATCH, "%s: samples of %s, but those to train on are %s",
		        c->data.test_images, shape_text(&t->test_data.shape, have),
		        shape_text(&t->train_data.shape, want));
	t->test_index = index_all(t->test_data.count);
	if (t->test_index == NULL)
		return err_set(e, ERR_NOMEM, "no memory for the test set's order");
	return 0;
}

int trainer_normalisation(
        const struct config *c, const struct dataset *d, double *mean, double *std, struct err *e)
{
	struct partition all = c->data.partition;
	uint32_t *index = NULL, *val = NULL, n, n_val;
	int rc;

	all.kind = PARTITION_ALL;
	rc = data_split(d, &all, c->data.validation, &index, &n, &val, &n_val, e);
	if (rc != 0)
		return rc;
	dataset_statistics(d, index, n, mean, std);
	free(index);
	free(val);
	return 0;
}

static int open_data(struct trainer *t, struct err *e)
{
	const struct config *c = t->config;
	int rc = dataset_read_idx(
	        &t->train_data, c->data.train_images, c->data.train_labels, c->data.classes, e);

	if (rc == 0)
		rc = open_test(t, e);
	if (rc == 0)
		rc = data_split(&t->train_data, &c->data.partition, c->data.validation,
		        &t->train_index, &t->n_train, &t->val_index, &t->n_val, e);
	if (rc == 0)
		rc = trainer_normalisation(c, &t->train_data, &t->mean, &t->std, e);
	return rc;
}

static int open_device(struct trainer *t, struct err *e)
{
	const struct config *c = t->config;
	const struct device_config dc = {
	        .threads = (int)c->run.threads,
	        .deterministic = c->run.deterministic,
	};
	int rc = device_open(&t->dev, c->run.device, &dc, t->device_why, e);

	if (rc == 0)
		rc = net_new(&t->net, &t->arch, t->dev, c->train.batch, e);
	if (rc == 0)
		rc = optim_init(&t->optim, &c->train.optim, t->net, e);
	return rc;
}

static int open_loader(struct trainer *t, struct loader **out, struct loader_config lc,
        struct loader_position at, struct err *e)
{
	const struct config *c = t->config;

	lc.batch = c->train.batch;
	lc.seed = (uint64_t)c->data.seed;
	lc.mean = t->mean;
	lc.std = t->std;
	lc.ahead = (int)c->data.ahead;
	return loader_new(out, &lc, at, e);
}

int trainer__loader(
        struct trainer *t, struct loader **out, struct loader_position at, struct err *e)
{
	const struct loader_config lc = {
	        .data = &t->train_data,
	        .index = t->train_index,
	        .n_index = t->n_train,
	        .augment = t->config->data.augment,
	        .shuffle = true,
	};

	return open_loader(t, out, lc, at, e);
}

static int open_loaders(struct trainer *t, struct err *e)
{
	const struct loader_config val = {
	        .data = &t->train_data, .index = t->val_index, .n_index = t->n_val};
	const struct loader_config test = {
	        .data = &t->test_data, .index = t->test_index, .n_index = t->test_data.count};
	const struct loader_position start = {0};
	int rc = trainer__loader(t, &t->loader, start, e);

	if (rc == 0 && t->n_val > 0)
		rc = open_loader(t, &t->val_loader, val, start, e);
	if (rc == 0 && t->has_test)
		rc = open_loader(t, &t->test_loader, test, start, e);
	return rc;
}

static uint64_t epochs_to_samples(const struct trainer *t, double epochs)
{
	return (uint64_t)llround(epochs * (double)t->n_train);
}

static void plan_schedule(struct trainer *t)
{
	const struct config *c = t->config;
	uint64_t step = epochs_to_samples(t, c->train.step_epochs);
	uint64_t total = epochs_to_samples(t, c->train.epochs);

	t->schedule = (struct schedule){
	        .kind = (enum schedule_kind)c->train.schedule,
	        .warmup = epochs_to_samples(t, c->train.warmup_epochs),
	        .total = total > 0 ? total : 1,
	        .step = step > 0 ? step : 1,
	        .step_factor = c->train.step_factor,
	        .floor = c->train.lr_floor,
	};
}

static int init_weights(struct trainer *t, struct err *e)
{
	float *values = malloc(t->arch.n_total * sizeof *values);

	if (values == NULL)
		return err_set(e, ERR_NOMEM, "no memory for %zu parameters", t->arch.n_total);
	arch_init_params(&t->arch, (uint64_t)t->config->train.seed, values);
	net_set_params(t->net, values);
	free(values);
	return 0;
}

int trainer_new(
        struct trainer **out, const struct config *c, enum trainer_part *part, struct err *e)
{
	enum trainer_part at = TRAINER_DATA;
	struct trainer *t = calloc(1, sizeof *t);
	int rc;

	*out = NULL;
	if (t == NULL)
		return err_set(e, ERR_NOMEM, "no memory for a trainer");
	t->config = c;
	rc = open_data(t, e);
	if (rc == 0) {
		at = TRAINER_MODEL;
		rc = config_arch(c, &t->train_data.shape, t->train_data.classes, &t->arch, e);
	}
	if (rc == 0) {
		at = TRAINER_DEVICE;
		rc = open_device(t, e);
	}
	if (rc == 0) {
		at = TRAINER_DATA;
		rc = open_loaders(t, e);
	}
	if (rc == 0)
		rc = init_weights(t, e);
	if (rc != 0) {
		if (part != NULL)
			*part = at;
		trainer_free(t);
		return rc;
	}
	plan_schedule(t);
	*out = t;
	return 0;
}

void trainer_free(struct trainer *t)
{
	if (t == NULL)
		return;
	loader_free(t->test_loader);
	loader_free(t->val_loader);
	loader_free(t->loader);
	if (t->optim.net != NULL)
		optim_close(&t->optim);
	if (t->net != NULL)
		net_free(t->net);
	if (t->dev != NULL)
		device_close(t->dev);
	arch_close(&t->arch);
	free(t->test_index);
	free(t->val_index);
	free(t->train_index);
	dataset_close(&t->test_data);
	dataset_close(&t->train_data);
	free(t);
}

static uint64_t samples_per_step(const struct trainer *t)
{
	return (uint64_t)(t->config->train.batch * t->config->train.accumulate);
}

bool trainer_done(const struct trainer *t)
{
	return t->samples >= t->schedule.total;
}

uint64_t trainer_steps_total(const struct trainer *t)
{
	uint64_t per_step = samples_per_step(t);

	if (trainer_done(t))
		return t->step;
	return t->step + (t->schedule.total - t->samples + per_step - 1) / per_step;
}

uint64_t trainer_epoch(const struct trainer *t)
{
	return t->samples / t->n_train;
}

int trainer_step(struct trainer *t, struct step_result *r, struct err *e)
{
	const struct config *c = t->config;
	const uint64_t per_step = samples_per_step(t), epoch = trainer_epoch(t);
	double loss_sum = 0;
	int rc;

	*r = (struct step_result){
	        .step = t->step + 1,
	        .samples = t->samples + per_step,
	        .lr = c->train.optim.lr * schedule_factor(&t->schedule, t->samples),
	};
	for (int64_t k = 0; k < c->train.accumulate; k++) {
		const struct batch *b = loader_next(t->loader);
		struct loss_result part;

		assert(b != NULL && b->count == c->train.batch);
		rc = net_train(t->net, b->x, b->labels, k > 0, 1.0f / (float)per_step,
		        rng_mix((uint64_t)c->train.seed, t->step, (uint64_t)k), &part, e);
		if (rc != 0)
			return rc;
		loss_sum += part.loss_sum;
		r->correct += part.correct;
		r->count += part.count;
	}
	r->loss = loss_sum / (double)r->count;
	if (!isfinite(r->loss))
		return err_set(e, ERR_NONFINITE,
		        "step %" PRIu64 ": the loss is not a finite number", r->step);
	rc = optim_step(&t->optim, r->lr, &r->grad_norm, e);
	if (rc != 0) {
		err_prefix(e, "step %" PRIu64, r->step);
		return rc;
	}
	t->step = r->step;
	t->samples = r->samples;
	r->epoch_end = trainer_epoch(t) > epoch;
	return 0;
}

int eval_run(struct net *net, struct loader *l, struct eval_result *r, struct err *e)
{
	const struct batch *b;
	double loss_sum = 0;

	*r = (struct eval_result){0};
	loader_rewind(l);
	while ((b = loader_next(l)) != NULL) {
		struct loss_result part;
		int rc = net_eval(net, b->x, b->labels, b->count, &part, e);

		if (rc != 0)
			return rc;
		loss_sum += part.loss_sum;
		r->correct += part.correct;
		r->count += part.count;
	}
	r->loss = loss_sum / (double)r->count;
	return 0;
}

int trainer_evaluate(struct trainer *t, enum eval_set set, struct eval_result *r, struct err *e)
{
	struct loader *l = set == EVAL_VALIDATION ? t->val_loader : t->test_loader;
	int rc;

	if (l == NULL)
		return err_set(e, ERR_NOTFOUND, "no %s set in the config",
		        set == EVAL_VALIDATION ? "validation" : "test");
	rc = eval_run(t->net, l, r, e);
	if (rc != 0)
		return rc;
	/* The test set never decides what is best: a figure that was chosen by means of the test
	 * set says nothing about data not seen. Without validation there is no best. */
	if (set == EVAL_VALIDATION && isfinite(r->loss) &&
	        (t->best_step == 0 || r->loss < t->best_loss)) {
		t->best_step = t->step;
		t->best_loss = r->loss;
	}
	return 0;
}

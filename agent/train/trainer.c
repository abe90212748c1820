/* SPDX-License-Identifier: MIT */
/* The trainer: brings data, model, device and optimiser together and runs them step by step.
 *
 * Everything that a run does is a function of its config and of two counters, step and samples:
 * which samples come next (the loader's position), the learning rate (a schedule over samples), the
 * dropout masks (a mix of seed, step and micro-batch). So a checkpoint needs no generator states,
 * and a resumed run gives the same bits. In a flock a third number, the samples of all others, is
 * added to the own where schedule and end are concerned, and nowhere else; and the agent's identity
 * is mixed into the seeds of what must differ between agents: order, augmentation and dropout. How
 * the data is split and the initial weights must be equal at all agents: their seeds stay as they
 * are in the config.
 *
 * The happy path: trainer_new, trainer_step until trainer_done. What can fail: files in
 * trainer_new, the device at any time, and training itself, when the loss leaves the finite
 * numbers; then the step is not applied. Saving and restoring are in trainer_state.c. */
#include "agent/train/trainer.h"

#include "agent/train/weights.h"
#include "model/graph/outer.h"
#include "model/graph/stats.h"

#include "agent/base/exit_code.h"
#include "agent/base/rng.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* At the momentum's length: steps after the parameters were set, and steps between later looks. */
#define LOOK_FIRST 16
#define LOOK_EVERY 16

uint32_t *index_all(uint32_t n)
{
	uint32_t *index = malloc(n * sizeof *index);

	for (uint32_t i = 0; index != NULL && i < n; i++)
		index[i] = i;
	return index;
}

int trainer_dataset(const struct config *c, enum data_part part, int64_t classes, struct dataset *d,
        struct err *e)
{
	const bool test = part == DATA_TEST;
	const char *images = test ? c->data.test_images : c->data.train_images;
	const char *labels = test ? c->data.test_labels : c->data.train_labels;

	if (c->data.path[0] != '\0')
		return dataset_read(
		        d, c->data.format, c->data.path, part, classes, c->data.context, e);
	if (images[0] == '\0')
		return err_set(e, ERR_NOTFOUND, "no files are named");
	return dataset_read_idx(d, images, labels, classes, e);
}

int trainer_test_set(
        const struct config *c, const struct dataset *train, struct dataset *d, struct err *e)
{
	if (c->data.path[0] == '\0')
		return trainer_dataset(c, DATA_TEST, train->classes, d, e);
	return dataset_read_beside(d, train, c->data.format, c->data.path, DATA_TEST,
	        train->classes, c->data.context, e);
}

static int open_test(struct trainer *t, struct err *e)
{
	const struct config *c = t->config;
	char have[64], want[64];
	int rc;

	rc = trainer_test_set(c, &t->train_data, &t->test_data, e);
	if (rc == ERR_NOTFOUND)
		return 0;
	if (rc != 0)
		return rc;
	t->has_test = true;
	if (!shape_equal(&t->test_data.shape, &t->train_data.shape))
		return err_set(e, ERR_MISMATCH, "%s: samples of %s, but those to train on are %s",
		        c->data.path[0] != '\0' ? c->data.path : c->data.test_images,
		        shape_text(&t->test_data.shape, have),
		        shape_text(&t->train_data.shape, want));
	t->test_index = index_all(t->test_data.count);
	if (t->test_index == NULL)
		return err_set(e, ERR_NOMEM, "no memory for the test set's order");
	return 0;
}

/* Over what is not held out, and how many that are. */
static int whole_set(const struct config *c, const struct dataset *d, struct normalisation *norm,
        uint32_t *n, struct err *e)
{
	struct partition all = c->data.partition;
	uint32_t *index = NULL, *val = NULL, n_val;
	int rc;

	all.kind = PARTITION_ALL;
	rc = data_split(d, &all, c->data.validation, &index, n, &val, &n_val, e);
	if (rc != 0)
		return rc;
	dataset_statistics(d, index, *n, norm);
	free(index);
	free(val);
	return 0;
}

int trainer_normalisation(
        const struct config *c, const struct dataset *d, struct normalisation *norm, struct err *e)
{
	uint32_t n;

	return whole_set(c, d, norm, &n, e);
}

static int open_data(struct trainer *t, struct err *e)
{
	const struct config *c = t->config;
	int rc = trainer_dataset(c, DATA_TRAIN, c->data.classes, &t->train_data, e);

	if (rc == 0)
		rc = open_test(t, e);
	if (rc == 0)
		rc = data_split(&t->train_data, &c->data.partition, c->data.validation,
		        &t->train_index, &t->n_train, &t->val_index, &t->n_val, e);
	if (rc == 0)
		rc = whole_set(c, &t->train_data, &t->norm, &t->n_whole, e);
	return rc;
}

/* A step that holds a sample twice is a mistake in a setting, or a part that is too small. */
static int check_batch(const struct trainer *t, struct err *e)
{
	const struct config *c = t->config;
	const int64_t batch = c->train.batch, times = c->train.accumulate;
	char step[64] = "";

	if (batch * times <= (int64_t)t->n_train)
		return 0;
	if (times > 1)
		snprintf(step, sizeof step, ", %" PRId64 " with train.accumulate", batch * times);
	return err_set(e, ERR_INVALID,
	        "train.batch: %" PRId64 " samples a step%s, but there are only %" PRIu32
	        " to train on%s: choose a smaller --batch",
	        batch, step, t->n_train,
	        c->data.partition.kind == PARTITION_ALL ? "" : " in this part");
}

static int open_device(struct trainer *t, struct err *e)
{
	const struct config *c = t->config;
	const struct device_config dc = {
	        .threads = (int)c->run.threads,
	        .deterministic = c->run.deterministic,
	        .tf32 = c->run.tf32,
	};
	int rc = device_open(&t->dev, c->run.device, &dc, t->device_why, e);

	if (rc == 0)
		rc = graph_new(&t->net, &t->arch, t->dev, c->train.batch, e);
	if (rc == 0)
		rc = optim_init(&t->optim, &c->train.optim, t->net, e);
	return rc;
}

int trainer__open_loader(struct trainer *t, struct loader **out, struct loader_config lc,
        struct loader_position at, struct err *e)
{
	const struct config *c = t->config;

	lc.batch = c->train.batch;
	lc.seed = (uint64_t)t->order_seed;
	lc.window_seed = (uint64_t)c->data.seed;
	lc.norm = t->norm;
	lc.ahead = (int)c->data.ahead;
	lc.dev = t->dev;
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

	return trainer__open_loader(t, out, lc, at, e);
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
		rc = trainer__open_loader(t, &t->val_loader, val, start, e);
	if (rc == 0 && t->has_test)
		rc = trainer__open_loader(t, &t->test_loader, test, start, e);
	return rc;
}

/* No step holds a sample twice. */
static void plan_batch(struct trainer *t)
{
	const struct config *c = t->config;
	const uint64_t micro = (uint64_t)c->train.batch;
	const uint64_t first = micro * (uint64_t)c->train.accumulate;
	uint64_t most = (uint64_t)c->train.batch_max;

	most = most < t->n_train ? most : t->n_train;
	t->batch_config = (struct batch_config){.eta = c->train.batch_eta,
	        .micro = micro,
	        .first = first,
	        .most = most > first ? most : first};
	batch_start(&t->batch, &t->batch_config);
	t->agents = 1;
}

static uint64_t epochs_to_samples(const struct trainer *t, double epochs)
{
	return (uint64_t)llround(epochs * (double)trainer_epoch_samples(t));
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
	graph_set_params(t->net, values);
	free(values);
	return graph_check(t->net, e);
}

int trainer_exit_code(int err_code, enum trainer_part part)
{
	static const int busy_with[] = {[TRAINER_DATA] = EXIT_DATA,
	        [TRAINER_MODEL] = EXIT_CONFIG,
	        [TRAINER_DEVICE] = EXIT_DEVICE};

	/* A model that this device cannot run: one of the two settings is wrong. */
	if (part == TRAINER_DEVICE && err_code == ERR_UNSUPPORTED)
		return EXIT_CONFIG;
	return exit_code(err_code, busy_with[part]);
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
	t->order_seed = c->data.seed;
	t->dropout_seed = (uint64_t)c->train.seed;
	rc = open_data(t, e);
	if (rc == 0) {
		at = TRAINER_MODEL;
		rc = check_batch(t, e);
	}
	if (rc == 0)
		rc = config_arch_to_train(c, &t->train_data, &t->arch, e);
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
	plan_batch(t);
	*out = t;
	return 0;
}

void trainer_free(struct trainer *t)
{
	if (t == NULL)
		return;
	loader_free(t->try_loader);
	loader_free(t->part_loader);
	loader_free(t->test_loader);
	loader_free(t->val_loader);
	loader_free(t->loader);
	if (t->optim.net != NULL)
		optim_close(&t->optim);
	if (t->net != NULL)
		graph_free(t->net);
	if (t->dev != NULL)
		device_close(t->dev);
	arch_close(&t->arch);
	free(t->outer);
	free(t->phi);
	free(t->part_index);
	free(t->test_index);
	free(t->val_index);
	free(t->train_index);
	dataset_close(&t->test_data);
	dataset_close(&t->train_data);
	free(t);
}

/* Agents that trained on the same images at the same time would gain less by averaging, and of a
 * short run nobody would see the end of the order. */
static int own_order(struct trainer *t, uint64_t identity, struct err *e)
{
	const struct loader_position start = {0};
	const uint64_t order = rng_mix((uint64_t)t->config->data.seed, identity, 0);

	t->order_seed = (int64_t)order;
	t->dropout_seed = rng_mix((uint64_t)t->config->train.seed, order, 0);
	loader_free(t->loader);
	t->loader = NULL;
	return trainer__loader(t, &t->loader, start, e);
}

/* At most so many of the samples held out, evenly spread: always the same, or no two losses could
 * be compared. */
static int bound_validation(struct trainer *t, uint64_t part, struct err *e)
{
	const struct loader_config lc = {
	        .data = &t->train_data, .index = t->val_index, .n_index = (uint32_t)part};
	const struct loader_position start = {0};

	if (t->n_val <= part)
		return 0;
	loader_free(t->val_loader);
	t->val_loader = NULL;
	for (uint64_t i = 0; i < part; i++)
		t->val_index[i] = t->val_index[i * t->n_val / part];
	return trainer__open_loader(t, &t->val_loader, lc, start, e);
}

/* The rules of outer optimizers are computed on the host. NoLoCo's own vectors are there, and it
 * reads parameters at an exchange only; QGM is the optimizer of every step. */
static int open_outer(struct trainer *t, struct err *e)
{
	const int kind = t->config->gossip.outer;

	if (kind == OUTER_QGM && t->dev->backend->host_alloc != NULL)
		return err_set(e, ERR_UNSUPPORTED,
		        "gossip.outer: qgm is computed by the CPU only: --device cpu");
	t->optim.qgm = kind == OUTER_QGM;
	if (kind != OUTER_NOLOCO)
		return 0;
	t->phi = malloc(t->arch.n_train * sizeof *t->phi);
	t->outer = malloc(t->arch.n_train * sizeof *t->outer);
	if (t->phi == NULL || t->outer == NULL)
		return err_set(e, ERR_NOMEM, "no memory for gossip.outer");
	trainer__params_set(t);
	return 0;
}

int trainer_flock(struct trainer *t, uint64_t identity, bool layer_norms, struct err *e)
{
	const uint64_t n = t->has_test ? t->test_data.count : 0;
	const struct loader_position start = {0};
	const uint32_t part = (uint32_t)t->config->run.eval_samples;
	struct loader_config lc = {.data = &t->test_data, .n_index = part};
	int rc;

	assert(!t->flock && t->step == 0);
	rc = own_order(t, identity, e);
	if (rc == 0 && n > part) {
		t->part_index = malloc(part * sizeof *t->part_index);
		if (t->part_index == NULL)
			return err_set(e, ERR_NOMEM, "no memory for a part of the test set");
		for (uint64_t i = 0; i < part; i++)
			t->part_index[i] = (uint32_t)(i * n / part);
		lc.index = t->part_index;
		rc = trainer__open_loader(t, &t->part_loader, lc, start, e);
	}
	if (rc == 0)
		rc = open_outer(t, e);
	if (rc == 0)
		rc = bound_validation(t, part, e);
	if (rc == 0 && !trainer_evaluates(t)) {
		lc = (struct loader_config){.data = &t->train_data,
		        .index = t->train_index,
		        .n_index = t->n_train < part ? t->n_train : part};
		rc = trainer__open_loader(t, &t->try_loader, lc, start, e);
	}
	if (rc != 0)
		return rc;
	t->flock = true;
	t->want_layer_norms = layer_norms;
	plan_schedule(t);
	return 0;
}

void trainer_set_others(struct trainer *t, uint64_t samples)
{
	if (samples > t->others)
		t->others = samples;
}

void trainer_set_agents(struct trainer *t, uint64_t agents)
{
	t->agents = agents > 0 ? agents : 1;
}

uint64_t trainer_clock(const struct trainer *t)
{
	return t->flock ? t->samples + t->others : t->samples;
}

uint64_t trainer_epoch_samples(const struct trainer *t)
{
	return t->flock ? t->n_whole : t->n_train;
}

static bool adapts(const struct trainer *t)
{
	return t->config->train.batch_adapt != BATCH_ADAPT_OFF;
}

uint64_t trainer_step_samples(const struct trainer *t)
{
	const uint64_t total = t->schedule.total, clock = trainer_clock(t);

	if (!adapts(t))
		return t->batch_config.first;
	return batch_now(
	        &t->batch, &t->batch_config, t->agents, total > clock ? total - clock : 0, total);
}

uint64_t trainer_batch(const struct trainer *t, double *noise, double *signal)
{
	*noise = *signal = 0;
	if (!adapts(t))
		return 0;
	if (!batch_known(&t->batch, noise, signal))
		*noise = *signal = 0;
	return t->batch.size;
}

bool trainer_done(const struct trainer *t)
{
	return trainer_clock(t) >= t->schedule.total;
}

uint64_t trainer_steps_total(const struct trainer *t)
{
	uint64_t per_step = trainer_step_samples(t);

	if (trainer_done(t))
		return t->step;
	return t->step + (t->schedule.total - trainer_clock(t) + per_step - 1) / per_step;
}

uint64_t trainer_epoch(const struct trainer *t)
{
	return trainer_clock(t) / trainer_epoch_samples(t);
}

void trainer__params_set(struct trainer *t)
{
	t->moved = 0;
	t->momentum_norm = 0;
	t->since_set = 0;
	t->optim.rate = 0;
	if (t->phi == NULL)
		return;
	t->dev->backend->download(t->dev, t->phi, t->net->params, t->arch.n_train * sizeof *t->phi);
	memset(t->outer, 0, t->arch.n_train * sizeof *t->outer);
	t->since_outer = 0;
}

/* What a flock wants to know of a step that was just taken with that learning rate. */
static int measure(struct trainer *t, double lr, struct err *e)
{
	const struct backend *b = t->dev->backend;
	const uint64_t n = t->since_set++;
	double squares;
	int rc;

	t->layer_norms = 0;
	for (int i = 0; t->want_layer_norms && i < t->arch.n_views; i++) {
		const struct param_view *v = &t->arch.views[i];

		if (v->group == PARAM_STAT)
			continue;
		rc = b->sum_squares(t->dev, t->net->grads + v->offset, v->count, &squares, e);
		if (rc != 0)
			return rc;
		t->layer_norms += sqrt(squares);
	}
	if (t->config->train.optim.kind == OPTIM_ADAMW) {
		t->moved += lr * sqrt((double)t->arch.n_train);
		return 0;
	}
	if (n < LOOK_FIRST || n % LOOK_EVERY == 0) {
		rc = b->sum_squares(t->dev, t->optim.m, t->arch.n_train, &squares, e);
		if (rc != 0)
			return rc;
		t->momentum_norm = sqrt(squares);
	}
	t->moved += lr * t->momentum_norm;
	return 0;
}

/* One forward and backward over b, or over its first `part` samples (0: over all of it). */
static int train_batch(struct trainer *t, const struct batch *b, int64_t part, bool first,
        float scale, uint64_t seed, struct loss_result *r, struct err *e)
{
	int rc;

	if (part > 0)
		rc = graph_train_part(t->net, b, part, scale, seed, r, e);
	else
		rc = graph_train_begin(t->net, b, !first, scale, seed, r, e);
	if (rc == 0)
		rc = graph_ahead(t->net, part > 0 ? b : loader_peek(t->loader), e);
	return rc ? rc : graph_wait(t->net, e);
}

/* What the norm test compares with the whole step: its first micro-batch, or half of the only one.
 */
struct probe {
	uint64_t samples; /* 0: this step is not tested */
	double squares;   /* ‖mean gradient of them‖² */
};

static int probe(struct trainer *t, struct probe *p, double scale, struct err *e)
{
	int rc = t->dev->backend->sum_squares(
	        t->dev, t->net->grads, t->arch.n_train, &p->squares, e);

	p->squares *= scale * scale;
	return rc;
}

/* Micro-batch k of K. The half of a single one is computed for the test alone: what the step makes
 * of the batch is the same to the bit as without a test. */
static int micro_batch(struct trainer *t, uint64_t k, uint64_t of, struct probe *p,
        struct loss_result *r, struct err *e)
{
	const struct batch *b = loader_next(t->loader);
	const uint64_t seed = rng_mix(t->dropout_seed, t->step, k);
	const float scale = 1.0f / (float)(of * t->batch_config.micro);
	int rc = 0;

	if (b == NULL) {
		rc = loader_failed(t->loader, e);
		assert(rc != 0); /* batches to train on never end */
		return rc;
	}
	if (p->samples > 0 && of == 1) {
		const int64_t half = (int64_t)p->samples;

		rc = train_batch(t, b, half, true, 1.0f / (float)half, seed, r, e);
		if (rc == 0)
			rc = probe(t, p, 1, e);
	}
	if (rc == 0)
		rc = train_batch(t, b, 0, k == 0, scale, seed, r, e);
	if (rc == 0 && p->samples > 0 && of > 1 && k == 0)
		rc = probe(t, p, (double)of, e);
	return rc;
}

static double lr_of_batch(const struct trainer *t, uint64_t samples)
{
	const double times = (double)samples / (double)t->batch_config.first;
	const int how = t->config->train.batch_lr;

	return how == BATCH_LR_SQRT ? sqrt(times) : how == BATCH_LR_LINEAR ? times : 1;
}

static int run_step(struct trainer *t, struct step_result *r, struct err *e)
{
	const struct config *c = t->config;
	const uint64_t per_step = trainer_step_samples(t), epoch = trainer_epoch(t);
	const uint64_t micro = t->batch_config.micro, of = per_step / micro;
	struct probe part = {0};
	double loss_sum = 0;
	int rc;

	*r = (struct step_result){
	        .step = t->step + 1,
	        .samples = t->samples + per_step,
	        .step_samples = per_step,
	        .lr = c->train.optim.lr * schedule_factor(&t->schedule, trainer_clock(t)),
	};
	if (adapts(t)) {
		r->lr *= lr_of_batch(t, per_step);
		if (batch_tested(r->step))
			part.samples = of > 1 ? micro : micro / 2;
	}
	for (uint64_t k = 0; k < of; k++) {
		struct loss_result one;

		rc = micro_batch(t, k, of, &part, &one, e);
		if (rc != 0)
			return rc;
		loss_sum += one.loss_sum;
		r->correct += one.correct;
		r->count += one.count;
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
	t->since_outer++;
	if (part.samples > 0)
		batch_test(&t->batch, part.samples, part.squares, per_step,
		        r->grad_norm * r->grad_norm);
	if (adapts(t))
		batch_decide(&t->batch, &t->batch_config, t->step, t->agents);
	r->epoch_end = trainer_epoch(t) > epoch;
	return t->flock ? measure(t, r->lr, e) : 0;
}

/* Of a merge the update adds what is trained; of a step that failed before that, nothing. The
 * forward pass of such a step has moved the running statistics. */
int trainer_step(struct trainer *t, struct step_result *r, struct err *e)
{
	struct err second;
	int rc, added;

	stats_keep(t->net);
	rc = run_step(t, r, e);
	if (rc == ERR_NONFINITE)
		stats_put_back(t->net);
	added = trainer_merged(t, rc != 0 ? &second : e);
	return rc != 0 ? rc : added;
}

bool trainer_evaluates(const struct trainer *t)
{
	return t->has_test || t->n_val > 0;
}

const char *eval_perplexity(bool tokens, double loss, char out[40])
{
	out[0] = '\0';
	if (tokens)
		snprintf(out, 40, ", perplexity %.2f", exp(loss));
	return out;
}

int eval_run(struct graph *net, struct loader *l, struct eval_result *r, struct err *e)
{
	const struct batch *b;
	double loss_sum = 0;

	*r = (struct eval_result){0};
	loader_rewind(l);
	while ((b = loader_next(l)) != NULL) {
		struct loss_result part;
		int rc = graph_eval_begin(net, b, &part, e);

		if (rc == 0)
			rc = graph_ahead(net, loader_peek(l), e);
		if (rc == 0)
			rc = graph_wait(net, e);
		if (rc != 0)
			return rc;
		loss_sum += part.loss_sum;
		r->correct += part.correct;
		r->count += part.count;
	}
	r->loss = loss_sum / (double)r->count;
	return loader_failed(l, e);
}

int trainer_evaluate(struct trainer *t, enum eval_set set, struct eval_result *r, struct err *e)
{
	struct loader *l = set == EVAL_VALIDATION ? t->val_loader : t->test_loader;
	int rc;

	if (set == EVAL_TEST_PART && t->part_loader != NULL)
		l = t->part_loader;

	assert(!trainer_merging(t));
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

static double loss_on(
        struct trainer *t, struct loader *l, const float *params, int *rc, struct err *e)
{
	struct eval_result r;

	if (*rc == ERR_DEVICE)
		return NAN; /* nothing is left to put parameters on */
	graph_set_params(t->net, params);
	if (*rc == 0)
		*rc = eval_run(t->net, l, &r, e);
	return *rc == 0 && isfinite(r.loss) ? r.loss : NAN;
}

int trainer_try(struct trainer *t, const float *params, struct trainer_trial *r, struct err *e)
{
	const size_t n = t->arch.n_total;
	struct loader *l = t->part_loader != NULL  ? t->part_loader
	                   : t->has_test           ? t->test_loader
	                   : t->val_loader != NULL ? t->val_loader
	                                           : t->try_loader;
	float *own = malloc(n * sizeof *own), *initial = malloc(n * sizeof *initial);
	int rc = 0;

	assert(!trainer_merging(t) && l != NULL);
	*r = (struct trainer_trial){
	        .loss = NAN, .own = NAN, .initial = NAN, .test = l != t->try_loader};
	if (own == NULL || initial == NULL) {
		free(own);
		free(initial);
		return err_set(e, ERR_NOMEM, "no memory to try a state of %zu parameters", n);
	}
	graph_get_params(t->net, own);
	arch_init_params(&t->arch, (uint64_t)t->config->train.seed, initial);
	if (weights_nonfinite(params, n) == n)
		r->loss = loss_on(t, l, params, &rc, e);
	r->initial = loss_on(t, l, initial, &rc, e);
	r->own = loss_on(t, l, own, &rc, e); /* the last: they are the parameters again */
	free(own);
	free(initial);
	return rc;
}

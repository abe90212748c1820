/* SPDX-License-Identifier: MIT */
/* The fleet: memory for all agents, and a queue of tasks that workers take from.
 *
 * The engine's thread gives tasks and waits for single ones; workers take them in the order given.
 * A job of many parts (a mean, an evaluation) goes before tasks and is waited for at once. One
 * mutex guards the queue and the flags busy and done; what a task works on is its agent's alone.
 *
 * The engine's thread does not compute with generated code: signals may interrupt it (thread.h). It
 * has a device of its own for updates. What can fail: files, memory, threads, in fleet_new. */
#include "agent/base/cores.h"
#include "agent/base/exit_code.h"
#include "agent/base/rng.h"
#include "agent/base/thread.h"
#include "agent/simulate/fleet_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK 16384 /* floats: a part of a sum over agents */
#define LANES 8     /* sums that do not wait for each other */

static size_t vector_floats(const struct arch *a)
{
	return (a->n_total + 15) / 16 * 16; /* 64 bytes */
}

static int vectors_of(const struct config *c)
{
	return c->train.optim.kind == OPTIM_ADAMW ? 4 : 3;
}

/* ---- workers */

/* With the mutex held: a part of the job, or a task. False: nothing to do. */
static bool work(struct fleet_worker *w)
{
	struct fleet *f = w->fleet;

	if (f->part && f->next_part < f->n_parts) {
		const uint32_t k = f->next_part++;

		pthread_mutex_unlock(&f->mutex);
		f->part(f->part_arg, w, k);
		pthread_mutex_lock(&f->mutex);
		if (--f->parts_left == 0)
			pthread_cond_broadcast(&f->ended);
		return true;
	}
	if (f->n_ready == 0)
		return false;
	const uint32_t i = f->ready[f->first];

	f->first = (f->first + 1) % f->n;
	f->n_ready--;
	f->n_running++;
	pthread_mutex_unlock(&f->mutex);
	fleet__run_task(w, &f->agent[i], i);
	pthread_mutex_lock(&f->mutex);
	f->n_running--;
	f->agent[i].done = true;
	pthread_cond_broadcast(&f->ended);
	return true;
}

static void *run_worker(void *arg)
{
	struct fleet_worker *w = arg;
	struct fleet *f = w->fleet;

	pthread_mutex_lock(&f->mutex);
	while (!f->stop)
		if (!work(w))
			pthread_cond_wait(&f->wanted, &f->mutex);
	pthread_mutex_unlock(&f->mutex);
	return NULL;
}

void fleet__parts(struct fleet *f, uint32_t n,
        void (*fn)(void *arg, struct fleet_worker *w, uint32_t k), void *arg)
{
	if (n == 0)
		return;
	pthread_mutex_lock(&f->mutex);
	f->part = fn;
	f->part_arg = arg;
	f->n_parts = f->parts_left = n;
	f->next_part = 0;
	pthread_cond_broadcast(&f->wanted);
	while (f->parts_left > 0)
		pthread_cond_wait(&f->ended, &f->mutex);
	f->part = NULL;
	pthread_mutex_unlock(&f->mutex);
}

struct each {
	void (*fn)(void *arg, uint32_t k);
	void *arg;
};

static void each_part(void *arg, struct fleet_worker *w, uint32_t k)
{
	struct each *e = arg;

	(void)w;
	e->fn(e->arg, k);
}

void fleet_each(struct fleet *f, uint32_t n, void (*fn)(void *arg, uint32_t k), void *arg)
{
	struct each e = {fn, arg};

	if (f->scenario->record.train) {
		fleet__parts(f, n, each_part, &e);
		return;
	}
	for (uint32_t k = 0; k < n; k++) /* there are no workers */
		fn(arg, k);
}

void fleet_plan(struct fleet *f, uint32_t i, uint64_t samples, bool tested, double lr_times)
{
	struct fleet_agent *a = &f->agent[i];
	const uint64_t micro = (uint64_t)f->scenario->config.train.batch;

	assert(!a->busy && samples > 0 && samples % micro == 0);
	a->micros = samples / micro;
	a->tested = tested;
	a->lr_times = lr_times;
}

uint64_t fleet_step_samples(const struct fleet *f, uint32_t i)
{
	return f->agent[i].micros * (uint64_t)f->scenario->config.train.batch;
}

void fleet_begin(struct fleet *f, uint32_t i, enum fleet_task task, double lr)
{
	struct fleet_agent *a = &f->agent[i];

	assert(!a->busy);
	a->task = task;
	a->lr = lr * a->lr_times;
	a->busy = true;
	a->rc = 0;
	if (!f->scenario->record.train) {
		a->done = true;
		a->result = (struct fleet_result){
		        .loss = NAN, .grad_norm = NAN, .count = f->scenario->config.train.batch};
		return;
	}
	pthread_mutex_lock(&f->mutex);
	a->done = false;
	f->ready[(f->first + f->n_ready++) % f->n] = i;
	pthread_cond_signal(&f->wanted);
	pthread_mutex_unlock(&f->mutex);
}

int fleet_wait(struct fleet *f, uint32_t i, struct fleet_result *r, struct err *e)
{
	struct fleet_agent *a = &f->agent[i];

	assert(a->busy);
	pthread_mutex_lock(&f->mutex);
	while (!a->done)
		pthread_cond_wait(&f->ended, &f->mutex);
	pthread_mutex_unlock(&f->mutex);
	a->busy = false;
	if (r)
		*r = a->result;
	if (a->rc && e)
		*e = a->err;
	return a->rc;
}

void fleet_settle(struct fleet *f)
{
	pthread_mutex_lock(&f->mutex);
	while (f->n_ready + f->n_running > 0)
		pthread_cond_wait(&f->ended, &f->mutex);
	pthread_mutex_unlock(&f->mutex);
}

/* ---- vectors */

const struct arch *fleet_arch(const struct fleet *f)
{
	return &f->arch;
}

uint32_t fleet_samples(const struct fleet *f)
{
	return f->scenario->record.train ? f->data.n_all : (uint32_t)f->scenario->record.samples;
}

uint32_t fleet_agent_samples(const struct fleet *f, uint32_t i)
{
	if (!f->scenario->record.train)
		return f->scenario->agents.split <= SPLIT_SHARED ? fleet_samples(f)
		                                                 : fleet_samples(f) / f->n;
	return fleet_data_count(&f->data, i);
}

void fleet_injected(const struct fleet *f, double *in, double *out)
{
	const uint32_t batch = (uint32_t)f->scenario->config.train.batch;
	const struct dataset *t = &f->data.train;

	*in = *out = 0;
	if (!f->scenario->record.train || fleet_data_own(&f->data, batch) == batch)
		return;
	*in = (double)(batch - fleet_data_own(&f->data, batch)) * (double)shape_count(&t->shape) *
	      (t->values ? 4 : 1);
	*out = *in * (f->n - 1) / fleet_data_givers(&f->data);
}

int fleet_threads(const struct fleet *f)
{
	return f->n_workers;
}

float *fleet_x(struct fleet *f, uint32_t i)
{
	return f->agent[i].x;
}

float *fleet_g(struct fleet *f, uint32_t i)
{
	return f->agent[i].g;
}

float *fleet_m(struct fleet *f, uint32_t i)
{
	return f->agent[i].m;
}

float *fleet_v(struct fleet *f, uint32_t i)
{
	return f->agent[i].v;
}

uint64_t *fleet_optim_steps(struct fleet *f, uint32_t i)
{
	return &f->agent[i].optim_steps;
}

void fleet_copy(struct fleet *f, uint32_t to, int64_t from)
{
	const size_t bytes = f->arch.n_total * sizeof(float);
	struct fleet_agent *a = &f->agent[to];

	if (!f->scenario->record.train)
		return;
	if (from >= 0) {
		const struct fleet_agent *b = &f->agent[from];

		memcpy(a->x, b->x, bytes);
		memcpy(a->m, b->m, bytes);
		if (a->v)
			memcpy(a->v, b->v, bytes);
		a->optim_steps = b->optim_steps;
		return;
	}
	memcpy(a->x, f->initial, bytes);
	memset(a->m, 0, bytes);
	if (a->v)
		memset(a->v, 0, bytes);
	a->optim_steps = 0;
}

/* A sum over agents, in parts of CHUNK parameters. */
struct sum {
	struct fleet *f;
	const bool *use;
	const double *weight;
	bool gradients;
	uint32_t n_used;
	float *out;
	const float *mean;
	double *spread; /* by part */
};

static void mean_part(void *arg, uint32_t k)
{
	struct sum *s = arg;
	const size_t from = (size_t)k * CHUNK, n = s->f->arch.n_total - from;
	const size_t count = n < CHUNK ? n : CHUNK;
	double sum[CHUNK];

	memset(sum, 0, count * sizeof *sum);
	for (uint32_t i = 0; i < s->f->n; i++) {
		const struct fleet_agent *a = &s->f->agent[i];
		const float *x = (s->gradients ? a->g : a->x) + from;
		const double w = s->weight ? s->weight[i] : 1;

		if (s->use && !s->use[i])
			continue;
		for (size_t j = 0; j < count; j++)
			sum[j] += w * (double)x[j];
	}
	const double scale = s->weight ? 1 : 1.0 / s->n_used;

	for (size_t j = 0; j < count; j++)
		s->out[from + j] = (float)(sum[j] * scale);
}

static void spread_part(void *arg, uint32_t k)
{
	struct sum *s = arg;
	const size_t from = (size_t)k * CHUNK, n = s->f->arch.n_train - from;
	const size_t count = n < CHUNK ? n : CHUNK;
	double sum[LANES] = {0};

	for (uint32_t i = 0; i < s->f->n; i++) {
		const float *x = s->f->agent[i].x + from;

		if (s->use && !s->use[i])
			continue;
		for (size_t j = 0; j < count; j++) {
			const double d = (double)x[j] - (double)s->mean[from + j];

			sum[j % LANES] += d * d;
		}
	}
	s->spread[k] = 0;
	for (int j = 0; j < LANES; j++)
		s->spread[k] += sum[j];
}

static uint32_t count_used(const struct fleet *f, const bool *use)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->n; i++)
		n += !use || use[i];
	return n;
}

static uint32_t chunks(size_t n)
{
	return (uint32_t)((n + CHUNK - 1) / CHUNK);
}

void fleet_mean(struct fleet *f, const bool *use, const double *w, float *out)
{
	struct sum s = {.f = f, .use = use, .weight = w, .out = out};

	s.n_used = count_used(f, use);
	if (f->scenario->record.train && s.n_used > 0)
		fleet_each(f, chunks(f->arch.n_total), mean_part, &s);
}

void fleet_mean_gradient(struct fleet *f, const bool *use, const double *w, float *out)
{
	struct sum s = {.f = f, .use = use, .weight = w, .gradients = true, .out = out};

	s.n_used = count_used(f, use);
	if (f->scenario->record.train && s.n_used > 0)
		fleet_each(f, chunks(f->arch.n_total), mean_part, &s);
}

double fleet_spread(struct fleet *f, const bool *use, const float *mean)
{
	struct sum s = {.f = f, .use = use, .mean = mean};
	const uint32_t parts = f->scenario->record.train ? chunks(f->arch.n_train) : 0;
	double sum = 0;

	s.n_used = count_used(f, use);
	s.spread = calloc(parts + 1u, sizeof *s.spread);
	if (!s.spread || parts == 0 || s.n_used == 0) {
		free(s.spread);
		return NAN;
	}
	fleet_each(f, parts, spread_part, &s);
	for (uint32_t k = 0; k < parts; k++)
		sum += s.spread[k];
	free(s.spread);
	return sum / s.n_used;
}

/* ---- life */

static int take_vectors(struct fleet *f, struct err *e)
{
	const struct config *c = &f->scenario->config;
	const size_t floats = vector_floats(&f->arch), k = (size_t)vectors_of(c);

	f->initial = malloc(f->arch.n_total * sizeof *f->initial);
	/* Pages that nobody writes to, such as gradients that a method never asks for, take no
	 * memory. */
	f->memory_bytes = floats * k * f->n * sizeof(float);
	f->memory = mmap(NULL, f->memory_bytes, PROT_READ | PROT_WRITE,
	        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (f->memory == MAP_FAILED)
		f->memory = NULL;
	if (!f->memory || !f->initial)
		return err_set(e, ERR_NOMEM, "no memory for %u models of %zu parameters", f->n,
		        f->arch.n_total);
	for (uint32_t i = 0; i < f->n; i++) {
		float *p = (float *)f->memory + (size_t)i * k * floats;

		f->agent[i].x = p;
		f->agent[i].g = p + floats;
		f->agent[i].m = p + 2 * floats;
		f->agent[i].v = k == 4 ? p + 3 * floats : NULL;
	}
	return 0;
}

static int open_workers(struct fleet *f, struct err *e)
{
	int rc = 0;

	for (int k = 0; k <= f->n_workers && rc == 0; k++) {
		struct fleet_worker *w = &f->worker[k];

		w->fleet = f;
		rc = fleet__worker_open(w, k < f->n_workers, e);
		if (rc || k == f->n_workers)
			continue;
		w->started = thread_start(&w->thread, run_worker, w) == 0;
		if (!w->started)
			rc = err_set(e, ERR_SYSTEM, "no thread to train with");
	}
	return rc;
}

static int open_models(struct fleet *f, uint64_t seed, int *exit, struct err *e)
{
	const struct config *c = &f->scenario->config;
	int rc;

	*exit = EXIT_DATA;
	rc = fleet_data_open(&f->data, f->scenario, seed, e);
	if (rc)
		return rc;
	*exit = EXIT_CONFIG;
	rc = config_arch_to_train(c, &f->data.train, &f->arch, e);
	if (rc)
		return rc;
	*exit = EXIT_FAILED;
	rc = take_vectors(f, e);
	if (rc)
		return rc;
	arch_init_params(&f->arch, rng_mix((uint64_t)c->train.seed, seed, 0), f->initial);
	f->dropout_key = rng_mix((uint64_t)c->train.seed, seed, 1);
	for (uint32_t i = 0; i < f->n; i++)
		fleet_copy(f, i, -1);
	*exit = EXIT_DEVICE;
	return open_workers(f, e);
}

int fleet_new(struct fleet **out, const struct scenario *s, uint64_t seed, int threads, int *exit,
        struct err *e)
{
	struct fleet *f = calloc(1, sizeof *f);
	int rc = 0;

	*out = NULL;
	*exit = EXIT_FAILED;
	if (!f)
		return err_set(e, ERR_NOMEM, "no memory for a fleet");
	f->scenario = s;
	f->n = (uint32_t)s->agents.count;
	f->n_workers = threads > 0 ? threads : cores_usable().n;
	pthread_mutex_init(&f->mutex, NULL);
	pthread_cond_init(&f->wanted, NULL);
	pthread_cond_init(&f->ended, NULL);
	f->agent = calloc(f->n, sizeof *f->agent);
	f->ready = calloc(f->n, sizeof *f->ready);
	f->worker = calloc((size_t)f->n_workers + 1, sizeof *f->worker);
	if (!f->agent || !f->ready || !f->worker)
		rc = err_set(e, ERR_NOMEM, "no memory for a fleet of %u", f->n);
	for (uint32_t i = 0; rc == 0 && i < f->n; i++)
		fleet_plan(f, i, (uint64_t)s->config.train.batch, false, 1);
	if (rc == 0 && s->record.train)
		rc = open_models(f, seed, exit, e);
	if (rc) {
		fleet_free(f);
		return rc;
	}
	*out = f;
	return 0;
}

void fleet_free(struct fleet *f)
{
	if (!f)
		return;
	pthread_mutex_lock(&f->mutex);
	f->stop = true;
	pthread_cond_broadcast(&f->wanted);
	pthread_mutex_unlock(&f->mutex);
	for (int k = 0; f->worker && k <= f->n_workers; k++) {
		if (f->worker[k].started)
			pthread_join(f->worker[k].thread, NULL);
		fleet__worker_close(&f->worker[k]);
	}
	if (f->memory)
		munmap(f->memory, f->memory_bytes);
	pthread_cond_destroy(&f->ended);
	pthread_cond_destroy(&f->wanted);
	pthread_mutex_destroy(&f->mutex);
	free(f->initial);
	free(f->worker);
	free(f->ready);
	free(f->agent);
	arch_close(&f->arch);
	if (f->data.scenario)
		fleet_data_close(&f->data);
	free(f);
}

int fleet_need(
        const struct scenario *s, int threads, struct fleet_need *out, int *exit, struct err *e)
{
	const uint64_t n = (uint64_t)s->agents.count;
	struct fleet_data d = {0};
	struct arch a = {0};
	int rc;

	*out = (struct fleet_need){.samples = (size_t)s->record.samples};
	out->params = (size_t)s->record.parameters;
	if (!s->record.train)
		return 0;
	if (threads <= 0)
		threads = cores_usable().n;
	*exit = EXIT_DATA;
	rc = fleet_data_open(&d, s, (uint64_t)s->record.seed, e);
	if (rc == 0) {
		*exit = EXIT_CONFIG;
		rc = config_arch_to_train(&s->config, &d.train, &a, e);
	}
	if (rc == 0) {
		const uint64_t set = (uint64_t)(d.train.count + d.test.count) *
		                     shape_count(&d.train.shape) * (d.train.values ? 4 : 1);

		out->samples = d.n_all;
		out->params = a.n_total;
		out->bytes = n * a.n_total * sizeof(float) * (uint64_t)vectors_of(&s->config) +
		             (uint64_t)threads * a.n_total * 2 * sizeof(float) + set;
	}
	arch_close(&a);
	if (d.scenario)
		fleet_data_close(&d);
	return rc;
}

/* SPDX-License-Identifier: MIT */
/* How fast a preset trains on this machine, on one batch that stays in memory, as the PyTorch side
 * of the comparison (torch_steps.py) does it: forward, loss, backward, SGD with momentum; AdamW for
 * the gpt.
 *
 *     train_steps PRESET BATCH THREADS
 *
 * The caller decides when it runs: after a few steps it prints `ready`; then each line on stdin
 * starts one round, which ends with `samples_per_s N` on stdout. So bench-train can let two engines
 * take turns, and each starts only once. By hand:
 *
 *     yes | head -5 | tests/bench/train_steps cnn 64 2
 *
 * At the end of stdin it measures one large sgemm on as many threads, the machine's own limit. */
#include "model/cpu/pool.h"
#include "model/graph/optim.h"

#include "agent/base/rng.h"
#include "tests/model/graph_run.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUND_S 0.4
/* With a larger rate the batch is soon learnt by heart, and the time would be that of denormal
 * numbers, which are slow. */
#define LR 1e-5
#define WARM_UP 5 /* steps before the first round, and */
#define REWARM 2  /* before every round, uncounted: threads wake up, caches fill */

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct bench {
	struct arch arch;
	struct device *device; /* owned, as is all below */
	struct graph *net;
	struct optim optim;
	float *params;
	void *x; /* floats, or tokens */
	int32_t *labels;
	uint64_t step;
};

static int steps(struct bench *b, int n, struct err *e)
{
	int rc = 0;
	for (int i = 0; i < n && rc == 0; i++) {
		struct loss_result r;
		double norm;
		rc = graph_train(b->net, b->x, b->labels, false, 1 / (float)b->net->program.batch,
		        b->step++, &r, e);
		if (rc == 0)
			rc = optim_step(&b->optim, LR, &norm, e);
	}
	return rc;
}

/* Multiply-adds of one sample's forward pass. */
static double forward_macs(const struct arch *a)
{
	double macs = 0;
	for (int i = 0; i < a->n_nodes; i++) {
		const struct arch_node *n = &a->nodes[i];
		const enum layer_kind kind = n->layer.kind;
		const double out = (double)shape_count(&n->shape);
		/* Each output position uses the whole kernel of its channel once. */
		if (kind == LAYER_DENSE || kind == LAYER_CONV2D)
			macs += (double)a->views[n->param[0]].fan_in * out;
		else if (kind == LAYER_HEAD)
			macs += (double)a->views[n->param[0]].shape.dim[1] * out;
		else if (kind == LAYER_ATTENTION) /* half of T², for scores and for values */
			macs += (double)(n->shape.dim[0] + 1) * out;
	}
	return macs;
}

static int round_once(struct bench *b, struct err *e)
{
	int n = 0, rc = steps(b, REWARM, e);
	double from = now(), took = 0;
	while (rc == 0 && took < ROUND_S) {
		rc = steps(b, 1, e);
		n++;
		took = now() - from;
	}
	if (rc == 0)
		printf("samples_per_s %.1f\n", n * (double)b->net->program.batch / took);
	return rc;
}

/* ---- one large matrix multiplication */

#define SQUARE 1024

struct square {
	float *a, *b, *c;
	int threads;
};

static void square_part(void *arg, int w)
{
	struct square *s = arg;
	size_t from, to;
	pool_part(SQUARE, 16, w, s->threads, &from, &to);
	dnnl_sgemm('N', 'N', (int64_t)(to - from), SQUARE, SQUARE, 1, s->a + from * SQUARE, SQUARE,
	        s->b, SQUARE, 0, s->c + from * SQUARE, SQUARE);
}

static int sgemm(int threads, struct err *e)
{
	struct pool *pool;
	struct square s = {.threads = threads};
	double best = 0;
	const size_t n = (size_t)SQUARE * SQUARE;
	int rc = pool_new(&pool, threads, e);
	if (rc)
		return rc;
	s.a = aligned_alloc(64, 3 * n * sizeof(float));
	if (!s.a) {
		pool_free(pool);
		return err_set(e, ERR_NOMEM, "no memory");
	}
	s.b = s.a + n;
	s.c = s.b + n;
	for (size_t i = 0; i < 3 * n; i++)
		s.a[i] = (float)(i % 5) - 2;
	for (int i = 0; i < 20; i++) {
		double t = now();
		pool_run(pool, square_part, &s);
		t = now() - t;
		double gflops = 2e-9 * (double)n * SQUARE / t;
		best = gflops > best ? gflops : best;
	}
	printf("sgemm_gflops %.1f\n", best);
	pool_free(pool);
	free(s.a);
	return 0;
}

/* ---- */

/* The data that each preset is measured on. */
static const struct data {
	const char *preset;
	struct shape input;
	int64_t classes;
	enum optim_kind optimizer;
} sets[] = {
        {"mlp", {3, {28, 28, 1}}, 10, OPTIM_SGD},
        {"cnn", {3, {28, 28, 1}}, 10, OPTIM_SGD},
        {"resnet20", {3, {32, 32, 3}}, 10, OPTIM_SGD},
        {"gpt", {1, {128}}, 256, OPTIM_ADAMW},
};

static void fill_batch(struct bench *b, size_t values, size_t labels)
{
	struct rng r;
	rng_seed(&r, 1, 0);
	for (size_t i = 0; i < values; i++)
		if (b->arch.tokens)
			((int32_t *)b->x)[i] = (int32_t)rng_below(&r, (uint32_t)b->arch.classes);
		else
			((float *)b->x)[i] = rng_f32(&r);
	for (size_t i = 0; i < labels; i++)
		b->labels[i] = (int32_t)rng_below(&r, (uint32_t)b->arch.classes);
}

static int bench_init(
        struct bench *b, const char *preset, int64_t batch, int threads, struct err *e)
{
	struct device_config c = {.threads = threads};
	const struct data *d = sets;
	int rc;
	while (d < sets + sizeof sets / sizeof *sets && strcmp(d->preset, preset) != 0)
		d++;
	if (d == sets + sizeof sets / sizeof *sets)
		return err_set(e, ERR_NOTFOUND, "no data for preset \"%s\"", preset);
	const struct optim_config o = {.kind = d->optimizer,
	        .momentum = 0.9,
	        .beta1 = 0.9,
	        .beta2 = 0.999,
	        .eps = 1e-8};
	if ((rc = arch_preset(&b->arch, preset, NULL, &d->input, d->classes, e)) != 0 ||
	        (rc = device_open(&b->device, "cpu", &c, NULL, e)) != 0 ||
	        (rc = graph_new(&b->net, &b->arch, b->device, batch, e)) != 0 ||
	        (rc = optim_init(&b->optim, &o, b->net, e)) != 0)
		return rc;
	const size_t values = (size_t)batch * shape_count(&d->input);
	const size_t labels = (size_t)(batch * b->arch.positions);
	b->params = malloc(b->arch.n_total * sizeof *b->params);
	b->x = malloc(values * sizeof(float));
	b->labels = malloc(labels * sizeof *b->labels);
	if (!b->params || !b->x || !b->labels)
		return err_set(e, ERR_NOMEM, "no memory");
	fill_batch(b, values, labels);
	arch_init_params(&b->arch, 1, b->params);
	graph_set_params(b->net, b->params);
	return 0;
}

static void bench_close(struct bench *b)
{
	optim_close(&b->optim);
	if (b->net)
		graph_free(b->net);
	if (b->device)
		device_close(b->device);
	arch_close(&b->arch);
	free(b->params);
	free(b->x);
	free(b->labels);
}

int main(int argc, char **argv)
{
	struct bench b = {0};
	struct err e = {0};
	char line[64];
	int64_t batch = argc == 4 ? atoll(argv[2]) : 0;
	int threads = argc == 4 ? atoi(argv[3]) : 0;
	if (batch < 1 || batch > LIMIT_BATCH || threads < 1 || threads > LIMIT_THREADS) {
		fprintf(stderr, "train_steps PRESET BATCH THREADS\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	int rc = bench_init(&b, argv[1], batch, threads, &e);
	if (rc == 0 && (rc = steps(&b, 1, &e)) == 0)
		printf("first_step\n");
	if (rc == 0 && (rc = steps(&b, WARM_UP, &e)) == 0)
		printf("gflop_per_sample %.6f\nready\n", 6e-9 * forward_macs(&b.arch));
	while (rc == 0 && fgets(line, sizeof line, stdin))
		rc = round_once(&b, &e);
	bench_close(&b);
	if (rc == 0)
		rc = sgemm(threads, &e);
	if (rc)
		fprintf(stderr, "train_steps: %s\n", e.msg);
	return rc ? 1 : 0;
}

/* SPDX-License-Identifier: MIT */
/* How fast a preset trains on a GPU, with a batch from the host and a loss to it at every step, as
 * tests/gpu/torch_speed.py does it in PyTorch: speed PRESET BATCH. */
#include "model/graph/optim.h"
#include "tests/model/graph_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SECONDS 3

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int speed(const char *preset, int64_t batch, double seconds)
{
	struct shape input = {3, {28, 28, 1}};
	struct device_config config = {.threads = 1};
	struct optim_config sgd = {.kind = OPTIM_SGD, .momentum = 0.9};
	struct err e = {0};
	struct arch a;
	struct device *d;
	struct graph *n;
	struct optim o;
	if (arch_preset(&a, preset, NULL, &input, 10, &e) != 0 ||
	        device_open(&d, "cuda:0", &config, NULL, &e) != 0 ||
	        graph_new(&n, &a, d, batch, &e) != 0 || optim_init(&o, &sgd, n, &e) != 0) {
		fprintf(stderr, "%s\n", e.msg);
		return 1;
	}
	float *params = calloc(a.n_total, sizeof *params);
	float *x = calloc((size_t)batch * shape_count(&input), sizeof *x);
	int32_t *labels = calloc((size_t)batch, sizeof *labels);
	arch_init_params(&a, 1, params);
	graph_set_params(n, params);
	int rc = 0, steps = 0;
	double begin = now(), took = 0;
	for (int i = 0; rc == 0 && took < seconds; i++) {
		struct loss_result loss;
		double norm;
		rc = graph_train(n, x, labels, false, 1.0f / (float)batch, (uint64_t)i, &loss, &e);
		if (rc == 0)
			rc = optim_step(&o, 1e-5, &norm, &e);
		steps++;
		if (i == 19)
			begin = now(), steps = 0;
		took = i < 20 ? 0 : now() - begin;
	}
	if (rc)
		fprintf(stderr, "%s\n", e.msg);
	else
		printf("dunlin %s samples_per_s %.1f\n", preset, (double)(steps * batch) / took);
	optim_close(&o);
	graph_free(n);
	device_close(d);
	arch_close(&a);
	free(params);
	free(x);
	free(labels);
	return rc != 0;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "speed PRESET BATCH\n");
		return 2;
	}
	return speed(argv[1], atoll(argv[2]), SECONDS);
}

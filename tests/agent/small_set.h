/* SPDX-License-Identifier: MIT */
/* A small set to train on, and a trainer of it that gives the same bits each time. */
#ifndef DUNLIN_TESTS_AGENT_SMALL_SET_H
#define DUNLIN_TESTS_AGENT_SMALL_SET_H

#include "tests/support.h"

#include "agent/config/config.h"
#include "agent/train/trainer.h"

#define SAMPLES 120
#define CLASSES 3
#ifndef SIDE
#define SIDE 4
#endif

/* Images of SIDE × SIDE whose brightness is their label's, under noise. */
static inline void write_data(const char *images, const char *labels)
{
	static uint8_t pixels[16 + SAMPLES * SIDE * SIDE] = {
	        0, 0, 8, 3, 0, 0, 0, SAMPLES, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
	static uint8_t classes[8 + SAMPLES] = {0, 0, 8, 1, 0, 0, 0, SAMPLES};
	struct rng r;

	rng_seed(&r, 1, 1);
	for (int i = 0; i < SAMPLES; i++) {
		classes[8 + i] = (uint8_t)(i % CLASSES);
		for (int k = 0; k < SIDE * SIDE; k++)
			pixels[16 + i * SIDE * SIDE + k] =
			        (uint8_t)(60 * (i % CLASSES) + (int)rng_below(&r, 100));
	}
	write_file(images, pixels, sizeof pixels);
	write_file(labels, classes, sizeof classes);
}

/* layers: as in a config file, without the last, which is a dense layer of CLASSES. */
static inline void small_net(struct config *c, const char *folder, const char *layers)
{
	struct config_problems p;
	char model[512];

	snprintf(model, sizeof model,
	        "{\"model\": {\"layers\": [{\"type\": \"flatten\"}, %s"
	        "{\"type\": \"dense\", \"units\": %d}]}}",
	        layers, CLASSES);
	config_defaults(c);
	config_problems_init(&p, NULL);
	assert_int_equal(config_read(c, model, strlen(model), &p), 0);
	snprintf(c->data.train_images, sizeof c->data.train_images, "%s/images", folder);
	snprintf(c->data.train_labels, sizeof c->data.train_labels, "%s/labels", folder);
	c->data.test_images[0] = c->data.test_labels[0] = '\0';
	snprintf(c->run.device, sizeof c->run.device, "cpu");
	c->run.threads = 1;
	c->run.deterministic = true;
	c->data.ahead = 0;
	c->train.batch = 8;
	write_data(c->data.train_images, c->data.train_labels);
}

static inline struct trainer *new_trainer(const struct config *c)
{
	struct trainer *t;
	struct err e;

	assert_int_equal(trainer_new(&t, c, NULL, &e), 0);
	return t;
}

static inline void run_steps(struct trainer *t, int n)
{
	struct step_result r;
	struct err e;

	for (int i = 0; i < n; i++)
		assert_int_equal(trainer_step(t, &r, &e), 0);
}

/* Malloc'd. */
static inline float *params_of(struct trainer *t)
{
	float *p = malloc(t->arch.n_total * sizeof *p);

	assert_non_null(p);
	graph_get_params(t->net, p);
	return p;
}

static inline void assert_alike(struct trainer *a, struct trainer *b, bool alike)
{
	float *p = params_of(a), *q = params_of(b);

	assert_int_equal(memcmp(p, q, a->arch.n_total * sizeof *p) == 0, alike);
	free(p);
	free(q);
}

#endif

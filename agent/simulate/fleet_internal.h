/* SPDX-License-Identifier: MIT */
/* What the fleet's files share. */
#ifndef DUNLIN_AGENT_SIMULATE_FLEET_INTERNAL_H
#define DUNLIN_AGENT_SIMULATE_FLEET_INTERNAL_H

#include "agent/simulate/fleet.h"
#include "model/graph/graph.h"

#include <pthread.h>

/* Who trains on what. */
struct fleet_data {
	const struct scenario *scenario; /* borrowed */
	struct dataset train, test;
	bool has_test;
	struct normalisation norm;
	uint32_t *all; /* owned: samples that are not held out */
	uint32_t n_all;
	uint32_t *eval; /* owned: samples to evaluate on, of test or else of train */
	uint32_t n_eval;
	uint32_t **part; /* owned, by agent; NULL: all agents have `all` */
	uint32_t *n_part;
	uint64_t order_key;
};

int fleet_data_open(
        struct fleet_data *d, const struct scenario *s, uint64_t seed, struct err *e) MUST_CHECK;
void fleet_data_close(struct fleet_data *d);
uint32_t fleet_data_count(const struct fleet_data *d, uint32_t agent);
/* Of a batch of n: samples that are the agent's own; and how many agents give the others. */
uint32_t fleet_data_own(const struct fleet_data *d, uint32_t n);
uint32_t fleet_data_givers(const struct fleet_data *d);
/* The samples of an agent's batch number k: a function of nothing else. */
void fleet_data_batch(
        const struct fleet_data *d, uint32_t agent, uint64_t k, uint32_t *out, uint32_t n);

/* A thread of the fleet: a device of one thread and a graph on it. */
struct fleet_worker {
	struct fleet *fleet;
	pthread_t thread;
	bool started;
	struct device *dev; /* owned */
	struct graph *net;  /* owned */
	uint32_t *index;    /* owned: the samples of the batch that `loader` makes */
	struct loader *loader, *eval_loader; /* owned */
	uint64_t evaluated;                  /* number of the evaluation whose parameters it has */
};

struct fleet_agent {
	float *x, *g, *m, *v; /* parts of the fleet's memory */
	uint64_t optim_steps, batches;
	uint64_t micros; /* micro-batches of a step */
	bool tested;
	double lr_times;
	enum fleet_task task;
	double lr;
	bool busy, done; /* under the mutex: has a task; it has ended */
	int rc;
	struct err err;
	struct fleet_result result;
};

struct fleet {
	const struct scenario *scenario;
	struct fleet_data data;
	struct arch arch;
	uint32_t n;
	struct fleet_agent *agent; /* owned */
	float *initial;            /* owned, n_total */
	uint64_t dropout_key;
	void *memory; /* owned: the agents' vectors */
	size_t memory_bytes;
	struct fleet_worker *worker; /* owned; the last one is the engine's thread: no graph */
	int n_workers;
	uint64_t evaluations;

	pthread_mutex_t mutex;
	pthread_cond_t wanted, ended;
	uint32_t *ready; /* owned: a ring of agents whose tasks wait */
	uint32_t first, n_ready, n_running;
	bool stop;
	/* A job of many parts, which goes before tasks; NULL: none. */
	void (*part)(void *arg, struct fleet_worker *w, uint32_t k);
	void *part_arg;
	uint32_t n_parts, next_part, parts_left;
};

/* As fleet_each, with the worker. */
void fleet__parts(struct fleet *f, uint32_t n,
        void (*fn)(void *arg, struct fleet_worker *w, uint32_t k), void *arg);

/* fleet_task.c: what a worker does. */
void fleet__run_task(struct fleet_worker *w, struct fleet_agent *a, uint32_t i);
int fleet__worker_open(struct fleet_worker *w, bool computes, struct err *e) MUST_CHECK;
void fleet__worker_close(struct fleet_worker *w);

#endif

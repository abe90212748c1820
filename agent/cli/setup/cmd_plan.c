/* SPDX-License-Identifier: MIT */
/* dunlin plan: what an agent of these settings will need, without training.
 *
 * The happy path: the data are read, the model is worked out, and graph_new is called on a device
 * that notes how much memory it is asked for and gives none. The rest is arithmetic: what an
 * exchange uploads, how often the gate begins one, how many steps the run has for each agent.
 *
 * What cannot be known before training is not made up: how often the significance gate fires, and,
 * without --step-ms, whatever counts in steps. */
#include "agent/cli/cli.h"
#include "agent/json/jsonout.h"
#include "agent/train/core_settings.h"
#include "agent/train/trainer.h"
#include "gossip/policy/gate.h"
#include "gossip/policy/outer.h"
#include "model/graph/graph.h"
#include "model/graph/outer.h"
#include "net/bulk/convert.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINKS 4
static const double links_mbit[LINKS] = {10, 100, 1000, 10000};

struct plan {
	uint64_t parameters, trained;
	/* bytes */
	double model, optimizer, activations, exchange, data, memory;
	uint64_t exchange_bytes; /* that one exchange uploads, and downloads */
	double exchanges_hour;   /* of one agent, begun or accepted; NAN: not known */
	bool at_least;           /* the gate may begin more */
	double mbit;             /* 0: those of links_mbit */
	uint64_t run_samples, steps;
	int agents;
};

/* ---- a device that only counts */

struct counting {
	struct device base; /* first */
	size_t bytes[5];    /* as graph_new asks for: parameters, gradients, input, labels, arena */
};

static int note(struct device *d, const struct program *p, const size_t *bytes, int n,
        struct device_room *r, struct err *e)
{
	struct counting *c = (struct counting *)(void *)d;
	(void)p, (void)r;
	for (int i = 0; i < n && i < 5; i++)
		c->bytes[i] = bytes[i];
	return err_set(e, ERR_CANCELLED, "counted");
}

static void release(struct device *d, void *p)
{
	(void)d, (void)p;
}

static void unprepare(struct device *d, struct program *p)
{
	(void)d, (void)p;
}

static int count_graph(const struct arch *a, int64_t batch, struct plan *p, struct err *e)
{
	static const struct backend backend = {.abi = BACKEND_ABI,
	        .name = "plan",
	        .reserve = note,
	        .release = release,
	        .unprepare = unprepare};
	struct counting c = {.base = {.backend = &backend}};
	struct graph *g;
	int rc = graph_new(&g, a, &c.base, batch, e);
	if (rc != ERR_CANCELLED)
		return rc;
	p->model = (double)c.bytes[0] + (double)c.bytes[1];
	p->activations = (double)c.bytes[2] + (double)c.bytes[3] + (double)c.bytes[4];
	return 0;
}

/* ---- the parts */

static double data_bytes(const struct dataset *d)
{
	if (d->tokens)
		return 0; /* read as it trains */
	double values = (double)d->count * (double)shape_count(&d->shape);
	return (d->values ? 4 * values : values) + 4.0 * d->count;
}

static void plan_memory(const struct config *c, const struct arch *a, struct plan *p)
{
	const double vector = 4.0 * (double)a->n_total, trained = 4.0 * (double)a->n_train;
	int vectors = c->train.optim.kind == OPTIM_ADAMW ? 2 : 1;
	size_t buffer = convert_bytes(CONVERT_FP32, a->n_total);
	if (convert_bytes(CONVERT_MOD8, a->n_total) > buffer)
		buffer = convert_bytes(CONVERT_MOD8, a->n_total);
	p->parameters = a->n_total;
	p->trained = a->n_train;
	p->optimizer = vectors * vector;
	if (c->gossip.outer == OUTER_NOLOCO)
		p->optimizer += 2 * trained;
	p->exchange = 2 * (double)buffer; /* the snapshot, and what came */
	p->memory = p->model + p->optimizer + p->activations + p->exchange + p->data;
}

/* Of an agent that trains on the CPU: a GPU's packs nothing, nor does one with batch norm. */
static uint64_t exchange_bytes(const struct config *c, const struct arch *a)
{
	struct flock_config f = {0};
	f.manifest.count = a->n_total;
	f.manifest.formats = (1u << CONVERT_FORMATS) - 1;
	if (a->n_train != a->n_total)
		f.manifest.formats &= ~(uint64_t)CONVERT_LATTICES;
	core_settings(&f, c);
	return f.exchange_bytes[f.format];
}

/* Of one agent an hour; a partner's beginning counts as its own. */
static void plan_exchanges(const struct config *c, double step_ms, struct plan *p)
{
	const double steps_hour = step_ms > 0 ? 3600e3 / step_ms : NAN;
	const double bytes = (double)p->exchange_bytes;
	double begun = NAN, most = INFINITY;
	p->at_least = false;
	switch ((enum gate_mode)c->gossip.gate) {
	case GATE_EVERY:
		begun = steps_hour / (double)c->gossip.every;
		break;
	case GATE_ALWAYS:
		begun = steps_hour;
		break;
	case GATE_RANDOM:
		begun = steps_hour * c->gossip.chance;
		break;
	case GATE_BUDGET:
		if (c->gossip.exchanges_per_s > 0)
			most = fmin(most, 3600 * c->gossip.exchanges_per_s);
		if (c->gossip.bytes_per_s > 0)
			most = fmin(most, 3600 * c->gossip.bytes_per_s / bytes);
		if (c->gossip.bytes_per_day > 0)
			most = fmin(most, c->gossip.bytes_per_day / 24 / bytes);
		p->exchanges_hour = isfinite(most) ? most : NAN;
		break;
	default:
		p->at_least = true;
		p->exchanges_hour = c->gossip.silence_s > 0 ? 3600 / c->gossip.silence_s : NAN;
	}
	if (c->gossip.gate != GATE_BUDGET && !p->at_least)
		p->exchanges_hour = 2 * begun;
	if (c->gossip.upload_cap > 0)
		p->exchanges_hour = fmin(p->exchanges_hour, 3600 * c->gossip.upload_cap / bytes);
}

/* Of an epoch: all that are not held out, whichever part of them is an agent's. */
static int count_samples(
        const struct config *c, const struct dataset *d, uint32_t *n, struct err *e)
{
	const struct partition all = {
	        .kind = PARTITION_ALL, .parts = 1, .seed = c->data.partition.seed};
	uint32_t *train, *held, n_held;
	int rc = data_split(d, &all, c->data.validation, &train, n, &held, &n_held, e);
	free(train);
	free(held);
	return rc;
}

static int make_plan(
        const struct config *c, double step_ms, struct plan *p, int *status, struct err *e)
{
	struct dataset d, test;
	struct arch a;
	uint32_t whole;
	*status = EXIT_DATA;
	int rc = trainer_dataset(c, DATA_TRAIN, c->data.classes, &d, e);
	if (rc)
		return rc;
	p->data = data_bytes(&d);
	if (trainer_dataset(c, DATA_TEST, d.classes, &test, e) == 0) {
		p->data += data_bytes(&test);
		dataset_close(&test);
	}
	*status = EXIT_CONFIG;
	rc = config_arch_to_train(c, &d, &a, e);
	if (rc)
		goto out;
	rc = count_graph(&a, c->train.batch, p, e);
	if (rc == 0)
		rc = count_samples(c, &d, &whole, e);
	if (rc == 0) {
		const double step = (double)(c->train.batch * c->train.accumulate);
		plan_memory(c, &a, p);
		p->exchange_bytes = exchange_bytes(c, &a);
		plan_exchanges(c, step_ms, p);
		p->run_samples = (uint64_t)llround(c->train.epochs * (double)whole);
		p->steps = (uint64_t)ceil((double)p->run_samples / step / p->agents);
	}
	arch_close(&a);
out:
	dataset_close(&d);
	return rc;
}

/* ---- what is shown */

static double seconds_at(const struct plan *p, double mbit)
{
	return 8 * (double)p->exchange_bytes / (mbit * 1e6);
}

static int print_json(const struct plan *p)
{
	struct buf b;
	struct json_out j = {.buf = &b};
	buf_init(&b, 65536);
	json_open(&j, NULL, '{');
	json_count(&j, "parameters", p->parameters);
	json_count(&j, "trained", p->trained);
	json_open(&j, "memory", '{');
	json_real(&j, "model", p->model);
	json_real(&j, "optimizer", p->optimizer);
	json_real(&j, "activations", p->activations);
	json_real(&j, "exchange", p->exchange);
	json_real(&j, "data", p->data);
	json_real(&j, "sum", p->memory);
	json_close(&j, '}');
	json_count(&j, "exchange_bytes", p->exchange_bytes);
	json_real(&j, "exchanges_hour", p->exchanges_hour);
	json_real(&j, "bytes_hour", p->exchanges_hour * (double)p->exchange_bytes);
	json_bool(&j, "at_least", p->at_least);
	json_open(&j, "exchange_seconds", '[');
	for (int i = 0; i < (p->mbit > 0 ? 1 : LINKS); i++) {
		double mbit = p->mbit > 0 ? p->mbit : links_mbit[i];
		json_open(&j, NULL, '{');
		json_real(&j, "mbit", mbit);
		json_real(&j, "seconds", seconds_at(p, mbit));
		json_close(&j, '}');
	}
	json_close(&j, ']');
	json_count(&j, "agents", (uint64_t)p->agents);
	json_count(&j, "run_samples", p->run_samples);
	json_count(&j, "steps", p->steps);
	json_close(&j, '}');
	int rc = j.rc ? j.rc : buf_append(&b, "\n", 1);
	int status = rc ? cli_fail(EXIT_FAILED, "%s", err_text(rc)) : cli_print(&b);
	buf_close(&b);
	return status;
}

static void print_words(const struct plan *p)
{
	printf("model      %" PRIu64 " parameters\n", p->parameters);
	printf("memory     about %.1f MB: parameters and gradients %.1f, optimizer %.1f, "
	       "activations "
	       "%.1f, exchanges %.1f, data %.1f; and the program itself\n",
	        p->memory / 1e6, p->model / 1e6, p->optimizer / 1e6, p->activations / 1e6,
	        p->exchange / 1e6, p->data / 1e6);
	printf("exchange   %.2f MB each way;", (double)p->exchange_bytes / 1e6);
	for (int i = 0; i < (p->mbit > 0 ? 1 : LINKS); i++) {
		double mbit = p->mbit > 0 ? p->mbit : links_mbit[i];
		printf("%s %.3g s at %.6g Mbit/s", i ? "," : "", seconds_at(p, mbit), mbit);
	}
	printf("\nan hour    ");
	if (isnan(p->exchanges_hour))
		printf("not known: say how long a step takes, --step-ms\n");
	else
		printf("%s%.4g exchanges, %.4g MB uploaded by each agent\n",
		        p->at_least ? "at least " : "", p->exchanges_hour,
		        p->exchanges_hour * (double)p->exchange_bytes / 1e6);
	printf("run        %" PRIu64 " samples: %" PRIu64 " steps for each of %d agent%s\n",
	        p->run_samples, p->steps, p->agents, p->agents == 1 ? "" : "s");
}

/* False: it is no positive number, and that was told. */
static bool read_number(const struct cli_args *a, const char *flag, double *out)
{
	const char *text = cli_own(a, CMD_PLAN, flag);
	char *end;
	if (!text)
		return true;
	*out = strtod(text, &end);
	if (end != text && !*end && isfinite(*out) && *out > 0)
		return true;
	cli_usage_error(CMD_PLAN, "%s must be a number over 0", flag);
	return false;
}

int cmd_plan(int argc, char **argv)
{
	struct config c;
	struct cli_args a;
	struct plan p = {.agents = 2};
	struct err e;
	double step_ms = 0;
	int status;
	if (!cli_begin(&c, &a, CMD_PLAN, argc, argv, &status))
		return status;
	const char *agents = cli_own(&a, CMD_PLAN, "--agents");
	status = EXIT_USAGE;
	if (read_number(&a, "--bandwidth", &p.mbit) && read_number(&a, "--step-ms", &step_ms)) {
		p.agents = agents ? atoi(agents) : p.agents;
		int rc = make_plan(&c, step_ms, &p, &status, &e);
		if (rc) {
			status = cli_fail(exit_code(rc, status), "%s", e.msg);
		} else if (cli_own(&a, CMD_PLAN, "--json")) {
			status = print_json(&p);
		} else {
			print_words(&p);
			status = EXIT_OK;
		}
	}
	config_close(&c);
	return status;
}

/* SPDX-License-Identifier: MIT */
/* dunlin eval WEIGHTS: loss and accuracy of a checkpoint, an export, or any safetensors file with
 * the model's names and shapes, on the test set.
 *
 * The file's metadata says which model it is and how its input was normalised, so a file of ours
 * needs no config but where the data lies. A file of somebody else's is taken for the config's
 * model, and the normalisation is worked out from the config's training set, as train would. */
#include "agent/base/log.h"
#include "agent/cli/cli.h"
#include "agent/cli/commands.h"
#include "agent/train/checkpoint.h"
#include "agent/train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct eval {
	struct config config;
	struct st_file file;
	struct dataset data;
	uint32_t *index; /* owned */
	struct arch arch;
	struct normalisation norm;
	struct device *dev;    /* owned */
	struct graph *net;     /* owned */
	struct loader *loader; /* owned */
};

/* The model of the file, or of the config for a file that names none; and its test set. */
static int open_model(struct eval *v, const char *path, int *busy_with, struct err *e)
{
	const struct config *c = &v->config;
	char have[64], want[64];
	int rc;

	*busy_with = EXIT_MODEL;
	rc = checkpoint_open_weights(&v->file, path, e);
	if (rc != 0)
		return rc;
	rc = weights_arch(&v->file, &v->arch, e);
	const bool named = rc == 0;

	if (rc != 0 && rc != ERR_NOTFOUND) {
		err_prefix(e, "%s", path);
		return rc;
	}
	*busy_with = EXIT_DATA;
	if (named && v->arch.tokens) /* the windows that it was trained on */
		v->config.data.context = v->arch.input.dim[0];
	rc = trainer_dataset(
	        c, DATA_TEST, named ? v->arch.classes : c->data.classes, &v->data, e);
	if (rc == ERR_NOTFOUND && c->data.path[0] == '\0')
		return err_set(e, ERR_INVALID,
		        "there is no test set: set data.test_images and data.test_labels");
	if (rc != 0)
		return rc;
	if (!named) {
		*busy_with = EXIT_CONFIG;
		return config_arch(c, &v->data, &v->arch, e);
	}
	if (!shape_equal(&v->data.shape, &v->arch.input))
		return err_set(e, ERR_MISMATCH, "%s: samples of %s, but the model of %s needs %s",
		        c->data.path[0] != '\0' ? c->data.path : c->data.test_images,
		        shape_text(&v->data.shape, have), path,
		        shape_text(&v->arch.input, want));
	return config_check_data(&v->arch, &v->data, e);
}

static int find_normalisation(struct eval *v, struct err *e)
{
	const struct config *c = &v->config;
	struct dataset train;
	int rc = weights_normalisation(&v->file, &v->norm, e);

	if (rc != ERR_NOTFOUND)
		return rc;
	rc = trainer_dataset(c, DATA_TRAIN, c->data.classes, &train, e);
	if (rc != 0) {
		err_prefix(e, "the weights name no mean and std, and the training set");
		return rc;
	}
	rc = trainer_normalisation(c, &train, &v->norm, e);
	dataset_close(&train);
	return rc;
}

static int load_weights(struct eval *v, const char *path, struct err *e)
{
	float *params;
	int rc = weights_check(&v->file, &v->arch, e);

	if (rc != 0) {
		err_prefix(e, "%s", path);
		return rc;
	}
	params = malloc(v->arch.n_total * sizeof *params);
	if (params == NULL)
		return err_set(e, ERR_NOMEM, "no memory for %zu parameters", v->arch.n_total);
	weights_copy(&v->file, &v->arch, params);
	graph_set_params(v->net, params);
	free(params);
	return 0;
}

static int open_device(struct eval *v, struct err *e)
{
	const struct config *c = &v->config;
	const struct device_config dc = {
	        .threads = (int)c->run.threads,
	        .deterministic = c->run.deterministic,
	        .tf32 = c->run.tf32,
	};
	int rc = device_open(&v->dev, c->run.device, &dc, NULL, e);

	if (rc == 0)
		rc = graph_new(&v->net, &v->arch, v->dev, c->train.batch, e);
	return rc;
}

static int open_loader(struct eval *v, struct err *e)
{
	v->index = index_all(v->data.count);
	if (v->index == NULL)
		return err_set(e, ERR_NOMEM, "no memory for the test set's order");
	const struct loader_config lc = {
	        .data = &v->data,
	        .index = v->index,
	        .n_index = v->data.count,
	        .batch = v->config.train.batch,
	        .norm = v->norm,
	        .ahead = (int)v->config.data.ahead,
	        .dev = v->dev,
	};
	return loader_new(&v->loader, &lc, (struct loader_position){0}, e);
}

static int evaluate(
        struct eval *v, const char *path, struct eval_result *r, int *busy_with, struct err *e)
{
	int rc = open_model(v, path, busy_with, e);

	if (rc == 0) {
		*busy_with = EXIT_DATA;
		rc = find_normalisation(v, e);
	}
	if (rc == 0) {
		*busy_with = EXIT_DEVICE;
		rc = open_device(v, e);
	}
	if (rc == 0) {
		*busy_with = EXIT_DATA;
		rc = open_loader(v, e);
	}
	if (rc == 0) {
		*busy_with = EXIT_MODEL;
		rc = load_weights(v, path, e);
	}
	if (rc == 0) {
		*busy_with = EXIT_FAILED;
		rc = eval_run(v->net, v->loader, r, e);
	}
	return rc;
}

static void close_all(struct eval *v)
{
	loader_free(v->loader);
	if (v->net != NULL)
		graph_free(v->net);
	if (v->dev != NULL)
		device_close(v->dev);
	arch_close(&v->arch);
	free(v->index);
	dataset_close(&v->data);
	st_close(&v->file);
	config_close(&v->config);
}

int cmd_eval(int argc, char **argv)
{
	struct eval v = {0};
	struct cli_args args;
	struct eval_result r;
	struct err e;
	char text[40];
	int status, busy_with;

	if (!cli_begin(&v.config, &args, CMD_EVAL, argc, argv, &status))
		return status;
	int rc = evaluate(&v, args.file[0], &r, &busy_with, &e);

	status = EXIT_OK;
	if (rc != 0) {
		log_error("%s", e.msg);
		/* Weights that are not finite are a wrong file here, not a run that diverged. */
		status = rc == ERR_NONFINITE ? EXIT_MODEL : exit_code(rc, busy_with);
	} else if (cli_own(&args, CMD_EVAL, "--json") != NULL) {
		printf("{\"loss\":%.9g,\"accuracy\":%.9g,\"correct\":%" PRId64
		       ",\"count\":%" PRId64,
		        r.loss, (double)r.correct / (double)r.count, r.correct, r.count);
		if (v.arch.tokens)
			printf(",\"perplexity\":%.9g", exp(r.loss));
		printf("}\n");
	} else {
		printf("test loss %.4f%s, accuracy %.2f%% (%" PRId64 " of %" PRId64 ")\n", r.loss,
		        eval_perplexity(v.arch.tokens, r.loss, text),
		        100.0 * (double)r.correct / (double)r.count, r.correct, r.count);
	}
	close_all(&v);
	return status;
}

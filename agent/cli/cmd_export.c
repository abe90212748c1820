/* SPDX-License-Identifier: MIT */
/* dunlin export CHECKPOINT OUT: the weights alone, under PyTorch's names and shapes, with the model
 * and the normalisation of its input in the metadata; or, with --layout huggingface, a folder that
 * transformers loads a GPT-2 from. A file is checked and written whole or not at all; the
 * checkpoint itself is never written over. */
#include "agent/base/log.h"
#include "agent/cli/cli.h"
#include "agent/cli/commands.h"
#include "agent/train/checkpoint.h"
#include "agent/train/gpt2.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool same_file(const char *a, const char *b)
{
	struct stat x, y;

	return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Everything of the checkpoint that an export keeps; params is malloc'd and the caller's. */
static int read_weights(const struct st_file *f, struct arch *a, struct weights_info *info,
        float **params, struct err *e)
{
	const char *step = st_meta(f, "step"), *samples = st_meta(f, "samples");
	int rc = weights_arch(f, a, e);

	if (rc == 0)
		rc = weights_normalisation(f, &info->norm, e);
	if (rc == 0)
		rc = weights_check(f, a, e);
	if (rc != 0)
		return rc;
	if (step == NULL || samples == NULL || !text_u64(step, &info->step) ||
	        !text_u64(samples, &info->samples))
		return err_set(e, ERR_FORMAT, "metadata: no usable step and samples");
	*params = malloc(a->n_total * sizeof **params);
	if (*params == NULL)
		return err_set(e, ERR_NOMEM, "no memory for %zu parameters", a->n_total);
	weights_copy(f, a, *params);
	return 0;
}

/* The file that would be written over: of a folder the weights in it. */
static bool is_source(const char *from, const char *to, bool folder)
{
	char weights[LIMIT_PATH];

	if (!folder || same_file(from, to))
		return same_file(from, to);
	snprintf(weights, sizeof weights, "%s/model.safetensors", to);
	return same_file(from, weights);
}

static int export_weights(const char *from, const char *to, bool folder)
{
	struct weights_info info = {0};
	struct st_file f = {0};
	struct arch a = {0};
	float *params = NULL;
	struct err e;
	int rc, status = EXIT_MODEL;

	if (is_source(from, to, folder))
		return cli_usage_error(CMD_EXPORT,
		        "%s is the checkpoint itself: name another file for the weights", to);
	rc = checkpoint_open_weights(&f, from, &e);
	if (rc == 0) {
		rc = read_weights(&f, &a, &info, &params, &e);
		if (rc != 0)
			err_prefix(&e, "%s", from);
	}
	if (rc == 0) {
		status = EXIT_FAILED;
		rc = folder ? gpt2_write(to, &a, params, &e)
		            : weights_write(to, &a, &info, params, &e);
	}
	if (rc == 0) {
		status = EXIT_OK;
		printf("%s: %d tensors, %zu parameters, step %" PRIu64 "\n", to, a.n_views,
		        a.n_total, info.step);
	} else {
		log_error("%s", e.msg);
		if (rc == ERR_UNSUPPORTED)
			status = EXIT_MODEL;
		else if (rc != ERR_NONFINITE)
			status = exit_code(rc, status);
	}
	free(params);
	arch_close(&a);
	st_close(&f);
	return status;
}

int cmd_export(int argc, char **argv)
{
	struct config c;
	struct cli_args args;
	int status;

	if (!cli_begin(&c, &args, CMD_EXPORT, argc, argv, &status))
		return status;
	const char *layout = cli_own(&args, CMD_EXPORT, "--layout");
	const bool folder = layout != NULL && strcmp(layout, "huggingface") == 0;

	if (layout != NULL && !folder && strcmp(layout, "dunlin") != 0)
		status = cli_usage_error(CMD_EXPORT,
		        "--layout must be dunlin or huggingface, not \"%.40s\"", layout);
	else
		status = export_weights(args.file[0], args.file[1], folder);
	config_close(&c);
	return status;
}

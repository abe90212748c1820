/* SPDX-License-Identifier: MIT */
/* dunlin export CHECKPOINT OUT.safetensors: the weights alone, under PyTorch's names and shapes,
 * with the model and the normalisation of its input in the metadata. The output is checked and
 * written whole or not at all; the checkpoint itself is never written over. */
#include "agent/base/log.h"
#include "agent/cli/cli.h"
#include "agent/cli/commands.h"
#include "agent/train/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
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

static int export_weights(const char *from, const char *to)
{
	struct weights_info info = {0};
	struct st_file f = {0};
	struct arch a = {0};
	float *params = NULL;
	struct err e;
	int rc, status = EXIT_MODEL;

	if (same_file(from, to))
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
		rc = weights_write(to, &a, &info, params, &e);
	}
	if (rc == 0) {
		status = EXIT_OK;
		printf("%s: %d tensors, %zu parameters, step %" PRIu64 "\n", to, a.n_views,
		        a.n_total, info.step);
	} else {
		log_error("%s", e.msg);
		if (rc != ERR_NONFINITE)
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
	status = export_weights(args.file[0], args.file[1]);
	config_close(&c);
	return status;
}

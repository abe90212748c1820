/* SPDX-License-Identifier: MIT */
/* dunlin export CHECKPOINT OUT: the weights alone, under PyTorch's names and shapes, with the model
 * and the normalisation of its input in the metadata; or, with --layout huggingface, a folder that
 * transformers loads a GPT-2 from. A file is checked and written whole or not at all; the
 * checkpoint itself, with all the files of one that is a folder, is never written over. */
#include "agent/base/log.h"
#include "agent/cli/cli.h"
#include "agent/cli/commands.h"
#include "agent/train/checkpoint.h"
#include "agent/train/gpt2.h"
#include "agent/train/weights.h"

#include <inttypes.h>
#include <limits.h>
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

/* What cannot be opened may be cut here. */
static void folder_of(const char *path, char out[PATH_MAX])
{
	const char *slash = strrchr(path, '/');
	struct stat st;

	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		snprintf(out, PATH_MAX, "%s", path);
	else
		snprintf(out, PATH_MAX, "%.*s", slash != NULL ? (int)(slash + 1 - path) : 1,
		        slash != NULL ? path : ".");
}

/* What the source would lose, or NULL. A folder, or an index, is more files than one; and the
 * config.json beside a file may be its own. */
static const char *clash(const char *from, const char *to, bool folder)
{
	char source[PATH_MAX], target[PATH_MAX], config[PATH_MAX + 16];

	if (same_file(from, to))
		return "is the checkpoint itself";
	folder_of(from, source);
	if (folder)
		snprintf(target, sizeof target, "%s", to);
	else
		folder_of(to, target);
	if ((folder || weights_are_many(from)) && same_file(source, target))
		return "is in, or is, the folder of the checkpoint, whose files it could replace";
	snprintf(config, sizeof config, "%s/config.json", source);
	return same_file(config, to) ? "is the config.json of the checkpoint's folder" : NULL;
}

static int export_weights(const char *from, const char *to, bool folder)
{
	struct weights_info info = {0};
	struct st_file f = {0};
	struct arch a = {0};
	float *params = NULL;
	struct err e;
	int rc, status = EXIT_MODEL;

	const char *why = clash(from, to, folder);

	if (why != NULL)
		return cli_usage_error(CMD_EXPORT, "%s %s: name another %s for the weights", to,
		        why, folder || weights_are_many(from) ? "folder" : "file");
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

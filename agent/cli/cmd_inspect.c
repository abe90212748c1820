/* SPDX-License-Identifier: MIT */
/* dunlin inspect FILE: what a file is and what is in it: a checkpoint, exported weights, any other
 * safetensors file, or a data file in IDX format, plain or gzip. It only reads.
 *
 * A file that is not whole is an error with its reason. What is wrong inside a whole one (a value
 * that is not finite, a checksum that does not fit) is part of the answer, and the exit code says
 * so too. */
#include "agent/base/log.h"
#include "agent/cli/cli.h"
#include "agent/cli/commands.h"
#include "agent/cli/inspect.h"
#include "agent/train/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OUTPUT_MAX (64u << 20)

enum file_kind { FILE_UNKNOWN, FILE_SAFETENSORS, FILE_IDX };

/* By the first bytes: the name may be anything. */
static int detect(const char *path, enum file_kind *kind, struct err *e)
{
	unsigned char head[9] = {0};
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n;

	if (fd < 0)
		return err_errno(e, "%s", path);
	n = read(fd, head, sizeof head);
	if (n < 0) {
		err_errno(e, "%s", path);
		close(fd);
		return ERR_IO;
	}
	close(fd);
	if (n == (ssize_t)sizeof head && head[8] == '{')
		*kind = FILE_SAFETENSORS;
	else if (n >= 4 && ((head[0] == 0x1f && head[1] == 0x8b) || (head[0] == 0 && head[1] == 0)))
		*kind = FILE_IDX;
	return 0;
}

static int show(struct buf *b, int rc)
{
	if (rc == 0) {
		fwrite(b->data, 1, b->len, stdout);
		return EXIT_OK;
	}
	log_error("%s", err_text(rc));
	return exit_code(rc, EXIT_FAILED);
}

static int inspect_weights_file(struct buf *b, const char *path, bool json)
{
	struct checkpoint c;
	struct st_file f;
	uint64_t nonfinite;
	struct err e;
	int rc = st_open(&f, path, &e), status;

	if (rc != 0) {
		log_error("%s", e.msg);
		return exit_code(rc, EXIT_MODEL);
	}
	const char *format = st_meta(&f, "format");
	const bool checkpoint = format != NULL && strcmp(format, CHECKPOINT_FORMAT) == 0;

	status = show(b, inspect_safetensors(b, &f, json, &nonfinite));
	st_close(&f);
	if (status != EXIT_OK)
		return status;
	if (nonfinite > 0) {
		log_error("%s: %" PRIu64 " values are not finite", path, nonfinite);
		return EXIT_MODEL;
	}
	if (!checkpoint)
		return EXIT_OK;
	rc = checkpoint_open(&c, path, &e);
	if (rc != 0) {
		log_error("%s", e.msg);
		return exit_code(rc, EXIT_MODEL);
	}
	checkpoint_close(&c);
	return EXIT_OK;
}

static int inspect_data_file(struct buf *b, const char *path, bool json)
{
	uint8_t *data = NULL;
	struct idx x;
	struct err e;
	int rc = idx_read(path, &x, &data, &e), status;

	if (rc != 0) {
		log_error("%s", e.msg);
		return exit_code(rc, EXIT_DATA);
	}
	status = show(b, inspect_idx(b, &x, data, json));
	free(data);
	return status;
}

static int inspect_file(const char *path, bool json)
{
	enum file_kind kind = FILE_UNKNOWN;
	struct buf b;
	struct err e;
	int status;

	if (detect(path, &kind, &e) != 0) {
		log_error("%s", e.msg);
		return EXIT_MODEL;
	}
	buf_init(&b, OUTPUT_MAX);
	if (kind == FILE_SAFETENSORS) {
		status = inspect_weights_file(&b, path, json);
	} else if (kind == FILE_IDX) {
		status = inspect_data_file(&b, path, json);
	} else {
		log_error("%s: neither a safetensors nor an IDX file", path);
		status = EXIT_MODEL;
	}
	buf_close(&b);
	return status;
}

int cmd_inspect(int argc, char **argv)
{
	struct config c;
	struct cli_args args;
	int status;

	if (!cli_begin(&c, &args, CMD_INSPECT, argc, argv, &status))
		return status;
	status = inspect_file(args.file[0], cli_own(&args, CMD_INSPECT, "--json") != NULL);
	config_close(&c);
	return status;
}

/* SPDX-License-Identifier: MIT */
/* dunlin data check: reads all of the data that a run would use, in any format, and says what is
 * there. A run looks at the tokens of large files only as it comes to them; here every one is
 * checked first.
 *
 * The happy path: each part is opened, which checks all but tokens, then the tokens. The first
 * damage ends it, with the file and the place in it; parts before it have been told. */
#include "agent/base/log.h"
#include "agent/cli/cli.h"
#include "agent/cli/commands.h"
#include "agent/config/options.h"
#include "agent/json/jsonout.h"
#include "agent/train/trainer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OUTPUT_MAX 65536

struct part {
	struct dataset data;
	struct tokens_summary tokens;
	uint32_t least, most; /* samples of a class */
};

static int count_labels(struct part *p, struct err *e)
{
	const struct dataset *d = &p->data;
	uint32_t *count = calloc((size_t)d->classes, sizeof *count);

	if (count == NULL)
		return err_set(e, ERR_NOMEM, "no memory to count the labels");
	for (uint32_t i = 0; i < d->count; i++)
		count[d->labels[i]]++;
	p->least = p->most = count[0];
	for (int64_t k = 1; k < d->classes; k++) {
		p->least = count[k] < p->least ? count[k] : p->least;
		p->most = count[k] > p->most ? count[k] : p->most;
	}
	free(count);
	return 0;
}

static int read_part(const struct config *c, enum data_part part, int64_t classes, struct part *p,
        struct err *e)
{
	int rc = trainer_dataset(c, part, classes, &p->data, e);

	if (rc == 0) {
		rc = p->data.tokens != NULL ? dataset_check_tokens(&p->data, &p->tokens, e)
		                            : count_labels(p, e);
		if (rc != 0)
			dataset_close(&p->data);
	}
	return rc;
}

static void print_text(const char *name, const struct part *p)
{
	const struct dataset *d = &p->data;
	char shape[64];

	if (d->tokens != NULL)
		printf("%s: %d file%s, %" PRIu64 " tokens of a vocabulary of %" PRId64
		       ", the largest is %" PRId32 "; %" PRIu32 " samples of %" PRId64
		       " and the next\n",
		        name, p->tokens.files, p->tokens.files == 1 ? "" : "s", p->tokens.tokens,
		        d->classes, p->tokens.largest, d->count, d->context);
	else
		printf("%s: %" PRIu32 " samples of %s, %s; %" PRId64
		       " classes, of each %" PRIu32 " to %" PRIu32 " samples\n",
		        name, d->count, shape_text(&d->shape, shape),
		        d->pixels != NULL ? "bytes" : "floats", d->classes, p->least, p->most);
	fflush(stdout);
}

static void print_json(struct json_out *j, const char *name, const struct part *p)
{
	const struct dataset *d = &p->data;
	char shape[64];

	json_open(j, name, '{');
	json_count(j, "samples", d->count);
	json_count(j, "classes", (uint64_t)d->classes);
	if (d->tokens != NULL) {
		json_count(j, "context", (uint64_t)d->context);
		json_count(j, "files", (uint64_t)p->tokens.files);
		json_count(j, "tokens", p->tokens.tokens);
		json_count(j, "largest_token", (uint64_t)p->tokens.largest);
	} else {
		json_text(j, "shape", shape_text(&d->shape, shape));
		json_text(j, "type", d->pixels != NULL ? "bytes" : "floats");
		json_count(j, "least_of_a_class", p->least);
		json_count(j, "most_of_a_class", p->most);
	}
	json_close(j, '}');
}

static int check_shapes(const struct dataset *train, const struct dataset *test, struct err *e)
{
	char have[64], want[64];

	if (shape_equal(&train->shape, &test->shape))
		return 0;
	return err_set(e, ERR_MISMATCH, "samples to test on are %s, those to train on %s",
	        shape_text(&test->shape, have), shape_text(&train->shape, want));
}

/* j: NULL for text, which is printed part by part. */
static int check(const struct config *c, struct json_out *j, struct err *e)
{
	struct part train = {0}, test = {0};
	int rc = read_part(c, DATA_TRAIN, c->data.classes, &train, e);

	if (rc != 0)
		return rc;
	if (j == NULL)
		print_text("train", &train);
	else
		print_json(j, "train", &train);
	rc = read_part(c, DATA_TEST, train.data.classes, &test, e);
	if (rc == ERR_NOTFOUND) {
		rc = 0;
		if (j == NULL)
			puts("test: none");
		else
			json_null(j, "test");
	} else if (rc == 0) {
		if (j == NULL)
			print_text("test", &test);
		else
			print_json(j, "test", &test);
		rc = check_shapes(&train.data, &test.data, e);
		dataset_close(&test.data);
	}
	dataset_close(&train.data);
	return rc;
}

static int data_check(const struct config *c, bool json)
{
	struct buf text;
	struct err e;

	buf_init(&text, OUTPUT_MAX);
	struct json_out j = {.buf = &text};

	json_open(&j, NULL, '{');
	int rc = check(c, json ? &j : NULL, &e), status = EXIT_OK;

	json_close(&j, '}');
	if (rc != 0) {
		log_error("%s", e.msg);
		/* Numbers that are not finite are damaged data here, not a run that diverged. */
		status = rc == ERR_NONFINITE ? EXIT_DATA : exit_code(rc, EXIT_DATA);
	} else if (json) {
		status = j.rc != 0 ? cli_fail(EXIT_FAILED, "%s", err_text(j.rc)) : EXIT_OK;
		if (status == EXIT_OK)
			printf("%s\n", text.data);
	}
	buf_close(&text);
	return status;
}

int cmd_data(int argc, char **argv)
{
	struct config c;
	struct cli_args args;
	int status;

	if (!cli_begin(&c, &args, CMD_DATA, argc, argv, &status))
		return status;
	if (strcmp(args.file[0], "check") != 0)
		status = cli_usage_error(CMD_DATA, "unknown action \"%.40s\": needs check",
		        args.file[0]);
	else
		status = data_check(&c, cli_own(&args, CMD_DATA, "--json") != NULL);
	config_close(&c);
	return status;
}

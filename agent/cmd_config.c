/* SPDX-License-Identifier: MIT */
/* dunlin config init | check | show.
 *
 * init writes the commented example, with the values of any flags given; it never replaces a file
 * unless told to. check reads a file as train would and goes one step further: the data files must
 * be there, and the model must fit the images. show prints the settings in force, which is what
 * train would work with under the same flags and environment. */
#include "agent/cli.h"
#include "agent/options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fill_file(int fd, void *arg, struct err *e)
{
	const struct buf *text = arg;
	return file_write_all(fd, text->data, text->len, e);
}

/* Creates path, which must not be there: O_EXCL, so that nobody's file can be lost in between. */
static int create_file(const char *path, const struct buf *text, struct err *e)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0 && errno == EEXIST)
		return err_set(e, ERR_BUSY, "%s is there already; --force overwrites it", path);
	if (fd < 0)
		return err_errno(e, "create %s", path);
	int rc = file_write_all(fd, text->data, text->len, e);
	if (close(fd) != 0 && rc == 0)
		rc = err_errno(e, "write %s", path);
	if (rc)
		unlink(path); /* ours, and half a config is worse than none */
	return rc;
}

static int config_init(const struct config *c, const struct cli_args *a)
{
	const char *out = cli_own(a, CMD_CONFIG, "--out");
	struct stat st;
	struct buf text;
	struct err e;
	int rc;
	if (out && a->n_files > 1)
		return cli_usage_error(
		        CMD_CONFIG, "two files to write, --out %s and %s", out, a->file[1]);
	if (a->config)
		return cli_usage_error(CMD_CONFIG, "init reads no file, --config is for show");
	if (a->n_files > 1)
		out = a->file[1];
	buf_init(&text, LIMIT_CONFIG_BYTES);
	rc = config_print(c, true, &text);
	if (rc == 0 && !out) {
		rc = cli_print(&text);
		buf_close(&text);
		return rc;
	}
	if (rc)
		err_set(&e, rc, "%s", err_text(rc));
	else if (!cli_own(a, CMD_CONFIG, "--force"))
		rc = create_file(out, &text, &e);
	else if (stat(out, &st) == 0 && !S_ISREG(st.st_mode))
		rc = err_set(&e, ERR_INVALID, "%s is not a regular file", out);
	else
		rc = file_replace(out, 0644, fill_file, &text, &e);
	buf_close(&text);
	return rc ? cli_fail(EXIT_FAILED, "%s", e.msg) : EXIT_OK;
}

static void check_readable(const char *key, const char *path, bool *bad)
{
	if (!path[0] || access(path, R_OK) == 0)
		return;
	fprintf(stderr, "%s: %s: %s\n", key, path, strerror(errno));
	*bad = true;
}

/* Reads the training data and resolves the model against it. The exit code. */
static int check_model(const struct config *c)
{
	struct dataset d;
	struct arch arch;
	struct err e;
	int rc = dataset_read_idx(
	        &d, c->data.train_images, c->data.train_labels, c->data.classes, &e);
	if (rc)
		return cli_fail(exit_code(rc, EXIT_DATA), "%s", e.msg);
	rc = config_arch(c, &d.shape, d.classes, &arch, &e);
	if (rc)
		cli_fail(EXIT_CONFIG, "model: %s", e.msg);
	else
		arch_close(&arch);
	dataset_close(&d);
	return exit_code(rc, EXIT_CONFIG);
}

static int config_check_file(const struct config *c, const char *path)
{
	bool bad = false;
	check_readable("data.train_images", c->data.train_images, &bad);
	check_readable("data.train_labels", c->data.train_labels, &bad);
	check_readable("data.test_images", c->data.test_images, &bad);
	check_readable("data.test_labels", c->data.test_labels, &bad);
	check_readable("run.init_from", c->run.init_from, &bad);
	int status = bad ? EXIT_DATA : check_model(c);
	if (status == EXIT_OK)
		printf("%s is fine\n", path);
	return status;
}

static int config_show(const struct config *c)
{
	struct buf text;
	buf_init(&text, LIMIT_CONFIG_BYTES);
	int rc = config_print(c, false, &text);
	int status = rc ? cli_fail(EXIT_FAILED, "%s", err_text(rc)) : cli_print(&text);
	buf_close(&text);
	return status;
}

int cmd_config(int argc, char **argv)
{
	static const char *const actions[] = {"init", "check", "show", NULL};
	struct config c;
	struct cli_args a;
	int status;
	if (!cli_parse(&c, &a, CMD_CONFIG, argc, argv, &status))
		return status;
	const char *action = a.file[0];
	bool init = strcmp(action, "init") == 0, check = strcmp(action, "check") == 0;
	const char *meant = nearest(action, actions);
	if (!init && !check && strcmp(action, "show") != 0) {
		status = cli_usage_error(CMD_CONFIG,
		        meant ? "no action of that name; did you mean %s?"
		              : "wants init, check or show",
		        meant);
		goto out;
	}
	if (init) {
		status = config_init(&c, &a);
		goto out;
	}
	if (cli_own(&a, CMD_CONFIG, "--out") || cli_own(&a, CMD_CONFIG, "--force")) {
		status = cli_usage_error(CMD_CONFIG, "--out and --force are for init");
		goto out;
	}
	const char *env = getenv("DUNLIN_CONFIG");
	if (a.n_files > 1 && a.config) {
		status = cli_usage_error(
		        CMD_CONFIG, "two files, --config %s and %s", a.config, a.file[1]);
		goto out;
	}
	if (a.n_files > 1)
		a.config = a.file[1];
	else if (!a.config && env && env[0])
		a.config = env;
	if (check && !a.config) {
		status = cli_usage_error(CMD_CONFIG, "check wants a file");
		goto out;
	}
	if (!cli_settings(&c, &a, CMD_CONFIG, argc, argv, &status))
		return status;
	status = check ? config_check_file(&c, a.config) : config_show(&c);
out:
	config_close(&c);
	return status;
}

/* SPDX-License-Identifier: MIT */
/* dunlin config init | check | show.
 *
 * init writes the commented example, with the values of any flags given; it never replaces a file
 * unless told to. check reads a file as train would and goes one step further: the data files must
 * be there, and the model must fit the images. show prints the settings in force, which is what
 * train would work with under the same flags and environment. */
#include "agent/cli/cli.h"
#include "agent/config/options.h"
#include "agent/train/trainer.h"

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
		return err_set(e, ERR_BUSY, "%s already exists; --force overwrites it", path);
	if (fd < 0)
		return err_errno(e, "create %s", path);
	int rc = file_write_all(fd, text->data, text->len, e);
	if (close(fd) != 0 && rc == 0)
		rc = err_errno(e, "write %s", path);
	if (rc)
		unlink(path); /* ours, and half a config is worse than none */
	return rc;
}

static int init(const struct config *c, const struct cli_args *a)
{
	const char *out = cli_own(a, CMD_CONFIG, "--out");
	struct stat st;
	struct buf text;
	struct err e;
	int rc;
	if (out && a->n_files > 1)
		return cli_usage_error(
		        CMD_CONFIG, "two files to write: --out %s and %s", out, a->file[1]);
	if (a->config)
		return cli_usage_error(
		        CMD_CONFIG, "init reads no file: --config is for check and show");
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

/* A problem with what a setting names, at its line in the file. */
static void complain(struct config_problems *p, const char *key, const char *why)
{
	config_problem(p, p->set_at[setting_find(key)], "%s: %s", key, why);
}

static bool readable(struct config_problems *p, const char *key, const char *path)
{
	char why[256];
	if (!path[0] || access(path, R_OK) == 0)
		return true;
	snprintf(why, sizeof why, "%.180s: %s", path, strerror(errno));
	complain(p, key, why);
	return false;
}

/* All are looked at, so that all problems are told. */
static bool all_files(struct config_problems *p, const struct config *c)
{
	bool there = readable(p, "data.train_images", c->data.train_images);
	there = readable(p, "data.train_labels", c->data.train_labels) && there;
	there = readable(p, "data.test_images", c->data.test_images) && there;
	return readable(p, "data.test_labels", c->data.test_labels) && there;
}

/* Reads the data and resolves the model against it. The exit code. */
static int check_model(const struct config *c, struct config_problems *p)
{
	struct dataset train, test;
	struct arch arch;
	struct err e;
	int status = EXIT_OK;
	const bool path = c->data.path[0] != '\0';
	int rc = trainer_dataset(c, DATA_TRAIN, c->data.classes, &train, &e);
	if (rc) {
		complain(p, path ? "data.path" : "data.train_images", e.msg);
		return exit_code(rc, EXIT_DATA);
	}
	rc = config_arch_to_train(c, &train, &arch, &e);
	if (rc) {
		complain(p, "model", e.msg);
		status = exit_code(rc, EXIT_CONFIG);
	} else {
		arch_close(&arch);
	}
	rc = trainer_test_set(c, &train, &test, &e);
	if (rc == 0) {
		if (!shape_equal(&test.shape, &train.shape))
			rc = err_set(&e, ERR_MISMATCH,
			        "the images have another size than those to train on");
		dataset_close(&test);
	}
	if (rc && rc != ERR_NOTFOUND) {
		complain(p, path ? "data.path" : "data.test_images", e.msg);
		status = exit_code(rc, EXIT_DATA);
	}
	dataset_close(&train);
	return status;
}

static int check_file(struct config *c, const struct cli_args *a, int argc, char **argv)
{
	struct config_problems p;
	bool sound = cli_collect(c, a, CMD_CONFIG, argc, argv, &p) == 0;
	bool there = !c->data.path[0]               ? all_files(&p, c)
	             : data_is_pattern(c->data.path) ? true
	                                             : readable(&p, "data.path", c->data.path);
	there = readable(&p, "run.init_from", c->run.init_from) && there;
	int status = !sound ? EXIT_CONFIG : !there ? EXIT_DATA : check_model(c, &p);
	cli_tell(&p);
	if (status == EXIT_OK)
		printf("%s is fine\n", a->config);
	return status;
}

static int show(struct config *c, const struct cli_args *a, int argc, char **argv)
{
	struct config_problems p;
	struct buf text;
	if (cli_collect(c, a, CMD_CONFIG, argc, argv, &p)) {
		cli_tell(&p);
		return EXIT_CONFIG;
	}
	buf_init(&text, LIMIT_CONFIG_BYTES);
	int rc = config_print(c, false, &text);
	int status = rc ? cli_fail(EXIT_FAILED, "%s", err_text(rc)) : cli_print(&text);
	buf_close(&text);
	return status;
}

/* Which file check and show read. A status when the arguments make no sense together. */
static int choose_file(struct cli_args *a)
{
	const char *env = getenv("DUNLIN_CONFIG");
	if (cli_own(a, CMD_CONFIG, "--out") || cli_own(a, CMD_CONFIG, "--force"))
		return cli_usage_error(CMD_CONFIG, "--out and --force are for init");
	if (a->n_files > 1 && a->config)
		return cli_usage_error(
		        CMD_CONFIG, "two files to read: --config %s and %s", a->config, a->file[1]);
	if (a->n_files > 1)
		a->config = a->file[1];
	else if (!a->config && env && env[0])
		a->config = env;
	if (!a->config && strcmp(a->file[0], "check") == 0)
		return cli_usage_error(CMD_CONFIG, "check needs a file");
	return EXIT_OK;
}

int cmd_config(int argc, char **argv)
{
	static const char *const actions[] = {"init", "check", "show", NULL};
	struct config c;
	struct cli_args a;
	int status;
	if (!cli_parse(&c, &a, CMD_CONFIG, argc, argv, &status))
		return status;
	const char *action = a.file[0], *meant = nearest(action, actions);
	if (strcmp(action, "init") == 0)
		status = init(&c, &a);
	else if (strcmp(action, "check") == 0)
		status = (status = choose_file(&a)) ? status : check_file(&c, &a, argc, argv);
	else if (strcmp(action, "show") == 0)
		status = (status = choose_file(&a)) ? status : show(&c, &a, argc, argv);
	else if (meant)
		status = cli_usage_error(CMD_CONFIG, "unknown action; did you mean %s?", meant);
	else
		status = cli_usage_error(CMD_CONFIG, "needs init, check or show");
	config_close(&c);
	return status;
}

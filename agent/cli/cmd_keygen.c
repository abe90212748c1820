/* SPDX-License-Identifier: MIT */
/* dunlin keygen --out FILE: a new secret, which makes a new flock; with --owner, a new owner's key.
 *
 * The file is created for its owner alone, and one that is there is never overwritten: that would
 * lock a running flock's machines out one by one, as they restart. The secret itself is printed
 * only where it is asked for, with --out -, past the buffers of stdio, which nobody wipes. */
#include "agent/cli/cli.h"
#include "net/crypto/owner.h"
#include "net/crypto/secret.h"

#include "agent/base/buf.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int print_secret(void)
{
	char line[SECRET_TEXT_MAX];
	struct flock_id flock;
	struct err e = {0};
	int rc = secret_make(line, &flock, &e);
	if (rc == 0)
		rc = file_write_all(STDOUT_FILENO, line, strlen(line), &e);
	explicit_bzero(line, sizeof line);
	return rc ? cli_fail(EXIT_FAILED, "standard output: %s", e.msg) : EXIT_OK;
}

static int write_secret(const char *path)
{
	struct flock_id flock;
	struct err e = {0};
	char text[FLOCK_TEXT];
	int rc = secret_create(path, &flock, &e);
	if (rc == ERR_BUSY)
		return cli_fail(EXIT_FAILED,
		        "%s: choose another name, or remove it if no flock needs it", e.msg);
	if (rc)
		return cli_fail(EXIT_FAILED, "%s", e.msg);
	printf("%s: the secret of flock %s; copy it to each of its machines, in a way that "
	       "nobody else can read\n",
	        path, flock_text(&flock, text));
	return EXIT_OK;
}

static int write_owner(const char *path)
{
	struct err e = {0};
	char text[OWNER_TEXT_MAX];
	int rc = owner_create(path, text, &e);
	if (rc == ERR_BUSY)
		return cli_fail(EXIT_FAILED,
		        "%s: choose another name, or remove it if no flock needs it", e.msg);
	if (rc)
		return cli_fail(EXIT_FAILED, "%s", e.msg);
	printf("%s: an owner's key; keep it offline, and a copy of it. Its public half, for "
	       "agent.owner or --owner of every agent:\n%s\n",
	        path, text);
	return EXIT_OK;
}

int cmd_keygen(int argc, char **argv)
{
	struct config c;
	struct cli_args a;
	int status;
	if (!cli_begin(&c, &a, CMD_KEYGEN, argc, argv, &status))
		return status;
	const char *out = cli_own(&a, CMD_KEYGEN, "--out");
	if (!out)
		status = cli_usage_error(
		        CMD_KEYGEN, "needs --out FILE, or --out - to print the secret");
	else if (cli_own(&a, CMD_KEYGEN, "--owner") && strcmp(out, "-") == 0)
		status = cli_usage_error(CMD_KEYGEN, "--owner needs a file: --out FILE");
	else if (cli_own(&a, CMD_KEYGEN, "--owner"))
		status = write_owner(out);
	else if (strcmp(out, "-") == 0)
		status = print_secret();
	else
		status = write_secret(out);
	config_close(&c);
	return status;
}

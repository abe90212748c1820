/* SPDX-License-Identifier: MIT */
/* dunlin sample WEIGHTS: goes on from a prompt with a gpt that Dunlin has trained. A vocabulary of
 * 256 is bytes, which come and go as they are; of any other the prompt is the ids of tokens, and
 * ids are printed. */
#include "agent/base/log.h"
#include "agent/cli/cli.h"
#include "agent/cli/commands.h"
#include "agent/train/checkpoint.h"
#include "agent/train/sample.h"
#include "agent/train/weights.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sample {
	struct config config;
	struct st_file file;
	struct arch arch;
	struct device *dev; /* owned */
	struct graph *net;  /* owned */
	struct sampler sampler;
	struct sample_config how;
	struct rng rng;
};

static int open_model(struct sample *s, const char *path, struct err *e)
{
	int rc = checkpoint_open_weights(&s->file, path, e);

	if (rc != 0)
		return rc;
	rc = weights_arch(&s->file, &s->arch, e);
	if (rc == ERR_NOTFOUND)
		rc = err_set(e, ERR_UNSUPPORTED, "it does not say which model it is of");
	if (rc == 0)
		rc = weights_check(&s->file, &s->arch, e);
	return rc != 0 ? err_prefix(e, "%s", path) : 0;
}

static int open_graph(struct sample *s, struct err *e)
{
	const struct config *c = &s->config;
	const struct device_config dc = {
	        .threads = (int)c->run.threads,
	        .deterministic = c->run.deterministic,
	        .tf32 = c->run.tf32,
	};
	float *params = malloc(s->arch.n_total * sizeof *params);
	int rc = params == NULL ? err_set(e, ERR_NOMEM, "no memory for the model") : 0;

	if (rc == 0)
		rc = device_open(&s->dev, c->run.device, &dc, NULL, e);
	if (rc == 0)
		rc = graph_new(&s->net, &s->arch, s->dev, 1, e);
	if (rc == 0) {
		weights_copy(&s->file, &s->arch, params);
		graph_set_params(s->net, params);
		rc = sample_init(&s->sampler, s->net, e);
	}
	free(params);
	return rc;
}

static bool bytes(const struct sample *s)
{
	return s->arch.classes == 256;
}

/* Of no prompt: of bytes a new line. */
static int add_prompt(struct sample *s, const char *prompt, struct err *e)
{
	if (bytes(s)) {
		for (const char *p = *prompt != '\0' ? prompt : "\n"; *p != '\0'; p++)
			sample_add(&s->sampler, (uint8_t)*p);
		return 0;
	}
	for (const char *p = prompt; *p != '\0';) {
		char *end;

		errno = 0;
		const long long id = strtoll(p, &end, 10);

		if (end == p || errno != 0 || id < 0 || id >= s->arch.classes)
			return err_set(e, ERR_INVALID,
			        "--prompt: \"%.40s\": ids of tokens, 0 to %lld, are expected", p,
			        (long long)s->arch.classes - 1);
		sample_add(&s->sampler, (int32_t)id);
		p = end + strspn(end, " ,\n");
	}
	return s->sampler.n > 0 ? 0
	                        : err_set(e, ERR_INVALID, "--prompt: at least one token is needed");
}

/* Until nobody takes it any more, which is told, and the status. */
static int write_text(struct sample *s, long long n, int *status, struct err *e)
{
	for (long long i = 0; i < n && *status == EXIT_OK; i++) {
		int32_t token;
		int rc = sample_next(&s->sampler, &s->how, &s->rng, &token, e);

		if (rc != 0)
			return rc;
		if (bytes(s))
			putchar(token);
		else
			printf("%s%d", i > 0 ? " " : "", (int)token);
		*status = cli_finish(EXIT_OK);
		sample_add(&s->sampler, token);
	}
	if (*status == EXIT_OK)
		putchar('\n');
	return 0;
}

static const char *given(const struct cli_args *a, const char *flag, const char *otherwise)
{
	const char *value = cli_own(a, CMD_SAMPLE, flag);

	return value != NULL ? value : otherwise;
}

static int read_how(struct sample *s, const struct cli_args *a, struct err *e)
{
	const char *text = given(a, "--temperature", "1");
	char *end;

	s->how.temperature = strtod(text, &end);
	if (end == text || *end != '\0' || !(s->how.temperature >= 0 && s->how.temperature <= 1e6))
		return err_set(
		        e, ERR_USAGE, "--temperature: \"%.40s\" is not a number from 0", text);
	s->how.top_k = strtoll(given(a, "--top-k", "0"), NULL, 10);
	rng_seed(&s->rng, strtoull(given(a, "--random-seed", "1"), NULL, 10), 0);
	return 0;
}

static void close_all(struct sample *s)
{
	sample_close(&s->sampler);
	if (s->net != NULL)
		graph_free(s->net);
	if (s->dev != NULL)
		device_close(s->dev);
	arch_close(&s->arch);
	st_close(&s->file);
	config_close(&s->config);
}

int cmd_sample(int argc, char **argv)
{
	struct sample s = {0};
	struct cli_args args;
	struct err e;
	int status, busy_with = EXIT_USAGE;

	if (!cli_begin(&s.config, &args, CMD_SAMPLE, argc, argv, &status))
		return status;
	int rc = read_how(&s, &args, &e);

	if (rc == 0) {
		busy_with = EXIT_MODEL;
		rc = open_model(&s, args.file[0], &e);
	}
	if (rc == 0) {
		busy_with = EXIT_DEVICE;
		rc = open_graph(&s, &e);
	}
	if (rc == 0) {
		busy_with = EXIT_USAGE;
		rc = add_prompt(&s, given(&args, "--prompt", ""), &e);
	}
	if (rc == 0) {
		busy_with = EXIT_FAILED;
		status = EXIT_OK;
		rc = write_text(
		        &s, strtoll(given(&args, "--tokens", "256"), NULL, 10), &status, &e);
	}
	if (rc != 0) {
		log_error("%s", e.msg);
		status = rc == ERR_NONFINITE || rc == ERR_UNSUPPORTED ? EXIT_MODEL
		                                                      : exit_code(rc, busy_with);
	}
	close_all(&s);
	return status;
}

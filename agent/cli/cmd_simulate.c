/* SPDX-License-Identifier: MIT */
/* dunlin simulate: runs a scenario for each of its seeds, writes an example, or compares results.
 *
 * The happy path: the scenario is read and checked, then each seed is run; after each the results
 * so far are put into the folder of --out, as a whole. At the end a table, and a page there.
 *
 * How it can end otherwise. A signal: what there is of the run is kept, marked as not complete, and
 * --resume runs that seed again and goes on; a run repeats to the bit, so nothing is lost but time.
 * A run that diverges is a result too: it is kept with its reason, the other seeds follow, and the
 * exit code says so. Progress goes to stderr, results to stdout. */
#include "agent/base/cores.h"
#include "agent/base/log.h"
#include "agent/cli/cli.h"
#include "agent/cli/commands.h"
#include "agent/daemon/signals.h"
#include "agent/report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct job {
	struct sim_result result;
	const char *out; /* folder; NULL: nothing is kept */
	int threads;
	bool terminal;
	FILE *trace; /* owned, while a run lasts */
	double began_s;
	int run, n_runs;
	atomic_bool stop; /* set by the thread that takes signals */
};

static const char *own(const struct cli_args *a, const char *flag)
{
	return cli_own(a, CMD_SIMULATE, flag);
}

static void on_signal(void *arg, int signum)
{
	struct job *j = arg;

	(void)signum;
	atomic_store(&j->stop, true);
}

static double real_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void on_progress(void *arg, const struct sim *s)
{
	const struct job *j = arg;
	const struct sim_point *p = sim_last(s);
	const double done = sim_done(s), took = real_s() - j->began_s;

	if (!j->terminal)
		return;
	fprintf(stderr, "\r\033[Krun %d of %d  %3.0f %%", j->run, j->n_runs, 100 * done);
	if (p && isfinite(p->accuracy))
		fprintf(stderr, "  accuracy %.2f %%  loss %.3f  Ξ %.3g", 100 * p->accuracy, p->loss,
		        p->xi);
	fprintf(stderr, "  virtual %.0f s", (double)sim_now(s) / SIM_S);
	if (done > 0.01)
		fprintf(stderr, "  %.0f s left", took * (1 - done) / done);
	fflush(stderr);
}

static int on_trace(void *arg, const char *line, size_t len, struct err *e)
{
	const struct job *j = arg;

	if (fwrite(line, 1, len, j->trace) != len || putc('\n', j->trace) == EOF)
		return err_errno(e, "trace");
	return 0;
}

static int fill(int fd, void *arg, struct err *e)
{
	const struct buf *text = arg;

	return file_write_all(fd, text->data, text->len, e);
}

static int path_in(char out[LIMIT_PATH], const char *folder, const char *name, struct err *e)
{
	if (snprintf(out, LIMIT_PATH, "%s/%s", folder, name) >= LIMIT_PATH)
		return err_set(e, ERR_LIMIT, "%s: the path is too long", folder);
	return 0;
}

/* The results so far, and the page. */
static int keep(struct job *j, struct err *e)
{
	const struct report report = {
	        .results = &j->result, .n_results = 1, .version = PACKAGE_VERSION};
	char path[LIMIT_PATH];
	struct buf text;
	int rc;

	if (!j->out)
		return 0;
	buf_init(&text, RESULT_BYTES_MAX);
	rc = sim_result_print(&j->result, &text);
	if (rc)
		err_set(e, rc, "the results: %s", err_text(rc));
	if (rc == 0)
		rc = path_in(path, j->out, RESULT_FILE, e);
	if (rc == 0)
		rc = file_replace(path, 0644, fill, &text, e);
	buf_close(&text);
	if (rc == 0)
		rc = path_in(path, j->out, "report.html", e);
	return rc ? rc : report_save(&report, path, e);
}

static int open_trace(struct job *j, uint64_t seed, struct err *e)
{
	char path[LIMIT_PATH], name[64];

	if (!j->out)
		return 0;
	snprintf(name, sizeof name, "trace-%" PRIu64 ".jsonl", seed);
	if (path_in(path, j->out, name, e))
		return e->code;
	j->trace = fopen(path, "we");
	return j->trace ? 0 : err_errno(e, "%s", path);
}

/* One seed, into the next place of the results. The exit code. */
static int run_seed(struct job *j, uint64_t seed)
{
	struct sim_options o = {.seed = seed,
	        .threads = j->threads,
	        .stop = &j->stop,
	        .progress = on_progress,
	        .arg = j};
	struct sim_run *run = &j->result.runs[j->result.n_runs];
	struct sim *s = NULL;
	struct err e, second;
	int status = EXIT_FAILED;
	int rc = open_trace(j, seed, &e);

	o.trace = j->trace ? on_trace : NULL;
	j->began_s = real_s();
	if (rc == 0)
		rc = sim_new(&s, &j->result.scenario, &o, &status, &e);
	if (rc == 0) {
		rc = sim_run(s, run, &status, &e);
		j->result.n_runs++;
	}
	sim_free(s);
	if (j->terminal)
		fprintf(stderr, "\r\033[K");
	if (j->trace && fclose(j->trace) && rc == 0)
		rc = err_errno(&e, "trace");
	j->trace = NULL;
	if (rc && rc != ERR_CANCELLED)
		log_error("seed %" PRIu64 ": %s", seed, e.msg);
	if (s && keep(j, &second)) {
		log_error("%s", second.msg);
		return EXIT_FAILED;
	}
	return rc == ERR_CANCELLED ? EXIT_OK : status;
}

/* Of a folder that has results of this scenario: the complete runs. */
static int take_up(struct job *j, struct err *e)
{
	struct sim_result before = {0};
	struct buf a, b;
	int rc = sim_result_load(&before, j->out, e);

	if (rc == ERR_NOTFOUND)
		return 0;
	if (rc)
		return rc;
	buf_init(&a, LIMIT_CONFIG_BYTES);
	buf_init(&b, LIMIT_CONFIG_BYTES);
	rc = scenario_print(&before.scenario, false, &a);
	if (rc == 0)
		rc = scenario_print(&j->result.scenario, false, &b);
	if (rc)
		err_set(e, rc, "%s", err_text(rc));
	else if (a.len != b.len || memcmp(a.data, b.data, a.len) != 0)
		rc = err_set(e, ERR_MISMATCH,
		        "%s has results of another scenario; give another folder", j->out);
	for (int i = 0; rc == 0 && i < before.n_runs; i++) {
		if (!before.runs[i].complete || j->result.n_runs == j->n_runs)
			continue;
		j->result.runs[j->result.n_runs++] = before.runs[i];
		before.runs[i] = (struct sim_run){0};
	}
	buf_close(&a);
	buf_close(&b);
	sim_result_close(&before);
	return rc;
}

static bool has_run(const struct job *j, uint64_t seed)
{
	for (int i = 0; i < j->result.n_runs; i++)
		if (j->result.runs[i].seed == seed)
			return true;
	return false;
}

static int open_folder(struct job *j, bool resume, struct err *e)
{
	char path[LIMIT_PATH];
	struct stat st;
	int rc = file_mkdirs(j->out, e);

	if (rc == 0)
		rc = path_in(path, j->out, RESULT_FILE, e);
	if (rc)
		return rc;
	if (stat(path, &st) == 0 && !resume)
		return err_set(e, ERR_BUSY,
		        "%s has results already: --resume goes on with them, or give another "
		        "folder",
		        j->out);
	return stat(path, &st) == 0 ? take_up(j, e) : 0;
}

static int by_seed(const void *a, const void *b)
{
	const struct sim_run *x = a, *y = b;

	return (x->seed > y->seed) - (x->seed < y->seed);
}

/* The table, or the result itself. */
static int show(struct job *j, bool json)
{
	const struct report report = {
	        .results = &j->result, .n_results = 1, .version = PACKAGE_VERSION};
	struct buf text;
	struct err e;
	int rc, status;

	qsort(j->result.runs, (size_t)j->result.n_runs, sizeof *j->result.runs, by_seed);
	buf_init(&text, RESULT_BYTES_MAX);
	if (json) {
		rc = sim_result_print(&j->result, &text);
		if (rc)
			err_set(&e, rc, "%s", err_text(rc));
	} else {
		rc = report_table(&report, &text, &e);
	}
	status = rc ? cli_fail(EXIT_FAILED, "%s", e.msg) : cli_print(&text);
	buf_close(&text);
	return status;
}

static int run_all(struct job *j, const struct cli_args *a)
{
	const uint64_t first = (uint64_t)j->result.scenario.record.seed;
	int status = EXIT_OK, shown;
	struct err e;

	j->n_runs = (int)j->result.scenario.record.seeds;
	j->result.runs = calloc((size_t)j->n_runs, sizeof *j->result.runs);
	if (!j->result.runs)
		return cli_fail(EXIT_FAILED, "out of memory");
	if (j->out && open_folder(j, own(a, "--resume") != NULL, &e))
		return cli_fail(exit_code(e.code, EXIT_FAILED), "%s", e.msg);
	if (signals_start(on_signal, j, true, "dunlin: stopped at once; --resume goes on\n", &e))
		return cli_fail(EXIT_FAILED, "%s", e.msg);
	for (int k = 0; k < j->n_runs && !atomic_load(&j->stop); k++) {
		const uint64_t seed = first + (uint64_t)k;
		int one;

		j->run = k + 1;
		if (has_run(j, seed))
			continue;
		one = run_seed(j, seed);
		status = status == EXIT_OK ? one : status;
		if (one != EXIT_OK && one != EXIT_DIVERGED)
			break;
	}
	if (atomic_load(&j->stop))
		fprintf(stderr, "dunlin: stopped; %s\n",
		        j->out ? "--resume goes on" : "with --out FOLDER it could be resumed");
	shown = j->result.n_runs > 0 ? show(j, own(a, "--json") != NULL) : EXIT_OK;
	return status == EXIT_OK ? shown : status;
}

#define MEASURED_STEPS 41

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The median time of a step of one agent on one thread. 0 where nothing is trained. */
static int step_seconds(const struct scenario *c, double *out)
{
	struct scenario one = *c; /* borrows what it points to */
	double took[MEASURED_STEPS];
	struct fleet *f;
	struct err e;
	int status, rc = 0;

	*out = 0;
	if (!c->record.train)
		return EXIT_OK;
	one.agents.count = 1;
	one.agents.absent = 0;
	one.agents.split = SPLIT_IID;
	one.agents.inject_alpha = 0;
	one.n_events = 0;
	if (fleet_new(&f, &one, 1, 1, &status, &e))
		return cli_fail(exit_code(e.code, status), "%s", e.msg);
	for (int k = -MEASURED_STEPS / 4; k < MEASURED_STEPS && rc == 0; k++) {
		const double began = real_s();

		fleet_begin(f, 0, FLEET_STEP, 0);
		rc = fleet_wait(f, 0, NULL, &e);
		took[k < 0 ? 0 : k] = real_s() - began;
	}
	fleet_free(f);
	if (rc)
		return cli_fail(exit_code(rc, EXIT_FAILED), "%s", e.msg);
	qsort(took, MEASURED_STEPS, sizeof *took, by_value);
	*out = took[MEASURED_STEPS / 2];
	return EXIT_OK;
}

/* --check: what the run would take. */
static int check(const struct job *j)
{
	const struct scenario *c = &j->result.scenario;
	const struct sim_method *m = sim_methods[c->method.kind];
	const double n = (double)c->agents.count;
	const int threads = j->threads > 0 ? j->threads : cores_usable().n;
	struct fleet_need need;
	struct err e;
	double step_s;
	int status = EXIT_FAILED;

	if (fleet_need(c, threads, &need, &status, &e))
		return cli_fail(exit_code(e.code, status), "%s", e.msg);
	status = step_seconds(c, &step_s);
	if (status != EXIT_OK)
		return status;
	const double batch = (double)c->config.train.batch;
	const double steps = ceil(c->config.train.epochs * (double)need.samples / batch);
	const double vectors = m->agent_vectors * n + m->run_vectors;
	/* Vectors, who met whom, and what a method has for each pair of agents. */
	const double other = 4 * n * n + (m->other_bytes ? m->other_bytes(c) : 0);
	const double mb =
	        ((double)need.bytes + vectors * 4 * (double)need.params * c->record.train + other) /
	        1e6;

	printf("%s: %s, %lld agents, %zu parameters, %.0f steps in all, %lld run%s\n", c->name,
	        m->name, (long long)c->agents.count, need.params, steps, (long long)c->record.seeds,
	        c->record.seeds == 1 ? "" : "s");
	if (!c->record.train) {
		printf("memory about %.0f MB; nothing is trained: bytes and time alone\n", mb);
		return EXIT_OK;
	}
	printf("memory about %.0f MB; time about %.0f s a run on %d thread%s, without "
	       "evaluations\n",
	        mb, steps * step_s / threads, threads, threads == 1 ? "" : "s");
	printf("a step takes %.3g ms here, on one thread; agents.step_ms is %g\n", 1000 * step_s,
	        c->agents.step_ms);
	return EXIT_OK;
}

/* --measure: the scenario as it is, but for the time of a step. */
static int measure(struct job *j)
{
	struct scenario *c = &j->result.scenario;
	struct buf text;
	double step_s;
	int status, rc;

	if (!c->record.train)
		return cli_fail(EXIT_CONFIG, "nothing is trained in this scenario (record.train): "
		                             "there is no step to measure");
	status = step_seconds(c, &step_s);
	if (status != EXIT_OK)
		return status;
	/* As many digits as such a measurement has. */
	c->agents.step_ms = fmax(0.001, round(1e6 * step_s) / 1000);
	buf_init(&text, LIMIT_CONFIG_BYTES);
	rc = scenario_print(c, false, &text);
	status = rc ? cli_fail(EXIT_FAILED, "%s", err_text(rc)) : cli_print(&text);
	buf_close(&text);
	return status;
}

/* An example on stdout, or in a file that is not there yet. */
static int init(const struct cli_args *a)
{
	struct scenario s;
	struct buf text;
	struct err e = {0};
	int status, rc, fd;

	buf_init(&text, LIMIT_CONFIG_BYTES);
	scenario_defaults(&s);
	rc = scenario_print(&s, true, &text);
	scenario_close(&s);
	if (rc) {
		status = cli_fail(EXIT_FAILED, "%s", err_text(rc));
	} else if (a->n_files < 2) {
		status = cli_print(&text);
	} else {
		fd = open(a->file[1], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		if (fd < 0)
			rc = err_errno(&e, "%s", a->file[1]);
		else
			rc = file_finish(
			        fd, a->file[1], file_write_all(fd, text.data, text.len, &e), &e);
		status = rc ? cli_fail(EXIT_FAILED, "%s", e.msg) : EXIT_OK;
	}
	buf_close(&text);
	return status;
}

static int compare(const struct cli_args *a)
{
	struct sim_result *list = calloc((size_t)a->n_files, sizeof *list);
	struct report report = {.results = list,
	        .best_lr = own(a, "--best-lr") != NULL,
	        .version = PACKAGE_VERSION};
	const char *out = own(a, "--out");
	struct buf text;
	struct err e;
	int rc = list ? 0 : err_set(&e, ERR_NOMEM, "out of memory"), status;

	buf_init(&text, RESULT_BYTES_MAX);
	for (int i = 0; i < a->n_files && rc == 0; i++) {
		rc = sim_result_load(&list[i], a->file[i], &e);
		report.n_results += rc == 0;
	}
	if (rc == 0)
		rc = report_table(&report, &text, &e);
	if (rc == 0 && out)
		rc = report_save(&report, out, &e);
	status = rc ? cli_fail(exit_code(rc, EXIT_FAILED), "%s", e.msg) : cli_print(&text);
	for (int i = 0; i < report.n_results; i++)
		sim_result_close(&list[i]);
	free(list);
	buf_close(&text);
	return status;
}

static int simulate(struct job *j, const struct cli_args *a)
{
	struct scenario *s = &j->result.scenario;
	const char *seed = own(a, "--seed"), *threads = own(a, "--threads");
	struct config_problems p;

	scenario_defaults(s);
	config_problems_init(&p, NULL);
	if (scenario_load(s, a->file[0], &p) == 0 && scenario_check(s, &p) == 0)
		p.n = 0;
	if (p.n) {
		cli_tell(&p);
		return EXIT_CONFIG;
	}
	if (seed)
		s->record.seed = strtoll(seed, NULL, 10);
	j->threads = threads ? atoi(threads) : 0;
	j->out = own(a, "--out");
	j->terminal = isatty(STDERR_FILENO) == 1;
	snprintf(j->result.name, sizeof j->result.name, "%s", s->name);
	snprintf(j->result.method, sizeof j->result.method, "%s", scenario_method(s));
	if (own(a, "--check"))
		return check(j);
	return own(a, "--measure") ? measure(j) : run_all(j, a);
}

int cmd_simulate(int argc, char **argv)
{
	static struct job job; /* its address is known to the thread that takes signals */
	struct config c;
	struct cli_args a;
	int status;

	if (!cli_begin(&c, &a, CMD_SIMULATE, argc, argv, &status))
		return status;
	config_close(&c);
	if (own(&a, "--compare")) {
		status = compare(&a);
	} else if (strcmp(a.file[0], "init") == 0 && a.n_files <= 2) {
		status = init(&a);
	} else if (a.n_files > 1) {
		status = cli_usage_error(
		        CMD_SIMULATE, "one scenario at a time, not %s too", a.file[1]);
	} else if (own(&a, "--resume") && !own(&a, "--out")) {
		status = cli_usage_error(
		        CMD_SIMULATE, "--resume needs --out, the folder to go on in");
	} else {
		status = simulate(&job, &a);
		sim_result_close(&job.result);
	}
	return cli_finish(status);
}

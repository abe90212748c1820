/* SPDX-License-Identifier: MIT */
/* Metrics as JSON lines. A line is put together in memory and handed to one write(2) on a file
 * opened for appending, so a reader that follows the file sees whole lines, and a killed process
 * leaves at most one torn line, at the end, which the next one cuts off.
 *
 * A full disk must not end a run that may have taken days: after the first failure nothing more is
 * written, and the caller, who watches m->broken, tells the user. */
#include "agent/train/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 65536

/* The length of the file without its last, unfinished line; -1 when it cannot be read. */
static off_t whole_lines(int fd, off_t size)
{
	char block[4096];

	while (size > 0) {
		size_t n = size < (off_t)sizeof block ? (size_t)size : sizeof block;

		if (pread(fd, block, n, size - (off_t)n) != (ssize_t)n)
			return -1;
		const char *end = memrchr(block, '\n', n);

		if (end != NULL)
			return size - (off_t)n + (end - block) + 1;
		size -= (off_t)n;
	}
	return 0;
}

static int cut_torn_line(int fd, const char *path, struct err *e)
{
	struct stat st;
	off_t len;

	if (fstat(fd, &st) != 0)
		return err_errno(e, "%s", path);
	if (!S_ISREG(st.st_mode))
		return 0;
	len = whole_lines(fd, st.st_size);
	if (len < 0 || (len < st.st_size && ftruncate(fd, len) != 0))
		return err_errno(e, "%s", path);
	return 0;
}

int metrics_open(struct metrics *m, const char *path, struct err *e)
{
	int rc;

	memset(m, 0, sizeof *m);
	buf_init(&m->line, LINE_MAX_BYTES);
	m->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (m->fd < 0)
		return err_errno(e, "metrics file %s", path);
	rc = cut_torn_line(m->fd, path, e);
	if (rc != 0)
		metrics_close(m);
	return rc;
}

void metrics_close(struct metrics *m)
{
	if (m->fd >= 0)
		close(m->fd);
	m->fd = -1;
	buf_close(&m->line);
}

/* The line under way is given up as soon as m->broken is set. */
__attribute__((format(printf, 2, 3))) static void add(struct metrics *m, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	int n, rc;

	if (m->broken.code != 0)
		return;
	va_start(ap, fmt);
	n = vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	rc = n < 0 || (size_t)n >= sizeof text ? ERR_LIMIT : buf_append(&m->line, text, (size_t)n);
	if (rc != 0)
		err_set(&m->broken, rc, "%s", err_text(rc));
}

static void add_string(struct metrics *m, const char *key, const char *value)
{
	int rc;

	add(m, ",\"%s\":", key);
	if (m->broken.code != 0)
		return;
	rc = buf_json_string(&m->line, value);
	if (rc != 0)
		err_set(&m->broken, rc, "%s", err_text(rc));
}

/* JSON has no word for what is not finite. */
static void add_number(struct metrics *m, const char *key, double v)
{
	if (isfinite(v))
		add(m, ",\"%s\":%.17g", key, v);
	else
		add(m, ",\"%s\":null", key);
}

static void begin(struct metrics *m, const struct trainer *t, const char *event)
{
	struct timespec now;

	m->line.len = 0;
	clock_gettime(CLOCK_REALTIME, &now);
	add(m,
	        "{\"event\":\"%s\",\"time\":%" PRId64 ".%03ld,\"step\":%" PRIu64
	        ",\"samples\":%" PRIu64 ",\"clock\":%" PRIu64,
	        event, (int64_t)now.tv_sec, now.tv_nsec / 1000000, t->step, t->samples,
	        trainer_clock(t));
	add_number(m, "epoch", (double)trainer_clock(t) / (double)trainer_epoch_samples(t));
	if (t->arch.tokens)
		add(m, ",\"tokens\":%" PRIu64, t->samples * (uint64_t)t->arch.positions);
}

static void finish(struct metrics *m)
{
	add(m, "}\n");
	if (m->broken.code == 0 &&
	        file_write_all(m->fd, m->line.data, m->line.len, &m->broken) != 0)
		err_prefix(&m->broken, "metrics file");
}

void metrics_start(struct metrics *m, const struct trainer *t, bool resumed)
{
	begin(m, t, "start");
	add(m, ",\"resumed\":%s", resumed ? "true" : "false");
	add_string(m, "model", t->arch.preset[0] != '\0' ? t->arch.preset : "layers");
	add(m, ",\"parameters\":%zu", t->arch.n_train);
	add_string(m, "device", t->dev->text);
	add(m,
	        ",\"train_samples\":%" PRIu32 ",\"validation_samples\":%" PRIu32
	        ",\"test_samples\":%" PRIu32,
	        t->n_train, t->n_val, t->has_test ? t->test_data.count : 0);
	add(m,
	        ",\"steps_total\":%" PRIu64 ",\"batch\":%" PRId64 ",\"accumulate\":%" PRId64
	        ",\"train_seed\":%" PRId64 ",\"data_seed\":%" PRId64,
	        trainer_steps_total(t), t->config->train.batch, t->config->train.accumulate,
	        t->config->train.seed, t->config->data.seed);
	finish(m);
}

void metrics_step(struct metrics *m, const struct trainer *t, const struct step_result *r,
        double samples_per_s)
{
	double noise, signal;

	begin(m, t, "step");
	add_number(m, "loss", r->loss);
	add_number(m, "accuracy", (double)r->correct / (double)r->count);
	add_number(m, "grad_norm", r->grad_norm);
	add_number(m, "lr", r->lr);
	add_number(m, "samples_per_s", samples_per_s);
	if (trainer_batch(t, &noise, &signal) > 0) {
		add(m, ",\"batch\":%" PRIu64, r->step_samples);
		add_number(m, "noise", noise > 0 && signal > 0 ? noise / signal : NAN);
	}
	finish(m);
}

void metrics_eval(struct metrics *m, const struct trainer *t, enum eval_set set,
        const struct eval_result *r, double seconds)
{
	static const char *const names[] = {[EVAL_VALIDATION] = "validation",
	        [EVAL_TEST] = "test",
	        [EVAL_TEST_PART] = "test-part"};

	begin(m, t, "eval");
	add_string(m, "set", names[set]);
	add_number(m, "loss", r->loss);
	add_number(m, "accuracy", (double)r->correct / (double)r->count);
	add(m, ",\"count\":%" PRId64, r->count);
	if (t->arch.tokens)
		add_number(m, "perplexity", exp(r->loss));
	add_number(m, "seconds", seconds);
	finish(m);
}

void metrics_checkpoint(
        struct metrics *m, const struct trainer *t, const char *path, double seconds)
{
	begin(m, t, "checkpoint");
	add_string(m, "path", path);
	add_number(m, "seconds", seconds);
	finish(m);
}

void metrics_end(struct metrics *m, const struct trainer *t, const char *reason, double seconds)
{
	begin(m, t, "end");
	add_string(m, "reason", reason);
	add_number(m, "seconds", seconds);
	finish(m);
}

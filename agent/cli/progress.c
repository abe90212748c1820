/* SPDX-License-Identifier: MIT */
/* The progress line: "epoch 3/10  step 2810/9370  loss 0.312  acc 88.9%  3120 samples/s  ETA 2:41".
 *
 * Loss, accuracy and speed are means over the last hundred steps or so, older ones fading: single
 * steps are too noisy to read. On a terminal the line is drawn over itself ten times a second and
 * cut to the terminal's width, since a wrapped line cannot be drawn over; it is ASCII, so bytes are
 * columns. In a file or a pipe a line every few seconds is enough. Nothing here can fail: what
 * cannot be shown is lost. */
#include "agent/cli/progress.h"

#include "agent/base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define FADE 0.99
#define TERMINAL_EVERY_S 0.1
#define PLAIN_EVERY_S 5.0
#define LINE_BYTES 256

void progress_init(struct progress *p, const struct config *c)
{
	const char *term = getenv("TERM");

	memset(p, 0, sizeof *p);
	p->quiet = !log_enabled(LOG_INFO);
	p->json = c->log.format == LOG_JSON;
	p->terminal =
	        !p->json && isatty(STDERR_FILENO) && (term == NULL || strcmp(term, "dumb") != 0);
}

/* Samples a second. */
static double rate_of(const struct progress *p)
{
	return p->seconds > 0 ? p->samples / p->seconds : 0;
}

static int terminal_width(void)
{
	struct winsize w;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) != 0 || w.ws_col == 0)
		return 80;
	return w.ws_col;
}

static void duration_text(double s, char out[24])
{
	const uint64_t n = s < 0 ? 0 : s > 1e9 ? 1000000000 : (uint64_t)llround(s);

	if (n >= 3600)
		snprintf(out, 24, "%" PRIu64 ":%02d:%02d", n / 3600, (int)(n / 60 % 60),
		        (int)(n % 60));
	else
		snprintf(out, 24, "%d:%02d", (int)(n / 60), (int)(n % 60));
}

static void line_text(const struct progress *p, const struct trainer *t, char out[LINE_BYTES])
{
	const double rate = rate_of(p), epochs = t->config->train.epochs;
	const uint64_t epoch = trainer_epoch(t), total = (uint64_t)ceil(epochs);
	double left = (double)t->schedule.total - (double)t->samples;
	const bool tokens = t->arch.tokens;
	char eta[24];

	if (left < 0)
		left = 0;
	duration_text(rate > 0 ? left / rate : 0, eta);
	snprintf(out, LINE_BYTES,
	        "epoch %" PRIu64 "/%" PRIu64 "  step %" PRIu64 "/%" PRIu64
	        "  loss %.3f  acc %.1f%%  %.0f %s/s  ETA %s",
	        epoch + 1 < total ? epoch + 1 : total, total, t->step, trainer_steps_total(t),
	        p->loss / p->count, 100 * p->correct / p->count,
	        tokens ? rate * (double)t->arch.positions : rate, tokens ? "tokens" : "samples",
	        eta);
}

static void draw(struct progress *p, const char *line)
{
	int width = terminal_width() - 1; /* a full last column makes some terminals wrap */

	/* Back to the first column, the line, and what was longer before is erased. */
	fprintf(stderr, "\r%.*s\033[K", width > 0 ? width : 0, line);
	fflush(stderr);
	p->drawn = true;
}

static void print_line(const struct progress *p, const char *line)
{
	if (p->json)
		log_info("%s", line);
	else
		fprintf(stderr, "%s\n", line);
}

void progress_step(struct progress *p, const struct trainer *t, const struct step_result *r,
        double seconds, double now_s)
{
	char line[LINE_BYTES];

	p->loss = FADE * p->loss + r->loss * (double)r->count;
	p->correct = FADE * p->correct + (double)r->correct;
	p->count = FADE * p->count + (double)r->count;
	p->samples = FADE * p->samples + (double)r->step_samples;
	p->seconds = FADE * p->seconds + seconds;
	if (p->quiet || (now_s < p->next_s && !trainer_done(t)))
		return;
	line_text(p, t, line);
	if (p->terminal)
		draw(p, line);
	else if (p->next_s > 0 || trainer_done(t))
		print_line(p, line);
	p->next_s = now_s + (p->terminal ? TERMINAL_EVERY_S : PLAIN_EVERY_S);
}

void progress_clear(struct progress *p)
{
	if (p->drawn) {
		fputs("\r\033[K", stderr);
		fflush(stderr);
	}
	p->drawn = false;
}

void progress_say(struct progress *p, const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	if (p->quiet)
		return;
	progress_clear(p);
	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	print_line(p, line);
}

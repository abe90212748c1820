/* SPDX-License-Identifier: MIT */
/* A secret is read past the buffers of stdio, which nobody wipes, and is not shown while it is
 * typed. Other questions go to the terminal itself, since stdin may be the pipe that the secret
 * came by. */
#include "agent/cli/setup/prompt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

static int read_all(char *text, size_t size, bool line, size_t *len, struct err *e)
{
	*len = 0;
	for (;;) {
		ssize_t n = read(STDIN_FILENO, text + *len, size - *len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(e, "read stdin");
		*len += (size_t)n;
		if (*len == size)
			return err_set(e, ERR_LIMIT, "more than %zu bytes", size - 1);
		if (n == 0 || (line && memchr(text, '\n', *len)))
			return 0;
	}
}

/* ---- what is typed is hidden */

/* A signal that ends or stops us would leave the terminal so: its handler shows first, raises it
 * again for whoever took it before, and hides anew if we live on. One that is ignored stays so. */
static const int hide_signals[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGTSTP};
#define N_HIDE (sizeof hide_signals / sizeof *hide_signals)
static struct {
	const char *question;
	struct termios before, hidden;
	struct sigaction ours, old[N_HIDE];
} hide;

static void ask_hidden(void)
{
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &hide.hidden);
	if (write(STDERR_FILENO, hide.question, strlen(hide.question)) < 0)
		return; /* nobody sees the question, which is no reason not to read */
}

static void on_signal(int sig)
{
	const int saved = errno;
	sigset_t it;
	size_t i = 0;
	while (i + 1 < N_HIDE && hide_signals[i] != sig)
		i++;
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &hide.before);
	sigaction(sig, &hide.old[i], NULL);
	raise(sig);
	sigemptyset(&it);
	sigaddset(&it, sig);
	sigprocmask(SIG_UNBLOCK, &it, NULL); /* here it ends, or stops until it is continued */
	sigprocmask(SIG_BLOCK, &it, NULL);
	sigaction(sig, &hide.ours, NULL);
	ask_hidden();
	errno = saved;
}

static void hide_begin(const char *question)
{
	hide.question = question;
	hide.hidden = hide.before;
	hide.hidden.c_lflag &= ~(tcflag_t)ECHO;
	memset(&hide.ours, 0, sizeof hide.ours);
	hide.ours.sa_handler = on_signal;
	sigemptyset(&hide.ours.sa_mask);
	for (size_t i = 0; i < N_HIDE; i++) {
		sigaddset(&hide.ours.sa_mask, hide_signals[i]);
		sigaction(hide_signals[i], NULL, &hide.old[i]);
	}
	for (size_t i = 0; i < N_HIDE; i++)
		if (hide.old[i].sa_handler != SIG_IGN)
			sigaction(hide_signals[i], &hide.ours, NULL);
	ask_hidden();
}

static void hide_end(void)
{
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &hide.before);
	for (size_t i = 0; i < N_HIDE; i++)
		sigaction(hide_signals[i], &hide.old[i], NULL);
	fputc('\n', stderr);
}

int prompt_secret(const char *question, char *text, size_t size, size_t *len, struct err *e)
{
	const bool terminal = tcgetattr(STDIN_FILENO, &hide.before) == 0;
	if (terminal)
		hide_begin(question);
	int rc = read_all(text, size, terminal, len, e);
	if (terminal)
		hide_end();
	return rc;
}

/* ---- other questions */

int prompt_line(const char *question, char *out, size_t size, struct err *e)
{
	FILE *t = fopen("/dev/tty", "r+e");
	if (!t)
		return err_set(e, ERR_NOTFOUND, "there is no terminal to ask at");
	setvbuf(t, NULL, _IONBF, 0);
	fputs(question, t);
	bool read = fgets(out, (int)size, t) != NULL;
	fclose(t);
	if (!read)
		return err_set(e, ERR_NOTFOUND, "nobody answers at the terminal");
	if (!strchr(out, '\n') && strlen(out) == size - 1)
		return err_set(e, ERR_LIMIT, "more than %zu bytes", size - 2);
	out[strcspn(out, "\n")] = '\0';
	return 0;
}

int prompt_yes(const char *question, bool *yes, struct err *e)
{
	char answer[16] = "";
	int rc = prompt_line(question, answer, sizeof answer, e);
	*yes = rc == 0 &&
	       (strcmp(answer, "y") == 0 || strcmp(answer, "Y") == 0 || strcmp(answer, "yes") == 0);
	return rc == ERR_LIMIT ? 0 : rc;
}

/* SPDX-License-Identifier: MIT */
/* A secret is read past the buffers of stdio, which nobody wipes, and is not shown while it is
 * typed. Other questions go to the terminal itself, since stdin may be the pipe that the secret
 * came by. */
#include "agent/cli/setup/prompt.h"

#include <errno.h>
#include <fcntl.h>
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

int prompt_secret(const char *question, char *text, size_t size, size_t *len, struct err *e)
{
	struct termios before, hidden;
	bool terminal = tcgetattr(STDIN_FILENO, &before) == 0;
	if (terminal) {
		hidden = before;
		hidden.c_lflag &= ~(tcflag_t)ECHO;
		fputs(question, stderr);
		tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden);
	}
	int rc = read_all(text, size, terminal, len, e);
	if (terminal) {
		tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
		fputc('\n', stderr);
	}
	return rc;
}

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

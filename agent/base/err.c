/* SPDX-License-Identifier: MIT */
#include "agent/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *err_text(int code)
{
	switch (code) {
	case 0:
		return "no error";
#define X(name, value, text)                                                                       \
	case value:                                                                                \
		return text;
		ERR_CODES(X)
#undef X
	default:
		return "unknown error";
	}
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
	if (!e)
		return code;
	va_list ap;
	va_start(ap, fmt);
	e->code = code;
	vsnprintf(e->msg, sizeof e->msg, fmt, ap);
	va_end(ap);
	return code;
}

int err_errno(struct err *e, const char *fmt, ...)
{
	int saved = errno;
	if (!e)
		return ERR_IO;
	va_list ap;
	va_start(ap, fmt);
	e->code = ERR_IO;
	int n = vsnprintf(e->msg, sizeof e->msg, fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof e->msg)
		snprintf(e->msg + n, sizeof e->msg - (size_t)n, ": %s", strerror(saved));
	return ERR_IO;
}

int err_prefix(struct err *e, const char *fmt, ...)
{
	if (!e)
		return ERR_INVALID;
	char head[sizeof e->msg], tail[sizeof e->msg];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(head, sizeof head, fmt, ap);
	va_end(ap);
	memcpy(tail, e->msg, sizeof tail);
	size_t room = sizeof e->msg - sizeof ": ", n = strlen(head), m = strlen(tail);
	if (n > room / 2) /* the cause matters more than where it was met */
		n = room / 2;
	if (m > room - n)
		m = room - n;
	memcpy(e->msg, head, n);
	memcpy(e->msg + n, ": ", 2);
	memcpy(e->msg + n + 2, tail, m);
	e->msg[n + 2 + m] = '\0';
	return e->code;
}

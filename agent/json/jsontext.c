/* SPDX-License-Identifier: MIT */
/* cJSON builds the tree, but it keeps no line numbers, says little about what is wrong, and lets
 * much pass that a config should not hold (text behind the end, 1e999, \u0000, lone control
 * characters). So a scanner of our own goes over the text first. It checks the whole grammar,
 * blanks the comments out and notes the line of each value in the order in which they begin. That
 * is the order in which a walk over cJSON's tree meets them, so a second walk puts the lines in.
 *
 * The happy path is scan, cJSON_ParseWithLength, number the lines. What can fail is the text, at
 * the first place where it is not JSON: there is one fault and no recovery, since what follows a
 * missing quote means nothing. Every bound is checked before the tree exists. */
#include "agent/json/jsontext.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_CHARS_MAX 40 /* cJSON looks at 63 and stops there without a word */

struct scan {
	char *at, *end; /* end points at a NUL of ours */
	char *line_start;
	int line, depth;
	bool comments;
	int *lines; /* owned, room for as many values as the text can hold */
	int n_lines;
	struct json_fault *fault;
};

static int fault(struct scan *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int fault(struct scan *s, const char *fmt, ...)
{
	s->fault->line = s->line;
	s->fault->column = 1;
	for (const char *p = s->line_start; p < s->at; p++)
		s->fault->column += ((unsigned char)*p & 0xc0) != 0x80;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(s->fault->text, sizeof s->fault->text, fmt, ap);
	va_end(ap);
	return ERR_FORMAT;
}

static int fault_met(struct scan *s, const char *wanted)
{
	unsigned char c = (unsigned char)*s->at;
	if (s->at == s->end)
		return fault(s, "%s, but the text ends here", wanted);
	if (c == '\'')
		return fault(s, "%s, found ': strings take double quotes", wanted);
	if (c == '#' || c == '/')
		return fault(s,
		        s->comments ? "%s, found %c: a comment begins with // or /*"
		                    : "%s, found %c",
		        wanted, c);
	if (c > ' ' && c < 0x7f)
		return fault(s, "%s, found %c", wanted, c);
	return fault(s, "%s, found byte 0x%02x", wanted, c);
}

static void newline(struct scan *s)
{
	s->line++;
	s->line_start = s->at + 1;
}

/* Blanks a comment that begins at s->at. */
static int skip_comment(struct scan *s)
{
	if (s->at[1] == '/') {
		while (s->at < s->end && *s->at != '\n')
			*s->at++ = ' ';
		return 0;
	}
	char *close = memmem(s->at + 2, (size_t)(s->end - s->at) - 2, "*/", 2);
	if (!close)
		return fault(s, "a comment that begins with /* is never closed by */");
	for (; s->at < close + 2; s->at++) {
		if (*s->at == '\n')
			newline(s);
		else
			*s->at = ' ';
	}
	return 0;
}

static int skip_space(struct scan *s)
{
	for (;; s->at++) {
		while (s->comments && s->at[0] == '/' && (s->at[1] == '/' || s->at[1] == '*')) {
			int rc = skip_comment(s);
			if (rc)
				return rc;
		}
		if (*s->at == '\n')
			newline(s);
		else if (*s->at != ' ' && *s->at != '\t' && *s->at != '\r')
			return 0;
	}
}

/* The length of the valid UTF-8 sequence at p, 0 if there is none. The text ends in a NUL, which is
 * no continuation byte, so this never reads beyond it. */
static int utf8_length(const unsigned char *p)
{
	if (p[0] < 0x80)
		return 1;
	int n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return 0;
	for (int i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
	bool surrogate = p[0] == 0xed && p[1] > 0x9f;
	bool beyond = p[0] == 0xf4 && p[1] > 0x8f;
	return overlong || surrogate || beyond ? 0 : n;
}

static int hex4(const char *p)
{
	char text[5] = {0};
	memcpy(text, p, 4);
	return strspn(text, "0123456789abcdefABCDEF") == 4 ? (int)strtol(text, NULL, 16) : -1;
}

static int scan_escape(struct scan *s)
{
	if (s->at[1] != 'u') {
		if (!s->at[1] || !strchr("\"\\/bfnrt", s->at[1]))
			return fault(s, "unknown escape in a string; write a backslash as \\\\");
		s->at += 2;
		return 0;
	}
	int v = hex4(s->at + 2);
	if (v < 0)
		return fault(s, "\\u takes four hexadecimal digits");
	if (v == 0)
		return fault(s, "\\u0000 is not allowed in a string");
	if (v >= 0xd800 && v <= 0xdfff) {
		int low = v < 0xdc00 && s->at[6] == '\\' && s->at[7] == 'u' ? hex4(s->at + 8) : -1;
		if (low < 0xdc00 || low > 0xdfff)
			return fault(s, "half a surrogate pair");
		s->at += 6;
	}
	s->at += 6;
	return 0;
}

static int scan_string(struct scan *s)
{
	s->at++;
	while (*s->at != '"') {
		unsigned char c = (unsigned char)*s->at;
		int rc = 0, n;
		if (s->at == s->end || c == '\n')
			return fault(s, "a string is not closed on its line");
		if (c == '\\')
			rc = scan_escape(s);
		else if (c < ' ')
			return fault(s, "control character 0x%02x in a string", c);
		else if ((n = utf8_length((unsigned char *)s->at)) > 0)
			s->at += n;
		else
			return fault(s, "byte 0x%02x is not UTF-8", c);
		if (rc)
			return rc;
	}
	s->at++;
	return 0;
}

static size_t digits(const char *p)
{
	return strspn(p, "0123456789");
}

static int scan_number(struct scan *s)
{
	const char *p = s->at + (*s->at == '-');
	size_t n = digits(p);
	if (n == 0)
		return fault(s, "a number needs a digit after its sign");
	if (n > 1 && *p == '0')
		return fault(s, "a number must not begin with 0");
	p += n;
	if (*p == '.') {
		n = digits(++p);
		if (n == 0)
			return fault(s, "a number needs a digit after its point");
		p += n;
	}
	if (*p == 'e' || *p == 'E') {
		p += p[1] == '+' || p[1] == '-' ? 2 : 1;
		n = digits(p);
		if (n == 0)
			return fault(s, "a number needs a digit in its exponent");
		p += n;
	}
	if (p - s->at > NUMBER_CHARS_MAX)
		return fault(s, "a number of more than %d characters", NUMBER_CHARS_MAX);
	if (!isfinite(strtod(s->at, NULL)))
		return fault(s, "a number is too large");
	s->at += p - s->at;
	return 0;
}

static int scan_word(struct scan *s)
{
	static const char *const words[] = {"true", "false", "null"};
	for (int i = 0; i < 3; i++) {
		size_t n = strlen(words[i]);
		if (strncmp(s->at, words[i], n) == 0) {
			s->at += n;
			return 0;
		}
	}
	return fault_met(s, "expected a value");
}

static int scan_value(struct scan *s, int line);

/* The members of an object or the values of a list, up to its end. */
static int scan_items(struct scan *s, char close)
{
	int rc, n = 0;
	if (++s->depth > JSON_DEPTH_MAX)
		return fault(s, "nested more than %d deep", JSON_DEPTH_MAX);
	s->at++;
	while ((rc = skip_space(s)) == 0) {
		if (*s->at == close && n > 0)
			return fault(s, "a comma before %c: remove it", close);
		if (*s->at == close)
			break;
		int line = s->line;
		if (close == '}') {
			if (++n > JSON_MEMBERS_MAX)
				return fault(s, "more than %d keys", JSON_MEMBERS_MAX);
			if (*s->at != '"')
				return fault_met(s, "expected a key in double quotes");
			if ((rc = scan_string(s)) || (rc = skip_space(s)))
				return rc;
			if (*s->at != ':')
				return fault_met(s, "expected a colon after the key");
			s->at++;
		} else {
			n = 1;
		}
		if ((rc = skip_space(s)) || (rc = scan_value(s, close == '}' ? line : s->line)) ||
		        (rc = skip_space(s)))
			return rc;
		if (*s->at == close)
			break;
		if (*s->at != ',')
			return fault_met(s,
			        close == '}' ? "expected a comma or }" : "expected a comma or ]");
		s->at++;
	}
	s->depth--;
	s->at += rc == 0;
	return rc;
}

static int scan_value(struct scan *s, int line)
{
	if (s->n_lines == JSON_VALUES_MAX)
		return fault(s, "more than %d values", JSON_VALUES_MAX);
	s->lines[s->n_lines++] = line;
	switch (*s->at) {
	case '{':
		return scan_items(s, '}');
	case '[':
		return scan_items(s, ']');
	case '"':
		return scan_string(s);
	default:
		return *s->at == '-' || digits(s->at) ? scan_number(s) : scan_word(s);
	}
}

static int scan_text(struct scan *s)
{
	int rc;
	if (memcmp(s->at, "\xef\xbb\xbf", 3) == 0)
		memset(s->at, ' ', 3);
	if ((rc = skip_space(s)) || (rc = scan_value(s, s->line)) || (rc = skip_space(s)))
		return rc;
	return s->at == s->end ? 0 : fault_met(s, "expected the end of the text");
}

static void number_lines(cJSON *item, const int *lines, int *at)
{
	for (; item; item = item->next) {
		item->valueint = lines[(*at)++];
		number_lines(item->child, lines, at);
	}
}

cJSON *json_parse(const char *text, size_t len, bool comments, struct json_fault *f)
{
	cJSON *root = NULL;
	/* Room behind the end, so that looking a few bytes ahead needs no check. */
	char *copy = calloc(1, len + 16);
	int *lines = calloc(len < JSON_VALUES_MAX ? len + 1 : JSON_VALUES_MAX, sizeof *lines);
	*f = (struct json_fault){.line = 1, .column = 1, .text = "out of memory"};
	if (!copy || !lines)
		goto out;
	if (len)
		memcpy(copy, text, len);
	struct scan s = {.at = copy,
	        .end = copy + len,
	        .line_start = copy,
	        .line = 1,
	        .comments = comments,
	        .lines = lines,
	        .fault = f};
	if (scan_text(&s))
		goto out;
	root = cJSON_ParseWithLength(copy, len);
	if (root) {
		int n = 0;
		number_lines(root, lines, &n);
		assert(n == s.n_lines);
	}
out:
	free(lines);
	free(copy);
	return root;
}

bool json_repeats(const cJSON *object, const cJSON *member)
{
	for (const cJSON *m = object->child; m && m != member; m = m->next)
		if (strcmp(m->string, member->string) == 0)
			return true;
	return false;
}

const char *json_kind(const cJSON *item)
{
	return cJSON_IsString(item)   ? "a string"
	       : cJSON_IsNumber(item) ? "a number"
	       : cJSON_IsBool(item)   ? "true or false"
	       : cJSON_IsArray(item)  ? "a list"
	       : cJSON_IsObject(item) ? "an object"
	                              : "null";
}

const char *json_shown(const char *text, char out[JSON_SHOWN])
{
	size_t n = 0;
	for (const unsigned char *p = (const unsigned char *)text; *p;) {
		int width = utf8_length(p);
		if (n + 10 > JSON_SHOWN) { /* an escape, or four bytes, and "…" */
			memcpy(out + n, "…", sizeof "…");
			return out;
		}
		if (width == 0 || *p < ' ' || *p == 0x7f || (p[0] == 0xc2 && p[1] < 0xa0)) {
			n += (size_t)snprintf(out + n, JSON_SHOWN - n, "\\x%02x", *p++);
		} else {
			memcpy(out + n, p, (size_t)width);
			n += (size_t)width;
			p += width;
		}
	}
	out[n] = 0;
	return out;
}

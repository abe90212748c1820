/* SPDX-License-Identifier: MIT */
/* Ids are kept sorted and found by bisection: a list is read rarely and asked often. Both files are
 * read and parsed whole before anything is replaced, so that a typing error on a reload leaves the
 * lists that were in force, and the user a line number.
 *
 * What can fail: a file that cannot be read or is too large, a line that is no id, too many ids, no
 * memory. */
#include "net/transport/lists.h"

#include "agent/base/buf.h"

#include <stdlib.h>
#include <string.h>

#define ID_DIGITS 64

static int compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct peer_id));
}

void id_list_close(struct id_list *l)
{
	free(l->id);
	*l = (struct id_list){0};
}

bool id_list_has(const struct id_list *l, const struct peer_id *id)
{
	return l->n > 0 && bsearch(id, l->id, l->n, sizeof *id, compare);
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* One line without its newline. 1: an id; 0: nothing on it. */
static int parse_line(const char *s, size_t len, size_t line, struct peer_id *id, struct err *e)
{
	const char *hash = memchr(s, '#', len);
	if (hash)
		len = (size_t)(hash - s);
	while (len > 0 && blank(s[len - 1]))
		len--;
	while (len > 0 && blank(*s)) {
		s++;
		len--;
	}
	if (len == 0)
		return 0;
	for (size_t i = 0; i < len; i++)
		if (digit(s[i]) < 0)
			return err_set(e, ERR_FORMAT,
			        "line %zu: an id has only the digits 0-9 and a-f; a comment begins "
			        "with #",
			        line);
	if (len != ID_DIGITS)
		return err_set(e, ERR_FORMAT, "line %zu: an id has %d digits, this has %zu", line,
		        ID_DIGITS, len);
	for (size_t i = 0; i < sizeof id->bytes; i++)
		id->bytes[i] = (uint8_t)(digit(s[2 * i]) << 4 | digit(s[2 * i + 1]));
	return 1;
}

/* Counted first, so that memory is taken once and only for ids. */
static int each_line(const char *text, size_t len, struct id_list *fill, struct err *e)
{
	size_t line = 1;
	fill->n = 0;
	for (const char *at = text, *end = text + len; at < end; line++) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));
		struct peer_id id;
		if (!stop)
			stop = end;
		int rc = parse_line(at, (size_t)(stop - at), line, &id, e);
		if (rc < 0)
			return rc;
		if (rc > 0 && fill->n == LIST_IDS_MAX)
			return err_set(
			        e, ERR_LIMIT, "line %zu: more than %d ids", line, LIST_IDS_MAX);
		if (rc > 0 && fill->id)
			fill->id[fill->n] = id;
		fill->n += (size_t)rc;
		at = stop < end ? stop + 1 : end;
	}
	return 0;
}

int id_list_parse(struct id_list *out, const char *text, size_t len, struct err *e)
{
	*out = (struct id_list){0};
	int rc = each_line(text, len, out, e);
	if (rc || out->n == 0) {
		out->n = 0;
		return rc;
	}
	out->id = malloc(out->n * sizeof *out->id);
	if (!out->id) {
		out->n = 0;
		return err_set(e, ERR_NOMEM, "no memory for a list of ids");
	}
	rc = each_line(text, len, out, e);
	qsort(out->id, out->n, sizeof *out->id, compare);
	size_t kept = 1;
	for (size_t i = 1; i < out->n; i++)
		if (compare(&out->id[i], &out->id[kept - 1]) != 0)
			out->id[kept++] = out->id[i];
	out->n = kept;
	return rc;
}

static int load(struct id_list *out, const char *path, struct err *e)
{
	struct buf text;
	*out = (struct id_list){0};
	if (!path)
		return 0;
	buf_init(&text, LIST_BYTES_MAX);
	int rc = file_read(&text, path, e); /* names the path itself */
	if (rc == 0) {
		rc = id_list_parse(out, text.data ? text.data : "", text.len, e);
		if (rc)
			err_prefix(e, "%s", path);
	}
	buf_close(&text);
	return rc;
}

void lists_init(struct lists *l)
{
	*l = (struct lists){0};
}

void lists_close(struct lists *l)
{
	id_list_close(&l->allow);
	id_list_close(&l->block);
	lists_init(l);
}

int lists_load(struct lists *l, const char *allow_path, const char *block_path, struct err *e)
{
	struct lists fresh = {.only_allowed = allow_path != NULL};
	int rc = load(&fresh.allow, allow_path, e);
	if (rc == 0)
		rc = load(&fresh.block, block_path, e);
	if (rc) {
		lists_close(&fresh);
		return rc;
	}
	lists_close(l);
	*l = fresh;
	return 0;
}

bool lists_permit(const struct lists *l, const struct peer_id *id)
{
	if (id_list_has(&l->block, id))
		return false;
	return !l->only_allowed || id_list_has(&l->allow, id);
}

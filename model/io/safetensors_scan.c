/* SPDX-License-Identifier: MIT */
/* One pass over the JSON of a safetensors header, or of an index of such files, that makes it
 * harmless before cJSON sees it: valid UTF-8, no raw control characters, no NUL by way of \u0000
 * (cJSON would cut the string there), nesting no deeper than the format's three levels (cJSON
 * recurses), a bounded number of values (each costs cJSON 64 bytes and more), and brackets that
 * close with only spaces after the last. It does not check grammar; that is cJSON's part. */
#include "model/io/safetensors.h"

#include <stdbool.h>
#include <string.h>

#define HEADER_DEPTH 3              /* {"name":{"shape":[…]}} */
#define HEADER_VALUES_PER_TENSOR 16 /* more than a tensor of full rank has */

/* Bytes of the UTF-8 sequence at p, 0 if it is none that JSON allows inside a string: no overlong
 * form, no surrogate, nothing above U+10FFFF or below a space. */
static size_t text_sequence(const uint8_t *p, size_t left)
{
	if (p[0] < 0x80)
		return p[0] >= 0x20;
	size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	if (p[0] < 0xc2 || p[0] > 0xf4 || left < n)
		return 0;
	uint32_t code = p[0] & (0xffu >> (n + 1));
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (p[i] & 0x3fu);
	}
	bool surrogate = code >= 0xd800 && code < 0xe000;
	return code < least[n] || code > 0x10ffff || surrogate ? 0 : n;
}

/* Walks over a string literal that begins at h[i]; returns where it ends, or 0 if it does not, or
 * holds what must not be there. */
static size_t skip_string(const uint8_t *h, size_t len, size_t i)
{
	for (i++; i < len && h[i] != '"';) {
		if (h[i] == '\\') {
			if (len - i > 6 && !memcmp(h + i, "\\u0000", 6))
				return 0;
			i += 2;
			continue;
		}
		size_t n = text_sequence(h + i, len - i);
		if (n == 0)
			return 0;
		i += n;
	}
	return i < len ? i + 1 : 0;
}

int st__scan(const uint8_t *h, size_t len, const char *what, struct err *e)
{
	size_t depth = 0, values = 0, i = 0;
	if (len == 0 || h[0] != '{')
		return err_set(e, ERR_FORMAT, "%s is no JSON object", what);
	do {
		if (h[i] == '"') {
			i = skip_string(h, len, i);
			if (!i)
				return err_set(e, ERR_FORMAT,
				        "%s has a string that is not plain UTF-8 text", what);
			continue;
		}
		if (h[i] == '{' || h[i] == '[')
			depth++;
		else if (h[i] == '}' || h[i] == ']')
			depth--;
		else if (h[i] == ',')
			values++;
		else if (h[i] >= 0x7f || (h[i] < 0x20 && !strchr("\t\n\r", h[i])) || !h[i])
			return err_set(e, ERR_FORMAT, "byte 0x%02x in %s", h[i], what);
		if (depth > HEADER_DEPTH)
			return err_set(
			        e, ERR_FORMAT, "%s is nested deeper than the format", what);
		i++;
	} while (depth && i < len);
	if (depth)
		return err_set(e, ERR_FORMAT, "%s ends in the middle", what);
	for (; i < len; i++)
		if (h[i] != ' ')
			return err_set(e, ERR_FORMAT, "%s goes on after its object", what);
	if (values > (size_t)LIMIT_TENSORS * HEADER_VALUES_PER_TENSOR)
		return err_set(e, ERR_LIMIT, "%s has too many entries", what);
	return 0;
}

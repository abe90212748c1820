/* SPDX-License-Identifier: MIT */
/* Whether a comma is due is read off the text itself: not behind a bracket that opens. A string
 * cannot be mistaken for one, since it ends with its quote. */
#include "agent/json/jsonout.h"

#include <inttypes.h>
#include <math.h>
#include <sodium.h>

#define PUT(j, ...) ((j)->rc = (j)->rc ? (j)->rc : buf_printf((j)->buf, __VA_ARGS__))

/* All keys are our own words: nothing to escape. */
static void put_key(struct json_out *j, const char *key)
{
	const struct buf *b = j->buf;
	char last = b->len ? b->data[b->len - 1] : '[';
	if (last != '{' && last != '[')
		PUT(j, ",");
	if (key)
		PUT(j, "\"%s\":", key);
}

void json_open(struct json_out *j, const char *key, char bracket)
{
	put_key(j, key);
	PUT(j, "%c", bracket);
}

void json_close(struct json_out *j, char bracket)
{
	PUT(j, "%c", bracket);
}

void json_null(struct json_out *j, const char *key)
{
	put_key(j, key);
	PUT(j, "null");
}

void json_bool(struct json_out *j, const char *key, bool v)
{
	put_key(j, key);
	PUT(j, "%s", v ? "true" : "false");
}

void json_count(struct json_out *j, const char *key, uint64_t v)
{
	put_key(j, key);
	PUT(j, "%" PRIu64, v);
}

void json_real(struct json_out *j, const char *key, double v)
{
	put_key(j, key);
	if (isfinite(v))
		PUT(j, "%.9g", v);
	else
		PUT(j, "null"); /* JSON has no NaN */
}

void json_seconds(struct json_out *j, const char *key, uint64_t ms)
{
	put_key(j, key);
	PUT(j, "%" PRIu64 ".%03u", ms / 1000, (unsigned)(ms % 1000));
}

void json_text(struct json_out *j, const char *key, const char *v)
{
	put_key(j, key);
	if (v)
		j->rc = j->rc ? j->rc : buf_json_string(j->buf, v);
	else
		PUT(j, "null");
}

const char *id_hex(const struct peer_id *id, char out[ID_HEX])
{
	return sodium_bin2hex(out, ID_HEX, id->bytes, sizeof id->bytes);
}

void json_id(struct json_out *j, const char *key, const struct peer_id *v)
{
	char hex[ID_HEX];
	put_key(j, key);
	PUT(j, "\"%s\"", id_hex(v, hex));
}

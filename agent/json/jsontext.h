/* SPDX-License-Identifier: MIT */
/* Strict JSON, with comments where they are wanted, and a line number on every value. */
#ifndef DUNLIN_AGENT_JSON_JSONTEXT_H
#define DUNLIN_AGENT_JSON_JSONTEXT_H

#include "agent/base/err.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#define JSON_DEPTH_MAX 32
#define JSON_MEMBERS_MAX 256  /* of one object */
#define JSON_VALUES_MAX 65536 /* of one text */

struct json_fault {
	int line, column; /* from 1 */
	char text[160];   /* what was wanted and what was met instead */
};

/* The tree of a text that is JSON to the letter: nothing behind it, no NUL in it or in its strings,
 * valid UTF-8, finite numbers. The line of each value (of its key, in an object) is in the item's
 * valueint, which therefore is not its number: use valuedouble. Members of one name may repeat;
 * see json_repeats. cJSON_Delete frees it. NULL: f says why. */
cJSON *json_parse(const char *text, size_t len, bool comments, struct json_fault *f) MUST_CHECK;

/* Whether an earlier member of the object has the same name. */
bool json_repeats(const cJSON *object, const cJSON *member);

/* "a string", "a list", … for messages. */
const char *json_kind(const cJSON *item);

/* Foreign text made fit to be shown: control characters escaped, cut with … where it is long;
 * returns out. */
#define JSON_SHOWN 64
const char *json_shown(const char *text, char out[JSON_SHOWN]);

#endif

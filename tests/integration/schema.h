/* SPDX-License-Identifier: MIT */
/* A check of JSON against a JSON Schema, for the keywords that agent/control/control.schema.json
 * uses. */
#ifndef DUNLIN_TESTS_INTEGRATION_SCHEMA_H
#define DUNLIN_TESTS_INTEGRATION_SCHEMA_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#define SCHEMA_WHY 512

struct schema {
	cJSON *root; /* owned */
};

/* Reads a schema and checks it: a keyword that is not known, or is not what it should be, fails; so
 * does an object whose properties are listed but not closed by "additionalProperties": false, since
 * a misspelt field would then pass. why says where. */
bool schema_parse(struct schema *s, const char *text, size_t len, char why[SCHEMA_WHY]);
bool schema_open(struct schema *s, const char *path, char why[SCHEMA_WHY]);
void schema_close(struct schema *s);

/* Whether a value is what "#/$defs/NAME" says; why tells what is wrong and where. */
bool schema_fits(
        const struct schema *s, const char *name, const cJSON *value, char why[SCHEMA_WHY]);

/* Whether an answer is what was to be expected to that command: its own form if it is ok, the form
 * of errors if it is not. */
bool schema_fits_reply(
        const struct schema *s, const char *cmd, const cJSON *reply, char why[SCHEMA_WHY]);

#endif

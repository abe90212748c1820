/* SPDX-License-Identifier: MIT */
/* For tests of the control socket: every answer is checked against the schema. With
 * DUNLIN_TEST_REPLIES each goes to the end of that file too, with the name of its form, for a
 * second opinion. */
#ifndef DUNLIN_TESTS_AGENT_REPLIES_H
#define DUNLIN_TESTS_AGENT_REPLIES_H

#include "tests/integration/schema.h"
#include "tests/support.h"

static inline const struct schema *reply_schema(void)
{
	static struct schema s; /* never closed */
	const char *srcdir = getenv("srcdir");
	char path[1024], why[SCHEMA_WHY];
	snprintf(path, sizeof path, "%s/agent/control/control.schema.json", srcdir ? srcdir : ".");
	if (!s.root && !schema_open(&s, path, why))
		fail_msg("%s", why);
	return &s;
}

static inline void reply_keep(const char *form, const cJSON *value)
{
	const char *path = getenv("DUNLIN_TEST_REPLIES");
	FILE *f = path && *path ? fopen(path, "a") : NULL;
	char *text = f ? cJSON_PrintUnformatted(value) : NULL;
	if (text)
		assert_true(fprintf(f, "{\"form\":\"%s\",\"value\":%s}\n", form, text) > 0);
	free(text);
	if (f)
		assert_int_equal(fclose(f), 0);
}

/* request NULL: it is not known which. Whatever was answered well was also asked well. */
static inline void reply_check(const char *request, const cJSON *reply)
{
	const struct schema *s = reply_schema();
	char why[SCHEMA_WHY], form[64] = "reply";
	cJSON *asked = request ? cJSON_Parse(request) : NULL;
	const cJSON *cmd = cJSON_GetObjectItemCaseSensitive(asked, "cmd");
	bool ok = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(reply, "ok"));
	if (!ok)
		snprintf(form, sizeof form, "error_reply");
	else if (cJSON_IsString(cmd))
		snprintf(form, sizeof form, "%s_reply", cmd->valuestring);
	if (!schema_fits(s, form, reply, why))
		fail_msg("%s: %s", form, why);
	if (!schema_fits(s, "reply", reply, why))
		fail_msg("reply: %s", why);
	if (ok && asked && !schema_fits(s, "request", asked, why))
		fail_msg("%s: %s", request, why);
	reply_keep(form, reply);
	cJSON_Delete(asked);
}

#endif

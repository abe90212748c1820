/* SPDX-License-Identifier: MIT */
/* The schema checker by itself: each keyword with a value that fits and one that does not, and
 * schemas that it must refuse; then the real schema. */
#include "tests/integration/schema.h"
#include "tests/support.h"

/* Whether a value fits "x" in $defs, whose text is def; there is also "word", a string. */
static bool fits(const char *def, const char *value, char why[SCHEMA_WHY])
{
	char text[1024];
	struct schema s;
	snprintf(text, sizeof text, "{\"$defs\":{\"word\":{\"type\":\"string\"},\"x\":%s}}", def);
	if (!schema_parse(&s, text, strlen(text), why))
		fail_msg("%s: %s", def, why);
	cJSON *v = cJSON_Parse(value);
	assert_non_null(v);
	bool good = schema_fits(&s, "x", v, why);
	cJSON_Delete(v);
	schema_close(&s);
	return good;
}

static void test_values(void **state)
{
	static const struct {
		const char *def, *good, *bad, *why;
	} cases[] = {
	        {"{\"type\":\"object\"}", "{}", "[]", "$: is not of type object"},
	        {"{\"type\":\"array\"}", "[1]", "{}", "type array"},
	        {"{\"type\":\"string\"}", "\"\"", "1", "type string"},
	        {"{\"type\":\"number\"}", "1.5", "null", "type number"},
	        {"{\"type\":\"integer\"}", "3", "3.5", "type integer"},
	        {"{\"type\":\"integer\"}", "-1e3", "\"3\"", "type integer"},
	        {"{\"type\":\"boolean\"}", "false", "0", "type boolean"},
	        {"{\"type\":\"null\"}", "null", "0", "type null"},
	        {"{\"type\":[\"number\",\"null\"]}", "null", "false", "none of the types"},
	        {"{\"enum\":[\"a\",2,null]}", "2", "\"b\"", "\"b\" is not in the list"},
	        {"{\"enum\":[\"a\"]}", "\"a\"", "\"A\"", "not in the list"},
	        {"{\"const\":true}", "true", "false", "not the constant"},
	        {"{\"const\":\"a\"}", "\"a\"", "\"b\"", "not the constant"},
	        {"{\"minimum\":0,\"maximum\":7}", "7", "7.5", "$: 7.5 is out of range"},
	        {"{\"minimum\":0,\"maximum\":7}", "0", "-1", "out of range"},
	        {"{\"pattern\":\"^[0-9a-f]{2}$\"}", "\"0f\"", "\"0f0\"", "is not as"},
	        {"{\"$ref\":\"#/$defs/word\"}", "\"a\"", "1", "type string"},
	        {"{\"$ref\":\"#/$defs/word\",\"pattern\":\"a\"}", "\"a\"", "\"b\"", "is not as"},
	        {"{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#/$defs/word\"}]}", "null", "1",
	                "type string"},
	        {"{\"type\":\"array\",\"items\":{\"type\":\"null\"}}", "[null]", "[null,1]",
	                "$.1: is not of type null"},
	        {"{\"minItems\":2,\"maxItems\":2}", "[1,2]", "[1]", "has 1 items"},
	        {"{\"minItems\":2,\"maxItems\":2}", "[1,2]", "[1,2,3]", "has 3 items"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char why[SCHEMA_WHY] = "";
		if (!fits(cases[i].def, cases[i].good, why))
			fail_msg("%s: %s: %s", cases[i].def, cases[i].good, why);
		if (fits(cases[i].def, cases[i].bad, why) || !strstr(why, cases[i].why))
			fail_msg("%s: %s: %s", cases[i].def, cases[i].bad, why);
	}
}

static void test_objects(void **state)
{
	static const char def[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":"
	                          "\"object\",\"properties\":{\"b\":{\"type\":\"null\"}},"
	                          "\"additionalProperties\":false},\"c\":{}},\"required\":[\"a\"],"
	                          "\"additionalProperties\":false}";
	char why[SCHEMA_WHY];
	(void)state;
	assert_true(fits(def, "{\"a\":{},\"c\":[{\"any\":1}]}", why));
	assert_true(fits(def, "{\"a\":{\"b\":null}}", why));
	assert_false(fits(def, "{\"c\":1}", why));
	assert_string_equal(why, "$: \"a\" is missing");
	assert_false(fits(def, "{\"a\":{},\"d\":1}", why));
	assert_string_equal(why, "$.d: is not in the schema");
	assert_false(fits(def, "{\"A\":{}}", why));
	assert_false(fits(def, "{\"a\":{\"b\":null,\"x\":1}}", why));
	assert_string_equal(why, "$.a.x: is not in the schema");
	assert_false(fits(def, "{\"a\":{\"b\":0}}", why));
	assert_string_equal(why, "$.a.b: is not of type null");
	assert_false(fits(def, "{\"a\":{},\"a\":{}}", why));
	assert_string_equal(why, "$.a: comes twice");
}

static void test_schemas_that_are_refused(void **state)
{
	static const struct {
		const char *text, *why;
	} cases[] = {
	        {"nonsense", "is not JSON"},
	        {"[]", "a schema is an object"},
	        {"{\"oneOf\":[{}]}", "#.oneOf: this keyword is not known"},
	        {"{\"Type\":\"string\"}", "not known"},
	        {"{\"items\":{\"uniqueItems\":true}}", "#.items.uniqueItems: this keyword"},
	        {"{\"$defs\":{\"x\":{\"anyOf\":[{},{\"not\":{}}]}}}", "#.$defs.x.anyOf.1.not"},
	        {"{\"$defs\":{\"x\":{},\"x\":{}}}", "comes twice"},
	        {"{\"title\":1}", "wants a string"},
	        {"{\"type\":\"text\"}", "wants a type"},
	        {"{\"type\":[\"null\",\"text\"]}", "no type"},
	        {"{\"$ref\":\"#/$defs/nobody\"}", "#.$ref: wants"},
	        {"{\"$ref\":\"other.json\"}", "#.$ref: wants"},
	        {"{\"properties\":{}}", "additionalProperties must be false"},
	        {"{\"properties\":{},\"additionalProperties\":true}", "only false"},
	        {"{\"additionalProperties\":false}", "wants properties"},
	        {"{\"properties\":{\"a\":{}},\"additionalProperties\":false,\"required\":[\"b\"]}",
	                "no property"},
	        {"{\"enum\":[]}", "wants a list of values"},
	        {"{\"anyOf\":{}}", "wants a list of schemas"},
	        {"{\"minimum\":\"0\"}", "wants a number"},
	        {"{\"pattern\":\"[\"}", "regular expression"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct schema s;
		char why[SCHEMA_WHY] = "";
		if (schema_parse(&s, cases[i].text, strlen(cases[i].text), why) ||
		        !strstr(why, cases[i].why))
			fail_msg("%s: %s", cases[i].text, why);
		assert_null(s.root);
	}
}

static void test_rings_end(void **state)
{
	static const char text[] = "{\"$defs\":{\"x\":{\"$ref\":\"#/$defs/x\"}}}";
	struct schema s;
	char why[SCHEMA_WHY];
	(void)state;
	assert_true(schema_parse(&s, text, strlen(text), why));
	cJSON *v = cJSON_CreateNull();
	assert_false(schema_fits(&s, "x", v, why));
	assert_non_null(strstr(why, "too deep"));
	assert_false(schema_fits(&s, "y", v, why));
	assert_non_null(strstr(why, "has no \"y\""));
	cJSON_Delete(v);
	schema_close(&s);
	assert_false(schema_open(&s, "/nowhere/x.json", why));
}

/* One form for each, and the right one is asked for. */
static void test_the_real_one(void **state)
{
	const char *srcdir = getenv("srcdir");
	struct schema s;
	char path[1024], why[SCHEMA_WHY];
	(void)state;
	snprintf(path, sizeof path, "%s/agent/control/control.schema.json", srcdir ? srcdir : ".");
	if (!schema_open(&s, path, why))
		fail_msg("%s", why);
	cJSON *v = cJSON_Parse("{\"ok\":true,\"version\":\"1\",\"protocol\":[1,2]}");
	assert_true(schema_fits_reply(&s, "version", v, why));
	assert_true(schema_fits(&s, "reply", v, why));
	assert_false(schema_fits(&s, "request", v, why));
	assert_false(schema_fits_reply(&s, "leave", v, why));
	cJSON_Delete(v);
	v = cJSON_Parse("{\"ok\":false,\"error\":\"no\"}");
	assert_true(schema_fits_reply(&s, "leave", v, why));
	cJSON_Delete(v);
	v = cJSON_Parse("{\"ok\":false}");
	assert_false(schema_fits_reply(&s, "leave", v, why));
	cJSON_Delete(v);
	v = cJSON_Parse("{\"cmd\":\"ledger\",\"max\":512,\"tag\":1}");
	assert_true(schema_fits(&s, "request", v, why));
	assert_false(schema_fits(&s, "plain_request", v, why));
	cJSON_Delete(v);
	schema_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_values),
	        cmocka_unit_test(test_objects),
	        cmocka_unit_test(test_schemas_that_are_refused),
	        cmocka_unit_test(test_rings_end),
	        cmocka_unit_test(test_the_real_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* One spelling for each set of values, since its hash is compared: the rows of the table that
 * travel, all of them, in its order. What is read is printed again and must be the same bytes, so
 * nothing that does not travel can come with it.
 *
 * The happy path of a joiner: run_settings_hash is the token's, run_settings_read, then
 * run_settings_take over its own settings. What can fail: the peer is of another version, with
 * other settings, or it lies. */
#include "agent/node/run_settings.h"

#include "agent/config/options.h"
#include "net/limits.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define NUMBERS 9
#define HEAD ((size_t)NUMBERS * 8)
_Static_assert(MANIFEST_FIELDS == NUMBERS + 1, "a new field travels, too");

bool run_settings_travels(int setting)
{
	const struct setting *s = &settings[setting];
	bool words = s->type == SET_TEXT || s->type == SET_LIST;
	return s->shared && (!words || strcmp(s->value, "NAME") == 0);
}

static void numbers_of(const struct manifest *m, uint64_t out[NUMBERS])
{
	const uint64_t all[NUMBERS] = {m->run, m->model, m->init, m->count, m->total, m->optimizer,
	        m->mode, m->outer, m->data};
	memcpy(out, all, sizeof all);
}

static int print_rows(const struct setting *rows, int n, const struct config *c, struct buf *out)
{
	const struct print_how how = {.comments = false};
	const char *last = "";
	int depth = 1;
	int rc = buf_printf(out, "{\n");
	if (rc == 0)
		rc = settings_print(rows, n, c, &how, &last, &depth, out);
	while (--depth > 0 && rc == 0)
		rc = buf_printf(out, "\n%*s}", 2 * depth, "");
	return rc ? rc : buf_printf(out, "\n}\n");
}

static int print_travelling(const struct config *c, struct buf *out)
{
	struct setting rows[CONFIG_SETTINGS_MAX];
	int n = 0;
	for (int i = 0; i < n_settings; i++)
		if (run_settings_travels(i))
			rows[n++] = settings[i];
	return print_rows(rows, n, c, out);
}

int run_settings_print(const struct config *c, const struct manifest *m, struct buf *out)
{
	uint64_t numbers[NUMBERS];
	struct buf b;
	numbers_of(m, numbers);
	buf_init(&b, SETTINGS_BYTES_MAX);
	int rc = 0;
	for (int i = 0; i < NUMBERS && rc == 0; i++)
		for (int k = 0; k < 8 && rc == 0; k++) {
			uint8_t byte = (uint8_t)(numbers[i] >> 8 * k);
			rc = buf_append(&b, &byte, 1);
		}
	if (rc == 0)
		rc = print_travelling(c, &b);
	if (rc == 0)
		rc = buf_append(out, b.data, b.len);
	buf_close(&b);
	return rc;
}

void run_settings_hash(const void *bytes, size_t len, uint8_t out[RUN_SETTINGS_HASH])
{
	static const uint8_t domain[] = "dunlin run settings v1";
	crypto_generichash_state st;
	crypto_generichash_init(&st, NULL, 0, RUN_SETTINGS_HASH);
	crypto_generichash_update(&st, domain, sizeof domain);
	crypto_generichash_update(&st, bytes, len);
	crypto_generichash_final(&st, out, RUN_SETTINGS_HASH);
}

static void read_numbers(const uint8_t *bytes, struct manifest *m)
{
	uint64_t n[NUMBERS] = {0};
	for (size_t i = 0; i < HEAD; i++)
		n[i / 8] |= (uint64_t)bytes[i] << 8 * (i % 8);
	*m = (struct manifest){.run = n[0],
	        .model = n[1],
	        .init = n[2],
	        .count = n[3],
	        .total = n[4],
	        .optimizer = n[5],
	        .mode = n[6],
	        .outer = n[7],
	        .data = n[8]};
}

int run_settings_read(
        struct config *theirs, struct manifest *m, const void *bytes, size_t len, struct err *e)
{
	const char *text = (const char *)bytes + HEAD;
	struct config_problems p;
	struct buf again;
	config_defaults(theirs);
	*m = (struct manifest){0};
	if (len < HEAD || len > SETTINGS_BYTES_MAX)
		return err_set(e, ERR_FORMAT, "%zu bytes are no settings of a run", len);
	read_numbers(bytes, m);
	config_problems_init(&p, NULL);
	if (config_read(theirs, text, len - HEAD, &p))
		return err_set(e, ERR_FORMAT, "%s", p.n > 0 ? p.list[0].text : "not JSON");
	buf_init(&again, SETTINGS_BYTES_MAX);
	int rc = print_travelling(theirs, &again);
	bool same = rc == 0 && again.len == len - HEAD && memcmp(again.data, text, again.len) == 0;
	buf_close(&again);
	if (rc == ERR_NOMEM)
		return err_set(e, rc, "%s", err_text(rc));
	return same ? 0
	            : err_set(e, ERR_FORMAT,
	                      "other settings than this version of Dunlin has, or spelt another "
	                      "way");
}

/* Both as JSON; a value that differs has another text. */
static int same_value(
        const struct setting *s, const struct config *a, const struct config *b, bool *same)
{
	struct buf x, y;
	buf_init(&x, LIMIT_CONFIG_BYTES);
	buf_init(&y, LIMIT_CONFIG_BYTES);
	int rc = print_rows(s, 1, a, &x);
	if (rc == 0)
		rc = print_rows(s, 1, b, &y);
	*same = rc == 0 && strcmp(x.data, y.data) == 0;
	buf_close(&x);
	buf_close(&y);
	return rc;
}

static void take_model(struct config *c, struct config *theirs)
{
	free(c->layers);
	memcpy(c->preset, theirs->preset, sizeof c->preset);
	c->layers = theirs->layers;
	c->n_layers = theirs->n_layers;
	theirs->layers = NULL;
	theirs->n_layers = 0;
}

int run_settings_take(struct config *c, struct config *theirs, const bool *given, struct err *e)
{
	for (int i = 0; i < n_settings; i++) {
		bool same;
		if (!given[i] || !run_settings_travels(i))
			continue;
		int rc = same_value(&settings[i], c, theirs, &same);
		if (rc)
			return err_set(e, rc, "%s", err_text(rc));
		if (!same)
			return err_set(e, ERR_MISMATCH,
			        "%s: the run has another value, and all its agents must have the "
			        "same: leave the flag out",
			        settings[i].flag);
	}
	for (int i = 0; i < n_settings; i++) {
		const struct setting *s = &settings[i];
		if (!run_settings_travels(i))
			continue;
		if (s->type == SET_MODEL)
			take_model(c, theirs);
		else
			memcpy((char *)c + s->offset, (const char *)theirs + s->offset, s->size);
	}
	return 0;
}

int run_settings_file(const struct config *c, bool all, struct buf *out)
{
	struct setting rows[CONFIG_SETTINGS_MAX];
	struct config plain;
	int n = 0, rc = 0;
	config_defaults(&plain);
	for (int i = 0; i < n_settings && rc == 0; i++) {
		bool same, travels = run_settings_travels(i);
		rc = same_value(&settings[i], c, &plain, &same);
		if (rc == 0 && (all ? travels || !same : travels && !same))
			rows[n++] = settings[i];
	}
	if (rc == 0)
		rc = print_rows(rows, n, c, out);
	config_close(&plain);
	return rc;
}

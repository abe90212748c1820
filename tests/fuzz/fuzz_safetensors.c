/* SPDX-License-Identifier: MIT */
/* Any bytes as a safetensors file: every byte of every tensor, name and metadata that the parser
 * promises is touched, and names are found again; then its tensors as a GPT-2's in Hugging Face's
 * layout. And the same bytes as an index of such files, and as a GPT-2's config.json. */
#include "agent/config/gpt2_config.h"
#include "agent/train/gpt2.h"
#include "model/io/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int rc, const struct err *e)
{
	if (rc && (e->code != rc || !e->msg[0]))
		abort();
}

static void as_index(const uint8_t *data, size_t size)
{
	struct st_index x;
	struct err e = {0};
	int rc = st__parse_index(&x, data, size, &e);
	check(rc, &e);
	for (int i = 0; i < x.n_rows; i++)
		if (!x.rows[i].file[0] || x.rows[i].file[0] == '.' || strchr(x.rows[i].file, '/') ||
		        (i && strcmp(x.rows[i - 1].tensor, x.rows[i].tensor) >= 0))
			abort();
	if (rc && (x.n_rows || x.rows || x.json))
		abort();
	st__close_index(&x);
}

static void as_config(const uint8_t *data, size_t size)
{
	struct gpt2_config c, again;
	struct buf text;
	struct err e = {0};
	int rc = gpt2_config_parse(&c, (const char *)data, size, &e);
	check(rc, &e);
	if (rc)
		return;
	buf_init(&text, 4096);
	if (gpt2_config_print(&c, &text) || gpt2_config_parse(&again, text.data, text.len, &e) ||
	        again.layers != c.layers || again.width != c.width || again.heads != c.heads ||
	        again.positions != c.positions || again.vocabulary != c.vocabulary ||
	        again.tanh != c.tanh)
		abort();
	buf_close(&text);
}

static void as_gpt2(struct st_file *f)
{
	struct err e = {0};
	volatile size_t sum = 0;
	int rc = st_widen(f, &e);
	check(rc, &e);
	if (rc)
		return;
	gpt2_is_theirs(f);
	rc = gpt2_take(f, "/nonexistent/config.json", &e);
	check(rc, &e);
	for (int i = 0; i < f->n_tensors && !rc; i++)
		for (uint64_t k = 0; k < f->tensors[i].bytes; k++)
			sum += ((const uint8_t *)f->tensors[i].data)[k];
	(void)sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct st_file f;
	struct err e = {0};
	as_index(data, size);
	as_config(data, size);
	int rc = st_parse(&f, data, size, &e);
	check(rc, &e);
	if (rc)
		return 0;
	volatile size_t sum = 0;
	for (int i = 0; i < f.n_tensors; i++) {
		const struct st_tensor *t = &f.tensors[i];
		const uint8_t *p = t->data;
		uint64_t bytes = st_dtype_bytes(t->dtype);
		for (int k = 0; k < t->rank; k++)
			bytes *= (uint64_t)t->dim[k];
		if (bytes != t->bytes || p < data || p + bytes > data + size)
			abort();
		for (uint64_t k = 0; k < bytes; k++)
			sum += p[k];
		if (i < 64 && st_find(&f, t->name) != t)
			abort();
	}
	for (int i = 0; i < f.n_meta; i++)
		sum += strlen(f.meta[i].key) + strlen(f.meta[i].value);
	(void)sum;
	as_gpt2(&f);
	st_close(&f);
	return 0;
}

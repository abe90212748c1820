/* SPDX-License-Identifier: MIT */
/* Descriptions of files, as text or as JSON. Every value is looked at, so that "finite" and the
 * ranges are found, not assumed. Text from the file is shown as JSON strings: control characters in
 * it must not reach the terminal. The only things that can fail are memory and the buffer's cap. */
#include "agent/cli/inspect.h"

#include "agent/train/checkpoint.h"
#include "model/io/half.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_MAX 160 /* bytes of a metadata value that people get to see */

struct summary {
	double min, max, norm;
	uint64_t count, nonfinite;
};

/* Element i as a number; memory of the file need not be aligned. */
static double element(const struct st_tensor *t, uint64_t i)
{
	const unsigned char *p = (const unsigned char *)t->data + i * st_dtype_bytes(t->dtype);
	union {
		float f32;
		double f64;
		uint16_t u16;
		int64_t i64;
		int32_t i32;
		int16_t i16;
		int8_t i8;
		uint8_t u8;
	} u = {0};

	memcpy(&u, p, st_dtype_bytes(t->dtype));
	switch (t->dtype) {
	case ST_F32:
		return (double)u.f32;
	case ST_F64:
		return u.f64;
	case ST_F16:
		return (double)half_to_float(u.u16);
	case ST_BF16:
		return (double)bf16_to_float(u.u16);
	case ST_I64:
		return (double)u.i64;
	case ST_I32:
		return u.i32;
	case ST_I16:
		return u.i16;
	case ST_I8:
		return u.i8;
	case ST_U8:
	case ST_BOOL:
		return u.u8;
	}
	return 0;
}

static struct summary summarise(const struct st_tensor *t)
{
	struct summary s = {.count = t->bytes / st_dtype_bytes(t->dtype)};
	double squares = 0;
	bool any = false;

	for (uint64_t i = 0; i < s.count; i++) {
		const double v = element(t, i);

		if (!isfinite(v)) {
			s.nonfinite++;
			continue;
		}
		s.min = any && s.min < v ? s.min : v;
		s.max = any && s.max > v ? s.max : v;
		squares += v * v;
		any = true;
	}
	s.norm = sqrt(squares);
	return s;
}

static const char *kind_of(const struct st_file *f)
{
	const char *format = st_meta(f, "format");

	if (format != NULL && strcmp(format, CHECKPOINT_FORMAT) == 0)
		return "checkpoint";
	if (format != NULL && strcmp(format, WEIGHTS_FORMAT) == 0)
		return "weights";
	return "safetensors";
}

static int put_dims(struct buf *b, const struct st_tensor *t, const char *between)
{
	int rc = 0;

	for (int i = 0; rc == 0 && i < t->rank; i++)
		rc = buf_printf(b, "%s%" PRId64, i > 0 ? between : "", t->dim[i]);
	return rc;
}

static int tensor_json(struct buf *b, const struct st_tensor *t, const struct summary *s)
{
	int rc = buf_printf(b, "{\"name\":");

	if (rc == 0)
		rc = buf_json_string(b, t->name);
	if (rc == 0)
		rc = buf_printf(b, ",\"dtype\":\"%s\",\"shape\":[", st_dtype_text(t->dtype));
	if (rc == 0)
		rc = put_dims(b, t, ",");
	if (rc == 0)
		rc = buf_printf(b,
		        "],\"count\":%" PRIu64 ",\"nonfinite\":%" PRIu64
		        ",\"min\":%.9g,\"max\":%.9g,\"norm\":",
		        s->count, s->nonfinite, s->min, s->max);
	if (rc == 0) /* squares of doubles may overflow */
		rc = isfinite(s->norm) ? buf_printf(b, "%.9g}", s->norm) : buf_printf(b, "null}");
	return rc;
}

static int tensor_text(struct buf *b, const struct st_tensor *t, const struct summary *s)
{
	struct buf dims;
	int rc;

	buf_init(&dims, 256);
	rc = put_dims(&dims, t, "x");
	if (rc == 0)
		rc = buf_printf(b,
		        "  %-24s %-4s %-14s %10" PRIu64 "  min %-11.4g max %-11.4g norm %.4g",
		        t->name, st_dtype_text(t->dtype), dims.len > 0 ? dims.data : "scalar",
		        s->count, s->min, s->max, s->norm);
	if (rc == 0 && s->nonfinite > 0)
		rc = buf_printf(b, "  %" PRIu64 " NOT FINITE", s->nonfinite);
	if (rc == 0)
		rc = buf_printf(b, "\n");
	buf_close(&dims);
	return rc;
}

static int meta_json(struct buf *b, const struct st_file *f)
{
	int rc = buf_printf(b, "\"metadata\":{");

	for (int i = 0; rc == 0 && i < f->n_meta; i++) {
		rc = buf_printf(b, "%s", i > 0 ? "," : "");
		if (rc == 0)
			rc = buf_json_string(b, f->meta[i].key);
		if (rc == 0)
			rc = buf_printf(b, ":");
		if (rc == 0)
			rc = buf_json_string(b, f->meta[i].value);
	}
	return rc == 0 ? buf_printf(b, "},") : rc;
}

static int meta_text(struct buf *b, const struct st_file *f)
{
	char shown[SHOWN_MAX + 1];
	int rc = 0;

	for (int i = 0; rc == 0 && i < f->n_meta; i++) {
		rc = buf_printf(b, "  ");
		if (rc == 0)
			rc = buf_json_string(b, f->meta[i].key);
		snprintf(shown, sizeof shown, "%s", f->meta[i].value);
		if (rc == 0)
			rc = buf_printf(b, ": ");
		if (rc == 0)
			rc = buf_json_string(b, shown);
		if (rc == 0)
			rc = buf_printf(
			        b, "%s\n", strlen(f->meta[i].value) > SHOWN_MAX ? " …" : "");
	}
	return rc;
}

/* The model as a table, when the file describes one. */
static int model_text(struct buf *b, const struct st_file *f)
{
	struct arch a;
	struct err e;
	int rc = weights_arch(f, &a, &e);

	if (rc != 0)
		return rc == ERR_NOTFOUND ? 0 : buf_printf(b, "%s\n", e.msg);
	rc = arch_describe(&a, b);
	arch_close(&a);
	return rc;
}

int inspect_safetensors(struct buf *b, const struct st_file *f, bool json, uint64_t *nonfinite)
{
	uint64_t values = 0;
	int rc;

	*nonfinite = 0;
	for (int i = 0; i < f->n_tensors; i++)
		values += f->tensors[i].bytes / st_dtype_bytes(f->tensors[i].dtype);
	if (json) {
		rc = buf_printf(b, "{\"kind\":\"%s\",\"values\":%" PRIu64 ",", kind_of(f), values);
		if (rc == 0)
			rc = meta_json(b, f);
		if (rc == 0)
			rc = buf_printf(b, "\"tensors\":[");
	} else {
		rc = buf_printf(b, "%s: %d tensors, %" PRIu64 " values\n", kind_of(f), f->n_tensors,
		        values);
		if (rc == 0)
			rc = meta_text(b, f);
		if (rc == 0)
			rc = model_text(b, f);
	}
	for (int i = 0; rc == 0 && i < f->n_tensors; i++) {
		const struct summary s = summarise(&f->tensors[i]);

		*nonfinite += s.nonfinite;
		if (json && i > 0)
			rc = buf_printf(b, ",");
		if (rc == 0)
			rc = json ? tensor_json(b, &f->tensors[i], &s)
			          : tensor_text(b, &f->tensors[i], &s);
	}
	if (rc == 0 && json)
		rc = buf_printf(b, "],\"finite\":%s}\n", *nonfinite == 0 ? "true" : "false");
	return rc;
}

static int labels_json(struct buf *b, const uint64_t counts[256])
{
	int rc = buf_printf(b, ",\"labels\":{"), told = 0;

	for (int i = 0; rc == 0 && i < 256; i++)
		if (counts[i] > 0)
			rc = buf_printf(
			        b, "%s\"%d\":%" PRIu64, told++ > 0 ? "," : "", i, counts[i]);
	return rc == 0 ? buf_printf(b, "}") : rc;
}

static int labels_text(struct buf *b, const uint64_t counts[256])
{
	int rc = 0;

	for (int i = 0; rc == 0 && i < 256; i++)
		if (counts[i] > 0)
			rc = buf_printf(b, "  label %3d: %" PRIu64 " samples\n", i, counts[i]);
	return rc;
}

int inspect_idx(struct buf *b, const struct idx *x, const uint8_t *data, bool json)
{
	const bool labels = x->rank == 1;
	uint64_t counts[256] = {0};
	double sum = 0;
	int lowest = 0, highest = 255, rc;

	for (size_t i = 0; i < x->bytes; i++)
		counts[data[i]]++;
	while (lowest < 255 && counts[lowest] == 0)
		lowest++;
	while (highest > 0 && counts[highest] == 0)
		highest--;
	for (int i = 0; i < 256; i++)
		sum += i * (double)counts[i];
	rc = json ? buf_printf(b, "{\"kind\":\"idx-%s\",\"shape\":[", labels ? "labels" : "images")
	          : buf_printf(b, "IDX %s: ", labels ? "labels" : "images");
	for (int i = 0; rc == 0 && i < x->rank; i++)
		rc = buf_printf(b, "%s%" PRIu32, i == 0 ? "" : json ? "," : "x", x->dim[i]);
	if (rc == 0)
		rc = buf_printf(b,
		        json ? "],\"min\":%d,\"max\":%d,\"mean\":%.9g"
		             : ", values %d to %d, mean %.4g\n",
		        lowest, highest, x->bytes > 0 ? sum / (double)x->bytes : 0.0);
	if (rc == 0 && labels)
		rc = json ? labels_json(b, counts) : labels_text(b, counts);
	if (rc == 0 && json)
		rc = buf_printf(b, "}\n");
	return rc;
}

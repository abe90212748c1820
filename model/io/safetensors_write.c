/* SPDX-License-Identifier: MIT */
/* Writes safetensors files. The header is built in memory first, since its length comes before it,
 * and padded with spaces so that the data begins on a 64-byte boundary: a program that maps the
 * file can use the tensors in place. Then header and tensors go to a temporary file that replaces
 * the old one, so a crash leaves the old weights or the new, never a mixture.
 *
 * The tensors come from our own code, so their sizes are asserted. What can fail: memory, the limit
 * of the header, the disk. */
#include "agent/base/buf.h"
#include "model/io/safetensors.h"

#include <assert.h>
#include <inttypes.h>

#define DATA_ALIGN 64

struct write_job {
	const struct buf *header;
	const struct st_tensor *tensors;
	int n_tensors;
};

static void check_size(const struct st_tensor *t)
{
	uint64_t bytes = st_dtype_bytes(t->dtype);
	assert(t->rank >= 0 && t->rank <= LIMIT_TENSOR_RANK);
	for (int i = 0; i < t->rank; i++)
		bytes *= (uint64_t)t->dim[i];
	assert(bytes == t->bytes);
	(void)bytes;
}

static int print_meta(struct buf *b, const struct st_meta *meta, int n)
{
	int rc = buf_printf(b, "\"__metadata__\":{");
	for (int i = 0; i < n && !rc; i++) {
		rc = buf_append(b, ",", i ? 1 : 0);
		if (!rc)
			rc = buf_json_string(b, meta[i].key);
		if (!rc)
			rc = buf_printf(b, ":");
		if (!rc)
			rc = buf_json_string(b, meta[i].value);
	}
	return rc ? rc : buf_printf(b, "}");
}

static int print_tensor(struct buf *b, const struct st_tensor *t, uint64_t from)
{
	int rc = buf_json_string(b, t->name);
	if (!rc)
		rc = buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", st_dtype_text(t->dtype));
	for (int i = 0; i < t->rank && !rc; i++)
		rc = buf_printf(b, "%s%" PRId64, i ? "," : "", t->dim[i]);
	if (!rc)
		rc = buf_printf(
		        b, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", from, from + t->bytes);
	return rc;
}

/* The length and the JSON, padded. */
static int print_header(struct buf *b, const struct st_tensor *tensors, int n_tensors,
        const struct st_meta *meta, int n_meta)
{
	uint64_t at = 0;
	int rc = buf_append(b, "\0\0\0\0\0\0\0\0{", 9);
	if (!rc && n_meta)
		rc = print_meta(b, meta, n_meta);
	for (int i = 0; i < n_tensors && !rc; i++) {
		check_size(&tensors[i]);
		if (i || n_meta)
			rc = buf_append(b, ",", 1);
		if (!rc)
			rc = print_tensor(b, &tensors[i], at);
		at += tensors[i].bytes;
	}
	if (!rc)
		rc = buf_append(b, "}", 1);
	while (!rc && b->len % DATA_ALIGN)
		rc = buf_append(b, " ", 1);
	for (int i = 0; i < 8 && !rc; i++)
		b->data[i] = (char)((uint64_t)(b->len - 8) >> (8 * i));
	return rc;
}

static int fill(int fd, void *arg, struct err *e)
{
	const struct write_job *job = arg;
	int rc = file_write_all(fd, job->header->data, job->header->len, e);
	for (int i = 0; i < job->n_tensors && !rc; i++)
		rc = file_write_all(fd, job->tensors[i].data, job->tensors[i].bytes, e);
	return rc;
}

int st_write(const char *path, const struct st_tensor *tensors, int n_tensors,
        const struct st_meta *meta, int n_meta, struct err *e)
{
	struct buf header;
	buf_init(&header, 8 + (size_t)LIMIT_SAFETENSORS_HEADER);
	int rc = n_tensors > LIMIT_TENSORS - 1
	                 ? ERR_LIMIT
	                 : print_header(&header, tensors, n_tensors, meta, n_meta);
	if (rc) {
		err_set(e, rc, "%s: the header of %d tensors: %s", path, n_tensors, err_text(rc));
	} else {
		struct write_job job = {&header, tensors, n_tensors};
		rc = file_replace(path, 0644, fill, &job, e);
	}
	buf_close(&header);
	return rc;
}

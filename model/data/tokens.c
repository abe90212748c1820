/* SPDX-License-Identifier: MIT */
/* Formats of tokens. A path is a file, or a folder or a pattern ("fineweb_*.bin") whose
 * files are read in the order of their names, byte by byte compared:
 *
 *     tokens              *.bin of llm.c: a header, then 2 or 4 bytes a token
 *     tokens16, tokens32  *.bin without a header, little-endian; they are named, never guessed
 *     bytes               any files, a byte a token: a vocabulary of 256
 *
 * Of several files, those with one of the words val, valid, validation and test in their names
 * ("fineweb_val_000000.bin") are the test set. If there is none, the last tenth of each file is.
 *
 * Files stay open and are read by pread: nothing is mapped, so that a file that is cut while we
 * train is an error here, not a signal. Headers and lengths are checked at the start, and the
 * tokens too if they are few; each token is checked again as it is read. */
#include "model/data/tokens.h"
#include "model/data/format.h"
#include "model/data/source.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEST_SHARE 10             /* one in so many, of a file without a test set beside it */
#define CHECKED_WHOLE (64u << 20) /* bytes of all files */
#define CHUNK 65536               /* tokens read at once to check them */

struct shard {
	int fd;
	bool shared; /* fd is the other part's, see dataset_read_beside */
	char name[256];
	uint64_t at;     /* of the file, in bytes: where its tokens begin */
	uint64_t first;  /* token of the file that our part of it begins with */
	uint64_t n;      /* tokens of our part */
	uint32_t before; /* samples of the shards before it */
};

struct tokens {
	struct shard *shard; /* owned */
	int n_shards;
	int width;          /* bytes of a token */
	int64_t vocabulary; /* a token is below it */
};

void tokens_close(struct tokens *t)
{
	if (!t)
		return;
	for (int i = 0; i < t->n_shards; i++)
		if (!t->shard[i].shared)
			close(t->shard[i].fd);
	free(t->shard);
	free(t);
}

uint32_t tokens_files(const struct tokens *t)
{
	uint32_t n = 0;
	for (int i = 0; i < t->n_shards; i++)
		n += !t->shard[i].shared;
	return n;
}

static uint32_t little32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

int tokens_parse(const uint8_t p[TOKENS_HEADER_BYTES], struct tokens_header *h, struct err *e)
{
	const uint32_t magic = little32(p), version = little32(p + 4), count = little32(p + 8);
	const bool gpt2 = magic == 20240520;
	if (!gpt2 && magic != 20240801)
		return err_set(e, ERR_FORMAT,
		        "magic number %u, not 20240520 or 20240801: not a shard of llm.c; of files "
		        "without a header, name the format tokens16 or tokens32",
		        magic);
	if (version != 1 && (gpt2 || version != 7))
		return err_set(
		        e, ERR_FORMAT, "version %u of its format, which is not known", version);
	if (count > INT32_MAX)
		return err_set(e, ERR_FORMAT, "a header that says %d tokens", (int32_t)count);
	*h = (struct tokens_header){gpt2 ? 2 : 4, gpt2 ? 50257 : 128256, count};
	return 0;
}

/* All of len bytes from that place of the file. */
static int read_at(const struct shard *s, uint8_t *to, size_t len, uint64_t at, struct err *e)
{
	while (len > 0) {
		ssize_t n = pread(s->fd, to, len, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(e, ERR_SYSTEM, "read: %s", strerror(errno));
		if (n == 0)
			return err_set(e, ERR_FORMAT, "it has become shorter: it ends at byte %llu",
			        (unsigned long long)at);
		to += n;
		at += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

/* n tokens from token `first` of our part of a shard. */
static int read_tokens(const struct tokens *t, const struct shard *s, uint64_t first, size_t n,
        uint8_t *scratch, int32_t *out, struct err *e)
{
	const size_t width = (size_t)t->width;
	first += s->first;
	int rc = read_at(s, scratch, n * width, s->at + first * width, e);
	for (size_t i = 0; i < n && !rc; i++) {
		const uint8_t *p = scratch + i * width;
		const uint32_t v = width == 1   ? p[0]
		                   : width == 2 ? (uint32_t)p[0] | (uint32_t)p[1] << 8
		                                : little32(p);
		if (v >= t->vocabulary)
			rc = err_set(e, ERR_FORMAT,
			        "token %llu (counted from 0), at byte %llu, is %u: the vocabulary "
			        "has %lld",
			        (unsigned long long)(first + i),
			        (unsigned long long)(s->at + (first + i) * width), v,
			        (long long)t->vocabulary);
		else
			out[i] = (int32_t)v;
	}
	return rc ? err_prefix(e, "%s", s->name) : 0;
}

int tokens_read(const struct dataset *d, uint32_t i, uint64_t shift, uint8_t *scratch,
        int32_t *inputs, int32_t *labels, struct err *e)
{
	const struct tokens *t = d->tokens;
	const size_t context = (size_t)d->context;
	int low = 0, high = t->n_shards - 1;
	while (low < high) { /* the last shard that begins at or before i */
		int mid = (low + high + 1) / 2;
		if (t->shard[mid].before <= i)
			low = mid;
		else
			high = mid - 1;
	}
	const struct shard *s = &t->shard[low];
	const uint64_t first = shift + (uint64_t)(i - s->before) * context;
	int rc = read_tokens(t, s, first, context, scratch, inputs, e);
	if (rc)
		return rc;
	memcpy(labels, inputs + 1, (context - 1) * sizeof *labels);
	return read_tokens(t, s, first + context, 1, scratch, labels + context - 1, e);
}

/* ---- the files of a path */

static bool has_word(const char *name, const char *word)
{
	const size_t n = strlen(word);
	for (const char *p = name; (p = strstr(p, word)); p++)
		if ((p == name || !isalpha((unsigned char)p[-1])) && !isalpha((unsigned char)p[n]))
			return true;
	return false;
}

static bool is_test(const char *name)
{
	return has_word(name, "val") || has_word(name, "valid") || has_word(name, "validation") ||
	       has_word(name, "test");
}

static bool ends_with(const char *name, const char *end)
{
	const size_t n = strlen(name), m = strlen(end);
	return n >= m && strcmp(name + n - m, end) == 0;
}

static bool is_folder(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

struct listing {
	char path[TOKENS_SHARDS_MAX][LIMIT_PATH];
	int n;
	bool has_test; /* files of the test set have names of their own */
};

static int by_bytes(const void *a, const void *b)
{
	return strcmp(a, b);
}

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static int add_name(struct listing *l, const char *path, struct err *e)
{
	if (is_folder(path))
		return 0;
	if (l->n == TOKENS_SHARDS_MAX)
		return err_set(e, ERR_LIMIT, "more than %d files", TOKENS_SHARDS_MAX);
	if (snprintf(l->path[l->n], LIMIT_PATH, "%s", path) >= LIMIT_PATH)
		return err_set(e, ERR_LIMIT, "too long a path");
	l->has_test = is_test(last_part(l->path[l->n++])) || l->has_test;
	return 0;
}

static int list_folder(struct listing *l, const char *path, const char *end, struct err *e)
{
	char file[LIMIT_PATH + 256];
	DIR *dir = opendir(path);
	if (!dir)
		return err_errno(e, "%s", path);
	int rc = 0;
	for (struct dirent *f; !rc && (f = readdir(dir));) {
		if (f->d_name[0] == '.' || !ends_with(f->d_name, end))
			continue;
		if (snprintf(file, sizeof file, "%s/%s", path, f->d_name) >= LIMIT_PATH)
			rc = err_set(e, ERR_LIMIT, "too long a path");
		else
			rc = add_name(l, file, e);
	}
	closedir(dir);
	return rc ? err_prefix(e, "%s", path) : 0;
}

static int list_pattern(struct listing *l, const char *pattern, struct err *e)
{
	glob_t found;
	int rc = data__match(pattern, &found, e);
	for (size_t i = 0; i < found.gl_pathc && !rc; i++)
		if ((rc = add_name(l, found.gl_pathv[i], e)) != 0)
			err_prefix(e, "%s", pattern);
	globfree(&found);
	return rc;
}

/* end: of the names of a folder's files. */
static int list_files(struct listing *l, const char *path, const char *end, struct err *e)
{
	int rc = 0;
	if (is_folder(path))
		rc = list_folder(l, path, end, e);
	else if (data_is_pattern(path))
		rc = list_pattern(l, path, e);
	else
		snprintf(l->path[l->n++], LIMIT_PATH, "%s", path);
	qsort(l->path, (size_t)l->n, sizeof l->path[0], by_bytes);
	return rc;
}

/* ---- opening */

/* Where the file's tokens begin, and how many they are. */
static int measure(struct tokens *t, struct shard *s, bool header, int64_t *vocabulary,
        uint64_t *count, struct err *e)
{
	uint8_t bytes[TOKENS_HEADER_BYTES];
	struct tokens_header h;
	struct stat st;
	if (fstat(s->fd, &st) < 0)
		return err_errno(e, "stat");
	const uint64_t size = (uint64_t)st.st_size;
	if (!header) {
		*count = size / (uint64_t)t->width;
		if (size % (uint64_t)t->width)
			return err_set(e, ERR_FORMAT,
			        "truncated, or of another format: %llu bytes are not whole tokens "
			        "of %d bytes",
			        (unsigned long long)size, t->width);
		return 0;
	}
	if (size < TOKENS_HEADER_BYTES)
		return err_set(e, ERR_FORMAT, "%llu bytes: too short for the header of a shard",
		        (unsigned long long)size);
	int rc = read_at(s, bytes, sizeof bytes, 0, e);
	if (!rc)
		rc = tokens_parse(bytes, &h, e);
	if (rc)
		return rc;
	if (t->width && t->width != h.width)
		return err_set(e, ERR_MISMATCH,
		        "tokens of %d bytes, the files before it have %d: of another tokenizer",
		        h.width, t->width);
	t->width = h.width;
	*vocabulary = h.vocabulary;
	*count = h.count;
	s->at = TOKENS_HEADER_BYTES;
	if (size != TOKENS_HEADER_BYTES + h.count * (uint64_t)h.width)
		return err_set(e, ERR_FORMAT,
		        "%s: its header says %llu tokens, %llu bytes in all, but it has %llu bytes",
		        size < TOKENS_HEADER_BYTES + h.count * (uint64_t)h.width
		                ? "truncated"
		                : "bytes behind its end",
		        (unsigned long long)h.count,
		        (unsigned long long)(TOKENS_HEADER_BYTES + h.count * (uint64_t)h.width),
		        (unsigned long long)size);
	return 0;
}

static bool same_file(int fd, const char *path)
{
	struct stat a, b;
	return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

/* Two parts that are cut from the same files list them alike. */
static int open_shard(const struct dataset *d, const char *path, struct shard *s, struct err *e)
{
	const struct tokens *other = d->beside ? d->beside->tokens : NULL;
	const int i = d->tokens->n_shards;
	if (!other || i >= other->n_shards || !same_file(other->shard[i].fd, path))
		return source_open_fd(path, &s->fd, e);
	s->fd = other->shard[i].fd;
	s->shared = true;
	return 0;
}

static int add_file(struct dataset *d, const char *path, enum data_part part, bool header,
        bool by_name, int64_t *vocabulary, struct err *e)
{
	struct tokens *t = d->tokens;
	struct shard *s = &t->shard[t->n_shards];
	uint64_t count = 0;
	int rc = open_shard(d, path, s, e);
	if (rc)
		return err_prefix(e, "%s", path);
	t->n_shards++;
	snprintf(s->name, sizeof s->name, "%.200s", last_part(path));
	rc = measure(t, s, header, vocabulary, &count, e);
	if (rc)
		return err_prefix(e, "%s", path);
	const uint64_t cut = by_name ? count : count - count / TEST_SHARE;
	s->first = !by_name && part == DATA_TEST ? cut : 0;
	s->n = !by_name && part == DATA_TEST ? count - cut : cut;
	s->before = d->count;
	const uint64_t context = (uint64_t)d->context;
	const uint64_t samples = s->n < context ? 0 : (s->n - context) / context;
	if (d->count + samples >= LIMIT_SAMPLES)
		return err_set(e, ERR_LIMIT, "%s: more than %u samples", path, LIMIT_SAMPLES - 1);
	d->count += (uint32_t)samples;
	return 0;
}

int dataset_check_tokens(const struct dataset *d, struct tokens_summary *out, struct err *e)
{
	static const size_t chunk = CHUNK;
	const struct tokens *t = d->tokens;
	int rc = 0;
	*out = (struct tokens_summary){.files = t->n_shards};
	uint8_t *scratch = malloc(chunk * TOKENS_WIDTH_MAX);
	int32_t *token = malloc(chunk * sizeof *token);
	if (!scratch || !token)
		rc = err_set(e, ERR_NOMEM, "no memory to check the tokens");
	for (int i = 0; i < t->n_shards && !rc; i++) {
		const struct shard *s = &t->shard[i];
		for (uint64_t at = 0; at < s->n && !rc; at += chunk) {
			const size_t n = s->n - at < chunk ? s->n - at : chunk;
			rc = read_tokens(t, s, at, n, scratch, token, e);
			for (size_t k = 0; k < n && !rc; k++)
				out->largest = token[k] > out->largest ? token[k] : out->largest;
		}
		out->tokens += s->n;
	}
	free(scratch);
	free(token);
	return rc;
}

/* Of files that are small together: every token. */
static int check_if_small(const struct dataset *d, struct err *e)
{
	const struct tokens *t = d->tokens;
	struct tokens_summary found;
	uint64_t bytes = 0;
	for (int i = 0; i < t->n_shards; i++)
		bytes += t->shard[i].n * (uint64_t)t->width;
	return bytes > CHECKED_WHOLE ? 0 : dataset_check_tokens(d, &found, e);
}

static int open_files(struct dataset *d, const struct listing *l, const char *path,
        enum data_part part, bool header, int64_t *vocabulary, struct err *e)
{
	int rc = 0;
	for (int i = 0; i < l->n && !rc; i++)
		if (!l->has_test || is_test(last_part(l->path[i])) == (part == DATA_TEST))
			rc = add_file(d, l->path[i], part, header, l->has_test, vocabulary, e);
	if (rc)
		return rc;
	if (d->tokens->n_shards == 0)
		return err_set(e, part == DATA_TEST ? ERR_NOTFOUND : ERR_FORMAT,
		        "%s: no file of tokens to %s is there", path,
		        part == DATA_TEST ? "test on" : "train on");
	if (d->count == 0)
		return err_set(e, part == DATA_TEST ? ERR_NOTFOUND : ERR_FORMAT,
		        "%s: too short: no file has the %lld tokens of two samples; use a smaller "
		        "data.context",
		        path, 2 * (long long)d->context);
	return 0;
}

/* width 0: as the header says. */
static int read_part(struct dataset *d, const char *path, enum data_part part, int64_t classes,
        int width, int64_t vocabulary, const char *end, struct err *e)
{
	struct listing *l = calloc(1, sizeof *l);
	struct tokens *t = d->tokens = calloc(1, sizeof *t);
	int rc = 0;
	if (!l || !t || !(t->shard = calloc(TOKENS_SHARDS_MAX, sizeof *t->shard)))
		rc = err_set(e, ERR_NOMEM, "no memory for the list of files");
	if (!rc && (d->context < 1 || d->context > LIMIT_CONTEXT))
		rc = err_set(e, ERR_INVALID, "samples of %lld tokens, expected 1 to %d",
		        (long long)d->context, LIMIT_CONTEXT);
	if (!rc)
		rc = list_files(l, path, end, e);
	if (!rc) {
		t->width = width;
		rc = open_files(d, l, path, part, width == 0, &vocabulary, e);
	}
	free(l);
	if (!rc && !classes && !vocabulary)
		rc = err_set(e, ERR_INVALID,
		        "%s: files without a header do not say how large the vocabulary is: set "
		        "data.classes",
		        path);
	if (rc)
		return rc;
	d->shape = (struct shape){1, {d->context}};
	d->classes = t->vocabulary = classes ? classes : vocabulary;
	rc = check_if_small(d, e);
	return rc ? err_prefix(e, "%s", path) : 0;
}

static bool begins_as_shard(const char *path)
{
	uint8_t p[TOKENS_HEADER_BYTES];
	struct tokens_header h;
	struct shard s;
	struct err e;
	if (source_open_fd(path, &s.fd, &e))
		return false;
	const bool is = read_at(&s, p, sizeof p, 0, &e) == 0 && tokens_parse(p, &h, &e) == 0;
	close(s.fd);
	return is;
}

static bool detect_tokens(const char *path)
{
	struct listing *l = calloc(1, sizeof *l);
	struct err e;
	bool is = false;
	if (l && list_files(l, path, ".bin", &e) == 0)
		for (int i = 0; i < l->n && !is; i++)
			is = begins_as_shard(l->path[i]);
	free(l);
	return is;
}

static bool detect_text(const char *path)
{
	return ends_with(path, ".txt") && !is_folder(path);
}

static bool never(const char *path)
{
	(void)path;
	return false;
}

static int read_shards(
        struct dataset *d, const char *path, enum data_part part, int64_t classes, struct err *e)
{
	return read_part(d, path, part, classes, 0, 0, ".bin", e);
}

static int read_16(
        struct dataset *d, const char *path, enum data_part part, int64_t classes, struct err *e)
{
	return read_part(d, path, part, classes, 2, 0, ".bin", e);
}

static int read_32(
        struct dataset *d, const char *path, enum data_part part, int64_t classes, struct err *e)
{
	return read_part(d, path, part, classes, 4, 0, ".bin", e);
}

static int read_bytes(
        struct dataset *d, const char *path, enum data_part part, int64_t classes, struct err *e)
{
	return read_part(d, path, part, classes, 1, 256, "", e);
}

const struct data_format data_format_tokens = {.detect = detect_tokens, .read = read_shards};
const struct data_format data_format_tokens16 = {.detect = never, .read = read_16};
const struct data_format data_format_tokens32 = {.detect = never, .read = read_32};
const struct data_format data_format_bytes = {.detect = detect_text, .read = read_bytes};

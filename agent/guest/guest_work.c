/* SPDX-License-Identifier: MIT */
/* What workers do with memory that the guest can reach. They work while it may not touch it: before
 * a request is sent, or once it is answered. A hostile guest writes all the same, and changes
 * numbers; so nothing read from there is used as a size or an index, and what is looked at twice is
 * copied first.
 *
 * What can fail: memory; numbers that are none (then the exchange or the file is refused). */
#include "agent/guest/guest_internal.h"

#include "model/io/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECE 16384 /* parameters that are worked on while in a cache */

/* ---- memory */

int guest__memory_open(struct guest_memory *m, size_t floats, struct err *e)
{
	const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	const size_t bytes = floats * sizeof(float);
	*m = (struct guest_memory){.fd = -1, .bytes = bytes};
	/* What a memfd takes is never refused by the kernel, it only kills somebody later. */
	if (pages > 0 && page > 0 && bytes / (size_t)page >= (size_t)pages)
		return err_set(e, ERR_NOMEM, "%zu MB for the model: more than this machine has",
		        bytes >> 20);
	int fd = memfd_create("dunlin-guest", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return err_errno(e, "memory for a guest");
	int rc = posix_fallocate(fd, 0, (off_t)bytes);
	if (rc == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
		rc = errno;
	void *at =
	        rc == 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
	if (at == MAP_FAILED) {
		close(fd);
		return err_set(e, ERR_NOMEM, "no memory for a guest: %zu MB", bytes >> 20);
	}
	m->fd = fd;
	m->at = at;
	return 0;
}

void guest__memory_close(struct guest_memory *m)
{
	if (m->fd >= 0) {
		munmap(m->at, m->bytes);
		close(m->fd);
	}
	*m = (struct guest_memory){.fd = -1};
}

/* ---- copies */

static void sketch_piece(struct guest_job *j, size_t n_train, size_t at, size_t n, float *room)
{
	const size_t word = convert_word(j->format);
	struct convert_sums sums = {0};
	if (!j->sketch || at >= n_train)
		return;
	n = n < n_train - at ? n : n_train - at;
	convert_best()->take(
	        j->format, room, (const uint8_t *)j->to + at * word, NULL, n, TAKE_WORDS, &sums);
	sketch_add(j->sketch, room, at, n);
}

static void pack(struct guest *g, struct guest_job *j)
{
	const struct convert *c = convert_best();
	const size_t word = convert_word(j->format), n_total = g->hello.n_total;
	struct convert_sums sums = {0};
	float *piece = malloc(PIECE * sizeof *piece);
	if (!piece) {
		err_set(&g->outcome, ERR_NOMEM, "no memory for a snapshot");
		return;
	}
	if (j->sketch)
		memset(j->sketch, 0, sizeof *j->sketch);
	for (size_t at = 0, n; at < n_total; at += n) {
		n = n_total - at < PIECE ? n_total - at : PIECE;
		c->take(CONVERT_FP32, piece, (const uint8_t *)(g->shared.at + at), NULL, n,
		        TAKE_WORDS, &sums);
		c->pack(j->format, (uint8_t *)j->to + at * word, piece, n);
		sketch_piece(j, g->hello.n_train, at, n, piece);
	}
	if (!convert_finite(&sums))
		err_set(&g->outcome, ERR_NONFINITE,
		        "the script's parameters hold numbers that are not finite");
	free(piece);
}

/* k·D rounded to fp32: the guest adds it as it is. Both sides of a pair have the same k and
 * opposite D, so that what one gains the other loses, to the last bit of k·D. */
static void scale(struct guest *g, struct guest_job *j)
{
	const struct learner_groups *of = &g->base.info.groups;
	float *to = g->shared.at + g->at_in, least = of->n > 0 ? j->k[0] : 0;
	size_t at = 0;
	for (int i = 0; i < of->n; i++) {
		least = j->k[i] < least ? j->k[i] : least;
		for (; at < of->end[i]; at++)
			to[at] = j->k[i] * j->from[at];
	}
	for (; at < g->hello.n_total; at++)
		to[at] = least * j->from[at];
}

/* ---- files */

static void write_weights(struct guest *g, const char *name)
{
	const struct guest_hello *h = &g->hello;
	struct st_tensor *t = calloc(h->n, sizeof *t);
	float *copy = convert_vector(h->n_total);
	char path[RUN_DIR_PATH];
	struct convert_sums sums = {0};
	if (!t || !copy) {
		err_set(&g->outcome, ERR_NOMEM, "no memory for a file of weights");
		goto out;
	}
	convert_best()->take(CONVERT_FP32, copy, (const uint8_t *)g->shared.at, NULL, h->n_total,
	        TAKE_WORDS, &sums);
	if (!convert_finite(&sums)) {
		err_set(&g->outcome, ERR_NONFINITE,
		        "%s is not written: the script's parameters hold numbers that are not "
		        "finite",
		        name);
		goto out;
	}
	for (uint32_t i = 0; i < h->n; i++) {
		t[i] = (struct st_tensor){.name = h->tensor[i].name,
		        .dtype = ST_F32,
		        .rank = h->tensor[i].rank,
		        .bytes = h->tensor[i].count * sizeof(float),
		        .data = copy + h->tensor[i].offset};
		memcpy(t[i].dim, h->tensor[i].dim, sizeof t[i].dim);
	}
	if (st_write(run_dir_file(g->c.dir, name, path), t, (int)h->n, NULL, 0, &g->outcome) == 0)
		g->outcome.code = 0;
out:
	free(copy);
	free(t);
}

/* ---- the two halves of a job */

void guest__work_before(struct guest *g, struct guest_job *j)
{
	const size_t n = (size_t)g->hello.vectors * g->hello.n_total;
	g->outcome.code = 0;
	switch (j->kind) {
	case JOB_APPLY:
		scale(g, j);
		break;
	case JOB_STATE:
		(void)!guest__memory_open(&g->passed, n, &g->outcome);
		break;
	case JOB_TRY:
	case JOB_ADOPT:
		if (guest__memory_open(&g->passed, n, &g->outcome) == 0)
			memcpy(g->passed.at, j->from, n * sizeof(float));
		break;
	default:
		break;
	}
}

void guest__work_after(struct guest *g, struct guest_job *j)
{
	const size_t n = (size_t)g->hello.vectors * g->hello.n_total;
	struct convert_sums sums = {0};
	g->outcome.code = 0;
	switch (j->kind) {
	case JOB_SNAPSHOT:
		pack(g, j);
		break;
	case JOB_STATE:
		convert_best()->take(CONVERT_FP32, j->to, (const uint8_t *)g->passed.at, NULL, n,
		        TAKE_WORDS, &sums);
		if (!convert_finite(&sums))
			err_set(&g->outcome, ERR_NONFINITE,
			        "the script's state holds numbers that are not finite");
		break;
	case JOB_SAVE:
	case JOB_EXPORT:
		write_weights(g, j->name);
		break;
	default:
		break;
	}
}

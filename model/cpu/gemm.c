/* SPDX-License-Identifier: MIT */
/* oneDNN's sgemm and OpenBLAS's each win on some shapes and some processors, by up to 4×, so each
 * shape is timed once, when a model is made ready. The two differ in their last bits: a checkpoint
 * keeps the choices, or a resumed run would not be bit-equal, and --deterministic takes none.
 *
 * oneDNN generates its code at run time. Where memory cannot be made executable it fails, and
 * OpenBLAS, which is compiled code, does all multiplications. */
#include "model/cpu/gemm.h"

#include <cblas.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEXT_PER_CHOICE 96
#define TIMED_ROUNDS 5

int gemm_init(struct cpu_gemm *g, bool fixed, bool generates, int threads)
{
	*g = (struct cpu_gemm){
	        .fixed = fixed || !generates,
	        .library = generates ? GEMM_ONEDNN : GEMM_OPENBLAS,
	};
	g->choice = calloc(GEMM_CHOICES_MAX, sizeof *g->choice);
	g->text = calloc(GEMM_CHOICES_MAX, TEXT_PER_CHOICE);
	if (!g->choice || !g->text) {
		gemm_close(g);
		return ERR_NOMEM;
	}
	/* Our own threads share the work; threads of the library would compete with them. This is
	 * one value for the whole process, and every device wants the same. */
	openblas_set_num_threads(1);
	/* A build without threads and without locks gives wrong numbers when several threads call.
	 */
	if (!openblas_get_parallel() && !strstr(openblas_get_config(), "USE_LOCKING")) {
		g->fixed = true;
		if (!generates && threads > 1)
			return ERR_UNSUPPORTED;
	}
	return 0;
}

void gemm_close(struct cpu_gemm *g)
{
	free(g->choice);
	free(g->text);
	memset(g, 0, sizeof *g);
}

int gemm_run(enum gemm_library l, const struct gemm_shape *s, const float *a, const float *b,
        float beta, float *c)
{
	if (l == GEMM_ONEDNN)
		return (int)dnnl_sgemm(s->ta ? 'T' : 'N', s->tb ? 'T' : 'N', s->m, s->n, s->k, 1, a,
		        s->lda, b, s->ldb, beta, c, s->ldc);
	cblas_sgemm(CblasRowMajor, s->ta ? CblasTrans : CblasNoTrans,
	        s->tb ? CblasTrans : CblasNoTrans, s->m, s->n, s->k, 1, a, s->lda, b, s->ldb, beta,
	        c, s->ldc);
	return 0;
}

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static enum gemm_library measure(const struct gemm_shape *s)
{
	size_t na = (size_t)(s->ta ? s->k : s->m) * (size_t)s->lda;
	size_t nb = (size_t)(s->tb ? s->n : s->k) * (size_t)s->ldb;
	size_t nc = (size_t)s->m * (size_t)s->ldc;
	float *memory = aligned_alloc(64, ((na + nb + nc) * sizeof *memory + 63) / 64 * 64);
	double best[2] = {1e9, 1e9};
	if (!memory)
		return GEMM_ONEDNN;
	for (size_t i = 0; i < na + nb; i++)
		memory[i] = (float)(i % 7) - 3;
	for (int round = 0; round < TIMED_ROUNDS; round++) {
		for (int l = GEMM_ONEDNN; l <= GEMM_OPENBLAS; l++) {
			double t = seconds();
			if (gemm_run((enum gemm_library)l, s, memory, memory + na, 0,
			            memory + na + nb) != 0)
				continue;
			t = seconds() - t;
			best[l] = t < best[l] ? t : best[l];
		}
	}
	free(memory);
	return best[GEMM_OPENBLAS] < best[GEMM_ONEDNN] ? GEMM_OPENBLAS : GEMM_ONEDNN;
}

static bool same(const struct gemm_shape *a, const struct gemm_shape *b)
{
	return a->ta == b->ta && a->tb == b->tb && a->m == b->m && a->n == b->n && a->k == b->k &&
	       a->lda == b->lda && a->ldb == b->ldb && a->ldc == b->ldc;
}

enum gemm_library gemm_choose(struct cpu_gemm *g, const struct gemm_shape *s)
{
	if (g->fixed)
		return g->library;
	for (int i = 0; i < g->n; i++)
		if (same(&g->choice[i].shape, s))
			return g->choice[i].library;
	if (g->n == GEMM_CHOICES_MAX)
		return GEMM_ONEDNN;
	g->choice[g->n] = (struct gemm_choice){*s, measure(s)};
	return g->choice[g->n++].library;
}

const char *gemm_print(struct cpu_gemm *g)
{
	size_t at = 0, size = (size_t)GEMM_CHOICES_MAX * TEXT_PER_CHOICE;
	g->text[0] = 0;
	for (int i = 0; i < g->n && at < size; i++) {
		const struct gemm_shape *s = &g->choice[i].shape;
		at += (size_t)snprintf(g->text + at, size - at, "%s%c%c %dx%dx%d/%d,%d,%d %c",
		        i ? "; " : "", s->ta ? 'T' : 'N', s->tb ? 'T' : 'N', s->m, s->n, s->k,
		        s->lda, s->ldb, s->ldc, g->choice[i].library == GEMM_OPENBLAS ? 'b' : 'd');
	}
	return g->text;
}

int gemm_parse(struct cpu_gemm *g, const char *text, struct err *e)
{
	g->n = 0;
	while (*text) {
		struct gemm_shape s;
		char a, b, l;
		int used = 0;
		if (sscanf(text, "%c%c %9dx%9dx%9d/%9d,%9d,%9d %c%n", &a, &b, &s.m, &s.n, &s.k,
		            &s.lda, &s.ldb, &s.ldc, &l, &used) != 9 ||
		        !strchr("NT", a) || !strchr("NT", b) || !strchr("bd", l) ||
		        (text[used] && strncmp(text + used, "; ", 2) != 0) ||
		        g->n == GEMM_CHOICES_MAX) {
			g->n = 0;
			return err_set(
			        e, ERR_FORMAT, "the stored choice of libraries is malformed");
		}
		if (l == 'd' && g->fixed && g->library == GEMM_OPENBLAS) {
			g->n = 0;
			return err_set(e, ERR_UNSUPPORTED, "oneDNN cannot make its code here");
		}
		s.ta = a == 'T';
		s.tb = b == 'T';
		g->choice[g->n++] = (struct gemm_choice){s, l == 'b' ? GEMM_OPENBLAS : GEMM_ONEDNN};
		text += used + (text[used] ? 2 : 0);
	}
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* Matrix multiplication on one thread, by the library that is faster for the shape. */
#ifndef DUNLIN_MODEL_CPU_GEMM_H
#define DUNLIN_MODEL_CPU_GEMM_H

#include "agent/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* C (m, n) = op(A) op(B) + beta C, row-major; op transposes where ta, tb say. */
struct gemm_shape {
	bool ta, tb;
	int32_t m, n, k, lda, ldb, ldc;
};

enum gemm_library { GEMM_ONEDNN, GEMM_OPENBLAS };

#define GEMM_CHOICES_MAX 512

struct gemm_choice {
	struct gemm_shape shape;
	enum gemm_library library;
};

/* The choices made so far. Looked up while a model is made ready, never in a step. */
struct cpu_gemm {
	bool fixed;                 /* always the same library, nothing is timed */
	enum gemm_library library;  /* that one */
	struct gemm_choice *choice; /* owned */
	int n;
	char *text; /* owned; see gemm_print */
};

/* fixed: oneDNN alone, for runs that repeat. Without generates, where oneDNN cannot make its code,
 * it is OpenBLAS alone; ERR_UNSUPPORTED if that is a build that several threads cannot call. */
int gemm_init(struct cpu_gemm *g, bool fixed, bool generates, int threads) MUST_CHECK;
void gemm_close(struct cpu_gemm *g);

/* The choice for a shape: known, or timed now on memory of its own. */
enum gemm_library gemm_choose(struct cpu_gemm *g, const struct gemm_shape *s);

/* All choices as text, "NT 64x512x784/784,784,512 d; …", and back. ERR_UNSUPPORTED: it names
 * oneDNN, which cannot make its code here. */
const char *gemm_print(struct cpu_gemm *g);
int gemm_parse(struct cpu_gemm *g, const char *text, struct err *e) MUST_CHECK;

/* 0, or non-zero if the library refused. */
int gemm_run(enum gemm_library l, const struct gemm_shape *s, const float *a, const float *b,
        float beta, float *c);

#endif

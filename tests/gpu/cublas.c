/* SPDX-License-Identifier: MIT */
/* cuBLAS: one product of matrices, column by column as Fortran has them. Leading dimensions, sizes
 * and pointers are checked against live allocations before the work is pushed. */
#include "tests/gpu/standin.h"

#include <cublas_v2.h>
#include <stdlib.h>
#include <string.h>

struct cublasContext {
	struct cublasContext *self; /* while it lives */
	cudaStream_t stream;
	cublasMath_t math;
	void *space;
	size_t space_bytes;
};

struct gemm {
	bool turn_a, turn_b, tf32;
	int m, n, k, lda, ldb, ldc;
	float alpha, beta;
	const float *a, *b;
	float *c;
	size_t a_bytes, b_bytes, c_bytes;
};

static cublasStatus_t enter(const char *function, cublasHandle_t h, cublasStatus_t usual)
{
	gpu_lock();
	if (gpu_call(function)) {
		gpu_unlock();
		return usual;
	}
	if (!h || h->self != h) {
		gpu_fault("cublas", "%s: not a live handle", function);
		gpu_unlock();
		return CUBLAS_STATUS_NOT_INITIALIZED;
	}
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t leave(cublasStatus_t s)
{
	gpu_unlock();
	return s;
}

GPU_API cublasStatus_t cublasCreate_v2(cublasHandle_t *out)
{
	gpu_lock();
	if (gpu_call(__func__))
		return leave(CUBLAS_STATUS_ALLOC_FAILED);
	gpu_slow(__func__);
	*out = calloc(1, sizeof **out);
	if (!*out)
		gpu_die("no memory");
	(*out)->self = *out;
	gpu_live(LIVE_CUBLAS, 1);
	return leave(CUBLAS_STATUS_SUCCESS);
}

GPU_API cublasStatus_t cublasDestroy_v2(cublasHandle_t h)
{
	gpu_lock();
	bool fails = gpu_call(__func__);
	if (!h || h->self != h) {
		gpu_fault("cublas", "cublasDestroy: not a live handle");
		return leave(CUBLAS_STATUS_NOT_INITIALIZED);
	}
	h->self = NULL;
	free(h);
	gpu_live(LIVE_CUBLAS, -1);
	return leave(fails ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS);
}

/* A new stream takes the workspace away, as the manual says. */
GPU_API cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t s)
{
	cublasStatus_t rc = enter(__func__, h, CUBLAS_STATUS_NOT_INITIALIZED);
	if (rc)
		return rc;
	h->stream = s;
	h->space = NULL;
	h->space_bytes = 0;
	return leave(CUBLAS_STATUS_SUCCESS);
}

GPU_API cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void *space, size_t bytes)
{
	cublasStatus_t rc = enter(__func__, h, CUBLAS_STATUS_NOT_INITIALIZED);
	if (rc)
		return rc;
	if (!gpu_range_ok(space, bytes, "cublasSetWorkspace") || (uintptr_t)space % 256 != 0)
		return leave(CUBLAS_STATUS_INVALID_VALUE);
	h->space = space;
	h->space_bytes = bytes;
	return leave(CUBLAS_STATUS_SUCCESS);
}

GPU_API cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t math)
{
	cublasStatus_t rc = enter(__func__, h, CUBLAS_STATUS_NOT_INITIALIZED);
	if (rc)
		return rc;
	h->math = math;
	return leave(CUBLAS_STATUS_SUCCESS);
}

GPU_API const char *cublasGetStatusString(cublasStatus_t s)
{
	return s == CUBLAS_STATUS_SUCCESS ? "success" : "an error of the stand-in's cuBLAS";
}

/* Bytes from a matrix's first element to its last. */
static size_t span(int rows, int columns, int ld)
{
	return rows && columns ? ((size_t)(columns - 1) * (size_t)ld + (size_t)rows) * 4 : 0;
}

static float to_tf32(float x, bool tf32)
{
	uint32_t u;
	if (!tf32)
		return x;
	memcpy(&u, &x, sizeof u);
	u = (u + 0xfffu + (u >> 13 & 1)) & ~0x1fffu;
	memcpy(&x, &u, sizeof x);
	return x;
}

static void run_gemm(void *arg)
{
	const struct gemm *g = arg;
	const float *a = gpu_use(g->a, g->a_bytes, false, "sgemm: A");
	const float *b = gpu_use(g->b, g->b_bytes, false, "sgemm: B");
	if (g->beta != 0)
		gpu_use(g->c, g->c_bytes, false, "sgemm: C");
	float *c = gpu_use(g->c, g->c_bytes, true, "sgemm: C");
	size_t a_row = g->turn_a ? (size_t)g->lda : 1, a_next = g->turn_a ? 1 : (size_t)g->lda;
	size_t b_next = g->turn_b ? (size_t)g->ldb : 1, b_col = g->turn_b ? 1 : (size_t)g->ldb;
	if (!a || !b || !c)
		return;
	for (int j = 0; j < g->n; j++)
		for (int i = 0; i < g->m; i++) {
			const float *x = a + (size_t)i * a_row, *y = b + (size_t)j * b_col;
			float *to = &c[(size_t)j * (size_t)g->ldc + (size_t)i];
			double sum = 0;
			for (int k = 0; k < g->k; k++, x += a_next, y += b_next)
				sum += (double)to_tf32(*x, g->tf32) * to_tf32(*y, g->tf32);
			*to = (float)(g->alpha * sum + (g->beta != 0 ? (double)g->beta * *to : 0));
		}
}

static bool bad_size(int rows, int columns, int ld)
{
	return rows < 0 || columns < 0 || ld < (rows > 1 ? rows : 1);
}

GPU_API cublasStatus_t cublasSgemm_v2(cublasHandle_t h, cublasOperation_t turn_a,
        cublasOperation_t turn_b, int m, int n, int k, const float *alpha, const float *a, int lda,
        const float *b, int ldb, const float *beta, float *c, int ldc)
{
	cublasStatus_t rc = enter(__func__, h, CUBLAS_STATUS_EXECUTION_FAILED);
	if (rc)
		return rc;
	bool ta = turn_a != CUBLAS_OP_N, tb = turn_b != CUBLAS_OP_N;
	int a_rows = ta ? k : m, a_columns = ta ? m : k, b_rows = tb ? n : k,
	    b_columns = tb ? k : n;
	if (bad_size(a_rows, a_columns, lda) || bad_size(b_rows, b_columns, ldb) ||
	        bad_size(m, n, ldc)) {
		gpu_fault("cublas", "sgemm: m %d n %d k %d, lda %d ldb %d ldc %d", m, n, k, lda,
		        ldb, ldc);
		return leave(CUBLAS_STATUS_INVALID_VALUE);
	}
	if (gpu_is_device(alpha) || gpu_is_device(beta)) {
		gpu_fault("cublas", "sgemm: alpha or beta is device memory");
		return leave(CUBLAS_STATUS_INVALID_VALUE);
	}
	if (!h->space && gpu_settings.strict)
		gpu_fault("cublas", "sgemm: no workspace: sums may change their order");
	struct gemm *g = malloc(sizeof *g);
	if (!g)
		gpu_die("no memory");
	*g = (struct gemm){.turn_a = ta,
	        .turn_b = tb,
	        .tf32 = (h->math & 15) == CUBLAS_TF32_TENSOR_OP_MATH,
	        .m = m,
	        .n = n,
	        .k = k,
	        .lda = lda,
	        .ldb = ldb,
	        .ldc = ldc,
	        .alpha = *alpha,
	        .beta = *beta,
	        .a = a,
	        .b = b,
	        .c = c,
	        .a_bytes = span(a_rows, a_columns, lda),
	        .b_bytes = span(b_rows, b_columns, ldb),
	        .c_bytes = span(m, n, ldc)};
	if (!gpu_range_ok(a, g->a_bytes, "sgemm: A") || !gpu_range_ok(b, g->b_bytes, "sgemm: B") ||
	        !gpu_range_ok(c, g->c_bytes, "sgemm: C")) {
		free(g);
		return leave(CUBLAS_STATUS_EXECUTION_FAILED);
	}
	return leave(gpu_push(h->stream, "sgemm", run_gemm, g) ? CUBLAS_STATUS_SUCCESS
	                                                       : CUBLAS_STATUS_EXECUTION_FAILED);
}

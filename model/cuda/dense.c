/* SPDX-License-Identifier: MIT */
/* Dense layers: y = x Wᵀ + b, W (out, in). cuBLAS is column-major: a row-major (r, c) is its
 * column-major (c, r), so each multiplication is written transposed. */
#include "model/cuda/cuda.h"

struct dense {
	int rows, in, out;
};

static struct dense dense_of(const struct op *op)
{
	int in = (int)op->in_shape.dim[op->in_shape.rank - 1];
	return (struct dense){
	        (int)(cuda_count(op, &op->in_shape) / (size_t)in), in, (int)op->layer->units};
}

static int forward(struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	const struct dense s = dense_of(op);
	const float one = 1, zero = 0;
	(void)p;
	int rc = BLAS(cublasSgemm(d->blas, CUBLAS_OP_T, CUBLAS_OP_N, s.out, s.rows, s.in, &one,
	        op->param[0].value, s.in, op->x[0], s.in, &zero, op->y, s.out));
	if (rc == 0 && (op->param[1].value || op->relu))
		rc = CUDA(kernel_bias(op->y, op->param[1].value,
		        (uint32_t)cuda_count(op, &op->out_shape), (uint32_t)s.out, op->relu,
		        d->compute));
	return rc;
}

static int backward(struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	const struct dense s = dense_of(op);
	const float one = 1, zero = 0, *keep = op->accumulate ? &one : &zero;
	(void)p;
	int rc = BLAS(cublasSgemm(d->blas, CUBLAS_OP_N, CUBLAS_OP_T, s.in, s.out, s.rows, &one,
	        op->x[0], s.in, op->dy, s.out, keep, op->param[0].grad, s.in));
	if (rc == 0 && op->param[1].grad)
		rc = CUDA(kernel_column_sum(op->param[1].grad, op->dy, (uint32_t)s.rows,
		        (uint32_t)s.out, d->column_parts, op->accumulate, d->compute));
	if (rc == 0 && op->dx[0])
		rc = BLAS(cublasSgemm(d->blas, CUBLAS_OP_N, CUBLAS_OP_N, s.in, s.rows, s.out, &one,
		        op->param[0].value, s.in, op->dy, s.out, &zero, op->dx[0], s.in));
	return rc;
}

const struct cuda_op cuda_op_dense = {.forward = forward, .backward = backward};

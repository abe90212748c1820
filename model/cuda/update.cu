/* SPDX-License-Identifier: MIT */
/* What changes the parameters: optimizer steps, and the differences from peers. */
#include "model/cuda/launch.cuh"

/* Never a fused multiply-add: two peers that add and subtract the same must get the same bits. */
static __device__ float plus(float x, float k, float h)
{
	return __fadd_rn(x, __fmul_rn(k, h));
}

static __global__ void sgd(float *__restrict__ w, float *__restrict__ m,
        const float *__restrict__ g, size_t n, struct cuda_sgd a)
{
	EACH_OF_MANY (i, n) {
		float d = g[i] * a.grad_scale + a.weight_decay * w[i];
		float v = a.momentum * m[i] + d;
		m[i] = v;
		float x = w[i] - a.lr * (a.look * v + a.grad * d);
		w[i] = a.add ? plus(x, a.add_k, a.add[i]) : x;
	}
}

static __global__ void adamw(float *__restrict__ w, float *__restrict__ m, float *__restrict__ v,
        const float *__restrict__ g, size_t n, struct cuda_adamw a)
{
	EACH_OF_MANY (i, n) {
		float d = g[i] * a.grad_scale;
		float mean = a.beta1 * m[i] + (1 - a.beta1) * d;
		float square = a.beta2 * v[i] + (1 - a.beta2) * d * d;
		m[i] = mean;
		v[i] = square;
		float x = w[i] * a.shrink - a.step * mean / (sqrtf(square) * a.root + a.eps);
		w[i] = a.add ? plus(x, a.add_k, a.add[i]) : x;
	}
}

static __global__ void add_scaled(
        float *__restrict__ x, const float *__restrict__ h, size_t n, float k)
{
	EACH_OF_MANY (i, n)
		x[i] = plus(x[i], k, h[i]);
}

cudaError_t kernel_sgd(
        float *w, float *m, const float *g, size_t n, struct cuda_sgd a, cudaStream_t s)
{
	sgd<<<grid_of(n), BLOCK, 0, s>>>(w, m, g, n, a);
	return cudaGetLastError();
}

cudaError_t kernel_adamw(
        float *w, float *m, float *v, const float *g, size_t n, struct cuda_adamw a, cudaStream_t s)
{
	adamw<<<grid_of(n), BLOCK, 0, s>>>(w, m, v, g, n, a);
	return cudaGetLastError();
}

cudaError_t kernel_add_scaled(float *x, const float *h, size_t n, float k, cudaStream_t s)
{
	add_scaled<<<grid_of(n), BLOCK, 0, s>>>(x, h, n, k);
	return cudaGetLastError();
}

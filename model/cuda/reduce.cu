/* SPDX-License-Identifier: MIT */
/* Sums over many elements: the loss, columns, squares. Each is taken in two passes, parts by blocks
 * and then the parts by one block, over a grid that depends on the shape alone. So the order of the
 * additions, and with it every bit, is the same whenever and wherever it runs. */
#include "model/cuda/launch.cuh"

#define WARP 32
#define ROWS_AT_ONCE (BLOCK / WARP) /* of the loss, or of a column: one warp each */

/* The sum over a block, in every thread. All of them must call it. */
static __device__ double block_sum(double v)
{
	__shared__ double part[BLOCK];
	__syncthreads(); /* an earlier sum may still be read */
	part[threadIdx.x] = v;
	__syncthreads();
	for (unsigned half = BLOCK / 2; half > 0; half /= 2) {
		if (threadIdx.x < half)
			part[threadIdx.x] += part[threadIdx.x + half];
		__syncthreads();
	}
	return part[0];
}

/* One warp for each row: softmax, its gradient, and the loss. A NaN among the logits makes the sum
 * a NaN, and with it the loss. */
static __global__ void loss_rows(const float *__restrict__ z, const int32_t *__restrict__ labels,
        uint32_t rows, uint32_t count, uint32_t classes, float scale, float *__restrict__ dz,
        double *__restrict__ losses, int32_t *__restrict__ hits)
{
	uint32_t row = blockIdx.x * ROWS_AT_ONCE + threadIdx.x / WARP, lane = threadIdx.x % WARP;
	if (row >= rows)
		return;
	z += (size_t)row * classes;
	if (dz)
		dz += (size_t)row * classes;
	if (row >= count) {
		for (uint32_t c = lane; dz && c < classes; c += WARP)
			dz[c] = 0;
		return;
	}
	float top = z[0];
	uint32_t best = 0;
	for (uint32_t c = lane; c < classes; c += WARP)
		if (z[c] > top || (z[c] == top && c < best)) {
			top = z[c];
			best = c;
		}
	/* The first of the largest values, whichever thread has it. */
	for (unsigned o = WARP / 2; o > 0; o /= 2) {
		float other = __shfl_xor_sync(0xffffffffu, top, o);
		uint32_t where = __shfl_xor_sync(0xffffffffu, best, o);
		if (other > top || (other == top && where < best)) {
			top = other;
			best = where;
		}
	}
	float sum = 0;
	for (uint32_t c = lane; c < classes; c += WARP)
		sum += expf(z[c] - top);
	for (unsigned o = WARP / 2; o > 0; o /= 2)
		sum += __shfl_xor_sync(0xffffffffu, sum, o);
	uint32_t label = (uint32_t)labels[row];
	float share = scale / sum;
	for (uint32_t c = lane; dz && c < classes; c += WARP) {
		float softmax = expf(z[c] - top) * share;
		dz[c] = c == label ? softmax - scale : softmax;
	}
	if (lane == 0) {
		losses[row] = (double)logf(sum) + (double)top - (double)z[label];
		hits[row] = best == label;
	}
}

static __global__ void loss_sum(const double *__restrict__ losses, const int32_t *__restrict__ hits,
        uint32_t count, double *__restrict__ sum)
{
	double loss = 0, right = 0;
	for (uint32_t i = threadIdx.x; i < count; i += BLOCK) {
		loss += losses[i];
		right += hits[i];
	}
	loss = block_sum(loss);
	right = block_sum(right);
	if (threadIdx.x == 0) {
		sum[0] = loss;
		sum[1] = right;
	}
}

/* A block sums WARP columns over its share of the rows: part (gridDim.y, cols). */
static __global__ void column_parts(
        float *__restrict__ parts, const float *__restrict__ y, uint32_t rows, uint32_t cols)
{
	__shared__ float part[ROWS_AT_ONCE][WARP];
	uint32_t lane = threadIdx.x % WARP, group = threadIdx.x / WARP;
	uint32_t c = blockIdx.x * WARP + lane;
	float sum = 0;
	if (c < cols)
		for (uint32_t r = blockIdx.y * ROWS_AT_ONCE + group; r < rows;
		        r += gridDim.y * ROWS_AT_ONCE)
			sum += y[(size_t)r * cols + c];
	part[group][lane] = sum;
	__syncthreads();
	if (group == 0 && c < cols) {
		sum = 0;
		for (uint32_t g = 0; g < ROWS_AT_ONCE; g++)
			sum += part[g][lane];
		parts[blockIdx.y * cols + c] = sum;
	}
}

static __global__ void column_total(float *__restrict__ out, const float *__restrict__ parts,
        uint32_t n_parts, uint32_t cols, bool accumulate)
{
	EACH (c, cols) {
		float sum = accumulate ? out[c] : 0;
		for (uint32_t k = 0; k < n_parts; k++)
			sum += parts[k * cols + c];
		out[c] = sum;
	}
}

static __global__ void square_parts(
        const float *__restrict__ x, size_t n, double *__restrict__ parts)
{
	double sum = 0;
	EACH_OF_MANY (i, n)
		sum += (double)x[i] * (double)x[i];
	sum = block_sum(sum);
	if (threadIdx.x == 0)
		parts[blockIdx.x] = sum;
}

static __global__ void square_total(
        const double *__restrict__ parts, unsigned n, double *__restrict__ out)
{
	double sum = block_sum(threadIdx.x < n ? parts[threadIdx.x] : 0);
	if (threadIdx.x == 0)
		*out = sum;
}

cudaError_t kernel_loss(const float *z, const int32_t *labels, uint32_t rows, uint32_t count,
        uint32_t classes, float scale, float *dz, double *losses, int32_t *hits, double *sum,
        cudaStream_t s)
{
	unsigned blocks = (rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
	loss_rows<<<blocks, BLOCK, 0, s>>>(
	        z, labels, rows, count, classes, scale, dz, losses, hits);
	cudaError_t rc = cudaGetLastError();
	if (rc != cudaSuccess)
		return rc;
	loss_sum<<<1, BLOCK, 0, s>>>(losses, hits, count, sum);
	return cudaGetLastError();
}

cudaError_t kernel_column_sum(float *out, const float *y, uint32_t rows, uint32_t cols,
        float *parts, bool accumulate, cudaStream_t s)
{
	uint32_t n = (rows + BLOCK - 1) / BLOCK;
	dim3 grid((cols + WARP - 1) / WARP, n < KERNELS_COLUMN_PARTS ? n : KERNELS_COLUMN_PARTS);
	column_parts<<<grid, BLOCK, 0, s>>>(parts, y, rows, cols);
	cudaError_t rc = cudaGetLastError();
	if (rc != cudaSuccess)
		return rc;
	column_total<<<grid_of(cols), BLOCK, 0, s>>>(out, parts, grid.y, cols, accumulate);
	return cudaGetLastError();
}

/* The number of blocks depends on the length alone: always the same sum. */
cudaError_t kernel_sum_squares(const float *x, size_t n, double *parts, double *sum, cudaStream_t s)
{
	const size_t wanted = n / BLOCK + 1;
	const unsigned blocks = wanted < KERNELS_SUM_BLOCKS ? (unsigned)wanted : KERNELS_SUM_BLOCKS;
	square_parts<<<blocks, BLOCK, 0, s>>>(x, n, parts);
	cudaError_t rc = cudaGetLastError();
	if (rc != cudaSuccess)
		return rc;
	square_total<<<1, BLOCK, 0, s>>>(parts, blocks, sum);
	return cudaGetLastError();
}

/* SPDX-License-Identifier: MIT */
/* Loops that the compiler vectorises: no intrinsics, so that one text serves every instruction set
 * (see the header). `restrict` everywhere is what makes that work. Built without -ffast-math: a NaN
 * stays a NaN, and sums keep the order that is written here, lane by lane.
 *
 * KERNELS_SUFFIX names the table that this compilation defines. */
#include "model/cpu/kernels.h"

#include "model/device/contract.h"
#include "model/device/dropout.h"

#include <math.h>
#include <string.h>

#define LANES 16

static void relu(float *restrict y, const float *restrict x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		y[i] = x[i] > 0 ? x[i] : 0;
}

static void mask(float *restrict d, const float *restrict x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		d[i] = x[i] > 0 ? d[i] : 0;
}

static void add(float *restrict y, const float *a, const float *b, size_t n, bool with_relu)
{
	if (!with_relu) {
		for (size_t i = 0; i < n; i++)
			y[i] = a[i] + b[i];
		return;
	}
	for (size_t i = 0; i < n; i++) {
		float s = a[i] + b[i];
		y[i] = s > 0 ? s : 0;
	}
}

/* e^x for x <= 0, to 2 ulp, and NaN of NaN: 2^k · e^r with |r| <= ln2/2 and e^r by its series to
 * r^6. libm's expf is not vectorised without -ffast-math. */
static inline float exp_negative(float x)
{
	x = x < -87.0f ? -87.0f : x;
	/* What is added, 1.5 · 2^23, leaves no fraction, and k in the last bits: no libm, and no
	 * conversion to an integer, which a NaN must not meet. */
	float shifted = x * 1.44269504f + 12582912.0f, k = shifted - 12582912.0f;
	float r = x - k * 0.693359375f;
	r = r + k * 2.12194440e-4f;
	float p = 1.0f / 720;
	p = p * r + 1.0f / 120;
	p = p * r + 1.0f / 24;
	p = p * r + 1.0f / 6;
	p = p * r + 0.5f;
	p = p * r + 1;
	p = p * r + 1;
	float scale;
	uint32_t bits;
	memcpy(&bits, &shifted, sizeof bits);
	bits = (bits + 127) << 23;
	memcpy(&scale, &bits, sizeof scale);
	return p * scale;
}

/* Φ(x) of the normal distribution by Abramowitz & Stegun 7.1.26 for erf, which is within 1.5e-7,
 * and gauss = e^(−x²/2) as a by-product. */
static inline float normal_cdf(float x, float *gauss)
{
	float a = fabsf(x) * 0.70710678f, t = 1 / (1 + 0.3275911f * a);
	float g = exp_negative(-0.5f * x * x);
	float p = 1.061405429f;
	p = p * t - 1.453152027f;
	p = p * t + 1.421413741f;
	p = p * t - 0.284496736f;
	p = p * t + 0.254829592f;
	float tail = 0.5f * p * t * g;
	*gauss = g;
	return x > 0 ? 1 - tail : tail;
}

static void gelu(float *restrict y, const float *restrict x, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		float g;
		y[i] = x[i] * normal_cdf(x[i], &g);
	}
}

static void gelu_backward(
        float *restrict dx, const float *restrict dy, const float *restrict x, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		float g, cdf = normal_cdf(x[i], &g);
		dx[i] = dy[i] * (cdf + x[i] * g * 0.39894228f);
	}
}

/* tanh(u) by e^(−2|u|), which is at most 1. */
static inline float tanh_fast(float u)
{
	float e = exp_negative(-2 * fabsf(u)), t = (1 - e) / (1 + e);
	return u < 0 ? -t : t;
}

#define GELU_K 0.79788456f /* √(2/π) */
#define GELU_C 0.044715f

static void gelu_tanh(float *restrict y, const float *restrict x, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		float v = x[i], t = tanh_fast(GELU_K * v * (1 + GELU_C * v * v));
		y[i] = 0.5f * v * (1 + t);
	}
}

static void gelu_tanh_backward(
        float *restrict dx, const float *restrict dy, const float *restrict x, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		float v = x[i], t = tanh_fast(GELU_K * v * (1 + GELU_C * v * v));
		float inner = GELU_K * (1 + 3 * GELU_C * v * v);
		dx[i] = dy[i] * (0.5f * (1 + t) + 0.5f * v * (1 - t * t) * inner);
	}
}

static void dropout(float *restrict y, const float *restrict x, size_t first, size_t n,
        uint64_t seed, uint32_t keep_below, float scale)
{
	for (size_t i = 0; i < n; i++) {
		bool keep = dropout_hash(seed, (uint32_t)(first + i)) < keep_below;
		y[i] = keep ? x[i] * scale : 0;
	}
}

static void bias(float *restrict y, const float *restrict b, size_t rows, size_t cols, size_t ld,
        bool with_relu)
{
	for (size_t r = 0; r < rows; r++) {
		float *restrict row = y + r * ld;
		if (with_relu)
			for (size_t i = 0; i < cols; i++) {
				float s = row[i] + (b ? b[i] : 0);
				row[i] = s > 0 ? s : 0;
			}
		else
			for (size_t i = 0; i < cols; i++)
				row[i] += b ? b[i] : 0;
	}
}

static void column_sum(float *restrict s, const float *restrict y, size_t rows, size_t cols,
        size_t ld, bool accumulate)
{
	if (!accumulate)
		memset(s, 0, cols * sizeof *s);
	for (size_t r = 0; r < rows; r++)
		for (size_t i = 0; i < cols; i++)
			s[i] += y[r * ld + i];
}

static void mask_part(
        float *restrict d, const float *restrict x, size_t rows, size_t cols, size_t ld)
{
	for (size_t r = 0; r < rows; r++)
		for (size_t i = 0; i < cols; i++)
			d[r * ld + i] = x[r * ld + i] > 0 ? d[r * ld + i] : 0;
}

static void max_pool2(
        float *restrict y, uint8_t *restrict which, const float *restrict x, const struct window *s)
{
	size_t c = (size_t)s->c, line = (size_t)s->w * c;
	for (size_t i = 0; i < (size_t)s->oh; i++) {
		for (size_t j = 0; j < (size_t)s->ow; j++) {
			const float *restrict p = x + 2 * i * line + 2 * j * c;
			for (size_t k = 0; k < c; k++) {
				float a = p[k], b = p[c + k], d = p[line + k], e = p[line + c + k];
				float ab = b > a ? b : a, de = e > d ? e : d;
				uint8_t low = b > a ? 1 : 0, high = e > d ? 3 : 2;
				y[k] = de > ab ? de : ab;
				which[k] = de > ab ? high : low;
			}
			y += c;
			which += c;
		}
	}
}

/* n channels of one window. Called with a constant n where it can be: the compiler would else
 * choose a vector of 64 for the bytes, and most images have fewer channels. */
static inline void pool2_spread(float *restrict p, const uint8_t *restrict which,
        const float *restrict dy, const float *restrict y, size_t n, size_t c, size_t line,
        bool with_mask)
{
	for (size_t k = 0; k < n; k++) {
		float d = with_mask && !(y[k] > 0) ? 0 : dy[k];
		int w = which[k];
		p[k] = w == 0 ? d : 0;
		p[c + k] = w == 1 ? d : 0;
		p[line + k] = w == 2 ? d : 0;
		p[line + c + k] = w == 3 ? d : 0;
	}
}

static void max_pool2_backward(float *restrict dx, const uint8_t *restrict which,
        const float *restrict dy, const float *restrict y, const struct window *s, bool with_mask)
{
	size_t c = (size_t)s->c, line = (size_t)s->w * c;
	if (s->oh * 2 != s->h || s->ow * 2 != s->w) /* an odd edge that no window covers */
		memset(dx, 0, (size_t)s->h * line * sizeof *dx);
	for (size_t i = 0; i < (size_t)s->oh; i++) {
		for (size_t j = 0; j < (size_t)s->ow; j++) {
			float *restrict p = dx + 2 * i * line + 2 * j * c;
			size_t k = 0;
			for (; k + LANES <= c; k += LANES)
				pool2_spread(
				        p + k, which + k, dy + k, y + k, LANES, c, line, with_mask);
			pool2_spread(p + k, which + k, dy + k, y + k, c - k, c, line, with_mask);
			dy += c;
			y += c;
			which += c;
		}
	}
}

/* The rows [*from, *to) of the input under output row o, padding cut off. */
static inline void reach(int64_t o, int64_t in, const struct window *s, int64_t *from, int64_t *to)
{
	*from = o * s->stride - s->pad;
	*to = *from + s->kernel;
	*from = *from < 0 ? 0 : *from;
	*to = *to > in ? in : *to;
}

static void max_pool(
        float *restrict y, int32_t *restrict which, const float *restrict x, const struct window *s)
{
	int64_t c = s->c, i0, i1, j0, j1;
	for (int64_t oi = 0; oi < s->oh; oi++) {
		reach(oi, s->h, s, &i0, &i1);
		for (int64_t oj = 0; oj < s->ow; oj++, y += c, which += c) {
			reach(oj, s->w, s, &j0, &j1);
			for (int64_t k = 0; k < c; k++) {
				y[k] = x[(i0 * s->w + j0) * c + k];
				which[k] = (int32_t)(i0 * s->w + j0);
			}
			for (int64_t i = i0; i < i1; i++)
				for (int64_t j = j0; j < j1; j++) {
					const float *restrict p = x + (i * s->w + j) * c;
					int32_t at = (int32_t)(i * s->w + j);
					for (int64_t k = 0; k < c; k++) {
						bool more = p[k] > y[k];
						y[k] = more ? p[k] : y[k];
						which[k] = more ? at : which[k];
					}
				}
		}
	}
}

static void max_pool_backward(float *restrict dx, const int32_t *restrict which,
        const float *restrict dy, const struct window *s)
{
	memset(dx, 0, (size_t)(s->h * s->w * s->c) * sizeof *dx);
	for (int64_t o = 0; o < s->oh * s->ow; o++)
		for (int64_t k = 0; k < s->c; k++)
			dx[which[o * s->c + k] * s->c + k] += dy[o * s->c + k];
}

/* Padding counts as zeros, as PyTorch's count_include_pad. */
static void avg_pool(float *restrict y, const float *restrict x, const struct window *s)
{
	int64_t c = s->c, i0, i1, j0, j1;
	float share = 1.0f / (float)(s->kernel * s->kernel);
	for (int64_t oi = 0; oi < s->oh; oi++) {
		reach(oi, s->h, s, &i0, &i1);
		for (int64_t oj = 0; oj < s->ow; oj++, y += c) {
			reach(oj, s->w, s, &j0, &j1);
			memset(y, 0, (size_t)c * sizeof *y);
			for (int64_t i = i0; i < i1; i++)
				for (int64_t j = j0; j < j1; j++)
					for (int64_t k = 0; k < c; k++)
						y[k] += x[(i * s->w + j) * c + k];
			for (int64_t k = 0; k < c; k++)
				y[k] *= share;
		}
	}
}

static void avg_pool_backward(float *restrict dx, const float *restrict dy, const struct window *s)
{
	int64_t c = s->c, i0, i1, j0, j1;
	float share = 1.0f / (float)(s->kernel * s->kernel);
	memset(dx, 0, (size_t)(s->h * s->w * c) * sizeof *dx);
	for (int64_t oi = 0; oi < s->oh; oi++) {
		reach(oi, s->h, s, &i0, &i1);
		for (int64_t oj = 0; oj < s->ow; oj++, dy += c) {
			reach(oj, s->w, s, &j0, &j1);
			for (int64_t i = i0; i < i1; i++)
				for (int64_t j = j0; j < j1; j++)
					for (int64_t k = 0; k < c; k++)
						dx[(i * s->w + j) * c + k] += dy[k] * share;
		}
	}
}

static void global_pool(float *restrict y, const float *restrict x, size_t pixels, size_t c)
{
	float share = 1.0f / (float)pixels;
	memset(y, 0, c * sizeof *y);
	for (size_t i = 0; i < pixels; i++)
		for (size_t k = 0; k < c; k++)
			y[k] += x[i * c + k];
	for (size_t k = 0; k < c; k++)
		y[k] *= share;
}

static void global_pool_backward(
        float *restrict dx, const float *restrict dy, size_t pixels, size_t c)
{
	float share = 1.0f / (float)pixels;
	for (size_t i = 0; i < pixels; i++)
		for (size_t k = 0; k < c; k++)
			dx[i * c + k] = dy[k] * share;
}

/* Rows that are summed in single precision, before the sum goes into a double. */
#define SUM_ROWS 64

static void flush(double *restrict to, const float *restrict from, size_t cols)
{
	for (size_t c = 0; c < cols; c++)
		to[c] += (double)from[c];
}

/* Squares are of the distance to the first row, which is about as far from the mean as any: nothing
 * is lost by taking the mean's square off at the end. */
static void moments(const float *restrict x, size_t rows, size_t cols, double *restrict mean,
        double *restrict squares, float *restrict a, float *restrict b, float *restrict first)
{
	memset(mean, 0, cols * sizeof *mean);
	memset(squares, 0, cols * sizeof *squares);
	if (rows == 0)
		return;
	memcpy(first, x, cols * sizeof *x);
	for (size_t r = 0; r < rows; r += SUM_ROWS) {
		size_t end = rows - r < SUM_ROWS ? rows : r + SUM_ROWS;
		memset(a, 0, cols * sizeof *a);
		memset(b, 0, cols * sizeof *b);
		for (size_t i = r; i < end; i++)
			for (size_t c = 0; c < cols; c++) {
				float d = x[i * cols + c] - first[c];
				a[c] += d;
				b[c] += d * d;
			}
		flush(mean, a, cols);
		flush(squares, b, cols);
	}
	for (size_t c = 0; c < cols; c++) {
		double m = mean[c] / (double)rows, q = squares[c] - m * mean[c];
		squares[c] = q > 0 ? q : 0;
		mean[c] = m + (double)first[c];
	}
}

static void products(const float *restrict d, const float *restrict x, const float *restrict mean,
        size_t rows, size_t cols, double *restrict sum, double *restrict dot, float *restrict a,
        float *restrict b)
{
	memset(sum, 0, cols * sizeof *sum);
	memset(dot, 0, cols * sizeof *dot);
	for (size_t r = 0; r < rows; r += SUM_ROWS) {
		size_t end = rows - r < SUM_ROWS ? rows : r + SUM_ROWS;
		memset(a, 0, cols * sizeof *a);
		memset(b, 0, cols * sizeof *b);
		for (size_t i = r; i < end; i++)
			for (size_t c = 0; c < cols; c++) {
				a[c] += d[i * cols + c];
				b[c] += d[i * cols + c] * (x[i * cols + c] - mean[c]);
			}
		flush(sum, a, cols);
		flush(dot, b, cols);
	}
}

static void scale_shift(float *restrict y, const float *restrict x, const float *restrict a,
        const float *restrict b, size_t rows, size_t cols, bool with_relu)
{
	for (size_t r = 0; r < rows; r++, x += cols, y += cols) {
		if (with_relu)
			for (size_t c = 0; c < cols; c++) {
				float v = a[c] * x[c] + b[c];
				y[c] = v > 0 ? v : 0;
			}
		else
			for (size_t c = 0; c < cols; c++)
				y[c] = a[c] * x[c] + b[c];
	}
}

static void blend(float *restrict dx, const float *restrict dy, const float *restrict x,
        const float *restrict a, const float *restrict b, const float *restrict k, size_t rows,
        size_t cols)
{
	for (size_t r = 0; r < rows; r++, dx += cols, dy += cols, x += cols)
		for (size_t c = 0; c < cols; c++)
			dx[c] = a[c] * dy[c] + b[c] * x[c] + k[c];
}

/* Lane by lane, then the lanes. */
static inline float sum_lanes(const float *restrict lane)
{
	float sum = 0;
	for (size_t k = 0; k < LANES; k++)
		sum += lane[k];
	return sum;
}

static void layer_norm(float *restrict y, const float *restrict x, const float *restrict gamma,
        const float *restrict beta, size_t rows, size_t cols, double eps, float *restrict stat)
{
	for (size_t r = 0; r < rows; r++, x += cols, y += cols) {
		float lane[LANES] = {0}, square[LANES] = {0};
		size_t i = 0;
		for (; i + LANES <= cols; i += LANES)
			for (size_t k = 0; k < LANES; k++)
				lane[k] += x[i + k];
		for (; i < cols; i++)
			lane[0] += x[i];
		float mean = sum_lanes(lane) / (float)cols;
		for (i = 0; i + LANES <= cols; i += LANES)
			for (size_t k = 0; k < LANES; k++) {
				float d = x[i + k] - mean;
				square[k] += d * d;
			}
		for (; i < cols; i++)
			square[0] += (x[i] - mean) * (x[i] - mean);
		float inv = (float)(1 / sqrt((double)sum_lanes(square) / (double)cols + eps));
		for (i = 0; i < cols; i++)
			y[i] = (x[i] - mean) * inv * gamma[i] + beta[i];
		stat[2 * r] = mean;
		stat[2 * r + 1] = inv;
	}
}

static void layer_norm_backward(float *restrict dx, const float *restrict dy,
        const float *restrict x, const float *restrict gamma, const float *restrict stat,
        size_t rows, size_t cols, float *restrict dgamma, float *restrict dbeta)
{
	for (size_t r = 0; r < rows; r++, x += cols, dy += cols) {
		const float mean = stat[2 * r], inv = stat[2 * r + 1];
		float lane[LANES] = {0}, other[LANES] = {0};
		size_t i = 0;
		for (; i + LANES <= cols; i += LANES)
			for (size_t k = 0; k < LANES; k++) {
				float hat = (x[i + k] - mean) * inv, d = dy[i + k];
				lane[k] += d * gamma[i + k];
				other[k] += d * gamma[i + k] * hat;
				dgamma[i + k] += d * hat;
				dbeta[i + k] += d;
			}
		for (; i < cols; i++) {
			float hat = (x[i] - mean) * inv, d = dy[i];
			lane[0] += d * gamma[i];
			other[0] += d * gamma[i] * hat;
			dgamma[i] += d * hat;
			dbeta[i] += d;
		}
		if (!dx)
			continue;
		float sum = sum_lanes(lane) / (float)cols, dot = sum_lanes(other) / (float)cols;
		for (i = 0; i < cols; i++) {
			float hat = (x[i] - mean) * inv;
			dx[i] = inv * (dy[i] * gamma[i] - sum - hat * dot);
		}
		dx += cols;
	}
}

static void shortcut(float *restrict y, const float *restrict x, const struct window *s, size_t oc)
{
	const size_t c = (size_t)s->c;
	for (int64_t i = 0; i < s->oh; i++)
		for (int64_t j = 0; j < s->ow; j++, y += oc) {
			memcpy(y, x + (size_t)(i * s->w + j) * (size_t)s->stride * c,
			        c * sizeof *y);
			memset(y + c, 0, (oc - c) * sizeof *y);
		}
}

static void shortcut_backward(
        float *restrict dx, const float *restrict dy, const struct window *s, size_t oc)
{
	const size_t c = (size_t)s->c;
	memset(dx, 0, (size_t)(s->h * s->w) * c * sizeof *dx);
	for (int64_t i = 0; i < s->oh; i++)
		for (int64_t j = 0; j < s->ow; j++, dy += oc)
			memcpy(dx + (size_t)(i * s->w + j) * (size_t)s->stride * c, dy,
			        c * sizeof *dx);
}

static void transpose(float *restrict out, const float *restrict in, size_t rows, size_t cols)
{
	for (size_t c = 0; c < cols; c++)
		for (size_t r = 0; r < rows; r++)
			out[c * rows + r] = in[r * cols + c];
}

static void causal_softmax(float *restrict s, size_t t, float scale)
{
	for (size_t i = 0; i < t; i++, s += t) {
		float top = s[0], sum = 0;
		for (size_t j = 1; j <= i; j++)
			top = s[j] > top ? s[j] : top;
		for (size_t j = 0; j <= i; j++)
			s[j] = exp_negative((s[j] - top) * scale);
		for (size_t j = 0; j <= i; j++)
			sum += s[j];
		for (size_t j = 0; j <= i; j++)
			s[j] *= 1 / sum;
		memset(s + i + 1, 0, (t - i - 1) * sizeof *s);
	}
}

static void causal_softmax_backward(
        float *restrict d, const float *restrict p, size_t t, float scale)
{
	for (size_t i = 0; i < t; i++, d += t, p += t) {
		float lane[LANES] = {0}, mean = 0;
		size_t j = 0;
		for (; j + LANES <= i + 1; j += LANES)
			for (size_t k = 0; k < LANES; k++)
				lane[k] += p[j + k] * d[j + k];
		for (; j <= i; j++)
			mean += p[j] * d[j];
		for (size_t k = 0; k < LANES; k++)
			mean += lane[k];
		for (j = 0; j <= i; j++)
			d[j] = p[j] * (d[j] - mean) * scale;
		memset(d + i + 1, 0, (t - i - 1) * sizeof *d);
	}
}

static double softmax_loss(const float *restrict z, size_t classes, int32_t label,
        float *restrict d, float scale, bool *correct)
{
	float top = z[0];
	size_t best = 0;
	for (size_t i = 1; i < classes; i++)
		if (z[i] > top) {
			top = z[i];
			best = i;
		}
	*correct = best == (size_t)label;
	float sum = 0;
	for (size_t i = 0; i < classes; i++) {
		float p = exp_negative(z[i] - top);
		if (d)
			d[i] = p;
		sum += p;
	}
	double loss = log((double)sum) + (double)top - (double)z[label];
	if (d) {
		float share = scale / sum;
		for (size_t i = 0; i < classes; i++)
			d[i] *= share;
		d[label] -= scale;
	}
	return loss;
}

static double sum_squares(const float *restrict x, size_t n)
{
	double lane[LANES] = {0}, sum = 0;
	size_t i = 0;
	for (; i + LANES <= n; i += LANES)
		for (size_t k = 0; k < LANES; k++)
			lane[k] += (double)x[i + k] * (double)x[i + k];
	for (; i < n; i++)
		sum += (double)x[i] * (double)x[i];
	for (size_t k = 0; k < LANES; k++)
		sum += lane[k];
	return sum;
}

static void sum_into(float *restrict sum, const float *restrict part, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sum[i] += part[i];
}

UNCONTRACTED static void add_scaled(float *restrict x, const float *restrict h, size_t n, float k)
{
	UNCONTRACTED_BODY
	for (size_t i = 0; i < n; i++)
		x[i] += k * h[i];
}

static void sgd(float *restrict w, float *restrict m, const float *restrict g, size_t n,
        const struct optim_args *a)
{
	float lr = a->lr, mu = a->momentum, decay = a->weight_decay, scale = a->grad_scale;
	float look = a->nesterov ? mu : 1, grad = a->nesterov ? 1 : 0;
	for (size_t i = 0; i < n; i++) {
		float d = g[i] * scale + decay * w[i];
		float v = mu * m[i] + d;
		m[i] = v;
		w[i] -= lr * (look * v + grad * d);
	}
}

static void adamw(float *restrict w, float *restrict m, float *restrict v, const float *restrict g,
        size_t n, const struct optim_args *a)
{
	float b1 = a->beta1, b2 = a->beta2, scale = a->grad_scale, eps = a->eps;
	float shrink = 1 - a->lr * a->weight_decay, step = a->lr / a->bias1;
	float root = 1 / sqrtf(a->bias2);
	for (size_t i = 0; i < n; i++) {
		float d = g[i] * scale;
		m[i] = b1 * m[i] + (1 - b1) * d;
		v[i] = b2 * v[i] + (1 - b2) * d * d;
		w[i] = w[i] * shrink - step * m[i] / (__builtin_sqrtf(v[i]) * root + eps);
	}
}

#define JOIN(a, b) a##b
#define NAME(suffix) JOIN(cpu_kernels_, suffix)
#define TEXT(x) #x
#define STRING(x) TEXT(x)

const struct cpu_kernels NAME(KERNELS_SUFFIX) = {
        .name = STRING(KERNELS_SUFFIX),
        .relu = relu,
        .mask = mask,
        .add = add,
        .gelu = gelu,
        .gelu_backward = gelu_backward,
        .gelu_tanh = gelu_tanh,
        .gelu_tanh_backward = gelu_tanh_backward,
        .dropout = dropout,
        .bias = bias,
        .column_sum = column_sum,
        .mask_part = mask_part,
        .max_pool2 = max_pool2,
        .max_pool2_backward = max_pool2_backward,
        .max_pool = max_pool,
        .max_pool_backward = max_pool_backward,
        .avg_pool = avg_pool,
        .avg_pool_backward = avg_pool_backward,
        .global_pool = global_pool,
        .global_pool_backward = global_pool_backward,
        .moments = moments,
        .products = products,
        .scale_shift = scale_shift,
        .blend = blend,
        .layer_norm = layer_norm,
        .layer_norm_backward = layer_norm_backward,
        .shortcut = shortcut,
        .shortcut_backward = shortcut_backward,
        .transpose = transpose,
        .causal_softmax = causal_softmax,
        .causal_softmax_backward = causal_softmax_backward,
        .softmax_loss = softmax_loss,
        .sum_squares = sum_squares,
        .sum_into = sum_into,
        .add_scaled = add_scaled,
        .sgd = sgd,
        .adamw = adamw,
};

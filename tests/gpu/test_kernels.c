/* SPDX-License-Identifier: MIT */
/* Every kernel of the GPU backend by itself, against a few lines of plain C: lengths that are no
 * multiple of a block, of one element, and of more than a grid; strides and padding, ties, what may
 * be NULL, accumulation, and launches that fail. Run on the stand-in by tests/gpu/ops.sh, and on a
 * GPU by make check-gpu. The pools are in test_pools.c. */
#include "agent/base/sketch_hash.h"
#include "tests/gpu/kernels_fixture.h"

#define BLOCK 256
#define GRID ((size_t)4096 * BLOCK) /* as launch.cuh has it */

static const uint32_t lengths[] = {1, BLOCK - 1, BLOCK, BLOCK + 1, 1000};
#define N_LENGTHS (sizeof lengths / sizeof *lengths)

/* ---- each element by itself */

static void relus(void **state)
{
	(void)state;
	for (size_t k = 0; k < N_LENGTHS; k++) {
		uint32_t n = lengths[k];
		struct numbers x = numbers(n, 1), dy = numbers(n, 2), d = numbers(n, 3);
		float *y = floats(n), *dx = floats(n);
		x.host[0] = n > 1 ? NAN : 1;
		again(x, n);
		fine(kernel_relu(y, x.dev, n, stream));
		EXPECT_EXACTLY("relu", y, n, x.host[i] > 0 ? x.host[i] : 0);
		fine(kernel_relu_back(dx, dy.dev, x.dev, n, stream));
		EXPECT_EXACTLY("relu, back", dx, n, x.host[i] > 0 ? dy.host[i] : 0);
		fine(kernel_mask(d.dev, x.dev, n, stream));
		EXPECT_EXACTLY("mask", d.dev, n, x.host[i] > 0 ? d.host[i] : 0);
	}
}

static double cdf(double x)
{
	return 0.5 * (1 + erf(x * M_SQRT1_2));
}

static void gelus(void **state)
{
	(void)state;
	for (size_t k = 0; k < N_LENGTHS; k++) {
		uint32_t n = lengths[k];
		struct numbers x = numbers(n, 4), dy = numbers(n, 5);
		float *y = floats(n), *dx = floats(n);
		fine(kernel_gelu(y, x.dev, n, stream));
		EXPECT("gelu", y, n, 4, 1, x.host[i] * cdf(x.host[i]));
		fine(kernel_gelu_back(dx, dy.dev, x.dev, n, stream));
		EXPECT("gelu, back", dx, n, 8, 1,
		        dy.host[i] *
		                (cdf(x.host[i]) + x.host[i] * exp(-0.5 * x.host[i] * x.host[i]) /
		                                          sqrt(2 * M_PI)));
	}
}

static void dropouts(void **state)
{
	const uint64_t seed = 0x123456789abcdef0;
	const uint32_t below = dropout_keep_below(0.3);
	(void)state;
	for (size_t k = 0; k < N_LENGTHS; k++) {
		uint32_t n = lengths[k];
		struct numbers x = numbers(n, 6);
		float *y = floats(n);
		fine(kernel_dropout(y, x.dev, n, seed, below, 1.5f, stream));
		EXPECT_EXACTLY("dropout", y, n,
		        dropout_hash(seed, (uint32_t)i) < below ? x.host[i] * 1.5f : 0);
		/* At the very border: the number itself is not below itself. */
		fine(kernel_dropout(y, x.dev, n, seed, dropout_hash(seed, n - 1), 1, stream));
		EXPECT_EXACTLY("dropout at the border", y, n,
		        dropout_hash(seed, (uint32_t)i) < dropout_hash(seed, n - 1) ? x.host[i]
		                                                                    : 0);
	}
}

static void additions(void **state)
{
	(void)state;
	for (size_t k = 0; k < N_LENGTHS; k++) {
		uint32_t n = lengths[k];
		struct numbers a = numbers(n, 7), b = numbers(n, 8);
		float *y = floats(n);
		a.host[n - 1] = -b.host[n - 1]; /* a sum of 0 */
		again(a, n);
		for (int relu = 0; relu < 2; relu++) {
			fine(kernel_add(y, a.dev, b.dev, n, relu, stream));
			EXPECT_EXACTLY("add", y, n,
			        relu && a.host[i] + b.host[i] < 0 ? 0 : a.host[i] + b.host[i]);
		}
		fine(kernel_sum_into(a.dev, b.dev, n, stream));
		EXPECT_EXACTLY("sum into", a.dev, n, a.host[i] + b.host[i]);
		fine(kernel_add(y, b.dev, b.dev, n, false, stream)); /* to itself */
		EXPECT_EXACTLY("add to itself", y, n, 2 * b.host[i]);
	}
}

/* ---- rows and columns */

static void biases(void **state)
{
	static const struct {
		uint32_t rows, cols;
	} shapes[] = {{1, 1}, {1, 7}, {9, 1}, {37, 13}, {3, 300}};
	(void)state;
	for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
		for (int way = 0; way < 4; way++) {
			uint32_t cols = shapes[k].cols, n = shapes[k].rows * cols;
			bool relu = way & 1, none = way & 2;
			struct numbers y = numbers(n, 9), b = numbers(cols, 10);
			fine(kernel_bias(y.dev, none ? NULL : b.dev, n, cols, relu, stream));
			for (uint32_t i = 0; i < n && !none; i++)
				y.host[i] += b.host[i % cols];
			EXPECT_EXACTLY("bias", y.dev, n, relu && y.host[i] < 0 ? 0 : y.host[i]);
		}
}

static void column_sums(void **state)
{
	static const uint32_t rows[] = {1, 7, 8, 9, 257, 1030}, cols[] = {1, 31, 32, 33, 70};
	(void)state;
	for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
		for (size_t l = 0; l < sizeof cols / sizeof *cols; l++) {
			uint32_t r = rows[k], c = cols[l];
			struct numbers y = numbers((size_t)r * c, 11), out = numbers(c, 12);
			float *parts = floats((size_t)KERNELS_COLUMN_PARTS * c), *new = floats(c);
			float *sum = calloc(c, sizeof *sum);
			for (uint32_t i = 0; i < r * c; i++)
				sum[i % c] += y.host[i];
			fine(kernel_column_sum(new, y.dev, r, c, parts, false, stream));
			EXPECT_EXACTLY("column sum", new, c, sum[i]);
			fine(kernel_column_sum(out.dev, y.dev, r, c, parts, true, stream));
			EXPECT_EXACTLY("column sum, added", out.dev, c, out.host[i] + sum[i]);
			free(sum);
			drop_buffers();
		}
}

/* More rows than all the parts take at once. */
static void a_long_column(void **state)
{
	enum { ROWS = BLOCK * KERNELS_COLUMN_PARTS + 700 };
	struct numbers y = numbers(ROWS, 13);
	float *parts = floats(KERNELS_COLUMN_PARTS), *out = floats(1), sum = 0;
	(void)state;
	for (int i = 0; i < ROWS; i++)
		sum += y.host[i];
	fine(kernel_column_sum(out, y.dev, ROWS, 1, parts, false, stream));
	EXPECT_EXACTLY("a long column", out, 1, sum);
}

static void transposes(void **state)
{
	static const struct {
		uint32_t batch, rows, cols;
	} shapes[] = {{1, 1, 1}, {1, 1, 9}, {3, 5, 1}, {2, 3, 4}, {5, 17, 13}};
	(void)state;
	for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
		uint32_t rows = shapes[k].rows, cols = shapes[k].cols, one = rows * cols;
		uint32_t n = shapes[k].batch * one;
		struct numbers in = numbers(n, 14), sum = numbers(n, 15);
		float *out = floats(n), *turned = calloc(n, sizeof *turned);
		for (uint32_t b = 0; b < shapes[k].batch; b++)
			for (uint32_t r = 0; r < rows; r++)
				for (uint32_t c = 0; c < cols; c++)
					turned[b * one + c * rows + r] =
					        in.host[b * one + r * cols + c];
		fine(kernel_transpose(out, in.dev, shapes[k].batch, rows, cols, false, stream));
		EXPECT_EXACTLY("transpose", out, n, turned[i]);
		fine(kernel_transpose(sum.dev, in.dev, shapes[k].batch, rows, cols, true, stream));
		EXPECT_EXACTLY("transpose, added", sum.dev, n, sum.host[i] + turned[i]);
		free(turned);
	}
}

/* ---- the loss */

struct loss_case {
	uint32_t rows, count, classes;
};

/* The loss of a row in doubles; want takes the gradient; *right whether the first of the greatest
 * is the label. */
static double row_loss(
        const float *z, uint32_t classes, int32_t label, double scale, double *grad, bool *right)
{
	double sum = 0;
	uint32_t best = 0;
	for (uint32_t c = 1; c < classes; c++)
		best = z[c] > z[best] ? c : best;
	for (uint32_t c = 0; c < classes; c++)
		sum += exp((double)z[c] - z[best]);
	for (uint32_t c = 0; c < classes; c++)
		grad[c] = (exp((double)z[c] - z[best]) / sum - ((int32_t)c == label)) * scale;
	*right = (int32_t)best == label;
	return log(sum) + z[best] - z[label];
}

static void check_loss(const struct loss_case *l, const struct numbers *z, bool with_grad)
{
	const float scale = 0.25f;
	int32_t *labels = calloc(l->rows, sizeof *labels), right = 0;
	double loss = 0, *sum = room(2 * sizeof *sum);
	double *losses = room(l->rows * sizeof *losses);
	int32_t *hits = room(l->rows * sizeof *hits), *there = room(l->rows * sizeof *there);
	float *dz = floats((size_t)l->rows * l->classes);
	for (uint32_t r = 0; r < l->rows; r++)
		labels[r] = (int32_t)(dropout_scramble(r) % l->classes);
	send(there, labels, l->rows * sizeof *labels);
	memset(want, 0, (size_t)l->rows * l->classes * sizeof *want);
	for (uint32_t r = 0; r < l->count; r++) {
		bool hit;
		loss += row_loss(z->host + (size_t)r * l->classes, l->classes, labels[r],
		        (double)scale, want + (size_t)r * l->classes, &hit);
		right += hit;
	}
	fine(kernel_loss(z->dev, there, l->rows, l->count, l->classes, scale, with_grad ? dz : NULL,
	        losses, hits, sum, stream));
	if (with_grad)
		compare("gradient of the loss", dz, (size_t)l->rows * l->classes, 8, 0.05);
	const double *got = fetch(sum, 2 * sizeof *got);
	if (!(fabs(got[0] - loss) <= 1e-6 * loss + 1e-6 * l->count) || got[1] != right)
		fail_msg("%u of %u rows, %u classes: loss %g, want %g; %g are right, not %d",
		        l->count, l->rows, l->classes, got[0], loss, got[1], right);
	free(labels);
}

/* Rows and classes on both sides of a warp and of a block; and what would overflow if the greatest
 * were not taken away first. */
static void losses(void **state)
{
	static const struct loss_case shapes[] = {{1, 1, 1}, {5, 3, 4}, {7, 7, 31}, {8, 8, 32},
	        {9, 1, 33}, {17, 16, 70}, {300, 290, 3}};
	(void)state;
	for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
		const struct loss_case *l = &shapes[k];
		size_t n = (size_t)l->rows * l->classes;
		struct numbers z = numbers(n, 16 + (uint32_t)k);
		check_loss(l, &z, true);
		check_loss(l, &z, false);
		for (size_t i = 0; i < n; i++)
			z.host[i] = z.host[i] * 30 + (i / l->classes % 2 ? 1000.0f : -1000.0f);
		again(z, n);
		check_loss(l, &z, true);
	}
}

/* Every row holds its greatest value twice, here and there: the first counts, wherever it is. */
static void ties_go_to_the_first(void **state)
{
	enum { CLASSES = 70, ROWS = 100 };
	struct numbers z = numbers((size_t)ROWS * CLASSES, 40);
	int32_t labels[ROWS], *there = room(sizeof labels), *hits = room(sizeof labels);
	double *scratch = room(ROWS * sizeof *scratch), *sum = room(2 * sizeof *sum);
	(void)state;
	for (uint32_t r = 0; r < ROWS; r++) {
		uint32_t a = dropout_scramble(r) % CLASSES, b = dropout_scramble(r + 500) % CLASSES;
		z.host[r * CLASSES + a] = z.host[r * CLASSES + b] = 9;
		labels[r] = (int32_t)(a < b ? a : b);
	}
	again(z, (size_t)ROWS * CLASSES);
	send(there, labels, sizeof labels);
	fine(kernel_loss(z.dev, there, ROWS, ROWS, CLASSES, 1, NULL, scratch, hits, sum, stream));
	const double *got = fetch(sum, 2 * sizeof *got);
	assert_true(got[1] == ROWS);
}

static void a_nan_is_seen(void **state)
{
	enum { CLASSES = 40 };
	int32_t labels[2] = {0, 1}, *there = room(sizeof labels), *hits = room(sizeof labels);
	double *scratch = room(2 * sizeof *scratch), *sum = room(2 * sizeof *sum);
	(void)state;
	send(there, labels, sizeof labels);
	for (int where = 0; where < CLASSES; where += 13) {
		struct numbers z = numbers((size_t)2 * CLASSES, 50);
		z.host[CLASSES + where] = NAN;
		again(z, (size_t)2 * CLASSES);
		fine(kernel_loss(z.dev, there, 2, 2, CLASSES, 1, NULL, scratch, hits, sum, stream));
		const double *got = fetch(sum, 2 * sizeof *got);
		assert_true(isnan(got[0]));
	}
}

/* ---- flat vectors */

static void squares(void **state)
{
	static const size_t n[] = {0, 1, 31, BLOCK, BLOCK + 1, 5003, BLOCK * KERNELS_SUM_BLOCKS,
	        BLOCK * KERNELS_SUM_BLOCKS + 1};
	double *parts = room(KERNELS_SUM_BLOCKS * sizeof *parts), *sum = room(sizeof *sum);
	(void)state;
	for (size_t k = 0; k < sizeof n / sizeof *n; k++) {
		struct numbers x = numbers(n[k] + 1, 60);
		double exact = 0;
		for (size_t i = 0; i < n[k]; i++)
			exact += (double)x.host[i] * (double)x.host[i];
		fine(kernel_sum_squares(x.dev, n[k], parts, sum, stream));
		const double *got = fetch(sum, sizeof *got);
		if (*got != exact)
			fail_msg("%zu squares: %.17g, want %.17g", n[k], *got, exact);
	}
}

static void sgd_steps(void **state)
{
	static const struct cuda_sgd ways[] = {{.lr = 0.1f, .grad_scale = 1, .look = 1},
	        {.lr = 0.1f,
	                .momentum = 0.9f,
	                .weight_decay = 0.01f,
	                .grad_scale = 0.3f,
	                .look = 1},
	        {.lr = 0.3f,
	                .momentum = 0.8f,
	                .weight_decay = 0.1f,
	                .grad_scale = 2,
	                .look = 0.8f,
	                .grad = 1}};
	(void)state;
	for (size_t k = 0; k < 2 * sizeof ways / sizeof *ways; k++)
		for (size_t l = 0; l < N_LENGTHS; l++) {
			struct cuda_sgd add = ways[k / 2], *a = &add;
			size_t n = lengths[l];
			struct numbers w = numbers(n, 70), m = numbers(n, 71), g = numbers(n, 72),
			               h = numbers(n, 73);
			double *d = calloc(n, sizeof *d), *v = calloc(n, sizeof *v);
			a->add = k % 2 ? h.dev : NULL;
			a->add_k = 0.25f;
			fine(kernel_sgd(w.dev, m.dev, g.dev, n, *a, stream));
			for (size_t i = 0; i < n; i++) {
				d[i] = (double)g.host[i] * a->grad_scale +
				       (double)a->weight_decay * w.host[i];
				v[i] = (double)a->momentum * m.host[i] + d[i];
			}
			EXPECT("sgd: momentum", m.dev, n, 4, 4, v[i]);
			EXPECT("sgd: parameters", w.dev, n, 4, 4,
			        w.host[i] - a->lr * (a->look * v[i] + a->grad * d[i]) +
			                (a->add ? 0.25 * h.host[i] : 0));
			free(d);
			free(v);
		}
}

/* With the eps that users get, and gradients from zero over what is lost in rounding to large ones:
 * mean, square and parameters to a few roundings. Signs are such that nothing cancels, and every
 * other parameter is 0, so that all digits of its change are seen. So where two backends part on
 * whole models, it is by the gradients that they were given. */
static void adamw_steps(void **state)
{
	static const float sizes[] = {0, 1e-30f, 1e-20f, 1e-12f, 1e-8f, 1e-6f, 1e-3f, 1, 1e4f};
	enum { SIZES = sizeof sizes / sizeof *sizes };
	(void)state;
	for (int t = 1; t <= 20; t += 19)
		for (size_t l = 0; l < N_LENGTHS; l++) {
			const double b1 = 0.9, b2 = 0.999, lr = 0.001;
			struct cuda_adamw a = {.beta1 = (float)b1,
			        .beta2 = (float)b2,
			        .eps = 1e-8f,
			        .grad_scale = 0.5f,
			        .shrink = (float)(1 - lr * 0.1),
			        .step = (float)(lr / (1 - pow(b1, t))),
			        .root = (float)(1 / sqrt(1 - pow(b2, t)))};
			size_t n = lengths[l];
			struct numbers w = numbers(n, 80), g = numbers(n, 81), m = numbers(n, 82),
			               v = numbers(n, 83), h = numbers(n, 84);
			a.add = t > 1 ? h.dev : NULL;
			a.add_k = 0.25f;
			for (size_t i = 0; i < n; i++) {
				float size = sizes[i % SIZES];
				g.host[i] *= size;
				m.host[i] = t > 1 ? copysignf(m.host[i] * size, g.host[i]) : 0;
				v.host[i] = t > 1 ? v.host[i] * v.host[i] * size * size : 0;
				h.host[i] = i % 4 > 1 ? copysignf(h.host[i], -g.host[i]) : 0;
				w.host[i] = i % 2 ? copysignf(w.host[i], -g.host[i]) : 0;
			}
			again(w, n), again(g, n), again(m, n), again(v, n), again(h, n);
			fine(kernel_adamw(w.dev, m.dev, v.dev, g.dev, n, a, stream));
			double *mean = calloc(n, sizeof *mean), *square = calloc(n, sizeof *square);
			for (size_t i = 0; i < n; i++) {
				double d = (double)g.host[i] * a.grad_scale;
				mean[i] = (double)a.beta1 * m.host[i] + (1 - (double)a.beta1) * d;
				square[i] =
				        (double)a.beta2 * v.host[i] + (1 - (double)a.beta2) * d * d;
			}
			/* Below the least normal float roundings are of that one. */
			EXPECT("adamw: mean", m.dev, n, 8, FLT_MIN, mean[i]);
			EXPECT("adamw: square", v.dev, n, 8, FLT_MIN, square[i]);
			EXPECT("adamw: parameters", w.dev, n, 16, FLT_MIN,
			        (double)w.host[i] * a.shrink -
			                a.step * mean[i] / (sqrt(square[i]) * a.root + a.eps) +
			                (a.add ? 0.25 * h.host[i] : 0));
			free(mean);
			free(square);
		}
}

static void scaled_additions(void **state)
{
	(void)state;
	for (size_t k = 0; k < N_LENGTHS; k++) {
		size_t n = lengths[k];
		struct numbers x = numbers(n, 90), h = numbers(n, 91);
		for (size_t i = 0; i < n; i++)
			h.host[i] *= 0.7f; /* products are not exact */
		again(h, n);
		fine(kernel_add_scaled(x.dev, h.dev, n, 0.3f, stream));
		for (size_t i = 0; i < n; i++) {
			volatile float product = 0.3f * h.host[i];
			x.host[i] += product;
		}
		EXPECT_EXACTLY("add scaled", x.dev, n, x.host[i]);
	}
}

/* ---- what peers are given */

static uint32_t bf16(float x)
{
	uint32_t u, rest;
	memcpy(&u, &x, sizeof u);
	rest = u & 0xffff;
	u >>= 16;
	if (isnan(x))
		return u | 0x40;
	return u + (rest > 0x8000 || (rest == 0x8000 && u % 2));
}

static void words(void **state)
{
	static const uint32_t specials[] = {0x7fffffff, 0xffffffff, 0x7f800001, 0x7f800000,
	        0xff800000, 0x7f7fffff, 0x80000000, 0x00000001, 0x3f808000, 0x3f818000, 0x3f818001,
	        0x3f807fff};
	(void)state;
	for (size_t k = 0; k < N_LENGTHS; k++) {
		size_t n = lengths[k], pairs = (n + 1) / 2;
		struct numbers x = numbers(n, 92);
		uint32_t *out = room(pairs * sizeof *out);
		for (size_t i = 0; i < n; i++)
			x.host[i] *= 1.2345678f;
		memcpy(x.host, specials, n < 12 ? sizeof(float) : sizeof specials);
		again(x, n);
		fine(kernel_pack_bf16(out, x.dev, n, stream));
		const uint32_t *got = fetch(out, pairs * sizeof *got);
		for (size_t i = 0; i < pairs; i++) {
			uint32_t high = 2 * i + 1 < n ? bf16(x.host[2 * i + 1]) : 0;
			assert_int_equal(got[i], bf16(x.host[2 * i]) | high << 16);
		}
	}
}

/* Of floats, and of the same rounded. */
static void sketches(void **state)
{
	static const size_t n[] = {1, 255, 256, 257, 5000, 256 * KERNELS_SKETCH_PARTS + 300};
	double *parts = room((size_t)KERNELS_SKETCH_PARTS * KERNELS_SKETCH_BUCKETS * sizeof *parts);
	float *out = floats(KERNELS_SKETCH_BUCKETS);
	(void)state;
	for (size_t k = 0; k < sizeof n / sizeof *n; k++) {
		struct numbers x = numbers(n[k], 93);
		uint32_t *packed = room((n[k] + 1) / 2 * sizeof *packed);
		double sum[2][KERNELS_SKETCH_BUCKETS] = {0};
		for (size_t i = 0; i < n[k]; i++) {
			size_t b = i / KERNELS_SKETCH_BUCKETS;
			unsigned j = i % KERNELS_SKETCH_BUCKETS;
			uint32_t rounded = bf16(x.host[i]) << 16;
			float y;
			memcpy(&y, &rounded, sizeof y);
			unsigned at = (j + sketch_hash_turn(b)) % KERNELS_SKETCH_BUCKETS;
			double sign = sketch_hash_sign(b, j) ? -1 : 1;
			sum[0][at] += sign * (double)x.host[i];
			sum[1][at] += sign * (double)y;
		}
		fine(kernel_sketch(out, x.dev, false, n[k], parts, stream));
		EXPECT_EXACTLY("sketch", out, KERNELS_SKETCH_BUCKETS, sum[0][i]);
		fine(kernel_pack_bf16(packed, x.dev, n[k], stream));
		fine(kernel_sketch(out, packed, true, n[k], parts, stream));
		EXPECT_EXACTLY("sketch of bf16", out, KERNELS_SKETCH_BUCKETS, sum[1][i]);
	}
}

/* ---- launches */

static void more_than_a_grid(void **state)
{
	size_t n = GRID + 300;
	struct numbers x = numbers(n, 100), h = numbers(n, 101);
	(void)state;
	fine(kernel_sum_into(x.dev, h.dev, (uint32_t)n, stream));
	EXPECT_EXACTLY("sum into", x.dev, n, x.host[i] + h.host[i]);
	fine(kernel_add_scaled(x.dev, h.dev, n, -1, stream));
	EXPECT_EXACTLY("add scaled", x.dev, n, x.host[i]);
}

/* What is launched for n elements, columns, rows. */
enum work { RELU, COLUMNS, COLUMN_ROWS, LOSS_ROWS };

static unsigned long work(enum work what, uint32_t n)
{
	size_t most = (size_t)n * 8;
	struct numbers x = numbers(most, 110);
	float *y = floats(most);
	double *losses = room(n * sizeof *losses), *sum = room(2 * sizeof *sum);
	int32_t *labels = room(n * sizeof *labels), *hits = room(n * sizeof *hits);
	float *parts = floats((size_t)KERNELS_COLUMN_PARTS * n);
	fine(cudaMemsetAsync(labels, 0, n * sizeof *labels, stream));
	fine(cudaStreamSynchronize(stream));
	unsigned long before = control.instructions();
	if (what == RELU)
		fine(kernel_relu(y, x.dev, n, stream));
	else if (what == LOSS_ROWS)
		fine(kernel_loss(x.dev, labels, n, 1, 1, 1, NULL, losses, hits, sum, stream));
	else
		fine(kernel_column_sum(y, x.dev, what == COLUMNS ? 1 : n, what == COLUMNS ? n : 1,
		        parts, false, stream));
	fine(cudaStreamSynchronize(stream));
	return control.instructions() - before;
}

/* Grids have as many blocks as there is work for: what fills one takes little more than what almost
 * does, and one more takes another block. */
static void grids_fit(void **state)
{
	static const struct {
		enum work what;
		uint32_t full;
	} grids[] = {{RELU, BLOCK}, {COLUMNS, 32}, {COLUMN_ROWS, BLOCK}, {LOSS_ROWS, 8}};
	(void)state;
	if (!control.instructions)
		skip();
	for (size_t k = 0; k < sizeof grids / sizeof *grids; k++) {
		uint32_t n = grids[k].full;
		unsigned long most = work(grids[k].what, n - 1), full = work(grids[k].what, n),
		              more = work(grids[k].what, n + 1);
		if (!(more - full > 4 * (full - most)))
			fail_msg("grid %zu: %lu, %lu and %lu instructions", k, most, full, more);
	}
}

/* Of kernels in two parts: either launch may fail, and the second is not tried behind the first. */
static void launches_fail(void **state)
{
	struct numbers x = numbers(8, 120);
	float *out = floats(8), *parts = floats((size_t)KERNELS_COLUMN_PARTS * 8);
	double *doubles = room(KERNELS_SUM_BLOCKS * sizeof *doubles), *sum = room(2 * sizeof *sum);
	double *sums = room((size_t)KERNELS_SKETCH_PARTS * KERNELS_SKETCH_BUCKETS * 8);
	float *sketch = floats(KERNELS_SKETCH_BUCKETS);
	int32_t zero[2] = {0}, *labels = room(sizeof zero), *hits = room(sizeof zero);
	(void)state;
	if (!control.fail_call)
		skip();
	send(labels, zero, sizeof zero);
	for (long k = 1; k <= 2; k++) {
		control.fail_call(k, 0);
		assert_int_not_equal(
		        kernel_sketch(sketch, x.dev, false, 8, sums, stream), cudaSuccess);
		assert_int_equal(control.calls(), k);
		control.fail_call(k, 0);
		assert_int_not_equal(
		        kernel_column_sum(out, x.dev, 1, 8, parts, false, stream), cudaSuccess);
		assert_int_equal(control.calls(), k);
		control.fail_call(k, 0);
		assert_int_not_equal(
		        kernel_sum_squares(x.dev, 8, doubles, sum, stream), cudaSuccess);
		assert_int_equal(control.calls(), k);
		control.fail_call(k, 0);
		assert_int_not_equal(
		        kernel_loss(x.dev, labels, 2, 2, 4, 1, NULL, doubles, hits, sum, stream),
		        cudaSuccess);
		assert_int_equal(control.calls(), k);
	}
	control.fail_call(1, 0);
	assert_int_not_equal(kernel_relu(out, x.dev, 8, stream), cudaSuccess);
	control.fail_call(0, 0);
	fine(kernel_relu(out, x.dev, 8, stream)); /* one failure is told once */
}

#define TEST(f) cmocka_unit_test_teardown(f, nothing_wrong)

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(relus), TEST(gelus), TEST(dropouts),
	        TEST(additions), TEST(biases), TEST(column_sums), TEST(a_long_column),
	        TEST(transposes), TEST(losses), TEST(ties_go_to_the_first), TEST(a_nan_is_seen),
	        TEST(squares), TEST(sgd_steps), TEST(adamw_steps), TEST(scaled_additions),
	        TEST(words), TEST(sketches), TEST(more_than_a_grid), TEST(grids_fit),
	        TEST(launches_fail)};
	return cmocka_run_group_tests(tests, open_stream, close_stream);
}

/* SPDX-License-Identifier: MIT */
/* The pools of the GPU backend, one kernel at a time, against loops over windows as one would write
 * them down; and images made of bytes, as far as blocks and grids go (test_images.c has how they
 * are moved about). See test_kernels.c. */
#include "model/data/move.h"
#include "tests/gpu/kernels_fixture.h"

/* Windows that meet, overlap, leave gaps or an edge, reach over one side or all of them; images
 * that are not square; one channel and several. */
static struct cuda_window windows[] = {
        {.batch = 2, .h = 6, .w = 4, .c = 3, .kernel = 2, .stride = 2},
        {.batch = 1, .h = 7, .w = 5, .c = 2, .kernel = 2, .stride = 2},
        {.batch = 3, .h = 8, .w = 9, .c = 1, .kernel = 3, .stride = 2, .pad = 1},
        {.batch = 2, .h = 5, .w = 7, .c = 4, .kernel = 3, .stride = 1, .pad = 1},
        {.batch = 1, .h = 9, .w = 8, .c = 2, .kernel = 2, .stride = 3},
        {.batch = 1, .h = 4, .w = 5, .c = 3, .kernel = 5, .stride = 2, .pad = 2},
        {.batch = 2, .h = 3, .w = 2, .c = 5, .kernel = 1, .stride = 1},
        {.batch = 1, .h = 2, .w = 3, .c = 1, .kernel = 4, .stride = 1, .pad = 2},
        {.batch = 1, .h = 1, .w = 1, .c = 1, .kernel = 1, .stride = 1},
};
#define N_WINDOWS (sizeof windows / sizeof *windows)

static uint32_t out_of(uint32_t length, const struct cuda_window *v)
{
	return (length + 2 * v->pad - v->kernel) / v->stride + 1;
}

/* Of output (b, y, x, c) the k-th element of its window, row by row: its place in the image's
 * pixels, or −1 outside. */
static int place(const struct cuda_window *v, uint32_t y, uint32_t x, uint32_t k)
{
	int row = (int)(y * v->stride + k / v->kernel) - (int)v->pad;
	int col = (int)(x * v->stride + k % v->kernel) - (int)v->pad;
	bool inside = row >= 0 && row < (int)v->h && col >= 0 && col < (int)v->w;
	return inside ? row * (int)v->w + col : -1;
}

/* A pool's result, and the gradient of its input. */
struct result {
	float *y, *dx;
	int32_t *which; /* of the maximum */
};

/* Output o, of which (b, y, x, c) is the place. */
static void one_output(const struct cuda_window *v, bool max, const float *x, const float *dy,
        uint32_t o, struct result *r)
{
	uint32_t c = o % v->c, ox = o / v->c % v->ow, oy = o / v->c / v->ow % v->oh;
	uint32_t image = o / v->c / v->ow / v->oh * v->h * v->w, area = v->kernel * v->kernel;
	float sum = 0;
	int best = -1;
	for (uint32_t k = 0; k < area; k++) {
		int at = place(v, oy, ox, k);
		if (at < 0)
			continue;
		float value = x[(image + (uint32_t)at) * v->c + c];
		sum += value;
		if (best < 0 || value > x[(image + (uint32_t)best) * v->c + c])
			best = at;
		if (!max)
			r->dx[(image + (uint32_t)at) * v->c + c] += dy[o] / (float)area;
	}
	r->which[o] = best;
	r->y[o] = max ? x[(image + (uint32_t)best) * v->c + c] : sum / (float)area;
	if (max)
		r->dx[(image + (uint32_t)best) * v->c + c] += dy[o];
}

static void check_window(struct cuda_window *v, bool max)
{
	v->oh = out_of(v->h, v);
	v->ow = out_of(v->w, v);
	uint32_t in = v->batch * v->h * v->w * v->c, out = v->batch * v->oh * v->ow * v->c;
	struct numbers x = numbers(in, 1), dy = numbers(out, 2);
	struct result r = {
	        calloc(out, sizeof *r.y), calloc(in, sizeof *r.dx), calloc(out, sizeof *r.which)};
	float *y = floats(out), *dx = floats(in);
	int32_t *which = room(out * sizeof *which);
	for (uint32_t o = 0; o < out; o++)
		one_output(v, max, x.host, dy.host, o, &r);
	if (max)
		fine(kernel_max_pool(y, which, x.dev, v, stream));
	else
		fine(kernel_avg_pool(y, x.dev, v, stream));
	EXPECT("pool", y, out, max ? 0 : 4, 4, r.y[i]);
	if (max)
		assert_memory_equal(
		        fetch(which, out * sizeof *which), r.which, out * sizeof *which);
	for (int masked = 0; masked < 2; masked++) {
		const float *by = masked ? x.dev : NULL;
		if (max)
			fine(kernel_max_pool_back(dx, dy.dev, which, by, v, stream));
		else
			fine(kernel_avg_pool_back(dx, dy.dev, by, v, stream));
		EXPECT("pool, back", dx, in, max ? 0 : 8, 4,
		        masked && !(x.host[i] > 0) ? 0 : r.dx[i]);
	}
	free(r.y);
	free(r.dx);
	free(r.which);
}

static void max_pools(void **state)
{
	(void)state;
	for (size_t k = 0; k < N_WINDOWS; k++)
		check_window(&windows[k], true);
}

static void average_pools(void **state)
{
	(void)state;
	for (size_t k = 0; k < N_WINDOWS; k++)
		check_window(&windows[k], false);
}

static void global_pools(void **state)
{
	static const struct {
		uint32_t batch, pixels, c;
	} shapes[] = {{1, 1, 1}, {2, 49, 3}, {5, 6, 70}, {3, 1, 7}};
	(void)state;
	for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
		uint32_t batch = shapes[k].batch, pixels = shapes[k].pixels, c = shapes[k].c;
		uint32_t n = batch * pixels * c;
		struct numbers x = numbers(n, 3), dy = numbers((size_t)batch * c, 4);
		float *y = floats((size_t)batch * c), *dx = floats(n);
		double *sum = calloc((size_t)batch * c, sizeof *sum);
		for (uint32_t i = 0; i < n; i++)
			sum[i / (pixels * c) * c + i % c] += (double)x.host[i];
		fine(kernel_global_pool(y, x.dev, batch, pixels, c, stream));
		EXPECT("global pool", y, batch * c, 4, 1, sum[i] / pixels);
		for (int masked = 0; masked < 2; masked++) {
			fine(kernel_global_pool_back(
			        dx, dy.dev, masked ? x.dev : NULL, batch, pixels, c, stream));
			EXPECT("global pool, back", dx, n, 4, 0,
			        masked && !(x.host[i] > 0)
			                ? 0
			                : dy.host[i / (pixels * c) * c + i % c] / (double)pixels);
		}
		free(sum);
	}
}

/* Bytes, a table and labels on the device, and what is made of them, which is looked at. The
 * instructions that it took, where they are counted. */
static unsigned long make_images(uint32_t count, uint32_t h, uint32_t w, uint32_t c, bool moved)
{
	uint32_t n = count * h * w * c;
	struct numbers table = numbers(KERNELS_BYTE_VALUES, 5);
	uint8_t *pixels = room(n), *bytes = calloc(n, 1);
	struct augment_move *moves = room(count * sizeof *moves),
	                    *move = calloc(count, sizeof *move);
	int32_t *labels = room(count * sizeof *labels), *out = room(count * sizeof *out);
	float *x = floats(n);
	for (uint32_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)(dropout_scramble(i) >> 8);
	for (uint32_t k = 0; k < count; k++)
		move[k] = (struct augment_move){.flip = k % 2, .zoom = 1};
	send(pixels, bytes, n);
	send(moves, move, count * sizeof *move);
	send(labels, bytes, count * sizeof *labels);
	const struct cuda_images b = {.pixels = pixels,
	        .moves = moved ? moves : NULL,
	        .table = table.dev,
	        .labels = labels,
	        .count = count,
	        .h = h,
	        .w = w,
	        .c = c};
	unsigned long before = control.instructions ? control.instructions() : 0;
	fine(kernel_images(x, out, &b, stream));
	fine(cudaStreamSynchronize(stream));
	unsigned long took = control.instructions ? control.instructions() - before : 0;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t along = i / c % w, from = i;
		if (moved && i / (h * w * c) % 2)
			from = i - along * c + (w - 1 - along) * c;
		want[i] = (double)table.host[bytes[from]];
	}
	compare("images", x, n, 0, 0);
	assert_memory_equal(fetch(out, count * sizeof *out), bytes, count * sizeof *out);
	free(bytes);
	free(move);
	return took;
}

static void images_of_bytes(void **state)
{
	(void)state;
	make_images(4, 1, 1, 1, false);
	make_images(3, 21, 20, 3, false); /* several blocks to a sample */
	make_images(2, 5, 7, 2, true);
	if (!control.instructions)
		skip();
	/* What fills a block takes little more than what almost does; one more takes another. */
	unsigned long most = make_images(1, 1, 1023, 1, false),
	              full = make_images(1, 1, 1024, 1, false),
	              more = make_images(1, 1, 1025, 1, false);
	if (!(more - full > 4 * (full - most)))
		fail_msg("%lu, %lu and %lu instructions", most, full, more);
}

#define TEST(f) cmocka_unit_test_teardown(f, nothing_wrong)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(max_pools), TEST(average_pools), TEST(global_pools), TEST(images_of_bytes)};
	return cmocka_run_group_tests(tests, open_stream, close_stream);
}

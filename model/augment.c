/* SPDX-License-Identifier: MIT */
/* Flip, shift and scale, done while bytes become floats: the conversion has to write every value
 * anyway, so moving the image costs next to nothing and needs no second buffer. The conversion is a
 * look-up in 256 floats, one kilobyte that stays in the first-level cache.
 *
 * Without resizing an output row is a run of one source row between two runs of background, so the
 * inner loop has no test in it. With resizing each output pixel is looked up bilinearly; the table
 * is affine in the byte, so mixing converted values is the same as converting mixed ones. */
#include "model/augment.h"

#include <math.h>

int augment_check(const struct augment *a, const struct shape *s, struct err *e)
{
	int64_t least = s->dim[0] < s->dim[1] ? s->dim[0] : s->dim[1];
	if (a->shift < 0 || a->shift >= least)
		return err_set(e, ERR_INVALID,
		        "shift by up to %d pixels: images of %lldx%lld allow 0 to %lld", a->shift,
		        (long long)s->dim[0], (long long)s->dim[1], (long long)least - 1);
	if (!(a->scale >= 0 && a->scale < 1))
		return err_set(e, ERR_INVALID, "scale by up to %g: expected 0 or more and below 1",
		        a->scale);
	return 0;
}

void augment_draw(const struct augment *a, struct rng *r, struct augment_move *m)
{
	*m = (struct augment_move){.zoom = 1};
	if (a->flip)
		m->flip = rng_u64(r) >> 63;
	if (a->shift) {
		uint64_t span = 2 * (uint64_t)a->shift + 1;
		m->dx = (int64_t)rng_below(r, span) - a->shift;
		m->dy = (int64_t)rng_below(r, span) - a->shift;
	}
	if (a->scale > 0)
		m->zoom = 1 + a->scale * (2 * rng_f64(r) - 1);
}

static void fill(float *dst, int64_t n, float value)
{
	for (int64_t i = 0; i < n; i++)
		dst[i] = value;
}

static void convert(const float table[256], const uint8_t *src, float *dst, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		dst[i] = table[src[i]];
}

/* width pixels of channels bytes, the last pixel first. */
static void convert_mirrored(
        const float table[256], const uint8_t *src, float *dst, int64_t width, int64_t channels)
{
	if (channels == 1) {
		for (int64_t i = 0; i < width; i++)
			dst[i] = table[src[width - 1 - i]];
		return;
	}
	for (int64_t i = 0; i < width; i++)
		convert(table, src + (width - 1 - i) * channels, dst + i * channels, channels);
}

static void apply_shift(const struct augment_move *m, const struct shape *s, const float table[256],
        const uint8_t *src, float *dst)
{
	int64_t h = s->dim[0], w = s->dim[1], c = s->dim[2];
	/* Columns [left, right) of the output are covered by the moved image. */
	int64_t left = m->dx > 0 ? m->dx : 0, right = m->dx < 0 ? w + m->dx : w;
	/* Their first source column; mirrored, the run is read from its far end. */
	int64_t from = m->flip ? w - (right - m->dx) : left - m->dx;
	for (int64_t y = 0; y < h; y++, dst += w * c) {
		int64_t sy = y - m->dy;
		if (sy < 0 || sy >= h) {
			fill(dst, w * c, table[0]);
			continue;
		}
		const uint8_t *row = src + (sy * w + from) * c;
		fill(dst, left * c, table[0]);
		if (m->flip)
			convert_mirrored(table, row, dst + left * c, right - left, c);
		else
			convert(table, row, dst + left * c, (right - left) * c);
		fill(dst + right * c, (w - right) * c, table[0]);
	}
}

/* Where an output coordinate lies in the source: the two neighbours and the second one's weight. */
struct tap {
	int64_t at;
	float weight;
};

static struct tap tap_at(int64_t out, int64_t shift, double zoom, int64_t size)
{
	double centre = (double)(size - 1) / 2;
	double x = ((double)(out - shift) - centre) / zoom + centre, whole = floor(x);
	return (struct tap){.at = (int64_t)whole, .weight = (float)(x - whole)};
}

static float pixel(const struct shape *s, const float table[256], const uint8_t *src, int64_t y,
        int64_t x, int64_t channel)
{
	if (y < 0 || y >= s->dim[0] || x < 0 || x >= s->dim[1])
		return table[0];
	return table[src[(y * s->dim[1] + x) * s->dim[2] + channel]];
}

static void apply_scale(const struct augment_move *m, const struct shape *s, const float table[256],
        const uint8_t *src, float *dst)
{
	int64_t h = s->dim[0], w = s->dim[1], channels = s->dim[2];
	for (int64_t y = 0; y < h; y++) {
		struct tap ty = tap_at(y, m->dy, m->zoom, h);
		for (int64_t x = 0; x < w; x++) {
			struct tap tx = tap_at(x, m->dx, m->zoom, w);
			int64_t x0 = m->flip ? w - 1 - tx.at : tx.at,
			        x1 = m->flip ? x0 - 1 : x0 + 1;
			for (int64_t c = 0; c < channels; c++) {
				float a = pixel(s, table, src, ty.at, x0, c);
				float b = pixel(s, table, src, ty.at, x1, c);
				float p = pixel(s, table, src, ty.at + 1, x0, c);
				float q = pixel(s, table, src, ty.at + 1, x1, c);
				float upper = a + (b - a) * tx.weight;
				float lower = p + (q - p) * tx.weight;
				*dst++ = upper + (lower - upper) * ty.weight;
			}
		}
	}
}

void augment_apply(const struct augment_move *m, const struct shape *s, const float table[256],
        const uint8_t *src, float *dst)
{
	if (m->zoom != 1)
		apply_scale(m, s, table, src, dst);
	else if (m->flip || m->dx || m->dy)
		apply_shift(m, s, table, src, dst);
	else
		convert(table, src, dst, s->dim[0] * s->dim[1] * s->dim[2]);
}

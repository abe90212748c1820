/* SPDX-License-Identifier: MIT */
/* Flip, shift and scale, done while bytes become floats: the conversion has to write every value
 * anyway, so moving the image costs next to nothing and needs no second buffer. The conversion is a
 * look-up in 256 floats, one kilobyte that stays in the first-level cache.
 *
 * Without resizing an output row is a run of one source row between two runs of background, so the
 * inner loop has no test in it. With resizing each output pixel is looked up bilinearly; the table
 * is affine in the byte, so mixing converted values is the same as converting mixed ones. */
#include "model/data/augment.h"

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

/* Maps output coordinates to the source, along one axis: first + out × step. */
struct axis {
	double first, step;
};

static struct axis axis_of(int64_t shift, double zoom, int64_t size)
{
	double centre = (double)(size - 1) / 2;
	return (struct axis){.first = centre - ((double)shift + centre) / zoom, .step = 1 / zoom};
}

/* The neighbour before such a coordinate, and the weight of the one after it. */
struct tap {
	int64_t at;
	float weight;
};

static struct tap tap_at(struct axis a, int64_t out)
{
	double x = a.first + (double)out * a.step;
	int64_t whole = (int64_t)x;
	whole -= x < (double)whole; /* floor, without a call for each pixel */
	return (struct tap){.at = whole, .weight = (float)(x - (double)whole)};
}

static float mix(float a, float b, float c, float d, struct tap ty, struct tap tx)
{
	float upper = a + (b - a) * tx.weight, lower = c + (d - c) * tx.weight;
	return upper + (lower - upper) * ty.weight;
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
	int64_t turn = m->flip ? -1 : 1, beside = turn * channels, below = w * channels;
	struct axis down = axis_of(m->dy, m->zoom, h), along = axis_of(m->dx, m->zoom, w);
	for (int64_t y = 0; y < h; y++) {
		struct tap ty = tap_at(down, y);
		for (int64_t x = 0; x < w; x++) {
			struct tap tx = tap_at(along, x);
			int64_t x0 = m->flip ? w - 1 - tx.at : tx.at, y0 = ty.at;
			bool inside = y0 >= 0 && y0 < h - 1 && tx.at >= 0 && tx.at < w - 1;
			for (int64_t c = 0; c < channels; c++) {
				if (inside) { /* most pixels: no test for each neighbour */
					const uint8_t *p = src + (y0 * w + x0) * channels + c;
					*dst++ = mix(table[p[0]], table[p[beside]], table[p[below]],
					        table[p[below + beside]], ty, tx);
					continue;
				}
				*dst++ = mix(pixel(s, table, src, y0, x0, c),
				        pixel(s, table, src, y0, x0 + turn, c),
				        pixel(s, table, src, y0 + 1, x0, c),
				        pixel(s, table, src, y0 + 1, x0 + turn, c), ty, tx);
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

static float float_at(const struct shape *s, const float *outside, const float *src, int64_t y,
        int64_t x, int64_t channel)
{
	if (y < 0 || y >= s->dim[0] || x < 0 || x >= s->dim[1])
		return outside[channel];
	return src[(y * s->dim[1] + x) * s->dim[2] + channel];
}

/* Plainer than for bytes: each value is looked up by itself. */
void augment_apply_floats(const struct augment_move *m, const struct shape *s, const float *outside,
        const float *src, float *dst)
{
	int64_t h = s->dim[0], w = s->dim[1], turn = m->flip ? -1 : 1;
	struct axis down = axis_of(m->dy, m->zoom, h), along = axis_of(m->dx, m->zoom, w);
	bool still = m->zoom == 1;
	for (int64_t y = 0; y < h; y++) {
		struct tap ty = still ? (struct tap){.at = y - m->dy} : tap_at(down, y);
		for (int64_t x = 0; x < w; x++) {
			struct tap tx = still ? (struct tap){.at = x - m->dx} : tap_at(along, x);
			int64_t x0 = m->flip ? w - 1 - tx.at : tx.at, y0 = ty.at;
			for (int64_t c = 0; c < s->dim[2]; c++)
				*dst++ =
				        still ? float_at(s, outside, src, y0, x0, c)
				              : mix(float_at(s, outside, src, y0, x0, c),
				                        float_at(s, outside, src, y0, x0 + turn, c),
				                        float_at(s, outside, src, y0 + 1, x0, c),
				                        float_at(s, outside, src, y0 + 1, x0 + turn,
				                                c),
				                        ty, tx);
		}
	}
}

/* SPDX-License-Identifier: MIT */
#include "model/graph/outer.h"

#define RATE_LEAST 0.02 /* of the highest learning rate */

void outer_noloco(float *p, float *phi, float *o, size_t n, float alpha, float omega)
{
	for (size_t i = 0; i < n; i++) {
		const float moved = p[i] - phi[i], kept = alpha * o[i];
		const float c = kept - (1 - omega) * moved;
		o[i] = kept + omega * moved;
		phi[i] = p[i] + c;
		p[i] = c;
	}
}

void outer_follow(float *y, const float *x, size_t n, float k)
{
	for (size_t i = 0; i < n; i++)
		y[i] += k * x[i];
}

void outer_qgm_step(
        float *w, float *m, const float *g, size_t n, const struct optim_args *a, float rate)
{
	const float mu = a->momentum, share = (1 - mu) * a->lr / rate;
	const float of_g = a->nesterov ? 1 + mu : 1, of_m = a->nesterov ? mu * mu : mu;
	for (size_t i = 0; i < n; i++) {
		const float x = a->grad_scale * g[i] + a->weight_decay * w[i];
		const float step = of_g * x + of_m * m[i];
		w[i] -= a->lr * step;
		m[i] = mu * m[i] + share * step;
	}
}

void outer_qgm_merged(
        float *m, const float *difference, size_t n, float k, float momentum, float rate)
{
	outer_follow(m, difference, n, -(1 - momentum) * k / rate);
}

double outer_qgm_rate(double lr, double peak)
{
	return lr > RATE_LEAST * peak ? lr : RATE_LEAST * peak;
}

/* SPDX-License-Identifier: MIT */
/* The arithmetic of optimizers around the exchanges of a flock, over flat vectors in the host's
 * memory. The agent's trainer and the simulator both use it; when a step of NoLoCo is due is
 * gossip/policy/outer.h's to say.
 *
 * NoLoCo (2025), here for exchanges by pairs that are applied while training goes on. An agent
 * keeps φ, its parameters after the last outer step, and o, the outer momentum. With x the
 * parameters when an exchange is applied and k·D what that adds:
 *
 *     p = x + kD      o' = α·o + ω·(p − φ)      x' = φ' = φ + o'
 *
 * which is x' = p + c with c = α·o − (1 − ω)(p − φ). So an exchange is added as ever, and then c:
 * with α = 0 and ω = 1 that is nothing. The two of a pair keep the sum of their p. The paper's p is
 * of the snapshot that was sent; here steps since then are part of the outer step, since a snapshot
 * as it travels need not tell the parameters it is of.
 *
 * QGM (Lin, Karimireddy, Stich, Jaggi 2021): the momentum of SGD is that of the parameters' whole
 * movement, exchanges included, and not of the own gradients alone, which differ where data do:
 *
 *     m ← μ·m + (1 − μ)·(x_t − x_{t+1})/γ    the step: g + μ(μ·m + g); without Nesterov μ·m + g
 */
#ifndef DUNLIN_MODEL_GRAPH_OUTER_H
#define DUNLIN_MODEL_GRAPH_OUTER_H

#include "model/device/device.h"

enum outer_kind { OUTER_NONE, OUTER_NOLOCO, OUTER_QGM };

/* p, which is overwritten by c; φ and o are moved on. */
void outer_noloco(float *p, float *phi, float *o, size_t n, float alpha, float omega);

/* φ moves with an exchange that no outer step follows: y += k·x. */
void outer_follow(float *y, const float *x, size_t n, float k);

/* A step of SGD with this momentum. rate: γ as m knows it, of which the real one may be a small
 * part near the end of a run. */
void outer_qgm_step(
        float *w, float *m, const float *g, size_t n, const struct optim_args *a, float rate);

/* An exchange has added k·difference to the parameters. */
void outer_qgm_merged(
        float *m, const float *difference, size_t n, float k, float momentum, float rate);

/* The rate for m: not so small that an exchange near the end would throw it about. */
double outer_qgm_rate(double lr, double peak);

#endif

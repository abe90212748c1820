/* SPDX-License-Identifier: MIT */
/* Agents that lie, up to a third of all: make sim-byzantine.
 *
 * A liar is a whole agent whose words are changed on their way out, or that says what nobody asked
 * for. Each kind of lie is a small function of lies.c; a seed draws who lies, and in what.
 * byzantine.c has the script, and what must hold for the honest: where their results are, what the
 * run's clock says, whom they hold dead, suspect or in quarantine, whose state they keep, how far
 * one peer moves them, and that they finish. The rules of check.c and rules.c are those of honest
 * agents and are not judged here. */
#ifndef DUNLIN_TESTS_SIM_FLOCK_BYZANTINE_H
#define DUNLIN_TESTS_SIM_FLOCK_BYZANTINE_H

#include "tests/sim/flock/flock_sim.h"

const char *byz_lie_name(int lie);
void byz_draw(struct fsim *w); /* who lies in what, and who is late or sleeps */
bool byz_lies(const struct fsim *w, int i, enum byz_lie lie);
bool byz_is_liar(const struct fsim *w, int i);

/* lies.c */
bool byz_wants(struct fsim *w, int i, enum byz_lie lie, double chance); /* and it is counted */
void byz_message(struct fsim *w, int from, struct exchange_message *m);
void byz_heard(struct fsim *w, int to, struct exchange_message *m); /* by a liar's core */
void byz_gossip(struct fsim *w, int from, struct gossip_message *m);
void byz_data(struct fsim *w, int from, struct fsim_conn *c);
bool byz_withholds(struct fsim *w, int i, const struct flock_action *a);
void byz_acts(struct fsim *w, int i); /* says what nobody asked for */
/* The lie in the offer of that exchange; BYZ_LIES: none. */
enum byz_lie byz_offered(const struct fsim *w, uint64_t exchange);

/* byzantine.c: what must hold */
void byz_sent(struct fsim *w, int from, const struct exchange_message *m);
void byz_step(struct fsim *w, int i);
void byz_said(struct fsim *w, int i, const struct flock_say *s);
void byz_trained(struct fsim *w, int i);
void byz_adopts(struct fsim *w, int i);
void byz_applied(struct fsim *w, int i, const struct flock_action *a);
void byz_exported(struct fsim *w, int i);
void byz_end(struct fsim *w);

#endif

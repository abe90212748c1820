# SPDX-License-Identifier: MIT
# The simulator of membership. It links what the core links: nothing that could do I/O.
check_LIBRARIES += libsim.a
libsim_a_SOURCES = \
	tests/sim/check.c \
	tests/sim/faults.c \
	tests/sim/forger.c \
	tests/sim/measure.c \
	tests/sim/network.c \
	tests/sim/process.c \
	tests/sim/seed.c \
	tests/sim/sim.c \
	tests/sim/sim.h \
	tests/sim/truth.c
SIM_LIBS = libsim.a libsimnet.a libgossip.a libbase.a
check_PROGRAMS += tests/sim/sim_membership
tests_sim_sim_membership_SOURCES = tests/sim/membership.c
tests_sim_sim_membership_LDADD = $(SIM_LIBS)
EXTRA_DIST += tests/sim/exchange_mutants tests/sim/mutants

# The simulator of whole agents.
check_LIBRARIES += libsimflock.a
libsimflock_a_SOURCES = \
	tests/sim/flock/bulk.c \
	tests/sim/flock/byzantine.c \
	tests/sim/flock/byzantine.h \
	tests/sim/flock/check.c \
	tests/sim/flock/flock_sim.h \
	tests/sim/flock/liar.c \
	tests/sim/flock/lies.c \
	tests/sim/flock/process.c \
	tests/sim/flock/rules.c \
	tests/sim/flock/run.c \
	tests/sim/flock/script.c \
	tests/sim/flock/toy.c \
	tests/sim/flock/world.c
FLOCK_SIM_LIBS = libsimflock.a libsimnet.a libgossip.a libbase.a
check_PROGRAMS += tests/sim/sim_flock
tests_sim_sim_flock_SOURCES = tests/sim/flock/main.c
tests_sim_sim_flock_LDADD = $(FLOCK_SIM_LIBS)
EXTRA_DIST += tests/sim/byzantine_mutants tests/sim/flock_mutants

# Detection, false deaths, traffic and healing of membership: a table and bars, in some minutes.
sim-membership: tests/sim/sim_membership
	@tests/sim/sim_membership --measure --processes "$$(nproc)"

# Breaks membership and exchanges on purpose, rule by rule: the tests must fail each time.
sim-mutants:
	@CC='$(CC)' $(srcdir)/tests/sim/mutants
	@CC='$(CC)' $(srcdir)/tests/sim/exchange_mutants

# Whole agents by the thousand; then the core is broken, rule by rule and at random: the simulation
# must fail each time.
SIM_FLOCK_SEEDS = 20000
sim-flock: tests/sim/sim_flock
	@CC='$(CC)' SEEDS='$(SIM_FLOCK_SEEDS)' SIM='$(abs_builddir)/tests/sim/sim_flock' \
		$(srcdir)/tests/sim/flock_mutants

# Up to a third of the agents lie; then the rules against it are taken out of the core, one by one.
SIM_BYZANTINE_SEEDS = 1000
sim-byzantine: tests/sim/sim_flock
	@CC='$(CC)' SEEDS='$(SIM_BYZANTINE_SEEDS)' SIM='$(abs_builddir)/tests/sim/sim_flock' \
		$(srcdir)/tests/sim/byzantine_mutants

.PHONY: sim-byzantine sim-flock sim-membership sim-mutants

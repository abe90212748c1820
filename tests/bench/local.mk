# SPDX-License-Identifier: MIT
# Benches, never a part of make check. They print `bar NAME VALUE >= LEAST ok|short` lines (or
# <= MOST).
EXTRA_PROGRAMS = tests/bench/net_exchange tests/bench/train_steps
tests_bench_net_exchange_SOURCES = tests/bench/net_exchange.c
tests_bench_net_exchange_LDADD = $(NET_LIBS)
tests_bench_train_steps_SOURCES = tests/bench/train_steps.c
tests_bench_train_steps_LDADD = $(DUNLIN_LIBS)
CLEANFILES += $(EXTRA_PROGRAMS)
EXTRA_DIST += tests/bench/bench-accuracy tests/bench/bench-attack tests/bench/bench-gossip \
	tests/bench/bench-net tests/bench/bench-poison tests/bench/bench-signals \
	tests/bench/bench-slow-link tests/bench/bench-soak tests/bench/bench-train \
	tests/bench/bench_agents.py \
	tests/bench/bench_costs.py tests/bench/bench_links.py tests/bench/torch_ddp.py \
	tests/bench/torch_gloo.py tests/bench/torch_steps.py

# A Python that has PyTorch; Debian's, once python3-torch is installed.
PYTHON = /usr/bin/python3
ROUNDS = 7
bench-train: tests/bench/train_steps$(EXEEXT)
	@$(PYTHON) $(srcdir)/tests/bench/bench-train --rounds $(ROUNDS) \
		tests/bench/train_steps$(EXEEXT)

NET_ROUNDS = 11
bench-net: tests/bench/net_exchange$(EXEEXT) dunlin$(EXEEXT)
	@$(PYTHON) $(srcdir)/tests/bench/bench-net --rounds $(NET_ROUNDS) \
		tests/bench/net_exchange$(EXEEXT) ./dunlin$(EXEEXT)

EPOCHS = 10
SEEDS = 1 2 3
bench-accuracy: dunlin$(EXEEXT)
	@EPOCHS='$(EPOCHS)' SEEDS='$(SEEDS)' \
		$(srcdir)/tests/bench/bench-accuracy ./dunlin$(EXEEXT) $(srcdir)/deploy/fashion.json

GOSSIP_EPOCHS = 20
bench-gossip: dunlin$(EXEEXT)
	@EPOCHS='$(GOSSIP_EPOCHS)' SEEDS='$(SEEDS)' PARTS='$(PARTS)' \
		$(PYTHON) $(srcdir)/tests/bench/bench-gossip ./dunlin$(EXEEXT)

POISON_EPOCHS = 12
POISON_SEEDS = 1 2 3
bench-poison: dunlin$(EXEEXT) tests/attack/rogue$(EXEEXT)
	@EPOCHS='$(POISON_EPOCHS)' SEEDS='$(POISON_SEEDS)' $(PYTHON) \
		$(srcdir)/tests/bench/bench-poison ./dunlin$(EXEEXT) tests/attack/rogue$(EXEEXT)

# Every attack beside a run whose attacker is silent: about 45 minutes. ROWS="1 3" picks some.
SECONDS = 40
attack: dunlin$(EXEEXT) tests/attack/attack$(EXEEXT) tests/attack/rogue$(EXEEXT)
	@ROWS='$(ROWS)' $(PYTHON) $(srcdir)/tests/bench/bench-attack --seconds '$(SECONDS)' \
		./dunlin$(EXEEXT) tests/attack/attack$(EXEEXT) tests/attack/rogue$(EXEEXT)

SIGNALS = 200
bench-signals: dunlin$(EXEEXT)
	@SIGNALS='$(SIGNALS)' PARTS='$(PARTS)' \
		$(PYTHON) $(srcdir)/tests/bench/bench-signals ./dunlin$(EXEEXT)

# Wants root.
bench-slow-link: dunlin$(EXEEXT)
	@$(PYTHON) $(srcdir)/tests/bench/bench-slow-link ./dunlin$(EXEEXT)

# As root one agent's disk is filled up, too. SEED= chooses the faults, EVERY= how often.
SOAK_MINUTES = 60
soak: dunlin$(EXEEXT) tests/attack/attack$(EXEEXT)
	@$(PYTHON) $(srcdir)/tests/bench/bench-soak --minutes '$(SOAK_MINUTES)' \
		./dunlin$(EXEEXT) tests/attack/attack$(EXEEXT)

# One after the other, whatever -j says.
bench:
	@$(MAKE) $(AM_MAKEFLAGS) bench-net
	@$(MAKE) $(AM_MAKEFLAGS) bench-train
	@$(MAKE) $(AM_MAKEFLAGS) bench-accuracy
	@$(MAKE) $(AM_MAKEFLAGS) bench-gossip

.PHONY: attack bench bench-accuracy bench-gossip bench-net bench-poison bench-signals \
	bench-slow-link bench-train soak

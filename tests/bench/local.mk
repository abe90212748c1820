# SPDX-License-Identifier: MIT
# Benches, never a part of make check. They print `bar NAME VALUE >= LEAST ok|short` lines (or
# <= MOST).
EXTRA_PROGRAMS = tests/bench/gate_noise tests/bench/net_exchange tests/bench/sim_speed \
	tests/bench/train_steps
tests_bench_gate_noise_SOURCES = tests/bench/gate_noise.c
tests_bench_gate_noise_LDADD = libgossip.a libbase.a
tests_bench_net_exchange_SOURCES = tests/bench/net_exchange.c
tests_bench_net_exchange_LDADD = $(NET_LIBS)
tests_bench_sim_speed_SOURCES = tests/bench/sim_speed.c
tests_bench_sim_speed_LDADD = $(DUNLIN_LIBS)
tests_bench_train_steps_SOURCES = tests/bench/train_steps.c
tests_bench_train_steps_LDADD = $(DUNLIN_LIBS)
CLEANFILES += $(EXTRA_PROGRAMS)
EXTRA_DIST += tests/bench/bench-accuracy tests/bench/bench-attack tests/bench/bench-gossip \
	tests/bench/bench-sim-errors \
	tests/bench/bench-net tests/bench/bench-poison tests/bench/bench-signals \
	tests/bench/sim-papers tests/bench/sim_runs.py \
	tests/bench/bench-slow-link tests/bench/bench-soak tests/bench/bench-train \
	tests/bench/sim-learning tests/bench/sim_learning_batch.py tests/bench/bench_agents.py \
	tests/bench/bench_costs.py tests/bench/bench_links.py tests/bench/torch_ddp.py \
	tests/bench/torch_gloo.py tests/bench/torch_steps.py

# A Python that has PyTorch; Debian's, once python3-torch is installed.
PYTHON = /usr/bin/python3
ROUNDS = 7
NETWORKS = mlp cnn resnet20 gpt
bench-train: tests/bench/train_steps$(EXEEXT)
	@$(PYTHON) $(srcdir)/tests/bench/bench-train tests/bench/train_steps$(EXEEXT) \
		--rounds $(ROUNDS) --networks $(NETWORKS)

NET_ROUNDS = 11
bench-net: tests/bench/net_exchange$(EXEEXT) dunlin$(EXEEXT)
	@$(PYTHON) $(srcdir)/tests/bench/bench-net --rounds $(NET_ROUNDS) \
		tests/bench/net_exchange$(EXEEXT) ./dunlin$(EXEEXT)

EPOCHS = 10
SEEDS = 1 2 3
bench-accuracy: dunlin$(EXEEXT)
	@EPOCHS='$(EPOCHS)' SEEDS='$(SEEDS)' \
		$(srcdir)/tests/bench/bench-accuracy ./dunlin$(EXEEXT) $(srcdir)/deploy/fashion.json

# The significance gate on synthetic gradients: seconds.
bench-gate: tests/bench/gate_noise$(EXEEXT)
	@tests/bench/gate_noise$(EXEEXT)

GOSSIP_EPOCHS = 20
GOSSIP_SEEDS = 1 2 3 4 5 6
bench-gossip: dunlin$(EXEEXT)
	@EPOCHS='$(GOSSIP_EPOCHS)' SEEDS='$(GOSSIP_SEEDS)' PARTS='$(PARTS)' \
		$(PYTHON) $(srcdir)/tests/bench/bench-gossip ./dunlin$(EXEEXT)

POISON_EPOCHS = 12
POISON_SEEDS = 1 2 3
bench-poison: dunlin$(EXEEXT) tests/attack/rogue$(EXEEXT)
	@EPOCHS='$(POISON_EPOCHS)' SEEDS='$(POISON_SEEDS)' $(PYTHON) \
		$(srcdir)/tests/bench/bench-poison ./dunlin$(EXEEXT) tests/attack/rogue$(EXEEXT)

# Every attack beside a run whose attacker is silent: about 45 minutes. ROWS="1 3" picks some; with
# KEEP=FOLDER it goes on where it was ended.
SECONDS = 30
attack: dunlin$(EXEEXT) tests/attack/attack$(EXEEXT) tests/attack/rogue$(EXEEXT)
	@ROWS='$(ROWS)' KEEP='$(KEEP)' $(PYTHON) \
		$(srcdir)/tests/bench/bench-attack --seconds '$(SECONDS)' \
		./dunlin$(EXEEXT) tests/attack/attack$(EXEEXT) tests/attack/rogue$(EXEEXT)

SIGNALS = 200
bench-signals: dunlin$(EXEEXT)
	@SIGNALS='$(SIGNALS)' PARTS='$(PARTS)' \
		$(PYTHON) $(srcdir)/tests/bench/bench-signals ./dunlin$(EXEEXT)

# How fast the simulator is, that its runs repeat, and how far it is from real agents, which wants
# root. SIM_WHAT= chooses of them.
SIM_FOLDER = /usr/share/datasets/fashion-mnist
SIM_WHAT = repeat 64x500 1000 errors
bench-simulate: tests/bench/sim_speed$(EXEEXT) dunlin$(EXEEXT)
	@for what in $(SIM_WHAT); do \
		if test "$$what" = errors; then \
			$(PYTHON) $(srcdir)/tests/bench/bench-sim-errors ./dunlin$(EXEEXT); \
		else \
			tests/bench/sim_speed$(EXEEXT) '$(SIM_FOLDER)' "$$what"; \
		fi || exit 1; \
	done

# What four papers report, simulated: about 500 runs of some seconds. Runs that SIM_RUNS has are not
# done again. PARTS= chooses of them, MINUTES= is when no more are begun.
SIM_RUNS = sim-papers.runs
MINUTES = 60
sim-papers: dunlin$(EXEEXT)
	@PARTS='$(PARTS)' SEEDS='$(SEEDS)' MINUTES='$(MINUTES)' $(PYTHON) \
		$(srcdir)/tests/bench/sim-papers ./dunlin$(EXEEXT) '$(SIM_RUNS)'

# The consensus guard beside random times and every H, simulated. Runs that LEARNING_RUNS has are
# not done again; MINUTES= is when no more are begun.
LEARNING_RUNS = sim-learning.runs
LEARNING_SEEDS = 1 2 3 4 5 6 7 8 9 10
sim-learning: dunlin$(EXEEXT)
	@SEEDS='$(LEARNING_SEEDS)' MINUTES='$(MINUTES)' $(PYTHON) \
		$(srcdir)/tests/bench/sim-learning ./dunlin$(EXEEXT) '$(LEARNING_RUNS)'

# Runs that are in the folder are not repeated. SIM_PARTS= chooses of them.
SIM_PARTS = lau qgm noloco
BATCH_SEEDS = 5
SIM_OUT = sim-learning-batch
sim-learning-batch: dunlin$(EXEEXT)
	@$(PYTHON) $(srcdir)/tests/bench/sim_learning_batch.py --parts $(SIM_PARTS) \
		--seeds '$(BATCH_SEEDS)' --data '$(SIM_FOLDER)' --out '$(SIM_OUT)' ./dunlin$(EXEEXT)

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

.PHONY: attack bench bench-accuracy bench-gate bench-gossip bench-net bench-poison bench-signals \
	bench-simulate bench-slow-link bench-train sim-learning sim-learning-batch sim-papers soak

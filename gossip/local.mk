# SPDX-License-Identifier: MIT
# The core that decides: nothing in it does I/O.

libgossip_a_SOURCES = \
	gossip/exchange/aside.c \
	gossip/exchange/exchange.c \
	gossip/exchange/exchange.h \
	gossip/exchange/exchange_internal.h \
	gossip/exchange/manifest.c \
	gossip/exchange/manifest.h \
	gossip/exchange/settle.c \
	gossip/flock/claims.c \
	gossip/flock/differing.c \
	gossip/flock/divergence.c \
	gossip/flock/donate.c \
	gossip/flock/exchanging.c \
	gossip/flock/finish.c \
	gossip/flock/flock.c \
	gossip/flock/flock.h \
	gossip/flock/flock_internal.h \
	gossip/flock/join.c \
	gossip/flock/offers.c \
	gossip/flock/out.c \
	gossip/flock/run_clock.c \
	gossip/flock/trial.c \
	gossip/flock/verify.c \
	gossip/flock/view.c \
	gossip/limits.h \
	gossip/membership/addrs.c \
	gossip/membership/gossip.c \
	gossip/membership/gossip.h \
	gossip/membership/gossip_internal.h \
	gossip/membership/members.c \
	gossip/membership/probe.c \
	gossip/membership/queue.c \
	gossip/membership/sync.c \
	gossip/policy/adoption.c \
	gossip/policy/adoption.h \
	gossip/policy/clip.c \
	gossip/policy/clip.h \
	gossip/policy/gate.c \
	gossip/policy/gate.h \
	gossip/policy/gate_check.c \
	gossip/policy/ledger.c \
	gossip/policy/ledger.h \
	gossip/policy/meetings.c \
	gossip/policy/meetings.h \
	gossip/policy/partners.c \
	gossip/policy/partners.h \
	gossip/policy/sketch.c \
	gossip/policy/sketch.h \
	gossip/policy/unlike.c \
	gossip/policy/unlike.h

# SPDX-License-Identifier: MIT

UNIT_TESTS += \
	tests/gossip/test_batch \
	tests/gossip/test_clip \
	tests/gossip/test_exchange \
	tests/gossip/test_exchange_settle \
	tests/gossip/test_exchange_sim \
	tests/gossip/test_flock_sim \
	tests/gossip/test_flock_acts \
	tests/gossip/test_flock_claims \
	tests/gossip/test_flock_clock \
	tests/gossip/test_flock_fetch \
	tests/gossip/test_flock_finish \
	tests/gossip/test_flock_first \
	tests/gossip/test_flock_labels \
	tests/gossip/test_flock_lattice \
	tests/gossip/test_flock_pace \
	tests/gossip/test_flock_pairs \
	tests/gossip/test_flock_pull \
	tests/gossip/test_flock_rules \
	tests/gossip/test_flock_stalls \
	tests/gossip/test_flock_status \
	tests/gossip/test_flock_terms \
	tests/gossip/test_flock_trial \
	tests/gossip/test_format \
	tests/gossip/test_gate \
	tests/gossip/test_gate_runs \
	tests/gossip/test_gossip \
	tests/gossip/test_gossip_addrs \
	tests/gossip/test_gossip_sim \
	tests/gossip/test_guard \
	tests/gossip/test_ledger \
	tests/gossip/test_manifest \
	tests/gossip/test_meetings \
	tests/gossip/test_partners \
	tests/gossip/test_scales \
	tests/gossip/test_sketch \
	tests/gossip/test_unlike

tests_gossip_test_batch_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_clip_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_manifest_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_meetings_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_scales_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_sketch_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_partners_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_gossip_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_gossip_addrs_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_flock_acts_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_flock_pull_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_flock_rules_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_flock_status_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_flock_terms_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_flock_trial_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_flock_stalls_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_flock_labels_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_flock_lattice_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_flock_claims_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_flock_clock_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_flock_fetch_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_flock_finish_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_flock_first_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS) -lm
tests_gossip_test_flock_pace_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_flock_pairs_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_unlike_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_flock_sim_LDADD = $(FLOCK_SIM_LIBS) $(CMOCKA_LIBS)
tests_gossip_test_gossip_sim_LDADD = $(SIM_LIBS) $(CMOCKA_LIBS)
tests_gossip_test_exchange_SOURCES = tests/gossip/exchange_support.h tests/gossip/test_exchange.c
tests_gossip_test_exchange_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_exchange_settle_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_exchange_sim_SOURCES = \
	tests/sim/exchange_check.c \
	tests/sim/exchange_links.c \
	tests/sim/exchange_sim.c \
	tests/sim/exchange_sim.h \
	tests/gossip/test_exchange_sim.c
tests_gossip_test_exchange_sim_LDADD = libsimnet.a $(NET_LIBS) $(CMOCKA_LIBS)
tests_gossip_test_format_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_gate_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_gate_runs_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_guard_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
tests_gossip_test_ledger_LDADD = libgossip.a libbase.a $(CMOCKA_LIBS)
EXTRA_DIST += tests/gossip/flock_bed.h tests/gossip/gate_fixture.h

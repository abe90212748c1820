# SPDX-License-Identifier: MIT

SCRIPT_TESTS += tests/fuzz/run.sh

# Fuzz targets, tests/fuzz/fuzz_x.c with seeds in tests/fuzz/corpus/x. With --enable-fuzz libFuzzer
# drives them; otherwise they replay the seeds.
FUZZ_TARGETS = \
	tests/fuzz/fuzz_bulk \
	tests/fuzz/fuzz_certificate \
	tests/fuzz/fuzz_checkpoint \
	tests/fuzz/fuzz_config \
	tests/fuzz/fuzz_control \
	tests/fuzz/fuzz_datagram \
	tests/fuzz/fuzz_exchange \
	tests/fuzz/fuzz_flock \
	tests/fuzz/fuzz_frame \
	tests/fuzz/fuzz_gossip \
	tests/fuzz/fuzz_guest \
	tests/fuzz/fuzz_idx \
	tests/fuzz/fuzz_lattice \
	tests/fuzz/fuzz_noise \
	tests/fuzz/fuzz_npy \
	tests/fuzz/fuzz_run_settings \
	tests/fuzz/fuzz_safetensors \
	tests/fuzz/fuzz_scenario \
	tests/fuzz/fuzz_token \
	tests/fuzz/fuzz_tokens \
	tests/fuzz/fuzz_transport \
	tests/fuzz/fuzz_wire

if FUZZ
FUZZ_MAIN = $(FUZZ_LIBS)
else
FUZZ_MAIN = libreplay.a
check_LIBRARIES += libreplay.a
endif
libreplay_a_SOURCES = tests/fuzz/replay.c
FUZZ_LDADD = $(DUNLIN_LIBS) $(FUZZ_MAIN)
tests_fuzz_fuzz_bulk_LDADD = $(NET_LIBS) $(FUZZ_MAIN)
tests_fuzz_fuzz_certificate_LDADD = $(NET_LIBS) $(FUZZ_MAIN)
tests_fuzz_fuzz_checkpoint_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_config_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_control_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_exchange_LDADD = libgossip.a libbase.a $(FUZZ_MAIN)
tests_fuzz_fuzz_flock_LDADD = libgossip.a libbase.a $(FUZZ_MAIN) -lm
tests_fuzz_fuzz_gossip_LDADD = libgossip.a libbase.a $(FUZZ_MAIN)
tests_fuzz_fuzz_guest_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_idx_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_lattice_LDADD = $(NET_LIBS) $(FUZZ_MAIN)
tests_fuzz_fuzz_noise_LDADD = $(NET_LIBS) $(FUZZ_MAIN)
tests_fuzz_fuzz_npy_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_run_settings_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_safetensors_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_scenario_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_token_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_tokens_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_datagram_LDADD = $(NET_LIBS) $(FUZZ_MAIN)
tests_fuzz_fuzz_frame_LDADD = $(NET_LIBS) $(FUZZ_MAIN)
tests_fuzz_fuzz_transport_SOURCES = tests/fuzz/fuzz_transport.c tests/fuzz/fake_uv.c \
	tests/fuzz/fake_uv.h
tests_fuzz_fuzz_transport_LDADD = $(NET_LIBS) $(FUZZ_MAIN)
tests_fuzz_fuzz_wire_LDADD = $(NET_LIBS) $(FUZZ_MAIN)

# Seconds for each target.
FUZZ_SECONDS = 10
fuzz-targets: $(FUZZ_TARGETS)
fuzz: fuzz-targets
	@$(AM_TESTS_ENVIRONMENT) FUZZ_SECONDS='$(FUZZ_SECONDS)' $(srcdir)/tests/fuzz/run.sh

# In a build folder of its own; fuzzes only if FUZZ_SECONDS is given to make, which passes it on.
fuzz-coverage:
	@$(AM_TESTS_ENVIRONMENT) $(srcdir)/tests/fuzz/coverage.sh
EXTRA_DIST += tests/fuzz/coverage.sh tests/fuzz/input.h

.PHONY: fuzz fuzz-targets fuzz-coverage

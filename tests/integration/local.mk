# SPDX-License-Identifier: MIT

SCRIPT_TESTS += \
	tests/integration/admission.sh \
	tests/integration/agents.sh \
	tests/integration/agents_netns.sh \
	tests/integration/attacks.sh \
	tests/integration/before.sh \
	tests/integration/binary.sh \
	tests/integration/cli.sh \
	tests/integration/control.sh \
	tests/integration/demo.sh \
	tests/integration/flock.sh \
	tests/integration/flock_away.sh \
	tests/integration/flock_deep.sh \
	tests/integration/flock_descriptors.sh \
	tests/integration/flock_join.sh \
	tests/integration/flock_mixed.sh \
	tests/integration/flock_pair.sh \
	tests/integration/flock_poison.sh \
	tests/integration/flock_rogue.sh \
	tests/integration/flock_unlike.sh \
	tests/integration/flock_wire.sh \
	tests/integration/gossip_pure.sh \
	tests/integration/guest.sh \
	tests/integration/guest_python.sh \
	tests/integration/join.sh \
	tests/integration/join_line.sh \
	tests/integration/leave.sh \
	tests/integration/noise_python.sh \
	tests/integration/safetensors_python.sh \
	tests/integration/signals.sh \
	tests/integration/simulate.sh \
	tests/integration/top.sh \
	tests/integration/train.sh

TSAN_FLOCKS = tests/integration/flock_pair.sh
SCHEMA_SOURCES = tests/integration/schema.c tests/integration/schema.h
tests_integration_noise_peer_LDADD = $(NET_LIBS)
tests_integration_ctl_SOURCES = tests/integration/ctl.c $(SCHEMA_SOURCES)
tests_integration_ctl_LDADD = $(CJSON_LIBS) -lm
EXTRA_DIST += tests/integration/flock_lib.sh tests/integration/lib.sh
EXTRA_DIST += tests/integration/noise_python.py
EXTRA_DIST += tests/integration/guest_python.py tests/integration/guest_train.py

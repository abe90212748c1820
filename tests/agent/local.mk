# SPDX-License-Identifier: MIT

UNIT_TESTS += \
	tests/agent/test_base \
	tests/agent/test_batch_adapt \
	tests/agent/test_checkpoint \
	tests/agent/test_cli \
	tests/agent/test_client \
	tests/agent/test_config \
	tests/agent/test_control \
	tests/agent/test_control_acts \
	tests/agent/test_control_flock \
	tests/agent/test_cores \
	tests/agent/test_gpt \
	tests/agent/test_gpt2 \
	tests/agent/test_guest \
	tests/agent/test_learner \
	tests/agent/test_learner_files \
	tests/agent/test_learner_keep \
	tests/agent/test_learner_merge \
	tests/agent/test_learner_snapshot \
	tests/agent/test_learner_table \
	tests/agent/test_links \
	tests/agent/test_simulate \
	tests/agent/test_log \
	tests/agent/test_man \
	tests/agent/test_node \
	tests/agent/test_order \
	tests/agent/test_plot \
	tests/agent/test_prompt \
	tests/agent/test_report \
	tests/agent/test_rlimits \
	tests/agent/test_run_settings \
	tests/agent/test_schema \
	tests/agent/test_signals \
	tests/agent/test_simulate_flock \
	tests/agent/test_simulate_methods \
	tests/agent/test_state_dir \
	tests/agent/test_token \
	tests/agent/test_trainer \
	tests/agent/test_trainer_outer \
	tests/agent/test_trainer_stats \
	tests/agent/test_watch

TSAN_TESTS += \
	tests/agent/test_learner \
	tests/agent/test_learner_files \
	tests/agent/test_learner_merge \
	tests/agent/test_learner_snapshot \
	tests/agent/test_log \
	tests/agent/test_simulate

# A check of the control socket's answers against their schema.
EXTRA_DIST += tests/agent/control_fixture.h tests/agent/replies.h
EXTRA_DIST += tests/agent/sim_fixture.h tests/agent/xml_check.h
tests_agent_test_control_SOURCES = tests/agent/test_control.c $(SCHEMA_SOURCES)
tests_agent_test_control_acts_SOURCES = tests/agent/test_control_acts.c $(SCHEMA_SOURCES)
tests_agent_test_control_flock_SOURCES = tests/agent/test_control_flock.c $(SCHEMA_SOURCES)
tests_agent_test_schema_SOURCES = tests/agent/test_schema.c $(SCHEMA_SOURCES)
tests_agent_test_schema_LDADD = $(CJSON_LIBS) $(CMOCKA_LIBS) -lm
tests_agent_test_base_LDADD = libbase.a $(CMOCKA_LIBS)
tests_agent_test_cores_LDADD = libbase.a $(CMOCKA_LIBS)
tests_agent_test_simulate_methods_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=gate_step
tests_agent_test_links_LDADD = libsimnet.a libbase.a $(CMOCKA_LIBS) -lm
tests_agent_test_log_LDADD = libbase.a $(CMOCKA_LIBS)
EXTRA_DIST += tests/agent/learner_bed.h tests/agent/small_set.h tests/agent/toy_learner.h

# Writes the lists of the man page anew, from the tables.
man: tests/agent/test_man$(EXEEXT)
	srcdir=$(srcdir) tests/agent/test_man$(EXEEXT) --write
.PHONY: man

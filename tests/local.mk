# SPDX-License-Identifier: MIT
# Tests: cmocka programs, and scripts that print TAP. A program tests/FOLDER/test_x is built
# from its .c and links everything, unless it says otherwise.

UNIT_TESTS =

SCRIPT_TESTS = tests/style

# Of these ThreadSanitizer has something to say (make check-tsan).
TSAN_TESTS =

include %D%/agent/local.mk
include %D%/gossip/local.mk
include %D%/model/local.mk
include %D%/net/local.mk
include %D%/attack/local.mk
include %D%/bench/local.mk
include %D%/fuzz/local.mk
include %D%/gpu/local.mk
include %D%/integration/local.mk
include %D%/sim/local.mk

EXTRA_DIST += tests/support.h

if HAVE_CMOCKA
check_PROGRAMS += $(UNIT_TESTS) $(FUZZ_TARGETS) tests/integration/no_exec_memory \
	tests/integration/noise_peer \
	tests/integration/st_copy
TESTS = $(UNIT_TESTS) $(SCRIPT_TESTS)
else
check-local:
	@echo "make check: cmocka is missing: install libcmocka-dev and run configure again" >&2
	@false
endif

TEST_EXTENSIONS = .sh
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/.build-aux/tap-driver.sh
SH_LOG_DRIVER = $(LOG_DRIVER)
AM_TESTS_ENVIRONMENT = \
	ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=1; \
	export ASAN_OPTIONS; \
	CMOCKA_MESSAGE_OUTPUT=TAP; export CMOCKA_MESSAGE_OUTPUT; \
	DUNLIN='$(abs_top_builddir)/dunlin'; export DUNLIN; \
	BUILD_FLAGS='$(AM_CFLAGS) $(CFLAGS)'; export BUILD_FLAGS; \
	FUZZ_TARGETS='$(FUZZ_TARGETS)'; export FUZZ_TARGETS; \
	builddir='$(abs_top_builddir)'; export builddir; \
	srcdir='$(abs_top_srcdir)'; export srcdir;

EXTRA_DIST += $(SCRIPT_TESTS) tests/golden tests/fuzz/corpus tests/fuzz/fuzz_checkpoint.dict \
	tests/fuzz/fuzz_config.dict tests/fuzz/fuzz_control.dict tests/fuzz/fuzz_safetensors.dict

check-tsan:
	$(MAKE) $(AM_MAKEFLAGS) check TESTS='$(TSAN_TESTS) $(TSAN_FLOCKS)' \
		check_PROGRAMS='$(TSAN_TESTS) $(AGENT_TOOLS)'

.PHONY: check-tsan

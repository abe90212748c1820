# SPDX-License-Identifier: MIT

EXTRA_DIST += tests/gpu/kernels.txt tests/gpu/report

SCRIPT_TESTS += \
	tests/gpu/agents.sh \
	tests/gpu/bugs.sh \
	tests/gpu/ops.sh \
	tests/gpu/plugin.sh \
	tests/gpu/standin.sh

# The stand-in for a GPU: one library with the names and versions of cudart, cuBLAS and cuDNN,
# in a folder that tests put first on the library path; and the tests of the GPU backend on it.
STANDIN_SOURCES = \
	tests/gpu/cublas.c \
	tests/gpu/cudart.c \
	tests/gpu/dnn.c \
	tests/gpu/dnn.h \
	tests/gpu/dnn_real.c \
	tests/gpu/dnn_run.c \
	tests/gpu/fatbin.c \
	tests/gpu/fault.c \
	tests/gpu/launch.c \
	tests/gpu/memory.c \
	tests/gpu/pinned.c \
	tests/gpu/ptx.h \
	tests/gpu/ptx_decode.c \
	tests/gpu/ptx_grid.c \
	tests/gpu/ptx_math.c \
	tests/gpu/ptx_memory.c \
	tests/gpu/ptx_parse.c \
	tests/gpu/ptx_run.c \
	tests/gpu/ptx_thread.h \
	tests/gpu/standin.h \
	tests/gpu/stream.c \
	tests/gpu/stream.h
GPU_TEST_FILES = tests/gpu/bugs tests/gpu/control.h tests/gpu/devices tests/gpu/fixture.h \
	tests/gpu/kernels_fixture.h tests/gpu/lib.sh tests/gpu/mutate tests/gpu/old_plugin.c \
	tests/gpu/real.sh tests/gpu/speed.c tests/gpu/survivors tests/gpu/test_gpu.c \
	tests/gpu/test_images.c tests/gpu/test_kernels.c tests/gpu/test_memory.c \
	tests/gpu/test_pools.c tests/gpu/test_stage.c tests/gpu/test_standin.c \
	tests/gpu/test_wire.c tests/gpu/torch_speed.py tests/gpu/trial.cu tests/gpu/trial.h \
	tests/gpu/wire_fixture.h
EXTRA_DIST += $(STANDIN_SOURCES) $(GPU_TEST_FILES)
if HAVE_CUDA
if HAVE_CMOCKA
GPU_CHECKS = tests/gpu/libstandin.so tests/gpu/old/dunlin-cuda.so tests/gpu/speed \
	tests/gpu/test_gpu tests/gpu/test_images tests/gpu/test_kernels tests/gpu/test_memory \
	tests/gpu/test_pools tests/gpu/test_stage tests/gpu/test_standin tests/gpu/test_wire
check_PROGRAMS += $(GPU_CHECKS)
check_DATA = tests/gpu/lib/cudnn tests/gpu/toolkit
# A plugin of another version.
tests_gpu_old_dunlin_cuda_so_SOURCES = tests/gpu/old_plugin.c
tests_gpu_old_dunlin_cuda_so_CFLAGS = $(AM_CFLAGS) -fPIC
tests_gpu_old_dunlin_cuda_so_LDFLAGS = $(PLUGIN_LDFLAGS)
tests_gpu_old_dunlin_cuda_so_LDADD =
tests_gpu_libstandin_so_SOURCES = $(STANDIN_SOURCES)
tests_gpu_libstandin_so_CPPFLAGS = -I$(srcdir) $(DUNLIN_CPPFLAGS) $(CUDA_CFLAGS)
tests_gpu_libstandin_so_CFLAGS = $(AM_CFLAGS) -fPIC -fvisibility=hidden
tests_gpu_libstandin_so_LDFLAGS = $(PLUGIN_LDFLAGS) -Wl,--version-script=tests/gpu/standin.map \
	-Wl,-soname,`sed -n '1s/ .*//p' tests/gpu/standin.map`
tests_gpu_libstandin_so_LDADD = -lm -ldl -lpthread
tests_gpu_libstandin_so_DEPENDENCIES = tests/gpu/standin.map
tests_gpu_test_kernels_SOURCES = tests/gpu/test_kernels.c tests/gpu/kernels_fixture.h
tests_gpu_test_kernels_CPPFLAGS = -I$(srcdir) $(DUNLIN_CPPFLAGS) $(CUDA_CFLAGS)
tests_gpu_test_kernels_LDFLAGS = -Wl,-rpath,$(CUDA_LIBDIR)
tests_gpu_test_kernels_LDADD = $(CUDA_OBJECTS) $(CUDA_LIBS) $(CMOCKA_LIBS) -lstdc++ -lm -ldl
tests_gpu_test_pools_SOURCES = tests/gpu/test_pools.c tests/gpu/kernels_fixture.h
tests_gpu_test_pools_CPPFLAGS = $(tests_gpu_test_kernels_CPPFLAGS)
tests_gpu_test_pools_LDFLAGS = $(tests_gpu_test_kernels_LDFLAGS)
tests_gpu_test_pools_LDADD = $(tests_gpu_test_kernels_LDADD)
tests_gpu_test_standin_SOURCES = tests/gpu/test_standin.c tests/gpu/trial.h
tests_gpu_test_standin_CPPFLAGS = -I$(srcdir) $(DUNLIN_CPPFLAGS) $(CUDA_CFLAGS)
tests_gpu_test_standin_LDADD = tests/gpu/trial.o tests/gpu/libstandin.so $(CMOCKA_LIBS) \
	-lstdc++ -lm
tests/gpu/standin.map: Makefile
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)for lib in cudart cublas cudnn; do \
		name=`objdump -p $(CUDA_LIBDIR)/lib$$lib.so | sed -n 's/ *SONAME *//p'`; \
		echo "$$name { global: $${lib%rt}*; __$${lib%rt}*; };"; \
	done >$@ && echo 'standin { global: standin_*; local: *; };' >>$@
# The last file made says where the genuine cuDNN is.
tests/gpu/lib/cudnn: tests/gpu/libstandin.so
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)for name in `sed -n 's/^\(lib[^ ]*\) .*/\1/p' tests/gpu/standin.map`; do \
		ln -sf ../libstandin.so $(@D)/$$name; \
		echo "$(CUDA_LIBDIR)/$$name"; \
	done | grep cudnn >$@
# For scripts that compile the backend themselves.
tests/gpu/toolkit: Makefile
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)printf "export NVCC='%s' CUDA_CFLAGS='%s' CUDA_LIBS='%s' CMOCKA_LIBS='%s'\n" \
		'$(NVCC)' '$(CUDA_CFLAGS)' '$(CUDA_LIBS)' '$(CMOCKA_LIBS)' >$@
# For one architecture, and as PTX alone: nobody has to wait for ptxas.
tests/gpu/trial.o: tests/gpu/trial.cu tests/gpu/trial.h
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(NVCC) -std=c++17 -O2 -gencode arch=compute_75,code=compute_75 \
		-Xcompiler -fPIE -I$(srcdir) -c $(srcdir)/tests/gpu/trial.cu -o $@
CLEANFILES += tests/gpu/trial.o tests/gpu/standin.map tests/gpu/toolkit
clean-local:
	rm -rf tests/gpu/lib
endif
endif

# The tests of the GPU backend alone.
GPU_TESTS = tests/gpu/agents.sh tests/gpu/bugs.sh tests/gpu/ops.sh tests/gpu/plugin.sh \
	tests/gpu/standin.sh
check-cuda:
	$(MAKE) $(AM_MAKEFLAGS) check TESTS='$(GPU_TESTS)' \
		check_PROGRAMS='$(GPU_CHECKS) $(AGENT_TOOLS)'

# The same on a real GPU; and whether the tests notice what is changed in the backend, all over it
# (MUTANTS='-n 50': so many, drawn at random).
check-gpu: $(GPU_CHECKS) $(AGENT_TOOLS) dunlin$(EXEEXT) all
	@$(AM_TESTS_ENVIRONMENT) PYTHON='$(PYTHON)' $(srcdir)/tests/gpu/real.sh
MUTANTS =
mutate-gpu: $(GPU_CHECKS) dunlin-cuda.so tests/gpu/lib/cudnn tests/gpu/toolkit
	@$(AM_TESTS_ENVIRONMENT) unset CMOCKA_MESSAGE_OUTPUT; . tests/gpu/toolkit && \
		$(PYTHON) $(srcdir)/tests/gpu/mutate all $(MUTANTS)

.PHONY: check-cuda check-gpu mutate-gpu

# SPDX-License-Identifier: MIT
# The GPU backend, a plugin that is opened at run time. Machine code and PTX for each
# architecture; what ptxas says of each kernel stays beside its object, for gpu-report.
CUDA_KERNELS = \
	model/cuda/elementwise.cu \
	model/cuda/images.cu \
	model/cuda/pool.cu \
	model/cuda/reduce.cu \
	model/cuda/update.cu \
	model/cuda/wire.cu
EXTRA_DIST += $(CUDA_KERNELS) model/cuda/API model/cuda/dunlin-cuda.map model/cuda/launch.cuh
if HAVE_CUDA
plugindir = $(pkglibdir)
plugin_PROGRAMS = dunlin-cuda.so
dunlin_cuda_so_SOURCES = \
	agent/base/err.c \
	agent/base/rng.c \
	model/cuda/answer.c \
	model/cuda/arena.c \
	model/cuda/batch.c \
	model/cuda/conv.c \
	model/cuda/conv_plan.c \
	model/cuda/conv_plan.h \
	model/cuda/copy.c \
	model/cuda/cuda.h \
	model/cuda/dense.c \
	model/cuda/device.c \
	model/cuda/kernels.h \
	model/cuda/run.c \
	model/cuda/simple.c \
	model/cuda/snapshot.c \
	model/cuda/stage.c
CUDA_OBJECTS = $(CUDA_KERNELS:.cu=.o)
CUDA_LOGS = $(CUDA_KERNELS:.cu=.ptxas)
dunlin_cuda_so_CPPFLAGS = -I$(srcdir) $(DUNLIN_CPPFLAGS) $(CUDA_CFLAGS)
dunlin_cuda_so_CFLAGS = $(AM_CFLAGS) -fPIC -fvisibility=hidden
dunlin_cuda_so_LDFLAGS = $(PLUGIN_LDFLAGS) -Wl,-rpath,$(CUDA_LIBDIR) \
	-Wl,--version-script=$(srcdir)/model/cuda/dunlin-cuda.map
dunlin_cuda_so_LDADD = $(CUDA_OBJECTS) $(CUDA_LIBS) -lstdc++ -lm
dunlin_cuda_so_DEPENDENCIES = $(CUDA_OBJECTS) model/cuda/dunlin-cuda.map
CLEANFILES += $(CUDA_OBJECTS) $(CUDA_LOGS)

SUFFIXES = .cu
.cu.o:
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(NVCC) $(NVCC_FLAGS) $(CUDA_GENCODE) -I$(srcdir) -c $< -o $@ \
		>$(@:.o=.ptxas) 2>&1 || { cat $(@:.o=.ptxas) >&2; rm -f $@; exit 1; }
$(CUDA_OBJECTS): agent/base/sketch_hash.h model/cuda/kernels.h model/cuda/launch.cuh \
	model/device/dropout.h \
	model/data/move.h

# The list of what each kernel takes, to be committed with the kernels.
gpu-report: $(CUDA_OBJECTS) model/cuda/compiler
	cat model/cuda/compiler >$(srcdir)/tests/gpu/kernels.txt
	$(srcdir)/tests/gpu/report $(CUDA_LOGS) >>$(srcdir)/tests/gpu/kernels.txt
model/cuda/compiler: Makefile
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(NVCC) --version | \
		sed -n "s,.*\(V[0-9.]*\)$$,registers/shared memory by nvcc \1,p" >$@
noinst_DATA = model/cuda/compiler
CLEANFILES += model/cuda/compiler
endif

.PHONY: gpu-report

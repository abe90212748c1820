# SPDX-License-Identifier: MIT
# What computes, on the CPU. model/cuda has the GPU backend.

libmodel_a_SOURCES = \
	model/arch/arch.c \
	model/arch/arch.h \
	model/arch/arch_text.c \
	model/cpu/conv.c \
	model/cpu/cpu.c \
	model/cpu/cpu.h \
	model/cpu/dense.c \
	model/cpu/gemm.c \
	model/cpu/gemm.h \
	model/cpu/pool.c \
	model/cpu/pool.h \
	model/cpu/simple.c \
	model/data/augment.c \
	model/data/augment.h \
	model/data/data.h \
	model/data/dataset.c \
	model/data/idx.c \
	model/data/idx.h \
	model/data/loader.c \
	model/data/move.h \
	model/data/split.c \
	model/device/contract.h \
	model/device/device.c \
	model/device/device.h \
	model/device/dropout.h \
	model/graph/graph.c \
	model/graph/graph.h \
	model/graph/optim.c \
	model/graph/optim.h \
	model/graph/plan.c \
	model/graph/plan.h \
	model/io/safetensors.c \
	model/io/safetensors.h \
	model/io/safetensors_scan.c \
	model/io/safetensors_write.c \
	model/plain/plain.c

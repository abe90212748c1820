/* SPDX-License-Identifier: MIT */
/* Descriptors of cuDNN's graphs as the stand-in keeps them. */
#ifndef DUNLIN_TESTS_GPU_DNN_H
#define DUNLIN_TESTS_GPU_DNN_H

#include "tests/gpu/standin.h"

#include <cudnn.h>

struct dnn_attribute {
	int name;
	int64_t count;
	size_t bytes;
	void *data; /* owned */
	struct dnn_attribute *next;
};

/* An engine as the stand-in proposes it. */
struct dnn_proposal {
	cudnnBackendHeurMode_t mode;
	int n_notes;
	cudnnBackendNumericalNote_t note[2];
	bool exact; /* no other may be run */
};

struct dnn_descriptor {
	struct dnn_descriptor *self; /* while it lives */
	cudnnBackendDescriptorType_t type;
	bool final;
	cudnnBackendDescriptor_t real;      /* the genuine library's, or NULL */
	struct dnn_attribute *attributes;   /* owned */
	const struct dnn_descriptor *graph; /* of an engine's configuration: what it is for */
	const struct dnn_proposal *own;     /* of it and its engine, without the genuine library */
};

struct cudnnContext {
	struct cudnnContext *self;
	cudaStream_t stream;
};

/* The value of an attribute, count of them; NULL after a fault when it was not set. */
const void *dnn_get(const struct dnn_descriptor *d, int name, int64_t count);

/* dnn_real.c: the genuine library in its mode without devices, where there is one. A status that is
 * not 0 is its refusal. */
bool dnn_real(void);
cudnnStatus_t dnn_real_create(struct dnn_descriptor *d);
void dnn_real_destroy(struct dnn_descriptor *d);
cudnnStatus_t dnn_real_set(struct dnn_descriptor *d, cudnnBackendAttributeName_t name,
        cudnnBackendAttributeType_t type, int64_t count, const void *data);
cudnnStatus_t dnn_real_get(struct dnn_descriptor *d, cudnnBackendAttributeName_t name,
        cudnnBackendAttributeType_t type, int64_t count, int64_t *got, void *data);
cudnnStatus_t dnn_real_finalize(struct dnn_descriptor *d);
void dnn_real_error(char *text, size_t bytes);

/* dnn_run.c: checks a plan and what it is bound to, and pushes its work. */
cudnnStatus_t dnn_execute(
        cudnnHandle_t h, const struct dnn_descriptor *plan, const struct dnn_descriptor *pack);
/* Bytes of workspace that a final plan wants. */
int64_t dnn_workspace(const struct dnn_descriptor *plan);

#endif

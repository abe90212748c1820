/* SPDX-License-Identifier: MIT */
/* What a model is: a list of layers, each reading the output of the one before it, or of earlier
 * ones that it names. arch_resolve works out every shape and every parameter before anything is
 * allocated, and explains an impossible list layer by layer.
 *
 *     layers (the user's list) ───arch_resolve──► nodes: inputs, shapes   ──► graph.h compiles them
 *                                             └─► views: the flat parameter vector
 *
 * Conventions that every backend keeps:
 *   activations are channels last: an image is (H, W, C), a sequence (T, C), a vector (C);
 *   parameters have PyTorch's shapes and order: conv (O, I, kh, kw), dense (out, in);
 *   flatten reads an image in PyTorch's order, (C, H, W), so that weights mean the same there.
 *
 * The flat vector, one fp32 array for parameters, and one alike for gradients and for each
 * optimizer state:
 *
 *     0            n_decay              n_train             n_total
 *     ├─ weights ──┼─ biases, norms ────┼─ running statistics ┤
 *       weight decay  no weight decay      not trained
 */
#ifndef DUNLIN_MODEL_ARCH_ARCH_H
#define DUNLIN_MODEL_ARCH_ARCH_H

#include "agent/base/buf.h"
#include "agent/base/err.h"
#include "agent/base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHAPE_RANK_MAX 4
#define LAYER_INPUTS_MAX 2
#define LAYER_PARAMS_MAX 4

enum layer_kind {
	LAYER_DENSE,
	LAYER_CONV2D,
	LAYER_RELU,
	LAYER_GELU,
	LAYER_MAX_POOL,
	LAYER_AVG_POOL,
	LAYER_GLOBAL_POOL,
	LAYER_DROPOUT,
	LAYER_FLATTEN,
	LAYER_ADD,
	LAYER_KINDS
};

/* Without the batch dimension. */
struct shape {
	int rank;
	int64_t dim[SHAPE_RANK_MAX];
};

/* One entry of the list. Fields that a kind does not use stay at their defaults. */
struct layer {
	enum layer_kind kind;
	/* name: empty is conv1, conv2, … by kind and place. from: empty is the layer before,
	 * "input" the data. */
	char name[LIMIT_LAYER_NAME], from[LAYER_INPUTS_MAX][LIMIT_LAYER_NAME];
	int64_t units;               /* dense: outputs; conv2d: output channels */
	int64_t kernel, stride, pad; /* conv2d and pools, square */
	bool bias;
	double p; /* dropout: the share that is dropped */
};

/* The fields of a kind, for code that parses, prints or documents a model. */
enum layer_field_type { FIELD_INT, FIELD_REAL, FIELD_BOOL };
struct layer_field {
	const char *key;
	enum layer_field_type type;
	size_t offset; /* in struct layer */
	double min, max;
	double dflt; /* what an absent field means, unless it is required */
	bool required;
};
struct layer_type {
	const char *name; /* as in the JSON "type" */
	int inputs;       /* 1, or 2 for add */
	const struct layer_field *fields;
	int n_fields;
};
extern const struct layer_type layer_types[LAYER_KINDS];

/* A layer of that kind with its defaults; ERR_NOTFOUND for an unknown name. */
int layer_init(struct layer *l, const char *type) MUST_CHECK;

enum param_group { PARAM_WEIGHT, PARAM_PLAIN, PARAM_STAT };

struct param_view {
	char name[LIMIT_TENSOR_NAME]; /* "conv1.weight" */
	struct shape shape;
	size_t offset, count; /* in the flat vector, in floats */
	enum param_group group;
	int64_t fan_in; /* for the initial values */
};

struct arch_node {
	struct layer layer;
	int in[LAYER_INPUTS_MAX]; /* indices of nodes, -1: the data */
	int n_in;
	struct shape shape;          /* of the output */
	int param[LAYER_PARAMS_MAX]; /* indices of views: weight, bias */
	int n_param;
};

/* A checked model. Owned arrays; free with arch_close. */
struct arch {
	char preset[LIMIT_NAME]; /* "cnn", or empty for a list of the user's own */
	struct shape input;
	int64_t classes;
	struct arch_node *nodes;
	int n_nodes;
	struct param_view *views;
	int n_views;
	size_t n_decay, n_train, n_total;
};

/* Checks the list and works out the shapes. The last layer must give one number per class; its
 * output goes into softmax cross-entropy. layers is copied. */
int arch_resolve(struct arch *a, const struct layer *layers, int n, const struct shape *input,
        int64_t classes, struct err *e) MUST_CHECK;

/* A preset by name ("mlp", "cnn") for data of that shape. */
int arch_preset(struct arch *a, const char *name, const struct shape *input, int64_t classes,
        struct err *e) MUST_CHECK;

/* The known presets, NULL-terminated. */
extern const char *const arch_presets[];

void arch_close(struct arch *a);

/* The model as canonical JSON, {"input":[28,28,1],"classes":10,"layers":[{"type":…},…]}: equal
 * models give equal bytes. It goes into checkpoints and exports. */
int arch_print(const struct arch *a, struct buf *out) MUST_CHECK;

/* A table for people: layer, output shape, parameters. */
int arch_describe(const struct arch *a, struct buf *out) MUST_CHECK;

/* Initial values as PyTorch's: weights and biases uniform within ±1/√fan_in. The same seed gives
 * the same bits on every machine. values has n_total floats. */
void arch_init_params(const struct arch *a, uint64_t seed, float *values);

size_t shape_count(const struct shape *s);
bool shape_equal(const struct shape *a, const struct shape *b);

/* "28x28x1" into out; returns out. */
const char *shape_text(const struct shape *s, char out[64]);

#endif

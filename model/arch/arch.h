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
 * Data are numbers, with a label for each sample, or tokens (T), which an embedding reads, with a
 * label for each position: the token that comes next.
 *
 * The flat vector, one fp32 array for parameters, and one alike for gradients and for each
 * optimizer state:
 *
 *     0            n_decay              n_train             n_total
 *     ├─ weights ──┼─ biases, norms ────┼─ running statistics ┤
 *       weight decay  no weight decay      not trained
 *
 * Two nodes may read one parameter (embedding and head): it is one view of the vector.
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

/* All kinds. A row stands for layer_NAME, a struct layer_type (arch/layer_*.c), and in each backend
 * for a struct of functions: plain_op_NAME, cpu_op_NAME, cuda_op_NAME. */
#define LAYER_LIST(X)               \
	X(DENSE, dense)             \
	X(CONV2D, conv2d)           \
	X(RELU, relu)               \
	X(GELU, gelu)               \
	X(MAX_POOL, max_pool)       \
	X(AVG_POOL, avg_pool)       \
	X(GLOBAL_POOL, global_pool) \
	X(DROPOUT, dropout)         \
	X(FLATTEN, flatten)         \
	X(ADD, add)                 \
	X(BATCH_NORM, batch_norm)   \
	X(LAYER_NORM, layer_norm)   \
	X(SHORTCUT, shortcut)       \
	X(EMBEDDING, embedding)     \
	X(ATTENTION, attention)     \
	X(HEAD, head)

#define X(KIND, name) LAYER_##KIND,
enum layer_kind { LAYER_LIST(X) LAYER_KINDS };
#undef X

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
	int64_t units; /* dense, embedding: outputs; conv2d and shortcut: output channels */
	int64_t kernel, stride, pad; /* conv2d and pools, square; shortcut: stride */
	bool bias;
	double p;             /* dropout: the share that is dropped */
	double eps;           /* batch_norm, layer_norm */
	double momentum;      /* batch_norm */
	bool tanh;            /* gelu: the approximation by tanh, GPT-2's */
	double std;           /* of the initial weights; dense, conv2d: 0 is as INIT_UNIFORM */
	int64_t heads;        /* attention */
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
	/* arch_print leaves out its default: texts from before it was there stay equal. */
	bool later;
};
struct arch;
struct layer_type {
	const char *name;       /* as in the JSON "type" */
	const char *short_name; /* an unnamed layer is called this and a number */
	int inputs;             /* 1, or 2 for add */
	bool reads_tokens;      /* its input must be the data, and those are tokens */
	const struct layer_field *fields;
	int n_fields;

	/* Node i, whose inputs are known and whose shape is set to its first input's: checks that
	 * shape, sets the output's, and declares the parameters (arch__param). NULL: the output has
	 * the shape of the input, and there are no parameters. */
	int (*resolve)(struct arch *a, int i, struct err *e);

	/* For the compiler of graphs. */
	bool takes_relu;  /* a ReLU behind it can be a part of it: struct op, relu */
	bool masks_input; /* can apply the backward of a ReLU before it: struct op, mask_dx */
	/* Optional: whether it would only copy an input of that shape. */
	bool (*is_copy)(const struct layer *l, const struct shape *in);
};
extern const struct layer_type *const layer_types[LAYER_KINDS];

/* A layer of that kind with its defaults; ERR_NOTFOUND for an unknown name. */
int layer_init(struct layer *l, const char *type) MUST_CHECK;

enum param_group { PARAM_WEIGHT, PARAM_PLAIN, PARAM_STAT };
enum param_init { INIT_UNIFORM, INIT_NORMAL, INIT_ZEROS, INIT_ONES };

struct param_view {
	char name[LIMIT_TENSOR_NAME]; /* "conv1.weight" */
	struct shape shape;
	size_t offset, count; /* in the flat vector, in floats */
	enum param_group group;
	enum param_init init;
	double std;     /* INIT_NORMAL */
	int64_t fan_in; /* INIT_UNIFORM: within ±1/√fan_in */
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
	int64_t classes;   /* of tokens: the vocabulary */
	bool tokens;       /* the data are tokens, (T) */
	int64_t positions; /* labels of a sample: T for tokens, else 1 */
	struct arch_node *nodes;
	int n_nodes;
	struct param_view *views;
	int n_views;
	size_t n_decay, n_train, n_total;
};

/* Checks the list and works out the shapes. The last layer must give one number per class, for
 * tokens at every position; its output goes into softmax cross-entropy. layers is copied. */
int arch_resolve(struct arch *a, const struct layer *layers, int n, const struct shape *input,
        int64_t classes, struct err *e) MUST_CHECK;

/* The sizes of preset gpt; its context is the data's. */
struct arch_gpt {
	int64_t layers, width, heads;
};
#define ARCH_GPT_LAYERS_MAX 100
#define ARCH_GPT_DEFAULT ((struct arch_gpt){.layers = 4, .width = 256, .heads = 4})

/* A preset by name ("mlp", "cnn", "resnet20", "gpt") for data of that shape. gpt may be NULL:
 * ARCH_GPT_DEFAULT. */
int arch_preset(struct arch *a, const char *name, const struct arch_gpt *gpt,
        const struct shape *input, int64_t classes, struct err *e) MUST_CHECK;

/* The known presets, NULL-terminated. */
extern const char *const arch_presets[];

/* ERR_INVALID, with the layer's name: it normalises over the batch, and so few samples give it a
 * single value for each channel, which it always makes 0. */
int arch_check_batch(const struct arch *a, int64_t batch, struct err *e) MUST_CHECK;

void arch_close(struct arch *a);

/* The model as canonical JSON, {"input":[28,28,1],"classes":10,"layers":[{"type":…},…]}: equal
 * models give equal bytes. It goes into checkpoints and exports. */
int arch_print(const struct arch *a, struct buf *out) MUST_CHECK;

/* A table for people: layer, output shape, parameters. */
int arch_describe(const struct arch *a, struct buf *out) MUST_CHECK;

/* Initial values, as each view's init says: PyTorch's for dense and conv2d. The same seed gives the
 * same bits on every machine. values has n_total floats. */
void arch_init_params(const struct arch *a, uint64_t seed, float *values);

size_t shape_count(const struct shape *s);
bool shape_equal(const struct shape *a, const struct shape *b);

/* "28x28x1" into out; returns out. */
const char *shape_text(const struct shape *s, char out[64]);

#endif

/* SPDX-License-Identifier: MIT */
/* Compiles an arch into a program: ops in forward order, the backward order, and one arena in which
 * every activation and gradient has its place.
 *
 *     node:    conv1   relu1   pool1   flatten   dense1        the user's list
 *     op:     conv+relu ───►   pool    flatten   dense         a relu is fused into dense, conv2d
 *     value:      0              1        2         3          or add when it alone reads them
 *
 * Time in the plan is the index of an op in forward order, then the loss, then the ops backwards.
 * A value lives from the op that writes it to that op's own backward; its gradient from the
 * backward of its last reader to the backward of its writer. Two things that are never alive at
 * once may share bytes: plan_arena packs them, largest first.
 *
 * A value with several readers has its gradient summed: the first reader in backward order writes
 * it, each further one writes a part that is added right after. */
#include "model/graph/graph.h"

#include "model/graph/plan.h"
#include "model/graph/stats.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct value {
	size_t count;    /* floats, batch included */
	int writer;      /* op, or -1: the data */
	int readers;     /* how many op inputs */
	bool want_grad;  /* a trained layer lies before it */
	int place, grad; /* extents of the plan, -1: none */
};

struct builder {
	const struct arch *a;
	struct graph *net;
	struct value *values; /* owned; one per op at most, plus the data at 0 */
	int n_values;
	int *node_value;                /* owned; node + 1 → value, [0] the data's */
	int *op_node;                   /* owned; the node whose output an op gives */
	int (*op_in)[LAYER_INPUTS_MAX]; /* owned; values */
	int *op_out;                    /* owned; value */
	struct plan_extent *extents;    /* owned */
	int n_extents;
	int *part; /* owned; [op × inputs + k]: the extent of a part that is summed, or -1 */
};

static int count_readers(const struct arch *a, int node)
{
	int n = 0;
	for (int i = 0; i < a->n_nodes; i++)
		for (int k = 0; k < a->nodes[i].n_in; k++)
			n += a->nodes[i].in[k] == node;
	return n;
}

/* Whether nobody but the one reader of node `from` reads its value, under whatever name: the nodes
 * before it with that value are copied, one by the next. */
static bool sole_reader(const struct builder *b, int from)
{
	for (int i = 0; i <= from; i++)
		if (b->node_value[i + 1] == b->node_value[from + 1] && count_readers(b->a, i) != 1)
			return false;
	return true;
}

static const struct shape *node_shape(const struct arch *a, int node)
{
	return node < 0 ? &a->input : &a->nodes[node].shape;
}

static int new_value(struct builder *b, size_t count, int writer)
{
	b->values[b->n_values] = (struct value){count, writer, 0, false, -1, -1};
	return b->n_values++;
}

static void add_op(struct builder *b, int i)
{
	const struct arch_node *n = &b->a->nodes[i];
	struct program *p = &b->net->program;
	struct op *op = &p->ops[p->n_ops];
	op->kind = n->layer.kind;
	op->layer = &n->layer;
	op->batch = p->batch;
	op->in_shape = *node_shape(b->a, n->in[0]);
	op->out_shape = n->shape;
	op->index = (uint32_t)i;
	int out = new_value(b, shape_count(&n->shape) * (size_t)p->batch, p->n_ops);
	struct value *y = &b->values[out];
	y->want_grad = n->n_param > 0;
	for (int k = 0; k < n->n_in; k++) {
		int in = b->node_value[n->in[k] + 1];
		b->op_in[p->n_ops][k] = in;
		b->values[in].readers++;
		y->want_grad = y->want_grad || b->values[in].want_grad;
	}
	b->op_node[p->n_ops] = i;
	b->op_out[p->n_ops] = out;
	b->node_value[i + 1] = out;
	p->n_ops++;
}

/* Nodes to ops: fuse ReLUs, drop ops that would only copy. */
static void build_ops(struct builder *b)
{
	const struct arch *a = b->a;
	struct program *p = &b->net->program;
	b->node_value[0] = new_value(b, shape_count(&a->input) * (size_t)p->batch, -1);
	for (int i = 0; i < a->n_nodes; i++) {
		const struct arch_node *n = &a->nodes[i];
		const struct layer_type *type = layer_types[n->layer.kind];
		int from = n->in[0], in = b->node_value[from + 1];
		int writer = b->values[in].writer;
		if (n->layer.kind == LAYER_RELU && writer >= 0 &&
		        layer_types[p->ops[writer].kind]->takes_relu && !p->ops[writer].relu &&
		        sole_reader(b, from)) {
			p->ops[writer].relu = true;
			b->node_value[i + 1] = in;
		} else if (type->is_copy && type->is_copy(&n->layer, node_shape(a, from))) {
			b->node_value[i + 1] = in;
		} else {
			add_op(b, i);
		}
	}
}

/* Decides which op applies the backward of a fused ReLU: the only reader, when it writes the
 * gradient, or else the op itself before it uses the gradient. */
static void place_masks(struct builder *b)
{
	struct program *p = &b->net->program;
	for (int i = 0; i < p->n_ops; i++)
		p->ops[i].mask_dy = p->ops[i].relu;
	for (int i = 0; i < p->n_ops; i++) {
		const struct value *x = &b->values[b->op_in[i][0]];
		if (!layer_types[p->ops[i].kind]->masks_input || x->writer < 0 || x->readers != 1)
			continue;
		struct op *writer = &p->ops[x->writer];
		if (writer->relu) {
			p->ops[i].mask_dx = true;
			writer->mask_dy = false;
		}
	}
}

static int extent(struct builder *b, size_t bytes, int from, int to)
{
	b->extents[b->n_extents] = (struct plan_extent){bytes, from, to, 0};
	return b->n_extents++;
}

static int backward_time(const struct program *p, int op)
{
	return 2 * p->n_ops - op;
}

static void plan_values(struct builder *b)
{
	struct program *p = &b->net->program;
	for (int v = 1; v < b->n_values; v++) {
		struct value *x = &b->values[v];
		int end = backward_time(p, x->writer), last = -1;
		x->place = extent(b, x->count * sizeof(float), x->writer, end);
		for (int i = 0; i < p->n_ops; i++)
			for (int k = 0; k < LAYER_INPUTS_MAX; k++)
				if (b->op_in[i][k] == v)
					last = i;
		int from = last < 0 ? p->n_ops : backward_time(p, last);
		if (x->want_grad)
			x->grad = extent(b, x->count * sizeof(float), from, end);
	}
	/* A reader that is not the first in backward order writes a part of its own. */
	for (int i = p->n_ops - 1; i >= 0; i--) {
		for (int k = 0; k < LAYER_INPUTS_MAX; k++) {
			int v = b->op_in[i][k];
			if (v < 0 || !b->values[v].want_grad)
				continue;
			if (b->values[v].readers < 0) /* seen before */
				b->part[i * LAYER_INPUTS_MAX + k] =
				        extent(b, b->values[v].count * sizeof(float),
				                backward_time(p, i), backward_time(p, i));
			b->values[v].readers = -1;
		}
	}
}

static float *at(const struct builder *b, int extent_index)
{
	return (float *)(void *)((char *)b->net->arena + b->extents[extent_index].offset);
}

/* Whether a later op, whose backward comes first, has that view too. */
static bool shared(const struct builder *b, int op, int view)
{
	for (int i = op + 1; i < b->net->program.n_ops; i++) {
		const struct arch_node *n = &b->a->nodes[b->op_node[i]];
		for (int k = 0; k < n->n_param; k++)
			if (n->param[k] == view)
				return true;
	}
	return false;
}

static void wire_op(struct builder *b, int i)
{
	struct graph *n = b->net;
	struct program *p = &n->program;
	struct op *op = &p->ops[i];
	const struct value *y = &b->values[b->op_out[i]];
	op->y = at(b, y->place);
	op->dy = y->grad < 0 ? NULL : at(b, y->grad);
	const struct arch_node *node = &b->a->nodes[b->op_node[i]];
	for (op->n_param = 0; op->n_param < node->n_param; op->n_param++) {
		const struct param_view *v = &b->a->views[node->param[op->n_param]];
		op->param[op->n_param] = (struct op_param){n->params + v->offset,
		        n->grads + v->offset, v->count, shared(b, i, node->param[op->n_param])};
	}
	for (int k = 0; k < LAYER_INPUTS_MAX; k++) {
		int v = b->op_in[i][k], part = b->part[i * LAYER_INPUTS_MAX + k];
		if (v < 0)
			continue;
		const struct value *x = &b->values[v];
		op->x[k] = v == 0 ? n->input : at(b, x->place);
		if (x->want_grad)
			op->dx[k] = at(b, part >= 0 ? part : x->grad);
	}
}

static void wire(struct builder *b)
{
	struct program *p = &b->net->program;
	for (int i = 0; i < p->n_ops; i++)
		wire_op(b, i);
	for (int i = p->n_ops - 1; i >= 0; i--) {
		if (!p->ops[i].dy)
			continue;
		p->backward[p->n_backward++].op = &p->ops[i];
		for (int k = 0; k < LAYER_INPUTS_MAX; k++) {
			if (b->part[i * LAYER_INPUTS_MAX + k] < 0)
				continue;
			const struct value *x = &b->values[b->op_in[i][k]];
			p->backward[p->n_backward++] = (struct backward_step){
			        NULL, at(b, x->grad), p->ops[i].dx[k], x->count};
		}
	}
	const struct value *last = &b->values[b->node_value[b->a->n_nodes]];
	p->logits = at(b, last->place);
	p->dlogits = at(b, last->grad);
}

static int builder_init(struct builder *b, const struct arch *a, struct graph *n)
{
	size_t nodes = (size_t)a->n_nodes;
	memset(b, 0, sizeof *b);
	b->a = a;
	b->net = n;
	b->values = calloc(nodes + 1, sizeof *b->values);
	b->node_value = calloc(nodes + 1, sizeof *b->node_value);
	b->op_node = calloc(nodes, sizeof *b->op_node);
	b->op_in = calloc(nodes, sizeof *b->op_in);
	b->op_out = calloc(nodes, sizeof *b->op_out);
	b->part = calloc(nodes * LAYER_INPUTS_MAX, sizeof *b->part);
	b->extents = calloc(nodes * (2 + LAYER_INPUTS_MAX), sizeof *b->extents);
	n->program.ops = calloc(nodes, sizeof *n->program.ops);
	n->program.backward = calloc(nodes * (1 + LAYER_INPUTS_MAX), sizeof *n->program.backward);
	if (!b->values || !b->node_value || !b->op_node || !b->op_in || !b->op_out || !b->part ||
	        !b->extents || !n->program.ops || !n->program.backward)
		return ERR_NOMEM;
	for (size_t i = 0; i < nodes * LAYER_INPUTS_MAX; i++) {
		b->op_in[i / LAYER_INPUTS_MAX][i % LAYER_INPUTS_MAX] = -1;
		b->part[i] = -1;
	}
	return 0;
}

static void builder_close(struct builder *b)
{
	free(b->values);
	free(b->node_value);
	free(b->op_node);
	free(b->op_in);
	free(b->op_out);
	free(b->part);
	free(b->extents);
}

static void *device_alloc(struct graph *n, size_t bytes)
{
	return n->dev->backend->alloc(n->dev, bytes);
}

/* Reserves memory for all pieces, if the device can; the first two do not depend on the batch. */
static int reserve(struct graph *n, const size_t *bytes, int n_bytes, struct err *e)
{
	const int64_t batch = n->program.batch;
	struct device_room r;
	if (!n->dev->backend->reserve)
		return 0;
	int rc = n->dev->backend->reserve(n->dev, &n->program, bytes, n_bytes, &r, e);
	if (rc != ERR_NOMEM)
		return rc;
	const double fixed = (double)(bytes[0] + bytes[1] + r.fixed);
	const int64_t fits =
	        (int64_t)((double)batch * ((double)r.left - fixed) / ((double)r.wanted - fixed));
	struct err why = *e;
	if (fits < 1)
		return err_set(
		        e, rc, "%s, which is too little for any batch of this model", why.msg);
	return err_set(e, rc, "%s, too little for batches of %lld; try about %lld", why.msg,
	        (long long)batch, (long long)fits);
}

static int take_memory(struct graph *n, size_t arena_bytes, struct err *e)
{
	size_t batch = (size_t)n->program.batch, flat = n->arch->n_total * sizeof(float);
	const size_t bytes[] = {flat, flat, shape_count(&n->arch->input) * batch * sizeof(float),
	        batch * (size_t)n->arch->positions * sizeof(int32_t), arena_bytes};
	int failed = reserve(n, bytes, 5, e);
	if (failed)
		return failed;
	n->params = device_alloc(n, bytes[0]);
	n->grads = device_alloc(n, bytes[1]);
	n->input = device_alloc(n, bytes[2]);
	n->labels = device_alloc(n, bytes[3]);
	n->arena = device_alloc(n, bytes[4]);
	n->stats = calloc(3 * (n->arch->n_total - n->arch->n_train) + 1, sizeof *n->stats);
	if (!n->params || !n->grads || !n->input || !n->labels || !n->arena || !n->stats) {
		int rc = graph_check(n, e); /* the device may have failed */
		if (rc)
			return rc;
		return err_set(e, ERR_NOMEM,
		        "no memory for the model: %zu MB of parameters and gradients, %zu MB of "
		        "activations at batch %zu; try a smaller batch",
		        2 * flat >> 20, arena_bytes >> 20, batch);
	}
	n->program.input = n->input;
	n->program.labels = n->labels;
	return 0;
}

int graph_new(
        struct graph **out, const struct arch *a, struct device *d, int64_t batch, struct err *e)
{
	struct builder b;
	int rc = ERR_NOMEM;
	*out = NULL;
	if (batch < 1 || batch > LIMIT_BATCH)
		return err_set(e, ERR_LIMIT, "a batch of 1 to %d samples, not %lld", LIMIT_BATCH,
		        (long long)batch);
	struct graph *n = calloc(1, sizeof *n);
	if (!n)
		return err_set(e, ERR_NOMEM, "no memory for a model");
	n->arch = a;
	n->dev = d;
	n->program.batch = batch;
	n->program.classes = a->classes;
	n->program.positions = a->positions;
	n->program.n_params = a->n_total;
	n->program.shape = a->input;
	if (builder_init(&b, a, n) != 0) {
		err_set(e, rc, "no memory to plan %d layers", a->n_nodes);
		goto out;
	}
	build_ops(&b);
	for (int v = 0; v < b.n_values; v++) {
		if (b.values[v].count > LIMIT_ACTIVATION_BYTES / sizeof(float)) {
			rc = err_set(e, ERR_LIMIT,
			        "one layer's output is over %llu MB; try a smaller batch",
			        LIMIT_ACTIVATION_BYTES >> 20);
			goto out;
		}
	}
	place_masks(&b);
	plan_values(&b);
	unsigned long long bytes = plan_arena(b.extents, b.n_extents);
	if (bytes > LIMIT_ACTIVATION_BYTES) {
		rc = err_set(
		        e, ERR_LIMIT, "activations of %llu MB; try a smaller batch", bytes >> 20);
		goto out;
	}
	if ((rc = take_memory(n, (size_t)bytes, e)) != 0)
		goto out;
	wire(&b);
	rc = d->backend->prepare(d, &n->program, e);
out:
	builder_close(&b);
	if (rc) {
		n->program.n_ops = 0; /* prepare has undone what it did */
		graph_free(n);
		return rc;
	}
	*out = n;
	return 0;
}

void graph_free(struct graph *n)
{
	if (!n)
		return;
	const struct backend *k = n->dev->backend;
	if (n->program.n_ops > 0)
		k->unprepare(n->dev, &n->program);
	k->release(n->dev, n->arena);
	k->release(n->dev, n->labels);
	k->release(n->dev, n->input);
	k->release(n->dev, n->grads);
	k->release(n->dev, n->params);
	free(n->stats);
	free(n->program.ops);
	free(n->program.backward);
	free(n);
}

void graph_set_params(struct graph *n, const float *values)
{
	n->dev->backend->upload(n->dev, n->params, values, n->arch->n_total * sizeof(float));
}

void graph_get_params(struct graph *n, float *values)
{
	n->dev->backend->download(n->dev, values, n->params, n->arch->n_total * sizeof(float));
}

int graph_check(struct graph *n, struct err *e)
{
	const struct backend *k = n->dev->backend;
	return k->settle ? k->settle(n->dev, e) : 0;
}

static struct device_images images_of(const struct batch *b)
{
	return (struct device_images){.shape = b->shape,
	        .pixels = b->pixels,
	        .moves = b->moves,
	        .table = b->table,
	        .labels = b->labels,
	        .count = b->count};
}

static int load_batch(struct graph *n, const struct batch *b, struct err *e)
{
	assert(b->count <= n->program.batch && shape_equal(&b->shape, &n->arch->input));
	assert(!b->tokens == !n->arch->tokens);
	if (!b->pixels) {
		const size_t c = (size_t)b->count, of = (size_t)n->arch->positions;
		const struct backend *k = n->dev->backend;
		const void *x = b->tokens ? (const void *)b->tokens : b->x;
		k->upload(n->dev, n->input, x, shape_count(&b->shape) * c * sizeof *b->x);
		k->upload(n->dev, n->labels, b->labels, c * of * sizeof *b->labels);
		return 0;
	}
	const struct device_images images = images_of(b);
	return n->dev->backend->images(n->dev, &n->program, &images, e);
}

int graph_wait(struct graph *n, struct err *e)
{
	const struct backend *k = n->dev->backend;
	return k->loss_wait ? k->loss_wait(n->dev, e) : 0;
}

int graph_forward(struct graph *n, const struct batch *b, uint64_t dropout_seed, struct err *e)
{
	assert(b->count == n->program.batch);
	n->program.train = true;
	n->program.dropout_seed = dropout_seed;
	int rc = load_batch(n, b, e);
	return rc ? rc : n->dev->backend->forward(n->dev, &n->program, e);
}

static int train_begin(struct graph *n, const struct batch *b, int64_t count, bool accumulate,
        float scale, uint64_t dropout_seed, struct loss_result *r, struct err *e)
{
	const struct backend *k = n->dev->backend;
	struct program *p = &n->program;
	assert(count <= p->batch);
	for (int i = 0; i < p->n_ops; i++)
		p->ops[i].accumulate = accumulate;
	int rc = graph_forward(n, b, dropout_seed, e);
	if (rc == 0)
		rc = k->loss(n->dev, p, count, scale, r, e);
	return rc ? rc : k->backward(n->dev, p, e);
}

int graph_train_begin(struct graph *n, const struct batch *b, bool accumulate, float scale,
        uint64_t dropout_seed, struct loss_result *r, struct err *e)
{
	return train_begin(n, b, b->count, accumulate, scale, dropout_seed, r, e);
}

int graph_train_part(struct graph *n, const struct batch *b, int64_t count, float scale,
        uint64_t dropout_seed, struct loss_result *r, struct err *e)
{
	stats_keep(n);
	int rc = train_begin(n, b, count, false, scale, dropout_seed, r, e);
	stats_put_back(n);
	return rc;
}

int graph_eval_begin(struct graph *n, const struct batch *b, struct loss_result *r, struct err *e)
{
	const struct backend *k = n->dev->backend;
	n->program.train = false;
	int rc = load_batch(n, b, e);
	if (rc == 0)
		rc = k->forward(n->dev, &n->program, e);
	return rc ? rc : k->loss(n->dev, &n->program, b->count, 0, r, e);
}

int graph_ahead(struct graph *n, const struct batch *next, struct err *e)
{
	if (!next || !next->pixels)
		return 0;
	const struct device_images images = images_of(next);
	return n->dev->backend->images_ahead(n->dev, &images, e);
}

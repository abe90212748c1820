/* SPDX-License-Identifier: MIT */
/* The cpu backend. Every worker of the pool walks the whole program, doing its part of each op, and
 * they meet only where an op needs what the others wrote:
 *
 *     worker 0   conv ─ pool ─ conv ─ pool ─ flatten ─╫─ dense ─╫─ dense ─╫─ loss …
 *     worker 1   conv ─ pool ─ conv ─ pool ─ flatten ─╫─ dense ─╫─ dense ─╫─ loss …
 *                samples 0..31 | 32..63                   features
 *
 * So a small step costs a handful of barriers, and each worker's activations stay in its own cache.
 * oneDNN and OpenBLAS are called on one thread each, from all workers at once.
 *
 * Sums over workers are taken in their order: the same number of threads gives the same bits. */
#include "model/cpu/cpu.h"

#include "agent/base/cores.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* From OpenMP, which oneDNN is built with: the team below the calling thread. Declared here since
 * clang has no omp.h of its own on Debian. */
void omp_set_num_threads(int n);

extern const struct backend backend_cpu;

/* Treat denormal numbers (below 1e-38) as 0 while we compute: they are up to a hundred times as
 * slow, and the gradients of a network that has learnt its batch are full of them. */
static unsigned flush_tiny(void)
{
#if defined(__x86_64__)
	unsigned before = __builtin_ia32_stmxcsr();
	__builtin_ia32_ldmxcsr(before | 0x8040); /* flush to zero, denormals are zero */
	return before;
#else
	return 0;
#endif
}

static void restore_tiny(unsigned before)
{
#if defined(__x86_64__)
	__builtin_ia32_ldmxcsr(before);
#else
	(void)before;
#endif
}

static struct cpu_device *cpu(struct device *d)
{
	return (struct cpu_device *)(void *)d;
}

static const struct cpu_kernels *best_kernels(void)
{
#ifdef HAVE_X86_KERNELS
	if (cores_level() > 0)
		return cores_level() == 4 ? &cpu_kernels_v4 : &cpu_kernels_v3;
#endif
	return &cpu_kernels_base;
}

/* Tries what oneDNN does with the code that it generates: memory is written, then made executable.
 * systemd's MemoryDenyWriteExecute=, SELinux and some containers refuse that. */
static bool can_generate(void)
{
	size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return true; /* no memory: a later allocation will report it */
	bool can = mprotect(p, bytes, PROT_READ | PROT_WRITE | PROT_EXEC) == 0;
	munmap(p, bytes);
	return can;
}

static void describe(struct cpu_device *d)
{
	const dnnl_version_t *v = dnnl_version();
	char library[48] = "OpenBLAS: no executable memory";
	if (d->generates)
		snprintf(library, sizeof library, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
	snprintf(d->base.text, sizeof d->base.text, "cpu (%s, %s loops, %d thread%s)", library,
	        d->k->name, d->threads, d->threads == 1 ? "" : "s");
}

static void cpu_close(struct device *dev)
{
	struct cpu_device *d = cpu(dev);
	if (d->stream)
		for (int i = 0; i < d->threads; i++)
			if (d->stream[i])
				dnnl_stream_destroy(d->stream[i]);
	if (d->engine)
		dnnl_engine_destroy(d->engine);
	free(d->stream);
	free(d->partial);
	free(d->scratch);
	gemm_close(&d->gemm);
	pool_free(d->pool);
	free(d);
}

static int cpu_open(struct device **out, const struct device_config *c, struct err *e)
{
	int rc;
	struct cpu_device *d = calloc(1, sizeof *d);
	*out = NULL;
	if (!d)
		return err_set(e, ERR_NOMEM, "no memory for a device");
	d->threads = c->threads > 0 ? c->threads : cores_usable().n;
	d->k = best_kernels();
	omp_set_num_threads(1);
	if ((rc = pool_new(&d->pool, d->threads, e)) != 0)
		goto out;
	size_t t = (size_t)d->threads;
	d->stream = calloc(t, sizeof(dnnl_stream_t));
	d->partial = aligned_alloc(64, t * PARTIAL_STRIDE * sizeof(double));
	d->generates = can_generate();
	rc = gemm_init(&d->gemm, c->deterministic, d->generates, d->threads);
	if (rc == ERR_UNSUPPORTED) {
		rc = err_set(e, ERR_DEVICE, CPU_NO_CODE ", or use --threads 1");
		goto out;
	}
	if (!d->stream || !d->partial || rc) {
		rc = err_set(e, ERR_NOMEM, "no memory for a device");
		goto out;
	}
	dnnl_status_t s = dnnl_engine_create(&d->engine, dnnl_cpu, 0);
	for (size_t i = 0; i < t && s == dnnl_success; i++)
		s = dnnl_stream_create(&d->stream[i], d->engine, dnnl_stream_default_flags);
	if (s != dnnl_success) {
		rc = err_set(e, ERR_DEVICE, "oneDNN cannot start (status %d)", (int)s);
		goto out;
	}
	describe(d);
	d->base.backend = &backend_cpu;
	*out = &d->base;
	return 0;
out:
	cpu_close(&d->base);
	return rc;
}

static void *cpu_alloc(struct device *dev, size_t bytes)
{
	(void)dev;
	size_t n = bytes ? (bytes + 63) / 64 * 64 : 64;
	void *p = aligned_alloc(64, n);
	if (p)
		memset(p, 0, n);
	return p;
}

static void cpu_release(struct device *dev, void *p)
{
	(void)dev;
	free(p);
}

static void cpu_copy(struct device *dev, void *to, const void *from, size_t bytes)
{
	(void)dev;
	memcpy(to, from, bytes);
}

#define X(KIND, name) [LAYER_##KIND] = &cpu_op_##name,
static const struct cpu_op *const ops[LAYER_KINDS] = {LAYER_LIST(X)};
#undef X

static void cpu_unprepare(struct device *dev, struct program *p)
{
	(void)dev;
	for (int i = 0; i < p->n_ops; i++) {
		struct op *op = &p->ops[i];
		if (ops[op->kind]->unprepare)
			ops[op->kind]->unprepare(op);
		free(op->state);
		op->state = NULL;
	}
}

static int cpu_prepare(struct device *dev, struct program *p, struct err *e)
{
	omp_set_num_threads(1);
	for (int i = 0; i < p->n_ops; i++) {
		struct op *op = &p->ops[i];
		const struct cpu_op *k = ops[op->kind];
		int rc = k->prepare ? k->prepare(cpu(dev), op, e) : 0;
		if (rc) {
			cpu_unprepare(dev, p);
			return rc;
		}
	}
	return 0;
}

int cpu_scratch(struct cpu_device *d, size_t floats)
{
	floats = (floats + 15) / 16 * 16; /* whole cache lines for each worker */
	if (floats <= d->scratch_floats)
		return 0;
	float *p = aligned_alloc(64, (size_t)d->threads * floats * sizeof *p);
	if (!p)
		return ERR_NOMEM;
	free(d->scratch);
	d->scratch = p;
	d->scratch_floats = floats;
	return 0;
}

void cpu_reduce(struct cpu_device *d, struct op *op, const float *const *part, int w)
{
	size_t first = 0;
	for (int k = 0; k < op->n_param; first += op->param[k++].count) {
		float *dst = op->param[k].grad;
		size_t from, to;
		pool_part(op->param[k].count, 16, w, d->threads, &from, &to);
		if (from == to)
			continue;
		if (!op->accumulate)
			memset(dst + from, 0, (to - from) * sizeof *dst);
		for (int i = 0; i < d->threads; i++)
			if (part[i])
				d->k->sum_into(dst + from, part[i] + first + from, to - from);
	}
}

struct job {
	struct cpu_device *d;
	pool_fn fn;
	struct program *p;
	int64_t count; /* loss: labels that are counted */
	float scale;   /* loss, add */
	/* flat vectors */
	float *w, *m, *v;
	const float *g;
	size_t n;
	const struct optim_args *args;
};

static void forward_part(void *arg, int w)
{
	struct job *j = arg;
	struct cpu_device *d = j->d;
	struct program *p = j->p;
	bool packed = false, by_sample = true;
	for (int i = 0; i < p->n_ops; i++)
		if (ops[p->ops[i].kind]->pack) {
			ops[p->ops[i].kind]->pack(d, &p->ops[i], w, p->train);
			packed = true;
		}
	if (packed)
		pool_barrier(d->pool);
	for (int i = 0; i < p->n_ops; i++) {
		struct op *op = &p->ops[i];
		const struct cpu_op *k = ops[op->kind];
		if (!by_sample || !k->by_sample)
			pool_barrier(d->pool);
		by_sample = k->by_sample;
		k->forward(d, p, op, w);
	}
}

static void backward_part(void *arg, int w)
{
	struct job *j = arg;
	struct cpu_device *d = j->d;
	struct program *p = j->p;
	for (int i = 0; i < p->n_backward; i++) {
		struct backward_step *s = &p->backward[i];
		struct op *op = s->op;
		/* Always: a gradient may reuse the memory of an op that another worker has not
		 * finished yet. */
		if (i > 0)
			pool_barrier(d->pool);
		if (!op) { /* a sum, split over the workers by samples */
			size_t from, to, one = s->count / (size_t)p->batch;
			cpu_samples(d, p->batch, w, &from, &to);
			d->k->sum_into(
			        s->sum + from * one, s->part + from * one, (to - from) * one);
			continue;
		}
		ops[op->kind]->backward(d, p, op, w);
	}
	pool_barrier(d->pool);
	for (int i = 0; i < p->n_ops; i++)
		if (ops[p->ops[i].kind]->reduce)
			ops[p->ops[i].kind]->reduce(d, &p->ops[i], w);
}

static void loss_part(void *arg, int w)
{
	struct job *j = arg;
	struct program *p = j->p;
	size_t c = (size_t)p->classes, from, to;
	double loss = 0, correct = 0;
	cpu_samples(j->d, p->batch, w, &from, &to);
	from *= (size_t)p->positions;
	to *= (size_t)p->positions;
	for (size_t i = from; i < to; i++) {
		float *dz = p->train ? p->dlogits + i * c : NULL;
		bool right = false;
		if (i < (size_t)j->count) {
			loss += j->d->k->softmax_loss(
			        p->logits + i * c, c, p->labels[i], dz, j->scale, &right);
			correct += right;
		} else if (dz) {
			memset(dz, 0, c * sizeof *dz);
		}
	}
	j->d->partial[w * PARTIAL_STRIDE] = loss;
	j->d->partial[w * PARTIAL_STRIDE + 1] = correct;
}

static void squares_part(void *arg, int w)
{
	struct job *j = arg;
	size_t from, to;
	pool_part(j->n, 1024, w, j->d->threads, &from, &to);
	j->d->partial[w * PARTIAL_STRIDE] = j->d->k->sum_squares(j->g + from, to - from);
}

static void update_part(void *arg, int w)
{
	struct job *j = arg;
	const struct cpu_kernels *k = j->d->k;
	size_t from, to;
	pool_part(j->n, 1024, w, j->d->threads, &from, &to);
	if (j->v)
		k->adamw(j->w + from, j->m + from, j->v + from, j->g + from, to - from, j->args);
	else
		k->sgd(j->w + from, j->m + from, j->g + from, to - from, j->args);
}

static void add_part(void *arg, int w)
{
	struct job *j = arg;
	size_t from, to;
	pool_part(j->n, 1024, w, j->d->threads, &from, &to);
	j->d->k->add_scaled(j->w + from, j->g + from, to - from, j->scale);
}

/* Each worker starts a job here: the libraries must not start threads of their own. */
static void part(void *arg, int w)
{
	unsigned before = flush_tiny();
	omp_set_num_threads(1);
	((struct job *)arg)->fn(arg, w);
	restore_tiny(before);
}

static int run(struct cpu_device *d, pool_fn fn, struct job *j, struct err *e)
{
	j->d = d;
	j->fn = fn;
	d->failed = 0;
	pool_run(d->pool, part, j);
	return d->failed ? err_set(e, ERR_DEVICE, "oneDNN failed inside a step") : 0;
}

static int cpu_forward(struct device *dev, struct program *p, struct err *e)
{
	return run(cpu(dev), forward_part, &(struct job){.p = p}, e);
}

static int cpu_backward(struct device *dev, struct program *p, struct err *e)
{
	return run(cpu(dev), backward_part, &(struct job){.p = p}, e);
}

static int cpu_loss(struct device *dev, struct program *p, int64_t count, float scale,
        struct loss_result *r, struct err *e)
{
	struct cpu_device *d = cpu(dev);
	count *= p->positions;
	scale /= (float)p->positions;
	int rc = run(d, loss_part, &(struct job){.p = p, .count = count, .scale = scale}, e);
	*r = (struct loss_result){.count = count};
	for (int w = 0; w < d->threads; w++) {
		r->loss_sum += d->partial[w * PARTIAL_STRIDE];
		r->correct += (int64_t)d->partial[w * PARTIAL_STRIDE + 1];
	}
	return rc;
}

static int cpu_sum_squares(struct device *dev, const float *x, size_t n, double *out, struct err *e)
{
	struct cpu_device *d = cpu(dev);
	int rc = run(d, squares_part, &(struct job){.g = x, .n = n}, e);
	*out = 0;
	for (int w = 0; w < d->threads; w++)
		*out += d->partial[w * PARTIAL_STRIDE];
	return rc;
}

static int cpu_sgd(struct device *dev, float *w, float *m, const float *g, size_t n,
        const struct optim_args *a, struct err *e)
{
	struct job j = {.w = w, .m = m, .g = g, .n = n, .args = a};
	return run(cpu(dev), update_part, &j, e);
}

static int cpu_adamw(struct device *dev, float *w, float *m, float *v, const float *g, size_t n,
        const struct optim_args *a, struct err *e)
{
	struct job j = {.w = w, .m = m, .v = v, .g = g, .n = n, .args = a};
	return run(cpu(dev), update_part, &j, e);
}

static int cpu_add(
        struct device *dev, float *x, const float *host, size_t n, float k, struct err *e)
{
	struct job j = {.w = x, .g = host, .n = n, .scale = k};
	return run(cpu(dev), add_part, &j, e);
}

static const char *cpu_choices(struct device *dev)
{
	return gemm_print(&cpu(dev)->gemm);
}

static int cpu_choose(struct device *dev, const char *choices, struct err *e)
{
	return gemm_parse(&cpu(dev)->gemm, choices, e);
}

const struct backend backend_cpu = {
        .abi = BACKEND_ABI,
        .name = "cpu",
        .open = cpu_open,
        .close = cpu_close,
        .alloc = cpu_alloc,
        .release = cpu_release,
        .upload = cpu_copy,
        .download = cpu_copy,
        .prepare = cpu_prepare,
        .unprepare = cpu_unprepare,
        .forward = cpu_forward,
        .loss = cpu_loss,
        .backward = cpu_backward,
        .sum_squares = cpu_sum_squares,
        .sgd = cpu_sgd,
        .adamw = cpu_adamw,
        .add = cpu_add,
        .choices = cpu_choices,
        .choose = cpu_choose,
};

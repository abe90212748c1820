/* SPDX-License-Identifier: MIT */
/* Batches, prepared by a thread ahead of the trainer. The thread fills a ring of ahead + 1 batches:
 * one is in the trainer's hands, the others wait or are being filled.
 *
 *     taken − 1          taken                made
 *     ┌──────────┬────────┬──────┬─────────────┬───────┐
 *     │ consumer │ ready  │ ready│ being filled│ free  │   slot = counter mod slots
 *     └──────────┴────────┴──────┴─────────────┴───────┘
 *
 * Every batch remembers the position that follows it, so the loader's position is always the
 * consumer's: what was prepared but never taken does not count, and a loader that is started at a
 * saved position gives the same bytes as one that never stopped. That rests on order and
 * augmentation being functions of (seed, epoch, place) alone.
 *
 * If the device converts images itself, a batch is bytes and moves, and the thread only gathers
 * them. The device reads the slots by itself while it computes. Only the consumer knows when it has
 * finished with one: it calls loader_next, which returns the last batch to be filled again, after
 * it has the result of the step on that batch (see graph.h).
 *
 * A mutex and two conditions are enough: they are touched once a batch, not once a sample. All
 * memory is taken in loader_new, in one block; after it nothing can fail but reading tokens from
 * files, which ends the batches. */
#include "agent/base/thread.h"
#include "model/data/augment.h"
#include "model/data/tokens.h"
#include "model/device/device.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum loader_stream { STREAM_ORDER = 11, STREAM_AUGMENT, STREAM_WINDOW };

struct slot {
	struct batch batch; /* its arrays are parts of the loader's memory */
	struct loader_position after;
	bool end; /* no batch: the data ended before it, or */
	int rc;   /* they cannot be read */
	struct err why;
};

struct loader {
	struct loader_config c;
	void *memory;   /* owned: the table, and what the slots hold */
	float *table;   /* (norm.n, 256): the value of each byte */
	float *scratch; /* a sample before it is moved, if there are several tables */
	uint8_t *window; /* a sample of tokens as it is in the file */
	float *zeros;   /* (C): floats have this outside the image */
	float outside[LIMIT_NORM_CHANNELS]; /* the value of each channel outside the image */
	size_t sample_count;                /* values in one sample */
	struct slot *slots;                 /* owned */
	int n_slots;
	bool augmented;
	bool bytes; /* the device converts the images; memory is of host_alloc */

	/* The producer's alone, while it fills. */
	uint32_t *order; /* owned; with shuffle the order of order_epoch */
	uint64_t order_epoch;
	struct loader_position next; /* of the next batch to fill */
	bool ended;

	struct loader_position at; /* the consumer's */
	const struct slot *last;   /* the consumer's: what loader_next found */

	/* Shared, under the mutex. */
	pthread_mutex_t mutex;
	pthread_cond_t filled, freed;
	uint64_t made, taken; /* batches, since the start or the last rewind */
	bool holding;         /* the consumer still uses batch taken - 1 */
	bool rewind, stop;
	bool threaded;
	pthread_t thread;
};

static void shuffle_epoch(struct loader *l, uint64_t epoch)
{
	struct rng r;
	memcpy(l->order, l->c.index, l->c.n_index * sizeof *l->order);
	rng_seed(&r, rng_mix(l->c.seed, epoch, 0), STREAM_ORDER);
	rng_shuffle(&r, l->order, l->c.n_index);
	l->order_epoch = epoch;
}

/* A sample of bytes whose channels have tables of their own: converted, then moved. */
static void convert_channels(
        struct loader *l, const struct augment_move *move, const uint8_t *src, float *dst)
{
	const size_t n = (size_t)l->c.norm.n;
	const bool moved = move->flip || move->dx || move->dy || move->zoom != 1;
	float *to = moved ? l->scratch : dst;
	for (size_t i = 0; i < l->sample_count; i += n)
		for (size_t c = 0; c < n; c++)
			to[i + c] = l->table[256 * c + src[i + c]];
	if (moved)
		augment_apply_floats(move, &l->c.data->shape, l->outside, to, dst);
}

/* How far the windows of an epoch are moved. */
static uint64_t window_shift(const struct loader *l, uint64_t epoch)
{
	if (!l->c.shuffle)
		return 0;
	return rng_mix(l->c.window_seed, epoch, STREAM_WINDOW) % (uint64_t)l->c.data->context;
}

static int fill_window(struct loader *l, uint32_t sample, struct batch *b, size_t k, struct err *e)
{
	const size_t n = l->sample_count;
	return tokens_read(l->c.data, sample, window_shift(l, l->next.epoch), l->window,
	        b->tokens + k * n, b->labels + k * n, e);
}

/* Into place k of a batch. */
static void fill_sample(struct loader *l, uint32_t sample, struct batch *b, size_t k)
{
	const struct dataset *d = l->c.data;
	const uint8_t *src = d->pixels ? d->pixels + sample * l->sample_count : NULL;
	struct augment_move move = {.zoom = 1};
	if (l->augmented) {
		struct rng r;
		rng_seed(&r, rng_mix(l->c.seed, l->next.epoch, l->next.sample), STREAM_AUGMENT);
		augment_draw(&l->c.augment, &r, &move);
	}
	b->labels[k] = d->labels[sample];
	if (d->values) {
		augment_apply_floats(&move, &d->shape, l->zeros,
		        d->values + sample * l->sample_count, b->x + k * l->sample_count);
		return;
	}
	if (l->c.norm.n > 1) {
		convert_channels(l, &move, src, b->x + k * l->sample_count);
		return;
	}
	if (!l->bytes) {
		augment_apply(&move, &d->shape, l->table, src, b->x + k * l->sample_count);
		return;
	}
	memcpy(b->pixels + k * l->sample_count, src, l->sample_count);
	if (l->augmented)
		b->moves[k] = move;
}

/* Shuffled samples lie anywhere in memory, and waiting for them costs more than the conversion. So
 * the next one is prefetched while this one is converted. */
static void prefetch_sample(const struct loader *l, const uint32_t *order)
{
	if (l->next.sample + 1 == l->c.n_index || !l->c.data->pixels)
		return;
	const uint8_t *p = l->c.data->pixels + order[l->next.sample + 1] * l->sample_count;
	for (size_t i = 0; i < l->sample_count; i += 64)
		__builtin_prefetch(p + i);
}

/* Fills one slot from l->next and moves it on. */
static void fill_slot(struct loader *l, struct slot *s)
{
	struct batch *b = &s->batch;
	const uint32_t *order = l->c.shuffle ? l->order : l->c.index;
	b->count = 0;
	b->epoch = l->next.epoch;
	s->end = l->ended;
	if (!l->ended)
		s->rc = 0;
	while (b->count < l->c.batch && !l->ended) {
		if (l->c.shuffle && l->order_epoch != l->next.epoch)
			shuffle_epoch(l, l->next.epoch);
		uint32_t sample = order[l->next.sample];
		prefetch_sample(l, order);
		if (l->c.data->tokens)
			s->rc = fill_window(l, sample, b, (size_t)b->count, &s->why);
		else
			fill_sample(l, sample, b, (size_t)b->count);
		b->count++;
		if (s->rc) { /* nothing comes after it, as after the end */
			s->end = l->ended = true;
			break;
		}
		if (++l->next.sample == l->c.n_index) {
			l->next = (struct loader_position){.epoch = l->next.epoch + 1};
			l->ended = !l->c.shuffle;
		}
	}
	s->after = l->next;
}

static void restart(struct loader *l)
{
	l->next = (struct loader_position){0};
	l->ended = false;
	l->made = l->taken = 0;
	l->holding = false;
}

/* Whether the producer has a slot to fill. After the end it fills one empty slot and rests. */
static bool has_room(const struct loader *l)
{
	uint64_t used = l->made - l->taken + (l->holding ? 1 : 0);
	if (used == (uint64_t)l->n_slots)
		return false;
	return l->made == 0 || !l->slots[(l->made - 1) % (uint64_t)l->n_slots].end;
}

static void *produce(void *arg)
{
	struct loader *l = arg;
	pthread_mutex_lock(&l->mutex);
	while (!l->stop) {
		if (l->rewind) {
			restart(l);
			l->rewind = false;
			pthread_cond_signal(&l->filled);
		} else if (has_room(l)) {
			struct slot *s = &l->slots[l->made % (uint64_t)l->n_slots];
			pthread_mutex_unlock(&l->mutex);
			fill_slot(l, s);
			pthread_mutex_lock(&l->mutex);
			l->made++;
			pthread_cond_signal(&l->filled);
		} else {
			pthread_cond_wait(&l->freed, &l->mutex);
		}
	}
	pthread_mutex_unlock(&l->mutex);
	return NULL;
}

/* The slot of the next batch, once it is there. */
static struct slot *take_threaded(struct loader *l)
{
	pthread_mutex_lock(&l->mutex);
	if (l->holding) {
		l->holding = false;
		pthread_cond_signal(&l->freed);
	}
	while (l->made == l->taken)
		pthread_cond_wait(&l->filled, &l->mutex);
	struct slot *s = &l->slots[l->taken % (uint64_t)l->n_slots];
	if (!s->end) { /* the end stays, for the next call */
		l->taken++;
		l->holding = true;
	}
	pthread_mutex_unlock(&l->mutex);
	return s;
}

const struct batch *loader_next(struct loader *l)
{
	struct slot *s = l->slots;
	if (l->threaded)
		s = take_threaded(l);
	else
		fill_slot(l, s);
	l->last = s;
	if (s->end)
		return NULL;
	l->at = s->after;
	return &s->batch;
}

int loader_failed(const struct loader *l, struct err *e)
{
	if (!l->last || !l->last->end || !l->last->rc)
		return 0;
	*e = l->last->why;
	return l->last->rc;
}

const struct batch *loader_peek(struct loader *l)
{
	const struct slot *s = &l->slots[l->taken % (uint64_t)l->n_slots];
	if (!l->threaded)
		return NULL;
	pthread_mutex_lock(&l->mutex);
	bool ready = l->made > l->taken && !s->end;
	pthread_mutex_unlock(&l->mutex);
	return ready ? &s->batch : NULL;
}

struct loader_position loader_position(const struct loader *l)
{
	return l->at;
}

void loader_rewind(struct loader *l)
{
	assert(!l->c.shuffle);
	l->at = (struct loader_position){0};
	if (!l->threaded) {
		restart(l);
		return;
	}
	/* The producer may be in the middle of a batch; it starts over when that one is done. */
	pthread_mutex_lock(&l->mutex);
	l->rewind = true;
	pthread_cond_signal(&l->freed);
	while (l->rewind)
		pthread_cond_wait(&l->filled, &l->mutex);
	pthread_mutex_unlock(&l->mutex);
}

static int check_norm(const struct loader_config *c, struct err *e)
{
	const struct normalisation *n = &c->norm;
	if (c->data->tokens)
		return 0;
	if (n->n != 1 && n->n != c->data->shape.dim[2])
		return err_set(e, ERR_MISMATCH,
		        "normalised for %d channels, but the samples have %lld", n->n,
		        (long long)c->data->shape.dim[2]);
	for (int i = 0; i < n->n; i++)
		if (!(n->std[i] > 0 && isfinite(n->std[i]) && isfinite(n->mean[i])))
			return err_set(e, ERR_INVALID, "normalising by mean %g and deviation %g",
			        n->mean[i], n->std[i]);
	if (c->data->values && (n->n != 1 || n->mean[0] != 0 || n->std[0] != 1))
		return err_set(e, ERR_MISMATCH,
		        "the model was trained on images of bytes (mean %.4g), but these samples "
		        "are floats, which are taken as they are",
		        n->mean[0]);
	return 0;
}

static int check(const struct loader_config *c, struct loader_position at, struct err *e)
{
	if (c->n_index == 0)
		return err_set(e, ERR_INVALID, "no samples to load");
	if (c->batch < 1 || c->batch > LIMIT_BATCH)
		return err_set(e, ERR_INVALID, "batch of %lld samples, expected 1 to %d",
		        (long long)c->batch, LIMIT_BATCH);
	if (c->ahead < 0 || c->ahead > LIMIT_READ_AHEAD)
		return err_set(e, ERR_INVALID, "%d batches ahead, expected 0 to %d", c->ahead,
		        LIMIT_READ_AHEAD);
	int rc = check_norm(c, e);
	if (rc)
		return rc;
	if (at.sample >= c->n_index)
		return err_set(e, ERR_MISMATCH,
		        "the position to go on from is sample %llu, but there are %u: the data is "
		        "not "
		        "what it was",
		        (unsigned long long)at.sample, c->n_index);
	for (uint32_t i = 0; i < c->n_index; i++)
		if (c->index[i] >= c->data->count)
			return err_set(e, ERR_INVALID, "sample %u of a set of %u", c->index[i],
			        c->data->count);
	if (!c->data->tokens)
		return augment_check(&c->augment, &c->data->shape, e);
	if (c->augment.flip || c->augment.shift || c->augment.scale > 0)
		return err_set(e, ERR_INVALID, "data.augment is for images: these are tokens");
	return 0;
}

/* The next part of the memory; moves *at to its end. Without memory it only counts. */
static void *part(const struct loader *l, size_t *at, size_t bytes)
{
	char *p = l->memory ? (char *)l->memory + *at : NULL;
	*at += (bytes + 63) / 64 * 64;
	return p;
}

/* Gives the table and every batch their parts; returns the bytes of all. */
static size_t lay_out(struct loader *l)
{
	size_t at = 0, batch = (size_t)l->c.batch, values = batch * l->sample_count;
	l->table = part(l, &at, 256 * (size_t)l->c.norm.n * sizeof *l->table);
	if (l->c.data->tokens)
		l->window = part(l, &at, (size_t)l->c.data->context * TOKENS_WIDTH_MAX);
	else
		l->zeros = part(l, &at, (size_t)l->c.data->shape.dim[2] * sizeof *l->zeros);
	if (l->c.norm.n > 1)
		l->scratch = part(l, &at, l->sample_count * sizeof *l->scratch);
	for (int i = 0; i < l->n_slots; i++) {
		struct batch *b = &l->slots[i].batch;
		*b = (struct batch){.table = l->table, .shape = l->c.data->shape};
		b->labels = part(l, &at, (l->c.data->tokens ? values : batch) * sizeof *b->labels);
		if (l->c.data->tokens)
			b->tokens = part(l, &at, values * sizeof *b->tokens);
		else if (l->bytes)
			b->pixels = part(l, &at, values);
		else
			b->x = part(l, &at, values * sizeof *b->x);
		if (l->bytes && l->augmented)
			b->moves = part(l, &at, batch * sizeof *b->moves);
	}
	return at;
}

static int allocate(struct loader *l)
{
	struct device *d = l->c.dev;
	l->slots = calloc((size_t)l->n_slots, sizeof *l->slots);
	if (!l->slots)
		return ERR_NOMEM;
	size_t bytes = lay_out(l);
	l->memory = l->bytes ? d->backend->host_alloc(d, bytes) : aligned_alloc(64, bytes);
	if (!l->memory)
		return ERR_NOMEM;
	lay_out(l);
	if (l->c.shuffle) {
		l->order = malloc(l->c.n_index * sizeof *l->order);
		if (!l->order)
			return ERR_NOMEM;
	}
	return 0;
}

static void fill_tables(struct loader *l)
{
	const struct normalisation *n = &l->c.norm;
	for (int c = 0; c < n->n; c++) {
		for (int i = 0; i < 256; i++)
			l->table[256 * c + i] = (float)((i / 255.0 - n->mean[c]) / n->std[c]);
		l->outside[c] = l->table[256 * c];
	}
	if (l->zeros)
		memset(l->zeros, 0, (size_t)l->c.data->shape.dim[2] * sizeof *l->zeros);
}

static int start_thread(struct loader *l)
{
	int rc = thread_start(&l->thread, produce, l);
	l->threaded = rc == 0;
	return rc;
}

static int no_memory(const struct loader *l, struct err *e)
{
	struct device *d = l->c.dev;
	if (l->bytes && d->backend->settle) { /* the device may have failed */
		int rc = d->backend->settle(d, e);
		if (rc)
			return rc;
	}
	return err_set(e, ERR_NOMEM,
	        "no memory for %d batches of %lld samples: use a smaller batch or read less ahead",
	        l->n_slots, (long long)l->c.batch);
}

int loader_new(struct loader **out, const struct loader_config *c, struct loader_position at,
        struct err *e)
{
	*out = NULL;
	int rc = check(c, at, e);
	if (rc)
		return rc;
	struct loader *l = calloc(1, sizeof *l);
	if (!l)
		return err_set(e, ERR_NOMEM, "no memory for a loader");
	l->c = *c;
	l->n_slots = c->ahead + 1;
	l->sample_count = shape_count(&c->data->shape);
	l->augmented = c->augment.flip || c->augment.shift || c->augment.scale > 0;
	l->next = l->at = at;
	l->bytes = c->dev && c->dev->backend->images && c->data->pixels && c->norm.n == 1;
	pthread_mutex_init(&l->mutex, NULL);
	pthread_cond_init(&l->filled, NULL);
	pthread_cond_init(&l->freed, NULL);
	if (allocate(l)) {
		rc = no_memory(l, e);
		goto out;
	}
	fill_tables(l);
	if (c->shuffle)
		shuffle_epoch(l, at.epoch);
	if (c->ahead && start_thread(l))
		rc = err_set(
		        e, ERR_SYSTEM, "no thread to read ahead with: set the batches ahead to 0");
out:
	if (rc)
		loader_free(l);
	else
		*out = l;
	return rc;
}

void loader_free(struct loader *l)
{
	if (!l)
		return;
	if (l->threaded) {
		pthread_mutex_lock(&l->mutex);
		l->stop = true;
		pthread_cond_signal(&l->freed);
		pthread_mutex_unlock(&l->mutex);
		pthread_join(l->thread, NULL);
	}
	pthread_cond_destroy(&l->freed);
	pthread_cond_destroy(&l->filled);
	pthread_mutex_destroy(&l->mutex);
	if (l->bytes)
		l->c.dev->backend->host_release(l->c.dev, l->memory);
	else
		free(l->memory);
	free(l->slots);
	free(l->order);
	free(l);
}

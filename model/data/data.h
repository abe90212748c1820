/* SPDX-License-Identifier: MIT */
/* Data sets in memory; which part this agent trains on, and in which order; a thread that prepares
 * batches in advance.
 *
 *     dataset ──partition──► indices of this agent ──order (seed, epoch)──► loader ──► batches
 *
 * Order and augmentation are functions of (seed, epoch, place in the epoch) and nothing else, so a
 * position is two numbers, and batches that were prepared but not used do not matter. */
#ifndef DUNLIN_MODEL_DATA_DATA_H
#define DUNLIN_MODEL_DATA_DATA_H

#include "agent/base/err.h"
#include "agent/base/rng.h"
#include "model/arch/arch.h"

struct augment_move;
struct device;
struct tokens;

struct dataset {
	struct shape shape; /* (H, W, C); of tokens (T) */
	uint32_t count;
	int64_t classes;
	uint8_t *pixels; /* owned, count × H × W × C; NULL: floats */
	float *values;   /* owned, the same; NULL: bytes */
	bool per_channel; /* each channel is normalised by itself */
	int32_t *labels;  /* owned, each in [0, classes); NULL: tokens */
	struct tokens *tokens; /* owned; NULL: not tokens. Sample i is a window, see tokens.h */
	int64_t context;       /* T, for tokens; asked for */
	const struct dataset *beside; /* only while it is read: see dataset_read_beside */
};

enum data_part { DATA_TRAIN, DATA_TEST };

/* The words of data.format: "auto", "idx", then the other formats; NULL ends them. */
#define DATA_FORMAT_IDX 1
extern const char *const data_format_names[];

/* Reads one part of the set in a folder, in the format of that place
 * in data_format_names; 0 goes by the names of the files. Of tokens path may also be a file, or a
 * pattern of files. All of it is checked; of tokens the
 * lengths, and what is large is checked as it is used. classes 0: as many as the format or the
 * labels have. context: tokens in a sample, T; other formats ignore it. ERR_NOTFOUND: there is no
 * such part. */
int dataset_read(struct dataset *d, int format, const char *path, enum data_part part,
        int64_t classes, int64_t context, struct err *e) MUST_CHECK;

/* The same, beside the other part of the same path: of tokens, a file that both parts are cut from
 * is read through the other's descriptor, so that the other must be closed later. */
int dataset_read_beside(struct dataset *d, const struct dataset *other, int format,
        const char *path, enum data_part part, int64_t classes, int64_t context,
        struct err *e) MUST_CHECK;

/* Descriptors that it has open itself. */
uint32_t dataset_files(const struct dataset *d);

/* Reads a pair of IDX files, plain or gzip (told by their first bytes, not their names). Checks
 * magic, type, sizes against the file's own length, that both counts agree and are not 0, and
 * every label. classes 0: the largest label + 1. */
int dataset_read_idx(struct dataset *d, const char *images, const char *labels, int64_t classes,
        struct err *e) MUST_CHECK;
void dataset_close(struct dataset *d);

/* Whether path is no file but a pattern of names, with * or ? or [ in it. */
bool data_is_pattern(const char *path);

struct tokens_summary {
	int files;
	uint64_t tokens;
	int32_t largest; /* token */
};

/* Reads all of a set of tokens and checks each of them, which takes as long as reading its files.
 * The error names the file, the first wrong token and its byte. */
int dataset_check_tokens(
        const struct dataset *d, struct tokens_summary *out, struct err *e) MUST_CHECK;

/* value = (pixel / 255 − mean) / std, of each channel, or of all if n is 1. */
struct normalisation {
	int n;
	double mean[LIMIT_NORM_CHANNELS], std[LIMIT_NORM_CHANNELS];
};

/* Mean and standard deviation of the pixels / 255, for each channel if the set asks for it and has
 * no more than LIMIT_NORM_CHANNELS; std is 1 where all pixels are alike. Floats and tokens are
 * taken as they are: 0 and 1. */
void dataset_statistics(
        const struct dataset *d, const uint32_t *index, uint32_t n, struct normalisation *out);

enum partition_kind { PARTITION_ALL, PARTITION_SHARD, PARTITION_LABEL };

struct partition {
	enum partition_kind kind;
	uint32_t parts, part; /* SHARD and LABEL: part k of n, 0 <= k < n */
	double alpha;         /* LABEL: Dirichlet concentration */
	uint64_t seed;        /* the same at every agent that shares the split */
};

/* The samples of one agent, after holding out validation (a share in [0, 1) of the whole set, the
 * same samples for every part). Of tokens that is the end of the set, and the sample before it is
 * nobody's, since training moves its windows. Both arrays are malloc'd and the caller's; the parts
 * of SHARD and of LABEL are disjoint and cover the rest. An empty part is ERR_INVALID. */
int data_split(const struct dataset *d, const struct partition *p, double validation,
        uint32_t **train, uint32_t *n_train, uint32_t **val, uint32_t *n_val,
        struct err *e) MUST_CHECK;

struct augment {
	bool flip;    /* mirrored left-right, one time in two */
	int shift;    /* moved by up to so many pixels in each direction, filled with pixel 0 */
	double scale; /* resized by up to ±this share about the centre (bilinear) */
};

struct loader_config {
	const struct dataset *data; /* borrowed */
	const uint32_t *index;      /* borrowed: the samples, in any order */
	uint32_t n_index;
	int64_t batch;
	uint64_t seed;
	struct augment augment;
	struct normalisation norm;
	bool shuffle;     /* off: in the order given, and the last batch may be short */
	int ahead; /* batches prepared in advance, 1..LIMIT_READ_AHEAD; 0: on the caller's thread */
	/* Of tokens, with shuffle: moves the windows of an epoch. The same at all agents, whose
	 * parts then stay apart. */
	uint64_t window_seed;
	/* Borrowed, or NULL: the device that the batches are for. If its backend converts images
	 * itself and one table of values is enough, batches are bytes, in memory of host_alloc.
	 * Free the loader before the device. */
	struct device *dev;
};

/* Floats, bytes with what is needed to convert them to floats, or tokens: one of x, pixels and
 * tokens, the others are NULL. */
struct batch {
	float *x;                   /* (count, H, W, C), room for the full batch */
	uint8_t *pixels;            /* (count, H, W, C) */
	int32_t *tokens;            /* (count, T), each in [0, classes) */
	struct augment_move *moves; /* (count), of the pixels; NULL: as they are */
	const float *table;         /* 256: the value of each byte */
	int32_t *labels;            /* (count); of tokens (count, T) */
	struct shape shape;         /* (H, W, C); of tokens (T) */
	int64_t count;
	uint64_t epoch; /* of its first sample */
};

/* Where the next batch begins. With shuffle, batches are always full: one that would run over the
 * end of an epoch takes its last samples from the next one's order. */
struct loader_position {
	uint64_t epoch;
	uint64_t sample; /* in [0, n_index) */
};

struct loader;
int loader_new(struct loader **out, const struct loader_config *c, struct loader_position at,
        struct err *e) MUST_CHECK;
void loader_free(struct loader *l); /* stops the thread */

/* The next batch, valid until the call after it. Without shuffle, NULL after the last one; NULL
 * also when the samples cannot be read, which loader_failed tells. */
const struct batch *loader_next(struct loader *l);

/* After loader_next has returned NULL: 0 at the end of the samples, or why they cannot be read. */
int loader_failed(const struct loader *l, struct err *e) MUST_CHECK;

/* The batch that loader_next will return next, if it is ready; does not wait, and the last batch
 * stays valid. NULL: not ready, or there is none; without a thread always NULL. Valid as long as
 * that batch will be. */
const struct batch *loader_peek(struct loader *l);

/* The position of the batch that loader_next will return next: what a checkpoint saves. */
struct loader_position loader_position(const struct loader *l);

/* Without shuffle: begins again at epoch 0, sample 0. The last batch is no longer valid. */
void loader_rewind(struct loader *l);

#endif

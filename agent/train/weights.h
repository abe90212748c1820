/* SPDX-License-Identifier: MIT */
/* A model's weights in a safetensors file: ours (final.safetensors, a checkpoint) or anybody's with
 * PyTorch's names and shapes. */
#ifndef DUNLIN_AGENT_TRAIN_WEIGHTS_H
#define DUNLIN_AGENT_TRAIN_WEIGHTS_H

#include "agent/base/err.h"
#include "model/arch/arch.h"
#include "model/data/data.h"
#include "model/io/safetensors.h"

#include <stdbool.h>
#include <stdint.h>

#define WEIGHTS_FORMAT "dunlin-weights"
#define WEIGHTS_VERSION "1"

/* What a weights file says about itself besides its tensors. */
struct weights_info {
	struct normalisation norm;
	uint64_t step, samples;
};

/* Writes the tensors under their names, and the metadata model, mean, std, step and samples. params
 * has n_total floats. Atomic. Values that are not finite are ERR_NONFINITE, nothing is written. */
int weights_write(const char *path, const struct arch *a, const struct weights_info *info,
        const float *params, struct err *e) MUST_CHECK;

/* Opens a file of ours or anybody's, or a folder or an index of Hugging Face's, and gives tensors
 * our types, names and order as far as that is known: 16 bits become F32, see gpt2.h. */
int weights_open(struct st_file *f, const char *path, struct err *e) MUST_CHECK;

/* Whether that would read more than one file: a folder or an index. */
bool weights_are_many(const char *path);

/* The model that the file's metadata describes; ERR_NOTFOUND when it describes none. */
int weights_arch(const struct st_file *f, struct arch *out, struct err *e) MUST_CHECK;

/* mean and std from the metadata; ERR_NOTFOUND when there are none. */
int weights_normalisation(
        const struct st_file *f, struct normalisation *norm, struct err *e) MUST_CHECK;

/* The numbers of the channels as the metadata has them, with spaces between. */
#define WEIGHTS_NUMBERS (25 * LIMIT_NORM_CHANNELS + 1)
void weights_numbers(const double *x, int n, char out[WEIGHTS_NUMBERS]);

/* Whether the layers that the metadata describe, if any, compute the same as the model's. */
int weights_check_model(const struct st_file *f, const struct arch *a, struct err *e) MUST_CHECK;

/* Every tensor of the model is there as F32 with its shape (positions may be more), finite, and
 * nothing else is there (but the optimiser's state of a checkpoint). The error names what is wrong,
 * the first few of it. */
int weights_check(const struct st_file *f, const struct arch *a, struct err *e) MUST_CHECK;

/* After weights_check gave 0: fills out, n_total floats. */
void weights_copy(const struct st_file *f, const struct arch *a, float *out);

/* The index of the first value that is not finite, or n. data may be unaligned. */
size_t weights_nonfinite(const void *data, size_t n);

/* A tensor description over one view of the flat vector. */
void weights_view(const struct param_view *v, const float *params, struct st_tensor *out);

/* Strict decimal text: the whole string, no sign (u64), no spaces, finite, counts below 2^53. */
bool text_u64(const char *s, uint64_t *out);
bool text_i64(const char *s, int64_t *out);
bool text_f64(const char *s, double *out);

#endif

/* SPDX-License-Identifier: MIT */
/* The folder of a run:
 *
 *     checkpoint-000000001200.safetensors   the last run.keep ones, by step
 *     best.safetensors                      the checkpoint with the lowest validation loss
 *     final.safetensors                     the weights at the end of the run
 *     metrics.jsonl                         unless run.metrics says otherwise
 *     .lock                                 held while a trainer uses the folder
 */
#ifndef DUNLIN_AGENT_OUTDIR_H
#define DUNLIN_AGENT_OUTDIR_H

#include "agent/base/err.h"
#include "agent/base/limits.h"
#include "agent/checkpoint.h"

#include <stdint.h>

#define OUTDIR_PATH (LIMIT_PATH + 64) /* of a file in it, NUL included */

struct outdir {
	const char *path; /* borrowed */
	int lock;         /* owned, fd */
};

/* Makes the folder, locks it and removes what an interrupted write left. ERR_BUSY: another process
 * has it. */
int outdir_open(struct outdir *o, const char *path, struct err *e) MUST_CHECK;
void outdir_close(struct outdir *o);

/* The numbers in the names of the checkpoints there, by the steps inside the files, newest first: a
 * copied or renamed one is as new as its content. malloc'd and the caller's. */
int outdir_list(const struct outdir *o, uint64_t **names, int *n, struct err *e) MUST_CHECK;

/* "OUT/checkpoint-000000001200.safetensors", or the file of that name. */
const char *outdir_checkpoint(const struct outdir *o, uint64_t step, char out[OUTDIR_PATH]);
const char *outdir_file(const struct outdir *o, const char *name, char out[OUTDIR_PATH]);

/* The newest checkpoint that is whole; ERR_NOTFOUND when there is none. Damaged ones met on the way
 * are renamed to NAME.damaged, so that they neither count as kept nor get in the way again, and
 * told through damaged_cb. */
typedef void (*outdir_damaged_cb)(const char *path, const struct err *why, void *arg);
int outdir_newest(const struct outdir *o, struct checkpoint *c, char path[OUTDIR_PATH],
        outdir_damaged_cb damaged_cb, void *arg, struct err *e) MUST_CHECK;

/* Removes all checkpoints but the newest keep. */
int outdir_rotate(const struct outdir *o, int64_t keep, struct err *e) MUST_CHECK;

#endif

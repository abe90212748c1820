/* SPDX-License-Identifier: MIT */
/* The folder of a run:
 *
 *     checkpoint-000000001200.safetensors   the last run.keep ones, by step
 *     best.safetensors                      the checkpoint with the lowest validation loss
 *     final.safetensors                     the weights at the end of the run
 *     metrics.jsonl                         unless run.metrics says otherwise
 *     .lock                                 held while a trainer uses the folder
 */
#ifndef DUNLIN_AGENT_TRAIN_RUN_DIR_H
#define DUNLIN_AGENT_TRAIN_RUN_DIR_H

#include "agent/base/err.h"
#include "agent/base/limits.h"
#include "agent/train/checkpoint.h"

#include <stdint.h>

#define RUN_DIR_PATH (LIMIT_PATH + 64) /* of a file in it, NUL included */

struct run_dir {
	const char *path; /* borrowed */
	int lock;         /* owned, fd */
};

/* Makes the folder, locks it and removes what an interrupted write left. ERR_BUSY: another process
 * has it. */
int run_dir_open(struct run_dir *o, const char *path, struct err *e) MUST_CHECK;
void run_dir_close(struct run_dir *o);

/* The numbers in the names of the checkpoints there, by the steps inside the files, newest first: a
 * copied or renamed one is as new as its content. malloc'd and the caller's. */
int run_dir_list(const struct run_dir *o, uint64_t **names, int *n, struct err *e) MUST_CHECK;

/* "OUT/checkpoint-000000001200.safetensors", or the file of that name. */
const char *run_dir_checkpoint(const struct run_dir *o, uint64_t step, char out[RUN_DIR_PATH]);
const char *run_dir_file(const struct run_dir *o, const char *name, char out[RUN_DIR_PATH]);

/* The newest checkpoint that is whole; ERR_NOTFOUND when there is none. Damaged ones met on the way
 * are renamed to NAME.damaged, so that they neither count as kept nor get in the way again, and
 * told through damaged_cb. */
typedef void (*run_dir_damaged_cb)(const char *path, const struct err *why, void *arg);
int run_dir_newest(const struct run_dir *o, struct checkpoint *c, char path[RUN_DIR_PATH],
        run_dir_damaged_cb damaged_cb, void *arg, struct err *e) MUST_CHECK;

/* Removes all checkpoints but the newest keep. */
int run_dir_rotate(const struct run_dir *o, int64_t keep, struct err *e) MUST_CHECK;

#endif

/* SPDX-License-Identifier: MIT */
/* One file of CIFAR. Internal to the data set reader and its tests. */
#ifndef DUNLIN_MODEL_DATA_CIFAR_H
#define DUNLIN_MODEL_DATA_CIFAR_H

#include "model/data/format.h"

/* Adds the samples of a file of CIFAR-10 or CIFAR-100 to d, which may be all zero. */
int cifar_read(struct dataset *d, const char *path, int classes, struct err *e) MUST_CHECK;

#endif

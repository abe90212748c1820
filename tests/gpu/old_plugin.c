/* SPDX-License-Identifier: MIT */
/* A backend of another version: all that is read of it is its number. */
#include "model/device/device.h"

extern const struct backend dunlin_backend;
const struct backend dunlin_backend = {.abi = BACKEND_ABI - 1, .name = "cuda"};

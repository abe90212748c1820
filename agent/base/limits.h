/* SPDX-License-Identifier: MIT */
/* Every bound in one place. What a user, a file or (later) a peer may make us hold is decided here,
 * never by a length read from outside. */
#ifndef DUNLIN_AGENT_BASE_LIMITS_H
#define DUNLIN_AGENT_BASE_LIMITS_H

#define LIMIT_CONFIG_BYTES (1u << 20) /* a config file */
#define LIMIT_CONFIG_ERRORS 64        /* problems told by one config check */
#define LIMIT_PATH 1024               /* a path in a config, NUL included */
#define LIMIT_NAME 48                 /* of a preset, an agent, a run; NUL included */

#define LIMIT_OWNER 96              /* an owner's public key in a config, NUL included */
#define LIMIT_HOST_PORT 264 /* "host:port" in a config, NUL included */
#define LIMIT_LIST 8192     /* bytes of a list of strings in a config */

#define LIMIT_CONTROL_CLIENTS 32     /* connections to the control socket */
#define LIMIT_CONTROL_LINE 65536     /* bytes of a request there */
#define LIMIT_CONTROL_OUT (1u << 20) /* bytes of an answer, or a part of one, that wait */
#define LIMIT_PEERS_FILE 65536       /* bytes of the file of known peers */

#define LIMIT_LOG_BURST 200        /* lines of one kind, caused by others, at once */
#define LIMIT_LOG_RATE 2           /* the same, a second */
#define LIMIT_LOG_DEBUG_BURST 2000 /* the same at level debug */
#define LIMIT_LOG_DEBUG_RATE 200
#define LIMIT_LOG_QUIET_MS 10000 /* without such a line: then those left out are told */

#define LIMIT_LAYERS 1024         /* layers of one model */
#define LIMIT_DIM (1 << 24)       /* one dimension of a tensor */
#define LIMIT_PARAMS (1ull << 33) /* parameters of one model */
#define LIMIT_ACTIVATION_BYTES (1ull << 40)
#define LIMIT_BATCH (1 << 20) /* samples in one step on one agent */
#define LIMIT_CLASSES (1 << 18) /* of a vocabulary: Llama 3 has 128,256 tokens */
#define LIMIT_CONTEXT (1 << 16) /* tokens of a sample */
#define LIMIT_THREADS 1024

#define LIMIT_SAMPLES (1u << 31)     /* samples of one data set: indices are uint32_t */
#define LIMIT_NORM_CHANNELS 16       /* channels with a mean and a deviation of their own */
#define LIMIT_IDX_BYTES (1ull << 36) /* one data file, unpacked */
#define LIMIT_READ_AHEAD 16          /* batches prepared before they are asked for */

#define LIMIT_TENSOR_NAME 257 /* NUL included */
#define LIMIT_LAYER_NAME 250  /* NUL included: ".weight" behind it makes a tensor's name */
#define LIMIT_SAFETENSORS_HEADER (16u << 20)
#define LIMIT_TENSORS 65536
#define LIMIT_TENSOR_RANK 8
#define LIMIT_CHECKPOINTS_KEPT 1000

_Static_assert(LIMIT_TENSOR_NAME >= LIMIT_LAYER_NAME + 7, "a layer's tensors must fit");
_Static_assert((unsigned long long)LIMIT_BATCH <= LIMIT_SAMPLES, "a batch is a part of a set");

#endif

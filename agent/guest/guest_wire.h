/* SPDX-License-Identifier: MIT */
/* What a guest, a training script of the user's, and its agent say to each other: one message a
 * packet of a SOCK_SEQPACKET socket, little-endian, without padding. Bytes in, structs out, and the
 * other way round; nothing here waits or knows a socket. agent/guest/README.md has the order of
 * messages, deploy/python/dunlin_flock/wire.py the other side.
 *
 * What comes is not trusted: lengths are checked against the packet, counts against limits.h, and
 * memory grows with what has come, never by a number that was announced. */
#ifndef DUNLIN_AGENT_GUEST_GUEST_WIRE_H
#define DUNLIN_AGENT_GUEST_GUEST_WIRE_H

#include "agent/base/buf.h"
#include "agent/base/err.h"
#include "agent/base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GUEST_VERSION 1
#define GUEST_MAGIC 0x4c4e5544u /* "DUNL" */
#define GUEST_MESSAGE_MAX 32768 /* bytes of one message */
#define GUEST_WORDS_MAX 255     /* of a reason in words, NUL not included */
#define GUEST_OPTIMIZER_NAME 32 /* NUL included */

enum guest_said { /* by the guest */
	GUEST_HELLO = 1,
	GUEST_TENSORS, /* pieces of HELLO */
	GUEST_STEP,
	GUEST_ANSWER, /* to a REQUEST */
	GUEST_BYE,
};
enum guest_told {           /* to the guest */
	GUEST_WELCOME = 64, /* with the memory's descriptor */
	GUEST_REFUSED,
	GUEST_REQUEST, /* STATE, TRY and ADOPT with a descriptor */
	GUEST_TRAIN,
	GUEST_PAUSE,
	GUEST_CLOCK,
	GUEST_OVER, /* the run's samples are trained */
	GUEST_END,  /* the agent leaves */
	GUEST_NOTICE,
};
enum guest_what {           /* of a request */
	GUEST_SNAPSHOT = 1, /* parameters to `out` */
	GUEST_APPLY,        /* add `in` to the parameters */
	GUEST_STATE,        /* parameters and the optimizer's vectors to the descriptor */
	GUEST_TRY,          /* the loss with parameters from the descriptor */
	GUEST_ADOPT,        /* a state from the descriptor */
	GUEST_RESTORE,      /* the one from before ADOPT */
	GUEST_EVALUATE,
};

enum guest_kind { GUEST_WEIGHT, GUEST_PLAIN, GUEST_STATISTIC };
struct guest_tensor {
	char *name; /* owned */
	enum guest_kind kind;
	int rank;
	int64_t dim[LIMIT_TENSOR_RANK];
	size_t offset, count; /* in the flat vector, in floats */
};

/* HELLO with as many of its tensors as have come. */
struct guest_hello {
	uint8_t optimizer, vectors; /* vectors 2 or 3: parameters, momentum or moments */
	bool evaluates;
	uint64_t total, step_samples;   /* of the run; of the first step */
	uint64_t step, samples, others; /* of a guest that lost an earlier agent; else 0 */
	double lr, momentum;
	char run[LIMIT_NAME], optimizer_name[GUEST_OPTIMIZER_NAME];
	uint32_t n_tensors, n; /* announced; come */
	uint32_t room;
	struct guest_tensor *tensor; /* owned */
	size_t n_decay, n_train, n_total;
};

struct guest_step {
	uint64_t step, samples; /* of this guest, ever */
	double loss, lr, grad_norm, moved, seconds;
	bool has_loss;
};

struct guest_answer {
	uint32_t serial;
	bool failed;
	uint64_t number;        /* SNAPSHOT, APPLY: step; STATE: steps of the optimizer */
	double loss, own;       /* TRY, EVALUATE */
	int64_t correct, count; /* EVALUATE */
	char words[GUEST_WORDS_MAX + 1];
};

struct guest_message {
	enum guest_said kind;
	union {
		struct guest_step step;
		struct guest_answer answer;
		char words[GUEST_WORDS_MAX + 1]; /* BYE */
	};
};

/* A piece of HELLO; *whole once all tensors are there. h begins as zeros and is to be closed,
 * whatever this returns. */
int guest_hello_read(struct guest_hello *h, const uint8_t *bytes, size_t len, bool *whole,
        struct err *e) MUST_CHECK;
void guest_hello_close(struct guest_hello *h);

/* The model as text, a line for each tensor: equal models give equal bytes. */
int guest_hello_print(const struct guest_hello *h, struct buf *out) MUST_CHECK;

/* What a guest says once it is welcome. */
int guest_read(struct guest_message *m, const uint8_t *bytes, size_t len, struct err *e) MUST_CHECK;

/* What is told to a guest: each returns the length of the message in out. */
#define GUEST_TOLD_MAX 512
size_t guest_tell(uint8_t out[GUEST_TOLD_MAX], enum guest_told kind); /* without a content */
size_t guest_tell_welcome(
        uint8_t out[GUEST_TOLD_MAX], uint64_t bytes, uint64_t at_out, uint64_t at_in);
size_t guest_tell_words(
        uint8_t out[GUEST_TOLD_MAX], enum guest_told kind, bool flag, const char *words);
size_t guest_tell_request(uint8_t out[GUEST_TOLD_MAX], enum guest_what what, uint32_t serial,
        uint64_t number, uint64_t bytes);
size_t guest_tell_clock(uint8_t out[GUEST_TOLD_MAX], uint64_t others, uint64_t agents);

#endif

/* SPDX-License-Identifier: MIT */
/* A fuzz target's input, read byte by byte; behind its end there are zeros. */
#ifndef DUNLIN_TESTS_FUZZ_INPUT_H
#define DUNLIN_TESTS_FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *at;
	size_t left;
};

static inline uint8_t take(struct input *in)
{
	if (in->left == 0)
		return 0;
	in->left--;
	return *in->at++;
}

static inline uint64_t take_word(struct input *in)
{
	uint64_t x = 0;
	for (int i = 0; i < 8; i++)
		x = x << 8 | take(in);
	return x;
}

/* What must hold, whatever the input is. */
#define demand(held) ((held) ? (void)0 : input_failed(#held, __FILE__, __LINE__))

static inline _Noreturn void input_failed(const char *what, const char *file, int line)
{
	fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
	abort();
}

#endif

/* SPDX-License-Identifier: MIT */
/* Any bytes as a checkpoint, then the same behind the checksum, which would stop nearly every
 * input: state, model, and the weights of that model copied out. */
#include "agent/train/checkpoint.h"
#include "agent/train/weights.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use_weights(const struct st_file *f)
{
	struct arch a;
	struct err e;

	if (weights_arch(f, &a, &e) != 0)
		return;
	if (weights_check(f, &a, &e) == 0) {
		/* All of it is in the file, so the file's size bounds it. */
		float *params = malloc(a.n_total * sizeof *params);

		if (params == NULL)
			abort();
		weights_copy(f, &a, params);
		if (weights_nonfinite(params, a.n_total) != a.n_total)
			abort();
		free(params);
	}
	arch_close(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct checkpoint c;
	struct err e = {0};
	int rc = checkpoint_parse(&c, data, size, &e);

	if (rc != 0 && (e.code != rc || e.msg[0] == '\0'))
		abort();
	checkpoint_close(&c);
	if (st_parse(&c.file, data, size, &e) != 0)
		return 0;
	if (checkpoint__read(&c, &e) == 0 &&
	        (c.state.sample >= c.state.n_train ||
	                c.state.step > c.state.samples + c.state.others))
		abort();
	use_weights(&c.file);
	checkpoint_close(&c);
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* GPT-2's weights in Hugging Face's layout, in and out.
 *
 *     theirs, perhaps behind "transformer."       ours
 *     wte.weight, wpe.weight                      embed.weight, embed.position
 *     h.0.attn.c_attn.weight (in, out), and       (out, in), as of all dense layers
 *       attn.c_proj, mlp.c_fc, mlp.c_proj
 *     h.0.attn.bias, h.0.attn.masked_bias         nothing: masks
 *     lm_head.weight                              nothing: the head has the embedding's weight
 *     all others                                  the same
 */
#ifndef DUNLIN_AGENT_TRAIN_GPT2_H
#define DUNLIN_AGENT_TRAIN_GPT2_H

#include "model/arch/arch.h"
#include "model/io/safetensors.h"

#include <stdbool.h>

/* Whether the names are theirs. A file of ours says which model it is, and may have any names. */
bool gpt2_is_theirs(const struct st_file *f);

/* Gives the tensors of such a file our names and order. What is not there or too much is left to
 * weights_check. config: the path of its config.json, which becomes metadata as our own files have
 * it; no such file: no metadata. */
int gpt2_take(struct st_file *f, const char *config, struct err *e) MUST_CHECK;

/* Writes folder/model.safetensors and folder/config.json, what GPT2LMHeadModel.from_pretrained
 * takes; makes the folder. params has n_total floats. ERR_UNSUPPORTED: the model is no GPT-2. */
int gpt2_write(const char *folder, const struct arch *a, const float *params,
        struct err *e) MUST_CHECK;

#endif

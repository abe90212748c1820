/* SPDX-License-Identifier: MIT */
/* Most keys of such a file say how transformers should train, sample or load; those that say what
 * the network computes are the two tables here. A number has a range, a switch the one value that
 * Dunlin's gpt has. Keys that neither names are passed over, as transformers does with them. */
#include "agent/config/gpt2_config.h"

#include "agent/config/options.h"
#include "agent/json/jsontext.h"
#include "model/arch/arch.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const struct {
	const char *key;
	size_t offset;
	int64_t max, dflt;
} numbers[] = {
        {"n_layer", offsetof(struct gpt2_config, layers), ARCH_GPT_LAYERS_MAX, 12},
        {"n_embd", offsetof(struct gpt2_config, width), 65536, 768},
        {"n_head", offsetof(struct gpt2_config, heads), 1024, 12},
        {"n_positions", offsetof(struct gpt2_config, positions), LIMIT_CONTEXT, 1024},
        {"vocab_size", offsetof(struct gpt2_config, vocabulary), LIMIT_CLASSES, 50257},
};

static const struct {
	const char *key;
	bool value;
} switches[] = {
        {"scale_attn_weights", true},
        {"scale_attn_by_inverse_layer_idx", false},
        {"tie_word_embeddings", true},
        {"add_cross_attention", false},
};

static int wrong(struct err *e, const cJSON *item, const char *want)
{
	return err_set(e, ERR_UNSUPPORTED, "line %d: %s must be %s", item->valueint, item->string,
	        want);
}

static int read_number(struct gpt2_config *c, const cJSON *item, struct err *e)
{
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		const double v = item->valuedouble;
		if (strcmp(numbers[i].key, item->string) != 0)
			continue;
		if (!cJSON_IsNumber(item) || !(v >= 1 && v <= (double)numbers[i].max) ||
		        v != floor(v))
			return err_set(e, ERR_UNSUPPORTED,
			        "line %d: %s must be a whole number from 1 to %" PRId64,
			        item->valueint, item->string, numbers[i].max);
		*(int64_t *)(void *)((char *)c + numbers[i].offset) = (int64_t)v;
	}
	return 0;
}

static int read_activation(struct gpt2_config *c, const cJSON *item, struct err *e)
{
	const char *v = cJSON_IsString(item) ? item->valuestring : "";
	c->tanh = strcmp(v, "gelu_new") == 0 || strcmp(v, "gelu_pytorch_tanh") == 0;
	return c->tanh || strcmp(v, "gelu") == 0
	               ? 0
	               : wrong(e, item, "gelu_new, gelu_pytorch_tanh or gelu");
}

static int read_member(
        struct gpt2_config *c, const cJSON *item, double *inner, bool *is_gpt2, struct err *e)
{
	for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
		if (strcmp(switches[i].key, item->string) == 0 &&
		        !(switches[i].value ? cJSON_IsTrue(item) : cJSON_IsFalse(item)))
			return wrong(e, item, switches[i].value ? "true" : "false");
	if (strcmp(item->string, "activation_function") == 0)
		return read_activation(c, item, e);
	if (strcmp(item->string, "layer_norm_epsilon") == 0) {
		c->eps = item->valuedouble;
		return cJSON_IsNumber(item) && c->eps >= 1e-12 && c->eps <= 1
		               ? 0
		               : wrong(e, item, "a number from 1e-12 to 1");
	}
	if (strcmp(item->string, "n_inner") == 0 && !cJSON_IsNull(item)) {
		*inner = item->valuedouble;
		return cJSON_IsNumber(item) ? 0 : wrong(e, item, "a number or null");
	}
	if (strcmp(item->string, "model_type") == 0) {
		*is_gpt2 = cJSON_IsString(item) && strcmp(item->valuestring, "gpt2") == 0;
		return *is_gpt2 ? 0 : wrong(e, item, "\"gpt2\": no other model is read");
	}
	return read_number(c, item, e);
}

static int read_members(struct gpt2_config *c, const cJSON *object, struct err *e)
{
	bool is_gpt2 = false;
	double inner = 0;
	int rc = 0;
	if (!cJSON_IsObject(object))
		return err_set(e, ERR_FORMAT, "no object but %s", json_kind(object));
	for (const cJSON *item = object->child; item && !rc; item = item->next)
		rc = json_repeats(object, item)
		             ? err_set(e, ERR_FORMAT, "line %d: a key is given twice",
		                       item->valueint)
		             : read_member(c, item, &inner, &is_gpt2, e);
	if (rc)
		return rc;
	if (!is_gpt2)
		return err_set(e, ERR_UNSUPPORTED, "no \"model_type\": \"gpt2\"");
	if (c->width % c->heads)
		return err_set(e, ERR_INVALID,
		        "n_embd %" PRId64 " is no multiple of n_head %" PRId64, c->width, c->heads);
	if (inner != 0 && inner != 4 * (double)c->width)
		return err_set(e, ERR_UNSUPPORTED, "n_inner must be null or 4 x n_embd");
	return 0;
}

int gpt2_config_parse(struct gpt2_config *c, const char *text, size_t len, struct err *e)
{
	struct json_fault f;
	*c = (struct gpt2_config){.eps = 1e-5, .tanh = true};
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		*(int64_t *)(void *)((char *)c + numbers[i].offset) = numbers[i].dflt;
	cJSON *object = json_parse(text, len, false, &f);
	if (!object)
		return err_set(e, ERR_FORMAT, "line %d, column %d: %s", f.line, f.column, f.text);
	int rc = read_members(c, object, e);
	cJSON_Delete(object);
	return rc;
}

/* Without what Dunlin does not have: no dropout, and of another tokenizer than GPT-2's no token
 * that ends a text. */
int gpt2_config_print(const struct gpt2_config *c, struct buf *out)
{
	char eps[REAL_TEXT];
	int rc = buf_printf(out,
	        "{\n"
	        "  \"architectures\": [\"GPT2LMHeadModel\"],\n"
	        "  \"model_type\": \"gpt2\",\n"
	        "  \"activation_function\": \"%s\",\n"
	        "  \"layer_norm_epsilon\": %s,\n"
	        "  \"n_inner\": null,\n",
	        c->tanh ? "gelu_new" : "gelu", real_text(c->eps, eps));
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers && !rc; i++)
		rc = buf_printf(out, "  \"%s\": %" PRId64 ",\n", numbers[i].key,
		        *(const int64_t *)(const void *)((const char *)c + numbers[i].offset));
	for (size_t i = 0; i < sizeof switches / sizeof *switches && !rc; i++)
		rc = buf_printf(out, "  \"%s\": %s,\n", switches[i].key,
		        switches[i].value ? "true" : "false");
	if (!rc && c->vocabulary != 50257)
		rc = buf_printf(out, "  \"bos_token_id\": null,\n  \"eos_token_id\": null,\n");
	return rc ? rc
	          : buf_printf(out, "  \"attn_pdrop\": 0.0,\n"
	                            "  \"embd_pdrop\": 0.0,\n"
	                            "  \"resid_pdrop\": 0.0,\n"
	                            "  \"torch_dtype\": \"float32\"\n"
	                            "}\n");
}

/* SPDX-License-Identifier: MIT */
/* The model part of a config. */
#ifndef DUNLIN_AGENT_CONFIG_CONFIG_MODEL_H
#define DUNLIN_AGENT_CONFIG_CONFIG_MODEL_H

#include "agent/config/config.h"

#include <cjson/cJSON.h>

/* Reads {"layers": […]} into c; what is wrong goes to p and leaves c's model as it was. */
void model_read(struct config *c, const cJSON *object, struct config_problems *p);

/* As config_read, of a tree that json_parse gave: an object. */
void config_read_tree(struct config *c, const cJSON *root, struct config_problems *p);

#endif

/* SPDX-License-Identifier: MIT */
/* The rows of setting_rows.h as a table in memory, and the lists that they name. */
#include "agent/config/options.h"

#include "gossip/exchange/exchange.h"
#include "gossip/limits.h"
#include "gossip/policy/format.h"
#include "gossip/policy/gate.h"
#include "gossip/policy/guard.h"
#include "gossip/policy/outer.h"
#include "net/bulk/convert.h"
#include "net/limits.h"

static const char *const partition_kinds[] = {"all", "shard", "label", NULL};
static const char *const optim_kinds[] = {"sgd", "adamw", NULL};
static const char *const batch_adapts[] = {"off", "norm", NULL};
static const char *const batch_lrs[] = {"keep", "sqrt", "linear", NULL};
static const char *const outers[] = {"none", "noloco", "qgm", NULL};
static const char *const schedule_kinds[] = {"constant", "step", "cosine", NULL};
static const char *const profiles[] = {"lan", "wan", NULL};
static const char *const gates[] = {
        "significance", "selsync-code", "budget", "every", "always", "random", NULL};
static const char *const guards[] = {"auto", "on", "off", NULL};
static const char *const exchanges[] = {"pair", "push", "pull", NULL};
/* As enum convert_format, after auto. */
static const char *const wires[] = {"auto", "fp32", "bf16", "mod8", "mod4", NULL};
static const char *const log_levels[] = {"error", "warn", "info", "debug", NULL};
static const char *const log_formats[] = {"text", "json", NULL};
_Static_assert(PARTITION_LABEL == 2 && OPTIM_ADAMW == 1 && SCHEDULE_COSINE == 2 && LOG_DEBUG == 3 &&
                       LOG_JSON == 1 && PROFILE_WAN == 1 && GATE_RANDOM == 5 && GUARD_OFF == 2 &&
                       EXCHANGE_PULL == 2 && CONVERT_MOD4 == 3 && FORMAT_AUTO == -1,
        "the lists above follow their enums");

#define SEED_MAX 9007199254740991.0 /* 2^53 − 1: whole in a double, and so in JSON */
#define FASHION "/usr/share/datasets/fashion-mnist/"

#define FOR_TRAIN .taken_by = TAKEN_BY_TRAIN | TAKEN_BY_AGENT | TAKEN_BY_CONFIG
#define FOR_EVAL .taken_by = TAKEN_BY_TRAIN | TAKEN_BY_EVAL | TAKEN_BY_AGENT | TAKEN_BY_CONFIG

#define FOR_AGENT .taken_by = TAKEN_BY_AGENT | TAKEN_BY_CONFIG
#define FOR_ASKER .taken_by = TAKEN_BY_AGENT | TAKEN_BY_ASKER | TAKEN_BY_CONFIG
#define FOR_LOG .taken_by = TAKEN_BY_TRAIN | TAKEN_BY_EVAL | TAKEN_BY_AGENT | TAKEN_BY_CONFIG

/* Of the run, not of one agent: what the manifest compares (gossip/exchange/exchange.h), what it is
 * made from, and the way in which all of them train. */
#define SHARED .shared = true

#define ROW(type_, value_, path, key_, flag_, env_, ...)    \
	{.key = key_,                                       \
	        .flag = flag_,                              \
	        .env = env_,                                \
	        .value = value_,                            \
	        .type = type_,                              \
	        .offset = offsetof(struct config, path),    \
	        .size = sizeof(((struct config *)0)->path), \
	        __VA_ARGS__},
#define MODEL(...) ROW(SET_MODEL, "NAME", preset, __VA_ARGS__, .choices = arch_presets)
#define INT(section, field, lo, hi, ...) \
	ROW(SET_INT, "N", section.field, __VA_ARGS__, .min = lo, .max = hi)
#define REAL(section, field, lo, hi, ...) \
	ROW(SET_REAL, "X", section.field, __VA_ARGS__, .min = lo, .max = hi)
#define BOOL(section, field, ...) ROW(SET_BOOL, NULL, section.field, __VA_ARGS__)
#define CHOICE(section, field, list, ...) \
	ROW(SET_CHOICE, "WORD", section.field, __VA_ARGS__, .choices = list)
#define TEXT(section, field, bytes, name, ...) ROW(SET_TEXT, name, section.field, __VA_ARGS__)
#define LIST(section, field, items, name, ...) \
	ROW(SET_LIST, name, section.field, __VA_ARGS__, .max = items)
#define IN(...) __VA_ARGS__
#define SECTION(name)
#define PART(type, name)
#define END(name)

const struct setting settings[] = {
#include "agent/config/setting_rows.h"
};
const int n_settings = (int)(sizeof settings / sizeof *settings);
_Static_assert(sizeof settings / sizeof *settings <= CONFIG_SETTINGS_MAX, "one line number each");

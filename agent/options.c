/* SPDX-License-Identifier: MIT */
/* The settings, one row each, in the order in which files and help texts show them: the rows of a
 * section stand together, its own before those of the sections in it. A new setting is a field in
 * struct config and a row here; everything else follows, except its line in the man page, which a
 * test asks for. */
#include "agent/options.h"

#include "gossip/limits.h"
#include "net/limits.h"

static const char *const partition_kinds[] = {"all", "shard", "label", NULL};
static const char *const optim_kinds[] = {"sgd", "adamw", NULL};
static const char *const schedule_kinds[] = {"constant", "step", "cosine", NULL};
static const char *const profiles[] = {"lan", "wan", NULL};
static const char *const log_levels[] = {"error", "warn", "info", "debug", NULL};
static const char *const log_formats[] = {"text", "json", NULL};
_Static_assert(PARTITION_LABEL == 2 && OPTIM_ADAMW == 1 && SCHEDULE_COSINE == 2 && LOG_DEBUG == 3 &&
                       LOG_JSON == 1 && PROFILE_WAN == 1,
        "the lists above follow their enums");

#define SEED_MAX 9007199254740991.0 /* 2^53 − 1: whole in a double, and so in JSON */
#define FASHION "/usr/share/datasets/fashion-mnist/"

#define FIELD(f) .offset = offsetof(struct config, f), .size = sizeof(((struct config *)0)->f)
#define INT(f, lo, hi) .type = SET_INT, .value = "N", FIELD(f), .min = lo, .max = hi
#define REAL(f, lo, hi) .type = SET_REAL, .value = "X", FIELD(f), .min = lo, .max = hi
#define BOOL(f) .type = SET_BOOL, FIELD(f)
#define TEXT(f, name) .type = SET_TEXT, .value = name, FIELD(f)
#define LIST(f, name, hi) .type = SET_LIST, .value = name, FIELD(f), .max = hi
#define CHOICE(f, list) .type = SET_CHOICE, .value = "WORD", FIELD(f), .choices = list

#define FOR_TRAIN .taken_by = TAKEN_BY_TRAIN | TAKEN_BY_CONFIG
#define FOR_EVAL .taken_by = TAKEN_BY_TRAIN | TAKEN_BY_EVAL | TAKEN_BY_CONFIG

#define FOR_AGENT .taken_by = TAKEN_BY_AGENT | TAKEN_BY_CONFIG
#define FOR_ASKER .taken_by = TAKEN_BY_AGENT | TAKEN_BY_ASKER | TAKEN_BY_CONFIG
#define FOR_LOG .taken_by = TAKEN_BY_TRAIN | TAKEN_BY_EVAL | TAKEN_BY_AGENT | TAKEN_BY_CONFIG

/* clang-format off */
const struct setting settings[] = {
{"model", "--model", NULL, .type = SET_MODEL, .value = "NAME", FIELD(preset), FOR_EVAL,
	.choices = arch_presets, .dflt = "cnn", .also = "arch network preset net",
	.help = "a preset, mlp or cnn; in a file also {\"layers\": [...]}"},

{"data.train_images", "--train-images", "DUNLIN_TRAIN_IMAGES", TEXT(data.train_images, "FILE"),
	FOR_TRAIN, .min = 1, .dflt = FASHION "train-images-idx3-ubyte.gz", .also = "images",
	.help = "images to train on: IDX, plain or gzip"},
{"data.train_labels", "--train-labels", "DUNLIN_TRAIN_LABELS", TEXT(data.train_labels, "FILE"),
	FOR_TRAIN, .min = 1, .dflt = FASHION "train-labels-idx1-ubyte.gz", .also = "labels",
	.help = "their labels"},
{"data.test_images", "--test-images", "DUNLIN_TEST_IMAGES", TEXT(data.test_images, "FILE"),
	FOR_EVAL, .dflt = FASHION "t10k-images-idx3-ubyte.gz",
	.help = "images to test on; empty: no test"},
{"data.test_labels", "--test-labels", "DUNLIN_TEST_LABELS", TEXT(data.test_labels, "FILE"),
	FOR_EVAL, .dflt = FASHION "t10k-labels-idx1-ubyte.gz",
	.help = "their labels"},
{"data.classes", "--classes", NULL, INT(data.classes, 0, LIMIT_CLASSES), FOR_EVAL,
	.dflt = "0", .also = "num_classes",
	.help = "how many classes there are; 0: as many as the labels show"},
{"data.validation", "--validation", NULL, REAL(data.validation, 0, 0.9), FOR_TRAIN,
	.dflt = "0", .also = "val validation_split",
	.help = "share of the training images held out to choose the best checkpoint"},
{"data.seed", "--data-seed", NULL, INT(data.seed, 0, SEED_MAX), FOR_TRAIN,
	.dflt = "1", .also = "shuffle_seed",
	.help = "seed of the order of the images and of their augmentation"},
{"data.read_ahead", "--read-ahead", NULL, INT(data.ahead, 0, LIMIT_READ_AHEAD), FOR_EVAL,
	.dflt = "2", .also = "prefetch workers num_workers",
	.help = "batches prepared in advance on another thread; 0: none"},
{"data.augment.flip", "--flip", NULL, BOOL(data.augment.flip), FOR_TRAIN,
	.dflt = "false", .also = "mirror",
	.help = "mirror every other image left to right"},
{"data.augment.shift", "--shift", NULL, INT(data.augment.shift, 0, 1024), FOR_TRAIN,
	.dflt = "0", .also = "crop",
	.help = "move images by up to so many pixels each way"},
{"data.augment.scale", "--scale", NULL, REAL(data.augment.scale, 0, 0.9), FOR_TRAIN,
	.dflt = "0", .also = "zoom resize",
	.help = "resize images by up to this share, larger or smaller"},
{"data.partition.kind", "--partition", NULL, CHOICE(data.partition.kind, partition_kinds),
	FOR_TRAIN, .dflt = "all", .also = "split",
	.help = "who trains on what: all of it, a shard, or a skewed share of each label"},
{"data.partition.parts", "--parts", "DUNLIN_PARTS", INT(data.partition.parts, 1, 1000000),
	FOR_TRAIN, .dflt = "1", .also = "shards",
	.help = "shard, label: how many parts there are"},
{"data.partition.part", "--part", "DUNLIN_PART", INT(data.partition.part, 0, 999999), FOR_TRAIN,
	.dflt = "0", .also = "shard rank",
	.help = "shard, label: which part is ours, from 0"},
{"data.partition.alpha", "--alpha", NULL, REAL(data.partition.alpha, 1e-6, 1e6), FOR_TRAIN,
	.dflt = "1", .also = "dirichlet",
	.help = "label: how even the parts are (Dirichlet); the smaller, the more skewed"},
{"data.partition.seed", "--partition-seed", NULL, INT(data.partition.seed, 0, SEED_MAX), FOR_TRAIN,
	.dflt = "1",
	.help = "seed of parts and validation: the same wherever parts must not overlap"},

{"train.epochs", "--epochs", NULL, REAL(train.epochs, 0.0001, 1e6), FOR_TRAIN,
	.dflt = "10", .also = "num_epochs",
	.help = "passes over the training images; parts of one are allowed"},
{"train.batch", "--batch", NULL, INT(train.batch, 1, LIMIT_BATCH), FOR_EVAL,
	.dflt = "64", .also = "batch_size",
	.help = "images computed at once"},
{"train.accumulate", "--accumulate", NULL, INT(train.accumulate, 1, 65536), FOR_TRAIN,
	.dflt = "1", .also = "grad_accum accumulation",
	.help = "batches whose gradients make one step"},
{"train.optimizer", "--optimizer", NULL, CHOICE(train.optim.kind, optim_kinds), FOR_TRAIN,
	.dflt = "sgd", .also = "optimiser optim",
	.help = "the rule that turns gradients into steps"},
{"train.lr", "--lr", NULL, REAL(train.optim.lr, 0, 1e12), FOR_TRAIN,
	.dflt = "0.05", .also = "learning_rate",
	.help = "learning rate, at its highest"},
{"train.momentum", "--momentum", NULL, REAL(train.optim.momentum, 0, 0.99999), FOR_TRAIN,
	.dflt = "0.9",
	.help = "sgd: momentum"},
{"train.nesterov", "--nesterov", NULL, BOOL(train.optim.nesterov), FOR_TRAIN,
	.dflt = "true",
	.help = "sgd: Nesterov's form of momentum"},
{"train.beta1", "--beta1", NULL, REAL(train.optim.beta1, 0, 0.999999), FOR_TRAIN,
	.dflt = "0.9",
	.help = "adamw: decay of the mean of the gradients"},
{"train.beta2", "--beta2", NULL, REAL(train.optim.beta2, 0, 0.999999), FOR_TRAIN,
	.dflt = "0.999",
	.help = "adamw: decay of the mean of their squares"},
{"train.eps", "--eps", NULL, REAL(train.optim.eps, 1e-20, 1), FOR_TRAIN,
	.dflt = "1e-08", .also = "epsilon",
	.help = "adamw: added to the divisor"},
{"train.weight_decay", "--weight-decay", NULL, REAL(train.optim.weight_decay, 0, 1000), FOR_TRAIN,
	.dflt = "0.0005", .also = "wd l2 decay",
	.help = "pull of the weights towards 0; biases are left alone"},
{"train.clip", "--clip", NULL, REAL(train.optim.clip, 0, 1e9), FOR_TRAIN,
	.dflt = "0", .also = "grad_clip clip_norm max_grad_norm",
	.help = "largest norm of a gradient, longer ones are scaled down; 0: any"},
{"train.schedule", "--schedule", NULL, CHOICE(train.schedule, schedule_kinds), FOR_TRAIN,
	.dflt = "cosine", .also = "scheduler lr_schedule",
	.help = "course of the learning rate after the warm-up"},
{"train.warmup_epochs", "--warmup-epochs", NULL, REAL(train.warmup_epochs, 0, 1e6), FOR_TRAIN,
	.dflt = "0.5", .also = "warmup",
	.help = "epochs in which the learning rate rises from 0"},
{"train.step_epochs", "--step-epochs", NULL, REAL(train.step_epochs, 0, 1e6), FOR_TRAIN,
	.dflt = "0", .also = "step_size",
	.help = "step: epochs between two cuts of the learning rate"},
{"train.step_factor", "--step-factor", NULL, REAL(train.step_factor, 0, 1), FOR_TRAIN,
	.dflt = "0.1", .also = "gamma",
	.help = "step: what a cut multiplies the learning rate by"},
{"train.lr_floor", "--lr-floor", NULL, REAL(train.lr_floor, 0, 1), FOR_TRAIN,
	.dflt = "0", .also = "min_lr",
	.help = "cosine: the last learning rate as a share of the first"},
{"train.seed", "--seed", NULL, INT(train.seed, 0, SEED_MAX), FOR_TRAIN,
	.dflt = "1",
	.help = "seed of the initial weights and of dropout"},

{"run.out", "--out", "DUNLIN_OUT", TEXT(run.out, "DIR"), .taken_by = TAKEN_BY_TRAIN, .min = 1,
	.dflt = "runs/fashion", .also = "output dir output_dir",
	.help = "folder for checkpoints, metrics and the final weights"},
{"run.metrics", "--metrics", "DUNLIN_METRICS", TEXT(run.metrics, "FILE"), FOR_TRAIN,
	.dflt = "",
	.help = "file for the metrics, JSON lines; empty: metrics.jsonl in the folder"},
{"run.init_from", "--init-from", NULL, TEXT(run.init_from, "FILE"), FOR_TRAIN,
	.dflt = "", .also = "init pretrained weights",
	.help = "safetensors file with the initial weights; empty: from the seed"},
{"run.resume", "--resume", NULL, BOOL(run.resume), FOR_TRAIN,
	.dflt = "false", .also = "restart",
	.help = "go on from the newest whole checkpoint in the folder"},
{"run.checkpoint_seconds", "--checkpoint-seconds", NULL, REAL(run.checkpoint_s, 0, 1e9), FOR_TRAIN,
	.dflt = "300",
	.help = "seconds between checkpoints; 0: not by time"},
{"run.checkpoint_steps", "--checkpoint-steps", NULL, INT(run.checkpoint_steps, 0, 1e12), FOR_TRAIN,
	.dflt = "0", .also = "save_steps",
	.help = "steps between checkpoints; 0: not by steps"},
{"run.keep", "--keep", NULL, INT(run.keep, 1, LIMIT_CHECKPOINTS_KEPT), FOR_TRAIN,
	.dflt = "3", .also = "keep_last",
	.help = "checkpoints kept, besides the best"},
{"run.stop_after", "--stop-after", NULL, INT(run.stop_after, 0, 1e12), FOR_TRAIN,
	.dflt = "0", .also = "max_steps steps",
	.help = "stop after so many steps of this process, with a checkpoint; 0: at the end"},
{"run.device", "--device", "DUNLIN_DEVICE", TEXT(run.device, "NAME"), FOR_EVAL, .min = 1,
	.dflt = "auto", .also = "gpu cuda",
	.help = "where to compute: auto, cpu, plain, cuda or cuda:N"},
{"run.threads", "--threads", "DUNLIN_THREADS", INT(run.threads, 0, LIMIT_THREADS), FOR_EVAL,
	.dflt = "0", .also = "num_threads cores cpus",
	.help = "CPU threads; 0: as many as there are cores"},
{"run.deterministic", "--deterministic", NULL, BOOL(run.deterministic), FOR_EVAL,
	.dflt = "false",
	.help = "make no choice by timing, so that a repeated run gives the same bits"},

{"agent.name", "--name", "DUNLIN_NAME", TEXT(agent.name, "NAME"), FOR_ASKER, .min = 1,
	.dflt = "agent",
	.help = "name of this agent on this machine: letters, digits, - and _"},
{"agent.listen", "--listen", "DUNLIN_LISTEN", TEXT(agent.listen, "HOST:PORT"), FOR_AGENT, .min = 1,
	.dflt = "0.0.0.0:7946", .also = "bind port",
	.help = "address to listen on, TCP and UDP; :0 takes any free port"},
{"agent.advertise", "--advertise", "DUNLIN_ADVERTISE", TEXT(agent.advertise, "HOST:PORT"),
	FOR_AGENT, .dflt = "", .also = "public address external",
	.help = "address that peers are told; empty: the one listened on"},
{"agent.interface", "--interface", "DUNLIN_INTERFACE", TEXT(agent.interface, "NAME"), FOR_AGENT,
	.dflt = "", .also = "iface nic",
	.help = "network interface whose first address is listened on; empty: any"},
{"agent.seeds", "--seed", "DUNLIN_SEEDS", LIST(agent.seeds, "HOST:PORT", GOSSIP_SEEDS_MAX),
	.taken_by = TAKEN_BY_AGENT, .dflt = "", .also = "join bootstrap peers",
	.help = "agents to join through, any of them; the flag may be repeated"},
{"agent.keys", "--key", "DUNLIN_KEYS", LIST(agent.keys, "FILE", SECRETS_MAX), FOR_AGENT,
	.dflt = "", .also = "secret psk",
	.help = "files with the flock's secret, see keygen; the flag may be repeated"},
{"agent.allow", "--allow", NULL, TEXT(agent.allow, "FILE"), FOR_AGENT,
	.dflt = "", .also = "allowlist whitelist",
	.help = "list of the ids that may take part; empty: all that have the key"},
{"agent.block", "--block", NULL, TEXT(agent.block, "FILE"), FOR_AGENT,
	.dflt = "", .also = "blocklist blacklist ban deny",
	.help = "list of the ids that may not take part; empty: none"},
{"agent.dialable", "--dialable", NULL, BOOL(agent.dialable), FOR_AGENT,
	.dflt = "true", .also = "reachable nat",
	.help = "peers may dial this agent; false behind a NAT or firewall"},
{"agent.profile", "--profile", NULL, CHOICE(agent.profile, profiles), FOR_AGENT,
	.dflt = "lan", .also = "timings",
	.help = "timings for a local network, or for slower links"},
{"agent.members_max", "--members-max", NULL, INT(agent.members_max, 2, GOSSIP_MEMBERS_MAX),
	FOR_AGENT, .dflt = "4096", .also = "max_members",
	.help = "peers kept in memory, the dead and departed included"},
{"agent.state_dir", "--state-dir", "DUNLIN_STATE_DIR", TEXT(agent.state_dir, "DIR"), FOR_ASKER,
	.dflt = "", .also = "state data_dir",
	.help = "folder of identity and known peers; empty: by the name"},
{"agent.socket", "--socket", "DUNLIN_SOCKET", TEXT(agent.socket, "FILE"), FOR_ASKER,
	.dflt = "", .also = "control sock",
	.help = "local socket for status and commands; empty: by the name"},

{"log.level", "--log-level", "DUNLIN_LOG_LEVEL", CHOICE(log.level, log_levels), FOR_LOG,
	.dflt = "info", .also = "verbose quiet verbosity",
	.help = "how much is told on stderr"},
{"log.format", "--log-format", "DUNLIN_LOG_FORMAT", CHOICE(log.format, log_formats), FOR_LOG,
	.dflt = "text",
	.help = "lines for people, or for machines"},
};
/* clang-format on */
const int n_settings = (int)(sizeof settings / sizeof *settings);
_Static_assert(sizeof settings / sizeof *settings <= CONFIG_SETTINGS_MAX, "one line number each");

/* SPDX-License-Identifier: MIT */
/* The one table of settings, in the order in which files and help texts show them. A row gives the
 * field of struct config, the key of the config file, the flag, the environment variable, the only
 * range, the default, the help text, the completion and the entry of the man page. A new setting is
 * a row here, and its use.
 *
 *     TYPE(section, field, range or size, key, flag, environment or NULL, who takes it, ...)
 *
 *     INT, REAL    least, most             int64_t, double
 *     BOOL                                 bool; also has --no-flag
 *     CHOICE       list of words           int, the place in the list
 *     TEXT         bytes, value's name     char[bytes]; with .min = 1 it may not be empty
 *     LIST         items, value's name     char[LIMIT_LIST], see textlist.h
 *
 * IN(TYPE(...)) is a row for a field of one of the structs that PART names. SHARED: all agents of a
 * run must have the same value, so join lines have it. .also are words that people try instead of
 * the key. Help texts begin with a small letter and have no full stop. The keys of a section stand
 * together, its own before those of the sections in it.
 *
 * This file is included several times, with the macros as they are needed. */

/* clang-format off */
MODEL("model", "--model", NULL,
	FOR_EVAL, SHARED, .dflt = "cnn", .also = "arch network preset net",
	.help = "the model: preset mlp, cnn, resnet20 or gpt; in a file also {\"layers\": [...]}")

SECTION(gpt)
INT(gpt, layers, 1, ARCH_GPT_LAYERS_MAX, "gpt.layers", "--gpt-layers", NULL,
	FOR_EVAL, SHARED, .dflt = "4", .also = "n_layer num_layers depth blocks",
	.help = "blocks of preset gpt, of attention and an mlp each")
INT(gpt, width, 1, 65536, "gpt.width", "--gpt-width", NULL,
	FOR_EVAL, SHARED, .dflt = "256", .also = "n_embd hidden_size dim",
	.help = "width of preset gpt; its mlps are four times as wide")
INT(gpt, heads, 1, 1024, "gpt.heads", "--gpt-heads", NULL,
	FOR_EVAL, SHARED, .dflt = "4", .also = "n_head num_heads",
	.help = "heads of attention of preset gpt; they divide the width")
END(gpt)

SECTION(data)
PART(struct augment, augment)
PART(struct partition, partition)
CHOICE(data, format, data_format_names, "data.format", "--data-format", "DUNLIN_DATA_FORMAT",
	FOR_EVAL, SHARED, .dflt = "auto", .also = "dataset type kind",
	.help = "what data.path has; auto goes by its files, never to tokens16 or tokens32")
TEXT(data, path, LIMIT_PATH, "PATH", "data.path", "--data", "DUNLIN_DATA",
	FOR_EVAL, SHARED, .dflt = "", .also = "folder dir root",
	.help = "folder of the data; of tokens also a file, or '*.bin'; empty: the files below")
TEXT(data, train_images, LIMIT_PATH, "FILE", "data.train_images", "--train-images",
	"DUNLIN_TRAIN_IMAGES",
	FOR_TRAIN, .min = 1, SHARED, .dflt = FASHION "train-images-idx3-ubyte.gz",
	.also = "images",
	.help = "images to train on: IDX, plain or gzip")
TEXT(data, train_labels, LIMIT_PATH, "FILE", "data.train_labels", "--train-labels",
	"DUNLIN_TRAIN_LABELS",
	FOR_TRAIN, .min = 1, SHARED, .dflt = FASHION "train-labels-idx1-ubyte.gz",
	.also = "labels",
	.help = "labels of the training images")
TEXT(data, test_images, LIMIT_PATH, "FILE", "data.test_images", "--test-images",
	"DUNLIN_TEST_IMAGES",
	FOR_EVAL, SHARED, .dflt = FASHION "t10k-images-idx3-ubyte.gz",
	.help = "images to test on; empty: no test")
TEXT(data, test_labels, LIMIT_PATH, "FILE", "data.test_labels", "--test-labels",
	"DUNLIN_TEST_LABELS",
	FOR_EVAL, SHARED, .dflt = FASHION "t10k-labels-idx1-ubyte.gz",
	.help = "labels of the test images")
INT(data, classes, 0, LIMIT_CLASSES, "data.classes", "--classes", NULL,
	FOR_EVAL, SHARED, .dflt = "0", .also = "num_classes vocabulary vocab_size",
	.help = "classes, or the tokens of the vocabulary; 0: as many as labels or format have")
INT(data, context, 1, LIMIT_CONTEXT, "data.context", "--context", NULL,
	FOR_EVAL, SHARED, .dflt = "128", .also = "block_size seq_len n_ctx",
	.help = "tokens in a sample, for data that are tokens")
REAL(data, validation, 0, 0.9, "data.validation", "--validation", NULL,
	FOR_TRAIN, SHARED, .dflt = "0", .also = "val validation_split",
	.help = "fraction of the training images held out to choose the best checkpoint")
INT(data, seed, 0, SEED_MAX, "data.seed", "--data-seed", NULL,
	FOR_TRAIN, .dflt = "1", .also = "shuffle_seed",
	.help = "seed of image order and augmentation; an agent also uses its id")
INT(data, ahead, 0, LIMIT_READ_AHEAD, "data.read_ahead", "--read-ahead", NULL,
	FOR_EVAL, .dflt = "2", .also = "prefetch workers num_workers",
	.help = "batches prepared in advance on another thread; 0: none")
IN(BOOL(data, augment.flip, "data.augment.flip", "--flip", NULL,
	FOR_TRAIN, SHARED, .dflt = "false", .also = "mirror",
	.help = "mirror images left to right, one time in two"))
IN(INT(data, augment.shift, 0, 1024, "data.augment.shift", "--shift", NULL,
	FOR_TRAIN, SHARED, .dflt = "0", .also = "crop",
	.help = "shift images by up to N pixels in each direction"))
IN(REAL(data, augment.scale, 0, 0.9, "data.augment.scale", "--scale", NULL,
	FOR_TRAIN, SHARED, .dflt = "0", .also = "zoom resize",
	.help = "resize images by up to this fraction, larger or smaller"))
IN(CHOICE(data, partition.kind, partition_kinds, "data.partition.kind", "--partition", NULL,
	FOR_TRAIN, SHARED, .dflt = "all", .also = "split",
	.help = "how to divide the training images; label skews the labels of each part"))
IN(INT(data, partition.parts, 1, 1000000, "data.partition.parts", "--parts", "DUNLIN_PARTS",
	FOR_TRAIN, SHARED, .dflt = "1", .also = "shards",
	.help = "number of parts, for shard and label"))
IN(INT(data, partition.part, 0, 999999, "data.partition.part", "--part", "DUNLIN_PART",
	FOR_TRAIN, .dflt = "0", .also = "shard rank",
	.help = "the part of this agent, from 0, for shard and label"))
IN(REAL(data, partition.alpha, 1e-6, 1e6, "data.partition.alpha", "--alpha", NULL,
	FOR_TRAIN, SHARED, .dflt = "1", .also = "dirichlet",
	.help = "Dirichlet concentration, for label; a smaller value skews the labels more"))
IN(INT(data, partition.seed, 0, SEED_MAX, "data.partition.seed", "--partition-seed", NULL,
	FOR_TRAIN, SHARED, .dflt = "1",
	.help = "seed of parts and validation; all parts of a data set need the same"))
END(data)

SECTION(train)
PART(struct optim_config, optim)
REAL(train, epochs, 0.0001, 1e6, "train.epochs", "--epochs", NULL,
	FOR_TRAIN, SHARED, .dflt = "10", .also = "num_epochs",
	.help = "passes over the training images; may be a fraction")
INT(train, batch, 1, LIMIT_BATCH, "train.batch", "--batch", NULL,
	FOR_EVAL, SHARED, .dflt = "64", .also = "batch_size",
	.help = "images per batch")
INT(train, accumulate, 1, 65536, "train.accumulate", "--accumulate", NULL,
	FOR_TRAIN, SHARED, .dflt = "1", .also = "grad_accum accumulation",
	.help = "batches whose gradients make one step")
CHOICE(train, batch_adapt, batch_adapts, "train.batch_adapt", "--batch-adapt", NULL,
	FOR_TRAIN, SHARED, .dflt = "off", .also = "adaptive_batch norm_test",
	.help = "larger batches when gradients are mostly noise; norm: by the norm test")
REAL(train, batch_eta, 0.01, 100, "train.batch_eta", "--batch-eta", NULL,
	FOR_TRAIN, SHARED, .dflt = "0.8", .also = "eta",
	.help = "noise of a gradient, as a share of its length, that the norm test allows")
INT(train, batch_max, 1, LIMIT_BATCH, "train.batch_max", "--batch-max", NULL,
	FOR_TRAIN, .dflt = "1024", .also = "max_batch",
	.help = "most images in a step of this agent, with train.batch_adapt")
CHOICE(train, batch_lr, batch_lrs, "train.batch_lr", "--batch-lr", NULL,
	FOR_TRAIN, SHARED, .dflt = "keep", .also = "lr_scaling",
	.help = "how the learning rate follows a batch that grew")
IN(CHOICE(train, optim.kind, optim_kinds, "train.optimizer", "--optimizer", NULL,
	FOR_TRAIN, SHARED, .dflt = "sgd", .also = "optimiser optim",
	.help = "the optimizer"))
IN(REAL(train, optim.lr, 0, 1e12, "train.lr", "--lr", NULL,
	FOR_TRAIN, SHARED, .dflt = "0.05", .also = "learning_rate",
	.help = "learning rate, at its highest"))
IN(REAL(train, optim.momentum, 0, 0.99999, "train.momentum", "--momentum", NULL,
	FOR_TRAIN, SHARED, .dflt = "0.9",
	.help = "momentum of sgd"))
IN(BOOL(train, optim.nesterov, "train.nesterov", "--nesterov", NULL,
	FOR_TRAIN, SHARED, .dflt = "true",
	.help = "Nesterov momentum in sgd"))
IN(REAL(train, optim.beta1, 0, 0.999999, "train.beta1", "--beta1", NULL,
	FOR_TRAIN, SHARED, .dflt = "0.9",
	.help = "decay of the mean of the gradients in adamw"))
IN(REAL(train, optim.beta2, 0, 0.999999, "train.beta2", "--beta2", NULL,
	FOR_TRAIN, SHARED, .dflt = "0.999",
	.help = "decay of the mean of the squared gradients in adamw"))
IN(REAL(train, optim.eps, 1e-20, 1, "train.eps", "--eps", NULL,
	FOR_TRAIN, SHARED, .dflt = "1e-08", .also = "epsilon",
	.help = "number added to the divisor in adamw"))
IN(REAL(train, optim.weight_decay, 0, 1000, "train.weight_decay", "--weight-decay", NULL,
	FOR_TRAIN, SHARED, .dflt = "0.0005", .also = "wd l2 decay",
	.help = "weight decay; biases are not decayed"))
IN(REAL(train, optim.clip, 0, 1e9, "train.clip", "--clip", NULL,
	FOR_TRAIN, SHARED, .dflt = "0", .also = "grad_clip clip_norm max_grad_norm",
	.help = "largest norm of a gradient; longer ones are scaled down; 0: no limit"))
CHOICE(train, schedule, schedule_kinds, "train.schedule", "--schedule", NULL,
	FOR_TRAIN, SHARED, .dflt = "cosine", .also = "scheduler lr_schedule",
	.help = "learning rate schedule after the warm-up")
REAL(train, warmup_epochs, 0, 1e6, "train.warmup_epochs", "--warmup-epochs", NULL,
	FOR_TRAIN, SHARED, .dflt = "0.5", .also = "warmup",
	.help = "epochs in which the learning rate rises from 0")
REAL(train, step_epochs, 0, 1e6, "train.step_epochs", "--step-epochs", NULL,
	FOR_TRAIN, SHARED, .dflt = "0", .also = "step_size",
	.help = "epochs between two cuts of the learning rate, for step")
REAL(train, step_factor, 0, 1, "train.step_factor", "--step-factor", NULL,
	FOR_TRAIN, SHARED, .dflt = "0.1", .also = "gamma",
	.help = "factor of each cut, for step")
REAL(train, lr_floor, 0, 1, "train.lr_floor", "--lr-floor", NULL,
	FOR_TRAIN, SHARED, .dflt = "0", .also = "min_lr",
	.help = "last learning rate as a fraction of the highest, for cosine")
INT(train, seed, 0, SEED_MAX, "train.seed", "--train-seed", NULL,
	FOR_TRAIN, SHARED, .dflt = "1", .also = "seed",
	.help = "seed of the initial weights and of dropout")
END(train)

SECTION(run)
TEXT(run, out, LIMIT_PATH, "DIR", "run.out", "--out", "DUNLIN_OUT",
	.taken_by = TAKEN_BY_TRAIN | TAKEN_BY_AGENT, .dflt = "", .also = "output dir output_dir",
	.help = "folder for checkpoints, metrics and weights; empty: see FILES in dunlin(1)")
TEXT(run, metrics, LIMIT_PATH, "FILE", "run.metrics", "--metrics", "DUNLIN_METRICS",
	FOR_TRAIN, .dflt = "",
	.help = "file for the metrics, JSON lines; empty: metrics.jsonl in run.out")
TEXT(run, init_from, LIMIT_PATH, "PATH", "run.init_from", "--init-from", NULL,
	FOR_TRAIN, SHARED, .dflt = "", .also = "init pretrained weights",
	.help = "initial weights: a safetensors file, or the folder of a GPT-2; empty: random")
BOOL(run, resume, "run.resume", "--resume", NULL,
	FOR_TRAIN, .dflt = "false", .also = "restart",
	.help = "continue from the newest intact checkpoint in run.out")
REAL(run, checkpoint_s, 0, 1e9, "run.checkpoint_seconds", "--checkpoint-seconds", NULL,
	FOR_TRAIN, .dflt = "300",
	.help = "seconds between checkpoints; 0: none by time")
INT(run, checkpoint_steps, 0, 1e12, "run.checkpoint_steps", "--checkpoint-steps", NULL,
	FOR_TRAIN, .dflt = "0", .also = "save_steps",
	.help = "steps between checkpoints; 0: none by steps")
INT(run, keep, 1, LIMIT_CHECKPOINTS_KEPT, "run.keep", "--keep", NULL,
	FOR_TRAIN, .dflt = "3", .also = "keep_last",
	.help = "checkpoints to keep, besides the best")
INT(run, stop_after, 0, 1e12, "run.stop_after", "--stop-after", NULL,
	FOR_TRAIN, .dflt = "0", .also = "max_steps steps",
	.help = "save and exit after N steps of this process; 0: at the end of the run")
INT(run, eval_samples, 1, LIMIT_SAMPLES, "run.eval_samples", "--eval-samples", NULL,
	.taken_by = TAKEN_BY_AGENT | TAKEN_BY_CONFIG, .dflt = "2000",
	.help = "images of each set in an agent's evaluations; the last one takes all")
REAL(run, eval_epochs, 0.0001, 1e6, "run.eval_epochs", "--eval-epochs", NULL,
	.taken_by = TAKEN_BY_AGENT | TAKEN_BY_CONFIG, .dflt = "1",
	.help = "epochs between an agent's evaluations; may be a fraction")
TEXT(run, device, 32, "NAME", "run.device", "--device", "DUNLIN_DEVICE",
	FOR_EVAL, .min = 1, .dflt = "auto", .also = "gpu cuda",
	.help = "where to compute: auto, cpu, plain, cuda or cuda:N")
INT(run, threads, 0, LIMIT_THREADS, "run.threads", "--threads", "DUNLIN_THREADS",
	FOR_EVAL, .dflt = "0", .also = "num_threads cores cpus",
	.help = "CPU threads; 0: as many as the cores and the CPU quota allow")
BOOL(run, deterministic, "run.deterministic", "--deterministic", NULL,
	FOR_EVAL, .dflt = "false",
	.help = "make no choice by timing, so that a repeated run gives the same bits")
BOOL(run, tf32, "run.tf32", "--tf32", NULL,
	FOR_EVAL, .dflt = "false", .also = "allow_tf32",
	.help = "TF32 matrix multiplication on a GPU: faster, less precise")
END(run)

SECTION(agent)
TEXT(agent, name, LIMIT_NAME, "NAME", "agent.name", "--name", "DUNLIN_NAME",
	FOR_ASKER, .min = 1, .dflt = "agent",
	.help = "name of this agent on this machine: letters, digits, - and _")
TEXT(agent, listen, LIMIT_HOST_PORT, "HOST[:PORT]", "agent.listen", "--listen", "DUNLIN_LISTEN",
	FOR_AGENT, .min = 1, .dflt = ":13865", .also = "bind port",
	.help = "address to listen on; no host: all, IPv4 and IPv6; port 0: any free one")
LIST(agent, advertise, MEMBER_ADDRS_MAX, "HOST[:PORT]", "agent.advertise", "--advertise",
	"DUNLIN_ADVERTISE",
	FOR_AGENT, .dflt = "", .also = "public address external",
	.help = "addresses that peers are told, best first; empty: the one listened on")
TEXT(agent, interface, LIMIT_NAME, "NAME", "agent.interface", "--interface", "DUNLIN_INTERFACE",
	FOR_AGENT, .dflt = "", .also = "iface nic",
	.help = "network interface whose first address is listened on; empty: any")
LIST(agent, seeds, GOSSIP_SEEDS_MAX, "HOST[:PORT]", "agent.seeds", "--seed", "DUNLIN_SEEDS",
	.taken_by = TAKEN_BY_AGENT, .dflt = "", .also = "join bootstrap peers",
	.help = "agents to join through, port 13865 unless given; may be repeated")
LIST(agent, keys, SECRETS_MAX, "FILE", "agent.keys", "--key", "DUNLIN_KEYS",
	FOR_AGENT, .dflt = "", .also = "secret psk",
	.help = "files with the flock's secret, see keygen; may be repeated")
TEXT(agent, allow, LIMIT_PATH, "FILE", "agent.allow", "--allow", NULL,
	FOR_AGENT, .dflt = "", .also = "allowlist whitelist",
	.help = "file with the ids that may take part; empty: all that have the secret")
TEXT(agent, block, LIMIT_PATH, "FILE", "agent.block", "--block", NULL,
	FOR_AGENT, .dflt = "", .also = "blocklist blacklist ban deny",
	.help = "file with the ids that may not take part; empty: none")
TEXT(agent, owner, LIMIT_OWNER, "KEY", "agent.owner", "--owner", "DUNLIN_OWNER",
	FOR_AGENT, SHARED, .dflt = "", .also = "admission ca",
	.help = "public key of the owner, who admits agents; empty: all with the secret")
TEXT(agent, invite, LIMIT_PATH, "FILE", "agent.invite", "--invite", "DUNLIN_INVITE",
	FOR_AGENT, .dflt = "", .also = "certificate ticket",
	.help = "the owner's invite, with which this agent certifies itself; see certify")
TEXT(agent, revoked, LIMIT_PATH, "FILE", "agent.revoked", "--revoked", "DUNLIN_REVOKED",
	FOR_AGENT, .dflt = "", .also = "revocations crl",
	.help = "the owner's list of revoked agents, see revoke; peers get it too")
BOOL(agent, dialable, "agent.dialable", "--dialable", NULL,
	FOR_AGENT, .dflt = "true", .also = "reachable nat",
	.help = "peers can connect to this agent; false behind a NAT or firewall")
CHOICE(agent, profile, profiles, "agent.profile", "--profile", NULL,
	FOR_AGENT, SHARED, .dflt = "lan", .also = "timings",
	.help = "timeouts for a local network, or for slower links")
INT(agent, members_max, 2, GOSSIP_MEMBERS_MAX, "agent.members_max", "--members-max", NULL,
	FOR_AGENT, .dflt = "4096", .also = "max_members",
	.help = "peers kept in memory, including dead and departed ones")
TEXT(agent, state_dir, LIMIT_PATH, "DIR", "agent.state_dir", "--state-dir", "DUNLIN_STATE_DIR",
	FOR_ASKER, .dflt = "", .also = "state data_dir",
	.help = "folder of identity and known peers; empty: see FILES in dunlin(1)")
TEXT(agent, socket, LIMIT_PATH, "FILE", "agent.socket", "--socket", "DUNLIN_SOCKET",
	FOR_ASKER, .dflt = "", .also = "control sock",
	.help = "local socket for status and commands; empty: see FILES in dunlin(1)")
BOOL(agent, train, "agent.train", "--train", "DUNLIN_TRAIN",
	FOR_AGENT, .dflt = "true", .also = "learn",
	.help = "train; false: only keep membership, so that others can join through it")
BOOL(agent, guest, "agent.guest", "--guest", "DUNLIN_GUEST",
	FOR_AGENT, SHARED, .dflt = "false", .also = "attach pytorch",
	.help = "train with a PyTorch script that attaches, see README; not a model of its own")
REAL(agent, leave_s, 1, 86400, "agent.leave_seconds", "--leave-seconds", NULL,
	FOR_AGENT, .dflt = "20", .also = "grace",
	.help = "longest time that leaving may take")
END(agent)

SECTION(gossip)
TEXT(gossip, run, LIMIT_NAME, "NAME", "gossip.run", "--run", "DUNLIN_RUN",
	FOR_AGENT, SHARED, .dflt = "", .also = "run_id name",
	.help = "name of the run: only agents with the same name average")
CHOICE(gossip, gate, gates, "gossip.gate", "--gate", NULL,
	FOR_AGENT, SHARED, .dflt = "significance", .also = "trigger",
	.help = "rule that decides after which steps to exchange")
REAL(gossip, delta, 0, 1e6, "gossip.delta", "--delta", NULL,
	FOR_AGENT, SHARED, .dflt = "0.35", .also = "threshold",
	.help = "gradient change that is worth an exchange, for significance, selsync-code")
CHOICE(gossip, guard, guards, "gossip.guard", "--guard", NULL,
	FOR_AGENT, SHARED, .dflt = "auto", .also = "consensus",
	.help = "exchange also to keep the models near each other; auto: with significance, budget")
INT(gossip, every, 1, 1e9, "gossip.every", "--every", NULL,
	FOR_AGENT, SHARED, .dflt = "20", .also = "h period interval",
	.help = "steps of train.batch samples between two exchanges it begins, for every")
REAL(gossip, chance, 0, 1, "gossip.chance", "--chance", NULL,
	FOR_AGENT, SHARED, .dflt = "0.05", .also = "probability",
	.help = "probability that a step begins an exchange, for random")
REAL(gossip, exchanges_per_s, 0, 1e6, "gossip.exchanges_per_second", "--exchanges-per-second",
	NULL,
	FOR_AGENT, SHARED, .dflt = "0",
	.help = "target for budget: exchanges per second, begun or accepted; 0: none")
REAL(gossip, bytes_per_s, 0, 1e15, "gossip.bytes_per_second", "--bytes-per-second", NULL,
	FOR_AGENT, SHARED, .dflt = "0", .also = "bandwidth",
	.help = "target for budget: bytes uploaded per second; 0: none")
REAL(gossip, bytes_per_day, 0, 1e18, "gossip.bytes_per_day", "--bytes-per-day", NULL,
	FOR_AGENT, SHARED, .dflt = "0", .also = "quota",
	.help = "target for budget: bytes uploaded per day; 0: none")
REAL(gossip, incoming_share, 0, 0.95, "gossip.incoming_share", "--incoming-share", NULL,
	FOR_AGENT, SHARED, .dflt = "0.5",
	.help = "fraction of a budget kept for exchanges that peers begin")
REAL(gossip, upload_cap, 0, 1e15, "gossip.upload_cap", "--upload-cap", NULL,
	FOR_AGENT, .dflt = "0", .also = "max_upload limit",
	.help = "most bytes per second that exchanges upload, with any gate; 0: no cap")
INT(gossip, silence_steps, 0, 1e12, "gossip.silence_steps", "--silence-steps", NULL,
	FOR_AGENT, SHARED, .dflt = "2000",
	.help = "steps of train.batch samples without an exchange until one is due; 0: none")
REAL(gossip, silence_s, 0, 1e9, "gossip.silence_seconds", "--silence-seconds", NULL,
	FOR_AGENT, SHARED, .dflt = "30",
	.help = "seconds without an exchange after which one is due; 0: no limit")
CHOICE(gossip, exchange, exchanges, "gossip.exchange", "--exchange", NULL,
	FOR_AGENT, SHARED, .dflt = "pair", .also = "mode symmetric",
	.help = "model that an exchange changes (both, the partner's, this agent's)")
CHOICE(gossip, outer, outers, "gossip.outer", "--outer", NULL,
	FOR_AGENT, SHARED, .dflt = "none", .also = "outer_optimizer noloco qgm",
	.help = "optimizer around the exchanges: noloco for rare ones, qgm where labels differ")
REAL(gossip, outer_momentum, 0, OUTER_MOMENTUM_MAX, "gossip.outer_momentum", "--outer-momentum",
	NULL,
	FOR_AGENT, SHARED, .dflt = "0.5", .also = "outer_alpha",
	.help = "momentum of noloco; more than 0.7 diverges on random pairs")
REAL(gossip, outer_rate, 0.01, 1, "gossip.outer_rate", "--outer-rate", NULL,
	FOR_AGENT, SHARED, .dflt = "0.7", .also = "outer_lr",
	.help = "learning rate of noloco; 1 with momentum 0: plain averaging")
REAL(gossip, beta, 0.001, 1, "gossip.beta", "--beta", NULL,
	FOR_AGENT, SHARED, .dflt = "0.5", .also = "mixing",
	.help = "how far to move towards the partner: 0.5 is the mean of both")
CHOICE(gossip, wire, wires, "gossip.wire", "--wire", NULL,
	FOR_AGENT, SHARED, .dflt = "auto", .also = "format dtype compression",
	.help = "format of parameters on the network; mod8, mod4: 8 and 4 bits, on CPUs without "
		"batch norm, with pair; auto: mod8, or bf16 where that cannot be")
REAL(gossip, peer_rate, 0, 1e6, "gossip.peer_rate", "--peer-rate", NULL,
	FOR_AGENT, .dflt = "0",
	.help = "exchanges per second that a peer may begin; 0: one for each step, 50 to 1000")
REAL(gossip, rate_cap, 0, 1e15, "gossip.rate_cap", "--rate-cap", NULL,
	FOR_AGENT, .dflt = "0",
	.help = "samples per second that one peer may claim, if no invite says; 0: 256 medians")
REAL(gossip, stale, 0.0001, 1, "gossip.stale", "--stale", NULL,
	FOR_AGENT, SHARED, .dflt = "0.1",
	.help = "fraction of the run: an agent that missed more takes a peer's state")
REAL(gossip, join_s, 0, 1e6, "gossip.join_seconds", "--join-seconds", NULL,
	FOR_AGENT, .dflt = "10",
	.help = "with seeds: seconds to look for the flock before training alone")
REAL(gossip, merge_s, 0, 1e6, "gossip.merge_seconds", "--merge-seconds", NULL,
	FOR_AGENT, SHARED, .dflt = "60",
	.help = "at the end: most seconds for merging the models; 0: do not merge")
REAL(gossip, stay_s, 0, 1e6, "gossip.stay_seconds", "--stay-seconds", NULL,
	FOR_AGENT, .dflt = "10", .also = "linger",
	.help = "at the end: seconds without an exchange before the agent leaves")
END(gossip)

SECTION(log)
CHOICE(log, level, log_levels, "log.level", "--log-level", "DUNLIN_LOG_LEVEL",
	FOR_LOG, .dflt = "info", .also = "verbose quiet verbosity",
	.help = "how much to log on stderr")
CHOICE(log, format, log_formats, "log.format", "--log-format", "DUNLIN_LOG_FORMAT",
	FOR_LOG, .dflt = "text",
	.help = "log lines for people, or for programs")
END(log)
/* clang-format on */

#undef MODEL
#undef SECTION
#undef PART
#undef END
#undef IN
#undef INT
#undef REAL
#undef BOOL
#undef CHOICE
#undef TEXT
#undef LIST

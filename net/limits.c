/* SPDX-License-Identifier: MIT */
/* Every limit of the program in one table, to be shown. The network's own carry their meaning where
 * they are defined; the others get theirs here, and a test that reads the headers misses any that
 * is not in the table. */
#include "net/limits.h"

#include "agent/base/limits.h"
#include "gossip/limits.h"

/* clang-format off */
#define L(name, meaning) {#name, (unsigned long long)(name), meaning}
#define X(name, value, meaning) L(name, meaning),

const struct limit limit_list[] = {
	/* training */
	L(LIMIT_CONFIG_BYTES, "bytes of a config file"),
	L(LIMIT_CONFIG_ERRORS, "problems told by one config check"),
	L(LIMIT_PATH, "bytes of a path in a config"),
	L(LIMIT_NAME, "bytes of the name of a preset, an agent or a run"),
	L(LIMIT_OWNER, "bytes of an owner's public key in a config"),
	L(LIMIT_HOST_PORT, "bytes of an address in a config"),
	L(LIMIT_LIST, "bytes of a list of strings in a config"),
	L(LIMIT_CONTROL_CLIENTS, "connections to the control socket"),
	L(LIMIT_CONTROL_LINE, "bytes of a request there"),
	L(LIMIT_CONTROL_OUT, "bytes of an answer, or a part of one, that wait"),
	L(LIMIT_PEERS_FILE, "bytes of the file of known peers"),
	L(LIMIT_LOG_BURST, "lines of one kind in the log at once that others cause"),
	L(LIMIT_LOG_RATE, "the same, a second"),
	L(LIMIT_LOG_DEBUG_BURST, "the same at level debug, at once"),
	L(LIMIT_LOG_DEBUG_RATE, "the same at level debug, a second"),
	L(LIMIT_LOG_QUIET_MS, "milliseconds without such a line until those left out are told"),
	L(LIMIT_LAYERS, "layers of one model"),
	L(LIMIT_DIM, "one dimension of a tensor"),
	L(LIMIT_PARAMS, "parameters of one model"),
	L(LIMIT_ACTIVATION_BYTES, "bytes of activations"),
	L(LIMIT_BATCH, "samples in one step on one agent"),
	L(LIMIT_CLASSES, "classes of a data set, or tokens of a vocabulary"),
	L(LIMIT_CONTEXT, "tokens of a sample"),
	L(LIMIT_THREADS, "threads of one agent"),
	L(LIMIT_SAMPLES, "samples of one data set"),
	L(LIMIT_NORM_CHANNELS, "channels with a mean and a deviation of their own"),
	L(LIMIT_IDX_BYTES, "bytes of one data file, unpacked"),
	L(LIMIT_READ_AHEAD, "batches prepared before they are asked for"),
	L(LIMIT_TENSOR_NAME, "bytes of a tensor's name in a model"),
	L(LIMIT_LAYER_NAME, "bytes of a layer's name"),
	L(LIMIT_SAFETENSORS_HEADER, "bytes of a safetensors file's header"),
	L(LIMIT_TENSORS, "tensors in one file"),
	L(LIMIT_TENSOR_RANK, "dimensions of a tensor"),
	L(LIMIT_CHECKPOINTS_KEPT, "checkpoints kept besides the best"),
	/* membership */
	L(GOSSIP_MEMBERS, "known peers, the dead and departed included"),
	L(GOSSIP_MEMBERS_MAX, "the same, that a configuration may ask for"),
	L(GOSSIP_RETIRED_PER_MEMBER, "slots for forgotten agents, for each member"),
	L(GOSSIP_DATAGRAM_BYTES, "bytes of a datagram, sealing included"),
	L(GOSSIP_UPDATES_MAX, "pieces of news in one message"),
	L(GOSSIP_UPDATE_BYTES, "bytes of one signed piece of news"),
	L(GOSSIP_SKETCH_BYTES, "bytes of a sketch"),
	L(MEMBER_ADDRS_MAX, "addresses of one agent"),
	L(GOSSIP_SENDS_MAX, "messages sent by one step"),
	L(GOSSIP_NOTICES_MAX, "notices of one step"),
	L(GOSSIP_RESOLVES_MAX, "names resolved by one step"),
	L(GOSSIP_SEEDS_MAX, "seeds"),
	L(GOSSIP_SEED_ADDRESSES, "addresses of one seed"),
	L(GOSSIP_RELAYS, "indirect probes that we help with at one time"),
	L(GOSSIP_SYNCS, "whole states that we are sending at one time"),
	L(GOSSIP_REMEMBERED, "addresses of earlier runs that are still to be tried"),
	L(GOSSIP_ACCUSERS, "distinct accusers that a suspicion keeps"),
	L(GOSSIP_REFUTED, "accusers that a member is remembered to have refuted"),
	L(GOSSIP_HEALTH_MAX, "how ill we may think ourselves"),
	L(GOSSIP_SAMPLES_MAX, "samples that one agent may claim to have trained"),
	L(GOSSIP_TRANSMITS_MAX, "times that one piece of news is sent"),
	/* network */
	L(AEAD_BYTES_MAX, "bytes sealed at once"),
	L(AEAD_AD_MAX, "bytes of associated data"),
	L(AEAD_OFFER_MAX, "ciphers in a peer's offer"),
	L(NOISE_MESSAGE_MAX, "bytes of a Noise message, as Noise has it"),
	L(NOISE_PSKS_MAX, "pre-shared keys of one handshake"),
	L(NOISE_PROLOGUE_MAX, "bytes of a handshake's prologue"),
	L(SECRETS_MAX, "secrets of one flock, for rotation"),
	L(KEYFILE_BYTES_MAX, "bytes of a file of secrets, comments included"),
	NET_LIMITS(X)
};
/* clang-format on */
const int limit_count = (int)(sizeof limit_list / sizeof limit_list[0]);

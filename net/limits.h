/* SPDX-License-Identifier: MIT */
/* Every bound of the network: what a stranger, a peer or a key file may make us hold or do. */
#ifndef DUNLIN_NET_LIMITS_H
#define DUNLIN_NET_LIMITS_H

/* ---- ciphers and handshake */
#define AEAD_BYTES_MAX (1u << 30) /* sealed at once: libcrypto counts in int */
#define AEAD_AD_MAX (1u << 16)    /* additional data */
#define AEAD_OFFER_MAX 8          /* ciphers in a peer's offer */
#define NOISE_MESSAGE_MAX 65535   /* one handshake message: Noise's own bound */
#define NOISE_PSKS_MAX 4          /* psk0 … psk3 */
#define NOISE_PROLOGUE_MAX (1u << 16)

/* ---- key files */
#define SECRETS_MAX 3          /* of one flock: rotation wants the old, the new, one spare */
#define KEYFILE_BYTES_MAX 4096 /* a file of secrets, comments included */

_Static_assert(AEAD_OFFER_MAX >= 3, "our own ciphers must fit into an offer");

/* ---- messages, frames, datagrams, strangers, lists. Name, value, meaning: `dunlin agent
 * --print-limits` shows them all (net/limits.c). */
#define NET_LIMITS(X)                                                                       \
	X(WIRE_DEPTH_MAX, 4, "arrays inside each other in one message")                     \
	X(WIRE_VALUES_MAX, 1024, "values in one message, skipped ones included")            \
	X(WIRE_BYTES_MAX, 4744, "bytes of the largest message that we send")                \
	X(WIRE_HELLO_MAX, 576, "bytes of the largest payload in a handshake")               \
	X(WIRE_WORDS_MAX, 200, "bytes of text in a refusal or a goodbye")                   \
	X(FRAME_MESSAGE_MAX, 16384, "bytes of a frame on the control channel")              \
	X(FRAME_CHUNK_MAX, 1048576, "bytes of parameters in one frame")                     \
	X(BULK_GROUPS_MAX, 32, "groups of layers whose distances a transfer tells apart")   \
	X(FRAME_REKEY_FRAMES, 65536, "frames sealed under one key")                         \
	X(FRAME_REKEY_BYTES, 1073741824, "bytes sealed under one key, and one frame more")  \
	X(OPENING_BYTES_MAX, 1024, "bytes of one message of a handshake")                   \
	X(DATAGRAM_WINDOW, 1024, "datagrams that may overtake one and leave it acceptable") \
	X(DATAGRAM_SAME_HINT, 4, "senders that may share a hint")                           \
	X(BUDGET_SLOTS, 256, "connections that have not proved the flock's key")            \
	X(BUDGET_SLOTS_KNOWN, 64, "more of them, from where agents proved themselves")      \
	X(BUDGET_KNOWN, 512, "addresses where agents proved themselves")                    \
	X(BUDGET_SLOTS_PREFIX, 32, "the same of one address (IPv6: of one /64)")            \
	X(BUDGET_BYTES, 4096, "bytes read from a connection before it has proved itself")   \
	X(BUDGET_HANDSHAKE_MS, 5000, "milliseconds for a whole handshake")                  \
	X(BUDGET_ADDRESSES, 1024, "addresses whose cost is remembered")                     \
	X(BUDGET_RATE, 20, "failed handshakes a second of one address")                     \
	X(BUDGET_BURST, 128, "failed handshakes at once of one address")                    \
	X(BUDGET_RATE_ALL, 200, "failed handshakes a second in all")                        \
	X(BUDGET_BURST_ALL, 1024, "failed handshakes at once in all")                       \
	X(BUDGET_DH_RATE, 5, "Diffie-Hellmans a second for replays from one address")       \
	X(BUDGET_DH_BURST, 64, "Diffie-Hellmans at once for replays from one address")      \
	X(BUDGET_DH_RATE_ALL, 50, "Diffie-Hellmans a second for replays in all")            \
	X(BUDGET_DH_BURST_ALL, 256, "Diffie-Hellmans at once for replays in all")           \
	X(TURN_US, 2000, "microseconds of peers' messages in one turn of the loop")         \
	X(SHARE_PCT, 3, "percent of a core that one peer's messages may take")              \
	X(SHARE_BURST_MS, 50, "milliseconds of a core that they may take at once")          \
	X(VERIFY_PEERS, 1024, "peers whose verifications are counted")                      \
	X(VERIFY_BURST, 1024, "signatures of one peer's news verified at once")             \
	X(VERIFY_RATE, 64, "the same, a second")                                            \
	X(VERIFY_TURN_US, 2000, "microseconds of verifying datagrams' news in one turn")    \
	X(VERIFY_BAD_MAX, 3, "bad signatures that end a peer's session")                    \
	X(VERIFY_DEAF_MS, 60000, "milliseconds that its news is not heard then")            \
	X(BULK_KEPT, 4, "bulk connections kept between two exchanges")                      \
	X(BULK_KEPT_MS, 60000, "milliseconds that one is kept")                             \
	X(LIST_IDS_MAX, 65536, "ids in an allow- or block-list")                            \
	X(LIST_BYTES_MAX, 16777216, "bytes of an allow- or block-list, comments included")  \
	X(INVITE_AGENTS_MAX, 65536, "agents that one invite may stand for")                 \
	X(INVITE_RATE_MAX, 1000000000, "samples a second that an invite may state")         \
	X(REVOKED_MAX, 64, "labels and ids in the owner's list of revoked ones")            \
	X(ADMISSION_INVITES, 256, "invites of which certificates are known")                \
	X(CERTIFICATES_MAX, 8, "certificates in one message")                               \
	X(CERTIFICATES_WANTED, 64, "ids whose certificate is asked for at one time")        \
	X(CERTIFICATES_RATE, 256, "certificates a second that one peer has us verify")      \
	X(CERTIFICATES_HELD_MS, 120000, "milliseconds that a record waits for one")         \
	X(CERTIFICATES_DIALS, 4, "dials at one time to ask for certificates")               \
	X(SETTINGS_BYTES_MAX, 65536, "bytes of a run's settings, as a joiner asks for them") \
	X(SETTINGS_PART, 4096, "bytes of them in one message")

enum net_limit {
#define X(name, value, meaning) name = value,
	NET_LIMITS(X)
#undef X
};

/* Every limit of the program with its value, those of other folders included. */
struct limit {
	const char *name;
	unsigned long long value;
	const char *meaning;
};
extern const struct limit limit_list[];
extern const int limit_count;

_Static_assert(WIRE_BYTES_MAX <= FRAME_MESSAGE_MAX, "our own messages must fit into a frame");
_Static_assert(WIRE_HELLO_MAX + 96 + 16 <= OPENING_BYTES_MAX, "two keys, three tags, a payload");
_Static_assert(2 * (OPENING_BYTES_MAX + 3) <= BUDGET_BYTES, "an honest handshake must fit");
_Static_assert(FRAME_CHUNK_MAX < 1 << 24, "a frame's length has 24 bits");
_Static_assert(DATAGRAM_WINDOW % 64 == 0, "the window is made of words");
_Static_assert(BUDGET_SLOTS_PREFIX < BUDGET_SLOTS, "one address must not hold every slot");
_Static_assert(BUDGET_SLOTS_PREFIX < BUDGET_SLOTS_KNOWN, "alike");
_Static_assert(BUDGET_SLOTS + BUDGET_SLOTS_KNOWN + BUDGET_KNOWN < BUDGET_ADDRESSES,
        "there is always an address that may be forgotten");
_Static_assert(BUDGET_BURST < BUDGET_BURST_ALL && BUDGET_RATE < BUDGET_RATE_ALL, "a share");
_Static_assert(
        BUDGET_DH_BURST < BUDGET_DH_BURST_ALL && BUDGET_DH_RATE < BUDGET_DH_RATE_ALL, "a share");
_Static_assert(65ull * LIST_IDS_MAX <= LIST_BYTES_MAX, "a full list must be readable");

#endif

/* SPDX-License-Identifier: MIT */
/* Every bound of the network: what a stranger, a peer or a key file may make us hold or do. */
#ifndef DUNLIN_NET_LIMITS_H
#define DUNLIN_NET_LIMITS_H

/* ---- ciphers and handshake */
#define AEAD_BYTES_MAX (1u << 30)    /* sealed at once: libcrypto counts in int */
#define AEAD_AD_MAX (1u << 16)       /* additional data */
#define AEAD_OFFER_MAX 8             /* ciphers in a peer's offer */
#define NOISE_MESSAGE_MAX 65535      /* one handshake message: Noise's own bound */
#define NOISE_PSKS_MAX 4             /* psk0 … psk3 */
#define NOISE_PROLOGUE_MAX (1u << 16)

/* ---- key files */
#define SECRETS_MAX 3                /* of one flock: rotation wants the old, the new, one spare */
#define KEYFILE_BYTES_MAX 4096       /* a file of secrets, comments included */

_Static_assert(AEAD_OFFER_MAX >= 3, "our own ciphers must fit into an offer");

#endif

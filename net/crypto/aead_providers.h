/* SPDX-License-Identifier: MIT */
/* The entries of aead_list. Internal to the ciphers. */
#ifndef DUNLIN_NET_CRYPTO_AEAD_PROVIDERS_H
#define DUNLIN_NET_CRYPTO_AEAD_PROVIDERS_H

#include "net/crypto/aead.h"

#include <sodium.h>

/* libsodium has AEGIS since 1.0.19. */
#ifdef crypto_aead_aegis128l_KEYBYTES
#define AEAD_HAVE_AEGIS 1
extern const struct aead aead__sodium_aegis_128l;
#endif

extern const struct aead aead__sodium_chacha20_poly1305, aead__sodium_aes_256_gcm;

#ifdef HAVE_LIBCRYPTO
extern const struct aead aead__crypto_chacha20_poly1305, aead__crypto_aes_256_gcm;
#endif

#endif

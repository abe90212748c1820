# SPDX-License-Identifier: MIT
# What moves bytes.

libnet_a_SOURCES = \
	net/bulk/bulk.c \
	net/bulk/bulk.h \
	net/bulk/bulk_stream.c \
	net/bulk/bulk_stream.h \
	net/bulk/convert.c \
	net/bulk/convert.h \
	net/bulk/lattice.c \
	net/bulk/lattice.h \
	net/codec/datagram.c \
	net/codec/datagram.h \
	net/codec/datagram_table.c \
	net/codec/frame.c \
	net/codec/frame.h \
	net/codec/wire.c \
	net/codec/wire.h \
	net/codec/wire_decode.c \
	net/codec/wire_scan.c \
	net/codec/wire_scan.h \
	net/codec/wire_signed.c \
	net/codec/wire_table.c \
	net/codec/wire_table.h \
	net/crypto/aead.c \
	net/crypto/aead.h \
	net/crypto/aead_providers.h \
	net/crypto/aead_sodium.c \
	net/crypto/certificate.c \
	net/crypto/certificate.h \
	net/crypto/identity.c \
	net/crypto/identity.h \
	net/crypto/keyfile.c \
	net/crypto/keyfile.h \
	net/crypto/noise.c \
	net/crypto/noise.h \
	net/crypto/noise_pattern.c \
	net/crypto/noise_pattern.h \
	net/crypto/owner.c \
	net/crypto/owner.h \
	net/crypto/secret.c \
	net/crypto/secret.h \
	net/limits.c \
	net/limits.h \
	net/transport/addr.c \
	net/transport/admission.c \
	net/transport/admission.h \
	net/transport/backoff.c \
	net/transport/budget.c \
	net/transport/budget.h \
	net/transport/certificates.c \
	net/transport/conn.c \
	net/transport/handshake.c \
	net/transport/links.c \
	net/transport/kept.c \
	net/transport/room.c \
	net/transport/settings.c \
	net/transport/lists.c \
	net/transport/lists.h \
	net/transport/transport.c \
	net/transport/transport.h \
	net/transport/transport_internal.h \
	net/transport/transport_send.c \
	net/transport/turn.c \
	net/transport/verify_budget.c \
	net/transport/verify_budget.h
if HAVE_LIBCRYPTO
libnet_a_SOURCES += net/crypto/aead_crypto.c
endif

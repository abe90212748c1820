/* SPDX-License-Identifier: MIT */
/* Any bytes as a message. What is accepted must be in range (the encoder asserts that), must be
 * written again within its bound, and must then come back as the very same bytes. */
#include "net/codec/datagram.h"
#include "net/codec/wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct wire_message m, again;
	static uint8_t one[WIRE_BYTES_MAX], two[WIRE_BYTES_MAX];
	size_t n, k;
	struct err e = {0};
	int rc = wire_decode(data, size, &m, &e);
	if (rc) {
		if (rc > 0 || e.code != rc || !e.msg[0])
			abort();
		return 0;
	}
	if (wire_encode(&m, one, sizeof one, &n) || n > size)
		abort(); /* the shortest form of what was read is no longer than that */
	if (m.kind <= MESSAGE_SKETCH && n + DATAGRAM_OVERHEAD > gossip_message_bytes(&m.gossip))
		abort();
	if (wire_decode(one, n, &again, &e) || wire_encode(&again, two, sizeof two, &k))
		abort();
	if (n != k || memcmp(one, two, n) != 0)
		abort();
	return 0;
}

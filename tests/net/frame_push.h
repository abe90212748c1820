/* SPDX-License-Identifier: MIT */
/* Bytes that lie elsewhere already, for a reader of frames. */
#ifndef DUNLIN_TESTS_NET_FRAME_PUSH_H
#define DUNLIN_TESTS_NET_FRAME_PUSH_H

#include "net/codec/frame.h"

#include <string.h>

/* Returns how many were taken. */
static inline size_t frame_push(struct frame_reader *r, const uint8_t *bytes, size_t len)
{
	size_t room;
	uint8_t *to = frame_room(r, &room);
	size_t n = len < room ? len : room;
	memcpy(to, bytes, n);
	frame_fed(r, n);
	return n;
}

#endif

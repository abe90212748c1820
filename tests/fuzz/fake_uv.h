/* SPDX-License-Identifier: MIT */
/* The part of libuv that the transport uses, without a loop, a socket or a clock: every function of
 * that name here takes the place of libuv's, and a test decides what happens when.
 *
 *     uv_write ──► waits ─fake_flush─► the other end's bytes ─fake_deliver─► it reads
 *     uv_tcp_connect ──► waits ──fake_connect──► accepted there, refused, or taken by the test
 *     uv_close ──► waits ──fake_reap──► cancelled requests, then the close callback
 *     uv_udp_send ──► a packet that the test delivers, or does not
 *
 * As libuv does, it calls back only from these functions, never from inside a call of the user's.
 */
#ifndef DUNLIN_TESTS_FUZZ_FAKE_UV_H
#define DUNLIN_TESTS_FUZZ_FAKE_UV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#define FAKE_HANDLES 48
#define FAKE_BYTES 65536 /* on their way to one socket */
#define FAKE_PACKETS 8   /* of more, the oldest is lost */
#define FAKE_PACKET_BYTES 1500

enum fake_kind { FAKE_FREE, FAKE_TCP, FAKE_LISTENER, FAKE_UDP, FAKE_TIMER, FAKE_IDLE };

struct fake_write {
	struct fake_write *next;
	uv_write_t *req;
	uv_write_cb cb;
	uv_buf_t buf;
	uv_udp_send_t *udp; /* instead of req */
	uv_udp_send_cb udp_cb;
};

struct fake_handle {
	enum fake_kind kind;
	uv_handle_t *h; /* the user's */
	bool closing;
	uv_close_cb close_cb;
	struct sockaddr_in addr; /* bound, or of the other end */
	/* tcp */
	int peer;     /* the other end; −1: none, or the test itself */
	bool cut;     /* the other end is gone */
	bool reading; /* between uv_read_start and uv_read_stop */
	uv_alloc_cb alloc_cb;
	uv_read_cb read_cb;
	uv_connect_t *connect; /* waits */
	uv_connect_cb connect_cb;
	struct fake_write *first;
	size_t n_in;
	uint8_t in[FAKE_BYTES];
	/* listener */
	uv_connection_cb connection_cb;
	int accepts; /* whom uv_accept is to connect with; −1: the test */
	struct sockaddr_in from;
	/* udp, timer, idle */
	uv_udp_recv_cb recv_cb;
	uv_timer_cb timer_cb;
	uv_idle_cb idle_cb;
	uint64_t due_ms, repeat_ms;
};

struct fake_packet {
	size_t len; /* 0: none */
	struct sockaddr_in from, to;
	uint8_t bytes[FAKE_PACKET_BYTES];
};

extern struct fake_handle fake_handle[FAKE_HANDLES];
extern struct fake_packet fake_packet[FAKE_PACKETS];
extern uint64_t fake_now_ms;

void fake_reset(void);
/* status 0: whoever listens at that address accepts; with nobody there, the test is its peer. */
void fake_connect(int i, int status);
/* The test itself connects; returns the accepted handle, −1: nobody listens, or it was refused. */
int fake_dial(const struct sockaddr_in *to, const struct sockaddr_in *from);
/* Written bytes go to the other end as far as there is room; status: how the requests end. */
void fake_flush(int i, int status);
/* At most n bytes are read; then, if the other end is gone, the end. */
void fake_deliver(int i, size_t n);
void fake_cut(int i); /* the other end is gone */
/* Bytes for i to read; false: no room. */
bool fake_put(int i, const uint8_t *bytes, size_t len);
void fake_packet_arrives(const struct fake_packet *p);
void fake_reap(void);              /* all that are closing */
void fake_pass(uint64_t ms);       /* time, and the timers due then */
bool fake_is_tcp(int i);           /* and open */
int fake_find(const void *handle); /* −1: none */

#endif

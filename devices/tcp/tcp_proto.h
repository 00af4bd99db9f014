/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What travels on weft's TCP sockets after the hello (bootstrap/hello.h).
 * Every field is little-endian.
 *
 * One message stream per pair carries frames both ways.  Bulk streams, opened
 * only while bulk flows, carry chunks one way and acknowledgements back; the
 * side that dialled the message stream dials them too, whichever way the data
 * will go, because that route is known to work.
 *
 * The hello's 16 caller bytes say what a socket is for:
 *   0 kind, 1..3 zero, 4 sequence number (message stream), 8 token (bulk)
 */
#ifndef WEFT_DEVICES_TCP_PROTO_H
#define WEFT_DEVICES_TCP_PROTO_H

#include <stdint.h>

enum tcp_purpose {
	TCP_PURPOSE_MESSAGES = 1,
	TCP_PURPOSE_BULK_OUT = 2, /* the dialer will send the chunks */
	TCP_PURPOSE_BULK_IN = 3,  /* the listener will */
};

/*
 * Frame: u8 type, u8 id, u16 taken, u32 length of what follows, u64 fence.
 * taken: number of messages that its sender has, modulo 65536.
 * fence: number of puts that must be placed before this one is delivered.
 */
#define TCP_FRAME_LEN 16

enum tcp_frame_type {
	TCP_FRAME_MESSAGE = 1, /* id: message id; the payload */
	TCP_FRAME_PUT,	       /* a chunk header and its bytes */
	TCP_FRAME_PUT_ACK,     /* acks: of puts that came in frames, of gets */
	TCP_FRAME_PUT_ABORT,   /* u64 seq: no more of this put will come, nor
				  messages behind it */
	TCP_FRAME_GET,	       /* struct get: asks for a put, or GET_DATA */
	TCP_FRAME_FAIL,	       /* struct fail: nothing follows */
	TCP_FRAME_WELCOME,     /* u64 token, by which bulk streams join */
	TCP_FRAME_STREAMS,     /* u32: dial that many; 0, to the requester: one
				  could not be opened */
	TCP_FRAME_BYE,	       /* no endpoint here uses this stream any more */
	TCP_FRAME_CLOSE,       /* u64 taken: the interface closes, last */
	TCP_FRAME_DROP,	       /* u32 stream: nothing more is sent on it */
	TCP_FRAME_DROPPED,     /* struct dropped: what was taken from it */
	TCP_FRAME_GET_DATA,    /* u64 get id, and the bytes */
	TCP_FRAME_ASK,	       /* how many messages do you have? */
	TCP_FRAME_TAKEN,       /* u64 number of messages */
	TCP_FRAME_TYPES
};

/*
 * Chunk: u64 seq, u64 length of the whole put, u64 offset, u64 address of the
 * whole put at the target, u32 slot, u32 generation, u64 key token, u64 tag,
 * u32 bytes that follow, u32 flags.  Each chunk stands alone, so that any
 * stream may carry it.
 */
#define TCP_CHUNK_LEN	 64
#define TCP_CHUNK_NOTIFY 1u /* tag goes to on_notify() */
#define TCP_CHUNK_GET	 2u /* tag is the id of a get */

/*
 * Ack: u64 seq, i32 0 or, of a put that was withdrawn or a get that was
 * cancelled, -errno, u32 zero.
 */
#define TCP_ACK_LEN 16

/*
 * Fail: u64 seq of a put, or (TCP_FAIL_GET) id of a get, u32 flags, i32 -errno.
 * The sender of the frame cannot access the memory that this names.
 */
#define TCP_FAIL_LEN 16
#define TCP_FAIL_GET 1u

/*
 * Dropped: u32 stream, u32 number of acks, u64 chunks taken whole from it, then
 * the acks that were sent back on it, as far as they may be unread.
 */
#define TCP_DROPPED_LEN 16

/*
 * Get: u64 address, u32 slot, u32 generation, u64 token, u64 length, u64 id.
 * If the target follows (u64 address, u32 slot, u32 generation, u64 token), it
 * asks for a put, else for GET_DATA: of TCP_SMALL bytes at most.
 */
#define TCP_GET_SMALL_LEN 40
#define TCP_GET_LEN	  64
#define TCP_SMALL	  (16u << 10)

#define TCP_CLOSE_LEN 8

/* Puts that may be unacknowledged, per direction of a connection. */
#define TCP_WINDOW 256

/*
 * Bytes of messages that one side may have sent while a put below their fence
 * is not acknowledged, TCP_KEPT for each included.  The other side keeps them.
 * It cannot stop reading instead, since what ends the wait comes on the same
 * stream.
 */
#define TCP_MAX_UNPLACED (4u << 20)
#define TCP_KEPT	 64

/* The longest frame that carries no bytes of the caller's. */
#define TCP_MAX_CONTROL (TCP_DROPPED_LEN + TCP_WINDOW * TCP_ACK_LEN)

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NCCL adaptor's formats: the handle, and its messages over a device.
 * Little-endian, any alignment; input is checked before it is used.
 *
 * A comm is known to its peer by a 32-bit id (slot and generation), which every
 * message and notification names, since a device reports no endpoint.
 */
#ifndef WEFT_NCCL_NET_NET_WIRE_H
#define WEFT_NCCL_NET_NET_WIRE_H

#include <stdbool.h>
#include <sys/types.h>
#include "bootstrap/address.h"
#include "devices/device.h"
#include "nccl_net/net/net.h"

#define WEFT_HANDLE_MAGIC   0x4c434e57u /* "WNCL" */
#define WEFT_HANDLE_VERSION 5

/*
 * The handle: magic 4, version 1, paths 1 (bits 0 and 1: how many; then two for
 * each one's wire; addresses of InfiniBand are those where queue pairs are
 * exchanged), channels 1, buffer 1, token 8, stage 8, paths.  Channels and
 * buffer are what this rank reported to NCCL, which must be the same on all
 * ranks.  The listener leaves the stage 0; the connecting side, whose copy of
 * the handle it is, keeps the id of its pending comm there.
 */
#define WEFT_HANDLE_STAGE 16
#define WEFT_HANDLE_PATHS 24
#define WEFT_PATHS_MAX	  3
_Static_assert(WEFT_HANDLE_PATHS + WEFT_PATHS_MAX * (WEFT_IFACE_ADDR_LEN + 6) <=
		       WEFT_NET_HANDLE,
	       "three IPv4 ways must fit into NCCL's handle");

/* Best first. */
enum weft_net_wire {
	WEFT_WIRE_IB,
	WEFT_WIRE_TCP,
};

struct weft_handle {
	uint64_t token; /* the listener's, random */
	uint64_t stage;
	uint8_t channels; /* NCCL_MIN_NCHANNELS; 0: NCCL's own */
	uint8_t buffer;	  /* NCCL_BUFFSIZE in MiB */
	unsigned int n;
	enum weft_net_wire wire[WEFT_PATHS_MAX];
	struct weft_address path[WEFT_PATHS_MAX];
};

/* Packs as many paths as fit, first ones first; returns how many. */
unsigned int weft_handle_pack(const struct weft_handle *h, void *buf);
/* -EPROTO: not weft's; -EPROTONOSUPPORT: another version; -EINVAL: damaged */
int weft_handle_unpack(const void *buf, struct weft_handle *h);

enum weft_net_msg {
	/* connecting side -> listener: here is my comm, and a path to me */
	WEFT_MSG_CONNECT = 1,
	/* its answer */
	WEFT_MSG_ACCEPT,
	WEFT_MSG_REFUSE,
	/* receiver -> sender: receives are posted, of any comms */
	WEFT_MSG_POST,
	/* receiver -> sender: all receives below seq were posted */
	WEFT_MSG_SEEN,
	/* receiver -> sender: no more POSTs unless asked for */
	WEFT_MSG_QUIET,
	/* sender -> receiver: send POSTs from seq on */
	WEFT_MSG_NEED,
	/* sender -> receiver: the data itself */
	WEFT_MSG_EAGER,
	/* either way: a send was larger than its receive */
	WEFT_MSG_TOO_LARGE,
	/* either way: this comm is closed, or has failed */
	WEFT_MSG_BYE,
	/* connecting side -> listener, as ACCEPT: I no longer wait for this */
	WEFT_MSG_WITHDRAW,
};

struct weft_msg_connect {
	uint64_t listener; /* token of the handle */
	uint64_t token;	   /* the comm's own, random */
	uint32_t id;
	uint8_t path; /* index of the sender's attempt */
	struct weft_address from;
};
#define WEFT_MSG_CONNECT_MAX (24 + WEFT_IFACE_ADDR_LEN + WEFT_DEV_ADDR_MAX)
size_t weft_msg_connect_pack(const struct weft_msg_connect *m, void *buf);
int weft_msg_connect_unpack(const void *buf, size_t len,
			    struct weft_msg_connect *m);

struct weft_msg_accept { /* REFUSE, WITHDRAW: id 0, eager 0 */
	uint64_t token;	 /* of CONNECT */
	uint32_t to;	 /* id of CONNECT */
	uint32_t id;	 /* the accepting comm's */
	uint32_t eager;	 /* bytes an EAGER may carry */
	uint8_t path;
};
#define WEFT_MSG_ACCEPT_LEN 24
void weft_msg_accept_pack(const struct weft_msg_accept *m, void *buf);
int weft_msg_accept_unpack(const void *buf, size_t len,
			   struct weft_msg_accept *m);

struct weft_msg_post {
	uint32_t to;
	uint32_t seq;
	uint64_t addr;
	uint64_t size;
	uint8_t rkey_len; /* of the device */
	const void *rkey; /* unpacked: in the message */
};
#define WEFT_MSG_POST_LEN(rkey_len) (25u + (rkey_len))
size_t weft_msg_post_pack(const struct weft_msg_post *m, void *buf);
/* Unpacks the first POST of a message: its length, or -EINVAL. */
ssize_t weft_msg_post_unpack(const void *buf, size_t len,
			     struct weft_msg_post *m);

/* SEEN, QUIET, NEED, BYE, and the header of EAGER. */
struct weft_msg_seq {
	uint32_t to;
	uint32_t seq;
};
#define WEFT_MSG_SEQ_LEN 8
void weft_msg_seq_pack(const struct weft_msg_seq *m, void *buf);
int weft_msg_seq_unpack(const void *buf, size_t len, struct weft_msg_seq *m);

struct weft_msg_too_large {
	uint32_t to;
	uint32_t seq;
	uint64_t sent, posted;
};
#define WEFT_MSG_TOO_LARGE_LEN 24
void weft_msg_too_large_pack(const struct weft_msg_too_large *m, void *buf);
int weft_msg_too_large_unpack(const void *buf, size_t len,
			      struct weft_msg_too_large *m);

/*
 * The tag of a put's notification: of the receiving comm's id the slot and the
 * generation's low bits, and the low bits of the number.  Slots below 4096 make
 * it 32 bits, which is what an RDMA WRITE can carry beside its data.
 *   12 bits of the slot | 12 of the generation | 8 of the number | the slot's
 *   other 4
 */
struct weft_tag {
	uint16_t slot, generation;
	uint8_t seq;
};
#define WEFT_TAG_GENERATIONS 0xfffu

static inline uint64_t weft_tag_pack(uint32_t id, uint32_t seq)
{
	return (id & 0xfff) | ((id >> 16) & WEFT_TAG_GENERATIONS) << 12 |
	       (seq & 0xff) << 24 | (uint64_t)((id >> 12) & 0xf) << 32;
}

static inline struct weft_tag weft_tag_unpack(uint64_t tag)
{
	return (struct weft_tag){
		.slot = (uint16_t)((tag & 0xfff) | ((tag >> 32) & 0xf) << 12),
		.generation = (tag >> 12) & WEFT_TAG_GENERATIONS,
		.seq = (uint8_t)(tag >> 24),
	};
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the InfiniBand device puts on its two wires, version 2.  All fields are
 * little-endian but GIDs, which are in network order as everywhere.
 *
 * On the queue pair, each SEND begins with a head of IB_HEAD bytes:
 *   u8 kind, u8 message id, u16 credits given back, u32 0
 * so that the body behind it is aligned to 8 bytes: the caller's message, or
 * {u64 tag, u64 size} of a notification.
 *
 * A WRITE with an immediate is a notification whose tag is that immediate and
 * whose size is the WRITE's.  It takes a receive buffer, and so a credit.
 *
 * A credit is given back once its message was delivered.  ASK, which takes one
 * and has no body, is for a flush: all are given back at once.  The next one
 * waits until the last one's credit is back.
 *
 * On the control connection, a message of the tcp device whose id is the kind:
 *   IB_CTL_HELLO   interface part and device part of the sender's address
 * 		    (lengths WEFT_IFACE_ADDR_LEN and the byte before it),
 * 		    u64 sender's nonce, u64 receiver's nonce or 0
 *   the others     u64 sender's id, u64 receiver's nonce, u32 number of the
 * 		    endpoint, then for IB_CTL_INFO struct ib_conn_info, for
 * 		    IB_CTL_GONE why: u32 errno of Linux, u32 enum ibv_wc_status
 * 		    of the request that failed, 0 where none did; flushed:
 * 		    the adapter refused one of the receiver's
 * Nonces prove the sender: each is sent only to the peer that has proven to the
 * tcp device that it knows the key of that address.
 */
#ifndef WEFT_DEVICES_IB_PROTO_H
#define WEFT_DEVICES_IB_PROTO_H

#include <stdbool.h>
#include <stdint.h>

#include "util/bytes.h"

#define IB_MAX_DEVICES 15   /* adapters of a process; their numbers */
#define IB_SLOT	       8192 /* bytes of a SEND, head included */
#define IB_HEAD	       8
#define IB_CREDITS     8 /* messages that may be sent ahead */
/*
 * A SEND that returns credits takes none.  There is one per IB_CREDITS / 2
 * messages, and a peer that has not read the last two can send no more than
 * those: two more buffers, and a spare one.  An answer to ASK counts as one of
 * them, since there is one ASK at a time, which takes a credit.
 */
#define IB_RX_SLOTS (IB_CREDITS + 3)

enum ib_kind {
	IB_KIND_MESSAGE = 1,
	IB_KIND_NOTIFY,
	IB_KIND_CREDIT,
	IB_KIND_ASK,
};

enum ib_ctl {
	IB_CTL_HELLO,
	IB_CTL_INFO,
	IB_CTL_BYE,  /* the sender's endpoint is destroyed */
	IB_CTL_GONE, /* the sender has no such connection */
};
#define IB_CTL_HEAD 20 /* bytes before what is the kind's own */
#define IB_GONE_LEN 8

/* Half of a connection. */
struct ib_conn_info {
	uint32_t qpn, psn;
	uint32_t mtu;	/* enum ibv_mtu of the port */
	uint32_t reads; /* READs in flight that it answers */
	uint16_t lid;
	uint8_t ready;	/* the sender's queue pair receives */
	uint8_t device; /* number of its adapter, for keys */
	uint8_t gid[16];
};
#define IB_INFO_LEN 36

static inline void ib_info_pack(const struct ib_conn_info *i, uint8_t *p)
{
	weft_put_le32(p, i->qpn);
	weft_put_le32(p + 4, i->psn);
	weft_put_le32(p + 8, i->mtu);
	weft_put_le32(p + 12, i->reads);
	p[16] = (uint8_t)i->lid;
	p[17] = (uint8_t)(i->lid >> 8);
	p[18] = i->ready;
	p[19] = i->device;
	memcpy(p + 20, i->gid, 16);
}

static inline void ib_info_unpack(const uint8_t *p, struct ib_conn_info *i)
{
	i->qpn = weft_get_le32(p);
	i->psn = weft_get_le32(p + 4);
	i->mtu = weft_get_le32(p + 8);
	i->reads = weft_get_le32(p + 12);
	i->lid = (uint16_t)(p[16] | p[17] << 8);
	i->ready = p[18];
	i->device = p[19];
	memcpy(i->gid, p + 20, 16);
}

/*
 * A key: what each of the owner's adapters calls the memory.  Bit n of the mask
 * says that the adapter of number n has it, and under which rkey.
 */
struct ib_key {
	uint16_t mask;
	uint32_t rkey[IB_MAX_DEVICES];
};
#define IB_KEY_LEN (2 + 4 * IB_MAX_DEVICES)

static inline void ib_key_pack(const struct ib_key *k, uint8_t *p)
{
	unsigned int i;

	p[0] = (uint8_t)k->mask;
	p[1] = (uint8_t)(k->mask >> 8);
	for (i = 0; i < IB_MAX_DEVICES; i++)
		weft_put_le32(p + 2 + 4 * i, k->rkey[i]);
}

/* The rkey of adapter @number; false: there is none. */
static inline bool ib_key_find(const uint8_t *p, unsigned int number,
			       uint32_t *rkey)
{
	*rkey = weft_get_le32(p + 2 + 4 * number);
	return (p[0] | p[1] << 8) >> number & 1;
}

static inline void ib_head_pack(uint8_t *p, enum ib_kind kind, uint8_t id,
				unsigned int credits)
{
	p[0] = (uint8_t)kind;
	p[1] = id;
	p[2] = (uint8_t)credits;
	p[3] = (uint8_t)(credits >> 8);
	weft_put_le32(p + 4, 0);
}

static inline unsigned int ib_head_credits(const uint8_t *p)
{
	return p[2] | p[3] << 8;
}

#endif

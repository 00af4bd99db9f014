/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the InfiniBand device puts on its two wires, version 1.  All fields are
 * little-endian but GIDs, which are in network order as everywhere.
 *
 * On the QP, each SEND begins with a head of IB_HEAD bytes:
 *   u8 kind, u8 message id, u16 credits given back, u32 number of the message
 * The body follows: the caller's message; {u64 tag, u64 size} of a
 * notification; the 16 bytes of a key that is asked about; struct
 * ib_key_answer behind that key; nothing.
 *
 * On the control connection, a message of the tcp device whose id is the kind:
 *   IB_CTL_HELLO   interface part and device part of the sender's address
 *		    (lengths WEFT_IFACE_ADDR_LEN and the byte before it),
 *		    u64 sender's nonce, u64 receiver's nonce or 0
 *   the others     u64 sender's id, u64 receiver's nonce, u32 number of the
 *		    endpoint, then for IB_CTL_INFO struct ib_conn_info
 * Nonces prove the sender: each is sent only to whom the tcp device has proven
 * to own the key of that address.
 */
#ifndef WEFT_DEVICES_IB_PROTO_H
#define WEFT_DEVICES_IB_PROTO_H

#include <stdbool.h>
#include <stdint.h>

#include "util/bytes.h"

#define IB_SLOT		8192	/* bytes of a SEND, head included */
#define IB_HEAD		8
#define IB_CREDITS	8	/* messages that may be sent ahead */
/*
 * Giving back credits costs none.  It is done for every IB_CREDITS / 2
 * messages, and a peer that has not read the last two can send no more than
 * those: two buffers, and one to spare.
 */
#define IB_RX_SLOTS	(IB_CREDITS + 3)

enum ib_kind {
	IB_KIND_MESSAGE = 1,
	IB_KIND_NOTIFY,
	IB_KIND_ASK,		/* what does this key stand for? */
	IB_KIND_ANSWER,
	IB_KIND_CREDIT,
};

enum ib_ctl {
	IB_CTL_HELLO,
	IB_CTL_INFO,
	IB_CTL_BYE,		/* the sender's endpoint is destroyed */
	IB_CTL_GONE,		/* the sender has no such connection */
};
#define IB_CTL_HEAD	20	/* bytes before struct ib_conn_info */

/* Half of a connection, in one epoch. */
struct ib_conn_info {
	uint32_t epoch;		/* counts its QPs from 0 */
	uint32_t qpn, psn;
	uint32_t received;	/* messages that had arrived before this epoch */
	uint32_t mtu;		/* enum ibv_mtu of the port */
	uint32_t reads;		/* READs that it answers at a time */
	uint16_t lid;
	uint8_t ready;		/* the sender's QP receives */
	uint8_t gid[16];
};
#define IB_INFO_LEN	43

static inline void ib_info_pack(const struct ib_conn_info *i, uint8_t *p)
{
	weft_put_le32(p, i->epoch);
	weft_put_le32(p + 4, i->qpn);
	weft_put_le32(p + 8, i->psn);
	weft_put_le32(p + 12, i->received);
	weft_put_le32(p + 16, i->mtu);
	weft_put_le32(p + 20, i->reads);
	p[24] = (uint8_t)i->lid;
	p[25] = (uint8_t)(i->lid >> 8);
	p[26] = i->ready;
	memcpy(p + 27, i->gid, 16);
}

static inline void ib_info_unpack(const uint8_t *p, struct ib_conn_info *i)
{
	i->epoch = weft_get_le32(p);
	i->qpn = weft_get_le32(p + 4);
	i->psn = weft_get_le32(p + 8);
	i->received = weft_get_le32(p + 12);
	i->mtu = weft_get_le32(p + 16);
	i->reads = weft_get_le32(p + 20);
	i->lid = (uint16_t)(p[24] | p[25] << 8);
	i->ready = p[26];
	memcpy(i->gid, p + 27, 16);
}

/* What a key stands for; len and rkey 0 where the owner knows no such key. */
struct ib_key_answer {
	uint64_t base, len;
	uint32_t rkey;		/* of the adapter that the connection uses */
	uint32_t valid;
};
#define IB_ANSWER_LEN	(16 + 24)	/* with the key */

static inline void ib_head_pack(uint8_t *p, uint8_t kind, uint8_t id,
				unsigned int credits, uint32_t number)
{
	p[0] = kind;
	p[1] = id;
	p[2] = (uint8_t)credits;
	p[3] = (uint8_t)(credits >> 8);
	weft_put_le32(p + 4, number);
}

#endif

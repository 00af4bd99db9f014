/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending bulk: local puts, and what the peer gets. */
#ifndef WEFT_DEVICES_NVL_TX_H
#define WEFT_DEVICES_NVL_TX_H

#include "devices/nvlink/nvl.h"
#include "devices/region.h"
#include "util/cuda.h"

enum nvl_transfer_kind {
	NVL_TRANSFER_PUT,
	NVL_TRANSFER_SERVE, /* a get of the peer's */
};

struct nvl_transfer {
	struct weft_list link;	    /* conn->transfers while bytes are unsent */
	struct weft_list done_link; /* iface->done */
	enum nvl_transfer_kind kind;
	struct nvl_conn *conn;
	struct weft_op *op;   /* PUT; NULL: cancelled */
	uint32_t seq;	      /* PUT; SERVE: the get's id */
	struct weft_rkey key; /* PUT: target; SERVE: source */
	uint64_t addr;	      /* the peer's, of the first byte */
	uint64_t tag;
	uint8_t flags; /* NVL_CHUNK_* */
	uint8_t loc;   /* where to, at the peer */
	bool aborted;  /* PUT: announced; its ack ends it */
	int status;
	size_t total, sent;
	unsigned int in_flight;	    /* chunks of it with an engine */
	struct weft_cuda_ptr where; /* of the source */
	unsigned int iov_i, iovcnt;
	size_t iov_off;
	struct weft_iov iov[NVL_MAX_IOV];
};

/* Where it lies, by its registration or the driver; logs why not. */
int nvl_mem_locate(const struct weft_iov *v, struct weft_cuda_ptr *where);
/* As the contract's put() on a connection that is ready for it. */
int nvl_tx_put(struct nvl_conn *conn, const struct weft_iov *iov,
	       unsigned int n, uint64_t addr, const void *rkey,
	       const struct weft_notify *notify, struct weft_op *op);
/* The peer gets local memory.  -EPROTO: it breaks the rules; -ENOMEM. */
int nvl_tx_serve(struct nvl_conn *conn, const struct nvl_op *op);
/* Cuts what waits into chunks, as far as rings have room; their number. */
unsigned int nvl_tx_schedule(struct nvl_conn *conn);
/* The peer has placed a put or refused it.  -EPROTO: unknown here. */
int nvl_tx_ack(struct nvl_conn *conn, const struct nvl_op *op);
/* Completes puts that have ended; the number. */
unsigned int nvl_tx_deliver(struct nvl_iface *iface);
/* Nothing of it is under way any more: nvl_tx_deliver() completes it. */
void nvl_tx_finish(struct nvl_transfer *transfer, int status);
/* Its caller has gone; what is not with the peer yet is not sent. */
void nvl_tx_give_up(struct nvl_transfer *transfer, int status);

#endif

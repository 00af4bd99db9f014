/* SPDX-License-Identifier: BSD-3-Clause */
/* Staging rings: bulk waits there for its last copy. */
#ifndef WEFT_DEVICES_NVL_RING_H
#define WEFT_DEVICES_NVL_RING_H

#include "devices/nvlink/nvl.h"
#include "devices/nvlink/nvl_map.h"

/* A chunk under way from here. */
struct nvl_txchunk {
	struct weft_copy copy;
	struct nvl_op op;
	uint64_t end;
	struct nvl_transfer *transfer; /* NULL: cancelled */
	bool done;
};

struct nvl_txring {
	bool recalled; /* to be closed when empty */
	struct nvl_mapping map;
	uint64_t pos, freed; /* next free byte; all below is free */
	/* chunks [announced, made): copying; [out, announced): the reader has
	 * them */
	uint64_t made, announced, out;
	struct nvl_txchunk chunks[NVL_RING_CHUNKS];
};

struct nvl_rxchunk {
	struct weft_copy copy;
	struct nvl_conn *conn;
	struct nvl_op op;
	uint64_t end;
	bool done;
};

enum nvl_rxring_state {
	NVL_RXRING_OFFERED,
	NVL_RXRING_OPEN,
	NVL_RXRING_CLOSING,
};

struct nvl_rxring {
	enum nvl_rxring_state state;
	uint8_t loc;
	struct nvl_mapping map;
	unsigned int unit, units; /* of a budget: first, number */
	char budget[48];	  /* its name */
	uint64_t pos;		  /* the next chunk begins here or later */
	uint64_t freed;
	uint64_t in, out; /* chunks [out, in) are being copied */
	uint64_t used_ms;
	struct nvl_rxchunk chunks[NVL_RING_CHUNKS];
};

/*
 * Requests a ring towards @loc from the peer, unless one exists or is
 * requested.
 */
void nvl_ring_request(struct nvl_conn *conn, uint8_t loc);
/* What goes to @loc goes through host memory, and that is that. */
void nvl_ring_use_host(struct nvl_conn *conn, uint8_t loc);
/* The ring that takes @transfer's bytes; NULL: requested, not there yet. */
struct nvl_txring *nvl_ring_for(struct nvl_conn *conn,
				struct nvl_transfer *transfer);
/* Room for @len bytes in one piece, from position *@pos on. */
bool nvl_ring_take(struct nvl_txring *r, size_t len, uint64_t *pos);
/* Reads what the peer has copied out; a peer that lies breaks it. */
void nvl_ring_credits(struct nvl_conn *conn);
bool nvl_ring_credit_pending(struct nvl_conn *conn);
/* All frames that have come; the number. */
unsigned int nvl_ring_read_frames(struct nvl_conn *conn);
/* Recalls rings that were idle for long. */
void nvl_ring_tick(struct nvl_conn *conn, uint64_t now);
void nvl_ring_close_all(struct nvl_conn *conn);
/* Part of iface_forget(). */
void nvl_ring_forget(struct nvl_conn *conn);
/* Remembers where the process has GPU memory. */
void nvl_location_add(const struct weft_cuda_ptr *where);

#endif

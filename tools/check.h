/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft check: two processes exchange the addresses of a device's interfaces
 * over a TCP connection, the control connection, and then use the device as
 * UCX and NCCL do.  One asks, the other serves.  If both have a GPU, they do
 * the same between their memory with the NVLink device.
 */
#ifndef WEFT_TOOLS_CHECK_H
#define WEFT_TOOLS_CHECK_H

#include "bootstrap/netif.h"
#include "bootstrap/samehost.h"
#include "devices/device.h"

#define CHECK_BUFFER	  (64u << 20)
#define CHECK_PATIENCE_MS 10000 /* timeout for the other side */
#define CHECK_CARD_MS	  60000 /* the same while it initialises CUDA */

/* A side's GPU, as sent to the other; bytes only, no padding. */
struct check_card {
	uint8_t state; /* enum check_gpu_state */
	uint8_t dev_len;
	uint8_t host[8]; /* weft_host_id(), little-endian */
	uint8_t iface[WEFT_IFACE_ADDR_LEN];
	uint8_t dev[WEFT_DEV_ADDR_MAX];
	uint8_t uuid[16];
	char busid[16];
	char nccl[WEFT_SAMEHOST_ID]; /* NCCL's host id; zeros: not introduced */
};

struct check_gpu;

/* One side of a check. */
struct check {
	const struct weft_dev_ops *ops;
	struct weft_iface *iface;
	struct weft_ep *ep;
	struct weft_mem *mem;
	int control; /* the control connection; if it ends, the check ends */
	int err;     /* the first error */
	unsigned int patience_ms;
	uint8_t *buffer, *source; /* the peer accesses one, we send the other */
	struct check_gpu *gpu;	  /* which has both; NULL: host memory */

	bool have_peer; /* MSG_HERE has come */
	uint64_t peer_addr;
	uint8_t peer_rkey[WEFT_RKEY_MAX];

	bool answered; /* PONG or VERDICT */
	uint64_t answer;
	bool have_card; /* the peer's card, of its GPU */
	struct check_card card;
	bool bye;
};

#define CHECK_ALL_RIGHT UINT64_MAX /* else offset of the first wrong byte */

/*
 * Open the device on @netdev, for memory of @gpu (NULL: host memory).  Reports
 * errors.  Call check_close() in any case.
 */
int check_open(struct check *c, const struct weft_dev_ops *ops,
	       const char *netdev, int family, struct check_gpu *gpu,
	       struct weft_address *own);
/* Connect to @peer; both sides do. */
int check_connect(struct check *c, const struct weft_address *peer);
void check_close(struct check *c);

/* The asking side.  All return 0, or -errno after an error message. */
int check_latency(struct check *c, size_t size, double *usec);
enum check_way { CHECK_PUT, CHECK_GET };
/* Move @size bytes once and compare every byte. */
int check_bytes(struct check *c, enum check_way way, size_t size);
/* Move them repeatedly; bytes/s. */
int check_speed(struct check *c, enum check_way way, size_t size,
		double *bandwidth);
int check_bye(struct check *c);
/* check_bytes() and check_speed() for each size; prints a line for each. */
int check_blocks(struct check *c, const size_t *sizes, size_t n);

/* The serving side: answer until MSG_BYE comes. */
int check_serve(struct check *c);

/* Send the card and wait for the peer's. */
int check_swap_cards(struct check *c, const struct check_card *own);
int check_send_card(struct check *c, const struct check_card *own);

/* check_gpu.c */
/* Both buffers, one behind the other; NULL after an error message. */
uint8_t *check_gpu_buffers(struct check_gpu *g, size_t len);
/* Between the host and the GPU; 0 or -EIO. */
int check_gpu_copy(struct check_gpu *g, void *dst, const void *src, size_t len);
/* The bounce buffer in host memory. */
uint8_t *check_gpu_bounce(struct check_gpu *g);
/* Check and measure GPU memory; does nothing without a GPU here. */
int check_gpus(struct check *c);
/* The same on the serving side; @c has the peer's card. */
void check_serve_gpu(struct check *c);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft check: two processes that meet over a plain TCP connection, give each
 * other the address of a device's interface, and then use the device as the
 * runtimes do.  One asks, the other serves.  Where both have a GPU they do it
 * once more, by NVLink, between its memory and the other's.
 */
#ifndef WEFT_TOOLS_CHECK_H
#define WEFT_TOOLS_CHECK_H

#include "bootstrap/netif.h"
#include "bootstrap/samehost.h"
#include "devices/device.h"

#define CHECK_BUFFER	  (64u << 20)
#define CHECK_PATIENCE_MS 10000 /* without any sign of the other side */
#define CHECK_CARD_MS	  60000 /* the same while it begins to use CUDA */

/* A side's GPU, as it is told to the other; native bytes, one field each. */
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
	int control; /* the socket of the meeting; its end is the end */
	int err;     /* why it cannot go on */
	unsigned int patience_ms;
	uint8_t *buffer, *source; /* the peer writes the one, we send other */
	struct check_gpu *gpu;	  /* whose memory they are; NULL: the host's */

	bool have_peer; /* its memory, told by itself */
	uint64_t peer_addr;
	uint8_t peer_rkey[WEFT_RKEY_MAX];

	bool answered; /* PONG or VERDICT */
	uint64_t answer;
	bool have_card; /* the peer's, of its GPU */
	struct check_card card;
	bool bye;
};

#define CHECK_ALL_RIGHT UINT64_MAX /* else where the first wrong byte is */

/*
 * Opens the device on @netdev, for memory of @gpu (NULL: host memory), and
 * tells of failure.  What was opened is for check_close() in any case.
 */
int check_open(struct check *c, const struct weft_dev_ops *ops,
	       const char *netdev, int family, struct check_gpu *gpu,
	       struct weft_address *own);
/* Connects to @peer; both sides do. */
int check_connect(struct check *c, const struct weft_address *peer);
void check_close(struct check *c);

/* The asking side.  All return 0, or -errno that has been told. */
int check_latency(struct check *c, size_t size, double *usec);
enum check_way { CHECK_PUT, CHECK_GET };
/* Moves @size bytes once and compares every byte. */
int check_bytes(struct check *c, enum check_way way, size_t size);
/* Moves them again and again; bytes/s. */
int check_speed(struct check *c, enum check_way way, size_t size,
		double *bandwidth);
int check_bye(struct check *c);
/* check_bytes() and check_speed() of each size, a line each. */
int check_blocks(struct check *c, const size_t *sizes, size_t n);

/* The serving side: answers until the other says bye. */
int check_serve(struct check *c);

/* Tells the peer, and waits until it has told its own. */
int check_swap_cards(struct check *c, const struct check_card *own);
int check_send_card(struct check *c, const struct check_card *own);

/* check_gpu.c */
/* Both buffers, one behind the other; NULL: it has been told why not. */
uint8_t *check_gpu_buffers(struct check_gpu *g, size_t len);
/* Between the host and the GPU; 0 or -EIO. */
int check_gpu_copy(struct check_gpu *g, void *dst, const void *src, size_t len);
/* Where the host sees what goes to the GPU or comes from there. */
uint8_t *check_gpu_bounce(struct check_gpu *g);
/* What GPU memory would use, and how fast; nothing without a GPU here. */
int check_gpus(struct check *c);
/* The same on the serving side, for which @c has a card. */
void check_serve_gpu(struct check *c);

#endif

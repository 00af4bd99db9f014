/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft check: two processes exchange the addresses of a device's interfaces
 * over a TCP connection, the control connection, and then use the device as
 * UCX and NCCL do.  One asks, the other serves.  If both have a GPU, they do
 * the same between their memory with the NVLink device.
 */
#ifndef WEFT_TOOLS_CHECK_H
#define WEFT_TOOLS_CHECK_H

#include "devices/device.h"
#include "host/netif.h"
#include "host/samehost.h"
#include "host/verbs.h"

#define CHECK_BUFFER	  (16u << 20)
#define CHECK_PATIENCE_MS 10000 /* timeout for the other side */
#define CHECK_WINDOW	  8	/* puts or gets in flight */
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
	struct check *over;  /* carries its messages; NULL: its own device */
	struct check *guest; /* whose messages it carries, but for cards */

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

/* What was measured last, with the largest blocks. */
struct check_rates {
	double usec;	 /* a message of 8 bytes, one way */
	double put, get; /* bytes/s */
};

/* The asking side.  All return 0, or -errno after an error message. */
int check_latency(struct check *c, size_t size, double *usec);
enum check_way { CHECK_PUT, CHECK_GET };
/* Move @size bytes once and compare every byte. */
int check_bytes(struct check *c, enum check_way way, size_t size);
/* Move them repeatedly; bytes/s. */
int check_speed(struct check *c, enum check_way way, size_t size,
		double *bandwidth);
int check_bye(struct check *c);
/* check_blocks.c: "8 B", "64 KiB"; into @buf */
const char *check_format_size(size_t size, char *buf, size_t len);
/* Would blocks of @size take too long at @bandwidth? */
bool check_is_slow(size_t size, double bandwidth);
/*
 * check_bytes() and check_speed() for each size; prints a line for each. Leaves
 * out blocks that would take too long.
 */
int check_blocks(struct check *c, const size_t *sizes, size_t n,
		 struct check_rates *rates);

/* The serving side: answer until MSG_BYE comes. */
int check_serve(struct check *c);

/* Send the card and wait for the peer's. */
int check_swap_cards(struct check *c, const struct check_card *own);
int check_send_card(struct check *c, const struct check_card *own);

/* check_devices.c */
#define CHECK_DEVICES_MAX 32
#define CHECK_NAME_LEN	  (WEFT_VERBS_NAME + 8)

/* An interface (weft_tcp), a port (weft_ib) or "shm" that may be used. */
struct check_device {
	const struct weft_dev_ops *ops;
	char name[CHECK_NAME_LEN];
	uint64_t speed;		  /* bytes/s; 0: unknown */
	bool route;		  /* the control connection's */
	struct weft_netif netif;  /* of this side's interfaces */
	struct weft_address addr; /* without port and key */
};

/* What one side may use. */
struct check_list {
	uint64_t host; /* weft_host_id() */
	int n;
	struct check_device devices[CHECK_DEVICES_MAX];
};

/*
 * List this side's; @route is the interface of the control connection, whose
 * family counts.  -errno.
 */
int check_list_own(const struct weft_netif *route, struct check_list *list);
/* The list as bytes; unpacking it: -EPROTO. */
#define CHECK_ENTRY_LEN 160
#define CHECK_LIST_LEN	(9 + CHECK_DEVICES_MAX * CHECK_ENTRY_LEN)
void check_pack_list(const struct check_list *list,
		     uint8_t text[CHECK_LIST_LEN]);
int check_unpack_list(const uint8_t text[CHECK_LIST_LEN],
		      struct check_list *list);

/* Two devices that reach each other, and what was measured between them. */
struct check_pair {
	const struct check_device *here, *there;
	struct check_rates rates;
	struct check_rates gpu; /* between GPUs, over weft_nvl; zeros: not */
	bool measured;
	int err;
};

/* "weft_tcp eth0 - eth1"; returns @label. */
#define CHECK_PAIR_LEN (2 * CHECK_NAME_LEN + 16)
const char *check_format_pair(const struct check_pair *pair,
			      char label[CHECK_PAIR_LEN]);

/*
 * The pairs to measure, that of the control connection first; each device of
 * this side at most once.  Returns how many.
 */
int check_match(const struct check_list *here, const struct check_list *there,
		struct check_pair pairs[CHECK_DEVICES_MAX]);
/* Print what to change, as text or as strings of a JSON array. */
void check_advise(const struct check_pair *pairs, int n,
		  const struct check_list *here, const struct check_list *there,
		  bool json);

/* check_report.c: print what a bug report needs of this side. */
void check_report(const struct check_pair *pairs, int n, bool works);

/* check_gpu.c */
/* Both buffers, one behind the other; NULL after an error message. */
uint8_t *check_gpu_buffers(struct check_gpu *g, size_t len);
/* Between the host and the GPU; 0 or -EIO. */
int check_gpu_copy(struct check_gpu *g, void *dst, const void *src, size_t len);
/* The bounce buffer in host memory. */
uint8_t *check_gpu_bounce(struct check_gpu *g);
/* Check and measure GPU memory; does nothing without a GPU here. */
int check_gpus(struct check *c, struct check_rates *rates);
/* The same on the serving side; @c has the peer's card. */
void check_serve_gpu(struct check *c);

#endif

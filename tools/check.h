/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft check: two processes that meet over a plain TCP connection, give each
 * other the address of a device's interface, and then use the device as the
 * runtimes do.  One asks, the other serves.
 */
#ifndef WEFT_TOOLS_CHECK_H
#define WEFT_TOOLS_CHECK_H

#include "bootstrap/netif.h"
#include "devices/device.h"

#define CHECK_BUFFER	  (64u << 20)
#define CHECK_PATIENCE_MS 10000 /* without any sign of the other side */

/* One side of a check. */
struct check {
	const struct weft_dev_ops *ops;
	struct weft_iface *iface;
	struct weft_ep *ep;
	struct weft_mem *mem;
	int control; /* the socket of the meeting; its end is the end */
	int err;     /* why it cannot go on */
	uint8_t *buffer, *source; /* the peer writes the one, we send other */

	bool have_peer; /* its memory, told by itself */
	uint64_t peer_addr;
	struct weft_rkey peer_rkey;

	bool answered; /* PONG or VERDICT */
	uint64_t answer;
	bool bye;
};

#define CHECK_ALL_RIGHT UINT64_MAX /* else where the first wrong byte is */

/* Opens the device on @netif, and tells of failure. */
int check_open(struct check *c, const struct weft_dev_ops *ops,
	       const struct weft_netif *netif, struct weft_address *own);
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

/* The serving side: answers until the other says bye. */
int check_serve(struct check *c);

#endif

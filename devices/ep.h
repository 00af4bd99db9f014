/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoints: the caller's side of a connection, alike in every device.  What
 * moves bytes is the device's; that an endpoint is dead, owes an on_ready(), or
 * waits for a flush, is here.
 */
#ifndef WEFT_DEVICES_EP_H
#define WEFT_DEVICES_EP_H

#include "devices/base.h"

/* Embeds the contract's; in conn->ep. */
struct weft_base_ep {
	struct weft_ep ep;
	struct weft_conn *conn; /* NULL once it has ended */
	struct weft_ep_number *numbers;
	int err; /* it is dead */
	bool cancelled;
	struct weft_list flushes;
	unsigned int nflushes;
};

/* What endpoints need of the device. */
struct weft_ep_ops {
	unsigned int max_iov;
	size_t max_message;
	/*
	 * The connection for the endpoints @number, made where there is none;
	 * -errno, of which -ECONNRESET: the peer's has ended already.
	 */
	int (*connect)(struct weft_iface *iface,
		       const struct weft_address *remote, uint32_t number,
		       struct weft_conn **conn);
	/* Would a message be taken now? */
	bool (*is_ready)(struct weft_conn *conn);
	/* And when completions that are there are read?  NULL: no more. */
	bool (*make_room)(struct weft_conn *conn);
	/* Is all that was taken with the wire, and are all operations over? */
	bool (*is_flushed)(struct weft_conn *conn);
	/* Completes all operations with -ECANCELED, here and now. */
	void (*cancel)(struct weft_conn *conn);
	/* The endpoint is gone; the connection goes on for the peer. */
	void (*leave)(struct weft_conn *conn);
};

/* The contract's slots. */
int weft_ep_create(struct weft_iface *iface, const struct weft_address *remote,
		   void *user, struct weft_ep **ep);
void weft_ep_destroy(struct weft_ep *ep);
bool weft_ep_ready(struct weft_ep *ep);
int weft_ep_flush(struct weft_ep *ep, struct weft_op *op);
void weft_ep_cancel(struct weft_ep *ep);

/*
 * Takes it an operation with @iovcnt entries, or a message of @len bytes (else
 * 0)?  0; its error; -EMSGSIZE; -EAGAIN, and on_ready() is owed.
 */
int weft_ep_check(struct weft_base_ep *ep, unsigned int iovcnt, size_t len);
/* The same for a message of that many bytes: *@len. */
int weft_ep_check_message(struct weft_base_ep *ep, const struct iovec *iov,
			  unsigned int iovcnt, size_t *len);
/* Copies all of it to @dest. */
void weft_iov_copy(void *dest, const struct iovec *iov, unsigned int iovcnt);
/* The connection of a live endpoint, or NULL. */
struct weft_conn *weft_ep_conn(struct weft_ep *ep);
/* Tells the endpoint that it is flushed, or ready again; how much was told. */
unsigned int weft_ep_notify(struct weft_conn *conn);
/* The connection ends with @err: nothing is taken any more. */
void weft_ep_fail(struct weft_conn *conn, int err);
/* All its operations were completed: ends flushes, and calls on_error(). */
void weft_ep_failed(struct weft_conn *conn);

static inline struct weft_base_ep *weft_base_ep(struct weft_ep *e)
{
	return container_of(e, struct weft_base_ep, ep);
}

#endif

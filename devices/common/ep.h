/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoints: the caller's side of a connection, the same in every device.  The
 * device moves bytes; dead endpoints, on_ready() and flushes are handled here.
 */
#ifndef WEFT_DEVICES_COMMON_EP_H
#define WEFT_DEVICES_COMMON_EP_H

#include <errno.h>
#include <string.h>

#include "devices/common/base.h"
#include "util/util.h"

/* Embeds the contract's endpoint; conn->ep points to it. */
struct weft_base_ep {
	struct weft_ep ep;
	struct weft_conn *conn; /* NULL once it has ended */
	struct weft_ep_number *numbers;
	int err; /* -errno: dead */
	bool cancelled;
	struct weft_list flushes;
	unsigned int nflushes;
};

/* What the device provides for its endpoints. */
struct weft_ep_ops {
	unsigned int max_iov;
	size_t max_message;
	/*
	 * The connection for endpoint @number, new if there is none; -errno,
	 * -ECONNRESET: the peer's endpoint has ended already.
	 */
	int (*connect)(struct weft_iface *iface,
		       const struct weft_address *remote, uint32_t number,
		       struct weft_conn **conn);
	/* Is there room for a message? */
	bool (*is_ready)(struct weft_conn *conn);
	/*
	 * Messages sent so far.  NULL: the peer has a message once it is sent.
	 */
	uint64_t (*sent)(const struct weft_conn *conn);
	/*
	 * Are all operations complete, and does the peer have the first @sent
	 * messages?  May ask the peer, and calls weft_conn_attend() when it
	 * answers.
	 */
	bool (*is_flushed)(struct weft_conn *conn, uint64_t sent);
	/* Completes all operations with -ECANCELED before it returns. */
	void (*cancel)(struct weft_conn *conn);
	/* The endpoint is destroyed; the connection lives on for the peer. */
	void (*leave)(struct weft_conn *conn);
};

/* The contract's slots. */
int weft_ep_create(struct weft_iface *iface, const struct weft_address *remote,
		   void *user, struct weft_ep **ep);
void weft_ep_destroy(struct weft_ep *ep);
bool weft_ep_ready(struct weft_ep *ep);
int weft_ep_flush(struct weft_ep *ep, struct weft_op *op);
void weft_ep_cancel(struct weft_ep *ep);

/* The connection of a live endpoint, or NULL. */
struct weft_conn *weft_ep_conn(struct weft_ep *ep);
/* Completes flushes, calls on_ready(); returns how many of both. */
unsigned int weft_ep_notify(struct weft_conn *conn);
/*
 * The connection ends with @err: flushes complete whose messages the peer has,
 * and the endpoint refuses new operations.
 */
void weft_ep_fail(struct weft_conn *conn, int err);
/* After all operations have completed: ends flushes, calls on_error(). */
void weft_ep_failed(struct weft_conn *conn);

/* What each message calls is here: a call costs as much as its work. */

static inline struct weft_base_ep *weft_base_ep(struct weft_ep *e)
{
	return container_of(e, struct weft_base_ep, ep);
}

static inline const struct weft_ep_ops *
weft_ep_ops_of(const struct weft_base_ep *ep)
{
	return weft_base(ep->ep.iface)->ep_ops;
}

/*
 * May an operation with @iovcnt entries, or a message of @len bytes (else 0),
 * start?  0, it has a connection; the endpoint's error; -EMSGSIZE; -EAGAIN, and
 * on_ready() follows.  @ops: those of its device, so that the compiler knows
 * them.
 */
static inline int weft_ep_check(const struct weft_ep_ops *ops,
				struct weft_ep *e, unsigned int iovcnt,
				size_t len)
{
	struct weft_base_ep *ep = weft_base_ep(e);

	if (ep->err)
		return ep->err;
	if (iovcnt > ops->max_iov || len > ops->max_message)
		return -EMSGSIZE;
	if (ops->is_ready(ep->conn))
		return 0;
	ep->conn->ready_owed = true;
	return -EAGAIN;
}

/* The same for a message, whose length it stores in *@len. */
static inline int weft_ep_check_message(const struct weft_ep_ops *ops,
					struct weft_ep *ep,
					const struct iovec *iov,
					unsigned int iovcnt, size_t *len)
{
	unsigned int i;

	*len = 0;
	for (i = 0; i < iovcnt; i++)
		*len += iov[i].iov_len;
	return weft_ep_check(ops, ep, iovcnt, *len);
}

/* Copies all entries to @dest; an empty one may have no address at all. */
static inline void weft_iov_copy(void *dest, const struct iovec *iov,
				 unsigned int iovcnt)
{
	uint8_t *to = dest;

	for (; iovcnt--; to += iov++->iov_len) {
		const uint8_t *from = iov->iov_base;
		const size_t n = iov->iov_len;

		/* such are UCP's headers: this takes less than a call */
		if (n >= 8 && n <= 16) {
			memcpy(to, from, 8);
			memcpy(to + n - 8, from + n - 8, 8);
		} else if (n) {
			weft_copy(to, from, n);
		}
	}
}

#endif

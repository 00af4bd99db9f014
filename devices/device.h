/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device contract: what a UCX transport and an NCCL plugin both need from
 * a wire, and nothing else.  tcp, nvlink and ib each fill one ops table; the
 * conformance list in tests/conformance runs against every one of them.
 *
 * Threads: calls on one iface and its endpoints are serialised by the caller
 * (UCP's worker lock, the NCCL adaptor's lock).  Different ifaces may be used
 * at the same time.  Memory calls (mem_*) may come from any thread at any time.
 * A device may have threads of its own; callbacks nevertheless run only inside
 * progress(), or inside the call that is documented to run them.
 *
 * Errors: -errno.  Nothing here blocks, but for mem_release, ep_destroy, and
 * iface_close, which may wait for a copy that is already with an engine or a
 * NIC, bounded by the watchdog.
 *
 * Order: messages of one endpoint arrive in the order sent.  A message sent
 * after fence() is delivered only after every put issued before that fence is
 * placed, whatever streams carried them, and after on_notify() of those that
 * tell.  Between put and put, and between get and anything, there is no order.
 *
 * Arrays of iovecs are looked at in the call alone; what they name is the
 * caller's again once the operation is complete, or 0 was returned.  A call
 * without memory for it returns -ENOMEM, and has taken nothing.
 *
 * Limits: more than max_iov entries in one call, or a message of more than
 * max_message bytes, is -EMSGSIZE, whether there is room just now or not.
 *
 * Dead endpoints: message(), put() and get() return the endpoint's error,
 * before anything else is looked at, from the moment on that on_error() is
 * called or cancel() returns; ready() says true, so that nobody waits for one.
 *
 * Counters: an interface without memory for them counts nothing, and works.
 *
 * End: once an operation's completion, on_error(), mem_release() or
 * ep_destroy() has been reported or has returned, no byte belonging to it is
 * read or written any more.
 */
#ifndef WEFT_DEVICES_DEVICE_H
#define WEFT_DEVICES_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include "bootstrap/address.h"
#include "util/util.h"

struct weft_dev_ops;
struct weft_iface;
struct weft_ep;
struct weft_mem;

/*
 * A pending operation.  The caller owns it and must keep it until done() runs,
 * exactly once, with 0 or -errno.  The same weft_op may not be pending twice.
 */
struct weft_op {
	void (*done)(struct weft_op *op, int status);
};

enum weft_mem_kind {
	WEFT_MEM_HOST,
	WEFT_MEM_CUDA,
};

/* A packed key is at most so many bytes; see mem_pack(). */
#define WEFT_RKEY_MAX 64

/* A piece of this process's memory, which a put reads and a get writes. */
struct weft_iov {
	void *addr;
	size_t len;
	/*
	 * The registration that [addr, addr+len) lies in; NULL: not known, and
	 * the device finds out itself what it needs.  Looked at in the call
	 * alone: released while the operation is pending, that may fail.
	 */
	struct weft_mem *mem;
};

/* A put may tell the target when all of it is placed. */
struct weft_notify {
	uint64_t tag; /* handed to on_notify() as it is */
};

#define WEFT_MSG_IDS 32 /* message ids are below this (UCT's) */
/*
 * Messages that one progress() hands over at most, and as many notifications.
 */
#define WEFT_PROGRESS_MAX 64

struct weft_iface_cb {
	void *arg;
	/*
	 * A message arrived; @data is valid during the call only.  It carries
	 * no endpoint: the sender may be a connection that nobody here has
	 * an endpoint for.  May send, may not destroy the iface.
	 */
	void (*on_message)(void *arg, uint8_t id, void *data, size_t len);
	/* All bytes of a notifying put are placed; size may be 0. */
	void (*on_notify)(void *arg, uint64_t tag, uint64_t size);
	/*
	 * The endpoint is dead, once per endpoint; @user is what ep_create()
	 * got.  Its pending operations have been completed with an error.
	 * -ESHUTDOWN: the peer closed its iface in order and nothing was lost;
	 * what it sent before has been delivered.  -ECONNRESET: something was,
	 * or the peer died.  -ECONNREFUSED, -EACCES and others: never met.
	 * May call ep_destroy().
	 */
	void (*on_error)(void *arg, struct weft_ep *ep, void *user, int err);
	/* ready() may have become true again for this endpoint. */
	void (*on_ready)(void *arg, struct weft_ep *ep, void *user);
};

/*
 * Kernels of this process wait for what the interface moves (NCCL's): no call
 * waits for them, nor is the driver asked about memory that is registered.
 * Where all that would is made ahead, prepare() makes it.
 */
#define WEFT_IFACE_KERNELS_WAIT BIT(0)

struct weft_iface_params {
	/* "eth0"; for nvlink and ib the device's own name */
	const char *netdev;
	int family;			/* AF_INET, AF_INET6 or AF_UNSPEC */
	const struct weft_iface_cb *cb; /* copied */
	unsigned int flags;		/* WEFT_IFACE_ */
};

/* What every device's interface and endpoint begin with. */
struct weft_iface {
	const struct weft_dev_ops *ops;
	struct weft_iface_cb cb;
};

struct weft_ep {
	struct weft_iface *iface;
	void *user;
};

struct weft_iface_attr {
	size_t max_message;	/* bytes of one message, id excluded */
	size_t max_iov;		/* entries of message(), put(), get() */
	size_t max_put;		/* bytes of one put or get */
	unsigned int mem_kinds; /* BIT(enum weft_mem_kind) of put, get */
	/*
	 * A refused key, and giving up what is under way (cancel(),
	 * ep_destroy()), end the connection: both endpoints of it fail.
	 */
	bool errors_end_ep;
	bool same_host;		  /* reaches processes of this host alone */
	double bandwidth;	  /* bytes/s one way, an estimate */
	double latency;		  /* s, an estimate */
	double overhead;	  /* s of CPU time per message, estimate */
	struct weft_address addr; /* where this iface listens */
};

enum weft_staging {
	WEFT_STAGING_NONE, /* nothing, or none was needed */
	WEFT_STAGING_HOST,
	WEFT_STAGING_GPU, /* maybe the host's as well */
};

struct weft_ep_attr {
	bool connected;
	bool unsent;	      /* messages taken, or answers owed, are
				 not with the wire: progress() is
				 needed for them to leave */
	unsigned int streams; /* sockets, QPs or rings that carry bulk */
	/*
	 * What carried bulk so far, of devices that stage it: puts and the
	 * peer's gets; gets and the peer's puts.
	 */
	enum weft_staging staged_out, staged_in;
};

struct weft_dev_ops {
	const char *name; /* "tcp", "nvlink", "ib" */
	size_t rkey_len;  /* bytes of a packed key */

	/*
	 * Opens the interface and listens.  -ENODEV: no such device;
	 * -EADDRINUSE: the port range is used up.  Logs the cause.
	 */
	int (*iface_open)(const struct weft_iface_params *params,
			  struct weft_iface **iface);
	/*
	 * Endpoints must have been destroyed.  Peers see an orderly end.
	 * Pending operations cannot exist any more.
	 */
	void (*iface_close)(struct weft_iface *iface);
	void (*iface_query)(struct weft_iface *iface,
			    struct weft_iface_attr *attr);
	/*
	 * Reachability: from address bytes, this host's own state and what its
	 * kernel answers at once; nobody is waited for, and it is certain. What
	 * fails later is an endpoint error.  Where it is false, *@why (unless
	 * @why is NULL) says why, a constant text that speaks of the peer as
	 * "it".
	 */
	bool (*reaches)(struct weft_iface *iface,
			const struct weft_address *remote, const char **why);

	/*
	 * Moves what can be moved; the number of events seen, 0 when idle.
	 * What is over WEFT_PROGRESS_MAX waits for the next call, and no
	 * endpoint for long.
	 */
	unsigned int (*progress)(struct weft_iface *iface);
	/*
	 * A descriptor that polls readable when progress() has work.  Deadlines
	 * and completions of the device's own threads ring it too.
	 */
	int (*event_fd)(struct weft_iface *iface);
	/*
	 * About to sleep on event_fd.  0, or -EBUSY exactly while something
	 * that progress() would deliver is waiting: call progress() and retry.
	 */
	int (*arm)(struct weft_iface *iface);

	/*
	 * Never blocks: connecting goes on in progress(), operations meanwhile
	 * return -EAGAIN, and that nobody listens there is for on_error().  One
	 * connection per pair: the n-th endpoint to an address pairs with the
	 * peer's n-th endpoint back.  A device without connections pairs
	 * nothing.
	 */
	int (*ep_create)(struct weft_iface *iface,
			 const struct weft_address *remote, void *user,
			 struct weft_ep **ep);
	/*
	 * Any state, also inside on_error(), but not inside the done() of one
	 * of its operations.  Operations still pending are
	 * completed with -ECANCELED before it returns, and messages that no
	 * flush() has seen leave may be lost; what the peer still sends to this
	 * iface is delivered as before, where the connection lives on
	 * (errors_end_ep).
	 */
	void (*ep_destroy)(struct weft_ep *ep);
	void (*ep_query)(struct weft_ep *ep, struct weft_ep_attr *attr);

	/*
	 * Makes what puts and gets on @ep will need, in both directions: for
	 * @mem's GPU, or (NULL) for host memory.  0: nothing will be allocated
	 * or mapped any more for what was named so far; -EINPROGRESS: call
	 * again after progress(); else the endpoint's error, or why it cannot
	 * be made.  Both sides call it.  NULL: this device makes nothing.
	 */
	int (*prepare)(struct weft_ep *ep, struct weft_mem *mem);
	/*
	 * Would message() or put() be taken now?  The same predicate that makes
	 * them return -EAGAIN; on_ready() follows when it turns true.
	 */
	bool (*ready)(struct weft_ep *ep);
	/*
	 * Sends one message.  0: taken, the source may be reused; -EINPROGRESS:
	 * taken, @op will tell when the source may be reused (@op NULL: always
	 * copied, never -EINPROGRESS); -EAGAIN: not taken; -EMSGSIZE; the
	 * endpoint's error once it is dead.
	 */
	int (*message)(struct weft_ep *ep, uint8_t id, const struct iovec *iov,
		       unsigned int iovcnt, struct weft_op *op);
	/*
	 * The same, packed by the caller straight into the send buffer: @pack
	 * writes at most max_message bytes and returns how many; it is called
	 * only when the message will be taken.  Returns that length.
	 */
	ssize_t (*message_pack)(struct weft_ep *ep, uint8_t id,
				size_t (*pack)(void *dest, void *arg),
				void *arg);
	/*
	 * Writes to the peer's memory.  -EINPROGRESS: taken; @op completes when
	 * every byte is placed at the target and visible there.  -EAGAIN, or
	 * the endpoint's error.  Completion -EACCES: the key does not allow it
	 * (revoked, out of bounds); the endpoint lives on, unless the device
	 * says otherwise (errors_end_ep).
	 */
	int (*put)(struct weft_ep *ep, const struct weft_iov *iov,
		   unsigned int iovcnt, uint64_t remote_addr, const void *rkey,
		   const struct weft_notify *notify, struct weft_op *op);
	/*
	 * Reads from the peer's memory; completes when all is here.  As put().
	 */
	int (*get)(struct weft_ep *ep, const struct weft_iov *iov,
		   unsigned int iovcnt, uint64_t remote_addr, const void *rkey,
		   struct weft_op *op);
	/* See "Order" above.  Never fails, never waits. */
	void (*fence)(struct weft_ep *ep);
	/*
	 * 0: all messages taken before are with the wire and all puts and gets
	 * are complete; -EINPROGRESS: @op tells (NULL: ask again), and may wait
	 * for what is taken meanwhile.  On a dead endpoint: 0 when nothing was
	 * lost or the caller gave it up itself (cancel()), else its error.
	 */
	int (*flush)(struct weft_ep *ep, struct weft_op *op);
	/*
	 * Gives up everything pending, which completes with -ECANCELED before
	 * this returns.  The endpoint is dead afterwards; on_error() is not
	 * called for it.  The connection may carry on for the peer: what lands
	 * here is ruled by keys, so release those first.
	 */
	void (*cancel)(struct weft_ep *ep);

	/*
	 * Describes [addr, addr+len) to peers of this device.  Thread-safe.
	 * The memory must stay mapped until mem_release(); where it is not,
	 * what lands there fails as a key error, never as a signal.
	 * -EOPNOTSUPP: memory of a kind that is not in mem_kinds.
	 */
	int (*mem_register)(void *addr, size_t len, enum weft_mem_kind kind,
			    struct weft_mem **mem);
	/*
	 * Writes the key that peers' puts and gets name @mem by: rkey_len
	 * bytes, of any alignment.  Whoever owns the memory checks them each
	 * time something lands; they cannot be guessed, nor outlive @mem.
	 */
	void (*mem_pack)(struct weft_mem *mem, void *rkey);
	/* Revokes and frees; when it returns, nothing lands there any more. */
	void (*mem_release)(struct weft_mem *mem);
};

extern const struct weft_dev_ops weft_tcp_ops, weft_nvlink_ops;
extern const struct weft_dev_ops weft_ib_ops; /* where HAVE_VERBS_H */

#endif

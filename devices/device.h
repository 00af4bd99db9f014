/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device contract: what both a UCX transport and an NCCL plugin need to
 * move data, and nothing else.  Each device fills one ops table;
 * tests/conformance runs one list of tests against all of them.
 *
 * Threads: calls on one iface and its endpoints are serialised by the caller
 * (UCP's worker lock, the NCCL adaptor's lock).  Different ifaces may be used
 * at the same time.  Memory calls (mem_*) may come from any thread at any time.
 * A device may have its own threads, but callbacks run only inside progress(),
 * or inside a call that is documented to run them.
 *
 * Errors: -errno.  Nothing blocks except mem_release, ep_destroy and
 * iface_close, which may wait for a copy that an engine or a NIC has started;
 * the watchdog bounds that.
 *
 * Order: messages of one endpoint arrive in the order sent.  A message sent
 * after fence() is delivered only after every put issued before that fence is
 * placed, whatever streams carried them, and after on_notify() of those that
 * notify; if one of them was cut by cancel() or ep_destroy(), neither it nor
 * any after it is delivered.  Puts are not ordered among each other, and gets
 * are not ordered at all.
 *
 * Failures: a put or get that fails on a live endpoint (key refused or revoked,
 * memory of either side that cannot be read or written, an engine's error)
 * completes with the cause and ends the connection: both endpoints get
 * on_error().  No message behind it is delivered: none whose fence covers it,
 * and none sent once it has completed.  What was placed or delivered before
 * stays.  cancel() and ep_destroy() are no failures.  For messages and small
 * puts and gets the caller's own memory is accessed directly, in the call or in
 * progress(): there a bad address raises a signal.
 *
 * A call reads its array of iovecs before it returns.  The memory they name
 * belongs to the caller again once the operation completes, or 0 is returned.
 * On -ENOMEM nothing was taken.
 *
 * Forks: an interface stays with the process that opened it, and so does its
 * memory.  In a child iface->ops is another table; a caller that may be one
 * must call through it: closing, destroying and cancelling do nothing, no
 * callback runs, and no operation starts.  Peers notice nothing.
 *
 * Limits: more than max_iov entries in one call, or a message of more than
 * max_message bytes, is -EMSGSIZE, whether there is room or not.
 *
 * Dead endpoints: once on_error() is called or cancel() returns, message(),
 * put() and get() return the endpoint's error before they check anything else;
 * ready() returns true, so that no caller waits for one.
 *
 * Counters: an interface that cannot allocate them works without.
 *
 * End: once an operation has completed, on_error() was called, or mem_release()
 * or ep_destroy() has returned, none of its memory is accessed any more.
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
 * A pending operation.  The caller owns it and keeps it until done() runs,
 * exactly once, with 0 or -errno.  A weft_op must not be pending twice.
 */
struct weft_op {
	void (*done)(struct weft_op *op, int status);
};

enum weft_mem_kind {
	WEFT_MEM_HOST,
	WEFT_MEM_CUDA,
};

/* Bytes of a packed key at most; see mem_pack(). */
#define WEFT_RKEY_MAX 144

/* A piece of this process's memory, which a put reads and a get writes. */
struct weft_iov {
	void *addr;
	size_t len;
	/*
	 * The registration that covers [addr, addr+len); NULL: not known, and
	 * the device finds out what it needs.  Read only during the call; if it
	 * is released while the operation is pending, that may fail.
	 */
	struct weft_mem *mem;
};

/* A put may notify its target once all of it is placed. */
struct weft_notify {
	uint64_t tag; /* passed to on_notify() */
};

#define WEFT_MSG_IDS 32 /* message ids are below this (UCT's) */
/*
 * One progress() delivers at most so many messages, and as many notifications.
 */
#define WEFT_PROGRESS_MAX 64

struct weft_iface_cb {
	void *arg;
	/*
	 * A message arrived; @data is valid during the call only.  There is no
	 * endpoint argument: the connection may have no endpoint here.  May
	 * send, may not destroy the iface.
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

struct weft_iface_params {
	/* "eth0"; for nvlink and ib the device's own name */
	const char *netdev;
	int family;			/* AF_INET, AF_INET6 or AF_UNSPEC */
	const struct weft_iface_cb *cb; /* copied */
};

/* The first member of every device's interface and endpoint. */
struct weft_iface {
	const struct weft_dev_ops *ops;
	struct weft_iface_cb cb;
};

struct weft_ep {
	struct weft_iface *iface;
	void *user;
};

struct weft_iface_attr {
	/*
	 * Bytes of one message, id excluded.  0: the device has no messages,
	 * nor notifications; puts that want one are refused with -EOPNOTSUPP.
	 */
	size_t max_message;
	size_t max_iov; /* entries of message(), put(), get(): of any length */
	unsigned int mem_kinds; /* BIT(enum weft_mem_kind) of put, get */
	/*
	 * Cancelling operations in flight (cancel(), ep_destroy()) ends the
	 * connection: both its endpoints fail.
	 */
	bool cancel_ends_ep;
	double bandwidth;	  /* bytes/s one way, an estimate */
	double latency;		  /* s, an estimate */
	double overhead;	  /* s of CPU time per message, estimate */
	struct weft_address addr; /* where this iface listens */
};

struct weft_dev_ops {
	const char *name; /* "tcp", "shm", "nvlink", "ib" */
	size_t rkey_len;  /* bytes of a packed key */

	/*
	 * Can interfaces be opened in this process, and meet peers?  Tries what
	 * a sandbox may refuse.  0, or -errno and *@why, a constant string,
	 * which the caller logs before it goes on without the device.  NULL:
	 * the device works if the host has it.
	 */
	int (*works)(const char **why);
	/*
	 * Opens the interface and listens.  -ENODEV: no such device;
	 * -EADDRINUSE: the port range is used up.  Logs the cause.
	 */
	int (*iface_open)(const struct weft_iface_params *params,
			  struct weft_iface **iface);
	/*
	 * Frees @iface.  All its endpoints must have been destroyed, so no
	 * operation is pending.  Peers see an orderly close.
	 */
	void (*iface_close)(struct weft_iface *iface);
	/*
	 * Called in a child while it is forked: closes the descriptors of
	 * @iface but event_fd(), and does nothing else.  Takes no lock.
	 */
	void (*iface_forget)(struct weft_iface *iface);
	void (*iface_query)(struct weft_iface *iface,
			    struct weft_iface_attr *attr);
	/*
	 * Reachability, decided from the address, this host's state and what
	 * its kernel answers at once.  Never waits, and is certain: what fails
	 * later is an endpoint error.  If false, *@why (unless @why is NULL) is
	 * the reason, a constant string in which "it" is the peer.
	 */
	bool (*reaches)(struct weft_iface *iface,
			const struct weft_address *remote, const char **why);

	/*
	 * Moves what can be moved.  Returns the number of events handled, 0
	 * when idle.  What exceeds WEFT_PROGRESS_MAX waits for the next call,
	 * and no endpoint starves.
	 */
	unsigned int (*progress)(struct weft_iface *iface);
	/*
	 * A descriptor that polls readable when progress() has work, including
	 * completions of the device's threads and, once arm() was called,
	 * deadlines.  It belongs to the device: do not read or close it.
	 */
	int (*event_fd)(struct weft_iface *iface);
	/*
	 * Announces that the caller will sleep on event_fd.  Returns 0, or
	 * -EBUSY exactly while progress() has something to deliver, or has a
	 * deadline for which no descriptor is left: call progress() and retry.
	 */
	int (*arm)(struct weft_iface *iface);

	/*
	 * Creates an endpoint; never blocks.  It connects in progress(),
	 * operations return -EAGAIN until then, and failure to connect is for
	 * on_error(); -ENOMEM, -EMFILE and the like: it cannot even try.  One
	 * connection per pair: the n-th endpoint to an address pairs with the
	 * peer's n-th endpoint back.  A device without connections pairs
	 * nothing.
	 */
	int (*ep_create)(struct weft_iface *iface,
			 const struct weft_address *remote, void *user,
			 struct weft_ep **ep);
	/*
	 * Any state, also inside on_error(), but not inside the done() of one
	 * of its operations.  Completes pending operations with -ECANCELED
	 * before it returns; messages that were not flushed may be lost.  What
	 * the peer still sends to this iface is delivered as before, unless
	 * this ends the connection (cancel_ends_ep).
	 */
	void (*ep_destroy)(struct weft_ep *ep);
	/* Does what was accepted wait for progress() to send it? */
	bool (*unsent)(struct weft_ep *ep);

	/*
	 * Would message() or put() accept data now?  The same predicate that
	 * makes them return -EAGAIN; on_ready() follows when it turns true.
	 */
	bool (*ready)(struct weft_ep *ep);
	/*
	 * Sends one message.  0: sent or copied, the source may be reused;
	 * -EAGAIN: no room; -EMSGSIZE; or the endpoint's error once it is dead.
	 */
	int (*message)(struct weft_ep *ep, uint8_t id, const struct iovec *iov,
		       unsigned int iovcnt);
	/*
	 * The same, packed by the caller into the send buffer: @pack writes at
	 * most max_message bytes and returns how many; it is called only if the
	 * message will be sent.  Returns that length, or as message().
	 */
	ssize_t (*message_pack)(struct weft_ep *ep, uint8_t id,
				size_t (*pack)(void *dest, void *arg),
				void *arg);
	/*
	 * Writes to the peer's memory.  -EINPROGRESS: accepted; @op completes
	 * when every byte is placed and visible at the target.  Else -EAGAIN,
	 * or the endpoint's error.  Completion -EACCES: the key does not allow
	 * it (revoked, out of bounds), or the memory is not there; see
	 * "Failures".  A small one may not be sent before the next message,
	 * progress() or arm().
	 */
	int (*put)(struct weft_ep *ep, const struct weft_iov *iov,
		   unsigned int iovcnt, uint64_t remote_addr, const void *rkey,
		   const struct weft_notify *notify, struct weft_op *op);
	/*
	 * Reads from the peer's memory; @op completes when all bytes are in
	 * @iov.  Returns and fails as put().
	 */
	int (*get)(struct weft_ep *ep, const struct weft_iov *iov,
		   unsigned int iovcnt, uint64_t remote_addr, const void *rkey,
		   struct weft_op *op);
	/* See "Order" above.  Never fails, never waits. */
	void (*fence)(struct weft_ep *ep);
	/*
	 * 0: the peer's weft has all earlier messages, which it will deliver
	 * if its caller makes progress, even if this process is killed now;
	 * and all puts and gets are complete.  -EINPROGRESS: @op completes then
	 * (NULL: call again), and may wait for puts and gets that are started
	 * meanwhile; as long as the peer makes no progress, it may wait.  On a
	 * dead endpoint: 0 if nothing was lost or the caller cancelled it
	 * (cancel()), else its error.
	 */
	int (*flush)(struct weft_ep *ep, struct weft_op *op);
	/*
	 * Completes everything pending with -ECANCELED before it returns.  The
	 * endpoint is dead afterwards, without on_error().  The connection may
	 * live on for the peer, which may still write where its keys allow:
	 * release those first.
	 */
	void (*cancel)(struct weft_ep *ep);

	/*
	 * Registers [addr, addr+len), so that peers can name it by a key. The
	 * memory must stay mapped until mem_release(); if it is not, a peer's
	 * access fails like a bad key, never with a signal.  The caller owns
	 * *@mem.  -EOPNOTSUPP: a kind that is not in mem_kinds.
	 */
	int (*mem_register)(void *addr, size_t len, enum weft_mem_kind kind,
			    struct weft_mem **mem);
	/*
	 * Writes the key by which peers' puts and gets name @mem: rkey_len
	 * bytes, of any alignment.  The owner of the memory checks it on every
	 * access; it cannot be guessed, nor outlive @mem.
	 */
	void (*mem_pack)(struct weft_mem *mem, void *rkey);
	/*
	 * Would puts and gets with this key work, as far as that depends on
	 * where the peer's memory is?  0, or -EHOSTUNREACH: another device has
	 * to carry them.  May map something to find out.  Any thread.  NULL:
	 * they do.
	 */
	int (*mem_reaches)(const void *rkey);
	/*
	 * Revokes @mem's keys and frees it.  When it returns, nothing lands in
	 * that memory any more.
	 */
	void (*mem_release)(struct weft_mem *mem);
};

extern const struct weft_dev_ops weft_tcp_ops, weft_shm_ops, weft_nvlink_ops;
extern const struct weft_dev_ops weft_ib_ops; /* where HAVE_VERBS_H */

#endif

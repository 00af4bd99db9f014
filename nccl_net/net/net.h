/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one implementation behind all versions of NCCL's network interface;
 * net_v6.c ... net_v12.c only translate to it.
 *
 * Nothing here blocks, but for closing, which is bounded.  Everything may be
 * called from any thread: one lock per context guards all but registration,
 * which runs beside isend.  Errors are -errno; result.c turns them into NCCL's.
 *
 * A device stands for a place (near which GPU) and for kinds of memory, not for
 * a wire: a handle names every path to its process, and the connecting side
 * chooses one.
 */
#ifndef WEFT_NCCL_NET_NET_NET_H
#define WEFT_NCCL_NET_NET_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weft_net; /* a context: one per v11+ communicator,
		    one per process before */
struct weft_net_listener;
struct weft_net_comm;
struct weft_net_mr;
struct weft_net_request;

/* What any version's properties are filled from. */
struct weft_net_props {
	char *name;
	char *pci_path;
	uint64_t guid;
	int port;
	int ptr_support;
	int speed; /* Mbit/s */
	int max_comms;
	int max_recvs;
	int reg_is_global;
	size_t max_bytes;
};

int weft_net_open(struct weft_net **net);
/* Closes what is left open in it, too. */
void weft_net_close(struct weft_net *net);
/* Whether NCCL has any open. */
bool weft_net_active(void);

/*
 * The ports of verbs devices, one each; without any, one on every rank that has
 * a usable interface at all.
 */
int weft_net_devices(void);
int weft_net_properties(int dev, struct weft_net_props *props);

/* @handle: WEFT_NET_HANDLE bytes for the peer. */
#define WEFT_NET_HANDLE 128
int weft_net_listen(struct weft_net *net, int dev, void *handle,
		    struct weft_net_listener **listener);
void weft_net_close_listener(struct weft_net_listener *listener);

/*
 * Both return 0 with *@comm NULL until the other side has answered; call again
 * with the same @handle, in which connect keeps its state.
 */
int weft_net_connect(struct weft_net *net, int dev, void *handle,
		     struct weft_net_comm **comm);
int weft_net_accept(struct weft_net_listener *listener,
		    struct weft_net_comm **comm);
/*
 * Waits, for a bounded time, until sends under way have left the caller's
 * memory; receives still posted are revoked.  Other connections are not
 * delayed.
 */
void weft_net_close_comm(struct weft_net_comm *comm);

int weft_net_register(struct weft_net_comm *comm, void *data, size_t size,
		      int ptr_type, struct weft_net_mr **mr);
void weft_net_deregister(struct weft_net_mr *mr);

/*
 * *@req is NULL if the other side has not posted its receive yet, the wire is
 * full, or all requests are in use: try again.  -EMSGSIZE: larger than the
 * receive that it meets.  Any failure, here or in a test, ends the comm on both
 * sides; that of a put ends all comms between the two processes.
 */
int weft_net_send(struct weft_net_comm *comm, const void *data, size_t size,
		  struct weft_net_mr *mr, struct weft_net_request **req);
int weft_net_recv(struct weft_net_comm *comm, void *data, size_t size,
		  struct weft_net_mr *mr, struct weft_net_request **req);
/*
 * @size: bytes sent or received, once done.  A request that is done, or has
 * failed, is free and must not be tested again.
 */
int weft_net_test(struct weft_net_request *req, bool *done, size_t *size);

/* A context for interfaces without contexts (v6 to v10); made once. */
int weft_net_shared(struct weft_net **net);

#endif

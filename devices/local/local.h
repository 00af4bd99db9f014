/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How interfaces of one host meet: on two Unix sockets, one with an abstract
 * name, for peers in the same network namespace, and one in the run folder.
 */
#ifndef WEFT_DEVICES_LOCAL_LOCAL_H
#define WEFT_DEVICES_LOCAL_LOCAL_H

#include "devices/common/base.h"
#include "devices/local/folder.h"

/* Part of a device's interface; weft_local_init() first. */
struct weft_local {
	int listen_fd, listen_path_fd; /* -1: not there */
	struct weft_folder *run;       /* the shared folder; NULL: none */
};

/* The contract's works(), for devices that meet here and share memory. */
int weft_local_works(const char **why);
void weft_local_init(struct weft_local *local);
/*
 * Listens, and completes the address of @base, which is open; local.c has its
 * form.  -errno, logged; close it in any case, before @base.
 */
int weft_local_open(struct weft_local *local, struct weft_base *base);
void weft_local_close(struct weft_local *local, struct weft_base *base);
/* Part of iface_forget(). */
void weft_local_forget(struct weft_local *local);
/* The contract's reaches(); asks the kernel once per peer. */
bool weft_local_reaches(const struct weft_local *local, struct weft_base *base,
			const struct weft_address *remote, const char **why);
/* The connect() of struct weft_ep_ops; address bytes alone refuse a peer. */
int weft_local_connect(struct weft_iface *iface,
		       const struct weft_address *remote, uint32_t number,
		       struct weft_conn **conn);
/* A socket connected to @remote; -EAGAIN (backlog full) or another -errno. */
int weft_local_dial(const struct weft_local *local,
		    const struct weft_base *base,
		    const struct weft_address *remote);

#endif

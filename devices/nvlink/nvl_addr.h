/* SPDX-License-Identifier: BSD-3-Clause */
/* Where an interface is found: its address, its sockets, the run folder. */
#ifndef WEFT_DEVICES_NVL_ADDR_H
#define WEFT_DEVICES_NVL_ADDR_H

#include "devices/nvlink/nvl.h"

/* nvl_addr.c */
/* Fills iface->addr, its sockets being open; see the file for the form. */
void nvl_addr_make(struct nvl_iface *iface);
/* As the contract's reaches(), by address bytes alone. */
bool nvl_addr_reaches(const struct nvl_iface *iface,
		      const struct weft_address *remote, const char **why);
/* On the abstract name of @id; a descriptor, or -errno. */
int nvl_addr_listen(uint64_t id);
/* By whichever of its sockets we see; 0, -EAGAIN (backlog full), or why not. */
int nvl_addr_connect(struct nvl_iface *iface, int fd,
		     const struct weft_address *remote);

/* nvl_folder.c: the folder that pods share */
struct nvl_folder;
/* NULL: there is none that can be used; logs at INFO why. */
struct nvl_folder *nvl_folder_open(void);
void nvl_folder_close(struct nvl_folder *run);
/* Equal for two processes exactly when they see the same folder; never 0. */
uint64_t nvl_folder_id(const struct nvl_folder *run);
/* A Unix socket for any of this; -errno, which is logged. */
int nvl_folder_socket(void);
/* A listening socket for @id; its file goes away with nvl_folder_unlisten(). */
int nvl_folder_listen(struct nvl_folder *run, uint64_t id);
void nvl_folder_unlisten(struct nvl_folder *run, uint64_t id);
/* 0, -EAGAIN (backlog full), or why not. */
int nvl_folder_connect(struct nvl_folder *run, int fd, uint64_t id);
/* A file in the folder, made if need be; -errno. */
int nvl_folder_open_file(const struct nvl_folder *run, const char *name);

#endif

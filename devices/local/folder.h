/* SPDX-License-Identifier: BSD-3-Clause */
/* The run folder, in which devices of one host meet; folder.c has its files. */
#ifndef WEFT_DEVICES_LOCAL_FOLDER_H
#define WEFT_DEVICES_LOCAL_FOLDER_H

#include <stdint.h>

struct weft_folder;

/* NULL: none can be used; the cause is logged at level info. */
struct weft_folder *weft_folder_open(void);
void weft_folder_close(struct weft_folder *run);
/* In a forked child: closes its descriptors. */
void weft_folder_forget(struct weft_folder *run);
/* Equal for two processes if and only if they see the same folder; never 0. */
uint64_t weft_folder_id(const struct weft_folder *run);
/* A Unix socket for any of this; -errno, which is logged. */
int weft_folder_socket(void);
/* A listening socket for @id; its file goes with weft_folder_unlisten(). */
int weft_folder_listen(struct weft_folder *run, uint64_t id);
void weft_folder_unlisten(struct weft_folder *run, uint64_t id);
/* 0, -EAGAIN (backlog full) or another -errno. */
int weft_folder_connect(struct weft_folder *run, int fd, uint64_t id);

#endif

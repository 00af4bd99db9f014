/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows of GPU memory. */
#ifndef WEFT_DEVICES_SHM_WINDOW_H
#define WEFT_DEVICES_SHM_WINDOW_H

#include "devices/shm/shm.h"

/*
 * The peer wants one: creates it, and sends it when the socket accepts it.
 * -errno.
 */
int shm_window_offer(struct shm_conn *conn);
/* Sends a window that is still to be sent; 1: it did. */
unsigned int shm_window_send(struct shm_conn *conn);
/*
 * A window of the peer's; takes @fd.  -EPROTO: it was not requested; or -errno.
 */
int shm_window_take(struct shm_conn *conn, size_t size, int fd);
/* The peer has left its window.  -EPROTO: it has none. */
int shm_window_left(struct shm_conn *conn);
/* The timer has fired: leaves an idle window. */
void shm_window_tick(struct shm_conn *conn, uint64_t now);
void shm_window_close(struct shm_conn *conn);
/* Pins the windows for fast copies by @engine, if possible. */
void shm_window_pin(struct shm_window *w, const struct weft_engine *engine);
/* To write: a chunk of @len bytes in one piece; NULL: no room. */
struct shm_chunk *shm_window_take_room(struct shm_conn *conn, size_t len);
/* The same without taking it. */
bool shm_window_has_room(struct shm_conn *conn, size_t len);
/* To read: the chunk that the peer has announced; NULL: it is impossible. */
struct shm_chunk *shm_window_claim(struct shm_conn *conn,
				   const struct shm_place *place);
/* Frees the room of chunks that were read, in order. */
void shm_window_free(struct shm_conn *conn);
/* Takes back copies that no engine has: all, once it is not open. */
void shm_window_cancel(struct shm_conn *conn);
/* The same, and waits for those that an engine has, bounded by the watchdog. */
void shm_window_stop(struct shm_conn *conn);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Meeting: dialling, accepting, the hello, the exchange of inboxes. */
#ifndef WEFT_DEVICES_NVL_DIAL_H
#define WEFT_DEVICES_NVL_DIAL_H

#include "devices/nvlink/nvl.h"

void nvl_conn_dial(struct nvl_conn *conn);
/* Does the kernel let us dial it?  False: one warning has said why not. */
bool nvl_conn_may_dial(struct nvl_iface *iface,
		       const struct weft_address *remote);
/* Watches for peers that dial; -errno. */
int nvl_conn_listen(struct nvl_iface *iface);
void nvl_conn_accept(struct nvl_iface *iface, int listen_fd);
/* After a pause: descriptors had run out, or too many strangers were there. */
void nvl_conn_resume_accept(struct nvl_iface *iface, uint64_t now);
/* Goes on with the hello and the inboxes; the number of steps. */
unsigned int nvl_conn_step(struct nvl_conn *conn);
struct nvl_conn *nvl_conn_find(struct nvl_iface *iface, uint64_t peer_id,
			       uint32_t sn, const uint8_t *key);
/* This program kept us from looking for @stood ms. */
void nvl_conn_extend(struct nvl_conn *conn, uint64_t now, uint64_t stood);
/* Deadlines. */
unsigned int nvl_conn_tick(struct nvl_conn *conn, uint64_t now);

#endif

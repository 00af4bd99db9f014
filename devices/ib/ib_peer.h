/* SPDX-License-Identifier: BSD-3-Clause */
/* The control plane. */
#ifndef WEFT_DEVICES_IB_PEER_H
#define WEFT_DEVICES_IB_PEER_H

#include "devices/ib/ib.h"

extern const struct weft_iface_cb ib_ctl_callbacks;
struct ib_peer *ib_peer_get(struct ib_iface *iface,
			    const struct weft_address *addr);
struct ib_conn *ib_peer_conn(struct ib_peer *peer, uint32_t number);
/* Sends what is pending for it. */
void ib_peer_send(struct ib_peer *peer);
/*
 * Tells the peer that the local connection has ended or does not exist
 * (ib_proto.h).
 */
void ib_peer_send_gone(struct ib_peer *peer, uint32_t number, int err,
		       enum ibv_wc_status status);
/* False: no room, try again later. */
bool ib_peer_send_bye(struct ib_peer *peer, uint32_t number);
void ib_peers_reap(struct ib_iface *iface);
void ib_peers_close(struct ib_iface *iface);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Deadlines and dead peers. */
#ifndef WEFT_DEVICES_TCP_TIMER_H
#define WEFT_DEVICES_TCP_TIMER_H

#include "devices/tcp/tcp.h"

unsigned int tcp_iface_on_timer(struct weft_events *ev, uint64_t now,
				uint64_t stood);

#endif

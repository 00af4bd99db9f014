/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEFT_DEVICES_IB_IFACE_H
#define WEFT_DEVICES_IB_IFACE_H

#include "devices/ib/ib.h"

/* Starts the timer for the first connection. */
void ib_timer_start(struct ib_iface *iface);
/* Handles iface->alarm. */
void ib_timer_alarm(struct ib_iface *iface);
/* The timer fired (devices/common/events.h). */
unsigned int ib_timer_tick(struct weft_events *ev, uint64_t now,
			   uint64_t stood);

#endif

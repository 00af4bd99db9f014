/* SPDX-License-Identifier: BSD-3-Clause */
/* What every device's interface has: address, events, session, endpoints. */
#ifndef WEFT_DEVICES_COMMON_BASE_H
#define WEFT_DEVICES_COMMON_BASE_H

#include "devices/common/bounce.h"
#include "devices/common/ep_number.h"
#include "devices/common/events.h"
#include "devices/common/session.h"
#include "stats/stats.h"
#include "devices/device.h"

struct weft_ep_ops;

/* The first member of a device's interface. */
struct weft_base {
	struct weft_iface iface;
	struct weft_list live_link; /* forked.c */
	const struct weft_ep_ops *ep_ops;
	struct weft_events events;
	struct weft_session session; /* not used by ib */
	struct weft_ep_numbers numbers;
	struct weft_list work; /* weft_conn.work_link */
	struct weft_bounce bounce;
	struct weft_address *addr; /* with the key */
	uint64_t id;		   /* and the key's id */
	struct weft_stats *stats;  /* NULL: nothing is counted */
};

/*
 * Initialises the zeroed @base; call weft_base_close() even on failure.  The
 * address has a new key; the device adds the rest.  -errno, logged if there is
 * more to say.
 */
int weft_base_open(struct weft_base *base, const struct weft_dev_ops *ops,
		   const struct weft_ep_ops *ep_ops,
		   const struct weft_iface_params *params,
		   unsigned int (*on_timer)(struct weft_events *ev,
					    uint64_t now, uint64_t stood));
/* The on_timer() of a device whose session alone has deadlines. */
unsigned int weft_base_on_timer(struct weft_events *ev, uint64_t now,
				uint64_t stood);
/* Frees what weft_base_open() acquired, after all connections and endpoints. */
void weft_base_close(struct weft_base *base);
/*
 * Part of iface_forget(): closes the descriptors of what weft_base_open()
 * acquired, event_fd() excepted, and those of handshakes.
 */
void weft_base_forget(struct weft_base *base);
/* Starts counting, as interface @name. */
void weft_base_count(struct weft_base *base, const char *name);
/*
 * Calls @look for each connection that needs attention and returns the sum of
 * its results.  Connections that need it meanwhile wait for the next call.
 */
unsigned int weft_base_work(struct weft_base *base,
			    unsigned int (*look)(struct weft_conn *conn));
/* The contract's event_fd(). */
int weft_base_event_fd(struct weft_iface *iface);

static inline struct weft_base *weft_base(struct weft_iface *i)
{
	return container_of(i, struct weft_base, iface);
}

#endif

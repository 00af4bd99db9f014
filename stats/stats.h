/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who carried what: counters per device, interface and peer.  `weft status`
 * reads copies of them (stats/page.h).
 *
 * WEFT_STATS=1 writes them to stderr, WEFT_STATS=FILE appends to FILE ("%p" in
 * it becomes the pid): one JSON object per line and peer, written when an
 * interface closes, and at exit for those still open.
 * WEFT_STATS=prometheus:FILE replaces FILE now and then
 * (stats/prometheus.h); in a folder each process has a name.  "0" or unset:
 * counted, never written.
 */
#ifndef WEFT_STATS_STATS_H
#define WEFT_STATS_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "stats/neighbour.h"
#include "stats/page.h"

#define weft_count(c, name, n) \
	atomic_fetch_add_explicit(&(c)->name, (n), memory_order_relaxed)
/*
 * The same where no two threads add to it at once; others read it.  For small
 * messages: a locked instruction takes as long as a good part of one.
 */
#define weft_count_owned(c, name, n)                                          \
	atomic_store_explicit(                                                \
		&(c)->name,                                                   \
		atomic_load_explicit(&(c)->name, memory_order_relaxed) + (n), \
		memory_order_relaxed)

struct weft_stats; /* the rows of one interface */

/*
 * Set the runtime that has loaded this copy of weft, "ucx" or "nccl", for every
 * row: both may be in one process.  @name is not copied.  Default: "", as in
 * weft's tools.
 */
void weft_stats_runtime(const char *name);
const char *weft_stats_loaded_by(void);

/*
 * NCCL here is introduced as @id: `weft status` shows this process from now on,
 * which may never have an interface of weft's.
 */
void weft_stats_introduced(const char *id);

/* NULL when out of memory; every call below takes NULL. */
struct weft_stats *weft_stats_open(const char *device, const char *netdev);
/* The id of this interface: "peer" in the peers' rows. */
void weft_stats_own_id(struct weft_stats *s, uint64_t id);
/*
 * The counters of one peer; a peer that comes back gets its row again.  Drop
 * them with weft_stats_peer_ended(): if many peers have ended, the oldest are
 * merged into one row.  Never NULL: without memory it is a shared row that is
 * not printed.
 */
struct weft_counters *weft_stats_peer(struct weft_stats *s, uint64_t peer_id,
				      const char *where);
/* @c of weft_stats_peer(), or NULL; do not use it afterwards. */
void weft_stats_peer_ended(struct weft_stats *s, struct weft_counters *c);
/*
 * The peer is on this host, and @barrier is why data goes
 * over the network: logged at INFO; as a warning after more than 1 GB, unless
 * that was @chosen.
 */
void weft_stats_detour(struct weft_counters *c, enum weft_barrier barrier,
		       bool chosen);
void weft_stats_close(struct weft_stats *s);

/*
 * Writes what has changed for `weft status`, if the last time is long ago.
 * @now is weft_now_ms(), here and below.
 */
void weft_stats_tick(uint64_t now);
/*
 * Before the caller sleeps: the same, or when it must wake and call
 * weft_stats_tick(); UINT64_MAX: all is written, or another will.
 */
uint64_t weft_stats_sleep(uint64_t now);

#endif

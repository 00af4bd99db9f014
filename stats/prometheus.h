/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counters in Prometheus's text format, a file for node_exporter's textfile
 * collector.  By interface and not by peer: those have new names in each run.
 */
#ifndef WEFT_STATS_PROMETHEUS_H
#define WEFT_STATS_PROMETHEUS_H

#include "stats/page.h"

struct weft_sum {
	char device[16];
	char netdev[64];
	struct weft_counters c;
};

struct weft_sums {
	unsigned int n;
	struct weft_sum list[32]; /* the last has all for which is no room */
};

/* Adds what was counted, but for streams_max, of which the most counts. */
void weft_counters_add(struct weft_counters *to,
		       const struct weft_counters *from);
void weft_sums_add(struct weft_sums *sums, const char *device,
		   const char *netdev, const struct weft_counters *c);

/*
 * Replaces the file @path by @sums, so that a reader sees all or nothing.
 * @labels of this process: 'pid="7",host="a"'.  -errno.
 */
int weft_prometheus_write(const char *path, const char *labels,
			  const struct weft_sums *sums);

#endif

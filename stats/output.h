/* SPDX-License-Identifier: BSD-3-Clause */
/* Where counters are written, as WEFT_STATS names it. */
#ifndef WEFT_STATS_OUTPUT_H
#define WEFT_STATS_OUTPUT_H

#define WEFT_STATS_PATH_LEN 4096

/* NULL: Prometheus's format is not asked for. */
const char *weft_stats_export_path(void);
/* -1: off, or it fails. */
int weft_stats_open_output(void);
/* The file @to; in a folder, a name that no other process has. */
void weft_stats_name_export(const char *to, const char *host,
			    const char *runtime,
			    char path[WEFT_STATS_PATH_LEN]);

#endif

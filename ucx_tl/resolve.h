/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEFT_UCX_TL_RESOLVE_H
#define WEFT_UCX_TL_RESOLVE_H

struct weft_uct;

/* uclog.c: weft's messages go where UCX's go, from the first copy on. */
void weft_uct_log_attach(const struct weft_uct *uct);
/* And UCX's own about a peer that has no transport of weft's is explained. */
void weft_uct_log_filter(const struct weft_uct *uct);

#endif

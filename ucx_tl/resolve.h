/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEFT_UCX_TL_RESOLVE_H
#define WEFT_UCX_TL_RESOLVE_H

struct weft_uct;

/* uclog.c: sends weft's log to ucs_log() of the first UCX that registers. */
void weft_uct_log_attach(const struct weft_uct *uct);
/*
 * uclog.c: explains UCX's error "no active messages transport to" if the peer
 * offers no weft transport.  No effect if this UCX lacks
 * ucs_log_push_handler().
 */
void weft_uct_log_filter(const struct weft_uct *uct);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* What ucx_tl says to sleep.c; load.h has what the preload library says. */
#ifndef WEFT_PRELOAD_SLEEP_H
#define WEFT_PRELOAD_SLEEP_H

/* One interface of weft's more or less: no sleep while there are none. */
void weft_uct_idle_iface(int change);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many channels NCCL builds over weft.
 *
 * With one GPU a node NCCL builds two, which cannot fill the wire: its step
 * pipeline is too short.  Four can, but cost time on small collectives, where
 * the tuner takes them back (tuner.h); so NCCL_MIN_NCHANNELS is set only where
 * NCCL has a tuner to ask.  One value everywhere: ranks that differ cannot
 * connect.
 *
 * It is set while the network plugin starts, which every NCCL lets it do before
 * it reads the setting for the first time: only there is known that the traffic
 * is weft's and which NCCL asks.  The environment plugin and `weft run` know
 * neither.  Whoever has set any channel count has the last word.
 */
#ifndef WEFT_NCCL_NET_CHANNELS_H
#define WEFT_NCCL_NET_CHANNELS_H

#include <stdbool.h>

#define WEFT_NCCL_CHANNELS	"4"

/*
 * Nobody has set a channel count, another tuner or another network; ours does
 * not count as set.
 */
bool weft_nccl_channels_free(void);
/* Sets NCCL_MIN_NCHANNELS where it is free. */
void weft_nccl_channels_raise(void);
/* NCCL builds as many as weft wants: some may be taken back. */
bool weft_nccl_channels_raised(void);

#endif

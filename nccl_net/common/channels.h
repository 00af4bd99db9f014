/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What weft tells NCCL about channels and buffers.
 *
 * Over TCP, with one GPU a node, NCCL builds two channels, which cannot fill
 * the wire: its step pipeline is too short.  Four can, but slow down small
 * collectives, for which the tuner lowers the number (api/tuner.c); so
 * NCCL_MIN_NCHANNELS is set only if NCCL asks the tuner.  Sends and receives go
 * in pieces of 128 KiB, each of which costs NCCL's one thread a posted receive
 * and two completions: with 512 KiB, the most that NCCL's buffers allow, they
 * are twice as fast (docs/performance/nccl-over-tcp.md).  NCCL's pinned buffers
 * for them, made on first use, take 16 MiB per channel then instead of 4 (2.28,
 * transport/net.cc, sharedNetBuffersInit).
 *
 * They are set while the network plugin starts, which is before any NCCL reads
 * them: only then is it known that weft carries the traffic, and for which
 * NCCL.  The user's settings are kept.
 */
#ifndef WEFT_NCCL_NET_COMMON_CHANNELS_H
#define WEFT_NCCL_NET_COMMON_CHANNELS_H

#include <stdbool.h>
#include <stddef.h>

#define WEFT_NCCL_CHANNELS "4"
#define WEFT_NCCL_CHUNK	   "524288"

/* NCCL_NET names no other network. */
bool weft_nccl_network_ours(void);
/* Sets what the user has not; @tuner: NCCL asks weft's tuner. */
void weft_nccl_channels_raise(bool tuner);
/* NCCL builds as many channels as weft has set: the tuner may lower them. */
bool weft_nccl_channels_raised(void);

/*
 * The values in force: NCCL_MIN_NCHANNELS, 0 if unset; NCCL_BUFFSIZE in MiB,
 * NCCL's default if unset.
 */
unsigned int weft_nccl_channels_set(void);
unsigned int weft_nccl_buffer_set(void);

/* The i-th name and value; false: there are no more. */
bool weft_nccl_network_setting(size_t i, const char **name, const char **value,
			       const char **why);

#endif

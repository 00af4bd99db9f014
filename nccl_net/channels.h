/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What weft tells NCCL about channels and buffers.
 *
 * By TCP, with one GPU a node, NCCL builds two channels, which cannot fill the
 * wire: its step pipeline is too short.  Four can, but cost time on small
 * collectives, where the tuner takes them back (tuner.h); so NCCL_MIN_NCHANNELS
 * is set only where NCCL has a tuner to ask.  Sends and receives go in pieces of
 * 128 KiB, each of which costs NCCL's one thread for them a receive that is
 * announced and two completions: with 512 KiB, the most that NCCL's buffers
 * allow, they are twice as fast (docs/performance/nccl-over-tcp.md).  NCCL's
 * pinned buffers for them, made on first use, take 16 MiB per channel then
 * instead of 4 (2.28, transport/net.cc, sharedNetBuffersInit).
 *
 * Where NVLink is offered (offer.h) NCCL is to hand over GPU memory although no
 * network is near its GPU.  Where introductions are off, too (introduce.h), so that
 * all ranks do the same, in pieces large enough for copy engines: 20
 * channels with buffers of 8 MiB, of which a slot is 1 MiB and a copy two slots.
 * (All_reduce of 256 MiB between two H200: 253 GB/s with 20 channels, 236 with
 * 16, 147 with 8, 82 with four.)  What that takes of GPU memory, per rank and
 * communicator, each buffer in pages of 2 MiB:
 *
 *   rings and trees   channels x 2 neighbours x (NCCL_BUFFSIZE + LL128's 1 MiB
 *                     + LL's 0.5): 400 MiB
 *   sends, receives   2 pools of channels, a power of two, x
 *                     NCCL_SHARED_STEPS (16) x NCCL_P2P_NET_CHUNKSIZE, made on
 *                     first use: 256 MiB
 *
 * (NCCL 2.28, init.cc, computeBuffSizes; transport/net.cc, sharedNetBuffersInit.)
 * NCCL's own four channels would take 80 and 16 MiB: 320 MiB more for
 * collectives, and 240 where there are sends.
 *
 * LL128 is never chosen for weft's traffic: NCCL takes it for networks near the
 * GPU alone, and weft's device has no place.  Communicators inside a pod use it,
 * up to some MiB; a slot of 128 KiB holds a channel's share of those.
 *
 * One value everywhere: ranks that differ cannot connect.
 *
 * They are set while the network plugin starts, which every NCCL lets it do
 * before it reads them for the first time: only there is known that the traffic
 * is weft's and which NCCL asks.  NCCL reads NCCL_NCHANNELS_PER_NET_PEER too
 * early for that from 2.28 on: it takes the environment plugin, which says the
 * same where NCCL_NET_PLUGIN names weft.  Whoever has set one has the last word.
 */
#ifndef WEFT_NCCL_NET_CHANNELS_H
#define WEFT_NCCL_NET_CHANNELS_H

#include <stdbool.h>
#include <stddef.h>

#define WEFT_NCCL_CHANNELS		"4"
#define WEFT_NCCL_CHUNK			"524288"
#define WEFT_NCCL_NVLINK_CHANNELS	"20"

/* NCCL_NET names no other network. */
bool weft_nccl_network_ours(void);
/*
 * Nobody has set a channel count, another tuner or another network; ours does
 * not count as set.
 */
bool weft_nccl_channels_free(void);
/* Sets all that is free; @tuner: NCCL asks ours. */
void weft_nccl_channels_raise(bool tuner);
/* NCCL builds as many as weft wants: some may be taken back. */
bool weft_nccl_channels_raised(void);

/*
 * What is set, by whomever: NCCL_MIN_NCHANNELS, 0: not; NCCL_BUFFSIZE in MiB, or
 * what NCCL takes where it is not set.
 */
unsigned int weft_nccl_channels_set(void);
unsigned int weft_nccl_buffer_set(void);

/*
 * The i-th name and its value (NULL: the user chose otherwise) where NVLink is
 * offered, which is not asked here; false: there are no more.
 */
bool weft_nccl_nvlink_setting(size_t i, const char **name, const char **value,
			      const char **why);
/* The same where it is not offered. */
bool weft_nccl_network_setting(size_t i, const char **name, const char **value,
			       const char **why);

#endif

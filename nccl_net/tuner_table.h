/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many channels pay, by a rank's share of a collective (its bytes over the
 * ranks: what one step of a ring moves).  Above the last line all that are
 * built are used.
 *
 * Measured on 2026-11-21 with NCCL 2.28.9 (torch 2.11), two H200 in one host of
 * 32 cores, P2P and shared memory off, TCP over loopback, by tests/gpu/run.sh
 * in two rounds.  us of all_reduce, all_gather over two ranks with 1, 2, 4
 * channels built:
 *	 64 KiB	   71	81    110	   43	49   61
 *	128 KiB	   80	95    124	   52	57   68
 *	512 KiB	  161  207    206	   91  119  108
 *	  1 MiB	  267  190    350	  127  107  171
 *	  2 MiB	  450  309    342	  388  238  185
 *	  4 MiB	  947  571    484	  648  307  308
 *	  8 MiB	 1871  870    618	 1279  669  430
 *	 64 MiB	15626 5693   3662	 9305 3143 2452
 * Broadcast gains from every channel at any size: 256 KiB 65, 75, 43; 1 MiB
 * 183, 140, 104; 8 MiB 1161, 793, 345.
 *
 * Two channels below a share of 64 KiB may be more than NCCL's own number,
 * which setting one undoes.
 */
#ifndef WEFT_NCCL_NET_TUNER_TABLE_H
#define WEFT_NCCL_NET_TUNER_TABLE_H

#include <stddef.h>

struct tuner_row {
	size_t share;			/* up to so many bytes */
	int channels;
};

static const struct tuner_row tcp_table[] = {
	{ 256u << 10, 1 },
	{ 1024u << 10, 2 },
};

/*
 * By NVLink, of the 16 channels that are built.  A channel's kernel moves
 * 22 GB/s of an all_reduce, and a copy of its costs some us whatever its size.
 * Measured on 2026-11-21 with NCCL 2.28.9 (torch 2.11), two H200, a pod each,
 * by tests/gpu/run.sh --pods --sweep; us of all_reduce with 1, 2, 4, 8, 16
 * channels:
 *	  2 MiB	  134	112	165	232	232
 *	  4 MiB	  216	145	152	219	327
 *	  8 MiB	  393	218	180	227	336
 *	 16 MiB	  769	398	253	271	358
 *	 64 MiB	 3039  1538	817	489	708
 *	256 MiB	12119  6071    3119    1752    1587
 */
static const struct tuner_row nvlink_table[] = {
	{ 64u << 10, 1 },
	{ 512u << 10, 2 },
	{ 2048u << 10, 4 },
	{ 8192u << 10, 8 },
};

/* LL, which it would choose up to 1 MiB: 42 us at 8 KiB, 47 at 64, 330 at 1024. */
#define LL_SHARE	(32u << 10)
/* More ranks than this and a tree may need fewer steps. */
#define RING_RANKS	4u

#endif

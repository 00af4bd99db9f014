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
 * By NVLink, of those that are built.  A channel's kernel moves 22 GB/s of an
 * all_reduce, and a copy of its costs some us whatever its size.  Measured on
 * 2026-11-22 with NCCL 2.28.9 (torch 2.11), two H200, a pod each, buffers of
 * 6 MiB; us of all_reduce with 1, 2, 4, 8, 12, 16, 24 channels:
 *	256 KiB	   77	 92    181   100   123   145   153
 *	  1 MiB	   97	 99    100   121   134   152   180
 *	  2 MiB	  131	112    112   126   147   166   196
 *	  4 MiB	  220	152    124   134   157   168   236
 *	  8 MiB	  424	222    160   147   175   178   221
 *	 16 MiB	  843	447    236   191   218   217
 *	 32 MiB	 1600	817    456   282   286   273   311
 *	 64 MiB	 3139  1631	845   540   402   372   384
 *	128 MiB	 6284  3162    1647   954   754   706   558
 *	256 MiB	12477  6304    3255  1831  1439  1250  1099
 */
static const struct tuner_row nvlink_table[] = {
	{ 512u << 10, 1 },
	{ 1024u << 10, 2 },
	{ 2048u << 10, 4 },
	{ 8192u << 10, 8 },
	{ 32768u << 10, 16 },
};

/* LL, which it would choose up to 1 MiB: 42 us at 8 KiB, 47 at 64, 330 at 1024. */
#define LL_SHARE	(32u << 10)
/* More ranks than this and a tree may need fewer steps. */
#define RING_RANKS	4u

#endif

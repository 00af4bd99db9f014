/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many channels pay, by a rank's share of a collective (its bytes over the
 * ranks: what one step of a ring moves).  Above the last line all that are
 * built are used.
 *
 * Measured on 2026-11-21 with NCCL 2.28.9 (torch 2.11), two H200 in one host of
 * 32 cores, P2P and shared memory off, TCP over loopback, by bench/gpu/run.sh
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
#ifndef WEFT_NCCL_NET_API_TUNER_TABLE_H
#define WEFT_NCCL_NET_API_TUNER_TABLE_H

#include <stddef.h>

struct tuner_row {
	size_t share; /* up to so many bytes */
	int channels;
};

static const struct tuner_row tuner_table[] = {
	{ 256u << 10, 1 },
	{ 1024u << 10, 2 },
};

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A test double of libnccl.so.2 for machines without a GPU.
 *
 * It is not NCCL.  It has the entry points that a small program uses, reduces
 * doubles in host memory, and moves them over the network plugin that NCCL
 * would load: the real one, found by NCCL's rules, driven by its interface v11
 * (NCCL 2.28 and 2.29), and dlclosed after the last communicator.
 *
 * What the real one does to its callers it does, too: collectives return before
 * they are done and complete late, on a thread of their own; what is read
 * before the stream is synchronised is poison; bad arguments, a used unique id
 * and two ranks of one GPU are refused; a lost rank is an asynchronous error.
 *
 * nccl.c has the entry points, meet.c the meeting of the ranks, ring.c the
 * plugin and the transfers.
 */
#ifndef WEFT_TESTS_DOUBLE_H
#define WEFT_TESTS_DOUBLE_H

#include <pthread.h>
#include <stdbool.h>
#include "nccl_net/abi/net.h"
#include "tests/e2e/double/include/nccl.h"

struct ring;

/* Reductions of @n doubles into @acc. */
typedef void (*reduce_fn)(double *acc, const double *more, size_t n);

/* One line on standard error, as NCCL's WARN. */
void double_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* --- meet.c: rank @rank gives its handle and gets that of the next rank --- */

ncclResult_t meet_new_id(ncclUniqueId *id);
ncclResult_t meet(const ncclUniqueId *id, int rank, int nranks, int device,
		  const char *handle, char *next);

/* --- ring.c ------------------------------------------------------------- */

/* Loads the plugin with the first ring; @stop ends any wait of the ring. */
ncclResult_t ring_open(struct ring **ring, const ncclUniqueId *id, int rank,
		       int nranks, int device, const volatile bool *stop);
/* @acc has this rank's values, then everybody's. */
ncclResult_t ring_all_reduce(struct ring *ring, double *acc, size_t count,
			     reduce_fn reduce);
/* @acc has this rank's values; on the root then everybody's. */
ncclResult_t ring_reduce(struct ring *ring, double *acc, size_t count,
			 reduce_fn reduce, int root);
/* Unloads the plugin with the last ring. */
void ring_close(struct ring *ring);

#endif

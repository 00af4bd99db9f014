/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies by the engines of a GPU: queued, handed to the driver in batches on a
 * few streams, and found finished by a word that the stream writes
 * (nvl_copy.c). The streams are made and freed with their context (nvl_gpu.c).
 */
#ifndef WEFT_DEVICES_NVL_COPY_H
#define WEFT_DEVICES_NVL_COPY_H

#include <pthread.h>
#include "devices/nvlink/nvl_proto.h"
#include "devices/region.h"
#include "util/cuda.h"
#include "util/list.h"

#define NVL_TX_STREAMS	 2u
#define NVL_RX_STREAM	 NVL_TX_STREAMS /* behind those */
#define NVL_STREAMS	 (NVL_TX_STREAMS + 1)
#define NVL_STREAM_DEPTH 256u /* copies with the engine, per stream */
/*
 * Of a batch.  To hand over a copy takes the driver 4 us, in a batch as by
 * itself, and the reader sees nothing of a batch before its end: of a long one
 * that is late.  Puts and gets of 64 KiB over a ring: 7.9 and 6.8 GB/s with up
 * to 64 copies in each, 10.2 and 7.7 with four; of 1 MiB 117 and 108, 156 and
 * 125; of 64 MiB the same (one H200 under MPS, medians of 15).  Fewer batches
 * with the engine make that better by some, but halve it where processes take
 * turns on a GPU: what is not with the engine in time waits for the next turn.
 */
#define NVL_BATCH 4u

struct nvl_conn;
struct nvl_iface;
struct nvl_copy;
typedef void (*nvl_copy_done)(struct nvl_copy *copy, int status);

/*
 * One copy by an engine; its queuer owns it until done() ran, with 0,
 * -ECANCELED, -EACCES (its key, or the driver, does not allow it) or -EIO (the
 * engine).
 */
struct nvl_copy {
	struct weft_list link;
	struct nvl_conn *conn;
	nvl_copy_done done;
	void *owner;
	uint64_t dst, src;
	size_t len;
	bool guarded; /* goes only while @key allows @at */
	uint32_t seq; /* of its batch */
	struct weft_rkey key;
	uint64_t at;
	_Atomic uint32_t *live; /* goes only while *@live is @serial */
	uint32_t serial;
	int status; /* FAILED: of a copy that never flew */
};

struct nvl_stream {
	struct weft_list link; /* all streams of the process */
	struct nvl_gpu *gpu;
	void *cu;
	struct weft_list *waiting; /* gpu->tx_waiting or gpu->rx_waiting */
	struct weft_list in_flight, failed;
	unsigned int nflying;
	pthread_mutex_t lock; /* looking for the end */
	struct nvl_mark *mark;
	_Atomic int broken; /* -errno: the engine takes no more */
	/* mark->flag, pinned; NULL: the driver cannot write it */
	uint32_t *flag;
	uint64_t flag_dev;
	uint32_t looks;		    /* at the flag, without result */
	uint64_t issued_ms;	    /* of the oldest unfinished batch */
	_Atomic bool wake_set;	    /* a host function will write wake_fd */
	_Atomic unsigned int wakes; /* host functions that have not ended */
};

/* A CUDA context, as far as one iface uses it. */
struct nvl_gpu {
	struct weft_list link; /* iface->gpus */
	struct nvl_iface *iface;
	void *ctx; /* that of the program's memory */
	int ordinal;
	struct nvl_mark *page; /* one per stream */
	bool page_pinned;
	bool page_shared; /* of iface->marks: peers can read it */
	struct nvl_stream streams[NVL_STREAMS];
	struct weft_list tx_waiting; /* for whichever stream is free first */
	struct weft_list rx_waiting;
	unsigned int last_tx;
};

/* nvl_gpu.c */
/* That of @where, made if need be; NULL: *@err is why not. */
struct nvl_gpu *nvl_gpu_get(struct nvl_iface *iface,
			    const struct weft_cuda_ptr *where, int *err);
void nvl_gpu_free(struct nvl_gpu *gpu);

/* nvl_copy.c */
/* From now on nvl_copy_drain_all() waits for what @st carries. */
void nvl_stream_enlist(struct nvl_stream *st);
/* Waits for what @st carries, too. */
void nvl_stream_retire(struct nvl_stream *st);
/* Any thread: waits for what engines have now, bounded by the watchdog. */
void nvl_copy_drain_all(void);
/* @queue is a GPU's tx_waiting or rx_waiting. */
void nvl_copy_queue(struct weft_list *queue, struct nvl_copy *copy);
/* Hands queued copies to the engines; the number. */
unsigned int nvl_copy_submit(struct nvl_iface *iface);
/* Runs done() of finished copies; the number. */
unsigned int nvl_copy_poll(struct nvl_iface *iface);
/* Is a copy finished and not yet polled? */
bool nvl_copy_pending(struct nvl_iface *iface);
/*
 * Would submit and poll find nothing?  As cheap as can be; may be wrong once.
 */
bool nvl_copy_quiet(struct nvl_iface *iface);
/* Engines will ring wake_fd.  False: poll by timer. */
bool nvl_copy_arm(struct nvl_iface *iface, bool *in_flight);
/*
 * Takes back what @conn has queued and no engine has; while it is open, not
 * what is guarded: that is of the peer's puts and gets.
 */
void nvl_copy_cancel(struct nvl_conn *conn);

#endif

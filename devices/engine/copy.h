/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies by the engines of a GPU, for any device: queued, handed to the driver
 * in batches on a few streams, and found finished by a word that the stream
 * writes (copy.c).  The streams are made and freed with their context
 * (context.c).
 *
 * Everything runs in the thread of the interface's caller but
 * weft_copy_drain_all(); a driver thread only writes to an eventfd.
 */
#ifndef WEFT_DEVICES_ENGINE_COPY_H
#define WEFT_DEVICES_ENGINE_COPY_H

#include <pthread.h>
#include "devices/common/events.h"
#include "devices/common/region.h"
#include "util/drivers/cuda.h"
#include "util/list.h"

#define WEFT_TX_STREAMS	  2u
#define WEFT_RX_STREAM	  WEFT_TX_STREAMS /* after those */
#define WEFT_STREAMS	  (WEFT_TX_STREAMS + 1)
#define WEFT_STREAM_DEPTH 256u /* copies with the engine, per stream */
/*
 * Copies in a batch.  Submitting a copy takes the driver 4 us, in a batch or
 * not, and the reader sees nothing of a batch before its end, which of a long
 * one comes late.  Puts and gets of 64 KiB over a ring: 7.9 and 6.8 GB/s with
 * up to 64 copies in each, 10.2 and 7.7 with four; of 1 MiB 117 and 108, 156
 * and 125; of 64 MiB the same (one H200 under MPS, medians of 15).  Fewer
 * batches in flight are a little faster, but half as fast if processes take
 * turns on a GPU: what the engine does not have in time waits for the next
 * turn.
 */
#define WEFT_BATCH 4u

/* No setting changes them. */
enum weft_copy_times {
	/* an engine that takes longer for a copy is lost */
	WEFT_COPY_WATCHDOG_MS = 20000,
	/* query the driver about copies that are not finished by then */
	WEFT_COPY_SUSPECT_MS = 1000,
	/* poll copies whose end wakes no one, since the driver refused */
	WEFT_COPY_POLL_MS = 1,
	/* poll the others as well: an engine that fails wakes no one */
	WEFT_COPY_FAILURE_MS = 1000,
	/*
	 * closing waits so long for a wake that the driver is about to write; a
	 * host function of the program may delay it
	 */
	WEFT_COPY_LAST_WAKE_MS = 1000,
};

/*
 * Progress of an interface's copies, one page per CUDA context: a peer whose
 * memory they access reads there when they have ended.  Batches are numbered.
 */
struct weft_engine_mark {
	_Atomic uint32_t claimed;  /* one is being submitted */
	_Atomic uint32_t issued;   /* given to the engine */
	_Atomic uint32_t finished; /* as its process knows */
	uint8_t pad0[52];
	uint32_t flag; /* the same, written by the engine */
	uint8_t pad1[60];
};
_Static_assert(sizeof(struct weft_engine_mark) == 128, "whole cache lines");

/* Has batch @seq ended?  Numbers wrap. */
static inline bool weft_batch_ended(uint32_t finished, uint32_t seq)
{
	return (int32_t)(finished - seq) >= 0;
}

#define WEFT_MARK_PAGE	4096u
#define WEFT_MARK_PAGES 16u
#define WEFT_MARKS_SIZE (WEFT_MARK_PAGES * WEFT_MARK_PAGE)

struct weft_copy;
typedef void (*weft_copy_done)(struct weft_copy *copy, int status);

/*
 * One copy by an engine; its queuer owns it until done() ran, with 0,
 * -ECANCELED, -EACCES (its key, or the driver, does not allow it) or -EIO (the
 * engine).
 */
struct weft_copy {
	struct weft_list link;
	weft_copy_done done;
	void *owner;	   /* the queuer's */
	const void *group; /* weft_copy_cancel() takes back all of one */
	uint64_t dst, src;
	size_t len;
	bool guarded; /* copied only while @key allows @at */
	uint32_t seq; /* of its batch */
	struct weft_rkey key;
	uint64_t at;
	/* asked once its batch is claimed; false: do not copy; NULL: copy */
	bool (*allowed)(const struct weft_copy *copy);
	int status; /* FAILED: the error of a copy that was not issued */
};

struct weft_stream {
	struct weft_list link; /* all streams of the process */
	struct weft_engine *engine;
	void *cu;
	struct weft_list *waiting; /* engine->tx_waiting or rx_waiting */
	struct weft_list in_flight, failed;
	unsigned int nflying;
	pthread_mutex_t lock; /* protects the search for finished batches */
	struct weft_engine_mark *mark;
	_Atomic int broken; /* -errno: the engine takes no more */
	/* mark->flag, pinned; NULL: the driver cannot write it */
	uint32_t *flag;
	uint64_t flag_dev;
	uint32_t looks;		    /* reads of the flag without result */
	uint64_t issued_ms;	    /* of the oldest unfinished batch */
	_Atomic bool wake_set;	    /* a host function will write wake_fd */
	_Atomic unsigned int wakes; /* host functions that have not ended */
};

/* A CUDA context, as far as one interface uses it. */
struct weft_engine {
	struct weft_list link; /* engines->list */
	struct weft_engines *engines;
	struct weft_cuda_ctx ctx; /* that of the program's memory */
	int ordinal;
	int wake_fd;		       /* that of engines->events */
	struct weft_engine_mark *page; /* one per stream */
	bool page_pinned;
	bool page_shared; /* of engines->marks: peers can read it */
	struct weft_stream streams[WEFT_STREAMS];
	struct weft_list tx_waiting; /* for whichever stream is free first */
	struct weft_list rx_waiting;
	unsigned int last_tx;
};

/* The engines of an interface; none before its first GPU memory. */
struct weft_engines {
	struct weft_list list;
	struct weft_events *events;	/* the interface's, which they wake */
	size_t batch;			/* bytes that go in one, about */
	struct weft_engine_mark *marks; /* a memfd; NULL: none, or not yet */
	int marks_fd;			/* which peers may get to read */
	uint32_t marks_used;		/* pages, a bit each */
};

/* context.c */
void weft_engines_init(struct weft_engines *engines, struct weft_events *events,
		       size_t batch);
/* All copies have ended, or are lost. */
void weft_engines_fini(struct weft_engines *engines);
/* In a child while it is forked: closes descriptors. */
void weft_engines_forget(struct weft_engines *engines);
/* The descriptor of their marks, which are made; or -errno. */
int weft_engines_share(struct weft_engines *engines);
/* The engine for @where, created if necessary; NULL: *@err is the reason. */
struct weft_engine *weft_engine_get(struct weft_engines *engines,
				    const struct weft_cuda_ptr *where,
				    int *err);
/* Where memory is, according to its registration or the driver; logs errors. */
int weft_engine_locate(const struct weft_iov *v, struct weft_cuda_ptr *where);
/* A device's mem_register(), of GPU memory. */
int weft_engine_register(void *addr, size_t len, struct weft_mem **mem);

/* stream.c */
/* In the engine's context, which is current.  -errno, logged. */
int weft_stream_init(struct weft_engine *engine, unsigned int index,
		     const struct weft_cuda *cu);
/* Waits for what @st carries.  @cu NULL: its context is gone. */
void weft_stream_free(struct weft_stream *st, const struct weft_cuda *cu);
/* Its context is gone; it carries nothing, and never will. */
void weft_stream_abandon(struct weft_stream *st);
/* Any thread: the last batch that is visible everywhere. */
uint32_t weft_stream_finished(struct weft_stream *st);
/* Any thread: waits for what engines have now, bounded by the watchdog. */
void weft_copy_drain_all(void);

/* copy.c */
/* @queue is a GPU's tx_waiting or rx_waiting. */
void weft_copy_queue(struct weft_list *queue, struct weft_copy *copy);
/* Hands queued copies to the engines; the number. */
unsigned int weft_copy_submit(struct weft_engines *engines);
/* Runs done() of finished copies; the number. */
unsigned int weft_copy_poll(struct weft_engines *engines);
/* Is a copy finished and not yet polled? */
bool weft_copy_pending(struct weft_engines *engines);
/* Engines will write to wake_fd.  False: poll by timer. */
bool weft_copy_arm(struct weft_engines *engines, bool *in_flight);
/*
 * Takes back copies of @group that no engine has; guarded ones, which are for a
 * peer's puts and gets, only if @guarded.
 */
void weft_copy_cancel(struct weft_engines *engines, const void *group,
		      bool guarded);
/*
 * For closing: submits and polls until @copies, which done() counts down, is 0;
 * logs copies that the watchdog gives up.
 */
void weft_copy_stop(struct weft_engines *engines, const unsigned int *copies);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TCP device's own objects.  Two kinds of thread meet here:
 *   the owner - the thread that calls the contract for an iface (serialised)
 *   an engine   - moves bulk streams; run by the owner inside progress(), or
 *                 by a thread of its own (bulk/tcp_engine.c)
 * Lock order: engine, then bulk, then the iface's events.  No lock is held
 * while a callback of the caller runs.
 *
 * The files, each of which calls only those below it (tcp_put and tcp_get call
 * each other):
 *   tcp_iface      the contract's table; listens, opens and closes
 *   tcp_progress   one progress(): events, endings, callbacks
 *   tcp_timer      deadlines and dead peers
 *   tcp_rx         frames of the message stream in, in order
 *   tcp_ep         endpoints: messages and flushes
 *   tcp_stall      drops streams that have become slow, or broke
 *   tcp_put, _get  one put, one get, from the call to its end
 *   tcp_place      puts of the peer's that come in frames
 *   tcp_fail       operations that fail, and the ends of their connections
 *   tcp_dial       opens sockets, and takes those that session.c proved
 *   tcp_conn       connections: found by peer and number; their states
 *   tcp_tx         frames of the message stream out
 * In bulk, which calls none of those above:
 *   tcp_engine     threads, and which stream is whose
 *   tcp_stream     one bulk socket: chunks one way, acknowledgements back
 *   tcp_land       puts as numbers, at their target: bytes placed
 *   tcp_bulk       the same at their source: chunks, acknowledgements
 *   tcp_pool       puts and chunks, kept for use again
 *   tcp_tune       how many streams
 *   tcp_event      events that the others leave for progress()
 */
#ifndef WEFT_DEVICES_TCP_H
#define WEFT_DEVICES_TCP_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "bootstrap/hello.h"
#include "devices/common/ep.h"
#include "devices/common/region.h"
#include "stats/stats.h"
#include "devices/tcp/tcp_proto.h"
#include "host/netif.h"
#include "settings/settings.h"
#include "util/list.h"

/*
 * Times that no setting changes.  Those that depend on the network are
 * settings: WEFT_CONNECT_TIMEOUT and WEFT_PEER_TIMEOUT.
 */
enum tcp_times {
	/*
	 * report that no bulk stream opens only after this time: a peer that is
	 * leaving refuses them, too, and its message stream ends meanwhile
	 */
	TCP_LOST_STREAM_MS = 1000,
	/* a bulk stream without work is closed: longer than the pauses of a
	   program between two transfers, short enough to free descriptors */
	TCP_STREAM_IDLE_MS = 5000,
	/* the same if other connections of its peer need descriptors */
	TCP_STREAM_SPARE_MS = 5,
	/* iface_close() waits for peers' kernels to take the last bytes: time
	   for some retransmissions (TCP_RTO_MIN is 200 ms) */
	TCP_LINGER_MS = 1000,
	/* an engine's thread looks for more before it sleeps and must be
	   woken by a system call */
	TCP_SPIN_NS = 20000,
};

#define TCP_MAX_MESSAGE (256u << 10)
#define TCP_MAX_FRAME	(TCP_MAX_MESSAGE + TCP_CHUNK_LEN) /* without head */
#define TCP_MAX_IOV	16
#define TCP_RX_BUF	(512u << 10) /* per iface, shared by its streams */
#define TCP_RX_PART	(64u << 10)  /* read of those that send small ones */
/*
 * What one progress() may take: a frame costs 1, the callback of a message
 * TCP_CALLBACK more.
 */
#define TCP_CALLBACK 15
#define TCP_BUDGET   (WEFT_PROGRESS_MAX * (1 + TCP_CALLBACK))
#define TCP_SHARE    (TCP_BUDGET / 2) /* of one stream */
/*
 * What is small (TCP_SMALL) is gathered and written together: with a copy,
 * which costs less than a system call at both ends.  A write takes as many
 * bytes as the kernel makes one packet of (GSO_LEGACY_MAX_SIZE), and so few
 * frames that the peer is at work before the window is full.
 */
#define TCP_GATHER	  (64u << 10)
#define TCP_GATHER_FRAMES 64
#define TCP_MAX_ASKS	  64 /* how many may be unanswered */
#define TCP_POLLED	  4  /* streams polled without epoll */
#define TCP_MAX_STREAMS	  64
/*
 * A stream that the peer has closed may not have ended here when it is
 * replaced.
 */
#define TCP_MAX_STREAMS_IN (2 * TCP_MAX_STREAMS)
#define TCP_FEW_STREAMS	   4 /* if the caller moves all streams */
#define TCP_MAX_ENGINES	   16

/* The message stream of a pair. */
struct tcp_conn {
	struct weft_conn base;
	struct weft_source src;
	struct weft_list link;		/* iface->conns */
	struct weft_list deferred_link; /* iface->deferred */
	struct weft_entry by_token;	/* once the listener has sent a token */
	struct weft_list rx_pending_link; /* iface->rx_pending */
	struct tcp_iface *iface;
	int fd;
	bool close_received;
	bool failed;	 /* an operation failed: nothing more is delivered */
	bool rx_ended;	 /* its message stream ended; bulk may still come */
	uint64_t end_ms; /* deadline for that bulk */
	int suspect_err; /* why a bulk stream died during a put, or 0 */
	uint64_t suspect_seq, suspect_until_ms; /* puts below; deadline */
	uint64_t token;				/* by which bulk streams join */
	uint64_t warn_at_ms;			/* of bulk->lost_err */
	struct weft_watch watch;
	struct weft_counters *stats;
	/* sending: messages are taken when it is empty, or not tried yet */
	uint8_t *tx;
	size_t tx_off, tx_len, tx_cap;
	unsigned int gathered; /* frames, if tx is not tried yet */
	bool want_write;
	struct weft_list gather_link; /* iface->gathering: tx is not tried */
	uint64_t fence; /* the next message waits for puts below this number */
	struct tcp_unplaced {	/* messages that may wait at the peer */
		uint64_t fence; /* for puts below */
		size_t bytes;
	} unplaced[2];	      /* older, newer */
	uint64_t sent, acked; /* messages sent, and taken by the peer */
	uint64_t asked_of;    /* messages sent before the last ASK */
	unsigned int asks;    /* ASKs without an answer */
	/* receiving: bytes not yet delivered */
	uint8_t *rx;
	size_t rx_off, rx_len, rx_cap;
	bool rx_lent;	 /* rx is one of the iface's */
	bool rx_limited; /* more messages arrived than may be delivered */
	uint64_t taken;	 /* messages */
	struct weft_list deferred_messages; /* that wait for puts (tcp_rx.c) */
	size_t deferred_bytes;
	uint64_t cut;	       /* the first put that the peer has cancelled */
	_Atomic bool deferred; /* a message is: engines wake the owner */
	_Atomic unsigned int nlandings;	   /* of iface->found.landings */
	unsigned int nputs, ngets, nasked; /* ops not completed yet */
	bool in_rx;			   /* guards against re-entry */
	unsigned int idle_polls;
	struct tcp_bulk *bulk;
	struct weft_list gets;	/* struct tcp_get.link */
	struct weft_list asked; /* gets of the peer's, not yet answered */
};

struct tcp_iface {
	struct weft_base base;
	struct weft_netif netif;
	int listen_fd;
	unsigned int (*handle_conn)(struct weft_source *src, uint32_t events);
	uint64_t tick_ms; /* next check of open connections; 0: none */
	struct weft_list conns, dead, deferred;
	struct weft_list leaving;    /* of tcp_fail.c */
	struct weft_list gathering;  /* struct tcp_conn.gather_link */
	struct weft_table by_token;  /* of conns */
	struct weft_list rx_pending; /* streams with more to deliver */
	unsigned int budget;	     /* what this progress() may still take */
	unsigned int floor;	     /* its lower bound for this connection */
	struct tcp_conn *polled[TCP_POLLED];
	unsigned int polls; /* progress calls since epoll_wait() */
	bool closing;	    /* nothing is delivered any more */
	uint8_t *rxbuf, *txbuf;
	uint8_t *rxnext; /* used while rxbuf is lent; NULL: lent as well */
	struct weft_list spare_puts; /* struct tcp_put, to be used again */
	unsigned int nspare_puts;
	uint64_t next_get;
	struct tcp_engine *engines;
	unsigned int nengines;
	bool spare_cores;    /* engines start with threads */
	unsigned int sleeps; /* calls of arm() since engines exist */
	/* what engines report to the owner */
	struct {
		pthread_mutex_t lock;
		struct weft_list puts;	   /* done_link */
		struct weft_list landings; /* struct tcp_event.link */
		struct weft_list streams;  /* tcp_stream.report_link */
		_Atomic bool any;
		_Atomic bool armed; /* the owner may sleep: wake it */
		bool room;	    /* read again; owner only */
	} found;
};

static inline struct tcp_iface *tcp_iface(struct weft_iface *i)
{
	return container_of(i, struct tcp_iface, base.iface);
}

static inline struct tcp_conn *tcp_conn(struct weft_conn *c)
{
	return container_of(c, struct tcp_conn, base);
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TCP device's own objects.  Two kinds of thread meet here:
 *   the owner   - whoever calls the device contract for an iface (serialised)
 *   an engine   - moves bulk streams; run by the owner inside progress(), or
 *                 by a thread of its own (tcp_engine.c)
 * Lock order: engine, then bulk, then the iface's completion queue.  No lock is
 * held while a callback of the caller runs.
 */
#ifndef WEFT_DEVICES_TCP_H
#define WEFT_DEVICES_TCP_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "bootstrap/hello.h"
#include "bootstrap/netif.h"
#include "bootstrap/settings.h"
#include "bootstrap/stats.h"
#include "devices/device.h"
#include "devices/ep_sn.h"
#include "devices/flush.h"
#include "devices/region.h"
#include "devices/stranger.h"
#include "devices/tcp/tcp_proto.h"
#include "util/list.h"

#define TCP_MAX_MESSAGE	(256u << 10)
#define TCP_MAX_FRAME	(TCP_MAX_MESSAGE + TCP_CHUNK_LEN)	/* without head */
#define TCP_MAX_IOV	16
#define TCP_RX_BUF	(512u << 10)	/* per iface, shared by its streams */
#define TCP_RX_PART	(64u << 10)	/* read of those that send small ones */
#define TCP_SHARE	(WEFT_PROGRESS_MAX / 2)	/* of one stream */
#define TCP_HOT		4		/* streams polled without epoll */
#define TCP_MAX_STREAMS	64
/* One that its end has closed may not have ended here when it is replaced. */
#define TCP_MAX_STREAMS_IN (2 * TCP_MAX_STREAMS)
#define TCP_FEW_STREAMS	4	/* where the caller moves them all */
#define TCP_MAX_ENGINES	16

/*
 * Times that no setting changes.  Those that depend on the network are
 * settings: WEFT_CONNECT_TIMEOUT and WEFT_PEER_TIMEOUT.
 */
enum tcp_times {
	/* deadlines are checked this often: the least WEFT_PEER_TIMEOUT is
	   100 ms, its default 5 s, and a tick costs a wakeup */
	TCP_TICK_MS		= 250,
	/* after a listener hung up before its hello: a place may be free */
	TCP_REDIAL_MS		= TCP_TICK_MS,
	/* for the peer's own dial, which was preferred; then ours again */
	TCP_YIELD_MS		= 2000,
	/* before "no bulk stream" is news: a peer that is leaving refuses
	   them, too, and its message stream ends meanwhile */
	TCP_LOST_STREAM_MS	= 1000,
	/* a bulk stream without work is closed: longer than the pauses of a
	   program between two transfers, short enough to free descriptors */
	TCP_STREAM_IDLE_MS	= 5000,
	/* iface_close() waits for peers' kernels to take the last bytes: time
	   for some retransmissions (TCP_RTO_MIN is 200 ms) */
	TCP_LINGER_MS		= 1000,
	/* an engine's thread looks for more before it sleeps and must be
	   woken by a system call */
	TCP_SPIN_NS		= 20000,
};

/* What an epoll entry of the iface stands for; first member of its object. */
enum tcp_source_kind {
	TCP_SOURCE_LISTEN,
	TCP_SOURCE_CONN,
	TCP_SOURCE_GREET,
	TCP_SOURCE_WAKE,
	TCP_SOURCE_TIMER,
	TCP_SOURCE_ENGINE,
};

struct tcp_source {
	enum tcp_source_kind kind;
};

/* One end of a put, at its source. */
struct tcp_put {
	struct weft_list link;		/* in bulk->queue while bytes are uncut */
	struct weft_list done_link;	/* in iface->cq.puts */
	struct tcp_conn *conn;
	struct weft_op *op;		/* NULL: nobody waits any more */
	uint64_t seq;
	uint64_t remote_addr;
	struct weft_rkey rkey;
	uint64_t tag;
	uint32_t flags;			/* TCP_CHUNK_* */
	int status;
	bool guarded;			/* the source is a region: check source_key */
	struct weft_rkey source_key;
	size_t total, cut;		/* bytes; bytes handed to streams */
	struct weft_list chunks;	/* struct tcp_chunk.put_link, till settled */
	unsigned int carriers;		/* streams that are sending from it */
	unsigned int again;		/* its chunks in bulk->again */
	bool acked;			/* the peer has answered */
	bool aborted;			/* not all of it was sent, nor will be */
	unsigned int iovcnt;
	struct iovec iov[TCP_MAX_IOV];
};

/* A part of a put: on a stream, or waiting to be sent again. */
struct tcp_chunk {
	struct weft_list link;		/* stream->sent or bulk->again */
	struct weft_list put_link;	/* put->chunks */
	struct tcp_put *put;
	size_t off, len;
	uint64_t number;		/* of the stream's chunks, from 0 */
	bool again;			/* it waits in bulk->again */
};

/* One put at its target; live from its first chunk till it is placed. */
struct tcp_landing {
	uint64_t left;
	int status;
	bool live, done;
	/* the last put of this slot that a stream has acknowledged */
	uint64_t answered_seq;
	uint32_t answered_by;		/* the stream; 0: none yet */
	int answer;
};

/* Finding the number of streams (tcp_tune.c); under the bulk lock. */
struct tcp_tune {
	uint64_t bytes, busy_ns;	/* of the sample being taken */
	uint64_t busy_since_ns;		/* 0: idle */
	double base;			/* bytes/s with the streams before */
	bool trying;			/* more streams are on trial: */
	unsigned int more;		/* so many */
	unsigned int step;		/* to be tried next; 0: twice as many */
	uint64_t settled_until_ns;
};

/* Bulk state of a pair, made with its first put in either direction. */
struct tcp_bulk {
	pthread_mutex_t lock;
	struct weft_list queue;		/* puts with uncut bytes, oldest first */
	struct weft_list again;		/* struct tcp_chunk: before those */
	_Atomic uint64_t next_seq;	/* written by the owner */
	_Atomic uint64_t acked;		/* every put below is acknowledged */
	bool settled[TCP_WINDOW];	/* acknowledged, but not yet below acked */
	struct tcp_put *sent[TCP_WINDOW];
	_Atomic uint64_t placed;	/* every put below is placed here */
	struct tcp_landing landing[TCP_WINDOW];
	struct weft_list streams;	/* struct tcp_stream.link, both ways */
	unsigned int out_streams;	/* those that we send on */
	unsigned int out_dialing;	/* asked for, not there yet */
	unsigned int out_limit;		/* what measuring found best so far */
	bool no_streams;		/* none can be had: puts go by frame */
	int lost_err;			/* why; until the warning about it */
	bool asked_streams;		/* of out_dialing, none answered yet */
	struct tcp_tune tune;
	/* giving streams up (tcp_stall.c); owner only */
	uint64_t best_rate;		/* bytes a tick, of any stream lately */
	uint32_t streams_made;		/* the dialer's: the last id */
};

/* A decoded chunk header. */
struct tcp_chunk_head {
	uint64_t seq, total, offset, addr, tag;
	struct weft_rkey rkey;
	uint32_t len, flags;
};

/* One bulk socket. */
struct tcp_stream {
	uint32_t id;			/* from its dialer; unique in a pair */
	struct weft_list link;		/* bulk->streams; owner and bulk lock */
	struct weft_list eng_link;	/* engine->streams */
	struct weft_list ready_link;	/* engine->ready */
	struct tcp_conn *conn;
	struct tcp_engine *engine;
	int fd;
	bool out;			/* chunks go from here */
	_Atomic bool writable;		/* as far as the last edge told */
	bool readable;			/* likewise */
	_Atomic bool parked;		/* over the limit: takes no chunk */
	int err;			/* why it died; 0 while it lives */
	struct weft_list report_link;	/* iface->cq.broken */
	uint64_t used_ms;		/* when it last carried a chunk */
	bool given_up;			/* out: not moved any more */
	struct weft_list sent;		/* out: chunks not settled; bulk lock */
	uint64_t nsent;			/* out: chunks that it took */
	uint64_t taken;			/* in: whole chunks */
	uint64_t seen_acked, seen_window;	/* at the last tick */
	unsigned int slow_ticks;
	/* sending a chunk (out), or acks (in) */
	struct tcp_chunk *out_chunk;
	size_t out_left;
	uint8_t head[TCP_CHUNK_LEN];
	unsigned int head_len, head_done;
	/* receiving a chunk (in), or acks (out) */
	uint8_t rx_head[TCP_CHUNK_LEN];
	unsigned int rx_have;		/* bytes of the next header */
	struct tcp_chunk_head chunk;
	bool rx_busy;			/* inside a chunk */
	bool rx_drain;			/* its bytes are thrown away */
	int rx_status;			/* why */
	uint64_t rx_addr, rx_left;
	uint8_t *ack_buf;		/* acks that did not fit the socket */
	size_t ack_len, ack_cap;
};

/* What an engine's thread is at. */
enum tcp_engine_mode {
	TCP_ENGINE_BUSY,
	TCP_ENGINE_LOOKING,		/* awake, and found nothing to do */
	TCP_ENGINE_ASLEEP,		/* until kick_fd is written */
	TCP_ENGINE_WOKEN,		/* it is; the thread does not run yet */
};

/* Moves bulk streams. */
struct tcp_engine {
	struct tcp_source src;
	struct tcp_iface *iface;
	pthread_mutex_t lock;		/* streams, ready, and all I/O on them */
	int epfd;
	int kick_fd;
	struct weft_list streams, ready;
	unsigned int nstreams;
	_Atomic bool kicked;		/* somebody queued chunks */
	/* its thread */
	bool has_thread;		/* else the owner moves it; owner only */
	pthread_t thread;
	_Atomic bool stop;
	_Atomic int mode;		/* enum tcp_engine_mode */
};

/* A socket that has not said its hello yet. */
struct tcp_greet {
	struct tcp_source src;
	struct weft_list link;		/* iface->greets */
	struct tcp_iface *iface;
	int fd;
	bool connecting;
	enum tcp_purpose purpose;	/* dialer's */
	uint32_t stream;		/* dialer: the id of a bulk stream */
	struct tcp_conn *conn;		/* dialer: whom it is for */
	struct tcp_conn *target;	/* listener: whose it becomes */
	bool dead;
	struct weft_stranger stranger;	/* listener */
	uint64_t deadline_ms;
	union weft_sockaddr peer;
	struct weft_hello hello;
};

enum tcp_conn_state {
	TCP_CONN_DIALING,		/* our dial is under way */
	TCP_CONN_WAITING,		/* the peer's own dial was preferred */
	TCP_CONN_OPEN,
	TCP_CONN_CLOSED,		/* in iface->dead, freed after progress */
};

/* The message stream of a pair. */
struct tcp_conn {
	struct tcp_source src;
	struct weft_list link;		/* iface->conns */
	struct weft_list held_link;	/* iface->held */
	struct weft_entry by_id;	/* peer and number */
	struct weft_entry by_token;	/* once the listener has given one */
	struct weft_list more_link;	/* iface->more */
	struct tcp_iface *iface;
	enum tcp_conn_state state;
	int fd;
	bool dialer;
	bool had_ep, bye_sent, bye_seen, close_seen;
	bool ended;			/* its message stream; bulk may come yet */
	uint64_t end_ms;		/* and is waited for till then */
	int doubt;			/* why a bulk stream died amid puts, or 0 */
	uint64_t doubt_seq, doubt_ms;	/* the puts below; till when they wait */
	int broken;			/* found dead outside progress: -errno */
	uint64_t peer_id;
	uint32_t sn;
	uint64_t token;			/* bulk streams join by it */
	struct weft_hello *hello;	/* kept until the owner proof is checked */
	uint64_t deadline_ms;		/* DIALING, WAITING; OPEN: of lost_err */
	unsigned int redials;		/* a listener hung up before it spoke */
	union weft_sockaddr remote;	/* where bulk streams are dialled to */
	uint8_t *remote_key;		/* the dialer's; else zeros */
	struct tcp_ep *ep;
	struct weft_counters *stats;
	/* sending: zc first, then buf; a message is taken when both are empty */
	struct iovec zc[TCP_MAX_IOV + 1];
	unsigned int zc_n, zc_i;
	struct weft_op *zc_op;
	uint8_t zc_head[TCP_FRAME_LEN];
	uint8_t *tx;
	size_t tx_off, tx_len, tx_cap;
	bool want_out;
	uint64_t fence;			/* next message waits for puts below */
	struct tcp_unplaced {		/* messages that may wait there */
		uint64_t fence;		/* for puts below */
		size_t bytes;
	} unplaced[2];			/* older, newer */
	bool was_full;			/* ready() said no: on_ready() is owed */
	/* receiving: bytes not yet delivered */
	uint8_t *rx;
	size_t rx_off, rx_len, rx_cap;
	bool crowded;			/* more messages came than may be told */
	struct weft_list held_messages;	/* wait for their puts (tcp_rx.c) */
	size_t held_bytes;
	_Atomic bool held;		/* there is one: engines ring */
	unsigned int nputs, ngets, nreplies;	/* ops not reported yet */
	bool in_rx;			/* guards against re-entry */
	unsigned int idle_polls;
	struct tcp_bulk *bulk;
	struct weft_list gets;		/* struct tcp_get.link */
	struct weft_list replies;	/* puts that answer gets, not yet numbered */
};

struct tcp_ep {
	struct weft_ep base;
	struct tcp_conn *conn;		/* NULL once dead */
	struct weft_ep_sn *numbers;
	uint64_t peer_id;
	uint32_t sn;
	int err;
	bool cancelled;
	struct weft_flushes flushes;
};

/* A get at its requester: one per iov entry, the last one completes the op. */
struct tcp_get {
	struct weft_list link;		/* conn->gets */
	struct tcp_get_op *parent;
	struct weft_mem *landing;
	uint64_t id;
	size_t len;
};

struct tcp_get_op {
	struct weft_op *op;
	unsigned int parts;
	int status;
	size_t len;
};

/* A notification or get completion found by an engine. */
struct tcp_event {
	struct weft_list link;
	struct tcp_conn *conn;
	uint32_t flags;
	int status;
	uint64_t tag, size;
};

struct tcp_iface {
	struct weft_iface base;
	struct tcp_source listen_src, wake_src, timer_src;
	struct weft_netif netif;
	struct weft_address *addr;	/* with the key */
	uint64_t my_id;
	int listen_fd, epfd, wake_fd, timer_fd;
	bool timer_on;
	uint64_t tick_ms;		/* when it last fired */
	bool accept_paused;
	struct weft_list conns, dead, greets, dead_greets, held;
	struct weft_strangers strangers;
	struct weft_table by_id, by_token;	/* of conns */
	struct weft_ep_sns sns;
	struct weft_list more;		/* streams with more to hand over */
	unsigned int budget;		/* messages left to this progress() */
	unsigned int floor;		/* what it may come down to now */
	struct weft_stats *stats;
	struct tcp_conn *hot[TCP_HOT];
	unsigned int polls;		/* progress calls since epoll was asked */
	bool failing;			/* some conn is broken */
	bool closing;			/* nothing is delivered any more */
	uint8_t *rxbuf, *txbuf;
	int pipe[2];			/* to place bytes without a signal; -1 */
	uint64_t next_get;
	struct tcp_engine *engines;
	unsigned int nengines;
	bool spare_cores;		/* engines have threads */
	/* what engines tell the owner */
	struct {
		pthread_mutex_t lock;
		struct weft_list puts;		/* done_link */
		struct weft_list events;	/* struct tcp_event.link */
		struct weft_list broken;	/* tcp_stream.report_link */
		_Atomic bool any;
		_Atomic bool armed;		/* the owner may sleep: ring */
	} cq;
};

/* tcp_engine.c */
/* Makes them where there are none yet: a stream cannot be attached before. */
int tcp_engines_need(struct tcp_iface *iface);
void tcp_engines_close(struct tcp_iface *iface);
/* Moves what can be moved without waiting; events seen. */
unsigned int tcp_engine_run(struct tcp_engine *eng);
/* Chunks were queued for @conn. */
void tcp_engines_kick(struct tcp_conn *conn);
/* Takes @fd over.  Owner only. */
int tcp_stream_attach(struct tcp_conn *conn, int fd, bool out, uint32_t id);
/*
 * No engine moves it from here on; it stays open.  The put whose chunk it was
 * sending is the caller's to settle: tcp_bulk_stopped().
 */
struct tcp_put *tcp_stream_stop(struct tcp_stream *s);
/* Closes and frees; nothing of it lands or is read afterwards. */
void tcp_stream_detach(struct tcp_stream *s);

/* tcp_stream.c: called by engines, engine lock held; -errno: it is dead */
int tcp_stream_io(struct tcp_stream *s, bool *again);

/* tcp_bulk.c */
struct tcp_bulk *tcp_bulk_get(struct tcp_conn *conn);
void tcp_bulk_drop(struct tcp_conn *conn);
bool tcp_bulk_full(const struct tcp_conn *conn);
/* Gives @put its number and queues it for the streams. */
void tcp_bulk_submit(struct tcp_conn *conn, struct tcp_put *put);
/* Chunks that no stream has taken yet, as far as there are engines for them. */
unsigned int tcp_bulk_waiting(struct tcp_bulk *b);
/* Gives @put its number; the caller sends it whole by frame. */
void tcp_bulk_submit_framed(struct tcp_conn *conn, struct tcp_put *put,
			    uint8_t head[TCP_CHUNK_LEN]);
/* One stream that was dialled or asked for cannot be had. */
void tcp_bulk_stream_lost(struct tcp_conn *conn, bool out, int err,
			  const char *where);
/* Cuts the next chunk for @s; NULL: there is none, or *@err is -ENOMEM. */
struct tcp_chunk *tcp_bulk_next_chunk(struct tcp_bulk *b, struct tcp_stream *s,
				      uint8_t head[TCP_CHUNK_LEN], int *err);
/* The same for the message stream, at most @max bytes; NULL: there is none. */
struct tcp_put *tcp_bulk_next_frame(struct tcp_bulk *b, size_t max, size_t *off,
				    size_t *len, uint8_t head[TCP_CHUNK_LEN]);
/* Queues the chunks of @s again of which the peer took @taken; -EPROTO. */
int tcp_bulk_send_again(struct tcp_conn *conn, struct tcp_stream *s,
			uint64_t taken);
/* @s ends: it has no chunks any more. */
void tcp_bulk_forget_stream(struct tcp_bulk *b, struct tcp_stream *s);
/* A stream sent @len bytes of @put, a whole chunk; or was given up amid one. */
void tcp_bulk_carried(struct tcp_conn *conn, struct tcp_put *put, size_t len);
void tcp_bulk_dropped(struct tcp_conn *conn, struct tcp_put *put);
/* The same, but that chunk will be sent again. */
void tcp_bulk_stopped(struct tcp_conn *conn, struct tcp_put *put);
/* -EPROTO: the peer acknowledges what was never sent */
int tcp_bulk_acked(struct tcp_conn *conn, uint64_t seq, int status);
/* The same, but it may have been acknowledged before. */
int tcp_bulk_acked_late(struct tcp_conn *conn, uint64_t seq, int status);
/* Tells the peer that no more of @put will come. */
void tcp_bulk_say_abort(struct tcp_conn *conn, const struct tcp_put *put);
void tcp_chunk_decode(const uint8_t *p, struct tcp_chunk_head *c);
/* 1: land it; 0: drain it; -EPROTO */
int tcp_bulk_arrives(struct tcp_conn *conn, const struct tcp_chunk_head *c);
/*
 * The chunk's bytes are dealt with; @status: 0, or why they were drained.
 * 1: the put is placed and *@result is to be acknowledged, on the stream @by (0:
 * by frame); -errno.
 */
int tcp_bulk_landed(struct tcp_conn *conn, const struct tcp_chunk_head *c,
		    int status, uint32_t by, int *result);
/* The peer gave @seq up; true: an acknowledgement is owed. */
bool tcp_bulk_abort(struct tcp_conn *conn, uint64_t seq);
/* Completes all puts of this side with @status. */
void tcp_bulk_cancel(struct tcp_conn *conn, int status);
void tcp_bulk_give_up(struct tcp_conn *conn, struct tcp_put *put, int status);
void tcp_iov_slice(const struct iovec *iov, unsigned int n, size_t off,
		   size_t len, struct iovec *out, unsigned int *out_n);

/* tcp_tune.c: bulk lock held */
void tcp_tune_busy(struct tcp_bulk *b);
void tcp_tune_idle(struct tcp_bulk *b);
void tcp_tune_bytes(struct tcp_bulk *b, size_t n, unsigned int max);
/* The stream on trial could not be had. */
void tcp_tune_lost(struct tcp_bulk *b);

/* tcp_cq.c: what engines tell the owner */
void tcp_cq_init(struct tcp_iface *iface);
void tcp_cq_put_done(struct tcp_iface *iface, struct tcp_put *put);
int tcp_cq_event(struct tcp_conn *conn, uint32_t flags, uint64_t tag,
		 uint64_t size, int status);
/* Delivers what @conn's puts tell, before a message that a fence put behind. */
void tcp_cq_notify(struct tcp_conn *conn);
void tcp_cq_broken(struct tcp_stream *s);
void tcp_cq_ring(struct tcp_iface *iface);
/* @all: more than one progress() may, for one that ends. */
unsigned int tcp_cq_deliver(struct tcp_iface *iface, bool all);
/* Drops what still names @conn. */
void tcp_cq_forget(struct tcp_conn *conn);

/* tcp_msg.c: frames out */
/* Is all that was taken with the socket? */
bool tcp_conn_drained(const struct tcp_conn *conn);
bool tcp_conn_ready(struct tcp_conn *conn);
/* One of @len bytes was taken: counted. */
void tcp_conn_sent_message(struct tcp_conn *conn, size_t len);
int tcp_send_frame(struct tcp_conn *conn, uint8_t type, uint8_t id,
		   uint64_t fence, const struct iovec *iov, unsigned int n,
		   size_t len, struct weft_op *op);
void tcp_send_control(struct tcp_conn *conn, uint8_t type, const void *body,
		      size_t len);
void tcp_conn_flush_out(struct tcp_conn *conn);
/* Lets go of the caller's memory in a message half sent. */
void tcp_conn_copy_zc(struct tcp_conn *conn);
void tcp_conn_pump_frames(struct tcp_conn *conn);

/* tcp_rx.c: frames in; the number of frames */
unsigned int tcp_conn_rx(struct tcp_conn *conn);
bool tcp_rx_waits(const struct tcp_conn *conn);	/* for its turn alone */
void tcp_rx_drop(struct tcp_conn *conn);

/* tcp_copy.c: -EACCES where either side is not mapped */
int tcp_copy(struct tcp_iface *iface, void *dest, const void *src, size_t n);

/* tcp_get.c */
int tcp_get_start(struct tcp_conn *conn, const struct weft_iov *iov,
		  unsigned int n, uint64_t addr, const void *rkey,
		  struct weft_op *op);
int tcp_get_serve(struct tcp_conn *conn, const uint8_t *body);
void tcp_get_reply(struct tcp_conn *conn);
void tcp_get_refuse(struct tcp_conn *conn, uint64_t id, int status);
void tcp_get_done(struct tcp_conn *conn, uint64_t id, int status);
void tcp_gets_cancel(struct tcp_conn *conn, int status);

/* tcp_iface.c */
int tcp_iface_open(const char *netdev, int family,
		   const struct weft_iface_cb *cb, struct weft_iface **iface);
void tcp_iface_close(struct weft_iface *iface);
void tcp_iface_query(struct weft_iface *iface, struct weft_iface_attr *attr);
bool tcp_iface_reaches(struct weft_iface *iface,
		       const struct weft_address *remote, const char **why);
unsigned int tcp_iface_progress(struct weft_iface *iface);
int tcp_iface_event_fd(struct weft_iface *iface);
int tcp_iface_arm(struct weft_iface *iface);
/* Out of room: the backlog keeps the peers till the next tick. */
void tcp_iface_pause_accept(struct tcp_iface *iface);
void tcp_iface_resume_accept(struct tcp_iface *iface);

/* tcp_conn.c */
/* A move that is not legal is logged and not made. */
void tcp_conn_set_state(struct tcp_conn *conn, enum tcp_conn_state to);
struct tcp_conn *tcp_conn_new(struct tcp_iface *iface, uint64_t peer_id,
			      uint32_t sn, const char *where);
int tcp_conn_dial(struct tcp_conn *conn);
void tcp_conn_open(struct tcp_conn *conn, int fd, bool dialer);
/* Never calls back: marks it; progress() will close it. */
void tcp_conn_break(struct tcp_conn *conn, int err);
/* A bulk stream died amid puts: the message stream has the last word. */
void tcp_conn_doubt(struct tcp_conn *conn, int err);
/* The peer has closed in order: its bulk streams are read to their ends. */
void tcp_conn_end(struct tcp_conn *conn);
void tcp_conn_check_end(struct tcp_conn *conn, uint64_t now);
/* Ends it and tells its endpoint. */
void tcp_conn_close(struct tcp_conn *conn, int err);
void tcp_conn_reap(struct tcp_iface *iface);
struct tcp_conn *tcp_conn_find(struct tcp_iface *iface, uint64_t peer_id,
			       uint32_t sn);
/* Bulk streams join by a token; -ENOMEM. */
int tcp_conn_make_token(struct tcp_conn *conn);
struct tcp_conn *tcp_conn_by_token(struct tcp_iface *iface, uint64_t token);
/* What the peer sends bulk on, or will when its hello is done. */
unsigned int tcp_conn_streams_in(const struct tcp_conn *conn);
/* Is there a place for the bulk stream that the peer brings? */
bool tcp_conn_has_room(const struct tcp_conn *conn, enum tcp_purpose purpose);
void tcp_conn_interest(struct tcp_conn *conn);
void tcp_conn_heat(struct tcp_conn *conn);
/* Dials the bulk streams that the tuner asks for, or asks the peer to. */
void tcp_conn_want_streams(struct tcp_conn *conn);
void tcp_conn_maybe_end(struct tcp_conn *conn);

/* tcp_greet.c */
/* A dial that fails, at once or later, is told to those who wait for it. */
int tcp_greet_dial(struct tcp_conn *conn, enum tcp_purpose purpose);
void tcp_greet_accept(struct tcp_iface *iface);
unsigned int tcp_greet_io(struct tcp_greet *g);
void tcp_greet_free(struct tcp_greet *g);
void tcp_greet_expire(struct tcp_greet *g);
void tcp_greet_reap(struct tcp_iface *iface);
void tcp_greet_drop_for(struct tcp_conn *conn);
/* Ends the dial for a bulk stream; false: there is none. */
bool tcp_greet_drop_stream(struct tcp_conn *conn, uint32_t id);

/* tcp_watch.c */
struct tcp_info;
/* What the kernel knows of a socket; false: nothing. */
bool tcp_stream_info(int fd, struct tcp_info *ti);
void tcp_watch_start(struct tcp_iface *iface);
unsigned int tcp_watch_tick(struct tcp_iface *iface);

/* tcp_ep.c */
int tcp_ep_create(struct weft_iface *iface, const struct weft_address *remote,
		  void *user, struct weft_ep **ep);
void tcp_ep_failed(struct tcp_ep *ep, int err);
void tcp_ep_notify_ready(struct tcp_conn *conn);
void tcp_ep_check_flush(struct tcp_ep *ep);
void tcp_ep_destroy(struct weft_ep *ep);
void tcp_ep_query(struct weft_ep *ep, struct weft_ep_attr *attr);
bool tcp_ep_ready(struct weft_ep *ep);
int tcp_ep_message(struct weft_ep *ep, uint8_t id, const struct iovec *iov,
		   unsigned int iovcnt, struct weft_op *op);
ssize_t tcp_ep_message_pack(struct weft_ep *ep, uint8_t id,
			    size_t (*pack)(void *dest, void *arg), void *arg);
int tcp_ep_put(struct weft_ep *ep, const struct weft_iov *iov,
	       unsigned int iovcnt, uint64_t remote_addr,
	       const void *rkey, const struct weft_notify *notify,
	       struct weft_op *op);
int tcp_ep_get(struct weft_ep *ep, const struct weft_iov *iov,
	       unsigned int iovcnt, uint64_t remote_addr,
	       const void *rkey, struct weft_op *op);
void tcp_ep_fence(struct weft_ep *ep);
int tcp_ep_flush(struct weft_ep *ep, struct weft_op *op);
void tcp_ep_cancel(struct weft_ep *ep);

static inline struct tcp_iface *tcp_iface(struct weft_iface *i)
{
	return container_of(i, struct tcp_iface, base);
}

static inline struct tcp_ep *tcp_ep(struct weft_ep *e)
{
	return container_of(e, struct tcp_ep, base);
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts: numbered at their source, cut into chunks that any stream may take,
 * counted at their target until every byte is placed, acknowledged once.
 * Nothing here calls back or touches a socket.
 */
#ifndef WEFT_DEVICES_TCP_BULK_H
#define WEFT_DEVICES_TCP_BULK_H

#include "devices/tcp/tcp.h"

struct tcp_stream;

/* One end of a put, at its source. */
struct tcp_put {
	struct weft_list link;	    /* in bulk->queue while bytes are unsent */
	struct weft_list done_link; /* in iface->found.puts */
	struct tcp_conn *conn;
	struct weft_op *op; /* NULL: nobody waits any more */
	uint64_t seq;
	uint64_t remote_addr;
	struct weft_rkey rkey;
	uint64_t tag;
	uint32_t flags; /* TCP_CHUNK_* */
	int status;
	bool source_checked; /* the source is a region: check source_key */
	struct weft_rkey source_key;
	size_t total, assigned;	 /* bytes; bytes that streams have taken */
	struct weft_list chunks; /* struct tcp_chunk.put_link, till settled */
	unsigned int senders;	 /* streams that are sending from it */
	unsigned int resend;	 /* its chunks in bulk->resend */
	bool acked;		 /* the peer has answered */
	bool aborted;		 /* not all of it was sent, nor will be */
	unsigned int iovcnt;
	struct iovec iov[TCP_MAX_IOV];
};

/* A part of a put: on a stream, or waiting to be sent again. */
struct tcp_chunk {
	struct weft_list link;	   /* stream->sent or bulk->resend */
	struct weft_list put_link; /* put->chunks */
	struct tcp_put *put;
	size_t off, len;
	uint64_t number; /* of the stream's chunks, from 0 */
	bool resend;	 /* it waits in bulk->resend */
};

/* One put at its target; live from its first chunk till it is placed. */
struct tcp_landing {
	uint64_t left;
	int status;
	bool live, done;
	/* the last put of this slot that a stream has acknowledged */
	uint64_t acked_seq;
	uint32_t acked_by; /* the stream; 0: none yet */
	int acked_status;
};

/* Finding the number of streams (tcp_tune.c); under the bulk lock. */
struct tcp_tune {
	uint64_t bytes, busy_ns; /* of the sample being taken */
	uint64_t busy_since_ns;	 /* 0: idle */
	double base;		 /* bytes/s with the streams before */
	bool trying;		 /* more streams are on trial: */
	unsigned int more;	 /* so many */
	unsigned int step;	 /* to be tried next; 0: twice as many */
	uint64_t settled_until_ns;
};

/* Bulk state of a pair, made with its first put in either direction. */
struct tcp_bulk {
	pthread_mutex_t lock;
	struct weft_list queue;	      /* puts with unsent bytes, oldest first */
	struct weft_list resend;      /* struct tcp_chunk: before those */
	_Atomic uint64_t next_seq;    /* written by the owner */
	_Atomic uint64_t acked;	      /* every put below is acknowledged */
	bool acked_early[TCP_WINDOW]; /* acknowledged, `acked` lies below */
	struct tcp_put *sent[TCP_WINDOW];
	_Atomic uint64_t placed; /* every put below is placed here */
	struct tcp_landing landing[TCP_WINDOW];
	struct weft_list streams; /* struct tcp_stream.link, both ways */
	unsigned int out_streams; /* those that we send on */
	unsigned int out_dialing; /* asked for, not there yet */
	unsigned int out_limit;	  /* what measuring found best so far */
	bool no_streams;	  /* none can be had: puts go by frame */
	int lost_err;		  /* why; until the warning about it */
	bool asked_streams;	  /* of out_dialing, none answered yet */
	struct tcp_tune tune;
	/* giving streams up (tcp_stall.c); owner only */
	uint64_t best_rate;    /* bytes a tick, of any stream lately */
	uint32_t streams_made; /* the dialer's: the last id */
};

/* A decoded chunk header. */
struct tcp_chunk_head {
	uint64_t seq, total, offset, addr, tag;
	struct weft_rkey rkey;
	uint32_t len, flags;
};

/* Made with the first put in either direction; NULL: no memory. */
struct tcp_bulk *tcp_bulk_get(struct tcp_conn *conn);
/* After the end of all puts and streams. */
void tcp_bulk_free(struct tcp_conn *conn);
/* Are as many puts on the way as may be? */
bool tcp_bulk_full(const struct tcp_conn *conn);

/* The source.  Gives @put its number and queues it for the streams. */
void tcp_bulk_submit(struct tcp_conn *conn, struct tcp_put *put);
/* Gives @put its number; the caller sends it whole by frame. */
void tcp_bulk_submit_framed(struct tcp_conn *conn, struct tcp_put *put,
			    uint8_t head[TCP_CHUNK_LEN]);
/* Chunks that no stream has taken yet, TCP_MAX_ENGINES at most. */
unsigned int tcp_bulk_waiting(struct tcp_bulk *b);
/* Cuts the next chunk for @s; NULL: there is none, or *@err is -ENOMEM. */
struct tcp_chunk *tcp_bulk_next_chunk(struct tcp_bulk *b, struct tcp_stream *s,
				      uint8_t head[TCP_CHUNK_LEN], int *err);
/* The same for the message stream, at most @max bytes; NULL: there is none. */
struct tcp_put *tcp_bulk_next_frame(struct tcp_bulk *b, size_t max, size_t *off,
				    size_t *len, uint8_t head[TCP_CHUNK_LEN]);
/* One sender less is at @put: it has sent @len bytes, a whole chunk; */
void tcp_bulk_chunk_sent(struct tcp_conn *conn, struct tcp_put *put,
			 size_t len);
/* or it ended amid one, which will be sent @again or not. */
void tcp_bulk_stream_stopped(struct tcp_conn *conn, struct tcp_put *put,
			     bool again);
/* No stream takes a chunk of @put any more; one may be in the middle of it. */
void tcp_bulk_withdraw(struct tcp_bulk *b, struct tcp_put *put);
/*
 * Nobody waits for @put any more; its op, or NULL.  *@abort: not all of it was
 * sent, nor will be, which the peer must be told.
 */
struct weft_op *tcp_bulk_give_up(struct tcp_bulk *b, struct tcp_put *put,
				 bool *abort);
/* The put with this number, if somebody waits for it, or NULL. */
struct tcp_put *tcp_bulk_pending(struct tcp_bulk *b, uint64_t seq);
/*
 * -EPROTO: the peer acknowledges what was never sent, or acknowledges it once
 * more; @late: which it may.
 */
int tcp_bulk_acked(struct tcp_conn *conn, uint64_t seq, int status, bool late);
/*
 * Queues the chunks of @s again of which the peer took @taken; -EPROTO: it
 * cannot have.  Puts that were cancelled meanwhile are added to @aborted by
 * their link: the peer must be told.
 */
int tcp_bulk_resend(struct tcp_bulk *b, struct tcp_stream *s, uint64_t taken,
		    struct weft_list *aborted);
/* @s ends: it has no chunks any more. */
void tcp_bulk_forget_stream(struct tcp_bulk *b, struct tcp_stream *s);

/* The target. */
void tcp_chunk_decode(const uint8_t *p, struct tcp_chunk_head *c);
/* 1: land it; 0: drain it; -EPROTO */
int tcp_bulk_begin_chunk(struct tcp_conn *conn, const struct tcp_chunk_head *c);
/*
 * The chunk's bytes are dealt with; @status: 0, or why they were drained.
 * 1: the put is placed and *@result is to be acknowledged, on the stream @by
 * (0: by frame); -errno.
 */
int tcp_bulk_end_chunk(struct tcp_conn *conn, const struct tcp_chunk_head *c,
		       int status, uint32_t by, int *result);
/* The peer gave @seq up; true: an acknowledgement is owed. */
bool tcp_bulk_abort(struct tcp_conn *conn, uint64_t seq);

/* Part of @iov: @len bytes from @off on; as many entries at most. */
void tcp_iov_slice(const struct iovec *iov, unsigned int n, size_t off,
		   size_t len, struct iovec *out, unsigned int *out_n);

/* tcp_tune.c: bulk lock held */
void tcp_tune_busy(struct tcp_bulk *b);
void tcp_tune_idle(struct tcp_bulk *b);
void tcp_tune_bytes(struct tcp_bulk *b, size_t n, unsigned int max);
/* The stream on trial could not be had. */
void tcp_tune_stream_lost(struct tcp_bulk *b);

#endif

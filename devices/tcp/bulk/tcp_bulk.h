/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Accounting of puts: at their source, chunks that any stream may take, until
 * they are acknowledged (tcp_bulk.c); at their target, bytes, until all are
 * placed (tcp_land.c).  Nothing here calls back or touches a socket.
 */
#ifndef WEFT_DEVICES_TCP_BULK_BULK_H
#define WEFT_DEVICES_TCP_BULK_BULK_H

#include "devices/tcp/tcp.h"

struct tcp_stream;

/* A put at its source. */
struct tcp_put {
	struct weft_list link; /* bulk->queue while bytes are unsent; spare */
	struct weft_list done_link; /* in iface->found.puts */
	struct tcp_conn *conn;
	struct weft_op *op; /* NULL: cancelled */
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
	bool acked;		 /* acknowledged by the peer */
	bool aborted;		 /* not all of it will be sent */
	unsigned int iovcnt;
	struct iovec iov[TCP_MAX_IOV]; /* last member: not cleared */
};

/* A part of a put: on a stream, or waiting to be sent again. */
struct tcp_chunk {
	struct weft_list link;	   /* stream->sent, bulk->resend or ->spare */
	struct weft_list put_link; /* put->chunks */
	struct tcp_put *put;
	size_t off, len;
	uint64_t number; /* index among the stream's chunks */
	bool resend;	 /* in bulk->resend */
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

/* Finds the number of streams (tcp_tune.c).  Bulk lock. */
struct tcp_tune {
	uint64_t bytes, busy_ns; /* of the sample being taken */
	uint64_t busy_since_ns;	 /* 0: idle */
	double base;		 /* bytes/s with the streams before */
	bool trying;		 /* more streams are on trial */
	unsigned int more;	 /* so many */
	unsigned int step; /* how many to try next; 0: as many as there are */
	uint64_t settled_until_ns;
};

/* Bulk state of a connection, from its first put in either direction on. */
struct tcp_bulk {
	pthread_mutex_t lock;
	struct weft_list queue;	 /* puts with unsent bytes, oldest first */
	struct weft_list resend; /* struct tcp_chunk: before those */
	struct weft_list spare;	 /* struct tcp_chunk, to be used again */
	unsigned int nspare;
	_Atomic uint64_t next_seq;    /* written by the owner */
	_Atomic uint64_t acked;	      /* every put below is acknowledged */
	bool acked_early[TCP_WINDOW]; /* acknowledged, `acked` lies below */
	struct tcp_put *sent[TCP_WINDOW];
	_Atomic uint64_t placed; /* every put below is placed here */
	struct tcp_landing landing[TCP_WINDOW];
	struct weft_list streams; /* struct tcp_stream.link, both ways */
	unsigned int out_streams; /* those for sending */
	unsigned int out_dialing; /* requested, not open yet */
	unsigned int out_limit;	  /* the best number measured so far */
	bool no_streams;	  /* none can be opened: puts go in frames */
	int lost_err;		  /* why; until the warning about it */
	bool asked_streams;	  /* requests in out_dialing are unanswered */
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

/* Allocated with the first put in either direction; NULL: no memory. */
struct tcp_bulk *tcp_bulk_get(struct tcp_conn *conn);
/* After the end of all puts and streams. */
void tcp_bulk_free(struct tcp_conn *conn);
/* Is the window of puts full? */
bool tcp_bulk_full(const struct tcp_conn *conn);

/* What the caller must do after a submit. */
struct tcp_queued {
	unsigned int chunks; /* as tcp_bulk_waiting() */
	bool few_streams;    /* more streams may be opened */
};
/* Gives @put its number and queues it for the streams. */
struct tcp_queued tcp_bulk_submit(struct tcp_bulk *b, struct tcp_put *put);
/* Gives @put its number; the caller sends it whole in a frame. */
void tcp_bulk_submit_framed(struct tcp_bulk *b, struct tcp_put *put,
			    uint8_t head[TCP_CHUNK_LEN]);
/* Chunks that no stream has taken yet, TCP_MAX_ENGINES at most. */
unsigned int tcp_bulk_waiting(struct tcp_bulk *b);
/*
 * Takes the next chunk for @s, which has sent @sent whole (NULL: none).  NULL:
 * there is none, or *@err is -ENOMEM.
 */
struct tcp_chunk *tcp_bulk_next_chunk(struct tcp_stream *s,
				      const struct tcp_chunk *sent,
				      uint8_t head[TCP_CHUNK_LEN], int *err);
/* The same for the message stream, at most @max bytes; NULL: there is none. */
struct tcp_put *tcp_bulk_next_frame(struct tcp_bulk *b, size_t max, size_t *off,
				    size_t *len, uint8_t head[TCP_CHUNK_LEN]);
/*
 * Sends from @put no more: a frame with a part of it was sent, or a stream
 * ended inside a chunk; @cut: which will not be sent again.
 */
void tcp_bulk_release(struct tcp_conn *conn, struct tcp_put *put, bool cut);
/* Queues nothing more of @put; a stream may still be sending a chunk. */
void tcp_bulk_withdraw(struct tcp_bulk *b, struct tcp_put *put);
/*
 * Cancels @put; returns its op, or NULL.  *@abort: it was not and will not be
 * sent whole, and the peer must learn of it.
 */
struct weft_op *tcp_bulk_give_up(struct tcp_bulk *b, struct tcp_put *put,
				 bool *abort);
/* The put with this number, or NULL: none, or cancelled. */
struct tcp_put *tcp_bulk_pending(struct tcp_bulk *b, uint64_t seq);
/*
 * The peer acknowledges @seq with @status.  @late: perhaps repeated.  -EPROTO:
 * it was never sent, or (not @late) is acknowledged already.
 */
int tcp_bulk_acked(struct tcp_conn *conn, uint64_t seq, int status, bool late);
/*
 * Queues the chunks of @s again except the first @taken, which the peer has;
 * -EPROTO: there are fewer.  Adds puts that were cancelled meanwhile to
 * @aborted by their link: the peer must learn of it.
 */
int tcp_bulk_resend(struct tcp_bulk *b, struct tcp_stream *s, uint64_t taken,
		    struct weft_list *aborted);

/*
 * Streams.  Those for sending that are more than the limit are suspended.
 *
 * Adds @s; returns how many there are for sending.
 */
unsigned int tcp_bulk_add_stream(struct tcp_bulk *b, struct tcp_stream *s);
/* @s, which sends, is not used any more; its chunks stay. */
void tcp_bulk_abandon_stream(struct tcp_bulk *b, struct tcp_stream *s);
/* @s ends: drops its chunks. */
void tcp_bulk_forget_stream(struct tcp_bulk *b, struct tcp_stream *s);
/* One for sending cannot be opened; returns how many there may be now. */
unsigned int tcp_bulk_lose_dial(struct tcp_bulk *b);
/* How many should be opened. */
unsigned int tcp_bulk_missing_streams(struct tcp_bulk *b);

/* A part of @iov: @len bytes from @off on; returns its entries, @n at most. */
unsigned int tcp_iov_slice(const struct iovec *iov, unsigned int n, size_t off,
			   size_t len, struct iovec *out);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How two interfaces meet over sockets: dialling, accepting, the hello, and
 * which of two simultaneous dials is kept.
 *
 * The n-th endpoints of a pair have one connection, known by (key id, n).  Of
 * two dials for the same one, that of the side with the lower key id is kept.
 * Nothing else is sent before that is decided, so nothing can be reordered.
 *
 * The first socket of a connection has the session's kind; a device may dial
 * more for it, of its own kinds.  Until its hello is done, an accepted socket
 * costs a small object and logs nothing.
 *
 * Everything runs in the owner's thread, in progress() or in the call itself.
 */
#ifndef WEFT_DEVICES_COMMON_SESSION_H
#define WEFT_DEVICES_COMMON_SESSION_H

#include "bootstrap/address.h"
#include "bootstrap/hello.h"
#include "devices/common/conn.h"
#include "devices/common/events.h"
#include "devices/common/unproven.h"

struct weft_handshake;
struct weft_session;

/* What the device does; none of them calls the program back. */
struct weft_session_ops {
	/*
	 * Returns a socket that connects to conn->remote, which the session
	 * owns; *@connecting: connect() is in progress.  -errno; -EAGAIN: the
	 * listener's backlog is full.
	 */
	int (*open_socket)(struct weft_conn *conn, bool *connecting);
	/* Sets options of an accepted socket; NULL: none. */
	void (*set_options)(int fd);
	/*
	 * Allocates a connection and calls weft_conn_init(): to dial @remote,
	 * or (NULL) for a proven peer that dials.  NULL: no memory.
	 */
	struct weft_conn *(*new_conn)(struct weft_session *s,
				      const struct weft_address *remote,
				      uint64_t peer_id, uint32_t number,
				      const char *where);
	/* The connection that a further socket is for; NULL: reject it. */
	struct weft_conn *(*find_conn)(struct weft_handshake *hs);
	/* Both sides are proven and agree: hs->conn owns @fd from now on. */
	void (*joined)(struct weft_handshake *hs, int fd);
	/* The socket of that kind could not be opened. */
	void (*lost)(struct weft_conn *conn, uint32_t kind, int err,
		     const char *where);
};

#define WEFT_SESSION_LISTENERS 2

struct weft_listener {
	struct weft_source src;
	struct weft_session *session;
	int fd;
};

struct weft_session {
	const struct weft_session_ops *ops;
	const char *name;	    /* the interface's, in messages */
	const char *where;	    /* of all peers; NULL: in each address */
	uint32_t kind;		    /* of a connection's first socket */
	struct weft_events *events; /* the interface's, as what follows */
	const struct weft_address *addr; /* with the key */
	uint64_t id;			 /* and the key's id */
	bool aside;			 /* what it connects carries no data */
	struct weft_listener listeners[WEFT_SESSION_LISTENERS];
	unsigned int nlisteners;
	uint64_t accept_ms; /* no accept() before; 0: not paused */
	struct weft_unproven_set unproven;
	struct weft_list handshakes, dead;
	struct weft_list meeting; /* weft_conn.meet_link */
	struct weft_table conns;  /* weft_conn.by_id */
};

/* How long a socket's peer has not answered (tcp/tcp_timer.c). */
struct weft_watch {
	uint64_t since_ms; /* 0: it answers, or nothing was sent */
	uint64_t tried_ms; /* the last retransmission, or attempt at one */
	uint64_t asked_ms; /* the same, after time for an answer */
	unsigned int probes, backoff;
};

/* A socket whose hello is not done. */
struct weft_handshake {
	struct weft_source src;
	struct weft_list link; /* session->handshakes, or dead */
	struct weft_session *session;
	int fd;
	bool dialer, connecting, dead;
	struct weft_conn *conn; /* listener: once decided */
	/* the hello's purpose, once that is read */
	uint32_t kind, number;
	uint64_t token; /* a first socket's: weft_neighbour_word() */
	struct weft_unproven unproven; /* listener */
	uint64_t deadline_ms; /* listener; dialer: while it is connecting */
	uint64_t moved_ms;    /* dialled, or last sent something */
	bool late;	      /* a long pause came before something was sent */
	struct weft_watch watch; /* tcp's dialer: of what was sent */
	union weft_sockaddr peer;
	struct weft_hello hello;
};

/*
 * In a zeroed @s; ops, name, where and kind are the device's, addr and id its
 * interface's, before anything is dialled or accepted.
 */
void weft_session_init(struct weft_session *s, struct weft_events *events);
/*
 * The connection for endpoint @number: the one that the peer has dialled, or a
 * new one, which dials.  -errno: it cannot dial, and ends by itself.
 */
int weft_session_connect(struct weft_session *s,
			 const struct weft_address *remote, uint32_t number,
			 struct weft_conn **conn);
/* accept.c: accepts from @fd, which the caller still owns; -errno. */
int weft_session_listen(struct weft_session *s, int fd);
/* Accepts again after a pause; called each time the timer fires. */
void weft_session_resume_accept(struct weft_session *s, uint64_t now);
/* Ends all handshakes, after all connections are freed. */
void weft_session_close(struct weft_session *s);
/* Checks deadlines (ms) and sets the timer for the next. */
void weft_session_tick(struct weft_session *s, uint64_t now, uint64_t stood);
/* Is a handshake or a dial in progress? */
static inline bool weft_session_busy(const struct weft_session *s)
{
	return !weft_list_empty(&s->handshakes) ||
	       !weft_list_empty(&s->meeting);
}
/* Frees ended handshakes; do not call from their handlers. */
void weft_session_reap(struct weft_session *s);

/* Dials a further socket; -errno, after lost(). */
int weft_conn_dial_more(struct weft_conn *conn, uint32_t kind, uint32_t number,
			uint64_t token);
/*
 * Its endpoint is destroyed.  True: the connection ends, since no peer is about
 * to use it.
 */
bool weft_conn_give_up(struct weft_conn *conn);
/* Ends its handshakes without lost(). */
void weft_conn_drop_handshakes(struct weft_conn *conn);
/* Takes over @fd, a socket accepted from @peer; -ENOMEM. */
int weft_handshake_accept(struct weft_session *s, int fd,
			  const union weft_sockaddr *peer);
void weft_handshake_free(struct weft_handshake *hs);
/* The same, and lost() is called if a connection waited for it. */
void weft_handshake_fail(struct weft_handshake *hs, int err);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An operation that failed ends its connection: nothing more is delivered, and
 * the socket closes after the frame that tells the peer.  Owner only.
 */
#ifndef WEFT_DEVICES_TCP_FAIL_H
#define WEFT_DEVICES_TCP_FAIL_H

#include "devices/tcp/tcp.h"

/* What failed, because of memory of this side. */
struct tcp_failure {
	const char *what; /* "put", "get" */
	uint64_t len;
	bool written; /* the memory would be written, else read */
	bool told;    /* the peer requested it, so report it */
	uint64_t id;  /* by this: a put's number, or a get's id */
	int status;
};

/* Logs it; progress() closes the connection. */
void tcp_conn_fail(struct tcp_conn *conn, const struct tcp_failure *f);
/* The peer says that an operation has failed, ours or its own. */
void tcp_conn_failed(struct tcp_conn *conn);
/*
 * Takes over the socket of a connection that failed.  It is closed only after
 * the peer has closed it: else unread bytes of the peer would reset it, and the
 * peer would lose what it has not read.
 */
void tcp_conn_leave(struct tcp_conn *conn);
/*
 * Does a socket still hold bytes that the peer's kernel has not acknowledged?
 */
bool tcp_leaving_busy(struct tcp_iface *iface);
void tcp_leaving_close(struct tcp_iface *iface);
/* In a forked child: closes its descriptors. */
void tcp_leaving_forget(struct tcp_iface *iface);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One side of a conversation over real UCX: a context, a worker, endpoints to
 * the other side, and a socket beside them for what UCX is not to carry.
 */
#ifndef WEFT_TESTS_HOST_H
#define WEFT_TESTS_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ucp/api/ucp.h>

#define MAX_EPS 16

struct host {
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_ep_h eps[MAX_EPS];
	unsigned int n_eps;
	ucp_listener_h listener;
	ucp_conn_request_h requests[MAX_EPS];
	unsigned int n_requests;
	int side;	     /* 0 waited, 1 came */
	int oob;	     /* that socket */
	int efd;	     /* -1: polling */
	unsigned int sleeps; /* that weft made while it spun */
	bool by_sockaddr, peer_errors;
	const char *ip;	     /* for listeners */
	uint64_t later;	     /* see make_later() */
	unsigned int errors; /* error callbacks */
	ucs_status_t error;
};

void __attribute__((noreturn, format(printf, 1, 2))) die(const char *fmt, ...);
void check(ucs_status_t status, const char *what);

/* Options from argv[3..]; see usage() in host.c. */
void host_open(struct host *h, int argc, char **argv);
/* Makes the endpoints; both sides call it. */
void host_connect(struct host *h);
void host_close(struct host *h);

/* Progress; in blocking mode sleeps on the event fd and on the socket. */
void host_progress(struct host *h);
/* Progresses once a millisecond. */
void host_rest(struct host *h, unsigned int ms);
/* Until the request is done; returns its status and frees it. */
ucs_status_t host_wait(struct host *h, ucs_status_ptr_t request);
ucs_status_t host_flush(struct host *h, ucp_ep_h ep);

/* Over the Unix socket, while UCX is progressed. */
void oob_send(struct host *h, const void *buf, size_t len);
void oob_recv(struct host *h, void *buf, size_t len);
bool oob_closed(struct host *h); /* the other side has left */
void barrier(struct host *h);

/* Bytes that depend on who sends what, in which round and where. */
void fill(void *buf, size_t len, uint64_t seed);
/* NULL, or where the first wrong byte is. */
const void *wrong(const void *buf, size_t len, uint64_t seed);

#endif

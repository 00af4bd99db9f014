/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer of the TCP device that is no weft: it proves itself as an honest one
 * would and may then say anything.  Blocking; it progresses the interface that
 * it talks to while it waits.
 */
#ifndef WEFT_TESTS_LIB_TCP_PEER_H
#define WEFT_TESTS_LIB_TCP_PEER_H

#include "devices/device.h"
#include "devices/tcp/tcp_proto.h"

struct tcp_peer {
	struct weft_iface *iface; /* whom it talks to */
	struct weft_address addr; /* where that listens */
	uint32_t sequence;	  /* endpoints "made" so far */
};

/* Progresses the interface until @fd has one of poll()'s @events. */
void tcp_peer_wait(struct tcp_peer *p, int fd, short events);
/* 0, or -ECONNRESET when the stream ends before. */
int tcp_peer_read(struct tcp_peer *p, int fd, void *buf, size_t len);
/*
 * A socket whose hello is done; -errno.  @token: of the WELCOME, for bulk.
 * @rcvbuf: bytes, 0: the system's own.
 */
int tcp_peer_join(struct tcp_peer *p, enum tcp_purpose purpose, uint64_t token,
		  int rcvbuf);
/* A message stream; its WELCOME's token. */
int tcp_peer_meet(struct tcp_peer *p, uint64_t *token);

#endif

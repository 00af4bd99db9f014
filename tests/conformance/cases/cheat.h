/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers of the TCP device that prove themselves, then break the protocol. */
#ifndef WEFT_TESTS_CONFORMANCE_CHEAT_H
#define WEFT_TESTS_CONFORMANCE_CHEAT_H

#include "tests/conformance/pair.h"
#include "tests/lib/tcp_peer.h"

/* Opens @victim, for peers whose sockets hold little. */
void cheat_begin(struct side *victim, struct tcp_peer *p);
/* The same, and one's message stream; @token: for its bulk streams. */
int cheat_meet(struct side *victim, struct tcp_peer *p, uint64_t *token);
int cheat_bulk(struct tcp_peer *p, uint64_t token, int rcvbuf);
void cheat_say(int fd, const void *bytes, size_t len);

#endif

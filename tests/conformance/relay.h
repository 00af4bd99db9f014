/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A network between two sides of the TCP device, whose sockets do not share one
 * path: each has a delay of its own, and its end takes as long as its bytes.
 */
#ifndef WEFT_TESTS_CONFORMANCE_RELAY_H
#define WEFT_TESTS_CONFORMANCE_RELAY_H

#include <pthread.h>

#include "tests/conformance/pair.h"

#define RELAY_LINKS 16

struct relay_link;

struct relay {
	int listen_fd;
	union weft_sockaddr to;
	pthread_t thread;
	atomic_bool stop;
	/* of the n-th socket that is dialled, both ways */
	atomic_uint delay_ms[RELAY_LINKS];
	atomic_int cut; /* this one is reset; -1: none */
	atomic_uint nlinks;
	struct relay_link *links[RELAY_LINKS];
};

/* Between @to and peers that connect to the address that it returns. */
struct weft_address relay_open(struct relay *r, const struct side *to);
void relay_close(struct relay *r);

#endif

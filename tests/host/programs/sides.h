/* SPDX-License-Identifier: BSD-3-Clause */
/* Two workers of one process, over real UCX, each with an endpoint to the
 * other. */
#ifndef WEFT_TESTS_HOST_SIDES_H
#define WEFT_TESTS_HOST_SIDES_H

#include <stddef.h>
#include <stdint.h>
#include <ucp/api/ucp.h>

#define PATIENCE_S 60
#define SIDE_LEN   4000000

struct side {
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_ep_h ep;
	int efd;			  /* -1: polled */
	ucp_err_handling_mode_t err_mode; /* of its endpoints */
	unsigned int errors;
	ucs_status_t error; /* the last */
	uint8_t out[SIDE_LEN], in[SIDE_LEN];
};

extern struct side a, b;

/*
 * With tagged messages and @features; both_ways() sleeps on the event fd of
 * UCP_FEATURE_WAKEUP.
 */
void side_open(struct side *s, uint64_t features);
ucs_status_t connect_to(struct side *s, struct side *to);
/* Without FORCE, of this side alone. */
void close_ep(struct side *s);
/* @len bytes from each to the other, by value; dies if that does not end. */
void both_ways(size_t len);

#endif

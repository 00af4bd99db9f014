/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers both ways at once between the two sides, whatever memory they are
 * of; filling it and looking is the caller's.  Whatever fails ends the process.
 */
#ifndef WEFT_TESTS_HOST_TRANSFER_H
#define WEFT_TESTS_HOST_TRANSFER_H

#include "tests/host/programs/host.h"

/* Of what @side sends: patterns differ by sender, kind and round. */
uint64_t seed_of(int side, unsigned int kind, uint64_t round);

/* Each waits for both; the tag is the same on both sides. */
void tag_both(struct host *h, ucp_ep_h ep, const void *out, void *in,
	      size_t len, uint64_t tag);

/* @eager is called with what comes whole, before am_both() returns. */
void am_setup(struct host *h, void (*eager)(const void *data, size_t len));
/* True: it came by rendezvous and is in @in now. */
bool am_both(struct host *h, ucp_ep_h ep, const void *out, void *in,
	     size_t len);

struct window { /* the other side's memory */
	uint64_t addr;
	size_t rkey_len;
	char rkey[256];
};
/* Maps [base, base+len) and tells of it as if it began at @at. */
ucp_mem_h window_open(struct host *h, void *base, size_t len, void *at,
		      struct window *w);

/*
 * Puts or gets @len bytes: @in, or @out for a get, lies in [base, base+size),
 * which is mapped meanwhile.  All of it is placed on both sides on return.
 */
struct rma {
	const void *out;
	void *in, *base;
	size_t len, size;
	bool put;
};
void rma_both(struct host *h, ucp_ep_h ep, const struct rma *r);

/*
 * Sends and receives until the side that came ends in mid-transfer, right after
 * @end and without any close; returns on the other one, when that knows
 * and no request is open any more.
 */
void transfer_until_killed(struct host *h, const void *out, void *in,
			   size_t len, void (*end)(struct host *h));
#define LINGER_MS 200 /* for what must not land to land */

#endif

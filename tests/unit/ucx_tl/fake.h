/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device without a wire, in the place of the real ones: the test says whether
 * it takes operations, completes them and ends its endpoints.
 */
#ifndef WEFT_TESTS_UCX_TL_FAKE_H
#define WEFT_TESTS_UCX_TL_FAKE_H

#include "devices/device.h"

#define FAKE_LOG      64
#define FAKE_RKEY_LEN 12

struct fake_ep {
	struct weft_ep base;
	bool destroyed, cancelled;
};

struct fake {
	bool ready;	/* the predicate */
	int flush, put; /* results */
	int arm;
	int works;
	const char *unreached; /* why no peer is reached */
	struct weft_op *op;    /* the last one taken */
	unsigned int taken;
	uint8_t ids[FAKE_LOG];	 /* of messages, in order */
	uint8_t bytes[FAKE_LOG]; /* the first byte of each */
	unsigned int fences, flushes, registered;
	struct weft_iface iface;
	struct fake_ep ep;
};
extern struct fake fake;

void fake_reset(void);

#endif

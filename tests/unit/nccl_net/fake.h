/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device without a wire: ifaces of one process that hand each other events,
 * in the order the contract allows and at the moment a test wants.  It stands
 * where the adaptor expects weft_tcp_ops.
 */
#ifndef WEFT_TESTS_NCCL_NET_FAKE_H
#define WEFT_TESTS_NCCL_NET_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include "devices/device.h"

struct fake_control {
	bool unreachable;    /* reaches() says no */
	bool refuse_eps;     /* new endpoints die at first progress */
	bool hold_puts;	     /* puts stay under way */
	bool hold_all;	     /* nothing is delivered */
	_Atomic bool unsent; /* endpoints say that something is left */
	_Atomic unsigned int progressed; /* calls of progress() */
	unsigned int busy;		 /* so many messages are not taken */
	unsigned int messages, puts;	 /* taken so far */
	unsigned int ifaces, eps, mems;	 /* open now */
	unsigned int by_id[WEFT_MSG_IDS];
};
extern struct fake_control fake;

/* All connections break, as when the other process is killed. */
void fake_break_all(int err);
/* Hands @buf to every iface as a message, as a hostile peer would. */
void fake_inject(uint8_t id, void *buf, size_t len);
void fake_inject_notify(uint64_t tag, uint64_t size);

#endif

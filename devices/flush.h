/* SPDX-License-Identifier: BSD-3-Clause */
/* Flushes of one endpoint that wait, in the order they were asked for. */
#ifndef WEFT_DEVICES_FLUSH_H
#define WEFT_DEVICES_FLUSH_H

#include "devices/device.h"
#include "util/list.h"

struct weft_flushes {
	struct weft_list list;
	unsigned int n;
};

void weft_flushes_init(struct weft_flushes *f);
/* -EINPROGRESS: @op (NULL: nobody) is told by weft_flushes_end(); -ENOMEM. */
int weft_flushes_add(struct weft_flushes *f, struct weft_op *op);
/*
 * Completes those that wait now with @status; their number.  What a done()
 * asks for anew waits on: the device is to look whether it is flushed.
 */
unsigned int weft_flushes_end(struct weft_flushes *f, int status);

#endif

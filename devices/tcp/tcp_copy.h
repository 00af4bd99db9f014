/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEFT_DEVICES_TCP_COPY_H
#define WEFT_DEVICES_TCP_COPY_H

#include "devices/tcp/tcp.h"

#define TCP_COPIES 32 /* at most in one call */

/*
 * Copies each @from to its @to, which is as long, and sets its status: 0;
 * -EACCES: one of them is not mapped; else -errno.  @n is at most TCP_COPIES.
 */
void tcp_copy(struct tcp_iface *iface, const struct iovec *to,
	      const struct iovec *from, unsigned int n, int *status);

#endif

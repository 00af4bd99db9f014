/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tests/unit/ucx_tl/fake.h"

struct fake fake;

void fake_reset(void)
{
	memset(&fake, 0, sizeof(fake));
	fake.ready = true;
	fake.iface.ops = &weft_tcp_ops;
}

static int works(const char **why)
{
	*why = "the test says so";
	return fake.works;
}

static int iface_open(const struct weft_iface_params *params,
		      struct weft_iface **iface)
{
	fake.iface.cb = *params->cb;
	*iface = &fake.iface;
	return 0;
}

static void iface_close(struct weft_iface *iface)
{
}

static void iface_query(struct weft_iface *iface, struct weft_iface_attr *attr)
{
	*attr = (struct weft_iface_attr){
		.max_message = 65536,
		.max_iov = 8,
		.mem_kinds = 1,
		.bandwidth = 5e9,
		.latency = 5e-6,
		.overhead = 1e-6,
	};
	attr->addr.wire_min = WEFT_WIRE_MIN;
	attr->addr.wire_max = WEFT_WIRE_MAX;
	attr->addr.sa.in.sin_family = AF_INET;
	attr->addr.sa.in.sin_port = 1;
}

static bool reaches(struct weft_iface *iface, const struct weft_address *remote,
		    const char **why)
{
	if (fake.unreached && why)
		*why = fake.unreached;
	return !fake.unreached;
}

static unsigned int progress(struct weft_iface *iface)
{
	return 0;
}

static int event_fd(struct weft_iface *iface)
{
	return 0;
}

static int arm(struct weft_iface *iface)
{
	return fake.arm;
}

static int ep_create(struct weft_iface *iface,
		     const struct weft_address *remote, void *user,
		     struct weft_ep **ep)
{
	fake.ep.base.iface = iface;
	fake.ep.base.user = user;
	*ep = &fake.ep.base;
	return 0;
}

static void ep_destroy(struct weft_ep *ep)
{
	fake.ep.destroyed = true;
}

static bool unsent(struct weft_ep *ep)
{
	return false;
}

static bool ready(struct weft_ep *ep)
{
	return fake.ready;
}

static void note(uint8_t id, uint8_t byte)
{
	if (fake.taken < FAKE_LOG) {
		fake.ids[fake.taken] = id;
		fake.bytes[fake.taken] = byte;
	}
	fake.taken++;
}

static int message(struct weft_ep *ep, uint8_t id, const struct iovec *iov,
		   unsigned int iovcnt)
{
	if (!fake.ready)
		return -EAGAIN;
	note(id, iovcnt ? *(uint8_t *)iov[0].iov_base : 0);
	return 0;
}

static ssize_t message_pack(struct weft_ep *ep, uint8_t id,
			    size_t (*pack)(void *dest, void *arg), void *arg)
{
	char buf[65536];
	size_t len;

	if (!fake.ready)
		return -EAGAIN;
	len = pack(buf, arg);
	note(id, len ? (uint8_t)buf[0] : 0);
	return (ssize_t)len;
}

static int put(struct weft_ep *ep, const struct weft_iov *iov,
	       unsigned int iovcnt, uint64_t remote_addr, const void *rkey,
	       const struct weft_notify *notify, struct weft_op *op)
{
	if (!fake.ready)
		return -EAGAIN;
	fake.op = op;
	return fake.put;
}

static int get(struct weft_ep *ep, const struct weft_iov *iov,
	       unsigned int iovcnt, uint64_t remote_addr, const void *rkey,
	       struct weft_op *op)
{
	return put(ep, iov, iovcnt, remote_addr, rkey, NULL, op);
}

static void fence(struct weft_ep *ep)
{
	fake.fences++;
}

static int flush(struct weft_ep *ep, struct weft_op *op)
{
	fake.flushes++;
	if (op)
		fake.op = op;
	return fake.flush;
}

static void cancel(struct weft_ep *ep)
{
	fake.ep.cancelled = true;
	if (fake.op) {
		struct weft_op *op = fake.op;

		fake.op = NULL;
		op->done(op, -ECANCELED);
	}
}

static int mem_register(void *addr, size_t len, enum weft_mem_kind kind,
			struct weft_mem **mem)
{
	fake.registered++;
	*mem = (struct weft_mem *)&fake;
	return 0;
}

static void mem_pack(struct weft_mem *mem, void *rkey)
{
	memset(rkey, 1, FAKE_RKEY_LEN);
}

static void mem_release(struct weft_mem *mem)
{
	fake.registered--;
}

#define FAKE_OPS                                                           \
	{                                                                  \
		.name = "fake", .rkey_len = FAKE_RKEY_LEN, .works = works, \
		.iface_open = iface_open, .iface_close = iface_close,      \
		.iface_query = iface_query, .reaches = reaches,            \
		.progress = progress, .event_fd = event_fd, .arm = arm,    \
		.ep_create = ep_create, .ep_destroy = ep_destroy,          \
		.unsent = unsent, .ready = ready, .message = message,      \
		.message_pack = message_pack, .put = put, .get = get,      \
		.fence = fence, .flush = flush, .cancel = cancel,          \
		.mem_register = mem_register, .mem_pack = mem_pack,        \
		.mem_release = mem_release,                                \
	}

const struct weft_dev_ops weft_tcp_ops = FAKE_OPS;
const struct weft_dev_ops weft_shm_ops = FAKE_OPS;
const struct weft_dev_ops weft_nvlink_ops = FAKE_OPS;

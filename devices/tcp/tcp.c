/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/tcp/tcp.h"

#include <errno.h>

static int tcp_mem_register(void *addr, size_t len, enum weft_mem_kind kind,
			    struct weft_mem **mem)
{
	if (kind != WEFT_MEM_HOST)
		return -EOPNOTSUPP;
	return weft_region_add(addr, len, kind, mem);
}

static void tcp_mem_pack(struct weft_mem *mem, void *rkey)
{
	weft_rkey_pack(&mem->rkey, rkey);
}

const struct weft_dev_ops weft_tcp_ops = {
	.name		= "tcp",
	.rkey_len	= WEFT_RKEY_LEN,
	.iface_open	= tcp_iface_open,
	.iface_close	= tcp_iface_close,
	.iface_query	= tcp_iface_query,
	.reaches	= tcp_iface_reaches,
	.progress	= tcp_iface_progress,
	.event_fd	= tcp_iface_event_fd,
	.arm		= tcp_iface_arm,
	.ep_create	= tcp_ep_create,
	.ep_destroy	= tcp_ep_destroy,
	.ep_query	= tcp_ep_query,
	.ready		= tcp_ep_ready,
	.message	= tcp_ep_message,
	.message_pack	= tcp_ep_message_pack,
	.put		= tcp_ep_put,
	.get		= tcp_ep_get,
	.fence		= tcp_ep_fence,
	.flush		= tcp_ep_flush,
	.cancel		= tcp_ep_cancel,
	.mem_register	= tcp_mem_register,
	.mem_pack	= tcp_mem_pack,
	.mem_release	= weft_region_remove,
};

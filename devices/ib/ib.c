/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/ib/ib.h"

const struct weft_dev_ops weft_ib_ops = {
	.name		= "ib",
	.rkey_len	= WEFT_RKEY_LEN,
	.iface_open	= ib_iface_open,
	.iface_close	= ib_iface_close,
	.iface_query	= ib_iface_query,
	.reaches	= ib_iface_reaches,
	.progress	= ib_iface_progress,
	.event_fd	= ib_iface_event_fd,
	.arm		= ib_iface_arm,
	.ep_create	= ib_ep_create,
	.ep_destroy	= ib_ep_destroy,
	.ep_query	= ib_ep_query,
	.ready		= ib_ep_ready,
	.message	= ib_ep_message,
	.message_pack	= ib_ep_message_pack,
	.put		= ib_ep_put,
	.get		= ib_ep_get,
	.fence		= ib_ep_fence,
	.flush		= ib_ep_flush,
	.cancel		= ib_ep_cancel,
	.mem_register	= ib_mem_register,
	.mem_pack	= ib_mem_pack,
	.mem_release	= ib_mem_release,
};

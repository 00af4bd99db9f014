/* SPDX-License-Identifier: BSD-3-Clause */
/* NCCL 2.30 and later */
#include "nccl_net/net.h"
#include "nccl_net/result.h"
#include "nccl_net/versions.h"

static enum nccl_result get_properties(int dev, struct nccl_props_v12 *p)
{
	struct weft_net_props w;
	int ret = weft_net_properties(dev, &w);

	if (ret < 0)
		return weft_nccl_result(ret);
	*p = (struct nccl_props_v12){
		.name = w.name,
		.pci_path = w.pci_path,
		.guid = w.guid,
		.ptr_support = w.ptr_support,
		.reg_is_global = w.reg_is_global,
		.speed = w.speed,
		.port = w.port,
		.max_comms = w.max_comms,
		.max_recvs = w.max_recvs,
		.device_type = NCCL_DEVICE_HOST,
		.vprops = { .ndevs = 1, .devs = { dev } },
		.max_p2p_bytes = w.max_bytes,
		.max_coll_bytes = w.max_bytes,
		.max_multi_request = 1,
		.rail_id = NCCL_ID_UNDEF,
		.plane_id = NCCL_ID_UNDEF,
	};
	return NCCL_SUCCESS;
}

extern struct nccl_net_v12 ncclNetPlugin_v12;
WEFT_EXPORT struct nccl_net_v12 ncclNetPlugin_v12 = {
	.name = WEFT_NCCL_NAME,
	.init = weft_nccl_init_ctx,
	.devices = weft_nccl_devices,
	.get_properties = get_properties,
	.listen = weft_nccl_listen_ctx,
	.connect = weft_nccl_connect_ctx,
	.accept = weft_nccl_accept,
	.reg = weft_nccl_reg,
	.dereg = weft_nccl_dereg,
	.isend = weft_nccl_isend,
	.irecv = weft_nccl_irecv,
	.iflush = weft_nccl_iflush,
	.test = weft_nccl_test,
	.close_send = weft_nccl_close_comm,
	.close_recv = weft_nccl_close_comm,
	.close_listen = weft_nccl_close_listen,
	.finalize = weft_nccl_finalize,
	.set_attr = weft_nccl_set_attr,
};

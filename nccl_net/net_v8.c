/* SPDX-License-Identifier: BSD-3-Clause */
/* NCCL 2.20 to 2.23 */
#include "nccl_net/introduce.h"
#include "nccl_net/net.h"
#include "nccl_net/result.h"
#include "nccl_net/versions.h"

static enum nccl_result get_properties(int dev, struct nccl_props_v8 *p)
{
	struct weft_net_props w;
	int ret = weft_net_properties(dev, &w);

	if (ret < 0)
		return weft_nccl_result(ret);
	*p = (struct nccl_props_v8){
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
	};
	return NCCL_SUCCESS;
}

/* Of the releases with this interface 2.20 has no tuner that we could be. */
#define FIRST_WITH_TUNER 22100

static enum nccl_result init_v8(nccl_logger log)
{
	return weft_nccl_version((const void *)log) < FIRST_WITH_TUNER
		       ? weft_nccl_init(log)
		       : weft_nccl_init_tuned(log);
}

extern struct nccl_net_v8 ncclNetPlugin_v8;
WEFT_EXPORT struct nccl_net_v8 ncclNetPlugin_v8 = {
	.name = WEFT_NCCL_NAME,
	.init = init_v8,
	.devices = weft_nccl_devices,
	.get_properties = get_properties,
	.listen = weft_nccl_listen,
	.connect = weft_nccl_connect,
	.accept = weft_nccl_accept,
	.reg = weft_nccl_reg,
	.dereg = weft_nccl_dereg,
	.isend = weft_nccl_isend_int,
	.irecv = weft_nccl_irecv_int,
	.iflush = weft_nccl_iflush,
	.test = weft_nccl_test,
	.close_send = weft_nccl_close_comm,
	.close_recv = weft_nccl_close_comm,
	.close_listen = weft_nccl_close_listen,
};

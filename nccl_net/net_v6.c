/* SPDX-License-Identifier: BSD-3-Clause */
/* NCCL 2.13 to 2.18 */
#include "nccl_net/net.h"
#include "nccl_net/result.h"
#include "nccl_net/versions.h"

static enum nccl_result get_properties(int dev, struct nccl_props_v6 *p)
{
	struct weft_net_props w;
	int ret = weft_net_properties(dev, &w);

	if (ret < 0)
		return weft_nccl_result(ret);
	*p = (struct nccl_props_v6){
		.name = w.name,
		.pci_path = w.pci_path,
		.guid = w.guid,
		.ptr_support = w.ptr_support,
		.speed = w.speed,
		.port = w.port,
		.max_comms = w.max_comms,
		.max_recvs = w.max_recvs,
	};
	return NCCL_SUCCESS;
}

static enum nccl_result connect_v6(int dev, void *handle, void **comm)
{
	return weft_nccl_connect(dev, handle, comm, NULL);
}

static enum nccl_result accept_v6(void *listener, void **comm)
{
	return weft_nccl_accept(listener, comm, NULL);
}

extern struct nccl_net_v6 ncclNetPlugin_v6;
WEFT_EXPORT struct nccl_net_v6 ncclNetPlugin_v6 = {
	.name = WEFT_NCCL_NAME,
	.init = weft_nccl_init,
	.devices = weft_nccl_devices,
	.get_properties = get_properties,
	.listen = weft_nccl_listen,
	.connect = connect_v6,
	.accept = accept_v6,
	.reg = weft_nccl_reg_int,
	.dereg = weft_nccl_dereg,
	.isend = weft_nccl_isend_int,
	.irecv = weft_nccl_irecv_int,
	.iflush = weft_nccl_iflush,
	.test = weft_nccl_test,
	.close_send = weft_nccl_close_comm,
	.close_recv = weft_nccl_close_comm,
	.close_listen = weft_nccl_close_listen,
};

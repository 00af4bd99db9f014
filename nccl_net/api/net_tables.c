/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plugin's tables, one for each version of NCCL's interface: v6 is that of
 * NCCL 2.13 to 2.18, v7 of 2.19, v8 of 2.20 to 2.23, v9 of 2.24 and 2.25, v10
 * of 2.26 and 2.27, v11 of 2.28 and 2.29, v12 of 2.30 and later.
 */
#include "nccl_net/common/result.h"
#include "nccl_net/introduce/introduce.h"
#include "nccl_net/api/versions.h"
#include "nccl_net/net/net.h"
#include "util/util.h"

/* ---- properties ---------------------------------------------------------- */

#define SINCE_V6                                                        \
	.name = w.name, .pci_path = w.pci_path, .guid = w.guid,         \
	.ptr_support = w.ptr_support, .speed = w.speed, .port = w.port, \
	.max_comms = w.max_comms, .max_recvs = w.max_recvs
#define SINCE_V7 SINCE_V6, .device_type = NCCL_DEVICE_HOST
#define SINCE_V8 SINCE_V7, .reg_is_global = w.reg_is_global
#define SINCE_V9                                             \
	SINCE_V8, .vprops = { .ndevs = 1, .devs = { dev } }, \
		  .max_p2p_bytes = w.max_bytes, .max_coll_bytes = w.max_bytes
#define SINCE_V11 SINCE_V9, .max_multi_request = 1
#define SINCE_V12 SINCE_V11, .rail_id = NCCL_ID_UNDEF, .plane_id = NCCL_ID_UNDEF

#define PROPERTIES(VERSION, ...)                                   \
	static enum nccl_result properties_##VERSION(              \
		int dev, struct nccl_props_##VERSION *p)           \
	{                                                          \
		struct weft_net_props w;                           \
		int ret = weft_net_properties(dev, &w);            \
                                                                   \
		if (ret < 0)                                       \
			return weft_nccl_result(ret);              \
		*p = (struct nccl_props_##VERSION){ __VA_ARGS__ }; \
		return NCCL_SUCCESS;                               \
	}

PROPERTIES(v6, SINCE_V6)
PROPERTIES(v7, SINCE_V7)
PROPERTIES(v8, SINCE_V8)
PROPERTIES(v9, SINCE_V9)
PROPERTIES(v11, SINCE_V11)
PROPERTIES(v12, SINCE_V12)

/* ---- calls that one version has ------------------------------------------ */

static enum nccl_result connect_v6(int dev, void *handle, void **comm)
{
	return weft_nccl_connect(dev, handle, comm, NULL);
}

static enum nccl_result accept_v6(void *listener, void **comm)
{
	return weft_nccl_accept(listener, comm, NULL);
}

/*
 * NCCL 2.20, which has this interface, has no tuner of a version that weft
 * offers.
 */
#define FIRST_WITH_TUNER 22100

static enum nccl_result init_v8(nccl_logger log)
{
	return weft_nccl_version((const void *)log) < FIRST_WITH_TUNER
		       ? weft_nccl_init(log)
		       : weft_nccl_init_tuned(log);
}

static enum nccl_result init_v10(nccl_logger log, nccl_profiler profiler)
{
	return weft_nccl_init_tuned(log);
}

static enum nccl_result connect_v10(int dev, struct nccl_config_v10 *config,
				    void *handle, void **comm, void **offload)
{
	(void)config; /* a traffic class: not used */
	return weft_nccl_connect(dev, handle, comm, offload);
}

/* ---- tables -------------------------------------------------------------- */

#define TABLE(VERSION)                                            \
	extern struct nccl_net_##VERSION ncclNetPlugin_##VERSION; \
	WEFT_EXPORT struct nccl_net_##VERSION ncclNetPlugin_##VERSION

#define ALL_HAVE                                                    \
	.name = WEFT_NCCL_NAME, .devices = weft_nccl_devices,       \
	.dereg = weft_nccl_dereg, .iflush = weft_nccl_iflush,       \
	.test = weft_nccl_test, .close_send = weft_nccl_close_comm, \
	.close_recv = weft_nccl_close_comm,                         \
	.close_listen = weft_nccl_close_listen

TABLE(v6) = {
	ALL_HAVE,
	.init = weft_nccl_init,
	.get_properties = properties_v6,
	.listen = weft_nccl_listen,
	.connect = connect_v6,
	.accept = accept_v6,
	.reg = weft_nccl_reg_int,
	.isend = weft_nccl_isend_int,
	.irecv = weft_nccl_irecv_int,
};

TABLE(v7) = {
	ALL_HAVE,
	.init = weft_nccl_init,
	.get_properties = properties_v7,
	.listen = weft_nccl_listen,
	.connect = weft_nccl_connect,
	.accept = weft_nccl_accept,
	.reg = weft_nccl_reg_int,
	.isend = weft_nccl_isend_int,
	.irecv = weft_nccl_irecv_int,
};

TABLE(v8) = {
	ALL_HAVE,
	.init = init_v8,
	.get_properties = properties_v8,
	.listen = weft_nccl_listen,
	.connect = weft_nccl_connect,
	.accept = weft_nccl_accept,
	.reg = weft_nccl_reg,
	.isend = weft_nccl_isend_int,
	.irecv = weft_nccl_irecv_int,
};

TABLE(v9) = {
	ALL_HAVE,
	.init = weft_nccl_init_tuned,
	.get_properties = properties_v9,
	.listen = weft_nccl_listen,
	.connect = weft_nccl_connect,
	.accept = weft_nccl_accept,
	.reg = weft_nccl_reg,
	.isend = weft_nccl_isend_size,
	.irecv = weft_nccl_irecv_size,
};

TABLE(v10) = {
	ALL_HAVE,
	.init = init_v10,
	.get_properties = properties_v9,
	.listen = weft_nccl_listen,
	.connect = connect_v10,
	.accept = weft_nccl_accept,
	.reg = weft_nccl_reg,
	.isend = weft_nccl_isend,
	.irecv = weft_nccl_irecv,
};

#define CALLS_V11                                                             \
	ALL_HAVE, .init = weft_nccl_init_ctx, .listen = weft_nccl_listen_ctx, \
		  .connect = weft_nccl_connect_ctx,                           \
		  .accept = weft_nccl_accept, .reg = weft_nccl_reg,           \
		  .isend = weft_nccl_isend, .irecv = weft_nccl_irecv,         \
		  .finalize = weft_nccl_finalize,                             \
		  .set_attr = weft_nccl_set_attr

TABLE(v11) = {
	CALLS_V11,
	.get_properties = properties_v11,
};

TABLE(v12) = {
	CALLS_V11,
	.get_properties = properties_v12,
};

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL's network plugin interface, versions 6 to 12, declared independently.
 *
 * Only layout and calling convention are described here; what the calls mean
 * is at the one implementation, nccl_net/net/net.h.  Sources of the layout: the
 * nccl_net.h of the nvidia-nccl packages 2.18.3 (v6), 2.19.3 (v7), 2.22.3 (v8)
 * and the plugin headers of NCCL 2.25 (v9), 2.27 (v10), 2.29 (v11), 2.30 (v12).
 * tests/nccl/abi.sh compares them with such a header if one is present;
 * tests/unit/nccl_net/abi_test.c checks every offset.
 */
#ifndef WEFT_NCCL_NET_ABI_NET_H
#define WEFT_NCCL_NET_ABI_NET_H

#include <stddef.h>
#include <stdint.h>

enum nccl_result {
	NCCL_SUCCESS = 0,
	NCCL_CUDA_ERROR = 1,
	NCCL_SYSTEM_ERROR = 2,
	NCCL_INTERNAL_ERROR = 3,
	NCCL_INVALID_ARGUMENT = 4,
	NCCL_INVALID_USAGE = 5,
	NCCL_REMOTE_ERROR = 6, /* since 2.13 */
};

enum nccl_log_level {
	NCCL_LOG_NONE = 0,
	NCCL_LOG_VERSION = 1,
	NCCL_LOG_WARN = 2,
	NCCL_LOG_INFO = 3,
	NCCL_LOG_ABORT = 4,
	NCCL_LOG_TRACE = 5,
};

/* Subsystems of NCCL_DEBUG_SUBSYS that a network plugin speaks for. */
#define NCCL_SUBSYS_INIT 0x1ul
#define NCCL_SUBSYS_NET	 0x10ul
#define NCCL_SUBSYS_ENV	 0x80ul

typedef void (*nccl_logger)(enum nccl_log_level level, unsigned long subsys,
			    const char *file, int line, const char *fmt, ...);
typedef enum nccl_result (*nccl_profiler)(void **event, int type, void *parent,
					  int64_t plugin, void *data);

#define NCCL_HANDLE_SIZE  128
#define NCCL_MAX_REQUESTS 32 /* per comm; 8 before 2.19 */
#define NCCL_PTR_HOST	  0x1
#define NCCL_PTR_CUDA	  0x2
#define NCCL_PTR_DMABUF	  0x4
#define NCCL_DEVICE_HOST  0 /* no network offload into GPU code */
#define NCCL_ID_UNDEF	  (-1)
/* Sends above this never come through the v6..v8 interface. */
#define NCCL_MAX_SIZE_INT (1ul << 30)
/* The most that NCCL takes for max_p2p_bytes and max_coll_bytes. */
#define NCCL_MAX_SIZE (1ul << 40)

struct nccl_vprops_v9 { /* also v10, v11 */
	int ndevs;
	int devs[4];
};

struct nccl_vprops_v12 {
	int ndevs;
	int devs[8];
};

struct nccl_config_v10 { /* also v11, v12 */
	int traffic_class;
};

struct nccl_comm_attr_v11 {
	int32_t max_peers, min_peers;
	int32_t max_flows, min_flows;
};

struct nccl_attr_v11 { /* also v12 */
	struct nccl_comm_attr_v11 send, recv;
	uint32_t op, algo, proto;
};

/* Members that several versions have, in order. */
#define NCCL_PROPS_START \
	char *name;      \
	char *pci_path;  \
	uint64_t guid;   \
	int ptr_support;

#define NCCL_PROPS_LINK         \
	int speed; /* Mbit/s */ \
	int port;               \
	float latency; /* us */ \
	int max_comms;          \
	int max_recvs;

#define NCCL_PROPS_SINCE_V7 \
	NCCL_PROPS_LINK     \
	int device_type;    \
	int device_version;

#define NCCL_PROPS_SINCE_V9(VPROPS) \
	NCCL_PROPS_START            \
	int reg_is_global;          \
	int force_flush;            \
	NCCL_PROPS_SINCE_V7         \
	struct VPROPS vprops;       \
	size_t max_p2p_bytes;       \
	size_t max_coll_bytes;

struct nccl_props_v6 {
	NCCL_PROPS_START
	NCCL_PROPS_LINK
};

struct nccl_props_v7 {
	NCCL_PROPS_START
	NCCL_PROPS_SINCE_V7
};

struct nccl_props_v8 {
	NCCL_PROPS_START
	int reg_is_global;
	NCCL_PROPS_SINCE_V7
};

struct nccl_props_v9 { /* also v10 */
	NCCL_PROPS_SINCE_V9(nccl_vprops_v9)
};

struct nccl_props_v11 {
	NCCL_PROPS_SINCE_V9(nccl_vprops_v9)
	int max_multi_request;
};

struct nccl_props_v12 {
	NCCL_PROPS_SINCE_V9(nccl_vprops_v12)
	int max_multi_request;
	int16_t rail_id;
	int16_t plane_id;
};

/* Members that have the same type in all versions, in order. */
#define NCCL_NET_REG_DMABUF                                                 \
	enum nccl_result (*reg_dmabuf)(void *comm, void *data, size_t size, \
				       int type, uint64_t offset, int fd,   \
				       void **mr);                          \
	enum nccl_result (*dereg)(void *comm, void *mr);

#define NCCL_NET_END                                                           \
	enum nccl_result (*iflush)(void *comm, int n, void **data, int *sizes, \
				   void **mrs, void **request);                \
	enum nccl_result (*test)(void *request, int *done, int *sizes);        \
	enum nccl_result (*close_send)(void *comm);                            \
	enum nccl_result (*close_recv)(void *comm);                            \
	enum nccl_result (*close_listen)(void *comm);

#define NCCL_NET_ISEND_INT                                                    \
	enum nccl_result (*isend)(void *comm, void *data, int size, int tag,  \
				  void *mr, void **request);                  \
	enum nccl_result (*irecv)(void *comm, int n, void **data, int *sizes, \
				  int *tags, void **mrs, void **request);

#define NCCL_NET_ISEND_HANDLE                                           \
	enum nccl_result (*isend)(void *comm, void *data, size_t size,  \
				  int tag, void *mr, void *phandle,     \
				  void **request);                      \
	enum nccl_result (*irecv)(void *comm, int n, void **data,       \
				  size_t *sizes, int *tags, void **mrs, \
				  void **phandles, void **request);

#define NCCL_NET_REG_INT                                                    \
	enum nccl_result (*reg)(void *comm, void *data, int size, int type, \
				void **mr);

#define NCCL_NET_REG_SIZE                                                      \
	enum nccl_result (*reg)(void *comm, void *data, size_t size, int type, \
				void **mr);

/* v7 and later: network offload, which weft leaves alone. */
#define NCCL_NET_ACCEPT_OFFLOAD \
	enum nccl_result (*accept)(void *listener, void **comm, void **offload);
#define NCCL_NET_OFFLOAD                                                      \
	enum nccl_result (*get_device_mr)(void *comm, void *mr, void **dptr); \
	enum nccl_result (*irecv_consumed)(void *comm, int n, void *request);

struct nccl_net_v6 {
	const char *name;
	enum nccl_result (*init)(nccl_logger log);
	enum nccl_result (*devices)(int *n);
	enum nccl_result (*get_properties)(int dev, struct nccl_props_v6 *p);
	enum nccl_result (*listen)(int dev, void *handle, void **listener);
	enum nccl_result (*connect)(int dev, void *handle, void **comm);
	enum nccl_result (*accept)(void *listener, void **comm);
	NCCL_NET_REG_INT
	NCCL_NET_REG_DMABUF
	NCCL_NET_ISEND_INT
	NCCL_NET_END
};

#define NCCL_NET_START_V7(PROPS)                                            \
	const char *name;                                                   \
	enum nccl_result (*init)(nccl_logger log);                          \
	enum nccl_result (*devices)(int *n);                                \
	enum nccl_result (*get_properties)(int dev, struct PROPS *p);       \
	enum nccl_result (*listen)(int dev, void *handle, void **listener); \
	enum nccl_result (*connect)(int dev, void *handle, void **comm,     \
				    void **offload);                        \
	NCCL_NET_ACCEPT_OFFLOAD

struct nccl_net_v7 {
	NCCL_NET_START_V7(nccl_props_v7)
	NCCL_NET_REG_INT
	NCCL_NET_REG_DMABUF
	NCCL_NET_ISEND_INT
	NCCL_NET_END
	NCCL_NET_OFFLOAD
};

struct nccl_net_v8 {
	NCCL_NET_START_V7(nccl_props_v8)
	NCCL_NET_REG_SIZE
	NCCL_NET_REG_DMABUF
	NCCL_NET_ISEND_INT
	NCCL_NET_END
	NCCL_NET_OFFLOAD
};

struct nccl_net_v9 {
	NCCL_NET_START_V7(nccl_props_v9)
	NCCL_NET_REG_SIZE
	NCCL_NET_REG_DMABUF
	enum nccl_result (*isend)(void *comm, void *data, size_t size, int tag,
				  void *mr, void **request);
	enum nccl_result (*irecv)(void *comm, int n, void **data, size_t *sizes,
				  int *tags, void **mrs, void **request);
	NCCL_NET_END
	NCCL_NET_OFFLOAD
	enum nccl_result (*make_vdevice)(int *dev, void *vprops);
};

struct nccl_net_v10 {
	const char *name;
	enum nccl_result (*init)(nccl_logger log, nccl_profiler profiler);
	enum nccl_result (*devices)(int *n);
	enum nccl_result (*get_properties)(int dev, struct nccl_props_v9 *p);
	enum nccl_result (*listen)(int dev, void *handle, void **listener);
	enum nccl_result (*connect)(int dev, struct nccl_config_v10 *config,
				    void *handle, void **comm, void **offload);
	NCCL_NET_ACCEPT_OFFLOAD
	NCCL_NET_REG_SIZE
	NCCL_NET_REG_DMABUF
	NCCL_NET_ISEND_HANDLE
	NCCL_NET_END
	NCCL_NET_OFFLOAD
	enum nccl_result (*make_vdevice)(int *dev, void *vprops);
};

#define NCCL_NET_V11(PROPS)                                                \
	const char *name;                                                  \
	enum nccl_result (*init)(void **ctx, uint64_t comm_id,             \
				 struct nccl_config_v10 *config,           \
				 nccl_logger log, nccl_profiler profiler); \
	enum nccl_result (*devices)(int *n);                               \
	enum nccl_result (*get_properties)(int dev, struct PROPS *p);      \
	enum nccl_result (*listen)(void *ctx, int dev, void *handle,       \
				   void **listener);                       \
	enum nccl_result (*connect)(void *ctx, int dev, void *handle,      \
				    void **comm, void **offload);          \
	NCCL_NET_ACCEPT_OFFLOAD                                            \
	NCCL_NET_REG_SIZE                                                  \
	NCCL_NET_REG_DMABUF                                                \
	NCCL_NET_ISEND_HANDLE                                              \
	NCCL_NET_END                                                       \
	NCCL_NET_OFFLOAD                                                   \
	enum nccl_result (*make_vdevice)(int *dev, void *vprops);          \
	enum nccl_result (*finalize)(void *ctx);                           \
	enum nccl_result (*set_attr)(void *ctx, struct nccl_attr_v11 *attr);

struct nccl_net_v11 {
	NCCL_NET_V11(nccl_props_v11)
};

struct nccl_net_v12 {
	NCCL_NET_V11(nccl_props_v12)
};

#endif

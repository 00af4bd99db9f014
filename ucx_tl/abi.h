/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of UCX's internal ABI that weft uses, declared independently.
 *
 * UCX installs no headers for transports, and its structs change with almost
 * every minor release.  This header declares what is the same from 1.13
 * on; abi_table.c has the offsets that differ, one row per minor.  Sources:
 * src/uct/api/{uct,tl,uct_def}.h, src/uct/api/v2/uct_v2.h and
 * src/uct/base/uct_{component,md,iface}.h of each tag.  tests/host/abi.sh
 * compares all of it with a UCX source tree.
 */
#ifndef WEFT_UCX_TL_ABI_H
#define WEFT_UCX_TL_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "settings/settings.h"

/* ucs_status_t: a packed enum, so one signed byte, also when returned. */
enum weft_ucs_status {
	WEFT_UCS_OK = 0,
	WEFT_UCS_INPROGRESS = 1,
	WEFT_UCS_NO_RESOURCE = -2,
	WEFT_UCS_IO_ERROR = -3,
	WEFT_UCS_NO_MEMORY = -4,
	WEFT_UCS_INVALID_PARAM = -5,
	WEFT_UCS_UNREACHABLE = -6,
	WEFT_UCS_INVALID_ADDR = -7,
	WEFT_UCS_NO_DEVICE = -14,
	WEFT_UCS_BUSY = -15,
	WEFT_UCS_CANCELED = -16,
	WEFT_UCS_TIMED_OUT = -20,
	WEFT_UCS_EXCEEDS_LIMIT = -21,
	WEFT_UCS_UNSUPPORTED = -22,
	WEFT_UCS_REJECTED = -23,
	WEFT_UCS_NOT_CONNECTED = -24,
	WEFT_UCS_CONNECTION_RESET = -25,
	WEFT_UCS_ENDPOINT_TIMEOUT = -80,
} __attribute__((packed));
_Static_assert(sizeof(enum weft_ucs_status) == 1, "ucs_status_t");

typedef enum weft_ucs_status weft_ucs_status_fn(void);

struct weft_ucs_link { /* ucs_list_link_t */
	struct weft_ucs_link *prev, *next;
};

struct weft_uct_iov { /* uct_iov_t */
	void *buffer;
	size_t length;
	void *memh;
	size_t stride;
	unsigned int count;
};
_Static_assert(sizeof(struct weft_uct_iov) == 40, "uct_iov_t");

struct weft_uct_completion { /* uct_completion_t */
	void (*func)(struct weft_uct_completion *self);
	int count;
	enum weft_ucs_status status;
};
_Static_assert(offsetof(struct weft_uct_completion, status) == 12,
	       "uct_completion_t");

#define WEFT_UCT_PENDING_PRIV 40
struct weft_uct_pending { /* uct_pending_req_t */
	enum weft_ucs_status (*func)(struct weft_uct_pending *self);
	char priv[WEFT_UCT_PENDING_PRIV]; /* for the transport while queued */
};
_Static_assert(sizeof(struct weft_uct_pending) == 48, "uct_pending_req_t");

struct weft_ucs_linear { /* ucs_linear_func_t: c + m * x */
	double c, m;
};

struct weft_uct_bandwidth { /* uct_ppn_bandwidth_t, bytes/s */
	double dedicated, shared;
};

struct weft_uct_rma_cap {
	size_t max_short, max_bcopy, min_zcopy, max_zcopy;
	size_t opt_zcopy_align, align_mtu, max_iov;
};

struct weft_uct_iface_attr { /* uct_iface_attr_t */
	struct weft_uct_rma_cap put, get;
	struct {
		size_t max_short, max_bcopy, min_zcopy, max_zcopy;
		size_t opt_zcopy_align, align_mtu, max_hdr, max_iov;
	} am;
	size_t tag[11];
	uint64_t atomics[4];
	uint64_t flags, event_flags;
	size_t device_addr_len, iface_addr_len, ep_addr_len, max_conn_priv;
	struct sockaddr_storage listen_sockaddr;
	double overhead; /* s */
	struct weft_uct_bandwidth bandwidth;
	struct weft_ucs_linear latency; /* s */
	uint8_t priority;
	size_t max_num_eps;
	unsigned int dev_num_paths;
	uint8_t ctl_device; /* >= 1.22, padding before */
};
_Static_assert(sizeof(struct weft_uct_iface_attr) == 536, "uct_iface_attr_t");
_Static_assert(offsetof(struct weft_uct_iface_attr, ctl_device) == 532,
	       "uct_iface_attr_t");

/*
 * Slots of uct_iface_ops_t that weft implements; the others return
 * UCS_ERR_UNSUPPORTED.
 */
enum weft_uct_slot {
	WEFT_OP_PUT_ZCOPY = 2,
	WEFT_OP_GET_ZCOPY = 5,
	WEFT_OP_AM_SHORT = 6,
	WEFT_OP_AM_SHORT_IOV = 7,
	WEFT_OP_AM_BCOPY = 8,
	WEFT_OP_AM_ZCOPY = 9,
	WEFT_OP_PENDING_ADD = 24,
	WEFT_OP_PENDING_PURGE = 25,
	WEFT_OP_EP_FLUSH = 26,
	WEFT_OP_EP_FENCE = 27,
	WEFT_OP_EP_CHECK = 28,
	WEFT_OP_EP_CREATE = 29,
	WEFT_OP_EP_DESTROY = 33,
	WEFT_OP_IFACE_FLUSH = 38,
	WEFT_OP_IFACE_FENCE = 39,
	WEFT_OP_PROGRESS_ENABLE = 40,
	WEFT_OP_PROGRESS_DISABLE = 41,
	WEFT_OP_PROGRESS = 42,
	WEFT_OP_EVENT_FD = 43,
	WEFT_OP_EVENT_ARM = 44,
	WEFT_OP_CLOSE = 45,
	WEFT_OP_QUERY = 46,
	WEFT_OP_DEVICE_ADDRESS = 47,
	WEFT_OP_ADDRESS = 48,
	WEFT_OP_IS_REACHABLE = 49,
	WEFT_OP_COUNT = 50,
};

typedef void (*weft_uct_fn)(void);

struct weft_uct_am_handler {
	enum weft_ucs_status (*cb)(void *arg, void *data, size_t length,
				   unsigned int flags);
	void *arg;
	uint32_t flags;
};

#define WEFT_UCT_AM_IDS 32
/*
 * uct_base_iface_t up to its active message handlers.  UCX's private fields
 * follow: about 200 bytes, a few more with --enable-stats.  @rest is larger.
 */
struct weft_uct_base_iface {
	weft_uct_fn ops[WEFT_OP_COUNT];
	weft_uct_fn *internal_ops;
	void *md, *worker;
	struct weft_uct_am_handler am[WEFT_UCT_AM_IDS];
	char rest[2048 - 424 - WEFT_UCT_AM_IDS * 24];
};
_Static_assert(offsetof(struct weft_uct_base_iface, internal_ops) == 400,
	       "uct_iface_ops_t");
_Static_assert(offsetof(struct weft_uct_base_iface, am) == 424,
	       "uct_base_iface_t");
_Static_assert(sizeof(struct weft_uct_am_handler) == 24, "uct_am_handler_t");

struct weft_uct_iface_params { /* uct_iface_params_t, first fields */
	uint64_t field_mask;
	uint64_t cpu_mask[16];
	uint64_t open_mode;
	union {
		struct {
			const char *tl_name, *dev_name;
		} device;
		char room[40];
	} mode;
	void *stats_root;
	void *not_used[11];
	size_t am_alignment, am_align_offset;
};
#define WEFT_UCT_OPEN_MODE_DEVICE      1ull
#define WEFT_UCT_PARAM_STATS_ROOT      (1ull << 4)
#define WEFT_UCT_PARAM_AM_ALIGNMENT    (1ull << 16)
#define WEFT_UCT_PARAM_AM_ALIGN_OFFSET (1ull << 17)
_Static_assert(offsetof(struct weft_uct_iface_params, stats_root) == 184 &&
		       offsetof(struct weft_uct_iface_params, am_alignment) ==
			       280,
	       "uct_iface_params_t");

struct weft_uct_ep_params { /* uct_ep_params_t, first fields */
	uint64_t field_mask;
	void *iface;
	void *user_data;
	const uint8_t *dev_addr;
	const void *iface_addr;
};
#define WEFT_UCT_EP_HAS_DEV_ADDR   (1ull << 2)
#define WEFT_UCT_EP_HAS_IFACE_ADDR (1ull << 3)

/*
 * Common start of uct_iface_is_reachable_params_t (from 1.15 on) and
 * uct_ep_is_connected_params_t (from 1.16 on), with the same field mask.
 */
struct weft_uct_peer_params {
	uint64_t field_mask;
	const uint8_t *device_addr;
	const void *iface_addr;
	char *info_string; /* from here on is_reachable only */
	size_t info_string_length;
	uint32_t scope;
};
#define WEFT_UCT_PEER_HAS_DEV_ADDR   (1ull << 0)
#define WEFT_UCT_PEER_HAS_IFACE_ADDR (1ull << 1)
#define WEFT_UCT_PEER_HAS_INFO	     (1ull << 2)
#define WEFT_UCT_PEER_HAS_INFO_LEN   (1ull << 3)
#define WEFT_UCT_PEER_HAS_SCOPE	     (1ull << 4)
#define WEFT_UCT_SCOPE_DEVICE	     0 /* UCT_IFACE_REACHABILITY_SCOPE_DEVICE */

struct weft_uct_md { /* uct_md_t */
	weft_uct_fn *ops;
	void *component;
};

struct weft_uct_dereg_params { /* uct_md_mem_dereg_params_t */
	uint64_t field_mask;
	uint32_t flags;
	void *memh;
	struct weft_uct_completion *comp;
};
#define WEFT_UCT_DEREG_HAS_MEMH	  (1ull << 0)
#define WEFT_UCT_DEREG_HAS_FLAGS  (1ull << 1)
#define WEFT_UCT_DEREG_HAS_COMP	  (1ull << 2)
#define WEFT_UCT_DEREG_INVALIDATE 1u

struct weft_uct_tl_device { /* uct_tl_device_resource_t */
	char name[32];
	uint32_t type;
	uint8_t sys_device;
};
#define WEFT_UCT_DEVICE_NET	    0
#define WEFT_UCT_DEVICE_SHM	    1
#define WEFT_UCS_SYS_DEVICE_UNKNOWN 255
_Static_assert(sizeof(struct weft_uct_tl_device) == 40,
	       "uct_tl_device_resource_t");

struct weft_uct_component_attr { /* uct_component_attr_t */
	uint64_t field_mask;
	char name[16];
	unsigned int md_resource_count;
	char room[100];
};
#define WEFT_UCT_COMPONENT_MD_COUNT (1ull << 1)
_Static_assert(offsetof(struct weft_uct_component_attr, md_resource_count) ==
		       24,
	       "uct_component_attr_t");

struct weft_uct_md_resource { /* uct_md_resource_desc_t */
	char name[16];
};

struct weft_ucs_config_entry { /* ucs_config_global_list_entry_t */
	const char *name, *prefix;
	void *table;
	size_t size;
	struct weft_ucs_link list; /* a byte of flags follows from 1.15 on */
};
_Static_assert(sizeof(struct weft_ucs_config_entry) == 48,
	       "ucs_config_global_list_entry_t");
/* Sizes of what uct_md_config_table and uct_iface_config_table fill. */
#define WEFT_UCT_MD_CONFIG_SIZE	   64 /* 1 byte is used */
#define WEFT_UCT_IFACE_CONFIG_SIZE 32

/* uct_iface_attr_t.cap.flags and event_flags, the same in every minor. */
#define WEFT_UCT_IFACE_AM_SHORT	    (1ull << 0)
#define WEFT_UCT_IFACE_AM_BCOPY	    (1ull << 1)
#define WEFT_UCT_IFACE_AM_ZCOPY	    (1ull << 2)
#define WEFT_UCT_IFACE_PENDING	    (1ull << 3)
#define WEFT_UCT_IFACE_PUT_ZCOPY    (1ull << 6)
#define WEFT_UCT_IFACE_GET_ZCOPY    (1ull << 10)
#define WEFT_UCT_IFACE_ERR_PEER	    (1ull << 38)
#define WEFT_UCT_IFACE_EP_CHECK	    (1ull << 39)
#define WEFT_UCT_IFACE_TO_IFACE	    (1ull << 40)
#define WEFT_UCT_IFACE_CB_SYNC	    (1ull << 44)
#define WEFT_UCT_IFACE_EP_KEEPALIVE (1ull << 46)
#define WEFT_UCT_IFACE_INTER_NODE   (1ull << 54) /* >= 1.18 */
#define WEFT_UCT_EVENT_SEND_COMP    (1ull << 0)
#define WEFT_UCT_EVENT_RECV	    (1ull << 1)
#define WEFT_UCT_EVENT_FD	    (1ull << 3)

/* ucs_memory_type_t: the values that are the same in every minor */
enum weft_ucs_memory {
	WEFT_UCS_MEMORY_HOST,
	WEFT_UCS_MEMORY_CUDA,
};

/* uct_md_attr_t.flags */
#define WEFT_UCT_MD_REG		   (1ull << 1)
#define WEFT_UCT_MD_NEED_MEMH	   (1ull << 2)
#define WEFT_UCT_MD_NEED_RKEY	   (1ull << 3)
#define WEFT_UCT_MD_INVALIDATE	   (1ull << 8)
#define WEFT_UCT_MD_INVALIDATE_RMA (1ull << 11) /* >= 1.15 */

#define WEFT_UCT_FLUSH_CANCEL 1u /* UCT_FLUSH_FLAG_CANCEL */

/* uct_ep_operation_t: the values that estimate_perf gets */
enum weft_uct_ep_op {
	WEFT_EP_OP_AM_SHORT,
	WEFT_EP_OP_AM_BCOPY,
	WEFT_EP_OP_AM_ZCOPY,
	WEFT_EP_OP_PUT_SHORT,
	WEFT_EP_OP_PUT_BCOPY,
	WEFT_EP_OP_PUT_ZCOPY,
	WEFT_EP_OP_GET_SHORT,
	WEFT_EP_OP_GET_BCOPY,
	WEFT_EP_OP_GET_ZCOPY,
};

struct weft_uct_perf_attr { /* uct_perf_attr_t, first fields */
	uint64_t field_mask;
	uint32_t operation;
	uint32_t memory[2];
	uint8_t sys_device[2];
	double send_pre_overhead, send_post_overhead, recv_overhead;
	struct weft_uct_bandwidth bandwidth;
};
#define WEFT_UCT_PERF_OPERATION	     (1ull << 0)
#define WEFT_UCT_PERF_LOCAL_MEMORY   (1ull << 1) /* memory[0] */
#define WEFT_UCT_PERF_REMOTE_MEMORY  (1ull << 2) /* memory[1] */
#define WEFT_UCT_PERF_PRE	     (1ull << 5)
#define WEFT_UCT_PERF_BANDWIDTH	     (1ull << 8)
#define WEFT_UCT_PERF_PATH_BANDWIDTH (1ull << 9) /* >= 1.19 */
_Static_assert(offsetof(struct weft_uct_perf_attr, send_pre_overhead) == 24,
	       "uct_perf_attr_t");
_Static_assert(offsetof(struct weft_uct_perf_attr, bandwidth) == 48,
	       "uct_perf_attr_t");

/* Layouts of uct_iface_internal_ops_t. */
enum weft_uct_internal_shape {
	WEFT_INTERNAL_PLAIN, /* 1.13-1.19; 1.21, with more slots */
	WEFT_INTERNAL_20,    /* query_v2 first, mem_element_pack 4th */
	WEFT_INTERNAL_22,    /* query_v2 first, no mem_element_pack */
};
#define WEFT_INTERNAL_MAX 12
/* Slots of uct_md_ops_t: those of 1.23 and of 1.22 after 1.22.0 */
#define WEFT_UCT_MD_OPS 13

/* What differs between minors.  Offsets in bytes; 0: no such field. */
struct weft_uct_abi {
	uint8_t minor;
	uint8_t config_entry;	 /* sizeof ucs_config_global_list_entry */
	bool rkey_compare;	 /* uct_component_t has it */
	bool mkey_pack_address;	 /* mkey_pack(md, memh, addr, len, ..) */
	bool rkey_unpack_params; /* rkey_unpack(comp, buf, params, ..) */
	enum weft_uct_internal_shape internal;
	struct { /* uct_md_attr_t or _v2_t, which md_ops.query fills */
		uint16_t size;
		bool clear; /* 1.13: UCX does not zero it */
		uint8_t max_reg, flags, reg_mem_types;
		uint8_t cache_mem_types; /* >= 1.14 */
		uint8_t access_mem_types;
		uint8_t reg_cost, rkey_size, local_cpus;
		uint16_t reg_alignment;
	} md_attr;
	struct {
		uint8_t path_bandwidth; /* >= 1.19 */
	} perf;
	uint16_t component_size, tl_size;
};
#define WEFT_UCT_COMPONENT_MAX 232
#define WEFT_UCT_TL_MAX	       104
#define WEFT_UCS_CPU_SET_SIZE  128 /* sizeof ucs_cpu_set_t */

/* The row of 1.@minor, static; NULL: weft does not support it. */
const struct weft_uct_abi *weft_uct_abi_find(unsigned int minor);
/*
 * The minor of a libuct, from the symbols it exports; @find looks one up,
 * NULL: not exported.  Exact for those of abi_table.c.  A later one yields the
 * last; compare with ucp_get_version().
 */
unsigned int
weft_uct_abi_fingerprint(void *(*find)(void *arg, const char *name), void *arg);

#endif

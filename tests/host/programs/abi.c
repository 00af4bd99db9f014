/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Built by tests/tools/ucx-facts.sh against the source tree of one UCX release
 * (UCX_MINOR): compares UCX's own structs with weft's declarations and its
 * table row, or with the newest row where there is none.
 */
#include <stdio.h>
#include <uct/api/uct.h>
#include <uct/base/uct_component.h>
#include <uct/base/uct_iface.h>
#include <uct/base/uct_md.h>
#include <uct/api/v2/uct_v2.h>
#include "ucx_tl/abi.h"

static int failed;

static void same(const char *what, unsigned long long ucx,
		 unsigned long long weft)
{
	if (ucx == weft)
		return;
	printf("%s: %llu in UCX, %llu in weft\n", what, ucx, weft);
	failed = 1;
}
#define SAME(ucx, weft) \
	same(#ucx, (unsigned long long)(ucx), (unsigned long long)(weft))
#define SIZE(a, b)	 SAME(sizeof(a), sizeof(b))
#define AT(a, am, b, bm) SAME(offsetof(a, am), offsetof(b, bm))

#define OP(member) ((long)(offsetof(uct_iface_ops_t, member) / sizeof(void *)))

static void interface_structs(void)
{
	SIZE(ucs_status_t, enum weft_ucs_status);
	SIZE(uct_iov_t, struct weft_uct_iov);
	SIZE(uct_completion_t, struct weft_uct_completion);
	SIZE(uct_pending_req_t, struct weft_uct_pending);
	SIZE(uct_iface_attr_t, struct weft_uct_iface_attr);
	AT(uct_iface_attr_t, cap.flags, struct weft_uct_iface_attr, flags);
	AT(uct_iface_attr_t, device_addr_len, struct weft_uct_iface_attr,
	   device_addr_len);
	AT(uct_iface_attr_t, overhead, struct weft_uct_iface_attr, overhead);
	AT(uct_iface_attr_t, latency, struct weft_uct_iface_attr, latency);
	AT(uct_iface_attr_t, dev_num_paths, struct weft_uct_iface_attr,
	   dev_num_paths);
	SAME(sizeof(uct_iface_ops_t), WEFT_OP_COUNT * sizeof(void *));
	SAME(OP(ep_put_zcopy), WEFT_OP_PUT_ZCOPY);
	SAME(OP(ep_get_zcopy), WEFT_OP_GET_ZCOPY);
	SAME(OP(ep_am_short), WEFT_OP_AM_SHORT);
	SAME(OP(ep_am_zcopy), WEFT_OP_AM_ZCOPY);
	SAME(OP(ep_pending_add), WEFT_OP_PENDING_ADD);
	SAME(OP(ep_flush), WEFT_OP_EP_FLUSH);
	SAME(OP(ep_check), WEFT_OP_EP_CHECK);
	SAME(OP(ep_create), WEFT_OP_EP_CREATE);
	SAME(OP(ep_destroy), WEFT_OP_EP_DESTROY);
	SAME(OP(iface_flush), WEFT_OP_IFACE_FLUSH);
	SAME(OP(iface_progress), WEFT_OP_PROGRESS);
	SAME(OP(iface_event_arm), WEFT_OP_EVENT_ARM);
	SAME(OP(iface_close), WEFT_OP_CLOSE);
	SAME(OP(iface_is_reachable), WEFT_OP_IS_REACHABLE);
	AT(uct_base_iface_t, internal_ops, struct weft_uct_base_iface,
	   internal_ops);
	AT(uct_base_iface_t, worker, struct weft_uct_base_iface, worker);
	AT(uct_base_iface_t, am, struct weft_uct_base_iface, am);
	SIZE(uct_am_handler_t, struct weft_uct_am_handler);
	SAME(UCT_AM_ID_MAX, WEFT_UCT_AM_IDS);
	SAME(sizeof(uct_base_iface_t) + 128 <=
		     sizeof(struct weft_uct_base_iface),
	     1);
	AT(uct_iface_params_t, mode.device.dev_name,
	   struct weft_uct_iface_params, mode.device.dev_name);
	AT(uct_iface_params_t, stats_root, struct weft_uct_iface_params,
	   stats_root);
	AT(uct_iface_params_t, am_alignment, struct weft_uct_iface_params,
	   am_alignment);
	AT(uct_iface_params_t, am_align_offset, struct weft_uct_iface_params,
	   am_align_offset);
	SAME(UCT_IFACE_PARAM_FIELD_STATS_ROOT, WEFT_UCT_PARAM_STATS_ROOT);
	SAME(UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT, WEFT_UCT_PARAM_AM_ALIGNMENT);
	SAME(UCT_IFACE_PARAM_FIELD_AM_ALIGN_OFFSET,
	     WEFT_UCT_PARAM_AM_ALIGN_OFFSET);
	AT(uct_ep_params_t, dev_addr, struct weft_uct_ep_params, dev_addr);
	AT(uct_ep_params_t, iface_addr, struct weft_uct_ep_params, iface_addr);
	SAME(UCT_EP_PARAM_FIELD_DEV_ADDR, WEFT_UCT_EP_HAS_DEV_ADDR);
	SAME(UCT_EP_PARAM_FIELD_IFACE_ADDR, WEFT_UCT_EP_HAS_IFACE_ADDR);
	SAME(UCT_FLUSH_FLAG_CANCEL, WEFT_UCT_FLUSH_CANCEL);
	SAME(sizeof(struct uct_iface_config), WEFT_UCT_IFACE_CONFIG_SIZE);
	SAME(sizeof(struct uct_md_config) <= WEFT_UCT_MD_CONFIG_SIZE, 1);
}

static void flags(void)
{
	SAME(UCT_IFACE_FLAG_AM_ZCOPY, WEFT_UCT_IFACE_AM_ZCOPY);
	SAME(UCT_IFACE_FLAG_PENDING, WEFT_UCT_IFACE_PENDING);
	SAME(UCT_IFACE_FLAG_PUT_ZCOPY, WEFT_UCT_IFACE_PUT_ZCOPY);
	SAME(UCT_IFACE_FLAG_GET_ZCOPY, WEFT_UCT_IFACE_GET_ZCOPY);
	SAME(UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE, WEFT_UCT_IFACE_ERR_PEER);
	SAME(UCT_IFACE_FLAG_EP_CHECK, WEFT_UCT_IFACE_EP_CHECK);
	SAME(UCT_IFACE_FLAG_CONNECT_TO_IFACE, WEFT_UCT_IFACE_TO_IFACE);
	SAME(UCT_IFACE_FLAG_CB_SYNC, WEFT_UCT_IFACE_CB_SYNC);
	SAME(UCT_IFACE_FLAG_EP_KEEPALIVE, WEFT_UCT_IFACE_EP_KEEPALIVE);
	SAME(UCT_IFACE_FLAG_EVENT_FD, WEFT_UCT_EVENT_FD);
	SAME(UCT_MD_FLAG_REG, WEFT_UCT_MD_REG);
	SAME(UCT_MD_FLAG_NEED_MEMH, WEFT_UCT_MD_NEED_MEMH);
	SAME(UCT_MD_FLAG_NEED_RKEY, WEFT_UCT_MD_NEED_RKEY);
	SAME(UCT_MD_FLAG_INVALIDATE, WEFT_UCT_MD_INVALIDATE);
#if UCX_MINOR >= 15
	SAME(UCT_MD_FLAG_INVALIDATE_RMA, WEFT_UCT_MD_INVALIDATE_RMA);
#endif
#if UCX_MINOR >= 18
	SAME(UCT_IFACE_FLAG_INTER_NODE, WEFT_UCT_IFACE_INTER_NODE);
#endif
	SAME(UCT_EP_OP_AM_SHORT, WEFT_EP_OP_AM_SHORT);
	SAME(UCT_EP_OP_PUT_ZCOPY, WEFT_EP_OP_PUT_ZCOPY);
	SAME(UCT_EP_OP_GET_ZCOPY, WEFT_EP_OP_GET_ZCOPY);
	SAME((unsigned char)UCS_ERR_NO_RESOURCE,
	     (unsigned char)WEFT_UCS_NO_RESOURCE);
	SAME((unsigned char)UCS_ERR_BUSY, (unsigned char)WEFT_UCS_BUSY);
	SAME((unsigned char)UCS_ERR_CONNECTION_RESET,
	     (unsigned char)WEFT_UCS_CONNECTION_RESET);
	SAME((unsigned char)UCS_ERR_ENDPOINT_TIMEOUT,
	     (unsigned char)WEFT_UCS_ENDPOINT_TIMEOUT);
}

/* What a row of the table says. */
static void row(const struct weft_uct_abi *abi)
{
	SAME(sizeof(struct uct_component), abi->component_size);
	SAME(sizeof(uct_tl_t), abi->tl_size);
	SAME(sizeof(ucs_config_global_list_entry_t), abi->config_entry);
	AT(
		uct_tl_t, iface_open,
		struct {
			char a[24];
			void *p;
		},
		p);
	SAME(offsetof(uct_component_attr_t, md_resource_count),
	     offsetof(struct weft_uct_component_attr, md_resource_count));
	SAME((sizeof(uct_component_attr_t) >
	      sizeof(struct weft_uct_component_attr)),
	     0);
	SAME(UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT,
	     WEFT_UCT_COMPONENT_MD_COUNT);
	SAME(offsetof(struct uct_component, tl_list),
	     16 + 48 + 8 * abi->rkey_compare + 2 * abi->config_entry);
#if UCX_MINOR == 13
	SAME(sizeof(uct_md_attr_t), abi->md_attr.size);
#define MD(member) offsetof(uct_md_attr_t, cap.member)
	SAME(offsetof(uct_md_attr_t, rkey_packed_size), abi->md_attr.rkey_size);
	SAME(offsetof(uct_md_attr_t, local_cpus), abi->md_attr.local_cpus);
#else
	SAME(sizeof(uct_md_attr_v2_t), abi->md_attr.size);
#define MD(member) offsetof(uct_md_attr_v2_t, member)
	SAME(offsetof(uct_md_attr_v2_t, rkey_packed_size),
	     abi->md_attr.rkey_size);
	SAME(offsetof(uct_md_attr_v2_t, local_cpus), abi->md_attr.local_cpus);
#endif
	SAME(MD(max_reg), abi->md_attr.max_reg);
	SAME(MD(flags), abi->md_attr.flags);
	SAME(MD(reg_mem_types), abi->md_attr.reg_mem_types);
	SAME(MD(access_mem_types), abi->md_attr.access_mem_types);
#if UCX_MINOR >= 14
	SAME(MD(cache_mem_types), abi->md_attr.cache_mem_types);
#endif
	SAME(UCS_MEMORY_TYPE_HOST, WEFT_UCS_MEMORY_HOST);
	SAME(UCS_MEMORY_TYPE_CUDA, WEFT_UCS_MEMORY_CUDA);
	SAME(UCT_DEVICE_TYPE_SHM, WEFT_UCT_DEVICE_SHM);
#if UCX_MINOR >= 16
	SAME(MD(reg_alignment), abi->md_attr.reg_alignment);
#else
	same("reg_alignment", 0, abi->md_attr.reg_alignment);
#endif
	SAME(sizeof(ucs_cpu_set_t), WEFT_UCS_CPU_SET_SIZE);
	AT(uct_perf_attr_t, send_pre_overhead, struct weft_uct_perf_attr,
	   send_pre_overhead);
	AT(uct_perf_attr_t, bandwidth, struct weft_uct_perf_attr, bandwidth);
	AT(uct_perf_attr_t, local_memory_type, struct weft_uct_perf_attr,
	   memory);
	same("remote_memory_type",
	     offsetof(uct_perf_attr_t, remote_memory_type),
	     offsetof(struct weft_uct_perf_attr, memory) + 4);
	SAME(UCT_PERF_ATTR_FIELD_LOCAL_MEMORY_TYPE, WEFT_UCT_PERF_LOCAL_MEMORY);
	SAME(UCT_PERF_ATTR_FIELD_REMOTE_MEMORY_TYPE,
	     WEFT_UCT_PERF_REMOTE_MEMORY);
#if UCX_MINOR >= 19
	SAME(offsetof(uct_perf_attr_t, path_bandwidth),
	     abi->perf.path_bandwidth);
	SAME(UCT_PERF_ATTR_FIELD_PATH_BANDWIDTH, WEFT_UCT_PERF_PATH_BANDWIDTH);
#else
	same("path_bandwidth", 0, abi->perf.path_bandwidth);
#endif
	SAME(offsetof(uct_md_mem_dereg_params_t, comp),
	     offsetof(struct weft_uct_dereg_params, comp));
	SAME(offsetof(uct_md_ops_t, mkey_pack), 8 * sizeof(void *));
	SAME(sizeof(uct_md_ops_t) <= WEFT_UCT_MD_OPS * sizeof(void *), 1);
}

#define INTERNAL(member) \
	(offsetof(uct_iface_internal_ops_t, member) / sizeof(void *))

static void internal(const struct weft_uct_abi *abi)
{
	size_t shift = abi->internal != WEFT_INTERNAL_PLAIN;
	size_t later = shift + (abi->internal == WEFT_INTERNAL_20);

	SAME(sizeof(uct_iface_internal_ops_t) <=
		     WEFT_INTERNAL_MAX * sizeof(void *),
	     1);
	SAME(INTERNAL(iface_estimate_perf), shift);
	SAME(INTERNAL(iface_vfs_refresh), shift + 1);
	SAME(INTERNAL(ep_query), later + 2);
	SAME(INTERNAL(ep_invalidate), later + 3);
#if UCX_MINOR >= 14
	SAME(INTERNAL(ep_connect_to_ep_v2), later + 4);
#endif
#if UCX_MINOR >= 15
	SAME(INTERNAL(iface_is_reachable_v2), later + 5);
	AT(uct_iface_is_reachable_params_t, iface_addr,
	   struct weft_uct_peer_params, iface_addr);
	AT(uct_iface_is_reachable_params_t, scope, struct weft_uct_peer_params,
	   scope);
	SAME(UCT_IFACE_IS_REACHABLE_FIELD_SCOPE, WEFT_UCT_PEER_HAS_SCOPE);
#endif
#if UCX_MINOR >= 16
	SAME(INTERNAL(ep_is_connected), later + 6);
	AT(uct_ep_is_connected_params_t, iface_addr,
	   struct weft_uct_peer_params, iface_addr);
	SAME(UCT_EP_IS_CONNECTED_FIELD_IFACE_ADDR,
	     WEFT_UCT_PEER_HAS_IFACE_ADDR);
#endif
}

/* Is @type a pointer to such a function? */
#define IS(type, ret, ...) \
	__builtin_types_compatible_p(type, ret (*)(__VA_ARGS__))
#define SLOT(type, member)    __typeof__(((type *)0)->member)
#define PROTO(type, ret, ...) same(#type, IS(type, ret, __VA_ARGS__), 1)
#define MKEY_PACK_16                                                           \
	IS(uct_md_mkey_pack_func_t, ucs_status_t, uct_md_h, uct_mem_h, void *, \
	   size_t, const uct_md_mkey_pack_params_t *, void *)
#if UCX_MINOR >= 19
#define RKEY_UNPACK_19                                                        \
	IS(uct_component_rkey_unpack_func_t, ucs_status_t, uct_component_t *, \
	   const void *, const uct_rkey_unpack_params_t *, uct_rkey_t *,      \
	   void **)
#else
#define RKEY_UNPACK_19 false
#endif

/* What UCX calls of weft, and weft of UCX. */
static void prototypes(const struct weft_uct_abi *abi)
{
	const bool pack_13 =
		IS(uct_md_mkey_pack_func_t, ucs_status_t, uct_md_h, uct_mem_h,
		   const uct_md_mkey_pack_params_t *, void *);
	const bool unpack_13 =
		IS(uct_component_rkey_unpack_func_t, ucs_status_t,
		   uct_component_t *, const void *, uct_rkey_t *, void **);

	same("mkey_pack with an address", MKEY_PACK_16, abi->mkey_pack_address);
	same("mkey_pack as one of two", MKEY_PACK_16 || pack_13, 1);
	same("rkey_unpack with parameters", RKEY_UNPACK_19,
	     abi->rkey_unpack_params);
	same("rkey_unpack as one of two", RKEY_UNPACK_19 || unpack_13, 1);
	PROTO(uct_md_close_func_t, void, uct_md_h);
#if UCX_MINOR >= 14
	PROTO(uct_md_query_func_t, ucs_status_t, uct_md_h, uct_md_attr_v2_t *);
	PROTO(uct_md_mem_reg_func_t, ucs_status_t, uct_md_h, void *, size_t,
	      const uct_md_mem_reg_params_t *, uct_mem_h *);
#endif
	PROTO(uct_md_mem_dereg_func_t, ucs_status_t, uct_md_h,
	      const uct_md_mem_dereg_params_t *);
	PROTO(uct_component_query_md_resources_func_t, ucs_status_t,
	      uct_component_t *, uct_md_resource_desc_t **, unsigned *);
	PROTO(uct_component_md_open_func_t, ucs_status_t, uct_component_t *,
	      const char *, const uct_md_config_t *, uct_md_h *);
	PROTO(uct_component_rkey_release_func_t, ucs_status_t,
	      uct_component_t *, uct_rkey_t, void *);
#if UCX_MINOR >= 16
	PROTO(uct_component_rkey_compare_func_t, ucs_status_t,
	      uct_component_t *, uct_rkey_t, uct_rkey_t,
	      const uct_rkey_compare_params_t *, int *);
	PROTO(uct_ep_is_connected_func_t, int, uct_ep_h,
	      const uct_ep_is_connected_params_t *);
#endif
#if UCX_MINOR >= 15
	PROTO(uct_iface_is_reachable_v2_func_t, int, const uct_iface_h,
	      const uct_iface_is_reachable_params_t *);
#endif
	PROTO(SLOT(uct_tl_t, query_devices), ucs_status_t, uct_md_h,
	      uct_tl_device_resource_t **, unsigned *);
	PROTO(SLOT(uct_tl_t, iface_open), ucs_status_t, uct_md_h, uct_worker_h,
	      const uct_iface_params_t *, const uct_iface_config_t *,
	      uct_iface_h *);
	PROTO(uct_iface_estimate_perf_func_t, ucs_status_t, uct_iface_h,
	      uct_perf_attr_t *);
	PROTO(uct_ep_put_zcopy_func_t, ucs_status_t, uct_ep_h,
	      const uct_iov_t *, size_t, uint64_t, uct_rkey_t,
	      uct_completion_t *);
	PROTO(uct_ep_am_zcopy_func_t, ucs_status_t, uct_ep_h, uint8_t,
	      const void *, unsigned, const uct_iov_t *, size_t, unsigned,
	      uct_completion_t *);
	PROTO(uct_ep_am_bcopy_func_t, ssize_t, uct_ep_h, uint8_t,
	      uct_pack_callback_t, void *, unsigned);
	PROTO(uct_ep_am_short_iov_func_t, ucs_status_t, uct_ep_h, uint8_t,
	      const uct_iov_t *, size_t);
	PROTO(uct_ep_pending_add_func_t, ucs_status_t, uct_ep_h,
	      uct_pending_req_t *, unsigned);
	PROTO(uct_ep_flush_func_t, ucs_status_t, uct_ep_h, unsigned,
	      uct_completion_t *);
	PROTO(uct_ep_create_func_t, ucs_status_t, const uct_ep_params_t *,
	      uct_ep_h *);
	PROTO(uct_iface_event_arm_func_t, ucs_status_t, uct_iface_h, unsigned);
	PROTO(__typeof__(&uct_component_register), void, uct_component_t *);
	PROTO(__typeof__(&uct_tl_register), void, uct_component_t *,
	      uct_tl_t *);
	PROTO(__typeof__(&uct_iface_handle_ep_err), ucs_status_t, uct_iface_h,
	      uct_ep_h, ucs_status_t);
}

static const char *internal_shape(void)
{
	const size_t shift = INTERNAL(iface_estimate_perf);

	if (shift == 0 && INTERNAL(ep_query) == 2)
		return "WEFT_INTERNAL_PLAIN";
	if (shift == 1 && INTERNAL(ep_query) == 4)
		return "WEFT_INTERNAL_20";
	if (shift == 1 && INTERNAL(ep_query) == 3)
		return "WEFT_INTERNAL_22";
	return "WEFT_INTERNAL_NEW /* none of those that are known */";
}

/* A row for the table, as this UCX would have it. */
static void print_row(void)
{
#if UCX_MINOR < 19
	printf("no row is written for a UCX of before 1.19\n");
#else
#define ATTR(member) offsetof(uct_md_attr_v2_t, member)
	printf("{ %d, %zu, true, %s, %s, %s,\n", UCX_MINOR,
	       sizeof(ucs_config_global_list_entry_t),
	       MKEY_PACK_16 ? "true" : "false",
	       RKEY_UNPACK_19 ? "true" : "false", internal_shape());
	printf("  { %zu, false, %zu, %zu, %zu, %zu, %zu, %zu, %zu, %zu, %zu },\n",
	       sizeof(uct_md_attr_v2_t), ATTR(max_reg), ATTR(flags),
	       ATTR(reg_mem_types), ATTR(cache_mem_types),
	       ATTR(access_mem_types), ATTR(reg_cost), ATTR(rkey_packed_size),
	       ATTR(local_cpus), ATTR(reg_alignment));
	printf("  { %zu }, %zu, %zu },\n",
	       offsetof(uct_perf_attr_t, path_bandwidth),
	       sizeof(struct uct_component), sizeof(uct_tl_t));
#endif
}

/* Prints what differs; with an argument first a row for the table. */
int main(int argc, char **argv)
{
	const struct weft_uct_abi *abi = weft_uct_abi_find(UCX_MINOR);

	if (argc > 1)
		print_row();
	if (!abi) {
		printf("no row for 1.%d; what follows is against 1.%d\n",
		       UCX_MINOR, WEFT_UCX_MINOR_MAX);
		failed = 1;
		abi = weft_uct_abi_find(WEFT_UCX_MINOR_MAX);
	}
	prototypes(abi);
	interface_structs();
	flags();
	row(abi);
	internal(abi);
	return failed;
}

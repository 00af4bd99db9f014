/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libibverbs, and the only dlopen() of it.
 *
 * Building needs rdma-core's headers, never its library: most calls of the data
 * path go through the opened context (ibv_context.ops).  The others have
 * versioned symbols, of which dlsym() takes the newest, as linking would
 * (libibverbs.map.in of rdma-core).  A process on a host without the library or
 * without a device does not notice weft.
 */
#ifndef WEFT_UTIL_DRIVERS_VERBS_H
#define WEFT_UTIL_DRIVERS_VERBS_H

#include <infiniband/verbs.h>

/* X(field, symbol, type, arguments): what libibverbs exports */
#define WEFT_VERBS_CALLS(X)                                                \
	X(get_device_list, ibv_get_device_list, struct ibv_device **,      \
	  (int *n))                                                        \
	X(free_device_list, ibv_free_device_list, void,                    \
	  (struct ibv_device * *list))                                     \
	X(get_device_name, ibv_get_device_name, const char *,              \
	  (struct ibv_device *))                                           \
	X(open_device, ibv_open_device, struct ibv_context *,              \
	  (struct ibv_device *))                                           \
	X(close_device, ibv_close_device, int, (struct ibv_context *))     \
	X(query_device, ibv_query_device, int,                             \
	  (struct ibv_context *, struct ibv_device_attr *))                \
	/* clear the struct first: old libraries skip newer fields */      \
	X(query_port, ibv_query_port, int,                                 \
	  (struct ibv_context *, uint8_t port, struct ibv_port_attr *))    \
	X(get_async_event, ibv_get_async_event, int,                       \
	  (struct ibv_context *, struct ibv_async_event *))                \
	X(ack_async_event, ibv_ack_async_event, void,                      \
	  (struct ibv_async_event *))                                      \
	X(alloc_pd, ibv_alloc_pd, struct ibv_pd *, (struct ibv_context *)) \
	X(dealloc_pd, ibv_dealloc_pd, int, (struct ibv_pd *))              \
	X(reg_mr, ibv_reg_mr, struct ibv_mr *,                             \
	  (struct ibv_pd *, void *addr, size_t len, int access))           \
	X(dereg_mr, ibv_dereg_mr, int, (struct ibv_mr *))                  \
	X(create_comp_channel, ibv_create_comp_channel,                    \
	  struct ibv_comp_channel *, (struct ibv_context *))               \
	X(destroy_comp_channel, ibv_destroy_comp_channel, int,             \
	  (struct ibv_comp_channel *))                                     \
	X(create_cq, ibv_create_cq, struct ibv_cq *,                       \
	  (struct ibv_context *, int cqe, void *cq_context,                \
	   struct ibv_comp_channel *, int vector))                         \
	X(destroy_cq, ibv_destroy_cq, int, (struct ibv_cq *))              \
	X(get_cq_event, ibv_get_cq_event, int,                             \
	  (struct ibv_comp_channel *, struct ibv_cq **, void **context))   \
	X(ack_cq_events, ibv_ack_cq_events, void,                          \
	  (struct ibv_cq *, unsigned int n))                               \
	X(create_qp, ibv_create_qp, struct ibv_qp *,                       \
	  (struct ibv_pd *, struct ibv_qp_init_attr *))                    \
	X(modify_qp, ibv_modify_qp, int,                                   \
	  (struct ibv_qp *, struct ibv_qp_attr *, int mask))               \
	X(destroy_qp, ibv_destroy_qp, int, (struct ibv_qp *))              \
	X(fork_init, ibv_fork_init, int, (void))

/* X(field, type, arguments): inline functions of the header */
#define WEFT_VERBS_INLINE(X)                                                  \
	X(post_send, int,                                                     \
	  (struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr * *bad)) \
	X(post_recv, int,                                                     \
	  (struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr * *bad)) \
	X(poll_cq, int, (struct ibv_cq *, int n, struct ibv_wc *))            \
	X(req_notify_cq, int, (struct ibv_cq *, int solicited))

struct weft_verbs {
#define X(field, symbol, type, args) type(*field) args;
	WEFT_VERBS_CALLS(X)
#undef X
#define X(field, type, args) type(*field) args;
	WEFT_VERBS_INLINE(X)
#undef X
};

/*
 * The first call loads the library; later calls return the same.  NULL: there
 * is none (logged at level info), or it lacks a call (logged as a warning).
 */
const struct weft_verbs *weft_verbs(void);
/* For tests: use @table from now on; NULL: the library again. */
void weft_verbs_set(const struct weft_verbs *table);

/* "remote access error"; a constant text for any status. */
const char *weft_wc_name(enum ibv_wc_status status);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Entry points that several versions of the interface share: each version's
 * table names the function whose signature it has.
 */
#ifndef WEFT_NCCL_NET_API_VERSIONS_H
#define WEFT_NCCL_NET_API_VERSIONS_H

#include "nccl_net/abi/net.h"

#define WEFT_NCCL_NAME "weft"

/* v6, v7, v8 before 2.21: no tuner */
enum nccl_result weft_nccl_init(nccl_logger log);
/* v8 from 2.21 on, v9; v10 has one argument more */
enum nccl_result weft_nccl_init_tuned(nccl_logger log);
enum nccl_result weft_nccl_devices(int *n);
/* v6 to v10: the context is the process's */
enum nccl_result weft_nccl_listen(int dev, void *handle, void **listener);
/* v7 to v9 */
enum nccl_result weft_nccl_connect(int dev, void *handle, void **comm,
				   void **offload);
/* v7 and later */
enum nccl_result weft_nccl_accept(void *listener, void **comm, void **offload);
/* v6, v7: int; v8 and later: size_t */
enum nccl_result weft_nccl_reg_int(void *comm, void *data, int size, int type,
				   void **mr);
enum nccl_result weft_nccl_reg(void *comm, void *data, size_t size, int type,
			       void **mr);
enum nccl_result weft_nccl_dereg(void *comm, void *mr);
/* v6 to v8: int; v9: size_t; v10 and later: with profiler handles */
enum nccl_result weft_nccl_isend_int(void *comm, void *data, int size, int tag,
				     void *mr, void **request);
enum nccl_result weft_nccl_irecv_int(void *comm, int n, void **data, int *sizes,
				     int *tags, void **mrs, void **request);
enum nccl_result weft_nccl_isend_size(void *comm, void *data, size_t size,
				      int tag, void *mr, void **request);
enum nccl_result weft_nccl_irecv_size(void *comm, int n, void **data,
				      size_t *sizes, int *tags, void **mrs,
				      void **request);
enum nccl_result weft_nccl_isend(void *comm, void *data, size_t size, int tag,
				 void *mr, void *phandle, void **request);
enum nccl_result weft_nccl_irecv(void *comm, int n, void **data, size_t *sizes,
				 int *tags, void **mrs, void **phandles,
				 void **request);
enum nccl_result weft_nccl_iflush(void *comm, int n, void **data, int *sizes,
				  void **mrs, void **request);
enum nccl_result weft_nccl_test(void *request, int *done, int *sizes);
enum nccl_result weft_nccl_close_comm(void *comm);
enum nccl_result weft_nccl_close_listen(void *listener);
/* v11 and later: a context per communicator */
enum nccl_result weft_nccl_init_ctx(void **ctx, uint64_t comm_id,
				    struct nccl_config_v10 *config,
				    nccl_logger log, nccl_profiler profiler);
enum nccl_result weft_nccl_listen_ctx(void *ctx, int dev, void *handle,
				      void **listener);
enum nccl_result weft_nccl_connect_ctx(void *ctx, int dev, void *handle,
				       void **comm, void **offload);
enum nccl_result weft_nccl_finalize(void *ctx);
enum nccl_result weft_nccl_set_attr(void *ctx, struct nccl_attr_v11 *attr);

#endif

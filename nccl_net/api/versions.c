/* SPDX-License-Identifier: BSD-3-Clause */
/* Translates NCCL's types; no behaviour of its own. */
#include <errno.h>
#include <stdbool.h>
#include "nccl_net/common/channels.h"
#include "nccl_net/api/env.h"
#include "nccl_net/introduce/introduce.h"
#include "nccl_net/common/log.h"
#include "nccl_net/net/net.h"
#include "nccl_net/common/result.h"
#include "nccl_net/api/versions.h"
#include "util/log.h"

static bool has_tuner; /* this NCCL takes a tuner from this library */

/* NCCL up to 2.28.3 asks weft first, whatever NCCL_NET names. */
static void start_plugin(nccl_logger log)
{
	weft_nccl_log_to(log, NCCL_SUBSYS_INIT | NCCL_SUBSYS_NET);
	/* NCCL's logger is a part of NCCL */
	if (log)
		weft_nccl_introduce((const void *)log, WEFT_INTRODUCE_BY_NET,
				    "NCCL_HOSTID");
	if (!weft_nccl_network_ours())
		weft_nccl_env_apply();
}

enum nccl_result weft_nccl_init(nccl_logger log)
{
	struct weft_net *net;
	int ret;

	start_plugin(log);
	ret = weft_net_shared(&net);
	if (ret < 0)
		weft_nccl_env_apply();
	return weft_nccl_result(ret);
}

enum nccl_result weft_nccl_init_tuned(nccl_logger log)
{
	has_tuner = true;
	return weft_nccl_init(log);
}

enum nccl_result weft_nccl_devices(int *n)
{
	int found = weft_net_devices();

	if (found <= 0)
		weft_nccl_env_apply();
	if (found < 0)
		return weft_nccl_result(found);
	*n = found;
	/* NCCL chooses weft next, and reads the settings after that. */
	if (found)
		weft_nccl_channels_raise(has_tuner);
	return NCCL_SUCCESS;
}

enum nccl_result weft_nccl_listen_ctx(void *ctx, int dev, void *handle,
				      void **listener)
{
	struct weft_net_listener *l = NULL;
	int ret = weft_net_listen(ctx, dev, handle, &l);

	*listener = l;
	return weft_nccl_result(ret);
}

enum nccl_result weft_nccl_listen(int dev, void *handle, void **listener)
{
	struct weft_net *net;
	int ret = weft_net_shared(&net);

	if (ret < 0)
		return weft_nccl_result(ret);
	return weft_nccl_listen_ctx(net, dev, handle, listener);
}

/* @offload: a device that GPU code drives itself; weft has none. */
enum nccl_result weft_nccl_connect_ctx(void *ctx, int dev, void *handle,
				       void **comm, void **offload)
{
	struct weft_net_comm *c = NULL;
	int ret = weft_net_connect(ctx, dev, handle, &c);

	*comm = c;
	return weft_nccl_result(ret);
}

enum nccl_result weft_nccl_connect(int dev, void *handle, void **comm,
				   void **offload)
{
	struct weft_net *net;
	int ret = weft_net_shared(&net);

	if (ret < 0)
		return weft_nccl_result(ret);
	return weft_nccl_connect_ctx(net, dev, handle, comm, offload);
}

enum nccl_result weft_nccl_accept(void *listener, void **comm, void **offload)
{
	struct weft_net_comm *c = NULL;
	int ret = weft_net_accept(listener, &c);

	*comm = c;
	return weft_nccl_result(ret);
}

enum nccl_result weft_nccl_reg(void *comm, void *data, size_t size, int type,
			       void **mr)
{
	struct weft_net_mr *m = NULL;
	int ret = weft_net_register(comm, data, size, type, &m);

	*mr = m;
	return weft_nccl_result(ret);
}

enum nccl_result weft_nccl_reg_int(void *comm, void *data, int size, int type,
				   void **mr)
{
	return weft_nccl_reg(comm, data, size, type, mr);
}

enum nccl_result weft_nccl_dereg(void *comm, void *mr)
{
	if (mr)
		weft_net_deregister(mr);
	return NCCL_SUCCESS;
}

enum nccl_result weft_nccl_isend(void *comm, void *data, size_t size, int tag,
				 void *mr, void *phandle, void **request)
{
	struct weft_net_request *req = NULL;
	int ret = weft_net_send(comm, data, size, mr, &req);

	(void)tag; /* one receive at a time: the order identifies it */
	*request = req;
	return weft_nccl_result(ret);
}

enum nccl_result weft_nccl_irecv(void *comm, int n, void **data, size_t *sizes,
				 int *tags, void **mrs, void **phandles,
				 void **request)
{
	struct weft_net_request *req = NULL;
	int ret;

	if (n != 1)
		return weft_nccl_result(weft_fail(
			-EINVAL, "%d receives at once; one was offered", n));
	/*
	 * *request may ask for early completion (LL, LL128): ignored, since the
	 * slot must not be reused before the bytes have arrived.
	 */
	ret = weft_net_recv(comm, data[0], sizes[0], mrs[0], &req);
	*request = req;
	return weft_nccl_result(ret);
}

enum nccl_result weft_nccl_isend_size(void *comm, void *data, size_t size,
				      int tag, void *mr, void **request)
{
	return weft_nccl_isend(comm, data, size, tag, mr, NULL, request);
}

enum nccl_result weft_nccl_irecv_size(void *comm, int n, void **data,
				      size_t *sizes, int *tags, void **mrs,
				      void **request)
{
	return weft_nccl_irecv(comm, n, data, sizes, tags, mrs, NULL, request);
}

enum nccl_result weft_nccl_isend_int(void *comm, void *data, int size, int tag,
				     void *mr, void **request)
{
	return weft_nccl_isend(comm, data, size, tag, mr, NULL, request);
}

enum nccl_result weft_nccl_irecv_int(void *comm, int n, void **data, int *sizes,
				     int *tags, void **mrs, void **request)
{
	size_t size = n == 1 ? (size_t)sizes[0] : 0;

	return weft_nccl_irecv(comm, n, data, &size, tags, mrs, NULL, request);
}

/* Received bytes were written by the processor, so kernels see them already. */
enum nccl_result weft_nccl_iflush(void *comm, int n, void **data, int *sizes,
				  void **mrs, void **request)
{
	*request = NULL;
	return NCCL_SUCCESS;
}

enum nccl_result weft_nccl_test(void *request, int *done, int *sizes)
{
	size_t size = 0;
	bool finished;
	int ret = weft_net_test(request, &finished, &size);

	*done = finished;
	if (finished && sizes)
		sizes[0] = (int)size;
	return weft_nccl_result(ret);
}

enum nccl_result weft_nccl_close_comm(void *comm)
{
	weft_net_close_comm(comm);
	return NCCL_SUCCESS;
}

enum nccl_result weft_nccl_close_listen(void *listener)
{
	weft_net_close_listener(listener);
	return NCCL_SUCCESS;
}

enum nccl_result weft_nccl_init_ctx(void **ctx, uint64_t comm_id,
				    struct nccl_config_v10 *config,
				    nccl_logger log, nccl_profiler profiler)
{
	struct weft_net *net;
	int ret;

	has_tuner = true;
	start_plugin(log);
	ret = weft_net_open(&net);
	if (ret < 0)
		weft_nccl_env_apply();
	else
		*ctx = net;
	return weft_nccl_result(ret);
}

enum nccl_result weft_nccl_finalize(void *ctx)
{
	if (ctx)
		weft_net_close(ctx);
	return NCCL_SUCCESS;
}

/* Announces operation, algorithm and protocol, which do not matter here. */
enum nccl_result weft_nccl_set_attr(void *ctx, struct nccl_attr_v11 *attr)
{
	return NCCL_SUCCESS;
}

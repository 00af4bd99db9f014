/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: the caller's end of a connection. */
#include <errno.h>

#include "devices/nvlink/nvl_conn.h"
#include "devices/nvlink/nvl_ep.h"
#include "devices/nvlink/nvl_op.h"

static bool nvl_is_ready(struct weft_conn *base)
{
	const struct nvl_conn *conn = nvl_conn(base);

	return nvl_conn_is_open(conn) && !conn->hung_up && conn->nops < NVL_OPS;
}

/* The connection of a failed operation ends after that operation. */
static bool nvl_is_flushed(struct weft_conn *base, uint64_t sent)
{
	const struct nvl_conn *conn = nvl_conn(base);

	return !conn->nops && !conn->failed;
}

static void nvl_cancel_ops(struct weft_conn *base)
{
	struct nvl_conn *conn = nvl_conn(base);

	if (!conn->nops)
		return;
	nvl_op_stop(conn);
	nvl_op_drop(conn, -ECANCELED);
}

/* An open connection ends in progress(), when the peer's endpoint has ended. */
static void nvl_leave_conn(struct weft_conn *base)
{
	if (weft_conn_give_up(base))
		nvl_conn_break(nvl_conn(base), 0);
}

const struct weft_ep_ops nvl_ep_ops = {
	.max_iov = NVL_MAX_IOV,
	.connect = weft_local_connect,
	.is_ready = nvl_is_ready,
	.is_flushed = nvl_is_flushed,
	.cancel = nvl_cancel_ops,
	.leave = nvl_leave_conn,
};

/* The connection of a live endpoint. */
static struct nvl_conn *nvl_live_conn(struct weft_ep *ep)
{
	struct weft_conn *conn = weft_ep_conn(ep);

	return conn ? nvl_conn(conn) : NULL;
}

bool nvl_ep_unsent(struct weft_ep *ep)
{
	const struct nvl_conn *conn = nvl_live_conn(ep);

	return conn && (conn->nops || !weft_list_empty(&conn->frames_out));
}

/* There are none. */
int nvl_ep_message(struct weft_ep *ep, uint8_t id, const struct iovec *iov,
		   unsigned int n)
{
	int err = weft_ep_check(&nvl_ep_ops, ep, 0, 0);

	return err ? err : -EMSGSIZE;
}

ssize_t nvl_ep_message_pack(struct weft_ep *ep, uint8_t id,
			    size_t (*pack)(void *dest, void *arg), void *arg)
{
	(void)pack;
	return nvl_ep_message(ep, id, NULL, 0);
}

static int nvl_start(struct weft_ep *ep, bool get, const struct weft_iov *iov,
		     unsigned int n, uint64_t addr, const void *rkey,
		     struct weft_op *op)
{
	int err = weft_ep_check(&nvl_ep_ops, ep, n, 0);

	return err ? err
		   : nvl_op_start(nvl_live_conn(ep), get, iov, n, addr, rkey,
				  op);
}

int nvl_ep_put(struct weft_ep *ep, const struct weft_iov *iov, unsigned int n,
	       uint64_t addr, const void *rkey,
	       const struct weft_notify *notify, struct weft_op *op)
{
	/* the target has no part in a put */
	if (notify)
		return -EOPNOTSUPP;
	return nvl_start(ep, false, iov, n, addr, rkey, op);
}

int nvl_ep_get(struct weft_ep *ep, const struct weft_iov *iov, unsigned int n,
	       uint64_t addr, const void *rkey, struct weft_op *op)
{
	return nvl_start(ep, true, iov, n, addr, rkey, op);
}

/* Messages are ordered behind puts, and there are none. */
void nvl_ep_fence(struct weft_ep *ep)
{
}

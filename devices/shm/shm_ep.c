/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: the caller's end of a connection. */
#include <errno.h>

#include "devices/shm/shm_break.h"
#include "devices/shm/shm_ep.h"
#include "devices/shm/shm_ring.h"
#include "devices/shm/shm_tx.h"
#include "devices/shm/shm_window.h"

/*
 * A message behind a fence waits until the puts before it are in the ring,
 * which keeps their order.  Bytes of puts that go by a window are late: until
 * then the message waits at the peer, and what is behind it is not held up.
 */
static bool is_in_order(const struct shm_conn *conn)
{
	if (!conn->nwindowed)
		return conn->puts_sent >= conn->fence;
	return conn->fenced + sizeof(struct shm_record) + SHM_MAX_MESSAGE <=
	       SHM_HELD;
}

bool shm_ep_is_ready(struct weft_conn *base)
{
	struct shm_conn *conn = shm_conn(base);

	if (shm_conn_is_open(conn) && !conn->hung_up && conn->nops < SHM_OPS &&
	    is_in_order(conn) && shm_ring_has_room(conn, SHM_MAX_MESSAGE))
		return true;
	shm_conn_attend(conn); /* it is owed an answer */
	return false;
}

static uint64_t count_sent(const struct weft_conn *base)
{
	return container_of(base, struct shm_conn, base)->sent;
}

/*
 * The ring is the peer's memory, and outlives this process.  But UCP there may
 * learn of this process's end from its connection manager first, and drops what
 * it reads after that.  The connection of a failed operation ends after that
 * operation.
 */
static bool is_flushed(struct weft_conn *base, uint64_t sent)
{
	struct shm_conn *conn = shm_conn(base);

	shm_ring_note_read(conn);
	if (conn->asked_read >= sent && !conn->nops && !conn->failed)
		return true;
	conn->asked |= conn->asked_read < sent;
	shm_conn_attend(conn); /* it is asked again */
	return false;
}

static void cancel_ops(struct weft_conn *base)
{
	shm_conn_attend(shm_conn(base));
	shm_conn(base)->asked = false;
	shm_window_stop(shm_conn(base));
	shm_tx_give_up(shm_conn(base), -ECANCELED);
}

/* An open connection ends in progress(), when the peer's endpoint has ended. */
static void leave_conn(struct weft_conn *base)
{
	shm_conn_attend(shm_conn(base));
	if (weft_conn_give_up(base))
		shm_conn_break(shm_conn(base), 0);
}

const struct weft_ep_ops shm_ep_ops = {
	.max_iov = SHM_MAX_IOV,
	.max_message = SHM_MAX_MESSAGE,
	.connect = weft_local_connect,
	.is_ready = shm_ep_is_ready,
	.sent = count_sent,
	.is_flushed = is_flushed,
	.cancel = cancel_ops,
	.leave = leave_conn,
};

/* The connection of a live endpoint. */
static struct shm_conn *live_conn(struct weft_ep *ep)
{
	struct weft_conn *conn = weft_ep_conn(ep);

	return conn ? shm_conn(conn) : NULL;
}

bool shm_ep_unsent(struct weft_ep *ep)
{
	const struct shm_conn *conn = live_conn(ep);

	return conn && (shm_tx_waits(conn) || conn->copies);
}

/* ---- messages ------------------------------------------------------------ */

static void send_message(struct shm_conn *conn, uint8_t id, size_t len)
{
	const bool fenced = conn->nwindowed && conn->puts_acked < conn->fence;

	shm_ring_end(conn, (struct shm_record){
				   .kind = SHM_MESSAGE,
				   .id = id,
				   .len = len,
				   .fenced = fenced,
				   .fence = conn->fence,
			   });
	conn->fenced += fenced ? sizeof(struct shm_record) + len : 0;
	shm_ring_wake(conn);
	weft_count_owned(conn->stats, tx_messages, 1);
	weft_count_owned(conn->stats, tx_message_bytes, len);
}

/* Its helpers inlined: for a small message calls take as long as the rest. */
__attribute__((flatten)) int shm_ep_message(struct weft_ep *ep, uint8_t id,
					    const struct iovec *iov,
					    unsigned int n)
{
	struct shm_conn *conn;
	size_t len;
	void *to;
	int err;

	err = weft_ep_check_message(&shm_ep_ops, ep, iov, n, &len);
	if (err)
		return err;
	conn = shm_conn(weft_base_ep(ep)->conn);
	to = shm_ring_begin(conn, len);
	shm_ring_expect(conn, len);
	weft_iov_copy(to, iov, n);
	send_message(conn, id, len);
	return 0;
}

ssize_t shm_ep_message_pack(struct weft_ep *ep, uint8_t id,
			    size_t (*pack)(void *dest, void *arg), void *arg)
{
	struct shm_conn *conn;
	size_t len;
	int err;

	err = weft_ep_check(&shm_ep_ops, ep, 0, 0);
	if (err)
		return err;
	conn = shm_conn(weft_base_ep(ep)->conn);
	len = pack(shm_ring_begin(conn, SHM_MAX_MESSAGE), arg);
	send_message(conn, id, len);
	return len;
}

/* ---- puts and gets ------------------------------------------------------- */

/* 1: there is GPU memory among @iov, @where of each; 0: none; -errno. */
static int locate(const struct weft_iov *iov, unsigned int n,
		  struct weft_cuda_ptr *where)
{
	int err, gpus = 0;

	for (unsigned int i = 0; i < n; i++) {
		err = weft_engine_locate(&iov[i], &where[i]);
		if (err)
			return err;
		gpus |= where[i].where == WEFT_CUDA_DEVICE;
	}
	return gpus;
}

static bool is_gpu(const void *packed)
{
	return ((const uint8_t *)packed)[WEFT_RKEY_LEN] == SHM_MEM_GPU;
}

static int start(struct weft_ep *ep, enum shm_transfer_kind kind,
		 const struct weft_iov *iov, unsigned int n, uint64_t addr,
		 const void *packed, const struct weft_notify *notify,
		 struct weft_op *op)
{
	struct shm_conn *conn;
	struct weft_cuda_ptr where[SHM_MAX_IOV];
	struct weft_rkey key;
	struct shm_op what;
	bool window;
	unsigned int i;
	int err, gpus;

	err = weft_ep_check(&shm_ep_ops, ep, n, 0);
	if (err)
		return err;
	conn = shm_conn(weft_base_ep(ep)->conn);
	gpus = locate(iov, n, where);
	if (gpus < 0)
		return gpus;
	weft_rkey_unpack(packed, &key);
	what = (struct shm_op){
		.slot = key.slot,
		.generation = key.generation,
		.token = key.token,
		.addr = addr,
		.flags = notify ? SHM_OP_NOTIFY : 0,
		.tag = notify ? notify->tag : 0,
	};
	for (i = 0; i < n; i++)
		what.len += iov[i].len;
	window = what.len && (gpus || (kind == SHM_TX_PUT && is_gpu(packed)));
	if (window && kind == SHM_TX_GET)
		what.flags |= SHM_OP_WINDOW;
	err = shm_tx_add(conn, kind, iov, n, window ? where : NULL, &what, op);
	if (err)
		return err;
	shm_tx_run(conn);
	return -EINPROGRESS;
}

int shm_ep_put(struct weft_ep *ep, const struct weft_iov *iov, unsigned int n,
	       uint64_t addr, const void *rkey,
	       const struct weft_notify *notify, struct weft_op *op)
{
	return start(ep, SHM_TX_PUT, iov, n, addr, rkey, notify, op);
}

int shm_ep_get(struct weft_ep *ep, const struct weft_iov *iov, unsigned int n,
	       uint64_t addr, const void *rkey, struct weft_op *op)
{
	return start(ep, SHM_TX_GET, iov, n, addr, rkey, NULL, op);
}

void shm_ep_fence(struct weft_ep *ep)
{
	struct shm_conn *conn = live_conn(ep);

	if (conn)
		conn->fence = conn->puts;
}

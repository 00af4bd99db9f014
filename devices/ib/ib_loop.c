/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flushes of GPU memory: READs by a queue pair that an interface has with
 * itself.  One that the adapter refuses ends the queue pair; those behind it,
 * which were not at fault, go by the next.
 */
#include "devices/ib/ib.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util/log.h"
#include "util/util.h"

#define BATCH	16
#define TRIES	16u		/* of one that falls with others */

struct flush {
	struct weft_list link;		/* waiting, posted or finished */
	struct weft_op *op;		/* NULL: nobody waits any more */
	uint64_t addr;
	uint32_t rkey;
	unsigned int tries;
	int status;
};

struct ib_loop {
	struct ib_conn conn;		/* what a queue pair of ours needs of it */
	struct ib_cq cq;
	struct ib_qp q;
	struct ibv_mr *mr;		/* of landing */
	/* what is read: a page, since a child of fork() may not have it */
	uint8_t *landing;
	bool broken;			/* the queue pair: why is known */
	bool dead;			/* the completion queue, too */
	unsigned int out;
	struct weft_list waiting, posted, finished;
};

static int connect_self(struct ib_loop *l)
{
	struct ib_iface *iface = l->conn.iface;
	struct ib_conn_info *self = &l->conn.peer_info;
	int err;

	err = ib_qp_create(&l->q);
	if (err)
		return err;
	self->mtu = iface->port_attr.active_mtu;
	self->reads = (uint32_t)iface->dev->attr.max_qp_rd_atom;
	self->lid = iface->port_attr.lid;
	memcpy(self->gid, iface->gid, sizeof(self->gid));
	self->qp[0].qpn = l->q.qp->qp_num;
	self->qp[0].psn = l->q.psn;
	err = ib_qp_connect(&l->q);
	if (err)
		ib_qp_destroy(&l->q);
	return err;
}

static size_t page(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static void loop_free(struct ib_loop *l)
{
	const struct weft_verbs *v = l->conn.iface->v;
	int err;

	ib_qp_destroy(&l->q);
	err = l->mr ? v->dereg_mr(l->mr) : 0;
	if (l->cq.cq)
		err |= v->destroy_cq(l->cq.cq);
	if (err)
		weft_fail(err, "cannot give back what read GPU memory back on '%s'",
			  l->conn.iface->port.name);
	if (l->landing != MAP_FAILED)
		munmap(l->landing, page());
	free(l);
}

static int loop_new(struct ib_iface *iface, struct ib_loop **out)
{
	struct ib_loop *l = calloc(1, sizeof(*l));
	int err = 0;

	if (!l)
		return -ENOMEM;
	l->conn.iface = iface;
	l->conn.cq = &l->cq;
	l->q.conn = &l->conn;
	weft_list_init(&l->waiting);
	weft_list_init(&l->posted);
	weft_list_init(&l->finished);
	l->landing = mmap(NULL, page(), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (l->landing == MAP_FAILED)
		err = -ENOMEM;
	else
		l->cq.cq = iface->v->create_cq(iface->dev->ctx, IB_SQ_DEPTH,
					       &l->cq, iface->channel, 0);
	if (!err && !l->cq.cq)
		err = weft_fail(errno, "cannot make a completion queue on '%s'",
				iface->port.name);
	if (!err)
		l->mr = iface->v->reg_mr(iface->dev->pd, l->landing, page(),
					 IBV_ACCESS_LOCAL_WRITE);
	if (!err && !l->mr)
		err = weft_fail(errno, "cannot register %zu bytes at %p with '%s'",
				page(), (void *)l->landing, iface->dev->name);
	if (!err)
		err = connect_self(l);
	if (err) {
		loop_free(l);
		return err;
	}
	*out = l;
	return 0;
}

int weft_ib_flush_prepare(struct weft_iface *base)
{
	struct ib_iface *iface = ib_iface(base);

	/* an adapter without READs: iWARP's may be so */
	if (!iface->dev->attr.max_qp_init_rd_atom ||
	    !iface->dev->attr.max_qp_rd_atom)
		return -EOPNOTSUPP;
	return iface->loop ? 0 : loop_new(iface, &iface->loop);
}

static void finish(struct ib_loop *l, struct flush *f, int status)
{
	f->status = status;
	weft_list_del(&f->link);
	weft_list_add_tail(&l->finished, &f->link);
}

static int post(struct ib_loop *l, const struct flush *f)
{
	struct ibv_sge sge = { (uintptr_t)l->landing, 1, l->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = f->addr, .rkey = f->rkey },
	}, *bad;

	return l->conn.iface->v->post_send(l->q.qp, &wr, &bad);
}

static void pump(struct ib_loop *l)
{
	struct flush *f;
	int err;

	while (!l->broken && l->out < IB_SQ_DEPTH &&
	       !weft_list_empty(&l->waiting)) {
		f = weft_list_first(&l->waiting, struct flush, link);
		err = post(l, f);
		if (err) {
			finish(l, f, weft_fail(err, "cannot post a request on '%s'",
					       l->conn.iface->port.name));
			continue;
		}
		weft_list_del(&f->link);
		weft_list_add_tail(&l->posted, &f->link);
		l->out++;
	}
}

/*
 * They complete in the order posted.  One that is flushed is not at fault, but the
 * queue pair, being both ends of its connection, may flush it before the one that
 * is.
 */
static void completed(struct ib_loop *l, const struct ibv_wc *wc)
{
	struct flush *f;

	if (weft_list_empty(&l->posted))
		return;
	f = weft_list_first(&l->posted, struct flush, link);
	l->out--;
	if (wc->status == IBV_WC_SUCCESS) {
		finish(l, f, 0);
	} else if (wc->status == IBV_WC_WR_FLUSH_ERR && ++f->tries < TRIES) {
		l->broken = true;
		weft_list_del(&f->link);
		weft_list_add_tail(&l->waiting, &f->link);
	} else {
		l->broken = true;
		/* memory that was released under it is no news */
		if (f->op)
			weft_warn("'%s' cannot read GPU memory at 0x%llx back: %s (vendor code 0x%x)",
				  l->conn.iface->port.name,
				  (unsigned long long)f->addr,
				  weft_wc_name(wc->status), wc->vendor_err);
		finish(l, f, -EIO);
	}
}

/* Another queue pair, or none of those that wait comes to anything. */
static void renew(struct ib_loop *l)
{
	int err;

	ib_qp_destroy(&l->q);
	err = connect_self(l);
	l->broken = err;
	while (err && !weft_list_empty(&l->waiting))
		finish(l, weft_list_first(&l->waiting, struct flush, link),
		       err);
}

/* Nothing more is learnt from the queue, of these or of later ones. */
static void give_up(struct ib_loop *l, const char *what, int err)
{
	if (!l->dead)
		weft_warn("cannot %s a completion queue of '%s' (%d): what adapters write to GPU memory cannot be waited for",
			  what, l->conn.iface->port.name, err);
	l->dead = l->broken = true;
	l->out = 0;
	while (!weft_list_empty(&l->posted))
		finish(l, weft_list_first(&l->posted, struct flush, link),
		       -EIO);
	while (!weft_list_empty(&l->waiting))
		finish(l, weft_list_first(&l->waiting, struct flush, link),
		       -EIO);
}

void ib_loop_check(struct ib_iface *iface)
{
	struct ib_loop *l = iface->loop;

	if (l && !l->dead && atomic_load(&l->cq.failed))
		give_up(l, "go on with", -EIO);
}

static void gather(struct ib_loop *l)
{
	struct ibv_wc wc[BATCH];
	int i, n;

	do {
		n = l->conn.iface->v->poll_cq(l->cq.cq, BATCH, wc);
		if (n < 0)
			give_up(l, "poll", n);
		for (i = 0; i < n; i++)
			completed(l, &wc[i]);
	} while (n == BATCH);
	if (l->broken && !l->out && !weft_list_empty(&l->waiting))
		renew(l);
	pump(l);
}

unsigned int ib_loop_progress(struct ib_iface *iface)
{
	struct ib_loop *l = iface->loop;
	struct weft_op *op;
	struct flush *f;
	unsigned int n = 0;
	int status;

	if (l->out)
		gather(l);
	while (!weft_list_empty(&l->finished)) {
		f = weft_list_first(&l->finished, struct flush, link);
		weft_list_del(&f->link);
		op = f->op;
		status = f->status;
		free(f);
		n++;
		if (op)
			op->done(op, status);
	}
	return n;
}

int weft_ib_flush_gpu(struct weft_iface *base, const struct weft_mem *mem,
		      uint64_t addr, struct weft_op *op)
{
	struct ib_iface *iface = ib_iface(base);
	struct ib_loop *l = iface->loop;
	struct flush *f;
	uint32_t rkey;

	if (!l || !ib_mem_rkey(iface->dev, mem, &rkey))
		return -EINVAL;
	if (l->dead)
		return -EIO;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->op = op;
	f->addr = addr;
	f->rkey = rkey;
	weft_list_add_tail(&l->waiting, &f->link);
	if (l->broken && !l->out)
		renew(l);
	pump(l);
	return -EINPROGRESS;
}

static void forget(struct weft_list *list, const struct weft_op *op)
{
	struct flush *f, *tmp;

	weft_list_for_each(f, tmp, list, link)
		if (f->op == op)
			f->op = NULL;
}

void weft_ib_flush_forget(struct weft_iface *base, struct weft_op *op)
{
	struct ib_loop *l = ib_iface(base)->loop;

	if (!l)
		return;
	forget(&l->waiting, op);
	forget(&l->posted, op);
	forget(&l->finished, op);
}

int ib_loop_arm(struct ib_iface *iface)
{
	struct ib_loop *l = iface->loop;
	int err;

	err = l->out ? iface->v->req_notify_cq(l->cq.cq, 0) : 0;
	if (err)
		give_up(l, "ask for events of", err);
	if (l->out)
		gather(l);
	return weft_list_empty(&l->finished) ? 0 : -EBUSY;
}

static void drop(struct weft_list *list)
{
	struct flush *f, *tmp;

	weft_list_for_each(f, tmp, list, link)
		free(f);
}

void ib_loop_close(struct ib_iface *iface)
{
	struct ib_loop *l = iface->loop;

	if (!l)
		return;
	drop(&l->waiting);
	drop(&l->posted);
	drop(&l->finished);
	loop_free(l);
	iface->loop = NULL;
}

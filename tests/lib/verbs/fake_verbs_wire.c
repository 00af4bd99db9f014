/* SPDX-License-Identifier: BSD-3-Clause */
/* The fake's fabric: executes the requests of one process's queue pairs. */
#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

#include "tests/lib/verbs/fake_verbs_int.h"
#include "util/util.h"

#define STEP (128u << 10) /* bytes moved before others have their turn */

/* TSan's pthread_mutex_timedlock() takes EOWNERDEAD for a failure. */
static void own_dead_lock(pthread_mutex_t *lock)
{
#ifdef __SANITIZE_THREAD__
	__tsan_mutex_pre_lock(lock, __tsan_mutex_try_lock);
	__tsan_mutex_post_lock(lock, __tsan_mutex_try_lock, 0);
#endif
	pthread_mutex_consistent(lock);
}

/*
 * A waiter that is killed can take another's wakeup with it, where one
 * locked meanwhile: no thread waits for only one.
 */
void fake_lock(void)
{
	struct timespec until;
	int err;

	do {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += 20000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		err = pthread_mutex_timedlock(&fake_shm->lock, &until);
	} while (err == ETIMEDOUT);
	if (err == EOWNERDEAD)
		own_dead_lock(&fake_shm->lock);
}

void fake_unlock(void)
{
	pthread_mutex_unlock(&fake_shm->lock);
}

void fake_kick(void)
{
	atomic_fetch_add(&fake_shm->kick, 1);
	syscall(SYS_futex, &fake_shm->kick, FUTEX_WAKE, INT32_MAX, NULL, NULL,
		0);
}

struct fake_smr *fake_mr_find(uint32_t key)
{
	struct fake_smr *mr = &fake_shm->mr[(key >> 8) % FAKE_MRS];

	return mr->used && mr->key == key ? mr : NULL;
}

void fake_complete(struct fake_sqp *qp, unsigned int cq, bool send,
		   const struct ibv_wc *wc)
{
	struct fake_scq *q = &fake_shm->cq[cq];
	struct fake_cqe *e;

	if (q->broken)
		return;
	if (q->n == q->size) {
		fprintf(stderr, "# fake verbs: a completion queue overran\n");
		abort();
	}
	e = &q->cqe[(q->head + q->n++) % q->size];
	e->wc = *wc;
	e->wc.qp_num = qp->qpn;
	e->qp = send ? (uint32_t)(qp - fake_shm->qp) + 1 : 0;
	qp->unpolled += send;
	if (q->armed) {
		q->armed = false;
		q->ring = true;
	}
}

static void end_pair(struct fake_sqp *qp)
{
	qp->state = IBV_QPS_ERR;
}

/* Flushes what a queue pair in error still has. */
static bool flush(struct fake_sqp *qp)
{
	bool any = qp->sq_n || qp->rq_n;
	struct ibv_wc wc = { 0 };
	struct fake_wr *w;

	for (; qp->sq_n; qp->sq_n--) {
		w = &qp->sq[qp->sq_head];
		wc.wr_id = w->wr.wr_id;
		/* what the peer has answered is known */
		wc.status = w->executed ? w->status : IBV_WC_WR_FLUSH_ERR;
		qp->sq_head = (qp->sq_head + 1) % FAKE_SQ;
		fake_complete(qp, qp->scq, true, &wc);
	}
	wc.status = IBV_WC_WR_FLUSH_ERR;
	for (; qp->rq_n; qp->rq_n--) {
		wc.wr_id = qp->rq[qp->rq_head].wr_id;
		qp->rq_head = (qp->rq_head + 1) % FAKE_RQ;
		fake_complete(qp, qp->rcq, false, &wc);
	}
	return any;
}

static struct fake_sqp *peer_of(const struct fake_sqp *qp)
{
	struct fake_sqp *to = &fake_shm->qp[qp->dest_qpn % FAKE_QPS];

	if (!to->used || to->qpn != qp->dest_qpn || to->dest_qpn != qp->qpn ||
	    (to->state != IBV_QPS_RTR && to->state != IBV_QPS_RTS) ||
	    to->rq_psn != qp->sq_psn || qp->dest != to->dev + 1)
		return NULL;
	return to;
}

/* May the owner of @qp be reached at @addr by @key for @access? */
static bool allowed(const struct fake_sqp *qp, uint32_t key, uint64_t addr,
		    uint64_t len, int access)
{
	const struct fake_smr *mr = fake_mr_find(key);

	return mr && mr->pid == qp->pid && mr->pd == qp->pd &&
	       (mr->access & access) == access && addr >= mr->addr &&
	       len <= mr->len && addr - mr->addr <= mr->len - len;
}

/* By the kernel, so that neither sanitizers nor a wild pointer see it. */
static bool copy(pid_t to, uint64_t dst, pid_t from, uint64_t src, size_t len)
{
	static uint8_t buf[STEP];
	struct iovec mine = { buf, len },
		     there = { (void *)(uintptr_t)src, len };

	if (process_vm_readv(from, &mine, 1, &there, 1, 0) != (ssize_t)len)
		return false;
	there.iov_base = (void *)(uintptr_t)dst;
	return process_vm_writev(to, &mine, 1, &there, 1, 0) == (ssize_t)len;
}

/* 1: done; 0: later; -1: w->status says why not. */
static int move_bytes(struct fake_sqp *qp, struct fake_sqp *to,
		      struct fake_wr *w, uint64_t remote)
{
	const bool read = w->wr.opcode == IBV_WR_RDMA_READ;
	const uint32_t left = w->sge.length - w->done;
	const size_t n = left < STEP ? left : STEP;
	uint64_t local;

	if (!w->has_sge || !n)
		return 1;
	if (w->wr.send_flags & IBV_SEND_INLINE) {
		local = (uintptr_t)w->data;
	} else if (!allowed(qp, w->sge.lkey, w->sge.addr, w->sge.length,
			    read ? IBV_ACCESS_LOCAL_WRITE : 0)) {
		w->status = IBV_WC_LOC_PROT_ERR;
		return -1;
	} else {
		local = w->sge.addr + w->done;
	}
	remote += w->done;
	if (read ? !copy(qp->pid, local, to->pid, remote, n)
		 : !copy(to->pid, remote, qp->pid, local, n))
		return 0; /* the peer's process is gone */
	w->done += (uint32_t)n;
	return w->done == w->sge.length;
}

/* One of the peer's receive requests is used up. */
static void take_receive(struct fake_sqp *to, struct ibv_wc *wc)
{
	wc->wr_id = to->rq[to->rq_head].wr_id;
	to->rq_head = (to->rq_head + 1) % FAKE_RQ;
	to->rq_n--;
	fake_complete(to, to->rcq, false, wc);
}

/* Without one an adapter gives up after some tries. */
static bool may_receive(const struct fake_sqp *to, struct fake_wr *w)
{
	if (to->rq_n)
		return true;
	fprintf(stderr, "# fake verbs: no receive buffer posted\n");
	w->status = IBV_WC_RNR_RETRY_EXC_ERR;
	return false;
}

static int do_send(struct fake_sqp *qp, struct fake_sqp *to, struct fake_wr *w)
{
	const uint32_t len = w->has_sge ? w->sge.length : 0;
	struct ibv_wc wc = { .opcode = IBV_WC_RECV, .byte_len = len };
	struct fake_rr *rr = &to->rq[to->rq_head];
	int r;

	if (!may_receive(to, w))
		return -1;
	if (len > rr->sge.length || !allowed(to, rr->sge.lkey, rr->sge.addr,
					     len, IBV_ACCESS_LOCAL_WRITE)) {
		w->status = IBV_WC_REM_INV_REQ_ERR;
		return -1;
	}
	r = move_bytes(qp, to, w, rr->sge.addr);
	if (r <= 0)
		return r;
	take_receive(to, &wc);
	return 1;
}

static int execute(struct fake_sqp *qp, struct fake_sqp *to, struct fake_wr *w)
{
	const bool read = w->wr.opcode == IBV_WR_RDMA_READ;
	const bool told = w->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct ibv_wc wc = {
		.opcode = IBV_WC_RECV_RDMA_WITH_IMM,
		.byte_len = w->has_sge ? w->sge.length : 0,
		.imm_data = w->wr.imm_data,
		.wc_flags = IBV_WC_WITH_IMM,
	};
	int r;

	if (fake_shm->all_status) {
		w->status = fake_shm->all_status;
		return -1;
	}
	if (fake_shm->next_status && w->wr.opcode != IBV_WR_SEND &&
	    w->has_sge) {
		w->status = fake_shm->next_status;
		fake_shm->next_status = 0;
		return -1;
	}
	if (w->wr.opcode == IBV_WR_SEND)
		return do_send(qp, to, w);
	/* an empty request asks for no key (Architecture, 9.4.1.1.4) */
	if (w->has_sge && w->sge.length &&
	    !allowed(to, w->wr.wr.rdma.rkey, w->wr.wr.rdma.remote_addr,
		     w->sge.length,
		     read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE)) {
		w->status = IBV_WC_REM_ACCESS_ERR;
		return -1;
	}
	if (told && !may_receive(to, w))
		return -1;
	r = move_bytes(qp, to, w, w->wr.wr.rdma.remote_addr);
	/* behind its last byte */
	if (told && r > 0) {
		take_receive(to, &wc);
		fake_shm->immediates++;
	}
	return r;
}

/* One request of one queue pair a little further; true: something moved. */
static bool run_qp(struct fake_sqp *qp)
{
	struct fake_wr *w = &qp->sq[qp->sq_head];
	const uint32_t before = w->done;
	struct ibv_wc wc = { 0 };
	struct fake_sqp *to;
	int r;

	if (qp->state == IBV_QPS_ERR)
		return flush(qp);
	if (qp->state != IBV_QPS_RTS || !qp->sq_n ||
	    (qp->unpolled >= FAKE_UNPOLLED && w->wr.opcode != IBV_WR_SEND))
		return false;
	if (!w->executed) {
		to = peer_of(qp);
		if (!to || fake_shm->cut)
			return false;
		r = execute(qp, to, w);
		if (!r)
			return w->done > before;
		w->executed = true;
		/* the responder's ends over what it refuses, alone */
		if (r < 0 && (w->status == IBV_WC_REM_ACCESS_ERR ||
			      w->status == IBV_WC_REM_INV_REQ_ERR))
			end_pair(to);
		return true; /* the completion comes in a later round */
	}
	wc.wr_id = w->wr.wr_id;
	wc.status = w->status;
	qp->sq_head = (qp->sq_head + 1) % FAKE_SQ;
	qp->sq_n--;
	fake_complete(qp, qp->scq, true, &wc);
	if (w->status)
		end_pair(qp);
	return true;
}

/* Rings for completions that were asked for. */
static void ring(struct fake_context *ctx)
{
	const uint64_t one = 1;
	struct fake_channel *ch;
	struct fake_cq *cq;
	unsigned int i;

	for (i = 0; i < FAKE_CQS; i++) {
		cq = ctx->cqs[i];
		if (!cq || !fake_shm->cq[cq->index].ring)
			continue;
		fake_shm->cq[cq->index].ring = false;
		atomic_fetch_add(&cq->events, 1);
		ch = container_of(cq->base.channel, struct fake_channel, base);
		if (ch->in >= 0 && write(ch->in, &one, sizeof(one)) < 0)
			abort();
	}
}

static bool turn(struct fake_context *ctx, unsigned int *from)
{
	const pid_t me = getpid();
	struct fake_sqp *qp;
	bool any = false;
	unsigned int i;

	/* not always from the same one */
	*from = *from * 1103515245u + 12345u;
	for (i = 0; i < fake_shm->qp_end; i++) {
		qp = &fake_shm->qp[(i + (*from >> 8)) % fake_shm->qp_end];
		if (qp->used && qp->pid == me && qp->ctx == ctx->number)
			any |= run_qp(qp);
	}
	ring(ctx);
	return any;
}

void *fake_wire_thread(void *arg)
{
	struct fake_context *ctx = arg;
	struct timespec nap = { 0, 2000000 };
	unsigned int from = 1;
	uint32_t seen;
	bool any;

	while (!atomic_load(&ctx->stop)) {
		seen = atomic_load(&fake_shm->kick);
		fake_lock();
		any = turn(ctx, &from);
		fake_unlock();
		if (any)
			fake_kick(); /* other devices have to ring, too */
		else
			syscall(SYS_futex, &fake_shm->kick, FUTEX_WAIT, seen,
				&nap, NULL, 0);
	}
	return NULL;
}

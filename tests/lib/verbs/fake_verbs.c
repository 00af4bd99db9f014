/* SPDX-License-Identifier: BSD-3-Clause */
/* The fake's objects: what verbs make, look up, refuse and destroy. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/lib/verbs/fake_verbs_int.h"
#include "util/util.h"

static struct ibv_device devices[FAKE_DEVICES];
static void set_ops(struct ibv_context_ops *ops);

/* ---- devices ------------------------------------------------------------- */

static struct ibv_device **get_device_list(int *n)
{
	const char *name = getenv("WEFT_TEST_VERBS_NAME");
	struct ibv_device **list;
	unsigned int i;

	if (fake_fails("get_device_list"))
		return NULL;
	list = calloc(FAKE_DEVICES + 1, sizeof(*list));
	for (i = 0; i < FAKE_DEVICES; i++) {
		snprintf(devices[i].name, sizeof(devices[i].name), "%s%u",
			 name ? name : "fake", i);
		list[i] = &devices[i];
	}
	*n = FAKE_DEVICES;
	return list;
}

static void free_device_list(struct ibv_device **list)
{
	free(list);
}

static const char *get_device_name(struct ibv_device *dev)
{
	return dev->name;
}

static struct ibv_context *open_device(struct ibv_device *dev)
{
	struct fake_context *ctx;
	unsigned int i;

	if (fake_fails("open_device"))
		return NULL;
	/* another process of the test copies from and to this one */
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	ctx = calloc(1, sizeof(*ctx));
	ctx->base.device = dev;
	ctx->base.async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	ctx->base.cmd_fd = -1;
	ctx->dev = (unsigned int)(dev - devices);
	set_ops(&ctx->base.ops);
	for (i = 0; fake_contexts[i]; i++)
		;
	fake_contexts[i] = ctx;
	ctx->number = (int)i;
	fake_live.contexts++;
	if (pthread_create(&ctx->thread, NULL, fake_wire_thread, ctx))
		abort();
	return &ctx->base;
}

static int close_device(struct ibv_context *base)
{
	struct fake_context *ctx =
		container_of(base, struct fake_context, base);
	const int err = fake_fails("close_device") ? EIO : 0;

	if (ctx->users)
		return EBUSY;
	atomic_store(&ctx->stop, true);
	fake_kick();
	pthread_join(ctx->thread, NULL);
	fake_contexts[ctx->number] = NULL;
	close(base->async_fd);
	free(ctx);
	fake_live.contexts--;
	return err;
}

static int query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	if (fake_fails("query_device"))
		return EIO;
	memset(attr, 0, sizeof(*attr));
	attr->max_cqe = FAKE_CQE;
	attr->max_qp_wr = FAKE_SQ;
	attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = 4;
	return 0;
}

static int query_port(struct ibv_context *ctx, uint8_t port,
		      struct ibv_port_attr *attr)
{
	const unsigned int dev =
		container_of(ctx, struct fake_context, base)->dev;

	if (fake_fails("query_port") || port != 1)
		return EINVAL;
	memset(attr, 0, sizeof(*attr));
	attr->state = IBV_PORT_ACTIVE;
	attr->active_mtu = IBV_MTU_1024;
	attr->max_msg_sz = 1u << 30;
	attr->link_layer = IBV_LINK_LAYER_ETHERNET;
	if (fake_shm->infiniband[dev]) {
		attr->link_layer = IBV_LINK_LAYER_INFINIBAND;
		attr->lid = (uint16_t)(dev + 1);
		attr->flags = fake_shm->grh[dev] ? IBV_QPF_GRH_REQUIRED : 0;
	}
	return 0;
}

static int get_async_event(struct ibv_context *base, struct ibv_async_event *ev)
{
	struct fake_context *ctx =
		container_of(base, struct fake_context, base);
	struct fake_cq *cq;
	uint64_t one;
	int other;

	atomic_fetch_add(&ctx->asked, 1);
	if (read(base->async_fd, &one, sizeof(one)) < 0)
		return -1;
	memset(ev, 0, sizeof(*ev));
	other = atomic_exchange(&ctx->other, 0);
	if (other) {
		ev->event_type = (enum ibv_event_type)(other - 1);
		if (ev->event_type != IBV_EVENT_CQ_ERR)
			return 0;
		fake_lock();
		cq = ctx->failed;
		if (cq)
			atomic_store(&cq->unacked, true);
		fake_unlock();
		errno = EAGAIN; /* it was destroyed meanwhile */
		ev->element.cq = cq ? &cq->base : NULL;
		return cq ? 0 : -1;
	}
	ev->element.port_num = 1;
	ev->event_type = IBV_EVENT_PORT_ACTIVE;
	if (atomic_load(&ctx->down)) {
		atomic_fetch_sub(&ctx->down, 1);
		ev->event_type = IBV_EVENT_PORT_ERR;
	}
	return 0;
}

static void ack_async_event(struct ibv_async_event *ev)
{
	if (ev->event_type == IBV_EVENT_CQ_ERR)
		atomic_store(&container_of(ev->element.cq, struct fake_cq, base)
				      ->unacked,
			     false);
}

static struct ibv_pd *alloc_pd(struct ibv_context *base)
{
	struct ibv_pd *pd;

	if (fake_fails("alloc_pd"))
		return NULL;
	pd = calloc(1, sizeof(*pd));
	pd->context = base;
	fake_lock();
	pd->handle = ++fake_shm->next_pd;
	fake_unlock();
	container_of(base, struct fake_context, base)->users++;
	fake_live.pds++;
	return pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
	const int err = fake_fails("dealloc_pd") ? EIO : 0;
	unsigned int i;
	bool used = false;

	fake_lock();
	for (i = 0; i < FAKE_MRS; i++)
		used |= fake_shm->mr[i].used &&
			fake_shm->mr[i].pd == pd->handle;
	for (i = 0; i < FAKE_QPS; i++)
		used |= fake_shm->qp[i].used &&
			fake_shm->qp[i].pd == pd->handle;
	fake_unlock();
	if (used)
		return EBUSY;
	container_of(pd->context, struct fake_context, base)->users--;
	free(pd);
	fake_live.pds--;
	return err;
}

/* ---- completion queues --------------------------------------------------- */

static struct ibv_comp_channel *create_comp_channel(struct ibv_context *ctx)
{
	struct fake_channel *ch;
	int fds[2];

	if (fake_fails("create_comp_channel"))
		return NULL;
	if (pipe2(fds, O_CLOEXEC))
		abort();
	ch = calloc(1, sizeof(*ch));
	ch->base.context = ctx;
	ch->base.fd = fds[0];
	ch->in = fds[1];
	container_of(ctx, struct fake_context, base)->users++;
	fake_live.channels++;
	return &ch->base;
}

static int destroy_comp_channel(struct ibv_comp_channel *base)
{
	struct fake_channel *ch = container_of(base, struct fake_channel, base);
	const int err = fake_fails("destroy_comp_channel") ? EIO : 0;

	if (ch->users)
		return EBUSY;
	container_of(base->context, struct fake_context, base)->users--;
	close(base->fd);
	if (ch->in >= 0)
		close(ch->in);
	free(ch);
	fake_live.channels--;
	return err;
}

static struct ibv_cq *create_cq(struct ibv_context *base, int cqe,
				void *context, struct ibv_comp_channel *ch,
				int vector)
{
	struct fake_context *ctx =
		container_of(base, struct fake_context, base);
	struct fake_cq *cq;
	struct fake_scq *s;
	unsigned int i;

	if (fake_fails("create_cq"))
		return NULL;
	cq = calloc(1, sizeof(*cq));
	fake_lock();
	for (i = 0; fake_shm->cq[i].used; i++)
		if (i + 1 == FAKE_CQS)
			abort();
	s = &fake_shm->cq[i];
	s->used = true;
	s->armed = s->ring = s->broken = false;
	s->pid = getpid();
	s->ctx = ctx->number;
	s->size = (unsigned int)cqe;
	s->head = s->n = s->users = 0;
	cq->index = i;
	cq->base.context = base;
	cq->base.channel = ch;
	cq->base.cq_context = context;
	container_of(ch, struct fake_channel, base)->users++;
	ctx->cqs[i] = cq;
	ctx->users++;
	fake_live.cqs++;
	fake_unlock();
	return &cq->base;
}

static int destroy_cq(struct ibv_cq *base)
{
	const int err = fake_fails("destroy_cq") ? EIO : 0;
	struct fake_cq *cq = container_of(base, struct fake_cq, base);
	struct fake_context *ctx =
		container_of(base->context, struct fake_context, base);

	fake_lock();
	if (fake_shm->cq[cq->index].users) {
		fake_unlock();
		return EBUSY;
	}
	fake_shm->cq[cq->index].used = false;
	ctx->cqs[cq->index] = NULL;
	if (ctx->failed == cq)
		ctx->failed = NULL;
	ctx->users--;
	fake_live.cqs--;
	fake_unlock();
	/* ibv_destroy_cq(3): not before its events are acknowledged */
	while (atomic_load(&cq->unacked))
		sched_yield();
	container_of(base->channel, struct fake_channel, base)->users--;
	free(cq);
	return err;
}

static int get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **base,
			void **context)
{
	struct fake_context *ctx =
		container_of(ch->context, struct fake_context, base);
	uint64_t one;
	unsigned int i;

	if (read(ch->fd, &one, sizeof(one)) != sizeof(one))
		return -1;
	for (i = 0; i < FAKE_CQS; i++) {
		struct fake_cq *cq = ctx->cqs[i];

		if (!cq || cq->base.channel != ch || !atomic_load(&cq->events))
			continue;
		atomic_fetch_sub(&cq->events, 1);
		*base = &cq->base;
		*context = cq->base.cq_context;
		return 0;
	}
	return -1;
}

static void ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
}

static int poll_cq(struct ibv_cq *base, int max, struct ibv_wc *wc)
{
	struct fake_cq *cq = container_of(base, struct fake_cq, base);
	struct fake_scq *s = &fake_shm->cq[cq->index];
	struct fake_cqe *e;
	int n;

	if (fake_fails_named("poll_cq"))
		return -1;
	fake_lock();
	for (n = 0; n < max && s->n; n++) {
		e = &s->cqe[s->head];
		wc[n] = e->wc;
		if (e->qp && fake_shm->qp[e->qp - 1].qpn == e->wc.qp_num)
			fake_shm->qp[e->qp - 1].unpolled--;
		s->head = (s->head + 1) % s->size;
		s->n--;
	}
	fake_unlock();
	if (n)
		fake_kick();
	return n;
}

static int req_notify_cq(struct ibv_cq *base, int solicited)
{
	struct fake_cq *cq = container_of(base, struct fake_cq, base);

	if (fake_fails_named("req_notify_cq"))
		return EIO;
	fake_lock();
	fake_shm->cq[cq->index].armed = true;
	fake_unlock();
	return 0;
}

/* ---- queue pairs --------------------------------------------------------- */

static struct fake_sqp *shared_qp(const struct ibv_qp *qp)
{
	return &fake_shm->qp[qp->qp_num % FAKE_QPS];
}

static struct ibv_qp *create_qp(struct ibv_pd *pd,
				struct ibv_qp_init_attr *init)
{
	struct fake_context *ctx =
		container_of(pd->context, struct fake_context, base);
	struct fake_cq *cq = container_of(init->send_cq, struct fake_cq, base);
	struct ibv_qp *qp;
	struct fake_sqp *s;
	unsigned int i;
	uint32_t old;

	if (fake_fails("create_qp"))
		return NULL;
	if (init->cap.max_send_wr > FAKE_SQ ||
	    init->cap.max_recv_wr > FAKE_RQ ||
	    init->cap.max_inline_data > FAKE_INLINE ||
	    init->qp_type != IBV_QPT_RC) {
		errno = EINVAL;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	fake_lock();
	for (i = 1; fake_shm->qp[i].used; i++)
		if (i + 1 == FAKE_QPS)
			abort();
	s = &fake_shm->qp[i];
	old = s->qpn;
	if (i >= fake_shm->qp_end)
		fake_shm->qp_end = i + 1;
	memset(s, 0, offsetof(struct fake_sqp, sq));
	s->used = true;
	s->pid = getpid();
	s->ctx = ctx->number;
	s->dev = ctx->dev;
	s->pd = pd->handle;
	s->qpn = (old ? old + FAKE_QPS : i) & 0xffffff;
	s->scq = s->rcq = cq->index;
	s->max_send = init->cap.max_send_wr;
	s->max_recv = init->cap.max_recv_wr;
	s->max_inline = init->cap.max_inline_data;
	fake_shm->cq[cq->index].users++;
	fake_live.qps++;
	fake_unlock();
	qp->context = pd->context;
	qp->pd = pd;
	qp->send_cq = qp->recv_cq = init->send_cq;
	qp->qp_num = s->qpn;
	qp->qp_type = init->qp_type;
	return qp;
}

static int destroy_qp(struct ibv_qp *qp)
{
	const int err = fake_fails("destroy_qp") ? EIO : 0;
	struct fake_sqp *s = shared_qp(qp);

	fake_lock();
	s->used = false;
	fake_shm->cq[s->scq].users--;
	fake_live.qps--;
	fake_unlock();
	free(qp);
	return err;
}

/* The attributes that ibv_modify_qp(3) demands of RC for each step. */
static int demanded(enum ibv_qp_state from, enum ibv_qp_state to)
{
	if (from == IBV_QPS_RESET && to == IBV_QPS_INIT)
		return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		       IBV_QP_ACCESS_FLAGS;
	if (from == IBV_QPS_INIT && to == IBV_QPS_RTR)
		return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
		       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (from == IBV_QPS_RTR && to == IBV_QPS_RTS)
		return IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
		       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		       IBV_QP_MAX_QP_RD_ATOMIC;
	return to == IBV_QPS_ERR ? IBV_QP_STATE : -1;
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct fake_sqp *s = shared_qp(qp);

	if (fake_fails(attr->qp_state == IBV_QPS_ERR ? "modify_qp to ERR"
						     : "modify_qp"))
		return ENOMEM;
	fake_lock();
	if (demanded(s->state, attr->qp_state) != mask ||
	    (attr->qp_state == IBV_QPS_RTR && !attr->ah_attr.is_global &&
	     (!fake_shm->infiniband[s->dev] || fake_shm->grh[s->dev]))) {
		fake_unlock();
		return EINVAL;
	}
	s->state = attr->qp_state;
	if (s->state == IBV_QPS_INIT) {
		fake_shm->path.pkey_index = attr->pkey_index;
		fake_shm->path.access = (unsigned int)attr->qp_access_flags;
	} else if (s->state == IBV_QPS_RTR) {
		s->dest_qpn = attr->dest_qp_num;
		s->rq_psn = attr->rq_psn;
		s->dest = attr->ah_attr.is_global
				  ? attr->ah_attr.grh.dgid.raw[15]
				  : attr->ah_attr.dlid;
		fake_shm->path.mtu = attr->path_mtu;
		fake_shm->path.service_level = attr->ah_attr.sl;
		fake_shm->path.traffic_class = attr->ah_attr.grh.traffic_class;
		fake_shm->path.gid_index = attr->ah_attr.grh.sgid_index;
		fake_shm->path.hop_limit = attr->ah_attr.grh.hop_limit;
	} else if (s->state == IBV_QPS_RTS) {
		s->sq_psn = attr->sq_psn;
		fake_shm->path.timeout = attr->timeout;
		fake_shm->path.retries = attr->retry_cnt;
	}
	fake_unlock();
	fake_kick();
	return 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	struct fake_sqp *s = shared_qp(qp);
	struct fake_wr *w;
	int err = 0;

	*bad = wr;
	if (fake_fails("post_send"))
		return ENOMEM;
	fake_lock();
	if (s->state != IBV_QPS_RTS && s->state != IBV_QPS_ERR)
		err = EINVAL;
	else if (s->sq_n == s->max_send ||
		 (wr->send_flags & IBV_SEND_INLINE && wr->num_sge &&
		  wr->sg_list[0].length > s->max_inline))
		err = ENOMEM;
	if (!err) {
		w = &s->sq[(s->sq_head + s->sq_n++) % FAKE_SQ];
		memset(w, 0, offsetof(struct fake_wr, data));
		w->wr = *wr;
		w->has_sge = wr->num_sge;
		if (w->has_sge)
			w->sge = wr->sg_list[0];
		if (wr->send_flags & IBV_SEND_INLINE && w->has_sge) {
			memcpy(w->data, (void *)(uintptr_t)w->sge.addr,
			       w->sge.length);
			fake_shm->inlines += wr->opcode == IBV_WR_SEND;
		}
	}
	fake_unlock();
	fake_kick();
	return err;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	struct fake_sqp *s = shared_qp(qp);
	struct fake_rr *r;
	int err = 0;

	*bad = wr;
	if (fake_fails("post_recv"))
		return ENOMEM;
	fake_lock();
	if (s->state == IBV_QPS_RESET)
		err = EINVAL;
	else if (s->rq_n == s->max_recv)
		err = ENOMEM;
	if (!err) {
		r = &s->rq[(s->rq_head + s->rq_n++) % FAKE_RQ];
		r->wr_id = wr->wr_id;
		r->sge = wr->num_sge ? wr->sg_list[0] : (struct ibv_sge){ 0 };
	}
	fake_unlock();
	return err;
}

/* What the header's inline functions call. */
static void set_ops(struct ibv_context_ops *ops)
{
	ops->poll_cq = poll_cq;
	ops->req_notify_cq = req_notify_cq;
	ops->post_send = post_send;
	ops->post_recv = post_recv;
}

static int fork_init(void)
{
	return 0;
}

/* fake_verbs_mem.c has both, by the names that the table wants here */
static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len,
			     int access)
{
	return fake_reg_mr(pd, addr, len, access);
}

static int dereg_mr(struct ibv_mr *mr)
{
	return fake_dereg_mr(mr);
}

#define X(field, symbol, type, args) .field = field,
#define Y(field, type, args)	     .field = field,
const struct weft_verbs fake_table = { WEFT_VERBS_CALLS(X)
					       WEFT_VERBS_INLINE(Y) };
#undef X
#undef Y

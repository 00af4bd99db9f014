/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "host/host.h"
#include "tests/unit/nccl_net/fake.h"
#include "util/list.h"

struct fake_control fake;

enum what { MESSAGE, PUT, PUT_DONE, DEATH };

struct event {
	struct weft_list link;
	enum what what;
	uint64_t ep_id; /* PUT_DONE, DEATH: whose */
	int status;
	uint8_t id;
	struct weft_op *op;
	uint64_t addr;
	uint64_t token;
	bool notify;
	uint64_t tag;
	struct fake_iface *from;
	size_t len;
	char data[];
};

struct fake_iface {
	struct weft_iface base;
	struct weft_list link;
	struct weft_address addr;
	struct weft_list inbox;
	struct weft_list eps;
	bool starved; /* a message was not taken */
};

struct fake_ep {
	struct weft_ep base;
	struct weft_list link;
	struct fake_iface *iface;
	uint8_t peer[WEFT_KEY_LEN];
	uint64_t id;
	int err;
	struct weft_list pending; /* struct pending */
};

struct pending {
	struct weft_list link;
	struct weft_op *op;
};

struct weft_mem {
	struct weft_list link;
	void *addr;
	size_t len;
	uint64_t token;
};

/*
 * A flusher thread makes progress for one context while another sends to it.
 * Callbacks of progress() send, too.
 */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static struct weft_list ifaces = { &ifaces, &ifaces };
static struct weft_list mems = { &mems, &mems };
static uint64_t next_id = 1;

static struct fake_iface *find(const uint8_t *key)
{
	struct fake_iface *i, *tmp;

	weft_list_for_each (i, tmp, &ifaces, link)
		if (!memcmp(i->addr.key, key, WEFT_KEY_LEN))
			return i;
	return NULL;
}

static struct event *post(struct fake_iface *to, enum what what, size_t len)
{
	struct event *e = calloc(1, sizeof(*e) + len);

	e->what = what;
	e->len = len;
	weft_list_add_tail(&to->inbox, &e->link);
	return e;
}

static int iface_open(const struct weft_iface_params *params,
		      struct weft_iface **out)
{
	struct fake_iface *i = calloc(1, sizeof(*i));

	i->base.ops = &weft_tcp_ops;
	i->base.cb = *params->cb;
	i->addr.wire_min = WEFT_WIRE_MIN;
	i->addr.wire_max = WEFT_WIRE_MAX;
	i->addr.ns_id = weft_netns_id();
	weft_random(i->addr.key, WEFT_KEY_LEN);
	i->addr.sa.in.sin_family = AF_INET;
	i->addr.sa.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	i->addr.sa.in.sin_port = htons(1024 + fake.ifaces);
	weft_list_init(&i->inbox);
	weft_list_init(&i->eps);
	weft_list_add_tail(&ifaces, &i->link);
	fake.ifaces++;
	*out = &i->base;
	return 0;
}

static void iface_close(struct weft_iface *base)
{
	struct fake_iface *i = (struct fake_iface *)base;
	struct event *e, *tmp;

	weft_list_for_each (e, tmp, &i->inbox, link)
		free(e);
	weft_list_del(&i->link);
	fake.ifaces--;
	free(i);
}

static void iface_query(struct weft_iface *base, struct weft_iface_attr *a)
{
	struct fake_iface *i = (struct fake_iface *)base;

	memset(a, 0, sizeof(*a));
	a->max_message = 4096;
	a->addr = i->addr;
}

static bool reaches(struct weft_iface *i, const struct weft_address *remote,
		    const char **why)
{
	return !fake.unreachable;
}

static struct fake_ep *ep_by_id(struct fake_iface *i, uint64_t id)
{
	struct fake_ep *ep, *tmp;

	weft_list_for_each (ep, tmp, &i->eps, link)
		if (ep->id == id)
			return ep;
	return NULL;
}

static void complete(struct fake_ep *ep, struct weft_op *op, int status)
{
	struct pending *p, *tmp;

	weft_list_for_each (p, tmp, &ep->pending, link) {
		if (p->op != op)
			continue;
		weft_list_del(&p->link);
		free(p);
		op->done(op, status);
		return;
	}
}

static void complete_all(struct fake_ep *ep, int status)
{
	struct pending *p;

	while (!weft_list_empty(&ep->pending)) {
		p = weft_list_first(&ep->pending, struct pending, link);
		complete(ep, p->op, status);
	}
}

static void post_death(struct fake_ep *ep, int err)
{
	struct event *e = post(ep->iface, DEATH, 0);

	e->ep_id = ep->id;
	e->status = err;
}

/* A put that failed ends the endpoints of both. */
static void break_pair(struct fake_iface *i, struct fake_iface *j)
{
	struct fake_ep *ep, *tmp;

	weft_list_for_each (ep, tmp, &i->eps, link)
		if (!memcmp(ep->peer, j->addr.key, WEFT_KEY_LEN))
			post_death(ep, -ECONNRESET);
	weft_list_for_each (ep, tmp, &j->eps, link)
		if (!memcmp(ep->peer, i->addr.key, WEFT_KEY_LEN))
			post_death(ep, -ECONNRESET);
}

static void land(struct fake_iface *i, struct event *e)
{
	struct fake_iface *back = e->from;
	struct event *done = post(back, PUT_DONE, 0);
	struct weft_mem *m, *tmp, *hit = NULL;

	weft_list_for_each (m, tmp, &mems, link)
		if (m->token == e->token)
			hit = m;
	done->ep_id = e->ep_id;
	done->op = e->op;
	if (!hit || e->addr < (uintptr_t)hit->addr ||
	    e->addr + e->len > (uintptr_t)hit->addr + hit->len) {
		done->status = -EACCES;
		break_pair(i, back);
		return;
	}
	memcpy((void *)(uintptr_t)e->addr, e->data, e->len);
	if (e->notify)
		i->base.cb.on_notify(i->base.cb.arg, e->tag, e->len);
}

static void deliver(struct fake_iface *i, struct event *e)
{
	struct fake_ep *ep;

	switch (e->what) {
	case MESSAGE:
		i->base.cb.on_message(i->base.cb.arg, e->id, e->data, e->len);
		break;
	case PUT:
		land(i, e);
		break;
	case PUT_DONE:
		ep = ep_by_id(i, e->ep_id);
		if (ep)
			complete(ep, e->op, e->status);
		break;
	case DEATH:
		ep = ep_by_id(i, e->ep_id);
		if (!ep || ep->err)
			break;
		ep->err = e->status;
		complete_all(ep, e->status);
		i->base.cb.on_error(i->base.cb.arg, &ep->base, ep->base.user,
				    e->status);
		break;
	}
}

static unsigned int progress(struct weft_iface *base)
{
	struct fake_iface *i = (struct fake_iface *)base;
	struct weft_list todo;
	struct event *e;
	struct fake_ep *ep, *tmp;
	unsigned int n = 0;

	fake.progressed++;
	if (fake.hold_all)
		return 0;
	pthread_mutex_lock(&lock);
	if (i->starved && fake.busy)
		fake.busy--;
	if (i->starved && !fake.busy) {
		i->starved = false;
		weft_list_for_each (ep, tmp, &i->eps, link)
			if (!ep->err)
				i->base.cb.on_ready(i->base.cb.arg, &ep->base,
						    ep->base.user);
	}
	weft_list_init(&todo);
	while (!weft_list_empty(&i->inbox)) {
		e = weft_list_first(&i->inbox, struct event, link);
		weft_list_del(&e->link);
		weft_list_add_tail(&todo, &e->link);
	}
	while (!weft_list_empty(&todo)) {
		e = weft_list_first(&todo, struct event, link);
		weft_list_del(&e->link);
		if (e->what == PUT && fake.hold_puts) {
			weft_list_add_tail(&i->inbox, &e->link);
			continue;
		}
		deliver(i, e);
		free(e);
		n++;
	}
	pthread_mutex_unlock(&lock);
	return n;
}

static int ep_create(struct weft_iface *base, const struct weft_address *remote,
		     void *user, struct weft_ep **out)
{
	struct fake_iface *i = (struct fake_iface *)base;
	struct fake_ep *ep = calloc(1, sizeof(*ep));

	ep->iface = i;
	ep->base.iface = base;
	ep->base.user = user;
	ep->id = next_id++;
	memcpy(ep->peer, remote->key, WEFT_KEY_LEN);
	weft_list_init(&ep->pending);
	weft_list_add_tail(&i->eps, &ep->link);
	if (fake.refuse_eps || !find(ep->peer))
		post_death(ep, -ECONNREFUSED);
	fake.eps++;
	*out = &ep->base;
	return 0;
}

static void ep_destroy(struct weft_ep *base)
{
	struct fake_ep *ep = (struct fake_ep *)base;

	complete_all(ep, -ECANCELED);
	weft_list_del(&ep->link);
	fake.eps--;
	free(ep);
}

static bool unsent(struct weft_ep *ep)
{
	return fake.unsent;
}

static bool ready(struct weft_ep *ep)
{
	return !fake.busy;
}

static int message(struct weft_ep *base, uint8_t id, const struct iovec *iov,
		   unsigned int n)
{
	struct fake_ep *ep = (struct fake_ep *)base;
	struct fake_iface *to = find(ep->peer);
	struct event *e;
	size_t len = 0;
	unsigned int i;

	if (ep->err)
		return ep->err;
	if (fake.busy) {
		fake.busy--;
		ep->iface->starved = true;
		return -EAGAIN;
	}
	for (i = 0; i < n; i++)
		len += iov[i].iov_len;
	if (len > 4096)
		return -EMSGSIZE;
	fake.messages++;
	fake.by_id[id]++;
	if (!to)
		return 0;
	pthread_mutex_lock(&lock);
	e = post(to, MESSAGE, len);
	e->id = id;
	for (i = 0, len = 0; i < n; len += iov[i++].iov_len)
		memcpy(e->data + len, iov[i].iov_base, iov[i].iov_len);
	pthread_mutex_unlock(&lock);
	return 0;
}

static ssize_t message_pack(struct weft_ep *ep, uint8_t id,
			    size_t (*pack)(void *dest, void *arg), void *arg)
{
	char buf[4096];
	struct iovec iov = { buf, pack(buf, arg) };
	int ret = message(ep, id, &iov, 1);

	return ret < 0 ? ret : (ssize_t)iov.iov_len;
}

static int put(struct weft_ep *base, const struct weft_iov *iov, unsigned int n,
	       uint64_t addr, const void *rkey,
	       const struct weft_notify *notify, struct weft_op *op)
{
	struct fake_ep *ep = (struct fake_ep *)base;
	struct fake_iface *to = find(ep->peer);
	struct pending *p;
	struct event *e;
	size_t len = n ? iov->len : 0;

	if (ep->err)
		return ep->err;
	if (!to)
		return -ECONNRESET;
	p = calloc(1, sizeof(*p));
	p->op = op;
	pthread_mutex_lock(&lock);
	weft_list_add_tail(&ep->pending, &p->link);
	e = post(to, PUT, len);
	if (len)
		memcpy(e->data, iov->addr, len);
	e->ep_id = ep->id;
	e->from = ep->iface;
	e->op = op;
	e->addr = addr;
	memcpy(&e->token, rkey, sizeof(e->token));
	e->notify = notify;
	e->tag = notify ? notify->tag : 0;
	fake.puts++;
	pthread_mutex_unlock(&lock);
	return -EINPROGRESS;
}

static void fence(struct weft_ep *ep)
{
}

static int flush(struct weft_ep *base, struct weft_op *op)
{
	struct fake_ep *ep = (struct fake_ep *)base;

	return ep->err;
}

static void cancel(struct weft_ep *base)
{
	struct fake_ep *ep = (struct fake_ep *)base;

	ep->err = -ECANCELED;
	complete_all(ep, -ECANCELED);
}

static int mem_register(void *addr, size_t len, enum weft_mem_kind kind,
			struct weft_mem **out)
{
	struct weft_mem *m = calloc(1, sizeof(*m));

	m->addr = addr;
	m->len = len;
	weft_random(&m->token, sizeof(m->token));
	weft_list_add_tail(&mems, &m->link);
	fake.mems++;
	*out = m;
	return 0;
}

static void mem_pack(struct weft_mem *m, void *rkey)
{
	memcpy(rkey, &m->token, sizeof(m->token));
}

static void mem_release(struct weft_mem *m)
{
	weft_list_del(&m->link);
	fake.mems--;
	free(m);
}

static int event_fd(struct weft_iface *i)
{
	return -EOPNOTSUPP;
}

static int arm(struct weft_iface *base)
{
	struct fake_iface *i = (struct fake_iface *)base;

	return weft_list_empty(&i->inbox) ? 0 : -EBUSY;
}

const struct weft_dev_ops weft_tcp_ops = {
	.name = "fake",
	.rkey_len = sizeof(((struct weft_mem *)0)->token),
	.iface_open = iface_open,
	.iface_close = iface_close,
	.iface_query = iface_query,
	.reaches = reaches,
	.progress = progress,
	.event_fd = event_fd,
	.arm = arm,
	.ep_create = ep_create,
	.ep_destroy = ep_destroy,
	.unsent = unsent,
	.ready = ready,
	.message = message,
	.message_pack = message_pack,
	.put = put,
	.fence = fence,
	.flush = flush,
	.cancel = cancel,
	.mem_register = mem_register,
	.mem_pack = mem_pack,
	.mem_release = mem_release,
};

/* There is no adapter here. */
static int no_iface(const struct weft_iface_params *params,
		    struct weft_iface **iface)
{
	return -ENODEV;
}

const struct weft_dev_ops weft_ib_ops = {
	.name = "none",
	.iface_open = no_iface,
};

void fake_break_all(int err)
{
	struct fake_iface *i, *itmp;
	struct fake_ep *ep, *tmp;

	weft_list_for_each (i, itmp, &ifaces, link)
		weft_list_for_each (ep, tmp, &i->eps, link)
			post_death(ep, err);
}

void fake_inject(uint8_t id, void *buf, size_t len)
{
	struct fake_iface *i, *tmp;
	struct event *e;

	weft_list_for_each (i, tmp, &ifaces, link) {
		e = post(i, MESSAGE, len);
		e->id = id;
		memcpy(e->data, buf, len);
	}
}

void fake_inject_notify(uint64_t tag, uint64_t size)
{
	struct fake_iface *i, *tmp;

	weft_list_for_each (i, tmp, &ifaces, link)
		i->base.cb.on_notify(i->base.cb.arg, tag, size);
}

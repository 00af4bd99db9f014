/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An opened verbs device: one per process, shared by its interfaces, with one
 * protection domain, so that memory is registered once.  A thread reads its
 * asynchronous events: the passive side of a dead link learns nothing from its
 * QP, and no other thread would read them while the program computes.
 */
#include "devices/ib/ib_device.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "util/fork.h"
#include "util/log.h"
#include "util/thread.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ib_device *devices[IB_MAX_DEVICES];
static _Atomic unsigned int open_mask; /* BIT() of their numbers */

static void dispatch_event(struct ib_alarm *alarm,
			   const struct ibv_async_event *ev)
{
	const uint64_t one = 1;

	switch (ev->event_type) {
	case IBV_EVENT_DEVICE_FATAL:
		atomic_store(&alarm->fatal, true);
		break;
	case IBV_EVENT_CQ_ERR:
		atomic_store(&alarm->cq_failed, true);
		break;
	default:
		if ((unsigned int)ev->element.port_num != alarm->port)
			return;
		atomic_store(&alarm->port_event, (int)ev->event_type + 1);
	}
	while (write(alarm->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static void dispatch_to_all(struct ib_device *dev,
			    const struct ibv_async_event *ev)
{
	struct ib_alarm *alarm, *tmp;

	pthread_mutex_lock(&lock);
	weft_list_for_each (alarm, tmp, &dev->alarms, link)
		dispatch_event(alarm, ev);
	pthread_mutex_unlock(&lock);
}

static void on_event(struct ib_device *dev, const struct ibv_async_event *ev)
{
	struct ib_cq *cq;

	switch (ev->event_type) {
	case IBV_EVENT_CQ_ERR:
		/* not destroyed before this event is acknowledged (verbs) */
		cq = ev->element.cq->cq_context;
		atomic_store(&cq->failed, true);
		/* fallthrough */
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_DEVICE_FATAL:
		dispatch_to_all(dev, ev);
		break;
	default:
		/* the rest shows in the QPs' completions */
		weft_debug("'%s': asynchronous event %d", dev->name,
			   (int)ev->event_type);
	}
}

static void *event_thread(void *arg)
{
	struct ib_device *dev = arg;
	struct pollfd fds[2] = { { dev->ctx->async_fd, POLLIN, 0 },
				 { dev->stop_fd, POLLIN, 0 } };
	const struct ibv_async_event fatal = {
		.event_type = IBV_EVENT_DEVICE_FATAL,
	};
	struct ibv_async_event ev;
	bool reported = false;

	for (;;) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			break;
		if (fds[1].revents)
			break;
		while (!dev->v->get_async_event(dev->ctx, &ev)) {
			on_event(dev, &ev);
			reported |= ev.event_type == IBV_EVENT_DEVICE_FATAL;
			dev->v->ack_async_event(&ev);
		}
		if (!(fds[0].revents & (POLLERR | POLLHUP | POLLNVAL)))
			continue;
		/* removed: poll() would report it forever */
		fds[0].fd = -1;
		if (!reported)
			on_event(dev, &fatal);
	}
	return NULL;
}

static int ib_start_thread(struct ib_device *dev)
{
	int flags = fcntl(dev->ctx->async_fd, F_GETFL), err;

	dev->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (dev->stop_fd < 0 || flags < 0 ||
	    fcntl(dev->ctx->async_fd, F_SETFL, flags | O_NONBLOCK))
		return weft_fail(-errno, "cannot watch the events of '%s'",
				 dev->name);
	err = weft_thread_start(&dev->thread, "weft-ib-event", event_thread,
				dev);
	if (err)
		return weft_fail(err,
				 "cannot start a thread for the events of '%s'",
				 dev->name);
	return 0;
}

static struct ibv_context *open_named(const struct weft_verbs *v,
				      const char *name)
{
	struct ibv_context *ctx = NULL;
	struct ibv_device **list;
	int i, n = 0;

	errno = 0;
	list = v->get_device_list(&n);
	for (i = 0; list && i < n && !ctx; i++)
		if (!strcmp(v->get_device_name(list[i]), name))
			ctx = v->open_device(list[i]);
	if (list)
		v->free_device_list(list);
	return ctx;
}

static void device_free(struct ib_device *dev)
{
	int err;

	if (dev->stop_fd >= 0)
		close(dev->stop_fd);
	err = dev->pd ? dev->v->dealloc_pd(dev->pd) : 0;
	if (err)
		weft_fail(-err,
			  "cannot deallocate the protection domain of '%s'",
			  dev->name);
	err = dev->ctx ? dev->v->close_device(dev->ctx) : 0;
	if (err)
		weft_fail(-err, "cannot close '%s'", dev->name);
	free(dev);
}

static int device_open(const char *name, struct ib_device **out)
{
	struct ib_device *dev = calloc(1, sizeof(*dev));
	int err;

	if (!dev)
		return -ENOMEM;
	dev->stop_fd = -1;
	dev->forks = weft_forks();
	dev->v = weft_verbs();
	weft_list_init(&dev->alarms);
	snprintf(dev->name, sizeof(dev->name), "%s", name);
	if (!dev->v) {
		err = weft_fail(
			-ENODEV,
			"cannot use '%s' without libibverbs; install rdma-core (package libibverbs1)",
			name);
		goto fail;
	}
	dev->ctx = open_named(dev->v, name);
	if (!dev->ctx) {
		err = errno ? -errno : -ENODEV;
		weft_fail(
			err,
			"cannot open the verbs device '%s' (is /dev/infiniband in this container?)",
			name);
		goto fail;
	}
	err = dev->v->query_device(dev->ctx, &dev->attr);
	if (err) {
		err = weft_fail(-err, "cannot query '%s'", name);
		goto fail;
	}
	dev->pd = dev->v->alloc_pd(dev->ctx);
	if (!dev->pd) {
		err = weft_fail(-errno,
				"cannot create a protection domain on '%s'",
				name);
		goto fail;
	}
	err = ib_start_thread(dev);
	if (err)
		goto fail;
	*out = dev;
	return 0;
fail:
	device_free(dev);
	return err;
}

/* Forgets devices of the process that this one was forked off.  Lock held. */
static void forget_inherited(void)
{
	int i;

	for (i = 0; i < IB_MAX_DEVICES; i++)
		if (devices[i] && devices[i]->forks != weft_forks()) {
			atomic_fetch_and(&open_mask, ~(1u << i));
			devices[i] = NULL;
		}
}

/* The index of @name; or of a free slot; or -ENOSPC. */
static int find_device(const char *name)
{
	int i, unused = -ENOSPC;

	for (i = 0; i < IB_MAX_DEVICES; i++) {
		if (!devices[i])
			unused = unused < 0 ? i : unused;
		else if (!strcmp(devices[i]->name, name))
			return i;
	}
	return unused;
}

int ib_device_get(const char *name, struct ib_device **out)
{
	int at, err = 0;

	pthread_mutex_lock(&lock);
	forget_inherited();
	at = find_device(name);
	if (at < 0) {
		err = weft_fail(
			-ENOSPC,
			"cannot open '%s' beside %d other adapters; name those to use (WEFT_IB_DEVICES)",
			name, IB_MAX_DEVICES);
	} else if (!devices[at]) {
		err = device_open(name, &devices[at]);
		if (!err) {
			devices[at]->number = (unsigned int)at;
			atomic_fetch_or(&open_mask, 1u << at);
		}
	}
	if (!err) {
		devices[at]->refs++;
		*out = devices[at];
	}
	pthread_mutex_unlock(&lock);
	return err;
}

void ib_device_ref(struct ib_device *dev)
{
	pthread_mutex_lock(&lock);
	dev->refs++;
	pthread_mutex_unlock(&lock);
}

void ib_device_put(struct ib_device *dev)
{
	const uint64_t one = 1;
	bool last;

	pthread_mutex_lock(&lock);
	last = !--dev->refs;
	if (last) {
		devices[dev->number] = NULL;
		atomic_fetch_and(&open_mask, ~(1u << dev->number));
	}
	pthread_mutex_unlock(&lock);
	if (!last)
		return;
	while (write(dev->stop_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	pthread_join(dev->thread, NULL);
	device_free(dev);
}

unsigned int ib_device_hold(struct ib_device *list[IB_MAX_DEVICES])
{
	unsigned int i, n = 0;

	pthread_mutex_lock(&lock);
	forget_inherited();
	for (i = 0; i < IB_MAX_DEVICES; i++)
		if (devices[i]) {
			devices[i]->refs++;
			list[n++] = devices[i];
		}
	pthread_mutex_unlock(&lock);
	return n;
}

unsigned int ib_devices_open(void)
{
	return atomic_load(&open_mask);
}

void ib_device_add_alarm(struct ib_device *dev, struct ib_alarm *alarm)
{
	pthread_mutex_lock(&lock);
	weft_list_add_tail(&dev->alarms, &alarm->link);
	pthread_mutex_unlock(&lock);
}

void ib_device_del_alarm(struct ib_alarm *alarm)
{
	pthread_mutex_lock(&lock);
	weft_list_del(&alarm->link);
	pthread_mutex_unlock(&lock);
}

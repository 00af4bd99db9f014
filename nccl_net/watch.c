/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread for what comes by NVLink while NCCL does not call: a peer that
 * connects or asks for a ring.  It sleeps on the device's event descriptor; while
 * NCCL calls it only looks every few ms whether that goes on.
 */
#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "nccl_net/internal.h"
#include "util/log.h"

#define BUSY_MS		5	/* between looks whether NCCL still calls */
#define PATIENCE	16	/* rounds of progress for one sleep */

/* How long to sleep, in ms; -1: until something happens. */
static int prepare_to_sleep(struct weft_net *net, uint64_t *seen)
{
	struct weft_net_port *port = net->watched;
	unsigned int i;

	if (!port)
		return -1;
	if (net->calls != *seen) {
		*seen = net->calls;
		return BUSY_MS;
	}
	/* what will not end soon is looked at again, without the lock */
	for (i = 0; port->ops->arm(port->iface) == -EBUSY; i++) {
		if (i == PATIENCE)
			return 1;
		port->ops->progress(port->iface);
	}
	net->watch_asleep = true;
	return -1;
}

static void *watch(void *arg)
{
	struct weft_net *net = arg;
	struct pollfd fd[2];
	uint64_t seen = 0, drained;
	int timeout;

	pthread_setname_np(pthread_self(), "weft-watch");
	pthread_mutex_lock(&net->lock);
	fd[0] = (struct pollfd){ net->watch_fd, POLLIN, 0 };
	while (weft_net_thread_wanted(&net->watcher)) {
		timeout = prepare_to_sleep(net, &seen);
		/* closed meanwhile: watch_fd rings, too */
		fd[1] = (struct pollfd){
			net->watched && timeout < 0 ?
			net->watched->ops->event_fd(net->watched->iface) : -1,
			POLLIN, 0
		};
		pthread_mutex_unlock(&net->lock);
		poll(fd, 2, timeout);
		if ((fd[0].revents & POLLIN) &&
		    read(fd[0].fd, &drained, sizeof(drained)) < 0)
			weft_debug("the watcher was woken twice");
		pthread_mutex_lock(&net->lock);
		/* else another watcher may be asleep already */
		if (!weft_net_thread_wanted(&net->watcher))
			break;
		net->watch_asleep = false;
		if (net->watched && net->calls == seen) {
			net->watched->ops->progress(net->watched->iface);
			weft_net_ready_peers(net);
		}
	}
	pthread_mutex_unlock(&net->lock);
	return NULL;
}

int weft_net_watch_start(struct weft_net *net)
{
	int err;

	if (net->watcher.on)
		return 0;
	net->watch_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (net->watch_fd < 0)
		return weft_fail(errno, "cannot make an eventfd");
	err = weft_net_thread_start(net, &net->watcher, watch);
	if (!err)
		return 0;
	close(net->watch_fd);
	net->watch_fd = -1;
	return weft_fail(err, "cannot start a thread");
}

void weft_net_watch_look(struct weft_net *net)
{
	uint64_t one = 1;

	net->watch_asleep = false;
	if (net->watch_fd >= 0 && write(net->watch_fd, &one, sizeof(one)) < 0)
		weft_debug("the watcher is awake");
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Progress: in NCCL's calls, and in two threads for what comes between them.
 *
 * The threads are there while it has a
 * listener or a comm.  NCCL up to 2.27 has one context for good and never says
 * that it is done with it, but for unloading us, which a program that loaded
 * NCCL statically or twice never sees; so closing the last user ends them, and
 * the next one starts them again.
 *
 * The call that ends them waits for them, without the lock: once it returns
 * none of weft's code runs, and NCCL may unload it.  A thread that must end may
 * find another in its place when it gets the lock, so it compares its own id.
 */
#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "nccl_net/bounce.h"
#include "nccl_net/context.h"
#include "nccl_net/peer.h"
#include "nccl_net/ports.h"
#include "nccl_net/progress.h"
#include "util/log.h"
#include "util/thread.h"

/* Calls of progress() between looks at a port without peers. */
#define SKIPS	 256u
#define PAUSE_US 500
#define BUSY_MS	 5  /* between looks whether NCCL still calls */
#define PATIENCE 16 /* rounds of progress for one sleep */

int weft_net_lock(struct weft_net *net)
{
	if (weft_net_inherited(net))
		return weft_fail(
			ECANCELED,
			"this process was forked off the one that uses NCCL");
	pthread_mutex_lock(&net->lock);
	if (!net->closed)
		return 0;
	pthread_mutex_unlock(&net->lock);
	return -ECANCELED;
}

void weft_net_events_update(struct weft_net *net)
{
	uint64_t one = 1;

	net->event_thread_asleep = false;
	if (net->event_thread_fd >= 0 &&
	    write(net->event_thread_fd, &one, sizeof(one)) < 0)
		weft_debug("the event thread is awake");
}

/*
 * NCCL calls for each of its requests, tens of times a round.  Where all
 * traffic has a better wire, other ports only wait for a peer to connect.
 */
static bool may_skip(struct weft_net *net, struct weft_net_port *port)
{
	return port->wire > net->best && weft_list_empty(&port->peers) &&
	       weft_list_empty(&port->closing) && ++port->skipped % SKIPS != 0;
}

/* Both sides must do this, whichever of them waits for it. */
static void prepare_peers(struct weft_net *net)
{
	struct weft_net_peer *peer, *tmp;

	if (!net->events_port)
		return;
	weft_list_for_each (peer, tmp, &net->events_port->peers, link)
		if (!peer->prepared)
			weft_net_peer_prepare(peer);
}

unsigned int weft_net_progress(struct weft_net *net)
{
	struct weft_net_port *port, *tmp;
	unsigned int n = 0;

	net->calls++;
	weft_net_flush_posts(net);
	if (net->event_thread_asleep)
		weft_net_events_update(net);
	weft_list_for_each (port, tmp, &net->ports, link) {
		if (may_skip(net, port))
			continue;
		n += port->ops->progress(port->iface);
		if (!weft_list_empty(&port->closing))
			weft_net_peer_reap(port, false);
	}
	prepare_peers(net);
	if (!weft_list_empty(&net->copying))
		weft_net_bounce_progress(net);
	return n;
}

void weft_net_yield(struct weft_net *net, unsigned int us)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += us * 1000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_nsec -= 1000000000;
		t.tv_sec++;
	}
	pthread_cond_timedwait(&net->pause, &net->lock, &t);
}

static int start_thread(struct weft_net *net, struct weft_net_thread *t,
			const char *name, void *(*run)(void *net))
{
	int err = weft_thread_start(&t->id, name, run, net);

	t->on = !err;
	return err;
}

static bool is_thread_wanted(const struct weft_net_thread *t)
{
	return t->on && pthread_equal(t->id, pthread_self());
}

/*
 * The event thread serves NVLink while NCCL does not call: a peer that connects
 * or asks for a ring.  It sleeps on the device's event descriptor; while NCCL
 * calls it only checks every few ms whether that goes on.
 */

/* How long to sleep, in ms; -1: until something happens. */
static int prepare_to_sleep(struct weft_net *net, uint64_t *seen)
{
	struct weft_net_port *port = net->events_port;
	unsigned int i;

	if (!port)
		return -1;
	if (net->calls != *seen) {
		*seen = net->calls;
		return BUSY_MS;
	}
	/* what does not end soon is polled again, without the lock */
	for (i = 0; port->ops->arm(port->iface) == -EBUSY; i++) {
		if (i == PATIENCE)
			return 1;
		port->ops->progress(port->iface);
	}
	net->event_thread_asleep = true;
	return -1;
}

static void *run_event_thread(void *arg)
{
	struct weft_net *net = arg;
	struct weft_net_port *port;
	struct pollfd fd[2];
	uint64_t seen = 0, drained;
	int timeout;

	pthread_mutex_lock(&net->lock);
	fd[0] = (struct pollfd){ net->event_thread_fd, POLLIN, 0 };
	while (is_thread_wanted(&net->event_thread)) {
		timeout = prepare_to_sleep(net, &seen);
		/* closed meanwhile: event_thread_fd is readable, too */
		port = net->events_port;
		fd[1] = (struct pollfd){
			port && timeout < 0 ? port->ops->event_fd(port->iface)
					    : -1,
			POLLIN, 0
		};
		pthread_mutex_unlock(&net->lock);
		poll(fd, 2, timeout);
		if ((fd[0].revents & POLLIN) &&
		    read(fd[0].fd, &drained, sizeof(drained)) < 0)
			weft_debug("the event thread was woken twice");
		pthread_mutex_lock(&net->lock);
		/* else another event thread may be asleep already */
		if (!is_thread_wanted(&net->event_thread))
			break;
		net->event_thread_asleep = false;
		port = net->events_port;
		if (port && net->calls == seen) {
			port->ops->progress(port->iface);
			prepare_peers(net);
		}
	}
	pthread_mutex_unlock(&net->lock);
	return NULL;
}

int weft_net_events_start(struct weft_net *net)
{
	int err;

	if (net->event_thread.on)
		return 0;
	net->event_thread_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (net->event_thread_fd < 0)
		return weft_fail(errno, "cannot create an eventfd");
	err = start_thread(net, &net->event_thread, "weft-events",
			   run_event_thread);
	if (!err)
		return 0;
	close(net->event_thread_fd);
	net->event_thread_fd = -1;
	return weft_fail(err, "cannot start a thread");
}

/*
 * NCCL stops calling when its own requests are done.  What a device could not
 * hand to a full socket by then (a small send, an acknowledgement, the answer
 * to a connection) would stay here while a peer waits for it: the flusher
 * thread, started when this first happens, sends it.
 */

static bool is_any_peer_unsent(struct weft_list *peers)
{
	struct weft_net_peer *peer, *tmp;

	weft_list_for_each (peer, tmp, peers, link)
		if (weft_net_peer_has_unsent(peer))
			return true;
	return false;
}

static bool has_unsent(struct weft_net *net)
{
	struct weft_net_port *port, *tmp;

	weft_list_for_each (port, tmp, &net->ports, link)
		if (!port->kernels_wait && (is_any_peer_unsent(&port->peers) ||
					    is_any_peer_unsent(&port->closing)))
			return true;
	return false;
}

static void *run_flusher_thread(void *arg)
{
	struct weft_net *net = arg;

	pthread_mutex_lock(&net->lock);
	while (is_thread_wanted(&net->flusher_thread)) {
		if (has_unsent(net)) {
			/* A caller of NCCL is faster than this. */
			weft_net_yield(net, PAUSE_US);
			weft_net_progress(net);
		} else {
			pthread_cond_wait(&net->flusher_wake, &net->lock);
		}
	}
	pthread_mutex_unlock(&net->lock);
	return NULL;
}

static void start_flusher_thread(struct weft_net *net)
{
	int err = start_thread(net, &net->flusher_thread, "weft-flusher",
			       run_flusher_thread);

	if (err)
		weft_warn_once("cannot start a thread (%s): a rank may wait "
			       "for data until NCCL calls again",
			       err == -EAGAIN ? "too many" : "no memory");
}

void weft_net_flusher_start(struct weft_net_peer *peer)
{
	struct weft_net *net = peer->port->net;

	/* the event thread's */
	if (peer->port->kernels_wait || !weft_net_peer_has_unsent(peer))
		return;
	if (net->flusher_thread.on)
		pthread_cond_signal(&net->flusher_wake);
	else
		start_flusher_thread(net);
}

void weft_net_progress_init(struct weft_net *net)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&net->flusher_wake, &attr);
	pthread_cond_init(&net->pause, &attr);
	pthread_condattr_destroy(&attr);
}

void weft_net_close_done(struct weft_net *net)
{
	if (!--net->closing && net->closed)
		pthread_cond_broadcast(&net->pause);
}

void weft_net_threads_stop(struct weft_net *net)
{
	const struct weft_net_thread flusher_thread = net->flusher_thread;
	const struct weft_net_thread event_thread = net->event_thread;
	const int fd = net->event_thread_fd;

	net->flusher_thread.on = false;
	net->event_thread.on = false;
	weft_net_events_update(net);
	net->event_thread_fd = -1;
	pthread_cond_broadcast(&net->flusher_wake);
	net->closing++;
	pthread_mutex_unlock(&net->lock);
	if (flusher_thread.on)
		pthread_join(flusher_thread.id, NULL);
	if (event_thread.on)
		pthread_join(event_thread.id, NULL);
	if (fd >= 0)
		close(fd);
	pthread_mutex_lock(&net->lock);
	weft_net_close_done(net);
}

void weft_net_unlock(struct weft_net *net)
{
	if (!net->users && (net->flusher_thread.on || net->event_thread.on))
		weft_net_threads_stop(net);
	pthread_mutex_unlock(&net->lock);
}

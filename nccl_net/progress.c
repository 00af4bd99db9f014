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
 * Whoever ends them waits for them, without the lock: once NCCL's call returns
 * no code of ours runs, and NCCL may unload it.  A thread that was told to end
 * may find another in its place when it gets the lock, hence it looks for itself.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "nccl_net/bounce.h"
#include "nccl_net/context.h"
#include "nccl_net/peer.h"
#include "nccl_net/ports.h"
#include "nccl_net/progress.h"
#include "util/log.h"

/* Calls of progress() between looks at a port without peers. */
#define SKIPS		256u
#define PAUSE_US	500
#define BUSY_MS		5	/* between looks whether NCCL still calls */
#define PATIENCE	16	/* rounds of progress for one sleep */

int weft_net_begin(struct weft_net *net)
{
	pthread_mutex_lock(&net->lock);
	if (!net->closed)
		return 0;
	pthread_mutex_unlock(&net->lock);
	return -ECANCELED;
}

void weft_net_watch_look(struct weft_net *net)
{
	uint64_t one = 1;

	net->watch_asleep = false;
	if (net->watch_fd >= 0 && write(net->watch_fd, &one, sizeof(one)) < 0)
		weft_debug("the watcher is awake");
}

/*
 * NCCL calls for each of its requests, tens of times a round.  Where all goes by
 * a better wire the others only wait for somebody to connect.
 */
static bool may_skip(struct weft_net *net, struct weft_net_port *port)
{
	return port->wire > net->best &&
	       weft_list_empty(&port->peers) &&
	       weft_list_empty(&port->leaving) &&
	       ++port->skipped % SKIPS != 0;
}

/* Both sides must do this, whichever of them waits for it. */
static void ready_peers(struct weft_net *net)
{
	struct weft_net_peer *peer, *tmp;

	if (!net->watched)
		return;
	weft_list_for_each(peer, tmp, &net->watched->peers, link)
		if (!peer->prepared)
			weft_net_peer_ready(peer);
}

unsigned int weft_net_progress(struct weft_net *net)
{
	struct weft_net_port *port, *tmp;
	unsigned int n = 0;

	net->calls++;
	weft_net_send_posts(net);
	if (net->watch_asleep)
		weft_net_watch_look(net);
	weft_list_for_each(port, tmp, &net->ports, link) {
		if (may_skip(net, port))
			continue;
		n += port->ops->progress(port->iface);
		if (!weft_list_empty(&port->leaving))
			weft_net_peer_reap(port, false);
	}
	ready_peers(net);
	if (!weft_list_empty(&net->staged))
		weft_net_stage_progress(net);
	return n;
}

void weft_net_pause(struct weft_net *net, unsigned int us)
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

static int thread_start(struct weft_net *net, struct weft_net_thread *t,
			void *(*run)(void *net))
{
	sigset_t all, old;
	int err;

	/* The program's signals are not ours to take. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&t->id, NULL, run, net);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	t->on = !err;
	return err;
}

static bool thread_wanted(const struct weft_net_thread *t)
{
	return t->on && pthread_equal(t->id, pthread_self());
}

/*
 * A thread for what comes by NVLink while NCCL does not call: a peer that
 * connects or asks for a ring.  It sleeps on the device's event descriptor; while
 * NCCL calls it only looks every few ms whether that goes on.
 */

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
	while (thread_wanted(&net->watcher)) {
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
		if (!thread_wanted(&net->watcher))
			break;
		net->watch_asleep = false;
		if (net->watched && net->calls == seen) {
			net->watched->ops->progress(net->watched->iface);
			ready_peers(net);
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
	err = thread_start(net, &net->watcher, watch);
	if (!err)
		return 0;
	close(net->watch_fd);
	net->watch_fd = -1;
	return weft_fail(err, "cannot start a thread");
}

/*
 * NCCL stops calling when its own requests are done.  What a device could not
 * hand to a full socket by then (a small send, an acknowledgement, the answer to
 * a connection) would stay here while a peer waits for it: the keeper, a thread
 * that is started when this first happens, sees it out.
 */

static bool peers_unsent(struct weft_list *peers)
{
	struct weft_net_peer *peer, *tmp;

	weft_list_for_each(peer, tmp, peers, link)
		if (weft_net_peer_unsent(peer))
			return true;
	return false;
}

static bool unsent(struct weft_net *net)
{
	struct weft_net_port *port, *tmp;

	weft_list_for_each(port, tmp, &net->ports, link)
		if (!port->kernels_wait && (peers_unsent(&port->peers) ||
					    peers_unsent(&port->leaving)))
			return true;
	return false;
}

static void *keep(void *arg)
{
	struct weft_net *net = arg;

	pthread_setname_np(pthread_self(), "weft-keeper");
	pthread_mutex_lock(&net->lock);
	while (thread_wanted(&net->keeper)) {
		if (unsent(net)) {
			/* Whoever still calls is faster than this. */
			weft_net_pause(net, PAUSE_US);
			weft_net_progress(net);
		} else {
			pthread_cond_wait(&net->keeper_wake, &net->lock);
		}
	}
	pthread_mutex_unlock(&net->lock);
	return NULL;
}

static void keeper_start(struct weft_net *net)
{
	int err = thread_start(net, &net->keeper, keep);

	if (err)
		weft_warn_once("cannot start a thread (%s): a rank may wait "
			       "for data until NCCL calls again",
			       err == EAGAIN ? "too many" : "no memory");
}

void weft_net_keeper_look(struct weft_net_peer *peer)
{
	struct weft_net *net = peer->port->net;

	/* the watcher's */
	if (peer->port->kernels_wait || !weft_net_peer_unsent(peer))
		return;
	if (net->keeper.on)
		pthread_cond_signal(&net->keeper_wake);
	else
		keeper_start(net);
}

void weft_net_progress_init(struct weft_net *net)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&net->keeper_wake, &attr);
	pthread_cond_init(&net->pause, &attr);
	pthread_condattr_destroy(&attr);
}

void weft_net_left(struct weft_net *net)
{
	if (!--net->leaving && net->closed)
		pthread_cond_broadcast(&net->pause);
}

void weft_net_threads_end(struct weft_net *net)
{
	const struct weft_net_thread keeper = net->keeper;
	const struct weft_net_thread watcher = net->watcher;
	const int fd = net->watch_fd;

	net->keeper.on = false;
	net->watcher.on = false;
	weft_net_watch_look(net);
	net->watch_fd = -1;
	pthread_cond_broadcast(&net->keeper_wake);
	net->leaving++;
	pthread_mutex_unlock(&net->lock);
	if (keeper.on)
		pthread_join(keeper.id, NULL);
	if (watcher.on)
		pthread_join(watcher.id, NULL);
	if (fd >= 0)
		close(fd);
	pthread_mutex_lock(&net->lock);
	weft_net_left(net);
}

void weft_net_unlock(struct weft_net *net)
{
	if (!net->users && (net->keeper.on || net->watcher.on))
		weft_net_threads_end(net);
	pthread_mutex_unlock(&net->lock);
}

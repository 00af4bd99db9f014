/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Progress: in NCCL's calls, and in a thread for what comes between them.
 *
 * The thread is there while the context has a listener or a comm.  NCCL up to
 * 2.27 has one context and never finalizes it; it unloads the plugin, but not
 * in a program that links NCCL statically or loads it twice.  So closing the
 * last user ends the thread, and the next user starts another.
 *
 * The call that ends the thread waits for it, without the lock: once it returns
 * no code of weft runs, and NCCL may unload it.  A thread that must end may
 * find another in its place when it gets the lock, so it compares its own id.
 */
#include <errno.h>
#include <time.h>
#include "nccl_net/net/context.h"
#include "nccl_net/net/peer.h"
#include "nccl_net/net/ports.h"
#include "nccl_net/net/progress.h"
#include "util/log.h"
#include "util/thread.h"

#define PAUSE_US 500

int weft_net_lock(struct weft_net *net)
{
	if (weft_net_inherited(net))
		return weft_fail(
			-ECANCELED,
			"this process was forked off the one that uses NCCL");
	pthread_mutex_lock(&net->lock);
	if (!net->closed)
		return 0;
	pthread_mutex_unlock(&net->lock);
	return -ECANCELED;
}

unsigned int weft_net_progress(struct weft_net *net)
{
	struct weft_net_port *port, *tmp;
	unsigned int n = 0;

	net->calls++;
	weft_net_flush_posts(net);
	weft_list_for_each (port, tmp, &net->ports, link) {
		n += port->ops->progress(port->iface);
		if (!weft_list_empty(&port->closing))
			weft_net_peer_reap(port, false);
	}
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

static bool is_thread_wanted(const struct weft_net_thread *t)
{
	return t->on && pthread_equal(t->id, pthread_self());
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
		if (is_any_peer_unsent(&port->peers) ||
		    is_any_peer_unsent(&port->closing))
			return true;
	return false;
}

static void *run_flusher_thread(void *arg)
{
	struct weft_net *net = arg;

	pthread_mutex_lock(&net->lock);
	while (is_thread_wanted(&net->flusher_thread)) {
		if (has_unsent(net)) {
			/* Longer than NCCL takes between its own calls. */
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
	const int err =
		weft_thread_start(&net->flusher_thread.id, "weft-flusher",
				  run_flusher_thread, net);

	net->flusher_thread.on = !err;
	if (err)
		weft_warn_once(
			"cannot start a thread (%s): a rank may wait for data until NCCL calls again",
			err == -EAGAIN ? "too many" : "no memory");
}

void weft_net_flusher_start(struct weft_net_peer *peer)
{
	struct weft_net *net = peer->port->net;

	if (!weft_net_peer_has_unsent(peer))
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

void weft_net_flusher_stop(struct weft_net *net)
{
	const struct weft_net_thread flusher_thread = net->flusher_thread;

	net->flusher_thread.on = false;
	pthread_cond_broadcast(&net->flusher_wake);
	net->closing++;
	pthread_mutex_unlock(&net->lock);
	if (flusher_thread.on)
		pthread_join(flusher_thread.id, NULL);
	pthread_mutex_lock(&net->lock);
	weft_net_close_done(net);
}

void weft_net_unlock(struct weft_net *net)
{
	if (!net->users && net->flusher_thread.on)
		weft_net_flusher_stop(net);
	pthread_mutex_unlock(&net->lock);
}

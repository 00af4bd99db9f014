/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL stops calling when its own requests are done.  What a device could not
 * hand to a full socket by then (a small send, an acknowledgement, the answer to
 * a connection) would stay here while a peer waits for it: the keeper, a thread
 * that is started when this first happens, sees it out.
 */
#include <errno.h>
#include <time.h>
#include "nccl_net/internal.h"
#include "util/log.h"

#define PAUSE_US	500

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

static void *keep(void *arg)
{
	struct weft_net *net = arg;

	pthread_setname_np(pthread_self(), "weft-keeper");
	pthread_mutex_lock(&net->lock);
	while (weft_net_thread_wanted(&net->keeper)) {
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

void weft_net_keeper_init(struct weft_net *net)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&net->keeper_wake, &attr);
	pthread_cond_init(&net->pause, &attr);
	pthread_condattr_destroy(&attr);
}

static void keeper_start(struct weft_net *net)
{
	int err = weft_net_thread_start(net, &net->keeper, keep);

	if (err)
		weft_warn_once("cannot start a thread (%s): a rank may wait "
			       "for data until NCCL calls again",
			       err == EAGAIN ? "too many" : "no memory");
}

void weft_net_keeper_look(struct weft_net_peer *peer)
{
	struct weft_net *net = peer->port->net;

	/* the watcher's (watch.c) */
	if (peer->port->kernels_wait || !weft_net_peer_unsent(peer))
		return;
	if (net->keeper.on)
		pthread_cond_signal(&net->keeper_wake);
	else
		keeper_start(net);
}

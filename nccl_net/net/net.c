/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts, and the events of devices. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include "stats/stats.h"
#include "nccl_net/net/accept.h"
#include "nccl_net/net/comm.h"
#include "nccl_net/net/connect.h"
#include "nccl_net/net/context.h"
#include "nccl_net/net/hcas.h"
#include "nccl_net/net/peer.h"
#include "nccl_net/net/ports.h"
#include "nccl_net/net/progress.h"
#include "nccl_net/net/wire.h"
#include "nccl_net/net/xfer.h"
#include "settings/settings.h"
#include "util/log.h"

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_list all = { &all, &all };
static struct weft_net *shared;
static pid_t owner; /* a fork()ed child owns nothing */

static void on_message(void *arg, uint8_t id, void *data, size_t len)
{
	struct weft_net_port *port = arg;

	switch (id) {
	case WEFT_MSG_CONNECT:
		weft_net_on_connect(port, data, len);
		break;
	case WEFT_MSG_ACCEPT:
	case WEFT_MSG_REFUSE:
		weft_net_on_accept(port->net, data, len, id == WEFT_MSG_REFUSE);
		break;
	case WEFT_MSG_WITHDRAW:
		weft_net_on_withdraw(port->net, data, len);
		break;
	default:
		weft_net_on_request(port->net, (enum weft_net_msg)id, data,
				    len);
	}
}

static void on_error(void *arg, struct weft_ep *ep, void *user, int err)
{
	weft_net_peer_fail(user, err);
}

static void on_ready(void *arg, struct weft_ep *ep, void *user)
{
	struct weft_net_peer *peer = user;
	struct weft_net_comm *comm, *tmp;

	weft_list_for_each (comm, tmp, &peer->comms, link)
		weft_net_comm_push(comm);
}

static void peer_failed(struct weft_net_peer *peer)
{
	struct weft_net_comm *comm, *tmp;

	weft_net_dials_fail_peer(peer->port->net, peer, peer->err);
	weft_list_for_each (comm, tmp, &peer->comms, link)
		weft_net_comm_fail(comm, peer->err);
}

static const struct weft_net_ops ops = {
	.events = {
		.on_message = on_message,
		.on_notify = weft_net_on_notify,
		.on_error = on_error,
		.on_ready = on_ready,
	},
	.peer_failed = peer_failed,
};

int weft_net_open(struct weft_net **net)
{
	struct weft_net *n = calloc(1, sizeof(*n));
	const uint8_t *secret;
	size_t len;
	int ret;

	if (!n)
		return weft_fail(-ENOMEM, "cannot create a context");
	ret = weft_settings_secret(&secret, &len);
	if (ret < 0) {
		free(n);
		return ret;
	}
	weft_stats_runtime("nccl");
	n->ops = &ops;
	n->forks = weft_forks();
	pthread_mutex_init(&n->lock, NULL);
	weft_net_progress_init(n);
	weft_list_init(&n->ports);
	weft_list_init(&n->listeners);
	weft_list_init(&n->dialing);
	weft_list_init(&n->peers_with_posts);
	pthread_mutex_lock(&all_lock);
	owner = getpid();
	weft_list_add_tail(&all, &n->link);
	pthread_mutex_unlock(&all_lock);
	*net = n;
	return 0;
}

bool weft_net_active(void)
{
	bool active;

	pthread_mutex_lock(&all_lock);
	active = !weft_list_empty(&all);
	pthread_mutex_unlock(&all_lock);
	return active;
}

int weft_net_shared(struct weft_net **net)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	int ret = 0;

	pthread_mutex_lock(&lock);
	if (!shared || weft_net_inherited(shared))
		ret = weft_net_open(&shared);
	*net = shared;
	pthread_mutex_unlock(&lock);
	return ret;
}

/*
 * Ends all traffic and threads, but keeps the objects, since NCCL may still use
 * them: every call on them fails from now on.  Lock held.
 */
static void abandon_net(struct weft_net *net)
{
	struct weft_net_port *port, *tmp;
	struct weft_net_peer *peer, *ptmp;

	weft_list_for_each (port, tmp, &net->ports, link)
		weft_list_for_each (peer, ptmp, &port->peers, link)
			weft_net_peer_fail(peer, -ECANCELED);
	weft_net_ports_close(net);
}

void weft_net_close(struct weft_net *net)
{
	bool users;

	if (weft_net_inherited(net))
		return;
	pthread_mutex_lock(&all_lock);
	weft_list_del(&net->link);
	pthread_mutex_unlock(&all_lock);
	pthread_mutex_lock(&net->lock);
	/* also one that another call has started meanwhile */
	while (net->flusher_thread.on)
		weft_net_flusher_stop(net);
	weft_net_dials_drop_all(net);
	net->closed = true;
	users = net->users;
	if (users) {
		weft_debug("context closed with %u users left", net->users);
		abandon_net(net);
	}
	/*
	 * Let calls that are closing a connection finish and leave this
	 * library.
	 */
	pthread_cond_broadcast(&net->pause);
	while (net->closing)
		pthread_cond_wait(&net->pause, &net->lock);
	pthread_mutex_unlock(&net->lock);
	if (users)
		return;
	pthread_cond_destroy(&net->pause);
	pthread_cond_destroy(&net->flusher_wake);
	pthread_mutex_destroy(&net->lock);
	free(net->comms);
	free(net);
}

/* Last of all: NCCL closes the plugin and may open it again. */
__attribute__((destructor(101))) static void forget_settings(void)
{
	if (owner != getpid()) /* a child's lock may be held forever */
		return;
	weft_net_hcas_forget();
	weft_settings_reset();
}

/*
 * NCCL unloads the plugin with its last communicator, even an aborted one that
 * leaves comms behind: no thread or handler of weft may outlive it.
 */
__attribute__((destructor)) static void unload(void)
{
	struct weft_net *net, *tmp;

	if (owner != getpid())
		return;
	weft_list_for_each (net, tmp, &all, link)
		weft_net_close(net);
}

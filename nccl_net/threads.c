/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The context's threads (keeper.c, watch.c): they are there while it has a
 * listener or a comm.  NCCL up to 2.27 has one context for good and never says
 * that it is done with it, but for unloading us, which a program that loaded
 * NCCL statically or twice never sees; so closing the last user ends them, and
 * the next one starts them again.
 *
 * Whoever ends them waits for them, without the lock: once NCCL's call returns
 * no code of ours runs, and NCCL may unload it.  A thread that was told to end
 * may find another in its place when it gets the lock, hence it looks for itself.
 */
#include <signal.h>
#include <unistd.h>
#include "nccl_net/internal.h"

int weft_net_thread_start(struct weft_net *net, struct weft_net_thread *t,
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

bool weft_net_thread_wanted(const struct weft_net_thread *t)
{
	return t->on && pthread_equal(t->id, pthread_self());
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

void weft_net_left(struct weft_net *net)
{
	if (!--net->leaving && net->closed)
		pthread_cond_broadcast(&net->pause);
}

void weft_net_unlock(struct weft_net *net)
{
	if (!net->users && (net->keeper.on || net->watcher.on))
		weft_net_threads_end(net);
	pthread_mutex_unlock(&net->lock);
}

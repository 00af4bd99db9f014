/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Engines move the bulk streams.  With cores to spare each has its own thread,
 * woken through wake_fd when it sleeps.  On few cores the caller runs the one
 * engine inside progress(), since a thread would compete with a spinning caller
 * for the processor; a caller that turns out to sleep leaves a core free, and
 * the engine gets a thread then.
 */
#include "devices/tcp/bulk/tcp_engine.h"
#include "devices/tcp/bulk/tcp_event.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "host/host.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/thread.h"

#define MANY_CPUS 8u  /* from here on engines have their own threads */
#define TURNS	  8u  /* of streams in one call: 2 MiB each (tcp_stream.c) */
#define SLEEPER	  64u /* calls of arm(); UCP makes a few even if it spins */

static void tcp_end_stream(struct tcp_stream *s, int err)
{
	s->err = err;
	s->readable = false;
	atomic_store(&s->writable, false);
	weft_list_del(&s->ready_link);
	tcp_events_add_stream(s);
}

static void mark_ready(struct tcp_engine *eng, struct tcp_stream *s)
{
	if (!s->err && weft_list_empty(&s->ready_link))
		weft_list_add_tail(&eng->ready, &s->ready_link);
}

/* Moves streams that are ready, TURNS at most.  Engine lock held. */
static unsigned int run_ready(struct tcp_engine *eng)
{
	const struct weft_list *last = eng->ready.prev;
	struct tcp_stream *s;
	unsigned int n = 0;
	bool again;
	int err;

	if (weft_list_empty(&eng->ready))
		return 0;
	if (atomic_load(&eng->mode) == TCP_ENGINE_POLLING)
		atomic_store(&eng->mode, TCP_ENGINE_BUSY);
	do {
		s = weft_list_first(&eng->ready, struct tcp_stream, ready_link);
		weft_list_del(&s->ready_link);
		again = false;
		err = tcp_stream_io(s, &again);
		if (err)
			tcp_end_stream(s, err);
		else if (again)
			weft_list_add_tail(&eng->ready, &s->ready_link);
	} while (++n < TURNS && &s->ready_link != last);
	return n;
}

/* Engine lock held. */
static unsigned int run_locked(struct tcp_engine *eng)
{
	struct epoll_event ev[32];
	struct tcp_stream *s, *ts;
	uint64_t wakes;
	int i, n;

	n = epoll_wait(eng->epfd, ev, ARRAY_SIZE(ev), 0);
	for (i = 0; i < n; i++) {
		s = ev[i].data.ptr;
		if (!s) {
			while (read(eng->wake_fd, &wakes, sizeof(wakes)) < 0 &&
			       errno == EINTR)
				;
			continue;
		}
		if (ev[i].events & ~EPOLLOUT)
			s->readable = true;
		if (ev[i].events & EPOLLOUT)
			atomic_store(&s->writable, true);
		mark_ready(eng, s);
	}
	if (atomic_exchange(&eng->has_work, false))
		weft_list_for_each (s, ts, &eng->streams, eng_link)
			if (s->out ? atomic_load(&s->writable) : s->readable)
				mark_ready(eng, s);
	return run_ready(eng);
}

unsigned int tcp_engine_run(struct tcp_engine *eng)
{
	unsigned int n;

	/* a thread runs it */
	if (pthread_mutex_trylock(&eng->lock))
		return 0;
	n = run_locked(eng);
	pthread_mutex_unlock(&eng->lock);
	return n;
}

/*
 * When Linux enlarges the table of descriptors, the caller waits, with threads
 * for tens of milliseconds (fs/file.c, expand_fdtable() after
 * synchronize_rcu()). Streams are dialled amid traffic, so an engine's thread
 * enlarges the table ahead, for the streams of one connection.
 */
static void grow_fd_table(const struct tcp_engine *eng)
{
	int fd = fcntl(eng->wake_fd, F_DUPFD_CLOEXEC,
		       eng->wake_fd + 2 * (int)TCP_MAX_STREAMS);

	if (fd >= 0) /* on failure the dials will report the limit */
		close(fd);
}

static void *engine_thread(void *arg)
{
	struct tcp_engine *eng = arg;
	struct pollfd pfd = { .fd = eng->epfd, .events = POLLIN };
	uint64_t idle_since = 0;
	unsigned int n;
	bool more;

	if (eng == eng->iface->engines)
		grow_fd_table(eng);
	while (!atomic_load(&eng->stop)) {
		pthread_mutex_lock(&eng->lock);
		n = run_locked(eng);
		more = !weft_list_empty(&eng->ready);
		pthread_mutex_unlock(&eng->lock);
		atomic_store(&eng->mode,
			     n || more ? TCP_ENGINE_BUSY : TCP_ENGINE_POLLING);
		if (n || more) {
			idle_since = 0;
			continue;
		}
		if (!idle_since)
			idle_since = weft_now_ns();
		if (weft_now_ns() - idle_since < TCP_SPIN_NS)
			continue;
		/* mode is set before the last look, has_work before mode is
		 * read: one of the two sides sees the other */
		atomic_store(&eng->mode, TCP_ENGINE_ASLEEP);
		if (!atomic_load(&eng->has_work) && !atomic_load(&eng->stop))
			poll(&pfd, 1, -1); /* wake_fd is in epfd */
		atomic_store(&eng->mode, TCP_ENGINE_BUSY);
		idle_since = 0;
	}
	return NULL;
}

static void wake_thread(struct tcp_engine *eng)
{
	uint64_t one = 1;

	while (write(eng->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static bool wake_sleeper(struct tcp_engine *eng)
{
	int mode = TCP_ENGINE_ASLEEP;

	if (!atomic_compare_exchange_strong(&eng->mode, &mode,
					    TCP_ENGINE_WOKEN))
		return false;
	wake_thread(eng);
	return true;
}

/* May @s send a chunk at once if its engine is idle? */
static bool can_take_chunk(const struct tcp_stream *s)
{
	return s->out && !s->abandoned && !atomic_load(&s->suspended) &&
	       atomic_load(&s->writable);
}

/* Assigns a chunk to each thread in @mode; returns how many are left. */
static unsigned int assign_chunks(struct tcp_conn *conn,
				  enum tcp_engine_mode mode,
				  unsigned int chunks)
{
	struct tcp_engine *eng, *first = conn->iface->engines;
	struct tcp_stream *s, *ts;
	unsigned int given = 0;

	weft_list_for_each (s, ts, &conn->bulk->streams, link) {
		if (!chunks)
			break;
		eng = s->engine;
		if (!can_take_chunk(s) || given & BIT(eng - first) ||
		    !eng->has_thread || atomic_load(&eng->mode) != (int)mode)
			continue;
		if (mode == TCP_ENGINE_ASLEEP && !wake_sleeper(eng))
			continue;
		given |= BIT(eng - first);
		chunks--;
	}
	return chunks;
}

/*
 * Waking a thread costs the caller as much as sending a small chunk, so use
 * awake threads first, and wake no more than there are chunks.  A thread or
 * stream that this skips still finds its chunk later: when the thread is done,
 * or the stream has room.
 */
void tcp_engines_give(struct tcp_conn *conn, unsigned int chunks)
{
	struct tcp_iface *iface = conn->iface;
	struct tcp_engine *eng;
	unsigned int i;

	if (!chunks)
		return;
	/* set it before reading modes: a thread reads it before it sleeps */
	for (i = 0; i < iface->nengines; i++) {
		eng = &iface->engines[i];
		if (!eng->nstreams)
			continue;
		atomic_store(&eng->has_work, true);
		if (!eng->has_thread)
			tcp_engine_run(eng);
	}
	chunks = assign_chunks(conn, TCP_ENGINE_POLLING, chunks);
	chunks = assign_chunks(conn, TCP_ENGINE_WOKEN, chunks);
	assign_chunks(conn, TCP_ENGINE_ASLEEP, chunks);
}

void tcp_engines_wake(struct tcp_conn *conn)
{
	if (conn->bulk)
		tcp_engines_give(conn, tcp_bulk_waiting(conn->bulk));
}

void tcp_engines_resume(struct tcp_iface *iface)
{
	struct tcp_engine *eng;
	unsigned int i;

	iface->found.room = false;
	for (i = 0; i < iface->nengines; i++) {
		eng = &iface->engines[i];
		/*
		 * if it has streams, arm() must return -EBUSY until progress()
		 * has run it
		 */
		if (!eng->nstreams)
			continue;
		atomic_store(&eng->has_work, true);
		if (eng->has_thread)
			wake_sleeper(eng);
	}
}

/* progress() runs it as well. */
static unsigned int handle_engine(struct weft_source *src, uint32_t events)
{
	return 0;
}

static int engine_open(struct tcp_engine *eng, struct tcp_iface *iface)
{
	struct epoll_event event = { .events = EPOLLIN };
	int err = 0;

	eng->src.handle = handle_engine;
	eng->iface = iface;
	weft_list_init(&eng->streams);
	weft_list_init(&eng->ready);
	pthread_mutex_init(&eng->lock, NULL);
	eng->epfd = epoll_create1(EPOLL_CLOEXEC);
	eng->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (eng->epfd < 0 || eng->wake_fd < 0 ||
	    epoll_ctl(eng->epfd, EPOLL_CTL_ADD, eng->wake_fd, &event) ||
	    /* the caller's event fd reports the streams that it moves */
	    weft_events_add(&iface->base.events, eng->epfd, &eng->src,
			    EPOLLIN)) {
		err = -errno;
		weft_warn_once(
			"cannot create an event queue for bulk transfers: %m; raise the limit with 'ulimit -n'");
	}
	return err;
}

static void engine_close(struct tcp_engine *eng)
{
	if (eng->has_thread) {
		atomic_store(&eng->stop, true);
		wake_thread(eng);
		pthread_join(eng->thread, NULL);
		eng->has_thread = false;
	}
	if (eng->epfd >= 0)
		close(eng->epfd);
	if (eng->wake_fd >= 0)
		close(eng->wake_fd);
	pthread_mutex_destroy(&eng->lock);
}

void tcp_engines_close(struct tcp_iface *iface)
{
	unsigned int i;

	for (i = 0; i < iface->nengines; i++)
		engine_close(&iface->engines[i]);
	free(iface->engines);
	iface->engines = NULL;
	iface->nengines = 0;
}

static void tcp_start_thread(struct tcp_engine *eng)
{
	int err;

	eng->has_thread = true;
	err = weft_thread_start(&eng->thread, "weft-tcp", engine_thread, eng);
	if (err) {
		eng->has_thread = false;
		weft_warn_once(
			"cannot start a thread for bulk transfers: %s; they move only inside progress()",
			strerror(-err));
		return;
	}
	/* the event fd reports what it delivers, not its streams */
	weft_events_del(&eng->iface->base.events, eng->epfd);
}

/* Never reversed: the caller runs no engine from here on. */
static void start_threads(struct tcp_iface *iface)
{
	unsigned int i;

	for (i = 0; i < iface->nengines; i++)
		tcp_start_thread(&iface->engines[i]);
}

void tcp_engines_sleep(struct tcp_iface *iface)
{
	if (iface->engines && !iface->spare_cores &&
	    weft_settings()->tcp_threads && ++iface->sleeps == SLEEPER)
		start_threads(iface);
}

/*
 * Allocated for the first bulk stream, so that an interface that carries only
 * messages has neither threads nor descriptors for them.  Two processes of one
 * host take three quarters of its processors together; an engine without a
 * stream sleeps, and as many streams are opened as pay (tcp_tune.c).
 */
int tcp_engines_need(struct tcp_iface *iface)
{
	unsigned int cpus = weft_host_cpus(), want, i;
	unsigned int setting = weft_settings()->tcp_threads;
	int err;

	if (iface->engines)
		return 0;
	err = weft_events_need_wake(&iface->base.events);
	if (err)
		return err;
	iface->spare_cores = setting == UINT_MAX ? cpus >= MANY_CPUS : setting;
	want = 1;
	if (iface->spare_cores)
		want = setting == UINT_MAX ? cpus * 3 / 8 : setting;
	want = weft_min(want, TCP_MAX_ENGINES);
	iface->engines = calloc(want, sizeof(*iface->engines));
	if (!iface->engines)
		return -ENOMEM;
	for (i = 0; i < want; i++) {
		iface->nengines++;
		err = engine_open(&iface->engines[i], iface);
		if (err) {
			tcp_engines_close(iface);
			return err;
		}
	}
	if (iface->spare_cores)
		start_threads(iface);
	return 0;
}

void tcp_engines_sync(struct tcp_iface *iface)
{
	unsigned int i;

	for (i = 0; i < iface->nengines; i++) {
		pthread_mutex_lock(&iface->engines[i].lock);
		pthread_mutex_unlock(&iface->engines[i].lock);
	}
}

int tcp_stream_attach(struct tcp_conn *conn, int fd, bool out, uint32_t id)
{
	struct epoll_event ev = {
		.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
	};
	struct tcp_iface *iface = conn->iface;
	struct tcp_engine *eng;
	struct tcp_stream *s;
	unsigned int i, n;
	int err;

	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	eng = &iface->engines[0];
	for (i = 1; i < iface->nengines; i++)
		if (iface->engines[i].nstreams < eng->nstreams)
			eng = &iface->engines[i];
	s->id = id;
	s->conn = conn;
	s->engine = eng;
	s->fd = fd;
	s->out = out;
	s->readable = true;
	atomic_init(&s->writable, true);
	s->used_ms = weft_now_ms();
	weft_list_init(&s->ready_link);
	weft_list_init(&s->report_link);
	weft_list_init(&s->sent);
	ev.data.ptr = s;

	pthread_mutex_lock(&eng->lock);
	if (epoll_ctl(eng->epfd, EPOLL_CTL_ADD, fd, &ev)) {
		err = -errno;
		pthread_mutex_unlock(&eng->lock);
		free(s);
		return err;
	}
	eng->nstreams++;
	weft_list_add_tail(&eng->streams, &s->eng_link);
	weft_list_add_tail(&eng->ready, &s->ready_link);
	pthread_mutex_unlock(&eng->lock);

	n = tcp_bulk_add_stream(conn->bulk, s);
	if (n > atomic_load(&conn->stats->streams_max))
		atomic_store(&conn->stats->streams_max, n);
	atomic_store(&eng->has_work, true);
	if (eng->has_thread)
		wake_sleeper(eng);
	return 0;
}

struct tcp_put *tcp_stream_stop(struct tcp_stream *s)
{
	struct tcp_engine *eng = s->engine;
	struct tcp_put *put;

	pthread_mutex_lock(&eng->lock);
	epoll_ctl(eng->epfd, EPOLL_CTL_DEL, s->fd, NULL);
	s->readable = false;
	atomic_store(&s->writable, false);
	weft_list_del(&s->ready_link);
	put = s->out_chunk ? s->out_chunk->put : NULL;
	s->out_chunk = NULL;
	pthread_mutex_unlock(&eng->lock);
	return put;
}

void tcp_stream_detach(struct tcp_stream *s)
{
	struct tcp_engine *eng = s->engine;
	struct tcp_iface *iface = s->conn->iface;

	pthread_mutex_lock(&eng->lock);
	epoll_ctl(eng->epfd, EPOLL_CTL_DEL, s->fd, NULL);
	weft_list_del(&s->eng_link);
	weft_list_del(&s->ready_link);
	eng->nstreams--;
	close(s->fd);
	pthread_mutex_unlock(&eng->lock);

	pthread_mutex_lock(&iface->found.lock);
	weft_list_del(&s->report_link);
	pthread_mutex_unlock(&iface->found.lock);

	tcp_bulk_forget_stream(s->conn->bulk, s);
	if (s->out_chunk)
		tcp_bulk_release(s->conn, s->out_chunk->put, true);
	free(s->ack_buf);
	free(s);
}

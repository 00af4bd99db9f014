/* SPDX-License-Identifier: BSD-3-Clause */
/* The listeners of a session, and pauses in accepting. */
#include "devices/common/session.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/log.h"

#define ACCEPT_BATCH 64
/*
 * Pause before accept() after descriptors ran out or all places were taken;
 * otherwise the waiting connection would wake a sleeping process again and
 * again.
 */
#define ACCEPT_PAUSE_MS 100

static void pause_accept(struct weft_session *s)
{
	unsigned int i;

	for (i = 0; i < s->nlisteners; i++)
		weft_events_del(s->events, s->listeners[i].fd);
	s->accept_ms = weft_now_ms() + ACCEPT_PAUSE_MS;
	weft_events_wake_at(s->events, s->accept_ms);
}

void weft_session_resume_accept(struct weft_session *s, uint64_t now)
{
	struct weft_listener *l;
	int err = 0;

	if (!s->accept_ms)
		return;
	if (now < s->accept_ms) {
		weft_events_wake_at(s->events, s->accept_ms);
		return;
	}
	s->accept_ms = 0;
	for (l = s->listeners; l < s->listeners + s->nlisteners && !err; l++)
		err = weft_events_add(s->events, l->fd, &l->src, EPOLLIN);
	if (err)
		pause_accept(s);
}

/* Pauses on errors that an immediate retry would not change. */
static void fail_accept(struct weft_session *s, int err)
{
	switch (err) {
	case EMFILE:
	case ENFILE:
		weft_warn_once(
			"cannot accept a peer on '%s': %s; raise the limit with '%s'",
			s->name, strerror(err),
			err == EMFILE ? "ulimit -n" : "sysctl fs.file-max");
		break;
	case ENOBUFS:
	case ENOMEM:
		weft_warn_once("cannot accept a peer on '%s': %s; trying again",
			       s->name, strerror(err));
		break;
	default: /* it concerns one peer, or none was waiting */
		return;
	}
	pause_accept(s);
}

static void read_unproven(struct weft_unproven *st)
{
	struct weft_handshake *hs =
		container_of(st, struct weft_handshake, unproven);

	hs->src.handle(&hs->src, EPOLLIN);
}

static void end_unproven(struct weft_unproven *st)
{
	weft_handshake_fail(container_of(st, struct weft_handshake, unproven),
			    -ECONNRESET);
}

static unsigned int handle_listener(struct weft_source *src, uint32_t events)
{
	struct weft_listener *l = container_of(src, struct weft_listener, src);
	struct weft_session *s = l->session;
	union weft_sockaddr peer;
	socklen_t len;
	unsigned int i;
	int fd, err;

	for (i = 0; i < ACCEPT_BATCH && !s->accept_ms; i++) {
		if (!weft_unproven_make_room(&s->unproven, l->fd, read_unproven,
					     end_unproven)) {
			pause_accept(s);
			break;
		}
		memset(&peer, 0, sizeof(peer));
		len = sizeof(peer);
		fd = accept4(l->fd, &peer.sa, &len,
			     SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0) {
			fail_accept(s, errno);
			break;
		}
		err = weft_handshake_accept(s, fd, &peer);
		if (err)
			fail_accept(s, -err);
	}
	return 1;
}

int weft_session_listen(struct weft_session *s, int fd)
{
	struct weft_listener *l = &s->listeners[s->nlisteners];
	int err;

	l->src.handle = handle_listener;
	l->session = s;
	l->fd = fd;
	err = weft_events_add(s->events, fd, &l->src, EPOLLIN);
	if (!err)
		s->nlisteners++;
	return err;
}

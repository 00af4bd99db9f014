/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/common/unproven.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "settings/settings.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/log.h"
#include "util/util.h"

#define MAX_ALL	 4096u
#define PART	 4     /* of the descriptors that the process may have */
#define RESERVED 16u   /* per interface, whatever the others have */
#define FIRST_MS 5000u /* for the first message, which is in flight */

/* On all interfaces of this process. */
static atomic_uint all;

/* Leave descriptors to the program. */
static unsigned int max_all(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim))
		return MAX_ALL;
	return weft_min(lim.rlim_cur / PART, (rlim_t)MAX_ALL);
}

void weft_unproven_init(struct weft_unproven_set *s, unsigned int max)
{
	memset(s, 0, sizeof(*s));
	weft_list_init(&s->silent);
	s->max = max;
	(void)weft_random(&s->salt, sizeof(s->salt));
}

bool weft_unproven_full(const struct weft_unproven_set *s)
{
	if (s->n >= s->max)
		return true;
	return s->n >= RESERVED && atomic_load(&all) >= max_all();
}

struct weft_unproven *weft_unproven_oldest(const struct weft_unproven_set *s)
{
	struct weft_unproven *st, *tmp;
	unsigned int most = 0, i;

	for (i = 1; i < WEFT_UNPROVEN_SOURCES; i++)
		if (s->of[i] > s->of[most])
			most = i;
	weft_list_for_each (st, tmp, &s->silent, link)
		if (st->source == most)
			return weft_now_ms() - st->since_ms <
					       WEFT_UNPROVEN_SPARED_MS
				       ? NULL
				       : st;
	return NULL;
}

bool weft_unproven_make_room(struct weft_unproven_set *s, int listen_fd,
			     void (*read)(struct weft_unproven *st),
			     void (*end)(struct weft_unproven *st))
{
	struct pollfd next = { .fd = listen_fd, .events = POLLIN };
	struct weft_unproven *st;
	uint64_t since;

	while (weft_unproven_full(s)) {
		st = poll(&next, 1, 0) == 1 ? weft_unproven_oldest(s) : NULL;
		if (!st)
			return false;
		since = st->since_ms;
		read(st);
		if (!weft_list_empty(&st->link) && st->since_ms == since)
			end(st);
	}
	return true;
}

static unsigned int source_of(const struct weft_unproven_set *s, int fd)
{
	struct {
		uint64_t salt, id;
	} source = { s->salt, 0 };
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} peer = { 0 };
	socklen_t len = sizeof(peer);
	struct ucred user = { 0 };

	if (!getpeername(fd, &peer.sa, &len) && peer.sa.sa_family == AF_INET) {
		source.id = peer.in.sin_addr.s_addr;
	} else if (peer.sa.sa_family == AF_INET6) {
		memcpy(&source.id, &peer.in6.sin6_addr, sizeof(source.id));
	} else {
		len = sizeof(user);
		if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &len))
			source.id = user.uid;
	}
	return weft_hash_u64("weft unproven", &source, sizeof(source)) %
	       WEFT_UNPROVEN_SOURCES;
}

uint64_t weft_unproven_add(struct weft_unproven_set *s,
			   struct weft_unproven *st, int fd)
{
	uint64_t now = weft_now_ms();

	st->source = source_of(s, fd);
	st->since_ms = now;
	weft_list_add_tail(&s->silent, &st->link);
	s->of[st->source]++;
	s->n++;
	atomic_fetch_add(&all, 1);
	return now + weft_min(weft_settings()->connect_timeout_ms,
			      (uint64_t)FIRST_MS);
}

uint64_t weft_unproven_received(struct weft_unproven_set *s,
				struct weft_unproven *st)
{
	uint64_t now = weft_now_ms();

	st->since_ms = now;
	weft_list_del(&st->link);
	weft_list_add_tail(&s->silent, &st->link);
	return now + weft_settings()->connect_timeout_ms;
}

void weft_unproven_del(struct weft_unproven_set *s, struct weft_unproven *st)
{
	weft_list_del(&st->link);
	s->of[st->source]--;
	s->n--;
	atomic_fetch_sub(&all, 1);
}

bool weft_peer_has_room(size_t n, const char *name)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) || n < lim.rlim_cur / PART * 3)
		return true;
	weft_warn_once(
		"peers were turned away on '%s': %zu connections take most descriptors of this process; raise the limit with 'ulimit -n'",
		name, n);
	return false;
}

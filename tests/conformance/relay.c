/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/conformance/relay.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE (64u << 10)

enum piece_kind { DATA, END, RESET };

struct piece {
	struct piece *next;
	enum piece_kind kind;
	uint64_t due;
	size_t len, done;
	uint8_t data[];
};

/* One direction: from end[n] to the other. */
struct pipe {
	struct piece *first, **last;
	bool ended; /* nothing more is read */
};

struct relay_link {
	int end[2];
	struct pipe pipe[2];
	bool dead;
};

static void append(struct relay *r, unsigned int n, unsigned int dir,
		   enum piece_kind kind, const void *data, size_t len)
{
	struct pipe *p = &r->links[n]->pipe[dir];
	struct piece *new = malloc(sizeof(*new) + len);

	check(new, "out of memory");
	new->next = NULL;
	new->kind = kind;
	new->due = now_ms() + atomic_load(&r->delay_ms[n]);
	new->len = len;
	new->done = 0;
	if (len)
		memcpy(new->data, data, len);
	*p->last = new;
	p->last = &new->next;
	p->ended |= kind != DATA;
}

static void drop_first(struct pipe *p)
{
	struct piece *old = p->first;

	p->first = old->next;
	if (!p->first)
		p->last = &p->first;
	free(old);
}

static void reset(struct relay_link *l)
{
	struct linger now = { .l_onoff = 1 };
	unsigned int i;

	for (i = 0; i < 2; i++) {
		setsockopt(l->end[i], SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		close(l->end[i]);
		while (l->pipe[i].first)
			drop_first(&l->pipe[i]);
	}
	l->dead = true;
}

static void read_end(struct relay *r, unsigned int n, unsigned int dir)
{
	struct relay_link *l = r->links[n];
	static uint8_t buf[PIECE];
	ssize_t len;

	if (l->dead || l->pipe[dir].ended)
		return;
	len = recv(l->end[dir], buf, sizeof(buf), MSG_DONTWAIT);
	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	append(r, n, dir,
	       len > 0 ? DATA
	       : len   ? RESET
		       : END,
	       buf, len > 0 ? len : 0);
}

/* What is due goes on; true: something did. */
static void write_end(struct relay *r, unsigned int n, unsigned int dir)
{
	struct relay_link *l = r->links[n];
	struct pipe *p = &l->pipe[dir];
	struct piece *c;
	ssize_t sent;

	while (!l->dead && (c = p->first) && c->due <= now_ms()) {
		if (c->kind == RESET) {
			reset(l);
			return;
		}
		if (c->kind == END) {
			shutdown(l->end[!dir], SHUT_WR);
			drop_first(p);
			continue;
		}
		sent = send(l->end[!dir], c->data + c->done, c->len - c->done,
			    MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (sent < 0) { /* the sender learns of it later */
			append(r, n, !dir, RESET, NULL, 0);
			while (p->first)
				drop_first(p);
			p->ended = true;
			return;
		}
		c->done += sent;
		if (c->done == c->len)
			drop_first(p);
	}
}

static void accept_one(struct relay *r)
{
	struct relay_link *l = calloc(1, sizeof(*l));
	unsigned int i, n = atomic_load(&r->nlinks);

	check(l && n < RELAY_LINKS, "too many sockets");
	l->end[0] = accept(r->listen_fd, NULL, NULL);
	l->end[1] = socket(r->to.sa.sa_family, SOCK_STREAM, 0);
	check(l->end[0] >= 0 && l->end[1] >= 0, "no socket for the relay");
	for (i = 0; i < 2; i++)
		l->pipe[i].last = &l->pipe[i].first;
	if (connect(l->end[1], &r->to.sa, weft_sockaddr_len(&r->to)))
		reset(l); /* nothing listens there any more */
	r->links[n] = l;
	atomic_store(&r->nlinks, n + 1);
}

static void *relay_thread(void *arg)
{
	struct relay *r = arg;
	struct pollfd pfd = { .fd = r->listen_fd, .events = POLLIN };
	unsigned int n, dir;
	int cut;

	while (!atomic_load(&r->stop)) {
		if (poll(&pfd, 1, 1) == 1)
			accept_one(r);
		cut = atomic_exchange(&r->cut, -1);
		if (cut >= 0)
			reset(r->links[cut]);
		for (n = 0; n < atomic_load(&r->nlinks); n++)
			for (dir = 0; dir < 2; dir++) {
				read_end(r, n, dir);
				write_end(r, n, dir);
			}
	}
	return NULL;
}

struct weft_address relay_open(struct relay *r, const struct side *to)
{
	struct weft_address addr = to->attr.addr;
	union weft_sockaddr sa = addr.sa;
	socklen_t len = weft_sockaddr_len(&sa);

	memset(r, 0, sizeof(*r));
	atomic_store(&r->cut, -1);
	r->to = sa;
	if (sa.sa.sa_family == AF_INET6)
		sa.in6.sin6_port = 0;
	else
		sa.in.sin_port = 0;
	r->listen_fd = socket(sa.sa.sa_family, SOCK_STREAM, 0);
	check(r->listen_fd >= 0 && !bind(r->listen_fd, &sa.sa, len) &&
		      !listen(r->listen_fd, RELAY_LINKS) &&
		      !getsockname(r->listen_fd, &sa.sa, &len),
	      "no relay: %s", strerror(errno));
	addr.sa = sa;
	check(!pthread_create(&r->thread, NULL, relay_thread, r), "no thread");
	return addr;
}

void relay_close(struct relay *r)
{
	unsigned int i;

	atomic_store(&r->stop, true);
	pthread_join(r->thread, NULL);
	for (i = 0; i < atomic_load(&r->nlinks); i++) {
		if (!r->links[i]->dead)
			reset(r->links[i]);
		free(r->links[i]);
	}
	close(r->listen_fd);
}

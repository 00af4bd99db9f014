/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/lib/nvl_liar.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bootstrap/hello.h"
#include "tests/lib/quiet.h"
#include "util/compat.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

const uint8_t liar_key[WEFT_KEY_LEN] = "a liar's key";

static void __attribute__((noreturn)) broken(const char *what)
{
	fprintf(stderr, "liar: %s (%s)\n", what, strerror(errno));
	abort();
}

static void step(struct liar *l)
{
	l->iface->ops->progress(l->iface);
}

int liar_memfd(size_t size, bool seal)
{
	int fd = memfd_create("liar", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)size) ||
	    (seal && fcntl(fd, F_ADD_SEALS, SEALS)))
		broken("cannot make shared memory");
	return fd;
}

static uint8_t *map(int fd, size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		broken("cannot map");
	return p;
}

/* ---- whom they lie to ---------------------------------------------------- */

static void on_message(void *arg, uint8_t id, void *data, size_t len)
{
	(void)arg;
	(void)id;
	(void)data;
	(void)len;
}

static void on_notify(void *arg, uint64_t tag, uint64_t size)
{
	(void)arg;
	(void)tag;
	(void)size;
}

static void on_ready(void *arg, struct weft_ep *ep, void *user)
{
	(void)arg;
	(void)ep;
	(void)user;
}

void liar_victim_open(struct liar_victim *v, const struct weft_iface_cb *cb,
		      void *buf, size_t len)
{
	const struct weft_dev_ops *nvl = &weft_nvlink_ops;
	struct weft_iface_cb all = *cb;
	const struct weft_iface_params params = {
		.netdev = "nvl",
		.cb = &all,
	};
	uint8_t packed[WEFT_RKEY_MAX];

	if (!all.on_message)
		all.on_message = on_message;
	if (!all.on_notify)
		all.on_notify = on_notify;
	if (!all.on_ready)
		all.on_ready = on_ready;
	log_quiet();
	setenv("WEFT_LIBCUDA", "/nonexistent", 1);
	if (nvl->iface_open(&params, &v->iface) ||
	    nvl->mem_register(buf, len, WEFT_MEM_HOST, &v->mem))
		broken("the interface does not open");
	nvl->iface_query(v->iface, &v->attr);
	nvl->mem_pack(v->mem, packed);
	weft_rkey_unpack(packed, &v->key);
	v->liar = v->attr.addr;
	memcpy(v->liar.key, liar_key, WEFT_KEY_LEN);
}

/* ---- meeting ------------------------------------------------------------- */

static int dial(const struct weft_address *addr)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int n, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	n = snprintf(sa.sun_path + 1, sizeof(sa.sun_path) - 1,
		     "weft-%016" PRIx64, weft_key_id(addr->key));
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa,
			      offsetof(struct sockaddr_un, sun_path) + 1 + n))
		broken("cannot dial");
	return fd;
}

static void wait_readable(struct liar *l)
{
	struct pollfd p = { .fd = l->fd, .events = POLLIN };
	int i;

	/* the interface looks at its sockets once in hundreds of calls */
	for (i = 0; poll(&p, 1, i > 2000) <= 0; i++)
		step(l);
}

static void say_hello(struct liar *l, const struct weft_address *addr,
		      uint32_t number)
{
	const uint32_t purpose[4] = { NVL_PURPOSE, number };
	struct weft_hello h;
	ssize_t n;

	weft_hello_dial(&h, addr->key, liar_key, (const uint8_t *)purpose);
	while (h.state != WEFT_HELLO_DONE) {
		if (h.state == WEFT_HELLO_SENDING) {
			if (send(l->fd, h.out, h.out_len, MSG_NOSIGNAL) !=
			    (ssize_t)h.out_len)
				broken("cannot send the hello");
			h.out_done = h.out_len;
		} else if (h.state == WEFT_HELLO_READING) {
			wait_readable(l);
			n = recv(l->fd, h.in + h.have, h.want - h.have, 0);
			if (n <= 0)
				broken("the hello has no reply");
			h.have += (size_t)n;
			if (h.have < h.want)
				continue;
		} else {
			broken("the hello fails");
		}
		weft_hello_step(&h);
	}
	if (h.verdict != WEFT_HELLO_ACCEPTED)
		broken("the hello is refused");
}

/* 1: a frame; 0: none now; -errno: the other side has hung up */
static int take_frame(struct liar *l, struct nvl_frame *f, int fds[2])
{
	union {
		char buf[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { f, sizeof(*f) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.buf,
			    .msg_controllen = sizeof(control.buf) };
	struct cmsghdr *c;
	ssize_t n;

	fds[0] = fds[1] = -1;
	n = recvmsg(l->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return errno == EAGAIN ? 0 : -errno;
	if (n != sizeof(*f) || f->type >= NVL_FRAME_TYPES)
		return -ECONNRESET;
	c = CMSG_FIRSTHDR(&m);
	if (c)
		memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	l->frames[f->type]++;
	return 1;
}

int liar_dial(struct liar *l, struct weft_iface *iface,
	      const struct weft_address *addr, uint32_t number, int mine)
{
	struct nvl_frame f = { .type = NVL_FRAME_INBOX,
			       .size = NVL_INBOX_SIZE };
	int own = liar_memfd(NVL_INBOX_SIZE, true), fds[2], r;

	memset(l, 0, sizeof(*l));
	l->iface = iface;
	l->ring_fd = -1;
	l->fd = dial(addr);
	say_hello(l, addr, number);
	while (!(r = take_frame(l, &f, fds)))
		step(l);
	if (r < 0 || f.type != NVL_FRAME_INBOX || fds[0] < 0)
		broken("no inbox comes");
	l->theirs = map(fds[0], NVL_INBOX_SIZE);
	close(fds[0]);
	l->ours = map(own, NVL_INBOX_SIZE);
	r = liar_frame(l, &f, mine >= 0 ? &mine : &own, 1);
	close(own);
	return r;
}

void liar_close(struct liar *l)
{
	if (l->ours)
		munmap(l->ours, NVL_INBOX_SIZE);
	if (l->theirs)
		munmap(l->theirs, NVL_INBOX_SIZE);
	if (l->ring_fd >= 0)
		close(l->ring_fd);
	close(l->fd);
}

/* ---- what it says -------------------------------------------------------- */

int liar_frame(struct liar *l, struct nvl_frame *f, const int *fds,
	       unsigned int nfds)
{
	union {
		char buf[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { f, sizeof(*f) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;

	if (!f->magic || f->magic == NVL_FRAME_MAGIC) {
		f->magic = NVL_FRAME_MAGIC;
		f->nfds = (uint8_t)nfds;
	}
	if (nfds) {
		memset(&control, 0, sizeof(control));
		m.msg_control = control.buf;
		m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
	}
	if (sendmsg(l->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(*f))
		return -ECONNRESET;
	/* wakes, and those before the inboxes are exchanged, do not count */
	if (f->type != NVL_FRAME_INBOX && f->type != NVL_FRAME_WAKE)
		atomic_fetch_add(&liar_head(l->theirs)->frames, 1);
	return 0;
}

void liar_read(struct liar *l)
{
	struct nvl_frame f, ok = { .type = NVL_FRAME_RING_STATE };
	int fds[2];

	while (take_frame(l, &f, fds) > 0) {
		if (f.type == NVL_FRAME_RING_OFFER && f.loc == NVL_LOC_HOST &&
		    l->ring_fd < 0) {
			l->ring_fd = fds[0];
			l->ring = ok.ring = f.ring;
			fds[0] = -1;
			liar_frame(l, &ok, NULL, 0);
		}
		if (fds[0] >= 0)
			close(fds[0]);
		if (fds[1] >= 0)
			close(fds[1]);
	}
}

bool liar_ring(struct liar *l)
{
	struct nvl_frame f = { .type = NVL_FRAME_RING_WANT };
	int i;

	if (l->ring_fd < 0)
		liar_frame(l, &f, NULL, 0);
	for (i = 0; i < 4 && l->ring_fd < 0; i++) {
		step(l);
		liar_read(l);
	}
	return l->ring_fd >= 0;
}

void liar_op(struct liar *l, const struct nvl_op *op)
{
	struct nvl_op *ops = (struct nvl_op *)(l->theirs + NVL_INBOX_OPS);

	ops[l->op_tail++ & (NVL_OP_SLOTS - 1)] = *op;
	atomic_store(&liar_head(l->theirs)->op_tail, l->op_tail);
}

void liar_message(struct liar *l, const struct nvl_msg *m, const void *data,
		  size_t len)
{
	const size_t room = sizeof(*m) + ((len + 15) & ~(size_t)15);
	uint8_t *msgs = l->theirs + NVL_INBOX_MSGS;
	size_t at = l->msg_tail & (NVL_MSG_RING - 1);

	if (room > NVL_MSG_RING - at)
		return; /* no need of the other end */
	memcpy(msgs + at, m, sizeof(*m));
	memcpy(msgs + at + sizeof(*m), data, len);
	l->msg_tail += room;
	atomic_store(&liar_head(l->theirs)->msg_tail, l->msg_tail);
}

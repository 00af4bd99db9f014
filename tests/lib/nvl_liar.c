/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/lib/nvl_liar.h"

#include <dlfcn.h>
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
#include "devices/engine/copy.h"
#include "tests/lib/cuda/fake_cuda.h"
#include "tests/lib/quiet.h"
#include "util/compat.h"
#include "util/drivers/cuda.h"

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

int liar_part(size_t size)
{
	int fd = memfd_create("fakecuda-0", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)size))
		broken("cannot make memory");
	return fd;
}

/* ---- whom they lie to ---------------------------------------------------- */

static void on_message(void *arg, uint8_t id, void *data, size_t len)
{
}

static void on_notify(void *arg, uint64_t tag, uint64_t size)
{
}

static void on_ready(void *arg, struct weft_ep *ep, void *user)
{
}

/* On which all memory is GPU 0's; some that has a descriptor. */
static void *load_driver(void)
{
	void *(*context)(int ordinal), *(*vmm)(int ordinal, size_t size);
	char path[4200];
	void *lib;

	snprintf(path, sizeof(path), "%s/tests/lib/.libs/libfake_cuda.so",
		 getenv("WEFT_BUILD") ? getenv("WEFT_BUILD") : ".");
	setenv("WEFT_LIBCUDA", path, 1);
	setenv("WEFT_LIBNVML", path, 1);
	setenv(FAKE_NVML, "1", 1);
	setenv(FAKE_CUDA_ALL, "1", 1);
	setenv(FAKE_CUDA_DELAY, "0", 1);
	lib = dlopen(path, RTLD_NOW);
	if (!lib)
		broken("no fake driver; is WEFT_BUILD set?");
	*(void **)&context = dlsym(lib, "fake_cuda_context");
	*(void **)&vmm = dlsym(lib, "fake_cuda_vmm");
	context(0);
	if (weft_cuda_init())
		broken("the fake driver does not begin");
	return vmm(0, LIAR_PART);
}

void liar_victim_open(struct liar_victim *v, const struct weft_iface_cb *cb)
{
	const struct weft_dev_ops *nvl = &weft_nvlink_ops;
	struct weft_iface_cb all = *cb;
	const struct weft_iface_params params = {
		.netdev = "nvl",
		.cb = &all,
	};
	void *memory;

	if (!all.on_message)
		all.on_message = on_message;
	if (!all.on_notify)
		all.on_notify = on_notify;
	if (!all.on_ready)
		all.on_ready = on_ready;
	log_quiet();
	memory = load_driver();
	if (nvl->iface_open(&params, &v->iface) ||
	    nvl->mem_register(memory, LIAR_PART, WEFT_MEM_CUDA, &v->mem))
		broken("the interface does not open");
	nvl->mem_pack(v->mem, &v->key);
	nvl->iface_query(v->iface, &v->attr);
	v->liar = v->attr.addr;
	memcpy(v->liar.key, liar_key, WEFT_KEY_LEN);
}

void liar_victim_close(struct liar_victim *v)
{
	weft_nvlink_ops.mem_release(v->mem);
	weft_nvlink_ops.iface_close(v->iface);
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

void liar_dial(struct liar *l, struct weft_iface *iface,
	       const struct weft_address *addr, uint32_t number)
{
	memset(l, 0, sizeof(*l));
	l->iface = iface;
	l->fd = dial(addr);
	say_hello(l, addr, number);
}

void liar_table(struct liar *l)
{
	struct nvl_frame f = { .type = NVL_FRAME_TABLE };
	int fd = liar_memfd(sizeof(*l->table), true);

	l->table = mmap(NULL, sizeof(*l->table), PROT_READ | PROT_WRITE,
			MAP_SHARED, fd, 0);
	if (l->table == MAP_FAILED)
		broken("cannot map");
	f.life = (struct nvl_life){ 0, 1 };
	atomic_store(&l->table->serial[0], 1);
	liar_frame(l, &f, fd);
	close(fd);
}

void liar_marks(struct liar *l)
{
	struct nvl_frame f = { .type = NVL_FRAME_MARKS };
	int fd = liar_memfd(WEFT_MARKS_SIZE, true);

	liar_frame(l, &f, fd);
	close(fd);
}

void liar_join(struct liar *l)
{
	struct nvl_frame f = { .type = NVL_FRAME_READY };

	liar_table(l);
	liar_marks(l);
	liar_frame(l, &f, -1);
}

void liar_close(struct liar *l)
{
	if (l->table)
		munmap(l->table, sizeof(*l->table));
	close(l->fd);
}

/* ---- what it says -------------------------------------------------------- */

int liar_frame_fds(struct liar *l, struct nvl_frame *f, const int *fds,
		   unsigned int nfds)
{
	union {
		char buf[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { f, sizeof(*f) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;

	if (!f->magic)
		f->magic = NVL_FRAME_MAGIC;
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
	return sendmsg(l->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*f)
		       ? 0
		       : -ECONNRESET;
}

int liar_frame(struct liar *l, struct nvl_frame *f, int fd)
{
	return liar_frame_fds(l, f, &fd, fd >= 0);
}

void liar_read(struct liar *l)
{
	struct nvl_frame f;
	int fds[2];

	while (take_frame(l, &f, fds) > 0) {
		if (f.type == NVL_FRAME_NONE)
			l->none = f.err;
		if (fds[0] >= 0)
			close(fds[0]);
		if (fds[1] >= 0)
			close(fds[1]);
	}
}

struct nvl_key liar_pack(const struct liar *l, uint64_t base, uint64_t size)
{
	const struct nvl_life alive = { 0, atomic_load(&l->table->serial[0]) };

	return (struct nvl_key){
		.token = 1,
		.addr = base,
		.len = size,
		.id = base,
		.base = base,
		.size = size,
		.life = alive,
		.whole = alive,
		.kind = NVL_KEY_PARTS,
	};
}

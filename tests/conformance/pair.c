/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/conformance/pair.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/cuda/fake_cuda.h"
#include "util/drivers/cuda.h"

const struct device_row *row;
void (*sides_connect_hook)(bool connected);

void fail_at(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "# %s:%d: ", file, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	fflush(stderr);
	_exit(1);
}

char *skip_reason;

void skip_test(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(skip_reason, SKIP_REASON_MAX, fmt, ap);
	va_end(ap);
	_exit(77);
}

/* ---- GPU memory ---------------------------------------------------------- */

#define SEGMENT (2ul << 20)

static struct {
#define X(type, name, args) type(*name) args;
	FAKE_CUDA_CONTROL(X)
#undef X
} fake;

static void load_driver(void)
{
	void *lib = dlopen(getenv("WEFT_LIBCUDA"), RTLD_NOW);

	check(lib, "%s; run it by make check", dlerror());
#define X(type, name, args) *(void **)&fake.name = dlsym(lib, #name);
	FAKE_CUDA_CONTROL(X)
#undef X
	fake.fake_cuda_context(0);
	fake.fake_cuda_context(1);
	check_int(weft_cuda_init(), 0);
}

void side_open(struct side *s)
{
	static unsigned int opened;
	const char *netdev = row->netdev;

	if (row->gpu && !opened)
		load_driver();
	if (opened++ % 2 && row->other)
		netdev = row->other;
	check_int(side_init(s, row->ops, netdev, row->family), 0);
}

struct weft_ep *side_connect(struct side *from, const struct side *to,
			     void *user)
{
	struct weft_ep *ep;

	check(from->ops->reaches(from->iface, &to->attr.addr, NULL),
	      "the other side is out of reach");
	check_int(from->ops->ep_create(from->iface, &to->attr.addr, user, &ep),
		  0);
	return ep;
}

static void connect_both(struct side *a, struct side *b)
{
	if (sides_connect_hook)
		sides_connect_hook(false);
	if (!a->ep)
		a->ep = side_connect(a, b, NULL);
	if (!b->ep)
		b->ep = side_connect(b, a, NULL);
	wait_for(a, b, a->ops->ready(a->ep) && b->ops->ready(b->ep));
	if (sides_connect_hook)
		sides_connect_hook(true);
}

void sides_open(struct side *a, struct side *b)
{
	side_open(a);
	side_open(b);
	connect_both(a, b);
}

void sides_close(struct side *a, struct side *b)
{
	check_int(a->errors, 0);
	check_int(b->errors, 0);
	side_close(a);
	side_close(b);
}

static void check_reset(struct side *s)
{
	/* cancelled by its own program, so without on_error() */
	if (!s->ep)
		return;
	check_int(s->errors, 1);
	/* an adapter that finds the error itself may call it -EIO */
	check(s->error == -ECONNRESET || s->error == -EIO, "error %d",
	      s->error);
	s->errors = 0;
	s->ops->ep_destroy(s->ep);
	s->ep = NULL;
}

void sides_fail(struct side *a, struct side *b)
{
	wait_for(a, b, (!a->ep || a->errors) && (!b->ep || b->errors));
	check_reset(a);
	check_reset(b);
	connect_both(a, b);
}

void sides_mend(struct side *a, struct side *b)
{
	if (a->attr.cancel_ends_ep) {
		sides_fail(a, b);
		return;
	}
	check_int(a->errors, 0);
	check_int(b->errors, 0);
	connect_both(a, b);
}

/*
 * What stands for a message on a device that has none: a put, whose bytes the
 * other side is given when they are placed.
 */
static void put_message(struct side *s, struct side *other, struct weft_ep *ep,
			uint8_t id, uint8_t *buf, size_t len)
{
	const struct weft_iface_cb *cb = &other->iface->cb;
	struct weft_iov iov = { buf, len, NULL };
	struct wait_op w;
	struct target t;

	target_open(&t, len);
	wait_op_init(&w);
	wait_for(s, other, s->ops->ready(ep));
	check_int(
		s->ops->put(ep, &iov, 1, (uintptr_t)t.buf, t.key, NULL, &w.op),
		-EINPROGRESS);
	wait_status(s, other, w, 0);
	cb->on_message(cb->arg, id, t.buf, len);
	target_close(&t);
}

void send_pattern(struct side *s, struct side *other, struct weft_ep *ep,
		  uint8_t id, size_t len, unsigned int seed)
{
	uint8_t *buf = malloc(len + 1);
	struct iovec iov = { buf, len };
	int ret;

	pattern_fill(buf, len, seed);
	if (row->blocks && other) {
		put_message(s, other, ep, id, buf, len);
		free(buf);
		return;
	}
	for (;;) {
		ret = s->ops->message(ep, id, &iov, 1);
		if (ret != -EAGAIN)
			break;
		check(!s->ops->ready(ep), "-EAGAIN, yet ready() says yes");
		wait_for(s, other, s->ops->ready(ep));
	}
	check_int(ret, 0);
	memset(buf, POISON, len);
	free(buf);
}

void check_message(struct side *s, uint8_t id, size_t len, unsigned int seed)
{
	struct inbox_message *m = side_take(s);

	check(m, "no message is there");
	check_int(m->id, id);
	check_int(m->len, len);
	pattern_check("message", m->data, len, seed);
	free(m);
}

void put_start(struct side *s, struct wait_op *w, const void *src, size_t len,
	       uint64_t addr, const void *key)
{
	struct weft_iov iov = { (void *)src, len, NULL };

	wait_op_init(w);
	check_int(s->ops->put(s->ep, &iov, 1, addr, key, NULL, &w->op),
		  -EINPROGRESS);
}

void get_start(struct side *s, struct wait_op *w, void *dst, size_t len,
	       uint64_t addr, const void *key)
{
	struct weft_iov iov = { dst, len, NULL };

	wait_op_init(w);
	check_int(s->ops->get(s->ep, &iov, 1, addr, key, &w->op), -EINPROGRESS);
}

int put_wait(struct side *s, struct side *other, const void *src, size_t len,
	     uint64_t addr, const void *key, const struct weft_notify *notify)
{
	struct weft_iov iov = { (void *)src, len, NULL };
	struct wait_op w;

	wait_op_init(&w);
	wait_for(s, other, s->ops->ready(s->ep));
	check_int(s->ops->put(s->ep, &iov, 1, addr, key, notify, &w.op),
		  -EINPROGRESS);
	wait_for(s, other, w.done);
	check_int(w.done, 1);
	return w.status;
}

int get_wait(struct side *s, struct side *other, void *dst, size_t len,
	     uint64_t addr, const void *key)
{
	struct wait_op w;

	wait_for(s, other, s->ops->ready(s->ep));
	get_start(s, &w, dst, len, addr, key);
	wait_for(s, other, w.done);
	check_int(w.done, 1);
	return w.status;
}

void target_open(struct target *t, size_t len)
{
	size_t page = 4096;

	memset(t, 0, sizeof(*t));
	t->len = len;
	t->map_len = 2 * GUARD + (len + page) / page * page;
	if (row->gpu) {
		t->map_len = (t->map_len + SEGMENT - 1) / SEGMENT * SEGMENT;
		t->map = fake.fake_cuda_segments(1, t->map_len / SEGMENT,
						 WEFT_CU_HANDLE_POSIX_FD);
	} else {
		t->map = mmap(NULL, t->map_len, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		check(t->map != MAP_FAILED, "out of memory");
	}
	/* not aligned on purpose */
	t->buf = t->map + GUARD + (len ? 3 : 0);
	target_poison(t);
	check_int(row->ops->mem_register(t->buf, len, mem_kind(), &t->mem), 0);
	row->ops->mem_pack(t->mem, &t->key);
}

void target_poison(struct target *t)
{
	memset(t->map, POISON, t->map_len);
}

__attribute__((no_sanitize("thread"), noinline)) uint8_t peek(const uint8_t *at)
{
	return *(const volatile uint8_t *)at;
}

void target_check_poison(const struct target *t, size_t from, size_t to)
{
	size_t i;

	for (i = from; i < to; i++)
		check(t->buf[i] == POISON, "byte %zu was written", i);
}

void target_check_guards(const struct target *t)
{
	const uint8_t *p;

	for (p = t->map; p < t->buf; p++)
		check(*p == POISON, "written %zu bytes before the target",
		      (size_t)(t->buf - p));
	for (p = t->buf + t->len; p < t->map + t->map_len; p++)
		check(*p == POISON, "written %zu bytes behind the target",
		      (size_t)(p - t->buf - t->len));
}

void target_watch_quiet(struct side *a, struct side *b, const struct target *t)
{
	run_for(a, b, 200);
	target_check_poison(t, 0, t->len);
}

void target_close(struct target *t)
{
	size_t at;

	if (t->mem)
		row->ops->mem_release(t->mem);
	if (!row->gpu)
		munmap(t->map, t->map_len);
	for (at = 0; row->gpu && at < t->map_len; at += SEGMENT)
		fake.fake_cuda_unmap(t->map + at, SEGMENT);
}

void put_checked(struct side *s, struct side *other, size_t len,
		 unsigned int seed)
{
	uint8_t *src = malloc(len);
	struct target t;

	pattern_fill(src, len, seed);
	target_open(&t, len);
	check_int(put_wait(s, other, src, len, (uintptr_t)t.buf, &t.key, NULL),
		  0);
	pattern_check("put", t.buf, len, seed);
	target_check_guards(&t);
	target_close(&t);
	free(src);
}

int raw_connect(const struct side *s)
{
	const union weft_sockaddr *sa = &s->attr.addr.sa;
	int fd = socket(sa->sa.sa_family, SOCK_STREAM, 0);

	check(fd >= 0 && !connect(fd, &sa->sa, weft_sockaddr_len(sa)),
	      "cannot connect: %s", strerror(errno));
	return fd;
}

unsigned int count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	char link[64], name[300];
	struct dirent *e;
	unsigned int n = 0;
	ssize_t len;

	while ((e = readdir(d))) {
		snprintf(name, sizeof(name), "/proc/self/fd/%s", e->d_name);
		len = readlink(name, link, sizeof(link) - 1);
		n += len > 7 && (!memcmp(link, "socket:", 7) ||
				 !memcmp(link, "/memfd:", 7));
	}
	closedir(d);
	return n;
}

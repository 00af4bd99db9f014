/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/gpu/nvlink/side.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/gpu/nvlink/pods.h"
#include "util/drivers/cuda.h"

const struct weft_dev_ops *const ops = &weft_nvlink_ops;
struct side side;
bool may_fail;
static bool closing;
static struct weft_address remote_address;

void fail_at(const char *file, int line, const char *fmt, ...)
{
	char why[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	pods_fail_at(file, line, "%s", why);
}

void progress(void)
{
	/* the fake driver runs where others need the processors */
	if (!ops->progress(side.iface) && gpumem_is_fake())
		sched_yield();
	if (side.errors && !may_fail && (!closing || side.error != -ESHUTDOWN))
		pods_fail("the endpoint failed: %s", strerror(-side.error));
}

static void expect_success(struct wait_op *w)
{
	if (w->status)
		pods_fail("an operation failed: %s", strerror(-w->status));
}

void start(struct wait_op *w, bool get, void *p, size_t len, uint64_t addr,
	   const void *key)
{
	struct weft_iov iov = { p, len, NULL };
	int r;

	wait_op_init(w);
	w->hook = expect_success;
	for (;;) {
		r = get ? ops->get(side.ep, &iov, 1, addr, key, &w->op)
			: ops->put(side.ep, &iov, 1, addr, key, NULL, &w->op);
		if (r != -EAGAIN)
			break;
		progress();
	}
	if (r != -EINPROGRESS)
		pods_fail("put or get: %s", strerror(-r));
}

void move(bool get, struct buf *local, struct buf *remote, size_t off,
	  size_t len)
{
	struct wait_op w;

	start(&w, get, local->p + off, len, remote->theirs.addr + off,
	      &remote->theirs.key);
	wait_until(w.done);
}

void verify(struct buf *b, size_t off, size_t len, uint64_t seed,
	    const char *what)
{
	uint64_t bad = gpumem_check(b->p, off, len, seed);

	if (bad)
		pods_fail("%s of %zu bytes at %zu: %llu places are wrong", what,
			  len, off, (unsigned long long)bad);
}

void buf_open(struct buf *b, enum gpumem_kind kind, size_t size)
{
	int err;

	memset(b, 0, sizeof(*b));
	b->kind = kind;
	b->size = size;
	b->p = gpumem_alloc(kind, size);
	err = ops->mem_register(b->p, size, WEFT_MEM_CUDA, &b->mem);
	if (err)
		pods_fail("mem_register: %s", strerror(-err));
	b->mine.addr = (uintptr_t)b->p;
	ops->mem_pack(b->mem, &b->mine.key);
	pods_exchange(&b->mine, &b->theirs, sizeof(b->mine), progress);
}

void buf_close(struct buf *b)
{
	pods_barrier(progress);
	ops->mem_release(b->mem);
	gpumem_free(b->kind, b->p, b->size);
}

static void connect_side(void)
{
	int err;

	err = ops->ep_create(side.iface, &remote_address, NULL, &side.ep);
	if (err)
		pods_fail("ep_create: %s", strerror(-err));
	wait_until(ops->ready(side.ep));
}

void device_open(void)
{
	double t;
	int err;

	pods_step("connect");
	err = side_init(&side, ops, "nvl", AF_UNSPEC);
	if (err)
		pods_fail("iface_open: %s", strerror(-err));
	pods_exchange(&side.attr.addr, &remote_address, sizeof(remote_address),
		      NULL);
	if (!ops->reaches(side.iface, &remote_address, NULL))
		pods_fail("the other pod is out of reach");
	t = pods_now();
	connect_side();
	if (!pods_rank())
		pods_result(0, "ms", (pods_now() - t) * 1e3,
			    "connecting, proof included");
	pods_barrier(progress);
}

void device_connect_again(void)
{
	wait_until(side.errors);
	ops->ep_destroy(side.ep);
	side.errors = 0;
	may_fail = false;
	pods_barrier(progress);
	connect_side();
	pods_barrier(progress);
}

void device_close(void)
{
	closing = true;
	pods_barrier(progress);
	side_close(&side);
}

static int gpus(void)
{
	int n = 1;

	weft_cuda()->device_count(&n);
	return n;
}

void gpu_open(void)
{
	char name[120];

	pods_step("open the GPU");
	if (weft_cuda_init())
		pods_fail("no CUDA driver");
	gpumem_open(pods_rank() % gpus());
	gpumem_name(name, sizeof(name));
	if (!pods_rank())
		printf("%s, %d GPU%s here\n", name, gpus(),
		       gpus() > 1 ? "s" : "");
}

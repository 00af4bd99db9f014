/* SPDX-License-Identifier: BSD-3-Clause */
/* GPUs under MPS and MIG, on the fake driver: through host memory, and said. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "devices/nvlink.h"
#include "tests/lib/fake_cuda.h"
#include "util/clock.h"
#include "util/cuda.h"
#include "util/log.h"

#define WAIT_MS 30000
#define LEN	(5u << 20)

static const struct weft_dev_ops *const nvl = &weft_nvlink_ops;

struct side {
	struct weft_iface *iface;
	struct weft_ep *ep;
	unsigned int errors;
};

struct wait_op {
	struct weft_op op;
	bool done;
	int status;
};

static struct side a, b;
static unsigned int said, said_more;
static struct {
#define X(type, name, args) type (*name) args;
	FAKE_CUDA_CONTROL(X)
#undef X
} fake;

static void catch(void *arg, enum weft_level level, const char *file, int line,
		  const char *text)
{
	(void)arg;
	(void)file;
	(void)line;
	if (level > WEFT_LOG_WARN)
		return;
	if (strstr(text, "its memory is not shared with other processes"))
		said++;
	else
		said_more++;
}

static void on_error(void *arg, struct weft_ep *ep, void *user, int err)
{
	struct side *s = arg;

	(void)ep;
	(void)user;
	(void)err;
	s->errors++;
}

static void on_ready(void *arg, struct weft_ep *ep, void *user)
{
	(void)arg;
	(void)ep;
	(void)user;
}

static void op_done(struct weft_op *op, int status)
{
	struct wait_op *w = (struct wait_op *)op;

	w->done = true;
	w->status = status;
}

#define wait_for(cond)							\
	do {								\
		uint64_t end_ = weft_now_ms() + WAIT_MS;		\
		while (!(cond)) {					\
			nvl->progress(a.iface);				\
			nvl->progress(b.iface);				\
			cr_assert(weft_now_ms() < end_,			\
				  "no '%s' in time", #cond);		\
		}							\
	} while (0)

static void load_fake(void)
{
	char path[4200];
	void *lib;

	snprintf(path, sizeof(path), "%s/tests/lib/.libs/libfake_cuda.so",
		 getenv("WEFT_BUILD"));
	setenv("WEFT_LIBCUDA", path, 1);
	setenv("WEFT_LIBNVML", path, 1);
	setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent", 0);
	lib = dlopen(path, RTLD_NOW);
	cr_assert(lib != NULL, "%s", dlerror());
#define X(type, name, args) *(void **)&fake.name = dlsym(lib, #name);
	FAKE_CUDA_CONTROL(X)
#undef X
	fake.fake_cuda_context(0);
	fake.fake_cuda_context(1);
}

static void open_side(struct side *s)
{
	struct weft_iface_cb cb = { .arg = s, .on_error = on_error,
				    .on_ready = on_ready };

	cr_assert(eq(int, nvl->iface_open("nvl", AF_UNSPEC, &cb, &s->iface),
		     0));
}

static struct weft_ep *connect_to(struct side *from, struct side *to)
{
	struct weft_iface_attr attr;
	struct weft_ep *ep;

	nvl->iface_query(to->iface, &attr);
	cr_assert(nvl->reaches(from->iface, &attr.addr, NULL));
	cr_assert(eq(int, nvl->ep_create(from->iface, &attr.addr, NULL, &ep),
		     0));
	return ep;
}

static void put_and_get(uint8_t *src, uint8_t *dst, uint8_t *back,
			const struct weft_rkey *key)
{
	struct wait_op put = { .op.done = op_done }, get = put;
	struct iovec from = { src, LEN }, to = { back, LEN };
	size_t i;

	for (i = 0; i < LEN; i++)
		src[i] = i * 31 + (i >> 12);
	memset(dst, 0xa5, LEN);
	memset(back, 0x5a, LEN);
	cr_assert(eq(int, nvl->put(a.ep, &from, 1, (uintptr_t)dst, key, NULL,
				   &put.op), -EINPROGRESS));
	wait_for(put.done);
	cr_assert(eq(int, put.status, 0));
	cr_assert(memcmp(src, dst, LEN) == 0, "the put's bytes are wrong");
	cr_assert(eq(int, nvl->get(a.ep, &to, 1, (uintptr_t)dst, key,
				   &get.op), -EINPROGRESS));
	wait_for(get.done);
	cr_assert(eq(int, get.status, 0));
	cr_assert(memcmp(src, back, LEN) == 0, "the get's bytes are wrong");
}

/* Moves bytes both ways; what was shared meanwhile is told in @during. */
static void transfer(struct fake_cuda_live *during)
{
	struct weft_mem *mem, *own, *buf;
	uint8_t *src, *dst, *back;
	struct weft_rkey key, direct;

	weft_log_set_sink(catch, NULL);
	load_fake();
	open_side(&a);
	open_side(&b);
	src = fake.fake_cuda_malloc(0, LEN);
	back = fake.fake_cuda_malloc(0, LEN);
	dst = fake.fake_cuda_malloc(1, LEN);
	cr_assert(eq(int, nvl->mem_register(dst, LEN, WEFT_MEM_CUDA, &mem), 0));
	cr_assert(eq(int, nvl->mem_register(src, LEN, WEFT_MEM_CUDA, &own), 0));
	nvl->mem_pack(mem, &key);
	a.ep = connect_to(&a, &b);
	b.ep = connect_to(&b, &a);
	wait_for(nvl->ready(a.ep) && nvl->ready(b.ep));
	put_and_get(src, dst, back, &key);

	/* what could be mapped otherwise, as NCCL's buffers are */
	dst = fake.fake_cuda_vmm(1, LEN + (1u << 20));
	cr_assert(eq(int, nvl->mem_register(dst, LEN, WEFT_MEM_CUDA, &buf), 0));
	cr_assert(eq(int, weft_nvl_expose(b.ep, buf, &direct), 0));
	wait_for(weft_nvl_prepare(a.ep, src) == 0 &&
		 weft_nvl_prepare(b.ep, dst) == 0);
	put_and_get(src, dst, back, &direct);
	fake.fake_cuda_live(during);

	nvl->ep_destroy(a.ep);
	nvl->ep_destroy(b.ep);
	nvl->mem_release(mem);
	nvl->mem_release(own);
	nvl->mem_release(buf);
	nvl->iface_close(a.iface);
	nvl->iface_close(b.iface);
	cr_assert(eq(uint, a.errors + b.errors, 0));
}

/* One allocation is the program's own; all else would be ours. */
static void not_shared(void)
{
	struct fake_cuda_live during;

	transfer(&during);
	cr_assert(eq(uint, during.handles, 1));
	cr_assert(eq(uint, during.maps, 1));
	cr_assert(eq(uint, said, 1), "the line came %u times", said);
	cr_assert(eq(uint, said_more, 0));
}

static void shared(void)
{
	struct fake_cuda_live during;

	transfer(&during);
	cr_assert(gt(uint, during.maps, 1));
	cr_assert(eq(uint, said, 0));
	cr_assert(eq(uint, said_more, 0));
}

Test(nvl_share, without_mps_and_mig)
{
	setenv(FAKE_NVML, "1", 1);
	shared();
}

Test(nvl_share, mig)
{
	setenv(FAKE_NVML, "1", 1);
	setenv(FAKE_CUDA_MIG, "1", 1);
	not_shared();
}

Test(nvl_share, mps_as_the_driver_says)
{
	setenv(FAKE_CUDA_MPS, "1", 1);
	not_shared();
}

/* An older driver: the daemon's socket tells, if somebody listens on it. */
static int daemon_socket(char *dir)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC |
			SOCK_NONBLOCK, 0);

	cr_assert(mkdtemp(dir) != NULL);
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/control", dir);
	cr_assert(bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0);
	cr_assert(listen(fd, 1) == 0);
	setenv("CUDA_MPS_PIPE_DIRECTORY", dir, 1);
	setenv(FAKE_CUDA_MPS, "0", 1);
	return fd;
}

static void remove_socket(const char *dir)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/control", dir);
	unlink(path);
	rmdir(dir);
}

Test(nvl_share, mps_daemon)
{
	char dir[] = "/tmp/weft-mps-XXXXXX";
	int fd = daemon_socket(dir);

	not_shared();
	/* it has not noticed */
	cr_assert(eq(int, accept(fd, NULL, NULL), -1));
	close(fd);
	remove_socket(dir);
}

Test(nvl_share, mps_daemon_that_is_gone)
{
	char dir[] = "/tmp/weft-mps-XXXXXX";

	close(daemon_socket(dir));
	shared();
	remove_socket(dir);
}

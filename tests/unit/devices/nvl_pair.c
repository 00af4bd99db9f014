/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/devices/nvl_pair.h"

#include <dlfcn.h>
#include <pthread.h>

#include "util/log.h"

const struct weft_dev_ops *const nvl = &weft_nvlink_ops;
struct side a, b, c;
struct fake fake;

static char logged[16384];
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void catch (void *arg, enum weft_level level, const char *file, int line,
		   const char *text)
{
	size_t n;

	(void)arg;
	(void)file;
	(void)line;
	if (level > WEFT_LOG_WARN)
		return;
	pthread_mutex_lock(&log_lock);
	n = strlen(logged);
	if (n + strlen(text) + 1 < sizeof(logged))
		sprintf(logged + n, "%s\n", text);
	pthread_mutex_unlock(&log_lock);
}

unsigned int said(const char *words)
{
	const char *at, *line;
	unsigned int n = 0;

	pthread_mutex_lock(&log_lock);
	for (line = logged; *line; line = strchr(line, '\n') + 1) {
		at = strstr(line, words);
		n += at && at <= strchr(line, '\n');
	}
	pthread_mutex_unlock(&log_lock);
	return n;
}

char run_folder[] = "/tmp/weft-nvl-test-XXXXXX";

void begin_folder(void)
{
	cr_assert(mkdtemp(run_folder) != NULL);
	setenv("WEFT_RUN_DIR", run_folder, 1);
}

void end_folder(void)
{
	char cmd[64];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", run_folder);
	cr_expect(eq(int, system(cmd), 0));
}

void load_fake(void)
{
	char path[4200];
	void *lib;

	weft_log_set_sink(catch, NULL);
	cr_assert(getenv("WEFT_BUILD") != NULL, "run it by make check");
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

static void on_error(void *arg, struct weft_ep *ep, void *user, int err)
{
	struct side *s = arg;

	(void)ep;
	(void)user;
	s->errors++;
	s->error = err;
}

static void on_ready(void *arg, struct weft_ep *ep, void *user)
{
	(void)arg;
	(void)ep;
	(void)user;
}

void op_done(struct weft_op *op, int status)
{
	struct wait_op *w = (struct wait_op *)op;

	w->done = true;
	w->status = status;
}

unsigned int side_flags;

int open_side(struct side *s)
{
	struct weft_iface_cb cb = {
		.arg = s,
		.on_message = on_message,
		.on_notify = on_notify,
		.on_error = on_error,
		.on_ready = on_ready,
	};
	const struct weft_iface_params params = {
		.netdev = "nvl",
		.cb = &cb,
		.flags = side_flags,
	};

	memset(s, 0, sizeof(*s));
	return nvl->iface_open(&params, &s->iface);
}

int connect_side(struct side *from, struct side *to)
{
	struct weft_iface_attr attr;

	nvl->iface_query(to->iface, &attr);
	return nvl->ep_create(from->iface, &attr.addr, NULL, &from->ep);
}

void meet(struct side *from, struct side *to)
{
	cr_assert(eq(int, connect_side(from, to), 0));
	wait_for(nvl->ready(from->ep));
}

void close_side(struct side *s)
{
	if (s->ep)
		nvl->ep_destroy(s->ep);
	if (s->iface)
		nvl->iface_close(s->iface);
	s->ep = NULL;
	s->iface = NULL;
}

void turn(void)
{
	if (a.iface)
		nvl->progress(a.iface);
	if (b.iface)
		nvl->progress(b.iface);
	if (c.iface)
		nvl->progress(c.iface);
}

static int finish(struct side *s, struct wait_op *w, int ret)
{
	if (ret != -EINPROGRESS)
		return ret;
	cr_assert(until(w->done || s->errors), "an operation does not end");
	return w->done ? w->status : s->error;
}

static void pattern(uint8_t *p, size_t len)
{
	static unsigned int round;
	size_t i;

	round++;
	for (i = 0; i < len; i++)
		p[i] = i * 31 + (i >> 12) + round * 7;
}

int put_checked(struct side *s, uint8_t *src, uint8_t *dst, size_t len,
		const void *key)
{
	struct wait_op w = { .op.done = op_done };
	struct weft_iov iov = { src, len, NULL };
	int err;

	pattern(src, len);
	memset(dst, 0xa5, len);
	err = finish(
		s, &w,
		nvl->put(s->ep, &iov, 1, (uintptr_t)dst, key, NULL, &w.op));
	if (!err)
		cr_assert(memcmp(src, dst, len) == 0,
			  "the put's bytes are wrong (failed: %s)",
			  fake.fake_cuda_failed());
	return err;
}

int get_checked(struct side *s, uint8_t *dst, uint8_t *src, size_t len,
		const void *key)
{
	struct wait_op w = { .op.done = op_done };
	struct weft_iov iov = { dst, len, NULL };
	int err;

	pattern(src, len);
	memset(dst, 0x5a, len);
	err = finish(s, &w,
		     nvl->get(s->ep, &iov, 1, (uintptr_t)src, key, &w.op));
	if (!err)
		cr_assert(memcmp(src, dst, len) == 0,
			  "the get's bytes are wrong (failed: %s)",
			  fake.fake_cuda_failed());
	return err;
}

enum weft_staging staged(struct weft_ep *ep)
{
	struct weft_ep_attr attr;

	nvl->ep_query(ep, &attr);
	return attr.staged_out;
}

int prepare(struct weft_ep *ep, const void *memory)
{
	struct weft_mem *mem;
	int ret;

	ret = nvl->mem_register((void *)(uintptr_t)memory, 1, WEFT_MEM_CUDA,
				&mem);
	if (ret)
		return ret;
	ret = nvl->prepare(ep, mem);
	nvl->mem_release(mem);
	return ret;
}

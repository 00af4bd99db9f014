/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <poll.h>
#include <sys/stat.h>

#include "devices/nvlink/nvl.h"
#include "tests/lib/fds.h"
#include "tests/unit/devices/nvl_pair.h"

const struct weft_dev_ops *const nvl = &weft_nvlink_ops;
struct fake fake;

void begin_pair(void)
{
	begin_folder();
	setenv(FAKE_NVML, "1", 1);
}

void begin_ipc_pair(void)
{
	char folder[64];

	begin_pair();
	snprintf(folder, sizeof(folder), "%s/ipc", run_folder);
	cr_assert(eq(int, mkdir(folder, 0700), 0));
	setenv(FAKE_CUDA_IPC, folder, 1);
}

void load_fake(void)
{
	char path[4200];
	void *lib;

	log_keep();
	cr_assert(getenv("WEFT_BUILD") != NULL, "run it by make check");
	snprintf(path, sizeof(path), "%s/tests/lib/.libs/libfake_cuda.so",
		 getenv("WEFT_BUILD"));
	setenv("WEFT_LIBCUDA", path, 1);
	setenv("WEFT_LIBNVML", path, 1);
	lib = dlopen(path, RTLD_NOW);
	cr_assert(lib != NULL, "%s", dlerror());
#define X(type, name, args) *(void **)&fake.name = dlsym(lib, #name);
	FAKE_CUDA_CONTROL(X)
#undef X
	fake.fake_cuda_context(0);
	fake.fake_cuda_context(1);
}

int open_side(struct side *s)
{
	return side_init(s, nvl, "nvl", AF_UNSPEC);
}

void open_both(void)
{
	cr_assert(eq(int, open_side(&a), 0));
	cr_assert(eq(int, open_side(&b), 0));
}

struct weft_mem *register_gpu(void *p, size_t len, void *key)
{
	struct weft_mem *mem;

	cr_assert(eq(int, nvl->mem_register(p, len, WEFT_MEM_CUDA, &mem), 0));
	if (key)
		nvl->mem_pack(mem, key);
	return mem;
}

void meet(struct side *from, struct side *to)
{
	cr_assert(eq(int, side_dial(from, to), 0));
	wait_for(from->ops->ready(from->ep));
}

void meet_both(void)
{
	cr_assert(eq(int, side_dial(&b, &a), 0));
	meet(&a, &b);
	wait_for(b.ops->ready(b.ep));
}

static void lose(struct side *s)
{
	cr_expect(eq(int, s->error, -EIO));
	nvl->ep_destroy(s->ep);
	s->ep = NULL;
	s->errors = 0;
}

void meet_again(void)
{
	wait_for(a.errors && b.errors);
	lose(&a);
	lose(&b);
	meet_both();
}

static int finish(struct side *s, struct wait_op *w, int ret)
{
	if (ret != -EINPROGRESS)
		return ret;
	cr_assert(until(w->done || s->errors), "an operation does not end");
	return w->done ? w->status : s->error;
}

static unsigned int seed; /* another pattern for each transfer */

int put_checked(struct side *s, uint8_t *src, uint8_t *dst, size_t len,
		const void *key)
{
	struct wait_op w = WAIT_OP;
	struct weft_iov iov = { src, len, NULL };
	int err;

	pattern_fill(src, len, ++seed);
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
	struct wait_op w = WAIT_OP;
	struct weft_iov iov = { dst, len, NULL };
	int err;

	pattern_fill(src, len, ++seed);
	memset(dst, 0x5a, len);
	err = finish(s, &w,
		     nvl->get(s->ep, &iov, 1, (uintptr_t)src, key, &w.op));
	if (!err)
		cr_assert(memcmp(src, dst, len) == 0,
			  "the get's bytes are wrong (failed: %s)",
			  fake.fake_cuda_failed());
	return err;
}

void sleep_until(const unsigned int *done, const unsigned int *ended)
{
	const uint64_t end = now_ms() + WAIT_MS;
	struct pollfd fds[2] = {
		{ .fd = a.ops->event_fd(a.iface), .events = POLLIN },
		{ .fd = b.ops->event_fd(b.iface), .events = POLLIN },
	};

	for (;;) {
		progress_all();
		if (*done || (ended && *ended))
			return;
		if (a.ops->arm(a.iface) || b.ops->arm(b.iface))
			continue;
		cr_assert(ne(int, poll(fds, 2, WAIT_MS), 0),
			  "nothing wakes it: '%s' failed",
			  fake.fake_cuda_failed());
		cr_assert(lt(u64, now_ms(), end), "'%s' failed: no end",
			  fake.fake_cuda_failed());
	}
}

int calls;
const char *failed;
bool unsaid;
static struct fake_cuda_live before;
static unsigned int fds_before;

void begin_lives(unsigned int (*life)(int fail))
{
	fake.fake_cuda_delay(20);
	cr_assert(zero(uint, life(0)));
	cr_assert(zero(uint, log_lines("")));
	fds_before = count_fds();
	fake.fake_cuda_live(&before);
}

void end_of_life(unsigned int errors, const char *name, int n)
{
	struct fake_cuda_live after;

	/* once per process, most of it; what cannot be mapped, the key says */
	cr_expect(yes(!errors || unsaid || log_lines("")),
		  "%s, %d: nothing was logged", name, n);
	fake.fake_cuda_live(&after);
	cr_expect(memcmp(&before, &after, sizeof(before)) == 0,
		  "%s, %d: something lives on", name, n);
	cr_expect(eq(uint, count_fds(), fds_before), "%s, %d", name, n);
}

void fail_each_call(unsigned int (*life)(int fail))
{
	unsigned int errors;
	int n, most = calls;

	cr_assert(gt(int, calls, 50));
	for (n = 1; n <= most; n++) {
		errors = life(n);
		if (failed) /* else some calls less than last time */
			end_of_life(errors, failed, n);
	}
}

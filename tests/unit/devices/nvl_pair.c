/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>

#include "devices/nvlink/nvl.h"
#include "tests/unit/devices/nvl_pair.h"

const struct weft_dev_ops *const nvl = &weft_nvlink_ops;
struct fake fake;

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

void begin_pair(void)
{
	begin_folder();
	setenv(FAKE_NVML, "1", 1);
}

void end_pair(void)
{
	side_close(&a);
	side_close(&b);
	end_folder();
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

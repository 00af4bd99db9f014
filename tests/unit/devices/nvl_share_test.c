/* SPDX-License-Identifier: BSD-3-Clause */
/* GPUs under MPS and MIG, on the fake driver: through host memory, and said. */
#include <sys/un.h>
#include <unistd.h>

#include "tests/unit/devices/nvl_pair.h"

#define LEN (5u << 20)

static const char the_line[] = "its memory is not shared with other processes";

/* Moves bytes both ways; @during: what was shared meanwhile. */
static void transfer(struct fake_cuda_live *during)
{
	struct weft_mem *mem, *own, *buf;
	uint8_t *src, *dst, *back;
	uint8_t key[WEFT_RKEY_MAX], virt[WEFT_RKEY_MAX];

	load_fake();
	cr_assert(eq(int, open_side(&a), 0));
	cr_assert(eq(int, open_side(&b), 0));
	src = fake.fake_cuda_malloc(0, LEN);
	back = fake.fake_cuda_malloc(0, LEN);
	dst = fake.fake_cuda_malloc(1, LEN);
	cr_assert(eq(int, nvl->mem_register(dst, LEN, WEFT_MEM_CUDA, &mem), 0));
	cr_assert(eq(int, nvl->mem_register(src, LEN, WEFT_MEM_CUDA, &own), 0));
	nvl->mem_pack(mem, &key);
	cr_assert(eq(int, side_dial(&a, &b), 0));
	cr_assert(eq(int, side_dial(&b, &a), 0));
	wait_for(nvl->ready(a.ep) && nvl->ready(b.ep));
	cr_assert(eq(int, put_checked(&a, src, dst, LEN, &key), 0));
	cr_assert(eq(int, get_checked(&a, back, dst, LEN, &key), 0));

	/* what could be shared otherwise, as NCCL's buffers */
	dst = fake.fake_cuda_vmm(1, LEN + (1u << 20));
	cr_assert(eq(int, nvl->mem_register(dst, LEN, WEFT_MEM_CUDA, &buf), 0));
	nvl->mem_pack(buf, &virt);
	wait_for(prepare(a.ep, src) == 0 && prepare(b.ep, dst) == 0);
	cr_assert(eq(int, put_checked(&a, src, dst, LEN, &virt), 0));
	cr_assert(eq(int, get_checked(&a, back, dst, LEN, &virt), 0));
	fake.fake_cuda_live(during);

	nvl->mem_release(mem);
	nvl->mem_release(own);
	nvl->mem_release(buf);
	side_close(&a);
	side_close(&b);
	cr_assert(eq(uint, a.errors + b.errors, 0));
}

/* One allocation is the program's own; all else would be ours. */
static void not_shared(void)
{
	struct fake_cuda_live during;

	transfer(&during);
	cr_assert(eq(uint, during.handles, 1));
	cr_assert(eq(uint, during.maps, 1));
	cr_assert(eq(uint, log_lines(the_line), 1));
	cr_assert(eq(uint, log_lines(""), 1));
}

static void shared(void)
{
	struct fake_cuda_live during;

	transfer(&during);
	cr_assert(gt(uint, during.maps, 1));
	cr_assert(eq(uint, log_lines(""), 0));
}

Test(nvl_share, gpu_without_mps_and_mig_is_shared)
{
	setenv(FAKE_NVML, "1", 1);
	shared();
}

Test(nvl_share, mig_gpu_is_not_shared)
{
	setenv(FAKE_NVML, "1", 1);
	setenv(FAKE_CUDA_MIG, "1", 1);
	not_shared();
}

Test(nvl_share, gpu_under_mps_by_the_driver_is_not_shared)
{
	setenv(FAKE_CUDA_MPS, "1", 1);
	not_shared();
}

/* An older driver: the daemon's socket tells, if somebody listens on it. */
static int daemon_socket(char *dir)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
			0);

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

Test(nvl_share, gpu_with_mps_daemon_is_not_shared)
{
	char dir[] = "/tmp/weft-mps-XXXXXX";
	int fd = daemon_socket(dir);

	not_shared();
	/* it has not noticed */
	cr_assert(eq(int, accept(fd, NULL, NULL), -1));
	close(fd);
	remove_socket(dir);
}

Test(nvl_share, dead_mps_daemon_is_ignored)
{
	char dir[] = "/tmp/weft-mps-XXXXXX";

	close(daemon_socket(dir));
	shared();
	remove_socket(dir);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* GPUs of a sysfs of our own, with the fake driver's beside it. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/gpu.h"
#include "host/pci.h"
#include "tests/lib/cuda/fake_cuda.h"
#include "tests/lib/folder.h"

static void add(const char *busid, const char *vendor, const char *class)
{
	shell("cd bus/pci/devices && mkdir %s && cd %s && "
	      "echo %s >vendor && echo %s >class",
	      busid, busid, vendor, class);
}

/* Two GPUs, an NVIDIA switch, and another vendor's display. */
static void make_tree(void)
{
	char path[256];

	folder_begin();
	shell("mkdir -p bus/pci/devices");
	add("0000:e2:00.0", "0x10de", "0x030200");
	add("0000:e1:00.0", "0x10de", "0x030000");
	add("0000:40:00.0", "0x10de", "0x068000");
	add("0000:02:00.0", "0x1002", "0x030000");
	weft_sysfs_root = folder;
	snprintf(path, sizeof(path), "%s/tests/lib/.libs/libfake_cuda.so",
		 getenv("WEFT_BUILD"));
	setenv("WEFT_LIBNVML", path, 1);
}

TestSuite(gpu, .init = make_tree, .fini = folder_end);

Test(gpu, without_driver_gpus_come_from_sysfs)
{
	struct weft_gpus g;

	cr_assert(eq(uint, weft_gpus_on_pci(), 2));
	weft_gpus_find(&g);
	cr_assert(eq(uint, g.n, 2));
	cr_assert(
		eq(str, (char *)g.why, "NVIDIA's kernel driver is not loaded"));
	cr_assert(not(g.gpu[0].here));
	cr_assert(not(g.gpu[1].here));
}

Test(gpu, missing_nvml_is_reported)
{
	struct weft_gpus g;

	setenv("WEFT_LIBNVML", "/nosuch", 1);
	weft_gpus_find(&g);
	cr_assert(eq(uint, g.n, 2));
	cr_assert(g.why != NULL);
	cr_assert(not(weft_gpu_mig("0000:e1:00.0")));
}

/* The container has the node of one GPU, and sees both on PCI. */
Test(gpu, gpu_without_node_is_not_usable)
{
	struct weft_gpus g;

	setenv(FAKE_NVML, "1", 1);
	setenv(FAKE_CUDA_NODES, "1", 1);
	weft_gpus_find(&g);
	cr_assert(eq(uint, g.n, 2));
	cr_assert(g.why == NULL);
	cr_assert(eq(str, g.gpu[0].busid, "0000:e1:00.0"));
	cr_assert(g.gpu[0].here);
	cr_assert(eq(str, g.gpu[0].name, "a fake GPU 1"));
	cr_assert(eq(str, g.gpu[1].busid, "0000:e2:00.0"));
	cr_assert(not(g.gpu[1].here));
	cr_assert(not(g.pair[0][1].known));
}

Test(gpu, driver_fills_in_gpus_and_pair)
{
	struct weft_gpus g;

	setenv(FAKE_NVML, "1", 1);
	setenv(FAKE_CUDA_NODES, "21", 1);
	weft_gpus_find(&g);
	cr_assert(eq(uint, g.n, 2));
	cr_assert(g.gpu[0].here && g.gpu[1].here);
	cr_assert(g.pair[1][0].known && g.pair[1][0].reads);
	cr_assert(not(g.pair[0][1].nvlink));
	cr_assert(not(weft_gpu_mig("0000:e1:00.0")));
	setenv(FAKE_CUDA_MIG, "1", 1);
	cr_assert(weft_gpu_mig("0000:e1:00.0"));
	cr_assert(not(weft_gpu_mig("0000:e5:00.0")));
}

static const char *own(const char *visible)
{
	static struct weft_pci pci;
	unsigned int turn = 99;
	const char *name;

	if (visible)
		setenv("CUDA_VISIBLE_DEVICES", visible, 1);
	else
		unsetenv("CUDA_VISIBLE_DEVICES");
	if (!weft_gpu_of_process(&pci, &turn))
		return "none";
	name = strrchr(pci.path, '/');
	cr_assert(name != NULL);
	cr_expect(eq(uint, turn, name[7] == '2'), "%s", name);
	return name + 1;
}

#define UUID1 "GPU-FA4E0001-0000-0000-0000-000000000000"
#define UUID2 "GPU-fa4e0002-0000-0000-0000-000000000000"

static const struct {
	const char *visible, *own;
} of_two[] = {
	{ "0", "0000:e1:00.0" },
	{ "1,0", "0000:e2:00.0" },
	{ "2", "none" },
	{ "-1", "none" },
	{ NULL, "none" },
	{ "GPU-fa4e0002", "0000:e2:00.0" },
	{ UUID1 "," UUID2, "0000:e1:00.0" },
	{ "MIG-" UUID2 "/1/0", "0000:e2:00.0" },
	{ "GPU-99", "none" },
	{ "MIG-fa4e0002-0000-0000-0000-000000000000", "none" },
	{ "", "none" },
};

/* CUDA itself is not asked: it would take memory, and hold after a fork. */
Test(gpu, process_gpu_follows_environment)
{
	size_t i;

	setenv(FAKE_NVML, "1", 1);
	setenv(FAKE_CUDA_NODES, "12", 1);
	for (i = 0; i < sizeof(of_two) / sizeof(*of_two); i++)
		cr_expect(eq(str, (char *)own(of_two[i].visible),
			     (char *)of_two[i].own),
			  "%s",
			  of_two[i].visible ? of_two[i].visible : "unset");
}

/* Of those whose nodes this container has. */
Test(gpu, process_gpu_is_the_only_visible_one)
{
	setenv(FAKE_NVML, "1", 1);
	setenv(FAKE_CUDA_NODES, "2", 1);
	cr_expect(eq(str, (char *)own("0"), (char *)"0000:e2:00.0"));
	cr_expect(eq(str, (char *)own(NULL), (char *)"0000:e2:00.0"));
}

Test(gpu, process_gpu_without_nvml)
{
	setenv("WEFT_LIBNVML", "/nosuch", 1);
	cr_expect(eq(str, (char *)own("1"), (char *)"0000:e2:00.0"));
	cr_expect(eq(str, (char *)own(NULL), (char *)"none"));
}

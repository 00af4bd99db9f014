/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl_net/offer.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bootstrap/settings.h"
#include "util/cuda.h"
#include "util/log.h"
#include "util/parse.h"
#include "util/util.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool looked, offered;

static bool driver_is_loaded(void)
{
	const char *name = getenv("WEFT_LIBCUDA");
	void *lib = dlopen(name && *name ? name : "libcuda.so.1",
			   RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);

	if (lib)
		dlclose(lib);
	return lib;
}

/* "0x10de"; 0: not there */
static uint64_t read_number(const char *dev, const char *file)
{
	char path[320], text[32] = "";
	uint64_t n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", dev, file);
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (fgets(text, sizeof(text), f)) {
		text[strcspn(text, "\n")] = '\0';
		weft_parse_u64(text, 0, UINT32_MAX, &n);
	}
	fclose(f);
	return n;
}

/* NVIDIA's display controllers (PCI class 03): not its switches and NICs. */
int weft_nccl_gpus(void)
{
	DIR *d = opendir("/sys/bus/pci/devices");
	struct dirent *e;
	int n = 0;

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.' &&
		    read_number(e->d_name, "vendor") == 0x10de &&
		    read_number(e->d_name, "class") >> 16 == 0x03)
			n++;
	if (d)
		closedir(d);
	return n;
}

static int gpus_of_driver(void)
{
	struct weft_cuda_scope s;
	int n = 0;

	if (weft_cuda_init() || weft_cuda_enter(&s, NULL))
		return 0;
	if (s.cu->device_count(&n))
		n = 0;
	weft_cuda_leave(&s);
	return n;
}

static bool look(const char **why)
{
	const enum weft_tristate wanted = weft_settings()->nccl_nvlink;
	int n;

	if (wanted == WEFT_OFF) {
		*why = "WEFT_NCCL_NVLINK is off";
		return false;
	}
	if (!driver_is_loaded()) {
		*why = "no CUDA driver is loaded in this process";
		return false;
	}
	n = gpus_of_driver();
	if (!n) {
		*why = "the CUDA driver has no GPU";
		return false;
	}
	if (wanted == WEFT_ON) {
		*why = "WEFT_NCCL_NVLINK is on";
		return true;
	}
	if (n < 2 && weft_nccl_gpus() < 2) {
		*why = "this host has one GPU";
		return false;
	}
	*why = "this host has several GPUs";
	return true;
}

bool weft_nccl_nvlink_offered(void)
{
	const char *reason;
	bool yes;

	pthread_mutex_lock(&lock);
	if (!looked) {
		offered = look(&reason);
		looked = true;
		if (weft_settings()->nccl_nvlink == WEFT_ON && !offered)
			weft_warn("WEFT_NCCL_NVLINK is on, but %s: NCCL's "
				  "traffic goes by TCP", reason);
		else
			weft_info("NVLink is %soffered: %s",
				  offered ? "" : "not ", reason);
	}
	yes = offered;
	pthread_mutex_unlock(&lock);
	return yes;
}

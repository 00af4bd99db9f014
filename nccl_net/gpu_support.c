/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl_net/gpu_support.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "bootstrap/gpu.h"
#include "bootstrap/settings.h"
#include "util/cuda.h"
#include "util/log.h"
#include "util/util.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool decided, offered, untested, introduced;
static int (*device_works)(const char **why);

static bool driver_is_loaded(void)
{
	return weft_cuda_program_gpus() != -ENOENT;
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

static bool decide_offer(const char **why)
{
	const enum weft_tristate wanted = weft_settings()->nccl_nvlink;
	int n;

	if (wanted == WEFT_OFF) {
		*why = "WEFT_NCCL_NVLINK is off";
		return false;
	}
	if (introduced && wanted != WEFT_ON) {
		*why = "NCCL has been introduced and uses it itself";
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
	if (device_works && device_works(why))
		return false;
	if (wanted == WEFT_ON) {
		*why = "WEFT_NCCL_NVLINK is on";
		return true;
	}
	if (untested) {
		*why = "it is untested with NCCL before 2.26; WEFT_NCCL_NVLINK=on tries it";
		return false;
	}
	if (n < 2 && weft_gpus_on_pci() < 2) {
		*why = "this host has one GPU";
		return false;
	}
	*why = "this host has several GPUs";
	return true;
}

void weft_nccl_nvlink_if(int (*works)(const char **why))
{
	pthread_mutex_lock(&lock);
	device_works = works;
	pthread_mutex_unlock(&lock);
}

void weft_nccl_nvlink_untested(void)
{
	pthread_mutex_lock(&lock);
	untested = true;
	pthread_mutex_unlock(&lock);
}

void weft_nccl_set_introduced(void)
{
	pthread_mutex_lock(&lock);
	introduced = true;
	pthread_mutex_unlock(&lock);
}

bool weft_nccl_nvlink_offered(void)
{
	const char *reason;
	bool yes;

	pthread_mutex_lock(&lock);
	if (!decided) {
		offered = decide_offer(&reason);
		decided = true;
		if (weft_settings()->nccl_nvlink == WEFT_ON && !offered)
			weft_warn("WEFT_NCCL_NVLINK is on, but %s: NCCL's "
				  "traffic goes over the network",
				  reason);
		else
			weft_info("NVLink is %soffered: %s",
				  offered ? "" : "not ", reason);
	}
	yes = offered;
	pthread_mutex_unlock(&lock);
	return yes;
}

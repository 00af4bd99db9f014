/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl_net/offer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "bootstrap/gpu.h"
#include "bootstrap/settings.h"
#include "util/cuda.h"
#include "util/log.h"
#include "util/util.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool looked, offered, untried, unneeded;
static bool looked_direct, direct;

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

static bool look(const char **why)
{
	const enum weft_tristate wanted = weft_settings()->nccl_nvlink;
	int n;

	if (wanted == WEFT_OFF) {
		*why = "WEFT_NCCL_NVLINK is off";
		return false;
	}
	if (unneeded) {
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
	if (wanted == WEFT_ON) {
		*why = "WEFT_NCCL_NVLINK is on";
		return true;
	}
	if (untried) {
		*why = "it was not seen to work with an NCCL as old as this "
		       "(before 2.26); WEFT_NCCL_NVLINK=on tries it";
		return false;
	}
	if (n < 2 && weft_gpus_on_pci() < 2) {
		*why = "this host has one GPU";
		return false;
	}
	*why = "this host has several GPUs";
	return true;
}

void weft_nccl_nvlink_untried(void)
{
	pthread_mutex_lock(&lock);
	untried = true;
	pthread_mutex_unlock(&lock);
}

void weft_nccl_nvlink_unneeded(void)
{
	pthread_mutex_lock(&lock);
	unneeded = true;
	pthread_mutex_unlock(&lock);
}

bool weft_nccl_nvlink_offered(void)
{
	const char *reason;
	bool yes;

	pthread_mutex_lock(&lock);
	if (!looked) {
		offered = look(&reason);
		looked = true;
		if (weft_settings()->nccl_nvlink == WEFT_ON && !offered &&
		    !unneeded)
			weft_warn("WEFT_NCCL_NVLINK is on, but %s: NCCL's "
				  "traffic goes by the network", reason);
		else
			weft_info("NVLink is %soffered: %s",
				  offered ? "" : "not ", reason);
	}
	yes = offered;
	pthread_mutex_unlock(&lock);
	return yes;
}

static bool look_direct(bool nvlink, const char **why)
{
	const enum weft_tristate wanted = weft_settings()->ib_gpu_direct;

	if (wanted == WEFT_OFF)
		*why = "WEFT_IB_GPU_DIRECT is off";
	else if (!driver_is_loaded())
		*why = "no CUDA driver is loaded in this process";
	else if (!gpus_of_driver())
		*why = "the CUDA driver has no GPU";
	else if (untried && wanted != WEFT_ON)
		*why = "it was not seen to work with an NCCL as old as this "
		       "(before 2.26); WEFT_IB_GPU_DIRECT=on tries it";
	else if (nvlink && wanted != WEFT_ON)
		*why = "with NVLink NCCL hands it over however far the GPU is; "
		       "WEFT_IB_GPU_DIRECT=on takes it";
	else
		return true;
	return false;
}

bool weft_nccl_direct_offered(void)
{
	const bool nvlink = weft_nccl_nvlink_offered();
	const char *reason;
	bool yes;

	pthread_mutex_lock(&lock);
	if (!looked_direct) {
		direct = look_direct(nvlink, &reason);
		looked_direct = true;
		if (!direct)
			weft_info("GPU memory is not handed to adapters: %s",
				  reason);
	}
	yes = direct;
	pthread_mutex_unlock(&lock);
	return yes;
}

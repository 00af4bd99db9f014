/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPUs whose memory is not shared between processes: it is neither exported nor
 * mapped, and keys of it say so.
 *
 * MIG: a process sees one instance, and memory of another one cannot be
 * imported; NVLink is off for the whole GPU (NVIDIA's MIG User Guide,
 * Deployment Considerations; RAPIDS, Deployment, Multi-Instance GPU).  Two
 * compute instances of one GPU instance could share; they are not
 * distinguished.
 */
#include <pthread.h>

#include "devices/nvlink/nvl_map.h"
#include "devices/nvlink/nvl_share.h"
#include "host/gpu.h"
#include "util/log.h"

enum share { UNKNOWN, YES, NO };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum share known[NVL_ORDINALS];

static bool is_under_mig(const struct weft_cuda *cu, int dev)
{
	char busid[WEFT_BUSID_LEN];

	return weft_gpu_busid(cu, dev, busid) && weft_gpu_mig(busid);
}

static enum share nvl_query_driver(int ordinal)
{
	struct weft_cuda_scope s;
	bool mig = false;
	int dev;

	if (weft_cuda_enter(&s, NULL))
		return UNKNOWN;
	if (!s.cu->device_get(&dev, ordinal))
		mig = is_under_mig(s.cu, dev);
	weft_cuda_leave(&s);
	if (mig)
		weft_warn_once(
			"GPU %d is divided into instances (MIG): its memory is not mapped by other processes",
			ordinal);
	return mig ? NO : YES;
}

bool nvl_share_allowed(int ordinal)
{
	enum share share;

	if (ordinal < 0 || ordinal >= NVL_ORDINALS)
		return true;
	pthread_mutex_lock(&lock);
	if (known[ordinal] == UNKNOWN)
		known[ordinal] = nvl_query_driver(ordinal);
	share = known[ordinal];
	pthread_mutex_unlock(&lock);
	return share != NO;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread per CUDA context that makes the driver's calls for queued copies, so
 * that NCCL's one proxy thread, which serves all channels, does not spend some
 * 5 us per copy in them.
 *
 * It spins while there is work and for some time after, then sleeps.  While it
 * sleeps the caller's thread makes the calls: nobody waits for it to wake up.
 *
 * Falling asleep is a Dekker pair with nvl_copy_queue(): the thread clears
 * `awake` and then looks at gpu->waiting; the caller adds to gpu->waiting and
 * then looks at `awake`.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "bootstrap/host.h"
#include "bootstrap/settings.h"
#include "devices/nvlink.h"
#include "devices/nvlink/nvl.h"
#include "util/clock.h"
#include "util/log.h"

#define AWAKE_MS	2u		/* without work */
#define SPINS		256u		/* between looks at the clock */
#define PAUSES		8u		/* half a microsecond */
#define CPUS		8u		/* fewer are not worth a spinning one */

struct nvl_issuer {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool woken, stop;		/* by lock */
	_Atomic bool stopping;		/* the same, for one who spins */
	_Atomic bool awake;
};

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Until there was nothing to do for AWAKE_MS. */
static void work(struct nvl_gpu *gpu)
{
	struct nvl_issuer *is = gpu->issuer;
	uint64_t end = weft_now_ms() + AWAKE_MS;
	unsigned int i;

	while (!atomic_load(&is->stopping)) {
		for (i = 0; i < SPINS; i++) {
			if (atomic_load(&gpu->waiting))
				break;
			relax();
		}
		if (i < SPINS && nvl_gpu_submit(gpu))
			end = weft_now_ms() + AWAKE_MS;
		else if (weft_now_ms() > end)
			return;
		/* the engine has enough: let others have gpu->issue */
		for (i = 0; i < PAUSES; i++)
			relax();
	}
}

static void *issue(void *arg)
{
	struct nvl_gpu *gpu = arg;
	struct nvl_issuer *is = gpu->issuer;

	prctl(PR_SET_NAME, "weft issue");
	pthread_mutex_lock(&is->lock);
	while (!is->stop) {
		atomic_store(&is->awake, true);
		pthread_mutex_unlock(&is->lock);
		work(gpu);
		atomic_store(&is->awake, false);
		/* queued before it could be seen that we sleep */
		if (atomic_load(&gpu->waiting))
			nvl_gpu_submit(gpu);
		pthread_mutex_lock(&is->lock);
		while (!is->woken && !is->stop)
			pthread_cond_wait(&is->wake, &is->lock);
		is->woken = false;
	}
	pthread_mutex_unlock(&is->lock);
	return NULL;
}

bool nvl_issue_awake(struct nvl_gpu *gpu)
{
	struct nvl_issuer *is = gpu->issuer;

	if (!is)
		return false;
	if (atomic_load(&is->awake))
		return true;
	pthread_mutex_lock(&is->lock);
	if (!is->woken) {
		is->woken = true;
		pthread_cond_signal(&is->wake);
	}
	pthread_mutex_unlock(&is->lock);
	return false;
}

void nvl_issue_start(struct nvl_gpu *gpu)
{
	struct nvl_issuer *is = calloc(1, sizeof(*is));
	sigset_t all, old;
	int err;

	if (!is)
		return;
	pthread_mutex_init(&is->lock, NULL);
	pthread_cond_init(&is->wake, NULL);
	gpu->issuer = is;
	/* the program's signals are not ours to take */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&is->thread, NULL, issue, gpu);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!err)
		return;
	weft_info("no thread for the copies of GPU %d (%s): its callers make "
		  "them", gpu->ordinal, strerror(err));
	gpu->issuer = NULL;
	free(is);
}

void nvl_issue_stop(struct nvl_gpu *gpu)
{
	struct nvl_issuer *is = gpu->issuer;

	if (!is)
		return;
	pthread_mutex_lock(&is->lock);
	is->stop = true;
	atomic_store(&is->stopping, true);
	pthread_cond_signal(&is->wake);
	pthread_mutex_unlock(&is->lock);
	pthread_join(is->thread, NULL);
	pthread_cond_destroy(&is->wake);
	pthread_mutex_destroy(&is->lock);
	free(is);
	gpu->issuer = NULL;
	/* queued for it, and not seen any more */
	if (atomic_load(&gpu->waiting))
		nvl_gpu_submit(gpu);
}

void weft_nvl_serve_kernels(struct weft_iface *base)
{
	enum weft_tristate own = weft_settings()->nvl_thread;
	struct nvl_iface *iface = nvl_iface(base);

	iface->for_kernels = true;
	iface->issuers = own == WEFT_ON ||
			 (own == WEFT_AUTO && weft_host_cpus() >= CPUS);
}

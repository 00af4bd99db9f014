/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl_net/introduce/introduce.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>

#include "host/samehost.h"
#include "nccl_net/common/log.h"
#include "nccl_net/introduce/files.h"
#include "nccl_net/introduce/slots.h"
#include "settings/settings.h"
#include "stats/stats.h"
#include "util/drivers/cuda.h"
#include "util/hash.h"
#include "util/log.h"
#include "util/util.h"

WEFT_EXPORT const char *weft_nccl_introduce(const void *inside,
					    enum weft_introduce_way way,
					    const char *name);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_samehost host;
static bool decided;
static _Atomic(const void *) introduced; /* an address of NCCL's code */

/* ---- what NCCL calls instead -------------------------------------------- */

static char *get_env(const char *name);
static bool still_introduced(const void *inside);

static int get_stat(const char *path, void *st)
{
	static _Atomic(void *) real;
	int (*f)(const char *, void *) = atomic_load(&real);

	if (!f) {
		f = dlsym(RTLD_DEFAULT, "stat");
		atomic_store(&real, f);
	}
	return f(weft_nccl_stat_path(path), st);
}

static int get_xstat(int version, const char *path, void *st)
{
	static _Atomic(void *) real;
	int (*f)(int, const char *, void *) = atomic_load(&real);

	if (!f) {
		f = dlsym(RTLD_DEFAULT, "__xstat");
		atomic_store(&real, f);
	}
	return f(version, weft_nccl_stat_path(path), st);
}

static int open_file(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list args;

	if (flags & (O_CREAT | __O_TMPFILE)) {
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	return weft_nccl_open(path, flags, mode);
}

#define GETENV	1u
#define STAT	2u
#define OPEN	4u
#define MKSTEMP 8u
#define UNLINK	16u
#define BIND	32u
#define SENDMSG 64u
#define ALL	127u

/*
 * struct stat and off_t are the same with and without 64 on these processors.
 */
static const struct weft_slot slots[] = {
	{ "getenv", get_env, GETENV },
	{ "stat", get_stat, STAT },
	{ "stat64", get_stat, STAT },
	{ "__xstat", get_xstat, STAT },
	{ "__xstat64", get_xstat, STAT },
	{ "open", open_file, OPEN },
	{ "open64", open_file, OPEN },
	{ "mkstemp", weft_nccl_mkstemp, MKSTEMP },
	{ "mkstemp64", weft_nccl_mkstemp, MKSTEMP },
	{ "unlink", weft_nccl_unlink, UNLINK },
	{ "bind", weft_nccl_bind, BIND },
	{ "sendmsg", weft_nccl_sendmsg, SENDMSG },
};

static int write_slots(const void *inside)
{
	return weft_slots_write(inside, slots, ARRAY_SIZE(slots), ALL);
}

/*
 * The variables that decide it.  A thread of NCCL may have bound one of its
 * slots for the first time while they were written, so check them again.
 */
static char *get_env(const char *name)
{
	const void *inside = atomic_load(&introduced);
	const char *answer = inside ? weft_samehost_env(&host, name) : NULL;
	char *value = getenv(name);

	if (answer && (!value || !*value) && still_introduced(inside) &&
	    !write_slots(inside))
		return (char *)answer;
	return value;
}

/* ---- which NCCL it is --------------------------------------------------- */

int weft_nccl_version(const void *inside)
{
	int (*ask)(int *) = NULL;
	Dl_info object, there;
	void *handle;
	int v = 0;

	if (!dladdr(inside, &object) || !object.dli_fname)
		return 0;
	handle = dlopen(object.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	if (handle) {
		ask = dlsym(handle, "ncclGetVersion");
		dlclose(handle);
	}
	if (!ask)
		ask = dlsym(RTLD_DEFAULT, "ncclGetVersion");
	if (!ask || !dladdr((const void *)ask, &there) ||
	    there.dli_fbase != object.dli_fbase || ask(&v))
		return 0;
	return v;
}

static const char *object_name(const void *inside)
{
	Dl_info info;

	return dladdr(inside, &info) && info.dli_fname ? info.dli_fname : "?";
}

/* ---- the decision ------------------------------------------------------- */

/*
 * NCCL's import slots point into this library: it must stay when NCCL unloads
 * it with the last communicator.
 */
static bool pin_library(void)
{
	Dl_info me;
	void *handle;

	if (!dladdr(&host, &me) || !me.dli_fname)
		return false;
	handle = dlopen(me.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
	if (!handle)
		return false;
	dlclose(handle);
	return true;
}

static void log_not_introduced(const char *why)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;
	static const char text[] =
		"not introduced to other containers of this host: %s";

	if (atomic_flag_test_and_set(&said))
		return;
	if (weft_settings()->nccl_introduce == WEFT_ON)
		weft_warn(text, why);
	else
		weft_info(text, why);
}

/* Does another environment plugin answer for NCCL's settings? */
static bool settings_elsewhere(void)
{
	const char *plugin = secure_getenv("NCCL_ENV_PLUGIN");

	return plugin && *plugin && strcasecmp(plugin, "none") &&
	       !strstr(plugin, "weft");
}

/*
 * Without cuMem NCCL's GPU memory cannot leave a container
 * (ncclIsCuMemSupported(), which up to 2.23 also requires GPUDirect RDMA with
 * it).
 */
static bool without_cumem(int nccl)
{
	return weft_cuda_program_lacks(WEFT_CU_DEVICE_VMM) ||
	       weft_cuda_program_lacks(WEFT_CU_DEVICE_POSIX_FD) ||
	       (nccl < 22400 &&
		weft_cuda_program_lacks(WEFT_CU_DEVICE_VMM_RDMA));
}

/* Why this process cannot be introduced, or NULL. */
static const char *reason_against(int nccl)
{
	if (!nccl)
		return "this NCCL does not say its version";
	if (settings_elsewhere())
		return "NCCL_ENV_PLUGIN names a plugin that answers for NCCL's settings; set it to weft, or unset it";
	if (without_cumem(nccl))
		return "NCCL cannot pass on this GPU's memory: the driver does not support it here";
	return NULL;
}

/*
 * Lock held.  Checked again when NCCL reads the id: what its GPU memory can do
 * is not known before the program has loaded the CUDA driver.
 */
static bool may_introduce(const void *inside)
{
	const int nccl = weft_nccl_version(inside);
	const char *why = NULL;

	if (!decided) {
		decided = true;
		weft_samehost_find(nccl, &host);
		why = host.introduced ? NULL : host.reason;
	}
	if (host.introduced)
		why = reason_against(nccl);
	if (why) {
		host.introduced = false;
		log_not_introduced(why);
	}
	return host.introduced;
}

static bool still_introduced(const void *inside)
{
	bool yes;

	pthread_mutex_lock(&lock);
	yes = may_introduce(inside);
	pthread_mutex_unlock(&lock);
	return yes;
}

/*
 * Lock held.  NCCL reads one of the required settings before it loads a network
 * plugin.
 */
static bool is_too_late(enum weft_introduce_way way)
{
	const char *cumem = secure_getenv("NCCL_CUMEM_HOST_ENABLE");

	return way == WEFT_INTRODUCE_BY_NET && host.hidden &&
	       !atomic_load(&introduced) && (!cumem || !*cumem);
}

/* Lock held, after all checks. */
static bool enter_host(enum weft_introduce_way way)
{
	if (atomic_load(&introduced))
		return true;
	if (is_too_late(way))
		log_not_introduced(
			"other containers' GPUs are hidden, and NCCL has read NCCL_CUMEM_HOST_ENABLE before it loads this plugin; set it to 0 on all ranks, or start them by weft run or with NCCL_ENV_PLUGIN");
	else if (!weft_samehost_claim(&host))
		log_not_introduced(host.reason);
	else
		return true;
	host.introduced = false;
	return false;
}

static void log_introduced(void)
{
	if (host.hidden)
		weft_info(
			"introduced as %s to all that share '%s' and have one GPU each: NCCL uses its own shared memory there, with NCCL_P2P_DISABLE=1 and NCCL_CUMEM_HOST_ENABLE=0",
			host.id, host.folder);
	else
		weft_info(
			"introduced as %s to all that share '%s' and the same %u GPU%s: NCCL uses its own NVLink and shared memory there%s",
			host.id, host.folder, host.gpus,
			host.gpus == 1 ? "" : "s",
			host.gpus_shared
				? ", several ranks on a GPU, with NCCL_NVLS_ENABLE=0"
				: "");
}

static bool redirect_calls(const void *inside)
{
	char why[512];
	const int err = pin_library() ? write_slots(inside) : -EBUSY;

	if (!err)
		return true;
	snprintf(
		why, sizeof(why),
		"the calls of '%.200s' cannot be redirected (%s)",
		object_name(inside),
		err == -ENOSYS
			? "it imports other functions than the NCCL releases that weft knows"
			: strerror(-err));
	log_not_introduced(why);
	return false;
}

const char *weft_nccl_introduce(const void *inside, enum weft_introduce_way way,
				const char *name)
{
	bool yes;

	/* any code may query NCCL's settings */
	if (way == WEFT_INTRODUCE_BY_PRELOAD &&
	    (getauxval(AT_SECURE) ||
	     weft_slots_find(inside, slots, ARRAY_SIZE(slots), ALL)))
		return NULL;
	if (way != WEFT_INTRODUCE_BY_NET)
		weft_nccl_log_alone();
	pthread_mutex_lock(&lock);
	yes = may_introduce(inside) && enter_host(way) &&
	      redirect_calls(inside);
	/* up to 2.25 NCCL names its sockets before it asks for the id */
	if (yes)
		weft_nccl_files_begin(&host);
	if (yes && !atomic_exchange(&introduced, inside)) {
		weft_neighbour_meets(weft_hash_u64("weft introduced", host.id,
						   sizeof(host.id)));
		weft_stats_runtime("nccl");
		weft_stats_introduced(host.id);
		log_introduced();
	}
	pthread_mutex_unlock(&lock);
	return yes ? weft_samehost_env(&host, name) : NULL;
}

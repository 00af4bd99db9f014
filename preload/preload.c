/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libweft_preload.so: loads weft into a UCX that cannot load plugins, and into
 * an NCCL for which no plugin is set.
 *
 * LD_PRELOAD loads it into every child process, even bash or true.  There it
 * needs only libc, in versions that every system of the last ten years has,
 * runs no constructor and maps nothing else of weft.  It interposes a few
 * functions of UCX: when one of them is called, it opens the plugin and passes
 * the address of that copy of UCX.  Of libc it interposes getenv() only, for
 * three names: when NCCL reads NCCL_COMM_ID, NCCL_CUMEM_HOST_ENABLE or
 * NCCL_HOSTID, it opens the NCCL plugin and passes the caller's address.
 */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "host/samehost.h"
#include "preload/env_flag.h"
#include "preload/load.h"

/*
 * ucs_status_t is one byte (a packed enum in ucs/type/status.h, from 1.13 on)
 */
typedef signed char status;
#define STATUS_UNSUPPORTED (-22)

/* uct/api/uct.h and ucp/api/ucp.h, the same from 1.13 on */
WEFT_EXPORT status uct_query_components(void **components, unsigned *count);
WEFT_EXPORT status ucp_config_read(const char *prefix, const char *file,
				   void **config);
WEFT_EXPORT status ucp_config_modify(void *config, const char *name,
				     const char *value);
WEFT_EXPORT status ucp_worker_get_efd(void *worker, int *fd);
WEFT_EXPORT unsigned int ucp_worker_progress(void *worker);
WEFT_EXPORT status ucp_worker_arm(void *worker);
WEFT_EXPORT void ucp_worker_destroy(void *worker);
WEFT_EXPORT char *getenv(const char *name);

/* at most that of the program at its start, and a relative name */
#define OWN_FOLDER (2 * PATH_MAX)

struct plugin {
	weft_uct_load_fn load;
	weft_uct_environment_fn environment;
	weft_uct_option_fn option;
	weft_uct_event_driven_fn event_driven;
	weft_uct_progressed_fn progressed;
	weft_uct_worker_fn armed, gone;
};

static struct plugin plugin;
static bool plugin_tried;
static atomic_bool event_driven; /* pass calls of workers to the plugin */
static pthread_mutex_t plugin_lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * The variable that requests weft, or NULL.  An approximation:
 * ucx_tl/ucxenv.c decides it, but is in the file that could not be loaded.
 */
static const char *find_request(void)
{
	static const char *const flags[] = {
		"DASK_DISTRIBUTED_UCXX__TCP",
		"DASK_DISTRIBUTED_UCXX__NVLINK",
		"DASK_DISTRIBUTED_UCXX__INFINIBAND",
		"DASK_DISTRIBUTED__COMM__UCX__TCP",
		"DASK_DISTRIBUTED__COMM__UCX__NVLINK",
		"DASK_DISTRIBUTED__COMM__UCX__INFINIBAND",
		"DASK_UCX__TCP",
		"DASK_UCX__NVLINK",
		"DASK_UCX__INFINIBAND",
	};
	const char *tls = getenv("UCX_TLS");
	const int ucx = weft_env_flag("WEFT_UCX");
	size_t i;

	if (ucx >= 0)
		return ucx ? "WEFT_UCX" : NULL;
	if (tls && *tls)
		return strstr(tls, "weft_") ? "UCX_TLS" : NULL;
	for (i = 0; i < sizeof(flags) / sizeof(*flags); i++)
		if (weft_env_flag(flags[i]) == 1)
			return flags[i];
	return NULL;
}

/* UCX continues without weft.  Do not warn users who did not select it. */
static void warn_cannot_load(const char *file, const char *why)
{
	const char *name = find_request();

	if (name)
		dprintf(STDERR_FILENO,
			"weft: warning: cannot load '%s', which %s=%s requests: %s; UCX continues without weft\n",
			file, name, getenv(name),
			why ? why : "it lacks weft's functions");
}

/*
 * The folder of this library, with a final slash.  A relative LD_PRELOAD is
 * valid until the first chdir(), but the dynamic linker keeps the full path.
 */
static bool get_own_folder(char path[OWN_FOLDER])
{
	void *handle;
	Dl_info me;
	bool ok;

	if (!dladdr(&plugin, &me) || !me.dli_fname)
		return false;
	handle = dlopen(me.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	if (!handle)
		return false;
	ok = !dlinfo(handle, RTLD_DI_ORIGIN, path);
	if (ok)
		memcpy(path + strlen(path), "/", sizeof("/"));
	dlclose(handle);
	return ok;
}

static void open_plugin(void)
{
	/* installed, and in a build tree */
	static const char *const names[] = {
		"ucx/libuct_weft.so",
		"libuct_weft.so",
	};
	char path[OWN_FOLDER + 32], first[OWN_FOLDER + 32];
	void *handle = NULL;
	size_t dir, i;

	if (!get_own_folder(path)) {
		warn_cannot_load("libuct_weft.so",
				 "its folder cannot be found");
		return;
	}
	dir = strlen(path);
	for (i = 0; i < 2; i++) {
		memcpy(path + dir, names[i], strlen(names[i]) + 1);
		if (i == 0)
			memcpy(first, path, sizeof(first));
		if (!access(path, F_OK))
			break;
	}
	if (i == 2) {
		warn_cannot_load(first, "no such file");
		return;
	}
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		warn_cannot_load(path, dlerror());
		return;
	}
	plugin.environment =
		(weft_uct_environment_fn)dlsym(handle, "weft_uct_environment");
	plugin.option = (weft_uct_option_fn)dlsym(handle, "weft_uct_option");
	plugin.event_driven = (weft_uct_event_driven_fn)dlsym(
		handle, "weft_uct_event_driven");
	plugin.progressed = (weft_uct_progressed_fn)dlsym(
		handle, "weft_uct_worker_progressed");
	plugin.armed =
		(weft_uct_worker_fn)dlsym(handle, "weft_uct_worker_armed");
	plugin.gone = (weft_uct_worker_fn)dlsym(handle, "weft_uct_worker_gone");
	plugin.load = (weft_uct_load_fn)dlsym(handle, "weft_uct_load");
	if (!plugin.environment || !plugin.option || !plugin.event_driven ||
	    !plugin.progressed || !plugin.armed || !plugin.gone ||
	    !plugin.load) {
		warn_cannot_load(path, NULL);
		memset(&plugin, 0, sizeof(plugin));
	}
	/* never close the handle: UCX keeps components forever */
}

/* NULL: there is none, or the program is setuid. */
static const struct plugin *get_plugin(void)
{
	if (getauxval(AT_SECURE))
		return NULL;
	pthread_mutex_lock(&plugin_lock);
	if (!plugin_tried) {
		plugin_tried = true;
		open_plugin();
	}
	pthread_mutex_unlock(&plugin_lock);
	return plugin.load ? &plugin : NULL;
}

/*
 * The interposed function.  Search as the dynamic linker does: first the
 * global scope, then, for a UCX that was opened with RTLD_LOCAL, the
 * dependencies of the calling library.  So each of several copies of UCX finds
 * its own.
 */
static void *find_real(const char *name, void *caller)
{
	void *real, *handle;
	Dl_info info;

	real = dlsym(RTLD_NEXT, name);
	if (real)
		return real;
	if (dladdr(caller, &info) && info.dli_fname) {
		handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
		if (handle) {
			real = dlsym(handle, name);
			/* the caller keeps it loaded */
			dlclose(handle);
		}
	}
	return real;
}

/* The interposed functions of UCP's workers. */
enum call { GET_EFD, PROGRESS, ARM, SIGNAL, DESTROY, CALLS };

static const char *const call_names[CALLS] = {
	[GET_EFD] = "ucp_worker_get_efd", [PROGRESS] = "ucp_worker_progress",
	[ARM] = "ucp_worker_arm",	  [SIGNAL] = "ucp_worker_signal",
	[DESTROY] = "ucp_worker_destroy",
};

/*
 * The copies of UCP in this process.  Each queries its components before it
 * creates a worker, so that the return address of that call identifies it.
 * That of a call of progress does not: with a tail call in a wrapper it points
 * into the wrapper's caller, which may not depend on UCX.
 */
static struct copy {
	void *base; /* where it is loaded; NULL: free */
	void *real[CALLS];
} copies[8];
static _Atomic(struct copy *) only; /* NULL: none, or several */
static _Atomic(struct copy *) first;
static pthread_mutex_t copies_lock = PTHREAD_MUTEX_INITIALIZER;

/* With several copies: which one a page of code calls; an entry is set once. */
static struct place {
	_Atomic(uintptr_t) page;
	struct copy *copy;
} places[64];

static void *find_base(void *real)
{
	Dl_info info;

	return dladdr(real, &info) && info.dli_saddr == real ? info.dli_fbase
							     : NULL;
}

static void remove_copy(struct copy *c)
{
	struct place *p;

	for (p = places; p < places + 64; p++)
		if (atomic_load(&p->page) && p->copy == c)
			atomic_store(&p->page, 1); /* no page's number */
	c->base = NULL;
}

/* @caller, in or beside a UCP, queries its components. */
static void add_ucx_copy(void *caller)
{
	void *real[CALLS], *base;
	struct copy *c, *here = NULL, *unused = NULL;
	unsigned int i, n = 0;

	for (i = 0; i < CALLS; i++) {
		real[i] = find_real(call_names[i], caller);
		if (!real[i])
			return;
	}
	base = find_base(real[PROGRESS]);
	/* this library itself, if the program is linked to UCX */
	if (!base || real[PROGRESS] == (void *)ucp_worker_progress)
		return;
	pthread_mutex_lock(&copies_lock);
	for (c = copies; c < copies + 8; c++) {
		/* unloaded, and maybe loaded again elsewhere */
		if (c->base && find_base(c->real[PROGRESS]) != c->base)
			remove_copy(c);
		if (c->base == base)
			here = c;
		else if (!c->base && !unused)
			unused = c;
		n += !!c->base;
	}
	if (!here && unused) {
		memcpy(unused->real, real, sizeof(real));
		unused->base = base;
		here = unused;
		n++;
	}
	if (here) {
		atomic_store_explicit(&only, n == 1 ? here : NULL,
				      memory_order_release);
		atomic_store_explicit(&first, here, memory_order_release);
	}
	pthread_mutex_unlock(&copies_lock);
}

/* Cache it: the lookup takes microseconds. */
static void store_call(uintptr_t page, void *real, enum call call)
{
	struct copy *c;
	size_t i;

	pthread_mutex_lock(&copies_lock);
	for (c = copies; c < copies + 8; c++)
		if (c->base && c->real[call] == real)
			break;
	for (i = 0; c < copies + 8 && i < 64; i++) {
		if (atomic_load(&places[i].page))
			continue;
		places[i].copy = c;
		atomic_store_explicit(&places[i].page, page,
				      memory_order_release);
		break;
	}
	pthread_mutex_unlock(&copies_lock);
}

/* With several copies the caller determines which one is meant. */
static void *find_call_of(enum call call, void *caller)
{
	const uintptr_t page = (uintptr_t)caller & ~(uintptr_t)4095;
	uintptr_t there = 1;
	struct copy *c;
	void *real;
	size_t i;

	for (i = 0; i < 64 && there; i++) {
		there = atomic_load_explicit(&places[i].page,
					     memory_order_acquire);
		if (there == page)
			return places[i].copy->real[call];
	}
	real = find_real(call_names[call], caller);
	c = atomic_load_explicit(&first, memory_order_acquire);
	if (real && c && !there)
		store_call(page, real, call);
	return real || !c ? real : c->real[call];
}

/* Nearly all programs have one: they poll by this. */
static inline void *find_call(enum call call, void *caller)
{
	struct copy *c = atomic_load_explicit(&only, memory_order_acquire);

	return c ? c->real[call] : find_call_of(call, caller);
}

status uct_query_components(void **components, unsigned *count)
{
	void *caller = __builtin_return_address(0);
	const struct plugin *weft;
	status (*real)(void **, unsigned *);

	real = find_real("uct_query_components", caller);
	if (!real || real == uct_query_components)
		return STATUS_UNSUPPORTED;
	add_ucx_copy(caller);
	weft = get_plugin();
	if (weft)
		weft->load((const void *)real);
	return real(components, count);
}

status ucp_config_read(const char *prefix, const char *file, void **config)
{
	const struct plugin *weft;
	status (*real)(const char *, const char *, void **);

	real = find_real("ucp_config_read", __builtin_return_address(0));
	if (!real || real == ucp_config_read)
		return STATUS_UNSUPPORTED;
	weft = get_plugin();
	if (weft)
		weft->environment();
	return real(prefix, file, config);
}

status ucp_config_modify(void *config, const char *name, const char *value)
{
	const struct plugin *weft;
	const char *other = NULL;
	status (*real)(void *, const char *, const char *);

	real = find_real("ucp_config_modify", __builtin_return_address(0));
	if (!real || real == ucp_config_modify)
		return STATUS_UNSUPPORTED;
	weft = get_plugin();
	if (weft)
		other = weft->option(name, value);
	return real(config, name, other ? other : value);
}

status ucp_worker_get_efd(void *worker, int *fd)
{
	void *caller = __builtin_return_address(0);
	struct weft_uct_worker_calls calls;
	const struct plugin *weft;
	status (*real)(void *, int *);
	status got;

	real = find_call(GET_EFD, caller);
	if (!real || real == ucp_worker_get_efd)
		return STATUS_UNSUPPORTED;
	got = real(worker, fd);
	weft = got ? NULL : get_plugin();
	calls.progress = find_call(PROGRESS, caller);
	calls.arm = find_call(ARM, caller);
	calls.signal = find_call(SIGNAL, caller);
	if (weft && calls.progress && calls.arm && calls.signal) {
		weft->event_driven(worker, *fd, &calls);
		atomic_store(&event_driven, true);
	}
	return got;
}

unsigned int ucp_worker_progress(void *worker)
{
	unsigned int (*real)(void *);

	real = find_call(PROGRESS, __builtin_return_address(0));
	if (!real || real == ucp_worker_progress)
		return 0;
	if (!atomic_load_explicit(&event_driven, memory_order_acquire))
		return real(worker);
	return plugin.progressed(worker, real(worker));
}

status ucp_worker_arm(void *worker)
{
	status (*real)(void *);

	real = find_call(ARM, __builtin_return_address(0));
	if (!real || real == ucp_worker_arm)
		return STATUS_UNSUPPORTED;
	if (atomic_load_explicit(&event_driven, memory_order_acquire))
		plugin.armed(worker);
	return real(worker);
}

void ucp_worker_destroy(void *worker)
{
	void (*real)(void *);

	real = find_call(DESTROY, __builtin_return_address(0));
	if (!real || real == ucp_worker_destroy)
		return;
	if (atomic_load_explicit(&event_driven, memory_order_acquire))
		plugin.gone(worker);
	real(worker);
}

static weft_introduce_fn find_introduce(void)
{
	static const char name[] = "libnccl-net-weft.so";
	char path[OWN_FOLDER + sizeof(name)];
	void *handle;

	if (!get_own_folder(path))
		return NULL;
	memcpy(path + strlen(path), name, sizeof(name));
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	/* never closed: NCCL keeps pointers into it */
	return handle ? (weft_introduce_fn)dlsym(handle, "weft_nccl_introduce")
		      : NULL;
}

static const char *introduce_nccl(const void *inside, const char *name)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static weft_introduce_fn introduce;
	static bool tried;

	pthread_mutex_lock(&lock);
	if (!tried)
		introduce = find_introduce();
	tried = true;
	pthread_mutex_unlock(&lock);
	return introduce ? introduce(inside, WEFT_INTRODUCE_BY_PRELOAD, name)
			 : NULL;
}

/* A replacement for libc's getenv(). */
static char *get_libc_env(const char *name)
{
	const size_t len = strlen(name);
	char **v;

	if (!getauxval(AT_SECURE))
		return secure_getenv(name);
	for (v = environ; v && *v; v++)
		if (!strncmp(*v, name, len) && (*v)[len] == '=')
			return *v + len + 1;
	return NULL;
}

char *getenv(const char *name)
{
	const void *caller = __builtin_return_address(0);
	const char *answer = NULL;
	char *value = get_libc_env(name);

	if (name[0] != 'N' || getauxval(AT_SECURE))
		return value;
	/*
	 * All releases of NCCL read NCCL_COMM_ID first for a communicator, and
	 * NCCL_HOSTID maybe after the first sockets have their names (up to
	 * 2.25, or with NCCL_RAS_ENABLE=0).  NCCL_CUMEM_HOST_ENABLE is read
	 * with the CUDA driver, before either on other ranks than the first.
	 */
	if (!strcmp(name, "NCCL_COMM_ID"))
		introduce_nccl(caller, name);
	else if ((!value || !*value) &&
		 (!strcmp(name, "NCCL_HOSTID") ||
		  !strcmp(name, "NCCL_CUMEM_HOST_ENABLE")))
		answer = introduce_nccl(caller, name);
	return answer ? (char *)answer : value;
}

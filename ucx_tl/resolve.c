/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Find the copy of UCX that an address belongs to, and its version.
 *
 * weft links to no UCX library, loads none, and looks nothing up in the global
 * scope: Python opens UCX with RTLD_LOCAL, and one process may have several
 * copies.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "stats/stats.h"
#include "settings/settings.h"
#include "preload/load.h"
#include "ucx_tl/resolve.h"
#include "ucx_tl/uct.h"
#include "ucx_tl/ucxenv.h"
#include "util/log.h"

static struct weft_uct *copies;
static pthread_mutex_t copies_lock = PTHREAD_MUTEX_INITIALIZER;

/* Do not warn users who did not select weft. */
#define report(...)                              \
	do {                                     \
		if (weft_uct_asked_for_any())    \
			weft_warn(__VA_ARGS__);  \
		else                             \
			weft_debug(__VA_ARGS__); \
	} while (0)

static void *find_symbol(void *handle, const char *name)
{
	void *p = dlsym(handle, name);

	dlerror(); /* hide the error from the program */
	return p;
}

static void *open_loaded(const char *path)
{
	void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);

	dlerror();
	return handle;
}

struct neighbour {
	const char *beside; /* path of a library of that copy */
	size_t dir_len;	    /* length of its folder, with the slash */
	const char *prefix; /* "libuct", "libucp" */
	const char *found;
};

static int is_neighbour(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct neighbour *n = arg;
	const char *name = info->dlpi_name;

	if (!name || strncmp(name, n->beside, n->dir_len) ||
	    strncmp(name + n->dir_len, n->prefix, strlen(n->prefix)) ||
	    name[n->dir_len + strlen(n->prefix)] == '_' ||
	    strchr(name + n->dir_len, '/'))
		return 0;
	n->found = name;
	return 1;
}

/* A loaded library named @prefix... in the same folder as @path, or NULL. */
static void *open_beside(const char *path, const char *prefix)
{
	const char *slash = strrchr(path, '/');
	struct neighbour n = { .beside = path, .prefix = prefix };

	if (!slash)
		return NULL;
	n.dir_len = (size_t)(slash - path) + 1;
	dl_iterate_phdr(is_neighbour, &n);
	return n.found ? open_loaded(n.found) : NULL;
}

/*
 * A handle with which dlsym() finds the symbols of libuct and its libucs: that
 * of libuct or of a library that depends on it.
 */
static void *open_libuct(const void *inside)
{
	void *handle, *beside;
	Dl_info info;

	if (!dladdr(inside, &info) || !info.dli_fname)
		return NULL;
	handle = open_loaded(info.dli_fname);
	if (!handle || find_symbol(handle, "uct_components_list"))
		return handle;
	/* @inside is in libucs, which loads plugins since 1.22 */
	beside = open_beside(info.dli_fname, "libuct");
	dlclose(handle);
	return beside;
}

static void *find_fingerprint(void *arg, const char *name)
{
	return find_symbol(arg, name);
}

/* The version according to libucp; false in programs without it. */
static bool query_libucp(void *handle, const char *path, unsigned int *major,
			 unsigned int *minor)
{
	void (*get)(unsigned int *, unsigned int *, unsigned int *);
	void *ucp = NULL;
	unsigned int release;

	get = (void (*)(unsigned int *, unsigned int *,
			unsigned int *))find_symbol(handle, "ucp_get_version");
	if (!get) {
		ucp = open_beside(path, "libucp");
		if (ucp)
			get = (void (*)(unsigned int *, unsigned int *,
					unsigned int *))
				find_symbol(ucp, "ucp_get_version");
	}
	if (get)
		get(major, minor, &release);
	if (ucp)
		dlclose(ucp); /* UCX itself keeps it */
	return get != NULL;
}

static const struct weft_uct_abi *choose_abi(void *handle, const char *path)
{
	unsigned int forced = weft_settings()->ucx_force;
	unsigned int major = 1, minor, said;

	minor = weft_uct_abi_fingerprint(find_fingerprint, handle);
	if (!query_libucp(handle, path, &major, &said))
		said = minor;
	if (forced) {
		if (major != 1 || said != forced || minor != forced)
			report("WEFT_UCX_FORCE=%u: UCX %u.%u in '%s', with the symbols of 1.%u, is used as if it were 1.%u, and may crash or corrupt data; unset WEFT_UCX_FORCE unless weft refuses this UCX without it",
			       forced, major, said, path, minor, forced);
		return weft_uct_abi_find(forced);
	}
	if (major == 1 && said == minor)
		return weft_uct_abi_find(minor);
	if (major == 1 && said >= WEFT_UCX_MINOR_MIN &&
	    said <= WEFT_UCX_MINOR_MAX)
		report("UCX in '%s' says it is 1.%u but its symbols are those of 1.%u: weft is not used; WEFT_UCX_FORCE=%u (or %u) takes it for that version",
		       path, said, minor, said, minor);
	else
		report("UCX %u.%u in '%s' is not known to this weft (1.%u to 1.%u are): weft is not used; install a weft and a UCX that match, or try WEFT_UCX_FORCE=%u at your own risk",
		       major, said, path, WEFT_UCX_MINOR_MIN,
		       WEFT_UCX_MINOR_MAX, minor);
	return NULL;
}

#define NEED(member, symbol)                                            \
	{                                                               \
		offsetof(struct weft_uct_symbols, member), symbol, true \
	}
#define MAY(member, symbol)                                              \
	{                                                                \
		offsetof(struct weft_uct_symbols, member), symbol, false \
	}
static const struct {
	size_t at;
	const char *name;
	bool needed;
} wanted[] = {
	NEED(component_register, "uct_component_register"),
	NEED(tl_register, "uct_tl_register"),
	NEED(component_query, "uct_component_query"),
	NEED(components, "uct_components_list"),
	NEED(base_iface_init, "uct_base_iface_t_init"),
	NEED(base_iface_class, "uct_base_iface_t_class"),
	NEED(base_iface_query, "uct_base_iface_query"),
	NEED(base_estimate_perf, "uct_base_iface_estimate_perf"),
	NEED(progress_enable, "uct_base_iface_progress_enable"),
	NEED(progress_disable, "uct_base_iface_progress_disable"),
	NEED(handle_ep_err, "uct_iface_handle_ep_err"),
	NEED(md_config_table, "uct_md_config_table"),
	NEED(iface_config_table, "uct_iface_config_table"),
	NEED(calloc, "ucs_calloc"),
	NEED(class_cleanup, "ucs_class_call_cleanup_chain"),
	MAY(base_query_v2, "uct_iface_base_query_v2"),
	MAY(log_dispatch, "ucs_log_dispatch"),
	MAY(global_opts, "ucs_global_opts"),
	MAY(log_push_handler, "ucs_log_push_handler"),
};

static int find_symbols(struct weft_uct *uct, void *handle, const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		void *p = find_symbol(handle, wanted[i].name);

		if (!p && wanted[i].needed) {
			report("UCX in '%s' has no '%s': weft is not used; is it a build of UCX 1.%u to 1.%u with its own symbols?",
			       path, wanted[i].name, WEFT_UCX_MINOR_MIN,
			       WEFT_UCX_MINOR_MAX);
			return -ENOSYS;
		}
		memcpy((char *)&uct->sym + wanted[i].at, &p, sizeof(p));
	}
	/*
	 * In a program that refers to this list, as UCX's tests do, the head is
	 * in the program (a copy relocation); the unused one in libuct still
	 * points to it.
	 */
	if (uct->sym.components->next->prev != uct->sym.components)
		uct->sym.components = uct->sym.components->next;
	return 0;
}

static void log_registered(const struct weft_uct *uct, const char *path)
{
	char names[64] = "";
	size_t at = 0;

	for (size_t i = 0; i < WEFT_UCT_TLS; i++)
		if (uct->abi->minor >= weft_uct_tls[i].minor_min)
			at += (size_t)snprintf(names + at, sizeof(names) - at,
					       "%s%s", at ? ", " : "",
					       weft_uct_tls[i].name);
	weft_info("%s registered with UCX 1.%u in '%s'%s", names,
		  uct->abi->minor, path,
		  weft_uct_asked_for_any() ? "" : "; nothing selects them");
}

static int register_copy(void *handle)
{
	const struct weft_uct_abi *abi;
	struct weft_uct *uct;
	Dl_info info;
	int err;

	if (!dladdr(find_symbol(handle, "uct_components_list"), &info))
		return -ENOENT;
	for (uct = copies; uct; uct = uct->next)
		if (uct->libuct == info.dli_fbase)
			return uct->abi ? 0 : -EOPNOTSUPP;

	/* keep it also if refused, to warn only once */
	uct = calloc(1, sizeof(*uct));
	if (!uct)
		return -ENOMEM;
	uct->libuct = info.dli_fbase;
	uct->next = copies;
	copies = uct;

	abi = choose_abi(handle, info.dli_fname);
	if (!abi)
		return -EOPNOTSUPP;
	err = find_symbols(uct, handle, info.dli_fname);
	if (err)
		return err;
	uct->abi = abi;
	weft_uct_log_attach(uct);
	weft_stats_runtime("ucx");
	weft_uct_register(uct);
	log_registered(uct, info.dli_fname);
	weft_uct_log_filter(uct);
	return 0;
}

int weft_uct_load(const void *inside)
{
	void *handle = open_libuct(inside);
	int err;

	/* UCX may not use weft at all */
	weft_settings_defer_warnings();
	if (!handle) {
		report("cannot find the libuct that address %p belongs to: weft is not used; is UCX linked statically?",
		       inside);
		return -ENOENT;
	}
	pthread_mutex_lock(&copies_lock);
	err = register_copy(handle);
	pthread_mutex_unlock(&copies_lock);
	/* UCX never unloads itself or a plugin: drop the reference */
	dlclose(handle);
	return err;
}

void weft_uct_environment(void)
{
	struct weft_ucxenv env[WEFT_UCXENV_MAX];
	size_t n;

	weft_settings_defer_warnings();
	n = weft_ucxenv(WEFT_UCXENV_LOADED, env);
	for (size_t i = 0; i < n; i++) {
		weft_info("%s=%s: %s", env[i].name, env[i].value,
			  env[i].reason);
		setenv(env[i].name, env[i].value, 1);
	}
}

const char *weft_uct_option(const char *name, const char *value)
{
	weft_settings_defer_warnings();
	return weft_ucxenv_option(name, value);
}

/*
 * UCX >= 1.22 calls this in every plugin.  An error would make it unload this
 * library, which libweft_preload.so may still use.
 */
WEFT_EXPORT int64_t ucs_module_global_init(void);
int64_t ucs_module_global_init(void)
{
	weft_uct_load(__builtin_return_address(0));
	return WEFT_UCS_OK;
}

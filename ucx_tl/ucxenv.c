/* SPDX-License-Identifier: BSD-3-Clause */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/netdevs.h"
#include "host/pci.h"
#include "host/verbs.h"
#include "settings/table.h"
#include "ucx_tl/ucxenv.h"
#include "util/log.h"
#include "util/parse.h"
#include "util/util.h"

#define TLS_MAX 512

/* Newest first. */
static const char *const dask_prefixes[] = {
	"DASK_DISTRIBUTED_UCXX__",
	"DASK_DISTRIBUTED__COMM__UCX__",
	"DASK_UCX__",
};

/* Dask's flags and the transports that they stand for. */
static const struct {
	const char *flag;
	const char *tls;
	bool requests_weft;
	bool gpu; /* needs a GPU */
} flags[] = {
	{ "INFINIBAND", "weft_ib", true, false },
	{ "TCP", "weft_tcp", true, false },
	{ "NVLINK", "weft_nvl", true, true },
	{ "CUDA_COPY", "cuda_copy", false, true },
};

/* NULL also for Dask's notations of unset. */
static const char *get_dask_value(const char *name, char *full, size_t len)
{
	const char *v;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(dask_prefixes); i++) {
		snprintf(full, len, "%s%s", dask_prefixes[i], name);
		v = secure_getenv(full);
		if (v && *v && strcmp(v, "None") && strcmp(v, "null"))
			return v;
	}
	return NULL;
}

static bool is_flag_set(const char *name)
{
	char full[96];
	const char *v = get_dask_value(name, full, sizeof(full));
	bool on = false;

	return v && !weft_parse_bool(v, &on) && on;
}

static bool is_dask_flag_set(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(flags); i++)
		if (flags[i].requests_weft && is_flag_set(flags[i].flag))
			return true;
	return false;
}

/* Without a GPU UCX has no cuda transports, and Dask fails if it names them. */
bool weft_gpu_here(void)
{
	const char *visible = secure_getenv("CUDA_VISIBLE_DEVICES");

	/* CUDA Programming Guide, "CUDA Environment Variables": hides all */
	if (visible && (!*visible || !strcmp(visible, "-1")))
		return false;
	return secure_getenv("WEFT_LIBCUDA") ||
	       !access("/dev/nvidiactl", F_OK) || !access("/dev/dxg", F_OK);
}

/* A host without a port never loads libibverbs. */
static bool can_use_verbs(void)
{
	struct weft_verbs_port *list;
	bool openable = false;
	int n = weft_verbs_list(&list), i;

	if (n < 0)
		return false;
	for (i = 0; i < n && !openable; i++)
		openable = weft_verbs_openable(list[i].dev);
	free(list);
	return openable && weft_verbs_loads();
}

/* The transport for Dask's INFINIBAND; NULL: none works on this host. */
static const char *choose_infiniband(void)
{
	if (can_use_verbs())
		return "weft_ib";
	return weft_verbs_present() ? "rc" : NULL;
}

static const char *take_entry(const char *list, char *entry, size_t len)
{
	const char *end = strchrnul(list, ',');
	const size_t n = weft_min((size_t)(end - list), len - 1);

	memcpy(entry, list, n);
	entry[n] = '\0';
	return *end ? end + 1 : end;
}

/* "weft_tcp" of "\weft_tcp" and "weft_tcp:aux" (ucp_context.c) */
static char *strip_entry(char *entry)
{
	entry += *entry == '\\';
	entry[strcspn(entry, ":")] = '\0';
	return entry;
}

static bool has_entry(const char *list, const char *name, bool prefix)
{
	char entry[64], *e;

	while (*list) {
		list = take_entry(list, entry, sizeof(entry));
		e = strip_entry(entry);
		if (prefix ? !strncmp(e, name, strlen(name)) : !strcmp(e, name))
			return true;
	}
	return false;
}

static bool is_open_list(const char *tls)
{
	return *tls == '^' || has_entry(tls, "all", false);
}

/* "cuda" is UCX's name for all of its CUDA transports. */
static bool has_cuda_copy(const char *list)
{
	return has_entry(list, "cuda_copy", false) ||
	       has_entry(list, "cuda", false);
}

static bool allows_cuda_copy(const char *tls)
{
	if (*tls == '^')
		return !has_cuda_copy(tls + 1);
	return has_entry(tls, "all", false) || has_cuda_copy(tls);
}

static void append_entry(char *list, size_t len, const char *entry)
{
	const size_t n = strlen(list);
	const char *rest = list;
	char other[64];

	while (*rest) {
		rest = take_entry(rest, other, sizeof(other));
		if (!strcmp(other, entry))
			return;
	}
	snprintf(list + n, len - n, "%s%s", n ? "," : "", entry);
}

/* Host memory: shared memory within a host. */
static void append_host_tls(char *list, size_t len)
{
	append_entry(list, len, "weft_shm");
	append_entry(list, len, "weft_tcp");
}

/* UCX_TLS, or Dask's value for it, unless Dask's flags override that. */
static const char *get_tls(void)
{
	const char *v = secure_getenv("UCX_TLS");
	char full[96];

	if (v && *v)
		return v;
	if (is_dask_flag_set())
		return NULL;
	return get_dask_value("ENVIRONMENT__TLS", full, sizeof(full));
}

static void build_tls(char *tls, size_t len, char *reason, size_t rlen)
{
	const bool gpu = weft_gpu_here();
	const char *no_gpu = "", *no_ib = "", *tl;
	size_t i;

	*tls = '\0';
	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		tl = flags[i].tls;
		if (!is_flag_set(flags[i].flag) && strcmp(tl, "weft_tcp"))
			continue;
		if (flags[i].gpu && !gpu) {
			no_gpu =
				"; cuda_copy and weft_nvl left out, there is no GPU here";
			continue;
		}
		if (flags[i].gpu)
			append_entry(tls, len, "cuda_copy");
		if (!strcmp(tl, "weft_ib"))
			tl = choose_infiniband();
		if (!tl)
			no_ib = "; weft_ib left out, no port is active here";
		else if (!strcmp(tl, "weft_tcp"))
			append_host_tls(tls, len);
		else
			append_entry(tls, len, tl);
	}
	snprintf(reason, rlen, "Dask's flags request it%s%s", no_gpu, no_ib);
}

/*
 * Replace tcp and cuda_ipc: beside weft_tcp and weft_nvl they would carry a
 * part of each message.  Without a GPU drop what needs one: Dask would fail.
 */
static void add_weft_to_list(const char *given, char *tls, size_t len)
{
	const bool gpu = weft_gpu_here();
	char entry[64];

	*tls = '\0';
	if (!has_entry(given, "tcp", false))
		append_host_tls(tls, len);
	while (*given) {
		given = take_entry(given, entry, sizeof(entry));
		if (has_entry(entry, "tcp", false))
			append_host_tls(tls, len);
		else if (has_entry(entry, "cuda_ipc", false) && gpu)
			append_entry(tls, len, "weft_nvl");
		else if (strcmp(entry, "sockcm") &&
			 (gpu || !has_entry(entry, "cuda", true)))
			append_entry(tls, len, entry);
	}
}

static void drop_sockcm(const char *given, char *tls, size_t len)
{
	char entry[64];

	*tls = '\0';
	while (*given) {
		given = take_entry(given, entry, sizeof(entry));
		if (strcmp(entry, "sockcm"))
			append_entry(tls, len, entry);
	}
}

static struct weft_ucxenv *add_change(struct weft_ucxenv *out, size_t *n,
				      const char *name, const char *reason)
{
	out[*n].name = name;
	out[*n].value[0] = '\0';
	snprintf(out[*n].reason, sizeof(out[*n].reason), "%s", reason);
	return &out[(*n)++];
}

/* Returns whether weft will be used. */
static bool fix_tls(enum weft_ucxenv_how how, struct weft_ucxenv *out,
		    size_t *n)
{
	const char *given = get_tls();
	const bool run = how == WEFT_UCXENV_RUN;
	struct weft_ucxenv *e;

	if (!given && is_dask_flag_set()) {
		e = add_change(out, n, "UCX_TLS", "");
		build_tls(e->value, sizeof(e->value), e->reason,
			  sizeof(e->reason));
		return true;
	}
	if (!given) {
		if (!run)
			return weft_settings()->ucx == WEFT_ON;
		e = add_change(
			out, n, "UCX_TLS",
			weft_gpu_here()
				? "weft carries; cuda_copy handles GPU memory"
				: "weft carries");
		if (weft_gpu_here())
			append_entry(e->value, sizeof(e->value), "weft_nvl");
		append_host_tls(e->value, sizeof(e->value));
		if (weft_gpu_here())
			append_entry(e->value, sizeof(e->value), "cuda_copy");
		return true;
	}
	if (is_open_list(given)) {
		if (run && weft_settings()->ucx != WEFT_ON) {
			e = add_change(
				out, n, "WEFT_UCX",
				"UCX_TLS names no transport: weft is added");
			append_entry(e->value, sizeof(e->value), "on");
		}
		return run || weft_settings()->ucx == WEFT_ON;
	}
	if (!has_entry(given, "weft_", true)) {
		if (!run)
			return false;
		e = add_change(out, n, "UCX_TLS", "");
		snprintf(e->reason, sizeof(e->reason), "%s%s",
			 has_entry(given, "tcp", false)
				 ? "weft_shm and weft_tcp replace tcp"
				 : "weft_shm and weft_tcp are added",
			 has_entry(given, "cuda", true) && !weft_gpu_here()
				 ? "; cuda left out, there is no GPU here"
				 : "");
		add_weft_to_list(given, e->value, sizeof(e->value));
	} else if (has_entry(given, "sockcm", false)) {
		e = add_change(out, n, "UCX_TLS",
			       "sockcm is no transport of today's UCX");
		drop_sockcm(given, e->value, sizeof(e->value));
	}
	return true;
}

/* UCX_TLS once @out is set; NULL: none. */
static const char *find_tls(const struct weft_ucxenv *out, size_t n)
{
	const char *tls = get_tls();
	size_t i;

	for (i = 0; i < n; i++)
		if (!strcmp(out[i].name, "UCX_TLS"))
			tls = out[i].value;
	return tls;
}

/* Will a transport for GPU memory be offered once @out is set? */
static bool is_gpu_chosen(const struct weft_ucxenv *out, size_t n)
{
	const char *tls = find_tls(out, n);

	if (!weft_gpu_here() || (tls && *tls == '^' && !allows_cuda_copy(tls)))
		return false;
	return !tls || is_open_list(tls) || has_entry(tls, "weft_nvl", false) ||
	       (has_entry(tls, "weft_shm", false) && allows_cuda_copy(tls));
}

/* Unless the user or Dask has set it. */
static void set_for_gpu(struct weft_ucxenv *out, size_t *n, const char *name,
			const char *value, const char *reason)
{
	const char *given = secure_getenv(name);
	char dask[64], full[96];
	struct weft_ucxenv *e;

	snprintf(dask, sizeof(dask), "ENVIRONMENT__%s", name + strlen("UCX_"));
	if ((given && *given) || get_dask_value(dask, full, sizeof(full)))
		return;
	e = add_change(out, n, name, reason);
	append_entry(e->value, sizeof(e->value), value);
}

/* PyTorch takes either name. */
static bool has_expandable_segments(void)
{
	const char *old = secure_getenv("PYTORCH_CUDA_ALLOC_CONF");
	const char *current = secure_getenv("PYTORCH_ALLOC_CONF");
	const char *on = "expandable_segments:True";

	return (old && strstr(old, on)) || (current && strstr(current, on));
}

static void fix_gpu_memory(struct weft_ucxenv *out, size_t *n)
{
	if (!is_gpu_chosen(out, *n))
		return;
	/*
	 * With a transport for GPU memory UCX >= 1.18 sends large host messages
	 * through fragments in GPU memory, which is far slower and takes GPU
	 * memory in processes that use none.  ucxx requests them by the
	 * variable's old name; the new name wins.
	 */
	set_for_gpu(out, n, "UCX_RNDV_FRAG_MEM_TYPES", "host",
		    "host messages do not go through GPU memory");
	/*
	 * UCX >= 1.18 treats memory of cudaMallocAsync as managed memory,
	 * because CUDA IPC does not support it; weft_shm carries it.
	 */
	set_for_gpu(out, n, "UCX_CUDA_COPY_ASYNC_MEM_TYPE", "cuda",
		    "weft_shm carries memory of cudaMallocAsync, too");
	/*
	 * UCX registers the allocation that a buffer begins in, and no more: if
	 * the buffer continues in the next one, its key is refused beyond that
	 * (openucx/ucx pull request 11461).
	 */
	if (has_expandable_segments())
		set_for_gpu(
			out, n, "UCX_CUDA_COPY_REG_WHOLE_ALLOC", "off",
			"buffers may span several of PyTorch's expandable segments");
}

/*
 * The value for current releases of UCX: sockcm is now called tcp, pip's UCX
 * has no rdmacm, and weft_ib's peers meet at an address of the interface.
 * NULL: no change.
 */
static const char *translate_sockaddr(const char *priority)
{
	if (!strcmp(priority, "sockcm"))
		return "tcp";
	if (strcmp(priority, "rdmacm"))
		return NULL;
	return weft_is_requested("weft_ib") ? "tcp" : "rdmacm,tcp";
}

static void fix_sockaddr_tls(struct weft_ucxenv *out, size_t *n)
{
	const char *given = secure_getenv("UCX_SOCKADDR_TLS_PRIORITY");
	struct weft_ucxenv *e;

	if (given && !strcmp(given, "sockcm")) {
		e = add_change(out, n, "UCX_SOCKADDR_TLS_PRIORITY",
			       "today's UCX calls sockcm tcp");
		snprintf(e->value, sizeof(e->value), "%s",
			 translate_sockaddr(given));
	} else if (!given && is_flag_set("RDMACM")) {
		e = add_change(
			out, n, "UCX_SOCKADDR_TLS_PRIORITY",
			weft_is_requested("weft_ib")
				? "Dask's RDMACM; weft_ib's peers meet over TCP"
				: "Dask's RDMACM; tcp where this UCX has no rdmacm");
		snprintf(e->value, sizeof(e->value), "%s",
			 translate_sockaddr("rdmacm"));
	}
}

/* Add the interface of a verbs device: it is the name of weft_tcp's device. */
static void append_netdevs(char *list, size_t len, const char *verbs)
{
	char path[512], found[IF_NAMESIZE];
	const struct dirent *d;
	unsigned int i;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/class/infiniband/%.*s/device/net",
		 weft_sysfs_root, (int)strcspn(verbs, ":"), verbs);
	dir = strchr(verbs, '/') ? NULL : opendir(path);
	while (dir && (d = readdir(dir)))
		if (d->d_name[0] != '.')
			append_entry(list, len, d->d_name);
	if (dir)
		closedir(dir);
	for (i = 0; i < WEFT_NETDEV_SOURCES; i++)
		if (weft_netdev_read_verbs(verbs, i, found))
			append_entry(list, len, found);
}

/*
 * UCX would take Dask's "auto" for the name of a device.  weft chooses among
 * its devices itself, also in child processes.
 */
static void fix_auto_devices(struct weft_ucxenv *out, size_t *n)
{
	const char *own = secure_getenv("WEFT_NET_DEVICES");
	struct weft_ucxenv *e;

	e = add_change(out, n, "UCX_NET_DEVICES", "UCX has no value for auto");
	append_entry(e->value, sizeof(e->value), "all");
	if (own && *own)
		return;
	e = add_change(out, n, "WEFT_NET_DEVICES", "as UCX_NET_DEVICES said");
	append_entry(e->value, sizeof(e->value), "auto");
}

static void fix_net_devices(enum weft_ucxenv_how how, struct weft_ucxenv *out,
			    size_t *n)
{
	const char *given = secure_getenv("UCX_NET_DEVICES"), *v = given, *list;
	char full[96], entry[64], one[64], with[TLS_MAX] = "";
	struct weft_ucxenv *e;
	unsigned int i;

	if (!given || !*given)
		v = get_dask_value("ENVIRONMENT__NET_DEVICES", full,
				   sizeof(full));
	if (v && !strcmp(v, "auto")) {
		fix_auto_devices(out, n);
		return;
	}
	if (given && *given && how != WEFT_UCXENV_RUN)
		return;
	if (!v)
		v = get_dask_value("NET_DEVICES", full, sizeof(full));
	if (!v || !*v || *v == '^' || !strcmp(v, "auto") || !strcmp(v, "all"))
		return;
	for (list = v; *list;) {
		list = take_entry(list, entry, sizeof(entry));
		append_entry(with, sizeof(with), entry);
		for (i = 0;
		     weft_range_name(entry, strlen(entry), i, one, sizeof(one));
		     i++)
			append_netdevs(with, sizeof(with), one);
	}
	if (v == given && !strcmp(with, given))
		return;
	e = add_change(
		out, n, "UCX_NET_DEVICES",
		v == given
			? "the interface of a verbs device, by which weft_tcp goes"
			: full);
	snprintf(e->value, sizeof(e->value), "%s", with);
}

size_t weft_ucxenv(enum weft_ucxenv_how how,
		   struct weft_ucxenv out[WEFT_UCXENV_MAX])
{
	size_t n = 0;

	if (weft_settings()->ucx == WEFT_OFF || !fix_tls(how, out, &n))
		return 0;
	fix_sockaddr_tls(out, &n);
	fix_net_devices(how, out, &n);
	fix_gpu_memory(out, &n);
	return n;
}

bool weft_is_requested(const char *tl_name)
{
	const enum weft_tristate ucx = weft_settings()->ucx;
	char tls[TLS_MAX], reason[160];
	const char *given;

	if (ucx != WEFT_AUTO)
		return ucx == WEFT_ON;
	given = get_tls();
	if (given)
		return *given != '^' && has_entry(given, tl_name, false);
	if (!is_dask_flag_set())
		return false;
	build_tls(tls, sizeof(tls), reason, sizeof(reason));
	return has_entry(tls, tl_name, false);
}

bool weft_cuda_copy_requested(void)
{
	const char *given = get_tls();

	/* Dask's flags imply it */
	return !given || allows_cuda_copy(given);
}

/* Is any weft transport requested? */
static bool is_any_requested(void)
{
	const char *given = get_tls();

	if (weft_settings()->ucx != WEFT_AUTO)
		return weft_settings()->ucx == WEFT_ON;
	return given ? *given != '^' && has_entry(given, "weft_", true)
		     : is_dask_flag_set();
}

const char *weft_ucxenv_option(const char *name, const char *value)
{
	static __thread char tls[TLS_MAX];
	const char *given = get_tls();
	char reason[160];

	/* older releases of Dask pass net-devices like this */
	if (!strcmp(name, "NET_DEVICES"))
		return !strcmp(value, "auto") && is_any_requested() ? "all"
								    : NULL;
	if (weft_settings()->ucx == WEFT_OFF || !is_dask_flag_set())
		return NULL;
	/* weft may have set UCX_TLS to this list before */
	build_tls(tls, sizeof(tls), reason, sizeof(reason));
	if (given && strcmp(given, tls))
		return NULL;
	if (!strcmp(name, "TLS"))
		return has_entry(value, "weft_", true) ? NULL : tls;
	if (!strcmp(name, "SOCKADDR_TLS_PRIORITY"))
		return translate_sockaddr(value);
	return NULL;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/pci.h"
#include "bootstrap/settings_table.h"
#include "bootstrap/ucxenv.h"
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

/* What Dask's flags mean; "cuda" ones need a GPU to be there. */
static const struct {
	const char *flag;
	const char *tls;
	bool asks; /* brings in UCX_TLS at all */
	bool gpu;
} flags[] = {
	{ "INFINIBAND", "rc", true, false },
	{ "TCP", "weft_tcp", true, false },
	{ "NVLINK", "weft_nvl", true, true },
	{ "CUDA_COPY", "cuda_copy", false, true },
};

/* NULL also for what Dask takes for nothing. */
static const char *dask_value(const char *name, char *full, size_t len)
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

static bool dask_flag(const char *name)
{
	char full[96];
	const char *v = dask_value(name, full, sizeof(full));
	bool on = false;

	return v && !weft_parse_bool(v, &on) && on;
}

static bool dask_asks(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(flags); i++)
		if (flags[i].asks && dask_flag(flags[i].flag))
			return true;
	return false;
}

/* Without one, UCX has no cuda transports and Dask fails for naming them. */
bool weft_gpu_here(void)
{
	const char *visible = secure_getenv("CUDA_VISIBLE_DEVICES");

	/* CUDA Programming Guide, "CUDA Environment Variables": none is seen */
	if (visible && (!*visible || !strcmp(visible, "-1")))
		return false;
	return secure_getenv("WEFT_LIBCUDA") ||
	       !access("/dev/nvidiactl", F_OK) || !access("/dev/dxg", F_OK);
}

static const char *next_entry(const char *list, char *entry, size_t len)
{
	const char *end = strchrnul(list, ',');
	const size_t n = weft_min((size_t)(end - list), len - 1);

	memcpy(entry, list, n);
	entry[n] = '\0';
	return *end ? end + 1 : end;
}

/* "weft_tcp" of "\weft_tcp" and "weft_tcp:aux" (ucp_context.c, 1.13 to 1.22) */
static char *entry_name(char *entry)
{
	entry += *entry == '\\';
	entry[strcspn(entry, ":")] = '\0';
	return entry;
}

static bool list_has(const char *list, const char *name, bool prefix)
{
	char entry[64], *e;

	while (*list) {
		list = next_entry(list, entry, sizeof(entry));
		e = entry_name(entry);
		if (prefix ? !strncmp(e, name, strlen(name)) : !strcmp(e, name))
			return true;
	}
	return false;
}

static bool open_list(const char *tls)
{
	return *tls == '^' || list_has(tls, "all", false);
}

/* "cuda" is UCX's name for all of its CUDA transports. */
static bool names_cuda_copy(const char *list)
{
	return list_has(list, "cuda_copy", false) ||
	       list_has(list, "cuda", false);
}

static bool lets_cuda_copy_in(const char *tls)
{
	if (*tls == '^')
		return !names_cuda_copy(tls + 1);
	return list_has(tls, "all", false) || names_cuda_copy(tls);
}

static void append(char *list, size_t len, const char *entry)
{
	const size_t n = strlen(list);
	const char *rest = list;
	char other[64];

	while (*rest) {
		rest = next_entry(rest, other, sizeof(other));
		if (!strcmp(other, entry))
			return;
	}
	snprintf(list + n, len - n, "%s%s", n ? "," : "", entry);
}

/* UCX_TLS; else what Dask puts into it, unless Dask's flags overrule that. */
static const char *given_tls(void)
{
	const char *v = secure_getenv("UCX_TLS");
	char full[96];

	if (v && *v)
		return v;
	return dask_asks() ? NULL
			   : dask_value("ENVIRONMENT__TLS", full, sizeof(full));
}

static void tls_of_flags(char *tls, size_t len, char *reason, size_t rlen)
{
	const bool gpu = weft_gpu_here();
	size_t i, n = 0;
	bool want_gpu = false;

	*tls = '\0';
	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		if (!dask_flag(flags[i].flag) &&
		    strcmp(flags[i].tls, "weft_tcp"))
			continue;
		if (flags[i].gpu) {
			want_gpu = true;
			if (!gpu)
				continue;
			append(tls, len, "cuda_copy");
		}
		append(tls, len, flags[i].tls);
	}
	n = (size_t)snprintf(reason, rlen, "Dask's flags ask for it");
	if (want_gpu && !gpu && n < rlen)
		snprintf(reason + n, rlen - n,
			 "; cuda_copy and weft_nvl left out, there is no GPU "
			 "here");
}

/* tcp beside weft_tcp would carry a part of each message; so cuda_ipc. */
static void put_weft_in(const char *given, char *tls, size_t len)
{
	char entry[64];

	*tls = '\0';
	if (!list_has(given, "tcp", false))
		append(tls, len, "weft_tcp");
	while (*given) {
		given = next_entry(given, entry, sizeof(entry));
		if (list_has(entry, "tcp", false))
			append(tls, len, "weft_tcp");
		else if (list_has(entry, "cuda_ipc", false) && weft_gpu_here())
			append(tls, len, "weft_nvl");
		else if (strcmp(entry, "sockcm"))
			append(tls, len, entry);
	}
}

static void drop_sockcm(const char *given, char *tls, size_t len)
{
	char entry[64];

	*tls = '\0';
	while (*given) {
		given = next_entry(given, entry, sizeof(entry));
		if (strcmp(entry, "sockcm"))
			append(tls, len, entry);
	}
}

static struct weft_ucxenv *add(struct weft_ucxenv *out, size_t *n,
			       const char *name, const char *reason)
{
	out[*n].name = name;
	out[*n].value[0] = '\0';
	snprintf(out[*n].reason, sizeof(out[*n].reason), "%s", reason);
	return &out[(*n)++];
}

/* Returns whether weft will be used. */
static bool settle_tls(enum weft_ucxenv_how how, struct weft_ucxenv *out,
		       size_t *n)
{
	const char *given = given_tls();
	const bool run = how == WEFT_UCXENV_RUN;
	struct weft_ucxenv *e;

	if (!given && dask_asks()) {
		e = add(out, n, "UCX_TLS", "");
		tls_of_flags(e->value, sizeof(e->value), e->reason,
			     sizeof(e->reason));
		return true;
	}
	if (!given) {
		if (!run)
			return weft_settings()->ucx == WEFT_ON;
		e = add(out, n, "UCX_TLS",
			weft_gpu_here()
				? "weft carries; cuda_copy handles GPU memory"
				: "weft carries");
		if (weft_gpu_here())
			append(e->value, sizeof(e->value), "weft_nvl");
		append(e->value, sizeof(e->value), "weft_tcp");
		if (weft_gpu_here())
			append(e->value, sizeof(e->value), "cuda_copy");
		return true;
	}
	if (open_list(given)) {
		if (run && weft_settings()->ucx != WEFT_ON) {
			e = add(out, n, "WEFT_UCX",
				"UCX_TLS names no transport: weft joins in");
			append(e->value, sizeof(e->value), "on");
		}
		return run || weft_settings()->ucx == WEFT_ON;
	}
	if (!list_has(given, "weft_", true)) {
		if (!run)
			return false;
		e = add(out, n, "UCX_TLS",
			list_has(given, "tcp", false)
				? "weft_tcp takes the place of tcp"
				: "weft_tcp is added to yours");
		put_weft_in(given, e->value, sizeof(e->value));
	} else if (list_has(given, "sockcm", false)) {
		e = add(out, n, "UCX_TLS",
			"sockcm is no transport of today's UCX");
		drop_sockcm(given, e->value, sizeof(e->value));
	}
	return true;
}

/* With what is in @out set; NULL: none. */
static const char *tls_then(const struct weft_ucxenv *out, size_t n)
{
	const char *tls = given_tls();
	size_t i;

	for (i = 0; i < n; i++)
		if (!strcmp(out[i].name, "UCX_TLS"))
			tls = out[i].value;
	return tls;
}

/* Will weft_nvl be offered, with what is in @out set? */
static bool nvl_chosen(const struct weft_ucxenv *out, size_t n)
{
	const char *tls = tls_then(out, n);

	if (!weft_gpu_here() ||
	    (tls && *tls == '^' && !lets_cuda_copy_in(tls)))
		return false;
	return !tls || open_list(tls) || list_has(tls, "weft_nvl", false);
}

/* May adapters take GPU memory?  They take none of cudaMallocAsync. */
static bool ib_takes_gpu(const struct weft_ucxenv *out, size_t n)
{
	const char *tls = tls_then(out, n);

	return weft_settings()->ib_gpu_direct != WEFT_OFF &&
	       (weft_settings()->ucx == WEFT_ON ||
		(tls && list_has(tls, "weft_ib", false)));
}

/*
 * What comes from cudaMallocAsync counts as managed memory for UCX >= 1.18,
 * because CUDA IPC cannot do it; weft_nvl can.
 */
static void settle_async(struct weft_ucxenv *out, size_t *n)
{
	const char *given = secure_getenv("UCX_CUDA_COPY_ASYNC_MEM_TYPE");
	struct weft_ucxenv *e;
	char full[96];

	if ((given && *given) || !nvl_chosen(out, *n) ||
	    ib_takes_gpu(out, *n) ||
	    dask_value("ENVIRONMENT__CUDA_COPY_ASYNC_MEM_TYPE", full,
		       sizeof(full)))
		return;
	e = add(out, n, "UCX_CUDA_COPY_ASYNC_MEM_TYPE",
		"weft_nvl carries memory of cudaMallocAsync, too");
	append(e->value, sizeof(e->value), "cuda");
}

/*
 * With a transport that has GPU memory at hand UCX >= 1.18 sends large host
 * messages by way of GPU fragments, which are slower by far and take GPU memory
 * in processes that use none.  ucxx asks for them by the variable's old name;
 * the new one wins.
 */
static void settle_fragments(struct weft_ucxenv *out, size_t *n)
{
	const char *given = secure_getenv("UCX_RNDV_FRAG_MEM_TYPES");
	struct weft_ucxenv *e;
	char full[96];

	if ((given && *given) || !nvl_chosen(out, *n) ||
	    dask_value("ENVIRONMENT__RNDV_FRAG_MEM_TYPES", full, sizeof(full)))
		return;
	e = add(out, n, "UCX_RNDV_FRAG_MEM_TYPES",
		"host messages do not go by way of the GPU");
	append(e->value, sizeof(e->value), "host");
}

/*
 * How today's UCX says it: sockcm is called tcp, and pip's UCX has no rdmacm.
 * NULL: as it is.
 */
static const char *newer_sockaddr(const char *priority)
{
	if (!strcmp(priority, "sockcm"))
		return "tcp";
	return !strcmp(priority, "rdmacm") ? "rdmacm,tcp" : NULL;
}

static void settle_sockaddr(struct weft_ucxenv *out, size_t *n)
{
	const char *given = secure_getenv("UCX_SOCKADDR_TLS_PRIORITY");
	struct weft_ucxenv *e;

	if (given && !strcmp(given, "sockcm")) {
		e = add(out, n, "UCX_SOCKADDR_TLS_PRIORITY",
			"today's UCX calls sockcm tcp");
		snprintf(e->value, sizeof(e->value), "%s",
			 newer_sockaddr(given));
	} else if (!given && dask_flag("RDMACM")) {
		e = add(out, n, "UCX_SOCKADDR_TLS_PRIORITY",
			"Dask's RDMACM; tcp where this UCX has no rdmacm");
		snprintf(e->value, sizeof(e->value), "%s",
			 newer_sockaddr("rdmacm"));
	}
}

/* The interface of a verbs device joins it: weft_tcp's device is named so. */
static void append_netdevs(char *list, size_t len, const char *verbs)
{
	char path[512], told[IF_NAMESIZE];
	const struct dirent *d;
	unsigned int i;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/class/infiniband/%.*s/device/net",
		 weft_sysfs_root, (int)strcspn(verbs, ":"), verbs);
	dir = strchr(verbs, '/') ? NULL : opendir(path);
	while (dir && (d = readdir(dir)))
		if (d->d_name[0] != '.')
			append(list, len, d->d_name);
	if (dir)
		closedir(dir);
	for (i = 0; i < WEFT_NETDEV_TOLD; i++)
		if (weft_netdev_told(verbs, i, told))
			append(list, len, told);
}

/*
 * Dask's "auto" is a device's name to UCX, and none has it; weft chooses among
 * its own devices itself, also in processes that this one starts.
 */
static void settle_auto(struct weft_ucxenv *out, size_t *n)
{
	const char *own = secure_getenv("WEFT_NET_DEVICES");
	struct weft_ucxenv *e;

	e = add(out, n, "UCX_NET_DEVICES", "UCX has no word for auto");
	append(e->value, sizeof(e->value), "all");
	if (own && *own)
		return;
	e = add(out, n, "WEFT_NET_DEVICES", "as UCX_NET_DEVICES said");
	append(e->value, sizeof(e->value), "auto");
}

static void settle_net_devices(enum weft_ucxenv_how how,
			       struct weft_ucxenv *out, size_t *n)
{
	const char *given = secure_getenv("UCX_NET_DEVICES"), *v = given, *list;
	char full[96], entry[64], one[64], with[TLS_MAX] = "";
	struct weft_ucxenv *e;
	unsigned int i;

	if (!given || !*given)
		v = dask_value("ENVIRONMENT__NET_DEVICES", full, sizeof(full));
	if (v && !strcmp(v, "auto")) {
		settle_auto(out, n);
		return;
	}
	if (given && *given && how != WEFT_UCXENV_RUN)
		return;
	if (!v)
		v = dask_value("NET_DEVICES", full, sizeof(full));
	if (!v || !*v || *v == '^' || !strcmp(v, "auto") || !strcmp(v, "all"))
		return;
	for (list = v; *list;) {
		list = next_entry(list, entry, sizeof(entry));
		append(with, sizeof(with), entry);
		for (i = 0; weft_range_name(entry, strlen(entry), i, one,
					    sizeof(one)); i++)
			append_netdevs(with, sizeof(with), one);
	}
	if (v == given && !strcmp(with, given))
		return;
	e = add(out, n, "UCX_NET_DEVICES",
		v == given
			? "the interface of a verbs device, by which weft_tcp goes"
			: full);
	snprintf(e->value, sizeof(e->value), "%s", with);
}

size_t weft_ucxenv(enum weft_ucxenv_how how,
		   struct weft_ucxenv out[WEFT_UCXENV_MAX])
{
	size_t n = 0;

	if (weft_settings()->ucx == WEFT_OFF || !settle_tls(how, out, &n))
		return 0;
	settle_sockaddr(out, &n);
	settle_net_devices(how, out, &n);
	settle_fragments(out, &n);
	settle_async(out, &n);
	return n;
}

bool weft_asked_for(const char *tl_name)
{
	const enum weft_tristate ucx = weft_settings()->ucx;
	char tls[TLS_MAX], reason[160];
	const char *given;

	if (ucx != WEFT_AUTO)
		return ucx == WEFT_ON;
	given = given_tls();
	if (given)
		return *given != '^' && list_has(given, tl_name, false);
	if (!dask_asks())
		return false;
	tls_of_flags(tls, sizeof(tls), reason, sizeof(reason));
	return list_has(tls, tl_name, false);
}

bool weft_cuda_copy_asked_for(void)
{
	const char *given = given_tls();

	/* Dask's flags bring it along */
	return !given || lets_cuda_copy_in(given);
}

/* Is any of weft's transports asked for? */
static bool any_asked_for(void)
{
	const char *given = given_tls();

	if (weft_settings()->ucx != WEFT_AUTO)
		return weft_settings()->ucx == WEFT_ON;
	return given ? *given != '^' && list_has(given, "weft_", true)
		     : dask_asks();
}

const char *weft_ucxenv_option(const char *name, const char *value)
{
	static __thread char tls[TLS_MAX];
	const char *given = given_tls();
	char reason[160];

	/* of the years when Dask handed over its net-devices so */
	if (!strcmp(name, "NET_DEVICES"))
		return !strcmp(value, "auto") && any_asked_for() ? "all" : NULL;
	if (weft_settings()->ucx == WEFT_OFF || !dask_asks())
		return NULL;
	/* What stands in UCX_TLS by now may be this very list, set by us. */
	tls_of_flags(tls, sizeof(tls), reason, sizeof(reason));
	if (given && strcmp(given, tls))
		return NULL;
	if (!strcmp(name, "TLS"))
		return list_has(value, "weft_", true) ? NULL : tls;
	if (!strcmp(name, "SOCKADDR_TLS_PRIORITY"))
		return newer_sockaddr(value);
	return NULL;
}

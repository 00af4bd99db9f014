/* SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "settings/table.h"
#include "util/log.h"
#include "util/parse.h"
#include "util/util.h"

#define AT(field) offsetof(struct weft_settings, field)
#define KIB	  (1ull << 10)
#define MIB	  (1ull << 20)
#define GIB	  (1ull << 30)

/* The only place that knows names, defaults, bounds and help. */
static const struct weft_setting table[] = {
	{ "WEFT_LOG", NULL, WEFT_SET_LEVEL, AT(log), "warn",
	  .help = "Level of messages: error, warn, info or debug" },
	{ "WEFT_STATS", NULL, WEFT_SET_TEXT, AT(stats), "0",
	  .help = "Counters per device and peer, written when an interface "
		  "closes and at exit: 0 is off, 1 is stderr, anything else "
		  "the file to append to (%p becomes the process id). "
		  "prometheus:PATH replaces that file every five seconds, in "
		  "the format of node_exporter's textfile collector; in a "
		  "folder each process makes one of its own" },
	{ "WEFT_UCX", NULL, WEFT_SET_TRISTATE, AT(ucx), "auto",
	  .help = "Offer devices to UCX: auto does if UCX_TLS or Dask's flags "
		  "request a weft_ transport; on always does (for settings "
		  "from UCX's file or from the program); off never does" },
	{ "WEFT_UCX_FORCE", NULL, WEFT_SET_MINOR, AT(ucx_force), "",
	  .min = WEFT_UCX_MINOR_MIN, .max = WEFT_UCX_MINOR_MAX,
	  .help = "Take any UCX for this version (22 or 1.22), to try one that "
		  "weft refuses. A wrong version may crash the program or "
		  "corrupt data" },
	{ "WEFT_UCX_IDLE_WAIT", NULL, WEFT_SET_UINT, AT(ucx_idle_wait_us),
	  "5000", .min = 0, .max = 10000,
	  .help = "Longest sleep, in microseconds, inserted when a program "
		  "polls an idle worker although it uses UCX's event fd, as "
		  "ucxx does. Data and other events of the program's event "
		  "loop end it at once; if no such loop is found, a sleep "
		  "lasts at most 200. 0 is off. Needs LD_PRELOAD" },
	{ "WEFT_NET_DEVICES",
	  "UCX_NET_DEVICES,"
	  "DASK_DISTRIBUTED_UCXX__ENVIRONMENT__NET_DEVICES,"
	  "DASK_DISTRIBUTED__COMM__UCX__ENVIRONMENT__NET_DEVICES,"
	  "DASK_DISTRIBUTED__COMM__UCX__NET_DEVICES,"
	  "DASK_UCX__NET_DEVICES,UCXPY_IFNAME,NCCL_SOCKET_IFNAME",
	  WEFT_SET_TEXT, AT(net_devices), "all",
	  .help = "Interfaces to use: all, a list (eth0,ib0), or all but a "
		  "list (^docker0); eth[0-3] is a range. A verbs device "
		  "(mlx5_0:1) stands for its interface. auto uses all "
		  "interfaces, but under UCX only the verbs port nearest to "
		  "the process's GPU. UCXPY_IFNAME and NCCL_SOCKET_IFNAME do "
		  "not restrict loopback; the latter keeps NCCL's form "
		  "(prefixes, = for exact names)" },
	{ "WEFT_FAMILY", "NCCL_SOCKET_FAMILY", WEFT_SET_FAMILY, AT(family),
	  "any", .help = "Addresses to use: any (IPv4 first), ipv4 or ipv6" },
	{ "WEFT_PORT_RANGE", "UCX_TCP_PORT_RANGE", WEFT_SET_PORTS, AT(ports),
	  "0",
	  .help = "TCP ports to listen on, as 5000-5100; 0 is any. Each "
		  "process needs one per interface, under NCCL from 2.28 on "
		  "one per communicator and interface; NCCL's bootstrap uses "
		  "other ports" },
	{ "WEFT_SECRET_FILE", NULL, WEFT_SET_TEXT, AT(secret_file), "",
	  .help = "File with the job secret, the same on all hosts of the job; "
		  "only processes that have it can connect. It must belong to "
		  "this user or to root, and be readable by its owner only; a "
		  "file of root's may also be readable by its group, as a "
		  "Kubernetes Secret with defaultMode 0440 and the pod's "
		  "fsGroup is" },
	{ "WEFT_RUN_DIR", "NVIDIA_DRA_LOCAL_IPC_DIR", WEFT_SET_TEXT,
	  AT(run_dir), "",
	  .help = "Folder that containers of one host share for their "
		  "sockets; empty is /run/weft, else /dev/shm" },
	{ "WEFT_CONNECT_TIMEOUT", NULL, WEFT_SET_MSEC, AT(connect_timeout_ms),
	  "30s", .min = 1, .max = 3600000,
	  .help = "Time limit for a peer's host to answer a new connection, "
		  "and of all that NCCL's connecting takes. UCX waits for a "
		  "peer that is merely busy as long as it lives" },
	{ "WEFT_PEER_TIMEOUT", NULL, WEFT_SET_MSEC, AT(peer_timeout_ms), "5s",
	  .min = 100, .max = 3600000,
	  .help = "Time without an answer of a peer's kernel before the peer "
		  "is declared dead, from the first packet that has none; it "
		  "may take twice as long. A busy program is never declared "
		  "dead" },
	{ "WEFT_TCP_STREAMS", "NCCL_NSOCKS_PERTHREAD", WEFT_SET_AUTO_UINT,
	  AT(tcp_streams), "auto", .max = 64, .automatic = 0,
	  .help = "Sockets per peer for bulk data; auto measures which number "
		  "is fastest. If NCCL's variables are set, their product: "
		  "NCCL_SOCKET_NTHREADS times NCCL_NSOCKS_PERTHREAD, each 1 if "
		  "unset" },
	{ "WEFT_TCP_THREADS", "NCCL_SOCKET_NTHREADS", WEFT_SET_AUTO_UINT,
	  AT(tcp_threads), "auto", .max = 64, .automatic = UINT32_MAX,
	  .help = "Threads of weft that move bulk data: auto takes three "
		  "eighths of the processors, up to 16; on fewer than 8 "
		  "processors one, if the program sleeps; with 0 the caller "
		  "moves all" },
	{ "WEFT_TCP_CHUNK", NULL, WEFT_SET_SIZE, AT(tcp_chunk), "512k",
	  .min = 4 * KIB, .max = 64 * MIB,
	  .help = "Bytes of a block that one bulk socket carries at a time" },
	{ "WEFT_TCP_BULK_MIN", NULL, WEFT_SET_SIZE, AT(tcp_bulk_min), "64k",
	  .max = GIB, .help = "Blocks larger than this use the bulk sockets" },
	{ "WEFT_TCP_SNDBUF", "UCX_TCP_SNDBUF", WEFT_SET_SIZE, AT(tcp_sndbuf),
	  "auto", .max = GIB,
	  .help = "Send buffer of a socket; auto leaves it to the kernel" },
	{ "WEFT_TCP_RCVBUF", "UCX_TCP_RCVBUF", WEFT_SET_SIZE, AT(tcp_rcvbuf),
	  "auto", .max = GIB,
	  .help = "Receive buffer of a socket; auto leaves it to the kernel" },
	{ "WEFT_IB_DEVICES", "NCCL_IB_HCA", WEFT_SET_TEXT, AT(ib_devices),
	  "all",
	  .help = "InfiniBand and RoCE devices to use, with or without a port "
		  "(mlx5_0,mlx5_1:1), or all but a list (^mlx5_2). "
		  "NCCL_IB_HCA keeps NCCL's form (prefixes, = for exact "
		  "names)" },
	{ "WEFT_IB_GID_INDEX", "NCCL_IB_GID_INDEX,UCX_IB_GID_INDEX",
	  WEFT_SET_AUTO_UINT, AT(ib_gid_index), "auto", .max = 255,
	  .automatic = UINT32_MAX,
	  .help = "Entry of a RoCE port's GID table: auto prefers RoCE v2 to "
		  "v1 and IPv4 to IPv6, link-local last" },
	{ "WEFT_IB_TIMEOUT", "NCCL_IB_TIMEOUT,UCX_RC_TIMEOUT",
	  WEFT_SET_IB_TIMEOUT, AT(ib_timeout), "16", .min = 1, .max = 31,
	  .help = "Time before the adapter retransmits: 4.096 us * 2^n, as in "
		  "NCCL. UCX_RC_TIMEOUT keeps UCX's form, a time (500ms), "
		  "which is rounded to the nearest" },
	{ "WEFT_IB_RETRIES", "NCCL_IB_RETRY_CNT,UCX_RC_RETRY_COUNT",
	  WEFT_SET_UINT, AT(ib_retries), "6", .max = 7,
	  .help = "Retransmissions before the peer is declared lost. With 7 "
		  "some adapters never give up; then WEFT_PEER_TIMEOUT "
		  "applies" },
	{ "WEFT_IB_SL", "NCCL_IB_SL,UCX_IB_SL", WEFT_SET_AUTO_UINT, AT(ib_sl),
	  "auto", .max = 15, .automatic = 0,
	  .help = "Service level of the traffic; auto is 0" },
	{ "WEFT_IB_TRAFFIC_CLASS", "NCCL_IB_TC,UCX_IB_TRAFFIC_CLASS",
	  WEFT_SET_AUTO_UINT, AT(ib_traffic_class), "auto", .max = 255,
	  .automatic = UINT32_MAX,
	  .help = "Traffic class of the traffic; auto is 0 under NCCL, else, "
		  "as in UCX, on RoCE v2 that of the port or 106" },
	{ "WEFT_IB_PKEY_INDEX", "NCCL_IB_PKEY", WEFT_SET_UINT,
	  AT(ib_pkey_index), "0", .max = 65535,
	  .help = "Entry of the port's partition key table, unless "
		  "WEFT_IB_PKEY names a key" },
	{ "WEFT_IB_PKEY", "UCX_IB_PKEY", WEFT_SET_AUTO_UINT, AT(ib_pkey),
	  "auto", .max = 0x7fff, .automatic = UINT32_MAX,
	  .help = "Partition key (0x1234, without its membership bit), looked "
		  "up in the port's table; auto uses WEFT_IB_PKEY_INDEX. "
		  "RoCE has one partition" },
	{ "WEFT_NCCL_INTRODUCE", NULL, WEFT_SET_TRISTATE, AT(nccl_introduce),
	  "auto",
	  .help = "Tell NCCL which containers share this host, so that it uses "
		  "its NVLink and shared memory between them: auto does if "
		  "possible, on also warns if not, off never does. They need a "
		  "shared folder (WEFT_RUN_DIR) and the device nodes of each "
		  "other's GPUs; with one GPU's each, shared memory is used" },
};

/* The project's other variables, which are not settings of the libraries. */
static const char *const other_names[] = {
	"WEFT_CACHE",	/* where ./quickstart keeps what it fetched */
	"WEFT_LIBCUDA", /* util/drivers/cuda.c: the CUDA driver to load */
	"WEFT_LIBNVML", /* util/drivers/nvml.c: its management library */
	"WEFT_SRC",	   "WEFT_BUILD",      "WEFT_SANITIZED", /* for tests */
	"WEFT_UCX_SOURCE", "WEFT_UCX_BUILDS", "WEFT_OFFLINE",
	"WEFT_VENV",	   "WEFT_BENCH_OUT",
};
static const char other_prefix[] = "WEFT_TEST_";

static struct weft_settings in_force;
static struct {
	char *text; /* copy of the variable's value */
	const char *origin;
	char *pending_warning;
} source[ARRAY_SIZE(table)];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool have_read;
static bool warnings_deferred;

static const char *get_env(const char *name)
{
	const char *v = secure_getenv(name);

	/* Dask's notations for unset */
	if (v && !strncmp(name, "DASK_", 5) &&
	    (!strcmp(v, "None") || !strcmp(v, "null")))
		return NULL;
	return v && *v ? v : NULL;
}

/* The runtime whose variables win: see weft_settings_set_runtime(). */
static const char *runtime_prefix = "";

static bool is_runtime_name(const char *name)
{
	return *runtime_prefix &&
	       !strncmp(name, runtime_prefix, strlen(runtime_prefix));
}

bool weft_setting_nccl_only(const char *name)
{
	return !strncmp(name, "NCCL_", 5) && strncmp(name, "NCCL_IB_", 8) &&
	       strcmp(name, "NCCL_SOCKET_IFNAME");
}

static const char *find_alias(const char *a, bool own, char name[64])
{
	const char *v = NULL, *end;
	size_t len;

	while (!v && a && *a) {
		end = strchrnul(a, ',');
		len = weft_min((size_t)(end - a), 63);
		memcpy(name, a, len);
		name[len] = '\0';
		if (is_runtime_name(name) == own &&
		    (own || !weft_setting_nccl_only(name)))
			v = get_env(name);
		a = *end ? end + 1 : end;
	}
	return v;
}

/* The value of the first of the row's names that is set; NULL: none is. */
static const char *find_value(const struct weft_setting *row,
			      const char **origin)
{
	static char names[ARRAY_SIZE(table)][64];
	char *name = names[row - table];
	const char *v = get_env(row->name);

	*origin = "environment";
	if (v)
		return v;
	*origin = name;
	v = find_alias(row->aliases, true, name);
	if (!v)
		v = find_alias(row->aliases, false, name);
	return v;
}

static const char *get_origin_at(size_t at)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(table); i++)
		if (table[i].at == at)
			return source[i].origin;
	return "default";
}

/*
 * Never defer warnings about WEFT_ variables: their users have selected weft.
 */
static void warn_bad_value(size_t i, const char *origin, const char *value,
			   const char *instead)
{
	const struct weft_setting *row = &table[i];
	char bounds[128], *text;

	if (asprintf(&text, "%s='%s' is not %s (from %s); using %s", row->name,
		     value, weft_setting_bounds(row, bounds, sizeof(bounds)),
		     origin, *instead ? instead : "none") < 0)
		return;
	if (warnings_deferred && strcmp(origin, "environment")) {
		source[i].pending_warning = text;
		return;
	}
	weft_warn("%s", text);
	free(text);
}

static void read_row(const struct weft_setting *row)
{
	const size_t i = (size_t)(row - table);
	const char *origin, *v;

	weft_setting_parse(row, "default", row->def, &in_force);
	source[i].origin = "default";
	v = find_value(row, &origin);
	if (!v)
		return;
	source[i].text = strdup(v);
	if (!source[i].text)
		return;
	if (!weft_setting_parse(row, origin, source[i].text, &in_force)) {
		source[i].origin = origin;
		return;
	}
	warn_bad_value(i, origin, v, row->def);
	free(source[i].text);
	source[i].text = NULL;
}

static bool is_known_name(const char *name)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(table); i++)
		if (!strcmp(table[i].name, name))
			return true;
	for (i = 0; i < ARRAY_SIZE(other_names); i++)
		if (!strcmp(other_names[i], name))
			return true;
	return !strncmp(name, other_prefix, sizeof(other_prefix) - 1);
}

/*
 * NCCL counts sockets per thread, and its default is one thread.  A value from
 * weft's variable stays as it is.
 */
static void apply_nccl_sockets(void)
{
	unsigned int threads = 1;
	bool nccl = false, weft = false;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(table); i++) {
		const bool streams = table[i].at == AT(tcp_streams);

		if (!source[i].origin ||
		    (!streams && table[i].at != AT(tcp_threads)))
			continue;
		if (weft_setting_nccl_only(source[i].origin)) {
			nccl = true;
			if (!streams)
				threads = weft_max(in_force.tcp_threads, 1u);
		} else if (streams) {
			weft = strcmp(source[i].origin, "default");
		}
	}
	if (!nccl || weft)
		return;
	if (!in_force.tcp_streams)
		in_force.tcp_streams = 1;
	in_force.tcp_streams = (unsigned int)weft_min(
		(size_t)in_force.tcp_streams * threads, 64);
}

/* NCCL's default traffic class is 0, UCX's is the device's. */
static void apply_traffic_class(void)
{
	const char *origin;

	if (in_force.ib_traffic_class != UINT32_MAX)
		return;
	origin = get_origin_at(AT(ib_traffic_class));
	if (!strncmp(origin, "NCCL_", 5) ||
	    (is_runtime_name("NCCL_") && strncmp(origin, "UCX_", 4)))
		in_force.ib_traffic_class = 0;
}

/* UCX selects a partition by key, NCCL by index: weft or the runtime wins. */
static void apply_pkey(void)
{
	const char *index = get_origin_at(AT(ib_pkey_index));

	if (!strncmp(get_origin_at(AT(ib_pkey)), "UCX_", 4) &&
	    (!strcmp(index, "environment") || is_runtime_name(index)))
		in_force.ib_pkey = UINT32_MAX;
}

/* The name in the table most like @name (WEFT_...), or NULL if none is. */
static const char *find_nearest(const char *name)
{
	unsigned int row[64], best, diag, cost;
	const char *nearest = NULL, *other;
	size_t i, j, k;

	/* up to three letters, and half of those after WEFT_ */
	best = (unsigned int)weft_min(4, strlen(name + 5) / 2 + 1);
	for (i = 0; i < ARRAY_SIZE(table); i++) {
		other = table[i].name;
		for (k = 0; k <= strlen(other) && k < ARRAY_SIZE(row); k++)
			row[k] = (unsigned int)k;
		for (j = 1; j <= strlen(name); j++) {
			diag = row[0];
			row[0] = (unsigned int)j;
			for (k = 1; k <= strlen(other); k++) {
				cost = diag + (name[j - 1] != other[k - 1]);
				diag = row[k];
				if (diag + 1 < cost)
					cost = diag + 1;
				if (row[k - 1] + 1 < cost)
					cost = row[k - 1] + 1;
				row[k] = cost;
			}
		}
		if (row[strlen(other)] < best) {
			best = row[strlen(other)];
			nearest = other;
		}
	}
	return nearest;
}

/* Do not ignore misspelt names silently. */
static void warn_unknown(void)
{
	char **e, name[64];
	const char *end, *near;
	size_t len;

	for (e = environ; e && *e; e++) {
		end = strchr(*e, '=');
		if (!end || strncmp(*e, "WEFT_", 5))
			continue;
		len = weft_min((size_t)(end - *e), sizeof(name) - 1);
		memcpy(name, *e, len);
		name[len] = '\0';
		if (is_known_name(name))
			continue;
		near = find_nearest(name);
		if (near)
			weft_warn(
				"%s in the environment is not a setting of weft; did you mean %s?",
				name, near);
		else
			weft_warn(
				"%s in the environment is not a setting of weft; 'weft info settings' lists them",
				name);
	}
}

static void apply_log_level(void)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(names[i], in_force.log))
			weft_log_set_level((enum weft_level)i);
}

const struct weft_settings *weft_settings(void)
{
	size_t i;

	if (atomic_load_explicit(&have_read, memory_order_acquire))
		return &in_force;
	pthread_mutex_lock(&lock);
	if (!atomic_load_explicit(&have_read, memory_order_relaxed)) {
		for (i = 0; i < ARRAY_SIZE(table); i++)
			read_row(&table[i]);
		apply_nccl_sockets();
		apply_traffic_class();
		apply_pkey();
		apply_log_level();
		warn_unknown();
		atomic_store_explicit(&have_read, true, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
	return &in_force;
}

void weft_settings_set_runtime(const char *prefix)
{
	runtime_prefix = prefix;
}

void weft_settings_defer_warnings(void)
{
	pthread_mutex_lock(&lock);
	if (!atomic_load_explicit(&have_read, memory_order_relaxed))
		warnings_deferred = true;
	pthread_mutex_unlock(&lock);
}

void weft_settings_flush_warnings(void)
{
	size_t i;

	weft_settings();
	pthread_mutex_lock(&lock);
	for (i = 0; i < ARRAY_SIZE(table); i++)
		if (source[i].pending_warning) {
			weft_warn("%s", source[i].pending_warning);
			free(source[i].pending_warning);
			source[i].pending_warning = NULL;
		}
	pthread_mutex_unlock(&lock);
}

void weft_settings_reset(void)
{
	size_t i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < ARRAY_SIZE(table); i++) {
		free(source[i].text);
		source[i].text = NULL;
		free(source[i].pending_warning);
		source[i].pending_warning = NULL;
	}
	warnings_deferred = false;
	atomic_store_explicit(&have_read, false, memory_order_release);
	pthread_mutex_unlock(&lock);
	weft_settings_secret_reset();
}

size_t weft_settings_count(void)
{
	return ARRAY_SIZE(table);
}

void weft_settings_info(size_t i, struct weft_setting_info *info)
{
	weft_settings();
	*info = (struct weft_setting_info){
		.name = table[i].name,
		.aliases = table[i].aliases,
		.def = table[i].def,
		.value = source[i].text ? source[i].text : table[i].def,
		.origin = source[i].origin,
		.help = table[i].help,
	};
}

void weft_settings_named(const char *name, struct weft_setting_info *info)
{
	size_t i;

	for (i = 0; i + 1 < ARRAY_SIZE(table); i++)
		if (!strcmp(table[i].name, name))
			break;
	weft_settings_info(i, info);
}

const char *weft_setting_variable(const struct weft_setting_info *info)
{
	return strcmp(info->origin, "environment") &&
			       strcmp(info->origin, "default")
		       ? info->origin
		       : info->name;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every setting, from one table (settings.c): its name, the foreign names it is
 * also read from, default, bounds and help.  The table drives the parser, `weft
 * info`, the man pages and the warning about unknown WEFT_ names.
 *
 * Read once per process, at the first weft_settings(); later changes of the
 * environment are not seen.  A bad value draws one warning that names value,
 * origin and bounds, and the default is used.
 */
#ifndef WEFT_SETTINGS_SETTINGS_H
#define WEFT_SETTINGS_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The releases 1.x of UCX that have a row in ucx_tl/abi_table.c. */
#define WEFT_UCX_MINOR_MIN 13
#define WEFT_UCX_MINOR_MAX 23

enum weft_tristate { WEFT_AUTO = -1, WEFT_OFF = 0, WEFT_ON = 1 };

struct weft_port_range {
	uint16_t first, last; /* 0, 0: any port */
};

struct weft_settings {
	const char *log;	/* WEFT_LOG: error warn info debug */
	const char *stats;	/* WEFT_STATS: 0, 1 (stderr) or a file */
	enum weft_tristate ucx; /* WEFT_UCX: offer devices to UCX? */
	unsigned int ucx_force; /* WEFT_UCX_FORCE: minor to take an unknown
				   UCX for; 0: none */
	unsigned int ucx_idle_wait_us; /* WEFT_UCX_IDLE_WAIT; 0: off */
	const char *net_devices; /* WEFT_NET_DEVICES: "eth0,ib0", "^docker0",
				    "all" */
	int family;		 /* WEFT_FAMILY: AF_INET, AF_INET6, AF_UNSPEC */
	struct weft_port_range ports; /* WEFT_PORT_RANGE */
	const char *secret_file;      /* WEFT_SECRET_FILE; "": none */
	const char *run_dir;	      /* WEFT_RUN_DIR; "": the built-in ones */
	uint64_t connect_timeout_ms;  /* WEFT_CONNECT_TIMEOUT */
	uint64_t peer_timeout_ms;     /* WEFT_PEER_TIMEOUT */
	unsigned int tcp_streams; /* WEFT_TCP_STREAMS: 0 = find by measuring */
	unsigned int tcp_threads; /* WEFT_TCP_THREADS: UINT_MAX = auto */
	size_t tcp_chunk;	  /* WEFT_TCP_CHUNK, bytes */
	size_t tcp_bulk_min;	  /* WEFT_TCP_BULK_MIN: larger blocks use the
				     bulk streams, bytes */
	size_t tcp_sndbuf, tcp_rcvbuf; /* 0: the kernel's auto-tuning */
	const char *ib_devices;	   /* WEFT_IB_DEVICES: "mlx5_0:1", "^mlx5_2" */
	unsigned int ib_gid_index; /* UINT_MAX: the best one */
	unsigned int ib_timeout;   /* exponent: 4.096 us * 2^n */
	unsigned int ib_retries, ib_sl;
	unsigned int ib_traffic_class; /* UINT_MAX: as UCX chooses */
	unsigned int ib_pkey_index;
	unsigned int ib_pkey;		   /* UINT_MAX: by its index */
	enum weft_tristate nccl_introduce; /* WEFT_NCCL_INTRODUCE */
};

const struct weft_settings *weft_settings(void);

/*
 * Set the runtime whose variables win if several aliases of a setting are set:
 * @prefix is a constant, "NCCL_" or "".  Call it before the first
 * weft_settings().  Variables about NCCL's sockets (NCCL_SOCKET_NTHREADS and
 * NCCL_NSOCKS_PERTHREAD, whose product is the number of streams, and
 * NCCL_SOCKET_FAMILY) count under NCCL only.
 */
void weft_settings_set_runtime(const char *prefix);

/*
 * Variables of UCX and NCCL may hold values that weft cannot use.  Do not warn
 * users who did not select weft: after defer_warnings(), called before the
 * first weft_settings(), warnings about them wait for flush_warnings(), which
 * logs each once.  Both may be called repeatedly, from any thread.
 */
void weft_settings_defer_warnings(void);
void weft_settings_flush_warnings(void);

/* For tests: forget what was read. */
void weft_settings_reset(void);

/* For weft info and the man pages. */
struct weft_setting_info {
	const char *name;    /* "WEFT_PORT_RANGE" */
	const char *aliases; /* "UCX_TCP_PORT_RANGE", comma list, or NULL */
	const char *def;     /* as text */
	const char *value;   /* as text, in force */
	const char *origin;  /* "default", "environment", "UCX_..." */
	const char *help;
};
size_t weft_settings_count(void);
void weft_settings_info(size_t i, struct weft_setting_info *info);
/* The same by name; the table must have it. */
void weft_settings_named(const char *name, struct weft_setting_info *info);
/*
 * Does the alias @name count under NCCL only?  Such variables configure NCCL's
 * sockets, not the choice of networks.
 */
bool weft_setting_nccl_only(const char *name);
/* The variable that set it: an alias, or its own name. */
const char *weft_setting_variable(const struct weft_setting_info *info);

/*
 * The job secret, read once; @len 0: none is set.  -errno: the file cannot be
 * used (unreadable, empty, open to others), and nothing may connect.
 */
int weft_settings_secret(const uint8_t **secret, size_t *len);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Values that weft supplies for NCCL's own settings.
 *
 * The plugin finds its interfaces itself, but NCCL's bootstrap (where ranks
 * meet before any plugin is loaded) reads only NCCL_*: settings in weft's,
 * Dask's or UCX's variables are translated to NCCL's here, so that both use the
 * same network.  A variable of NCCL's that the user has set is never changed.
 *
 * It reaches NCCL through libnccl-env-weft.so (NCCL_ENV_PLUGIN=weft, from
 * 2.28.7 on) or by `weft run`.  From the network plugin's init it is too late
 * for the bootstrap, in every NCCL: ncclInit() calls bootstrapNetInit() before
 * any plugin is opened (init.cc:82 of 2.18.6, 2.22.3; :80 of 2.27.7; :151 of
 * 2.30.7), and RAS and the proxies take the bootstrap's address.  It is in time
 * for NCCL's own networks, which look for interfaces when their init is called,
 * after weft's: if weft declines, or NCCL_NET names one of them (up to 2.28.3
 * weft's init is called first even then): weft_nccl_env_apply().  Channels are
 * set in init, too (channels.h).
 *
 * From 2.28 on NCCL unloads a plugin with its last communicator, and 2.28 and
 * 2.29 forget its name over that: the next communicator looks for
 * libnccl-net.so and uses sockets (NVIDIA/nccl issue 1978).
 * NCCL_NET_PLUGIN_REF_COUNT=1 keeps the plugin loaded.  NCCL reads it before it
 * loads the plugin, which therefore can do nothing about it.
 */
#ifndef WEFT_NCCL_NET_API_ENV_H
#define WEFT_NCCL_NET_API_ENV_H

#include <stdbool.h>
#include <stddef.h>

struct weft_nccl_setting {
	const char *name;   /* "NCCL_SOCKET_IFNAME" */
	const char *value;  /* NULL: weft supplies no value */
	const char *origin; /* the variable that it comes from */
	const char *why;
};

#define WEFT_NCCL_ENV_MAX 16 /* number of variables */
size_t weft_nccl_env_count(void);
/*
 * For a program that will be started.  Values for NCCL's bootstrap are constant
 * for the life of the process.
 */
void weft_nccl_env(size_t i, struct weft_nccl_setting *out);

/*
 * Does NCCL load weft's network plugin in this environment?  Copies the entry
 * of NCCL_NET_PLUGIN that is weft's, "" where there is none; *@why, a constant
 * text, says why not.  Of several plugins NCCL takes the first that works, or
 * the one whose network NCCL_NET names.
 */
bool weft_nccl_plugin(char *entry, size_t len, const char **why);

/*
 * NCCL_NET_PLUGIN names weft by a path without a readable file.  Logged here,
 * since NCCL silently falls back to its own sockets.
 */
bool weft_nccl_plugin_lost(void);

/*
 * For the network plugin, when NCCL falls back to its own networks: sets which
 * interfaces and adapters they use, unless the user has.
 */
void weft_nccl_env_apply(void);

/* The user's own value, else weft's, else NULL. */
const char *weft_nccl_env_get(const char *name);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What weft answers for NCCL's own settings.
 *
 * The plugin finds its interfaces itself, but NCCL's bootstrap (where ranks
 * meet before any plugin is loaded) reads only NCCL_*: what the user said in
 * weft's, Dask's or UCX's words is put into NCCL's here, so that both take the
 * same network.  What the user set in NCCL's words is never changed.
 *
 * It reaches NCCL by libnccl-env-weft.so (NCCL_ENV_PLUGIN=weft, from 2.28.7 on)
 * or by `weft run`; from the network plugin's init it would be too late, since
 * the bootstrap is up by then.  Channels and buffers are set there (channels.h),
 * and said here, too, where NVLink will be offered, as far as can be seen without
 * a word to the driver: it may not even be loaded yet.
 *
 * From 2.28 on NCCL unloads a plugin with its last communicator, and 2.28 and
 * 2.29 forget its name over that: the next communicator looks for libnccl-net.so
 * and goes by sockets (NVIDIA/nccl issue 1978).  NCCL_NET_PLUGIN_REF_COUNT=1 keeps
 * the plugin loaded.  NCCL reads it before it loads the plugin, which therefore
 * can do nothing about it.
 */
#ifndef WEFT_NCCL_NET_ENV_H
#define WEFT_NCCL_NET_ENV_H

#include <stdbool.h>
#include <stddef.h>

struct weft_nccl_setting {
	const char *name;		/* "NCCL_SOCKET_IFNAME" */
	const char *value;		/* NULL: nothing to say */
	const char *origin;		/* whose words these are */
	const char *why;
};

#define WEFT_NCCL_ENV_MAX	16	/* of all there are: room for a caller */
size_t weft_nccl_env_count(void);
/*
 * For a program that has yet to start.  What is said of NCCL's bootstrap is
 * constant for the life of the process.
 */
void weft_nccl_env(size_t i, struct weft_nccl_setting *out);

/*
 * NCCL_NET_PLUGIN names weft by a path where no file can be read, which has been
 * said: NCCL itself says it to nobody, and takes its own sockets.
 */
bool weft_nccl_plugin_lost(void);

/* The user's own value, else weft's for this process as it is now, else NULL. */
const char *weft_nccl_env_get(const char *name);

#endif

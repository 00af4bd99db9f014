/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Translates the users' settings, of UCX, Dask or an old recipe, to settings of
 * UCX with which weft carries the bytes.
 *
 * Only the environment is read, not UCX's own files (ucx.conf), options that a
 * program passes to UCX itself (ucx_info -T; ucxx does so with Dask's flags),
 * Dask's YAML files or dask.config.set().  For those set WEFT_UCX=on, or
 * UCX_TLS in the environment, which overrides Dask's.
 *
 * Dask's flags (TCP, NVLINK, INFINIBAND, CUDA_COPY, RDMACM) and its NET_DEVICES
 * are read under the prefixes of every era: DASK_DISTRIBUTED_UCXX__,
 * DASK_DISTRIBUTED__COMM__UCX__ and DASK_UCX__; the first that is set wins.
 * As in Dask, any of TCP, NVLINK, INFINIBAND asks for TCP too, and CUDA_COPY
 * counts only beside one of them.  INFINIBAND means weft_ib where it can be
 * used, UCX's rc where there is a port that weft cannot use, else nothing.
 */
#ifndef WEFT_UCX_TL_UCXENV_H
#define WEFT_UCX_TL_UCXENV_H

#include <stdbool.h>
#include <stddef.h>

enum weft_ucxenv_how {
	/*
	 * weft is loaded.  Change nothing unless weft is requested by name or
	 * by Dask's flags: with a UCX_TLS without a weft_ name, all variables
	 * stay as they are.
	 */
	WEFT_UCXENV_LOADED,
	/*
	 * weft run: the user wants weft.  It replaces tcp in a UCX_TLS without
	 * a weft_ name, and drops CUDA's transports from it where there is no
	 * GPU; "all" and "^..." lists stay, and WEFT_UCX=on adds weft.
	 */
	WEFT_UCXENV_RUN,
};

struct weft_ucxenv {
	const char *name;
	char value[512];
	char reason[160];
};
#define WEFT_UCXENV_MAX 8

/* The variables to set; returns how many. */
size_t weft_ucxenv(enum weft_ucxenv_how how,
		   struct weft_ucxenv out[WEFT_UCXENV_MAX]);

/*
 * Is there a GPU?  Looks in /dev only and loads no driver.  True if
 * WEFT_LIBCUDA names a driver; false if CUDA_VISIBLE_DEVICES ("" or -1) hides
 * all GPUs.
 */
bool weft_gpu_here(void);

/*
 * May transport @tl_name be offered to UCX?  True if UCX_TLS names it (as
 * "weft_tcp", "\weft_tcp" or "weft_tcp:aux", not in a "^" list), if UCX_TLS is
 * unset and Dask's flags request it, or if WEFT_UCX is on; never if that is
 * off.  Reads the environment at each call.
 */
bool weft_is_requested(const char *tl_name);

/*
 * Does UCX_TLS allow cuda_copy?  Without it UCX refuses to create a worker with
 * a transport for GPU memory.
 */
bool weft_cuda_copy_requested(void);

/*
 * ucxx passes Dask's flags to UCX with ucp_config_modify(@name, @value), which
 * overrides the environment.  Returns the value to use instead, or NULL if
 * @value is right.  Replaces TLS and SOCKADDR_TLS_PRIORITY only if Dask's
 * flags request weft, NET_DEVICES=auto if any weft transport is requested.
 * The text is valid until the thread's next call.
 */
const char *weft_ucxenv_option(const char *name, const char *value);

#endif

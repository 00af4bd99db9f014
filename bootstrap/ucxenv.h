/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From what users said, in UCX's words, in Dask's or in those of an old recipe,
 * to what UCX must be told so that weft carries their bytes.
 *
 * Seen: the environment alone.  Not seen: UCX's own files (ucx.conf), options
 * that a program hands to UCX itself (ucx_info -T; ucxx, which passes Dask's
 * flags so), Dask's YAML files and dask.config.set().  Whoever sets UCX up that
 * way says WEFT_UCX=on, or UCX_TLS in the environment, which wins over Dask's.
 *
 * Dask's flags (TCP, NVLINK, INFINIBAND, CUDA_COPY, RDMACM) and its NET_DEVICES
 * are read under the prefixes of every era: DASK_DISTRIBUTED_UCXX__,
 * DASK_DISTRIBUTED__COMM__UCX__ and DASK_UCX__; the first that is set wins.
 * As in Dask, any of TCP, NVLINK, INFINIBAND asks for TCP too, and CUDA_COPY
 * counts only beside one of them.
 */
#ifndef WEFT_BOOTSTRAP_UCXENV_H
#define WEFT_BOOTSTRAP_UCXENV_H

#include <stdbool.h>
#include <stddef.h>

enum weft_ucxenv_how {
	/*
	 * weft merely lies in the process.  Nothing is changed unless weft is
	 * asked for by name or by Dask's flags: a UCX_TLS without a weft_ name
	 * stays as it is, and so does everything else then.
	 */
	WEFT_UCXENV_LOADED,
	/*
	 * weft run: the user wants weft.  It takes the place of tcp in a
	 * UCX_TLS without a weft_ name; beside "all" and "^..." lists, which
	 * stay, WEFT_UCX=on lets it in.
	 */
	WEFT_UCXENV_RUN,
};

struct weft_ucxenv {
	const char *name;
	char value[512];
	char reason[160];
};
#define WEFT_UCXENV_MAX 7

/* What is to be set; returns how many. */
size_t weft_ucxenv(enum weft_ucxenv_how how,
		   struct weft_ucxenv out[WEFT_UCXENV_MAX]);

/*
 * Is there a GPU, going by what is in /dev alone: no driver is loaded.  Who
 * names a driver in WEFT_LIBCUDA says that there is one; who hides them all in
 * CUDA_VISIBLE_DEVICES ("" or -1) says that there is none.
 */
bool weft_gpu_here(void);

/*
 * May transport @tl_name be offered to UCX: is it named in UCX_TLS (as
 * "weft_tcp", "\weft_tcp" or "weft_tcp:aux", not in a "^" list), or is UCX_TLS
 * unset and Dask's flags ask for it, or is WEFT_UCX=on?  Looks at the
 * environment as it is now; WEFT_UCX=off says no to all.
 */
bool weft_asked_for(const char *tl_name);

/*
 * Does UCX_TLS let cuda_copy in, without which UCX refuses a worker that has a
 * transport for GPU memory?
 */
bool weft_cuda_copy_asked_for(void);

/*
 * ucxx hands Dask's flags to UCX by ucp_config_modify(@name, @value), which
 * wins over the environment that UCX read.  Returns what is to be said instead,
 * or NULL: @value is right.  TLS and SOCKADDR_TLS_PRIORITY only where
 * weft_asked_for() stems from Dask's flags, NET_DEVICES=auto where anything of
 * weft's is asked for.  The text is valid until the thread's next call.
 */
const char *weft_ucxenv_option(const char *name, const char *value);

#endif

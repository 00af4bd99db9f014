/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What libuct_weft.so exports: the calls of libweft_preload.so, which finds
 * them with dlsym(), and the one that UCX >= 1.22 makes by itself
 * (ucs_module_global_init, in resolve.c).
 */
#ifndef WEFT_PRELOAD_LOAD_H
#define WEFT_PRELOAD_LOAD_H

#include "util/util.h"

/*
 * Registers weft's transports with the copy of UCX that @inside, an address in
 * its libucp, libuct or libucs, belongs to.  Called again for the same copy it
 * does nothing; each further copy in the process gets its own registration.
 * Call this before that copy lists its components (uct_query_components).  0,
 * or -errno after the cause has been logged.  Thread-safe; needs no UCX symbol
 * at load time.
 */
WEFT_EXPORT int weft_uct_load(const void *inside);
typedef int (*weft_uct_load_fn)(const void *inside);

/*
 * Translates settings of Dask and of old recipes to UCX's: call this before UCX
 * reads its configuration (ucp_config_read).  Changes only what ucx_tl/ucxenv.h
 * lists.
 */
WEFT_EXPORT void weft_uct_environment(void);
typedef void (*weft_uct_environment_fn)(void);

/*
 * The value to pass to ucp_config_modify(config, @name, ...) instead of @value,
 * or NULL: pass @value.  ucxx passes Dask's flags this way, and they override
 * what weft_uct_environment() has set.  Valid until the thread's next call.
 */
WEFT_EXPORT const char *weft_uct_option(const char *name, const char *value);
typedef const char *(*weft_uct_option_fn)(const char *name, const char *value);

/*
 * ucp_worker_progress, _arm and _signal of the copy of UCX that made a worker
 */
struct weft_uct_worker_calls {
	unsigned int (*progress)(void *worker);
	signed char (*arm)(void *worker);
	signed char (*signal)(void *worker);
};

/*
 * The program got UCP's event fd @efd of @worker (ucp_worker_get_efd) to sleep
 * on it.  From then on call weft_uct_worker_progressed() after each
 * ucp_worker_progress(), with what that returned: it may sleep (sleep.c) and
 * returns what to return to the program.  Call weft_uct_worker_armed() after
 * the program's ucp_worker_arm() and weft_uct_worker_gone() before
 * ucp_worker_destroy().  As thread-safe as the worker itself.
 */
WEFT_EXPORT void
weft_uct_event_driven(void *worker, int efd,
		      const struct weft_uct_worker_calls *calls);
WEFT_EXPORT unsigned int weft_uct_worker_progressed(void *worker,
						    unsigned int events);
WEFT_EXPORT void weft_uct_worker_armed(void *worker);
WEFT_EXPORT void weft_uct_worker_gone(void *worker);
typedef void (*weft_uct_event_driven_fn)(void *, int,
					 const struct weft_uct_worker_calls *);
typedef unsigned int (*weft_uct_progressed_fn)(void *, unsigned int);
typedef void (*weft_uct_worker_fn)(void *);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What libuct_weft.so exports: the calls of libweft_preload.so, which finds
 * them with dlsym(), and the one that UCX >= 1.22 makes by itself
 * (ucs_module_global_init, in resolve.c).
 */
#ifndef WEFT_UCX_TL_LOAD_H
#define WEFT_UCX_TL_LOAD_H

#define WEFT_EXPORT __attribute__((visibility("default")))

/*
 * Registers weft's transports with the copy of UCX that @inside, an address in
 * its libucp, libuct or libucs, belongs to.  Called again for the same copy it
 * does nothing; each further copy in the process gets its own registration.
 * To be called before that copy lists its components (uct_query_components).
 * 0, or -errno after the cause has been logged.  Thread-safe; needs no UCX
 * symbol at load time.
 */
WEFT_EXPORT int weft_uct_load(const void *inside);
typedef int (*weft_uct_load_fn)(const void *inside);

/*
 * Settings that users of Dask and of old recipes already have, put where UCX
 * reads them: to be called before UCX reads its configuration
 * (ucp_config_read).  Changes only what bootstrap/ucxenv.h lists.
 */
WEFT_EXPORT void weft_uct_environment(void);
typedef void (*weft_uct_environment_fn)(void);

/*
 * What ucp_config_modify(config, @name, @value) is to be told instead, or NULL:
 * @value is right.  ucxx passes Dask's flags so, and they win over what
 * weft_uct_environment() arranged.  Valid until the thread's next call.
 */
WEFT_EXPORT const char *weft_uct_option(const char *name, const char *value);
typedef const char *(*weft_uct_option_fn)(const char *name, const char *value);

/*
 * The program asked for UCP's event fd (ucp_worker_get_efd): it means to sleep
 * on it, see idle.c.
 */
WEFT_EXPORT void weft_uct_event_driven(void);
typedef void (*weft_uct_event_driven_fn)(void);

#endif

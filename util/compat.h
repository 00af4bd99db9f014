/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Included before everything else by the build (-include).
 *
 * glibc 2.34 moved libdl and libpthread into libc and gave their functions a
 * new symbol version, so a binary built there does not load on an older
 * system.  The functions did not change: ask for the version of the
 * architecture's first glibc.  m4/weft_old_glibc.m4 names the libraries that
 * hold them on an old system.
 */
#ifndef WEFT_UTIL_COMPAT_H
#define WEFT_UTIL_COMPAT_H

#if defined(__x86_64__)
#define WEFT_GLIBC_BASE	    "GLIBC_2.2.5"
#define WEFT_GLIBC_DLINFO   "GLIBC_2.3.3" /* and condattr_setclock */
#define WEFT_GLIBC_COND	    "GLIBC_2.3.2"
#define WEFT_GLIBC_AFFINITY "GLIBC_2.3.4"
#define WEFT_GLIBC_SETNAME  "GLIBC_2.12"
#elif defined(__aarch64__)
#define WEFT_GLIBC_BASE	    "GLIBC_2.17"
#define WEFT_GLIBC_DLINFO   WEFT_GLIBC_BASE
#define WEFT_GLIBC_COND	    WEFT_GLIBC_BASE
#define WEFT_GLIBC_AFFINITY WEFT_GLIBC_BASE
#define WEFT_GLIBC_SETNAME  WEFT_GLIBC_BASE
#endif

/* Leaves no trace in objects that do not use the name. */
#define WEFT_SYMVER_OF(alias, name, version) \
	__asm__(".symver " #alias "," #name "@" version)
#define WEFT_SYMVER(name, version) WEFT_SYMVER_OF(name, name, version)

#if defined(WEFT_GLIBC_BASE) && !defined(__SANITIZE_ADDRESS__) && \
	!defined(__SANITIZE_THREAD__) && !defined(WEFT_NO_SYMVER)
WEFT_SYMVER(dlopen, WEFT_GLIBC_BASE);
WEFT_SYMVER(dlsym, WEFT_GLIBC_BASE);
WEFT_SYMVER(dlvsym, WEFT_GLIBC_BASE);
WEFT_SYMVER(dlclose, WEFT_GLIBC_BASE);
WEFT_SYMVER(dlerror, WEFT_GLIBC_BASE);
WEFT_SYMVER(dladdr, WEFT_GLIBC_BASE);
WEFT_SYMVER(dlinfo, WEFT_GLIBC_DLINFO);
WEFT_SYMVER(pthread_create, WEFT_GLIBC_BASE);
WEFT_SYMVER(pthread_join, WEFT_GLIBC_BASE);
WEFT_SYMVER(pthread_detach, WEFT_GLIBC_BASE);
WEFT_SYMVER(pthread_kill, WEFT_GLIBC_BASE);
WEFT_SYMVER(pthread_once, WEFT_GLIBC_BASE);
WEFT_SYMVER(pthread_sigmask, WEFT_GLIBC_BASE);
WEFT_SYMVER(pthread_key_create, WEFT_GLIBC_BASE);
WEFT_SYMVER(pthread_key_delete, WEFT_GLIBC_BASE);
WEFT_SYMVER(pthread_getspecific, WEFT_GLIBC_BASE);
WEFT_SYMVER(pthread_setspecific, WEFT_GLIBC_BASE);
WEFT_SYMVER(pthread_mutex_trylock, WEFT_GLIBC_BASE);
WEFT_SYMVER(pthread_mutexattr_init, WEFT_GLIBC_BASE);
WEFT_SYMVER(pthread_mutexattr_destroy, WEFT_GLIBC_BASE);
WEFT_SYMVER(pthread_mutexattr_settype, WEFT_GLIBC_BASE);
WEFT_SYMVER(pthread_rwlock_init, WEFT_GLIBC_BASE);
WEFT_SYMVER(pthread_rwlock_destroy, WEFT_GLIBC_BASE);
WEFT_SYMVER(pthread_rwlock_rdlock, WEFT_GLIBC_BASE);
WEFT_SYMVER(pthread_rwlock_wrlock, WEFT_GLIBC_BASE);
WEFT_SYMVER(pthread_rwlock_unlock, WEFT_GLIBC_BASE);
WEFT_SYMVER(pthread_attr_setstacksize, WEFT_GLIBC_BASE);
WEFT_SYMVER(pthread_cond_init, WEFT_GLIBC_COND);
WEFT_SYMVER(pthread_cond_destroy, WEFT_GLIBC_COND);
WEFT_SYMVER(pthread_cond_wait, WEFT_GLIBC_COND);
WEFT_SYMVER(pthread_cond_timedwait, WEFT_GLIBC_COND);
WEFT_SYMVER(pthread_cond_signal, WEFT_GLIBC_COND);
WEFT_SYMVER(pthread_cond_broadcast, WEFT_GLIBC_COND);
WEFT_SYMVER(pthread_condattr_setclock, WEFT_GLIBC_DLINFO);
WEFT_SYMVER(pthread_getaffinity_np, WEFT_GLIBC_AFFINITY);
WEFT_SYMVER(pthread_setaffinity_np, WEFT_GLIBC_AFFINITY);
WEFT_SYMVER(pthread_setname_np, WEFT_GLIBC_SETNAME);
#endif

#endif

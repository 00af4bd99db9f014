/* SPDX-License-Identifier: BSD-3-Clause */
/* Who this host and this network namespace are. */
#ifndef WEFT_HOST_HOST_H
#define WEFT_HOST_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * A hash of the kernel's boot id (/proc/sys/kernel/random/boot_id): equal in
 * all containers of a host.  If that cannot be read, which is logged, a random
 * number: then no peer is known to be on this host.
 */
uint64_t weft_host_id(void);
/* Was it read?  If not, the text says why a peer of this host is refused. */
bool weft_host_known(void);
extern const char weft_host_unknown[];

/*
 * A hash of the host id and of the calling thread's network namespace (the
 * inode of /proc/self/ns/net, and SO_NETNS_COOKIE if the kernel has it).
 * Equal ids share one 127.0.0.1.  Not cached: a thread may unshare its
 * namespace.
 */
uint64_t weft_netns_id(void);

/*
 * "0 100000 65536", the mapping of user ids: equal ones may be different users
 * outside.  Its length, without a final zero; 0: the kernel has no user
 * namespaces; -errno.
 */
ssize_t weft_host_uid_map(char *text, size_t len);

/* Processors that this process may use (affinity and cgroup quota). */
unsigned int weft_host_cpus(void);

#endif

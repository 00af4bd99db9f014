/* SPDX-License-Identifier: BSD-3-Clause */
/* Who this host and this network namespace are. */
#ifndef WEFT_BOOTSTRAP_HOST_H
#define WEFT_BOOTSTRAP_HOST_H

#include <stdint.h>

/*
 * A hash of the kernel's boot id (/proc/sys/kernel/random/boot_id): equal for
 * all containers of one host.  Where it cannot be read, a random number: then
 * nobody is on "the same host", which is slow but never wrong.
 */
uint64_t weft_host_id(void);

/*
 * A hash of the host id and of the network namespace (the inode of
 * /proc/self/ns/net, and SO_NETNS_COOKIE where the kernel has it).  Equal ids
 * mean: 127.0.0.1 here is 127.0.0.1 there.  Of the calling thread, asked each
 * time: a process may unshare or fork into another one.
 */
uint64_t weft_netns_id(void);

/* Processors this process may use (sched_getaffinity and cgroup quota). */
unsigned int weft_host_cpus(void);

#endif

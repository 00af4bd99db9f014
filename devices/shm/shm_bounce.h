/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that a peer names. */
#ifndef WEFT_DEVICES_SHM_BOUNCE_H
#define WEFT_DEVICES_SHM_BOUNCE_H

#include "devices/shm/shm.h"

/* -errno, logged; to be closed in any case. */
int shm_bounce_open(struct shm_iface *iface);
void shm_bounce_close(struct shm_iface *iface);
/* Copies from the ring to such memory, or back; false: a part is not mapped. */
bool shm_bounce_out(struct shm_iface *iface, void *to, const void *ring,
		    size_t len);
bool shm_bounce_in(struct shm_iface *iface, void *ring, const void *from,
		   size_t len);

/*
 * Can this process read (or write) the program's memory without a signal?  True
 * on Linux before 5.14, which cannot tell.
 */
bool shm_bounce_check(const void *p, size_t len, bool write);

#endif

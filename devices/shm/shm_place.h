/* SPDX-License-Identifier: BSD-3-Clause */
/* Emptying them. */
#ifndef WEFT_DEVICES_SHM_PLACE_H
#define WEFT_DEVICES_SHM_PLACE_H

#include "devices/shm/shm.h"

/*
 * Is memory that the peer names a GPU's?  Managed memory is registered as the
 * host's, whose release waits for no engine.  -EACCES: the driver cannot tell.
 */
int shm_place_is_gpu(const void *p, struct weft_cuda_ptr *where);
/* Bytes of the put @l, or of the get @t, are in the window.  -EPROTO. */
int shm_place_put(struct shm_conn *conn, struct shm_landing *l,
		  const struct shm_place *place);
int shm_place_get(struct shm_conn *conn, struct shm_transfer *t,
		  const struct shm_place *place);

#endif

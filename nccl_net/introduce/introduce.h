/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Introduces this process's NCCL to other containers of the host, so that it
 * uses its own transports between them (host/samehost.h says which
 * processes take part).
 *
 * Three calls of NCCL decide, and all are answered where NCCL calls other
 * libraries, in the import slots of the object that it is in (slots.h):
 * getenv("NCCL_HOSTID"), stat("/dev/shm"), and those that take names of its
 * sockets and files (files.h).  Besides NCCL_HOSTID, a few settings without
 * which its transports would fail are answered (weft_samehost_env()).  The
 * environment is unchanged, so children and other threads are not affected.
 *
 * The first code that sees NCCL calls this, with an address of NCCL's code:
 * libnccl-net-weft.so from its init, libweft_preload.so and libnccl-env-weft.so
 * when NCCL asks for NCCL_COMM_ID, its first question for a communicator, for
 * NCCL_CUMEM_HOST_ENABLE, which on other ranks than the first it asks for
 * before, or for its host id.  The latter two open libnccl-net-weft.so for it,
 * so there is one state for all.  The id comes last: up to 2.25, and later with
 * NCCL_RAS_ENABLE=0, NCCL names its sockets before it asks for the id.
 */
#ifndef WEFT_NCCL_NET_INTRODUCE_INTRODUCE_H
#define WEFT_NCCL_NET_INTRODUCE_INTRODUCE_H

#include <stdbool.h>
#include "host/samehost.h"

/*
 * @inside: an address of NCCL's code.  The value that NCCL gets for @name,
 * valid forever, if that is unset; for "NCCL_HOSTID" the host id.  NULL: no
 * other value; or not introduced, which is logged; or (from the preload library
 * only) @inside is not NCCL.
 */
const char *weft_nccl_introduce(const void *inside, enum weft_introduce_way way,
				const char *name);

/*
 * The version of the NCCL that @inside is in, as from ncclGetVersion(); 0:
 * unknown.
 */
int weft_nccl_version(const void *inside);

#endif

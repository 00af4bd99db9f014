/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which processes of this host are one host to NCCL.
 *
 * NCCL has transports of its own within a host (NVLink, shared memory), and
 * takes them where two ranks have the same host id.  It cannot go back: where
 * they then fail the job dies.  So the id says more than "the same host".  Each
 * process computes it alone, before any rank has spoken, from all that these
 * transports need in common:
 *   the boot id            one kernel
 *   the shared folder      (rundir.h) by its cookie: NCCL's sockets and files
 *                          go there, so network and IPC namespaces, and
 *                          /dev/shm, need not be shared
 *   the set of GPUs        whose device nodes open here, by their numbers: a
 *                          rank imports memory of the others' GPUs
 *   the job's secret, the user, the mapping of the user namespace
 *   the scheme's version   what is redirected, and how it is named
 * Equal ids mean that it works, whatever the ranks are called and wherever they
 * run; others differ and use the network.  A process that cannot take part has
 * no id, and a reason.
 */
#ifndef WEFT_BOOTSTRAP_SAMEHOST_H
#define WEFT_BOOTSTRAP_SAMEHOST_H

#include <stdbool.h>
#include <stddef.h>

#define WEFT_SAMEHOST_ID	40	/* "weft-" and 32 hexadecimal digits */
#define WEFT_SAMEHOST_FOLDER	80
/* What may be added to the folder's name for the address of a socket. */
#define WEFT_SAMEHOST_NAME	27

struct weft_samehost {
	bool introduced;
	char id[WEFT_SAMEHOST_ID];		/* what NCCL_HOSTID is to be */
	char folder[WEFT_SAMEHOST_FOLDER];	/* no final slash */
	unsigned int gpus;			/* that open here */
	char reason[320];			/* not introduced: why, what to do */
};

/*
 * @nccl: as ncclGetVersion() has it; 0: it is not known, or none is asked for.
 * Looks anew each time and takes milliseconds; makes the shared folder where
 * there is none.
 */
void weft_samehost_find(int nccl, struct weft_samehost *host);

/* Who has found NCCL: see nccl_net/introduce.h. */
enum weft_introduce_way {
	WEFT_INTRODUCE_BY_NET,
	WEFT_INTRODUCE_BY_ENV,
	WEFT_INTRODUCE_BY_PRELOAD,	/* if it is NCCL */
};
/* weft_nccl_introduce() of libnccl-net-weft.so, for those beside it. */
typedef const char *(*weft_introduce_fn)(const void *inside,
					 enum weft_introduce_way way);

/* Tests: another folder than "/dev", another file than the driver's own. */
extern const char *weft_dev_root, *weft_driver_file;

#endif

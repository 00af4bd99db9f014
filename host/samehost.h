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
 *                          rank imports memory of the others' GPUs.  Those of
 *                          whom each has one, and the others' are hidden, have
 *                          an id in common: NCCL goes through shared memory
 *   NCCL's settings        which have to be equal on both sides of a transport
 *   whether several ranks may use one GPU (NCCL_MULTI_RANK_GPU_ENABLE)
 *   the job's secret, the user, the mapping of the user namespace
 *   the scheme's version   what is redirected, and how it is named
 * Equal ids mean that it works, whatever the ranks are called and wherever they
 * run; others differ and use the network.  A process that cannot take part has
 * no id, and a reason.
 */
#ifndef WEFT_HOST_SAMEHOST_H
#define WEFT_HOST_SAMEHOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEFT_SAMEHOST_ID     40 /* "weft-" and 32 hexadecimal digits */
#define WEFT_SAMEHOST_FOLDER 80
/* What a socket's path may append to the folder's. */
#define WEFT_SAMEHOST_NAME 27

struct weft_samehost {
	bool introduced;
	char id[WEFT_SAMEHOST_ID];	   /* the value for NCCL_HOSTID */
	char folder[WEFT_SAMEHOST_FOLDER]; /* no final slash */
	unsigned int gpus;		   /* whose device nodes open */
	bool gpus_shared;		   /* by several ranks each */
	bool hidden;  /* the others' GPUs: through shared memory alone */
	uint64_t gpu; /* device number of the last, the only one if hidden */
	char reason[320]; /* why not, and what to do */
};

/*
 * @nccl: the version as of ncclGetVersion(), or 0 if unknown.  Not cached;
 * takes milliseconds; creates the run folder if there is none.
 */
void weft_samehost_find(int nccl, struct weft_samehost *host);

/*
 * Where NCCL reads the answers: is this process the first with its GPU?  Where
 * the others' GPUs are hidden two could have the same one without knowing it,
 * which would end NCCL.  Until the process ends; else host->reason says why.
 */
bool weft_samehost_claim(struct weft_samehost *host);

/* The variables of which NCCL may have to read other values than are set. */
#define WEFT_SAMEHOST_VARIABLES                                \
	"NCCL_HOSTID", "NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE", \
		"NCCL_CUMEM_HOST_ENABLE"

/* Where introduced: the value of one that is not set or empty, or NULL. */
const char *weft_samehost_env(const struct weft_samehost *host,
			      const char *name);

/* How NCCL was found: see nccl_net/introduce/introduce.h. */
enum weft_introduce_way {
	WEFT_INTRODUCE_BY_NET,
	WEFT_INTRODUCE_BY_ENV,
	WEFT_INTRODUCE_BY_PRELOAD, /* if it is NCCL */
};
/* weft_nccl_introduce() of libnccl-net-weft.so, for libweft_preload.so. */
typedef const char *(*weft_introduce_fn)(const void *inside,
					 enum weft_introduce_way way,
					 const char *name);

/* For tests: the driver's version file. */
extern const char *weft_driver_file;

#endif

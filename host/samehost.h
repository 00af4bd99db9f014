/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which processes of this host are one host to NCCL.
 *
 * NCCL has transports of its own within a host (NVLink, shared memory), and
 * uses them if two ranks have the same host id.  It cannot go back: if they
 * then fail, the job dies.  So the id says more than "the same host".  Each
 * process computes it alone, before ranks communicate, from all that these
 * transports need in common:
 *   the boot id            one kernel
 *   the shared folder      (rundir.h) by its cookie: NCCL's sockets and files
 *                          go there, so network and IPC namespaces, and
 *                          /dev/shm, need not be shared
 *   the set of GPUs        whose device nodes open here, by their numbers: a
 *                          rank imports memory of the others' GPUs.  Processes
 *                          with one GPU each, the others' hidden, share an id
 *                          too: there NCCL uses shared memory
 *   NCCL's settings        which have to be equal on both sides of a transport
 *   whether several ranks may use one GPU (NCCL_MULTI_RANK_GPU_ENABLE)
 *   the job's secret, the user, the mapping of the user namespace
 *   the scheme's version  which names are redirected, and to what
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
	bool hidden; /* the other processes' GPUs are: use shared memory alone
		      */
	uint64_t
		gpu; /* device number of the last one, the only one if hidden */
	char reason[320]; /* why not, and what to do */
};

/*
 * @nccl: the version as of ncclGetVersion(), or 0 if unknown.  Not cached;
 * takes milliseconds; creates the run folder if there is none.
 */
void weft_samehost_find(int nccl, struct weft_samehost *host);

/*
 * Called where NCCL reads the id.  If the others' GPUs are hidden, two
 * processes could have the same GPU without knowing it, which would end NCCL:
 * take the GPU for as long as this process lives.  False: another one has it,
 * and host->reason says so.
 */
bool weft_samehost_claim(struct weft_samehost *host);

/* The variables for which NCCL may have to get a value of weft's. */
#define WEFT_SAMEHOST_VARIABLES                                \
	"NCCL_HOSTID", "NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE", \
		"NCCL_CUMEM_HOST_ENABLE"

/*
 * If introduced, the value for one of them that is unset or empty, else NULL.
 */
const char *weft_samehost_env(const struct weft_samehost *host,
			      const char *name);

/* Which code found NCCL: see nccl_net/introduce/introduce.h. */
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

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The GPUs of this host and the links between them, from sysfs and NVIDIA's
 * management library; no CUDA context is made.  Calls may take as long as the
 * driver takes.
 */
#ifndef WEFT_HOST_GPU_H
#define WEFT_HOST_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/pci.h"
#include "util/drivers/cuda.h"

#define WEFT_GPUS_MAX  32
#define WEFT_BUSID_LEN 16 /* "0000:1a:00.0" */

struct weft_gpu {
	char busid[WEFT_BUSID_LEN];
	char name[64];
	char uuid[48]; /* "GPU-5f3c..."; "": not known */
	bool here;     /* the driver lets this process use it */
	bool mig;      /* divided into instances */
};

struct weft_gpu_pair {
	bool known; /* the driver has answered */
	bool reads; /* one can read the other's memory */
	bool nvlink;
	unsigned int links; /* number of NVLinks between them */
};

struct weft_gpus {
	unsigned int n;
	struct weft_gpu gpu[WEFT_GPUS_MAX];
	/* symmetric; [a][a] is not filled in */
	struct weft_gpu_pair pair[WEFT_GPUS_MAX][WEFT_GPUS_MAX];
	const char *why; /* why the driver does not answer, or NULL */
};

/* Those whose device nodes open here, in order; the host numbers them. */
struct weft_gpu_nodes {
	unsigned int n;
	uint64_t dev[WEFT_GPUS_MAX];
};
void weft_gpu_nodes_find(struct weft_gpu_nodes *nodes);
/* A hash of them; 0: there are none. */
uint32_t weft_gpu_nodes_id(void);
extern const char *weft_dev_root; /* for tests */

/*
 * List the host's GPUs by PCI address.  In a container sysfs shows all of them,
 * the driver only those whose device nodes it has.
 */
void weft_gpus_find(struct weft_gpus *g);
/* The same without the pairs. */
void weft_gpus_list(struct weft_gpus *g);
/* The number of GPUs in sysfs; does not ask the driver. */
unsigned int weft_gpus_on_pci(void);
/* "0000:1a:00.0" of CUDA's device; false: the driver does not tell. */
bool weft_gpu_busid(const struct weft_cuda *cu, int dev,
		    char busid[WEFT_BUSID_LEN]);
/*
 * The GPU that this process uses: that of the calling thread's context if weft
 * has loaded the driver, else the first of CUDA_VISIBLE_DEVICES (numbers count
 * by PCI address, as in CUDA if all GPUs are alike), else the only visible
 * one.  Neither loads the driver nor creates a context.  *@turn is its index
 * among the host's GPUs.  False: there is none, or several and no choice.
 */
bool weft_gpu_of_process(struct weft_pci *pci, unsigned int *turn);
/* Is that GPU divided into instances (MIG)?  False without NVML. */
bool weft_gpu_mig(const char *busid);
/* Is any GPU in use by MIG that this process can see? */
bool weft_gpus_divided(void);

/*
 * Does an MPS daemon listen where this process's CUDA driver looks for one?
 * Always sets *@folder: CUDA_MPS_PIPE_DIRECTORY or its default.
 */
bool weft_gpu_mps(const char **folder);

#endif

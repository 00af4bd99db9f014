/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The GPUs of this host and what lies between them, from sysfs and NVIDIA's
 * management library; no CUDA context is made.  Calls may take as long as the
 * driver takes.
 */
#ifndef WEFT_BOOTSTRAP_GPU_H
#define WEFT_BOOTSTRAP_GPU_H

#include <stdbool.h>
#include <stddef.h>

#include "bootstrap/pci.h"

#define WEFT_GPUS_MAX	32
#define WEFT_BUSID_LEN	16	/* "0000:1a:00.0" */

struct weft_gpu {
	char busid[WEFT_BUSID_LEN];
	char name[64];
	char uuid[48];	/* "GPU-5f3c...", where the driver says it */
	bool here;	/* the driver lets this process have it */
	bool mig;	/* it is divided into instances */
};

struct weft_gpu_pair {
	bool known;		/* the driver was asked and has answered */
	bool reads;		/* one can read the other's memory */
	bool nvlink;
	unsigned int links;	/* NVLink: those that lead there */
};

struct weft_gpus {
	unsigned int n;
	struct weft_gpu gpu[WEFT_GPUS_MAX];
	/* [a][b] is [b][a]; nothing is known of [a][a] */
	struct weft_gpu_pair pair[WEFT_GPUS_MAX][WEFT_GPUS_MAX];
	const char *why;	/* the driver cannot be asked: why; else NULL */
};

/*
 * All of the host's, in the order of their PCI addresses: sysfs shows them in
 * every container, the driver only those whose device nodes are there.
 */
void weft_gpus_find(struct weft_gpus *g);
/* How many sysfs shows; the driver is not asked. */
unsigned int weft_gpus_on_pci(void);
/* "0000:1a:00.0" of what CUDA and NVML say in numbers. */
void weft_gpu_busid(char busid[WEFT_BUSID_LEN], unsigned int domain,
		    unsigned int bus, unsigned int device);
/*
 * The GPU that this process works on: of the calling thread's context where
 * weft has the driver, else the first of CUDA_VISIBLE_DEVICES (a number counts
 * by PCI address, as CUDA does with GPUs that are alike), else the only one
 * that is here.  No driver is loaded and no context made for the question.
 * *@turn is its place among the host's GPUs.  False: none, or any of several.
 */
bool weft_gpu_own(struct weft_pci *pci, unsigned int *turn);
/* Is that GPU divided into instances (MIG)?  Without the library: no. */
bool weft_gpu_mig(const char *busid);
/* The same of any GPU that this process may have. */
bool weft_gpus_divided(void);

/*
 * Does an MPS daemon answer where this process's CUDA driver looks for one?
 * *@folder (CUDA_MPS_PIPE_DIRECTORY or its default) is told in any case.
 */
bool weft_gpu_mps(const char **folder);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory that adapters read and write themselves (GPUDirect RDMA), where
 * kernel, driver, adapters and settings all allow it: UCP is told then that
 * weft_ib registers it, and goes by it without a copy through host memory.
 *
 * UCP chooses by the type of memory alone, before it knows which port will
 * carry a message, and what cannot be registered then fails.  So it is offered
 * where every port can, or not at all.
 */
#include <stdio.h>
#include <stdlib.h>
#include "bootstrap/settings.h"
#include "bootstrap/ucxenv.h"
#include "bootstrap/verbs.h"
#include "devices/ib.h"
#include "ucx_tl/uct.h"
#include "util/cuda.h"
#include "util/log.h"

bool weft_uct_no_gpu(const struct weft_uct *uct)
{
	(void)uct;
	return false;
}

#ifdef HAVE_VERBS_H
/* before, each message registers its buffer anew */
#define MINOR_MIN 17

/* The first that can not; NULL: all can. */
static const struct weft_verbs_port *
port_that_cannot(const struct weft_verbs_port *list, int n)
{
	const bool dmabuf = weft_cuda_has_dmabuf();
	unsigned int ways;

	for (int i = 0; i < n; i++) {
		ways = weft_ib_gpu_ways(list[i].dev);
		if (!dmabuf)
			ways &= ~WEFT_IB_DMABUF;
		if (!ways)
			return &list[i];
	}
	return NULL;
}

/* Why not, in @text; NULL: it is offered. */
static const char *lacking(const struct weft_uct *uct, char *text, size_t len)
{
	const struct weft_verbs_port *port;
	struct weft_verbs_port *list;
	int n;

	if (uct->abi->minor < MINOR_MIN) {
		snprintf(text, len, "UCX before 1.%d registers it for each message",
			 MINOR_MIN);
		return text;
	}
	if (!weft_cuda_copy_requested())
		return "UCX_TLS leaves out cuda_copy, by which UCX tells GPU memory from other";
	/* UCX has initialised the driver where it has GPUs to show */
	if (weft_uct_component_mds(uct, "cuda_cpy") <= 0 ||
	    weft_cuda_program_gpus() <= 0 || weft_cuda_init())
		return "UCX's cuda_copy sees no GPU";
	n = weft_verbs_list_near(&list);
	if (n < 0)
		return "memory is short";
	port = port_that_cannot(list, n);
	if (port)
		snprintf(text, len, "'%s' takes none: neither by dma-buf nor by nvidia_peermem",
			 port->name);
	free(list);
	return port ? text : NULL;
}

bool weft_uct_ib_takes_gpu(const struct weft_uct *uct)
{
	const enum weft_tristate wanted = weft_settings()->ib_gpu_direct;
	char text[256];
	const char *why;

	if (wanted == WEFT_OFF)
		return false;
	why = lacking(uct, text, sizeof(text));
	if (why && wanted == WEFT_ON)
		weft_warn_once("WEFT_IB_GPU_DIRECT is on, but %s: weft_ib has host memory alone",
			       why);
	else if (why)
		weft_info("weft_ib has host memory alone: %s", why);
	return !why;
}
#endif

int weft_uct_mem_kind(const struct weft_uct_memory_domain *md, const void *addr)
{
	struct weft_cuda_ptr info;
	int err;

	if (!md->gpu)
		return md->tl->mem_kind;
	/* it may know a GPU's memory, and no context for it */
	err = weft_cuda_query(addr, &info);
	if (info.where == WEFT_CUDA_DEVICE)
		return WEFT_MEM_CUDA;
	return err ? err : WEFT_MEM_HOST;
}

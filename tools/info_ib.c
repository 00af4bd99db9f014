/* SPDX-License-Identifier: BSD-3-Clause */
/* What weft info says of adapters and GPU memory. */
#include <stdio.h>

#include "bootstrap/settings.h"
#include "config.h"
#include "tools/tool.h"
#ifdef HAVE_VERBS_H
#include "devices/ib.h"

static const char *way(const char *dev)
{
	const unsigned int ways = weft_ib_gpu_ways(dev);

	return ways == WEFT_IB_DMABUF  ? "by dma-buf" :
	       ways == WEFT_IB_PEERMEM ? "by nvidia_peermem" :
	       ways		       ? "by dma-buf or nvidia_peermem" : "not";
}

/* The adapters are asked, which opens them: only where somebody wants it. */
void info_ib_gpu(const struct weft_verbs_port *list, int n)
{
	const enum weft_tristate wanted = weft_settings()->ib_gpu_direct;
	int i;

	if (wanted == WEFT_OFF || n <= 0)
		return;
	printf("  GPU memory (WEFT_IB_GPU_DIRECT=%s), as far as it is the "
	       "adapter's and the kernel's:\n   ",
	       wanted == WEFT_ON ? "on" : "auto");
	for (i = 0; i < n; i++)
		printf(" %s %s%s", list[i].name, way(list[i].dev),
		       i + 1 < n ? "," : "\n");
}
#else
void info_ib_gpu(const struct weft_verbs_port *list, int n)
{
	(void)list;
	(void)n;
}
#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Mappings of the process that are to go. */
#ifndef WEFT_DEVICES_NVL_UNMAP_H
#define WEFT_DEVICES_NVL_UNMAP_H

#include "devices/nvlink/nvl_map.h"

/* For an interface: what follows may be called until nvl_unmap_end(). */
void nvl_unmap_begin(void);
/* As nvl_map_undo(), later and by a thread. */
void nvl_map_close(struct nvl_mapping *m);
/* Waits until all of the process's is unmapped, a second at most. */
void nvl_unmap_drain(void);
/* The last interface's waits for the thread, and unmaps what it has left. */
void nvl_unmap_end(void);
/* In a child: it has no thread. */
void nvl_unmap_forget(void);

#endif

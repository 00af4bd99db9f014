/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Local GPU memory as the driver has allocated it, and what others need to map
 * it.
 */
#include <string.h>
#include <unistd.h>

#include "devices/nvlink/nvl_life.h"
#include "devices/nvlink/nvl_part.h"

static bool has_descriptor(const struct weft_cuda *cu, uint64_t base)
{
	struct weft_cu_alloc_prop prop;
	unsigned long long handle;
	int r;

	/* memory that is not of cuMemCreate() has none */
	if (cu->mem_retain(&handle, (void *)(uintptr_t)base))
		return false;
	memset(&prop, 0, sizeof(prop));
	r = cu->mem_props(&prop, handle);
	cu->mem_release(handle);
	return !r && (prop.handle_types & WEFT_CU_HANDLE_POSIX_FD) &&
	       prop.location.type == WEFT_CU_LOCATION_DEVICE;
}

static bool read_part(const struct weft_cuda *cu, uint64_t at,
		      struct nvl_part *part)
{
	int attr = WEFT_CU_POINTER_BUFFER_ID;
	void *value = &part->buffer_id;

	part->buffer_id = 0;
	/* in a range of several allocations: the one around @at */
	return !cu->address_range(&part->base, &part->size, at) && part->size &&
	       part->base <= at && at - part->base < part->size &&
	       !cu->pointer_attrs(1, &attr, &value, part->base);
}

/* Those of cuMemCreate() around [addr, addr+len); 0: not all can be. */
unsigned int nvl_parts_find(const struct weft_cuda *cu, uint64_t addr,
			    size_t len, struct nvl_part *parts)
{
	uint64_t at = addr;
	unsigned int n = 0;

	while (!n || at - addr < len) {
		if (n == NVL_PARTS || !read_part(cu, at, &parts[n]) ||
		    (n && parts[n].base != at) ||
		    !has_descriptor(cu, parts[n].base))
			return 0;
		at = parts[n].base + parts[n].size;
		n++;
	}
	return n;
}

/* Where the driver notes the pid in a handle. */
#define HANDLE_PID 8u

/*
 * The allocation around @addr, if the driver has an IPC handle for it: if it is
 * cuMemAlloc()'s.  It has none for pools (cuMemAllocAsync) and for what was
 * opened by one.  A driver that puts no pid there has another form of it, which
 * is left as it is.
 */
bool nvl_part_handle(const struct weft_cuda *cu, uint64_t addr,
		     struct nvl_part *part, struct weft_cu_ipc *handle)
{
	const uint32_t pid = getpid(), number = nvl_process();

	if (!number || !read_part(cu, addr, part) ||
	    cu->ipc_get(handle, part->base))
		return false;
	if (!memcmp(handle->bytes + HANDLE_PID, &pid, sizeof(pid)))
		memcpy(handle->bytes + HANDLE_PID, &number, sizeof(number));
	return true;
}

bool nvl_part_is_same(const struct nvl_part *a, const struct nvl_part *b)
{
	return a->base == b->base && a->size == b->size &&
	       a->buffer_id == b->buffer_id;
}

/*
 * CUresult; INVALID_VALUE: another one is there now.  What is retained is
 * compared: its numbers stay its own, whatever is mapped there next.
 */
int nvl_part_export(const struct weft_cuda *cu, const struct nvl_part *part,
		    int *fd)
{
	unsigned long long handle;
	struct nvl_part now;
	int r;

	r = cu->mem_retain(&handle, (void *)(uintptr_t)part->base);
	if (r)
		return r;
	if (read_part(cu, part->base, &now) && nvl_part_is_same(part, &now))
		r = cu->mem_export(fd, handle, WEFT_CU_HANDLE_POSIX_FD, 0);
	else
		r = WEFT_CU_INVALID_VALUE;
	cu->mem_release(handle);
	return r;
}

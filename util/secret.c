/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/secret.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "util/log.h"
#include "util/util.h"

void *weft_secret_alloc(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (madvise(p, size, MADV_DONTDUMP))
		weft_warn_once(
			"the keys of this process will be in its core dumps (madvise: %s); 'ulimit -c 0' makes none",
			strerror(errno));
	return p;
}

void weft_secret_free(void *p, size_t size)
{
	if (!p)
		return;
	weft_wipe(p, size);
	munmap(p, size);
}

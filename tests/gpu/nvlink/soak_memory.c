/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of all kinds: filled, checked, registered. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/nvlink/gpumem.h"
#include "tests/gpu/nvlink/soak.h"

#define EDGE 4096ul /* looked at on both sides of what was moved */

static const enum gpumem_kind kinds[] = { GPUMEM_MALLOC, GPUMEM_VMM,
					  GPUMEM_PARTS };

void mem_fill(struct memory *m, size_t off, size_t len, uint64_t seed)
{
	gpumem_fill(m->p, off, len, seed);
}

static void mem_check(struct memory *m, size_t off, size_t len, uint64_t seed,
		      const char *what)
{
	const uint64_t bad = len ? gpumem_check(m->p, off, len, seed) : 0;

	if (bad)
		fail("%s: %zu bytes at %zu of kind %u: %llu places are wrong",
		     what, len, off, m->kind, (unsigned long long)bad);
}

void mem_check_all(struct memory *m, size_t off, size_t len, uint64_t seed,
		   const char *what)
{
	const size_t before = weft_min(off, EDGE);
	const size_t behind = weft_min(SIZE - off - len, EDGE);

	mem_check(m, off, len, seed, what);
	mem_check(m, off - before, before, POISON, "before it");
	mem_check(m, off + len, behind, POISON, "behind it");
}

void mem_open(struct memory *m, unsigned int kind)
{
	int err;

	memset(m, 0, sizeof(*m));
	m->kind = kind;
	m->p = gpumem_alloc(kinds[kind], SIZE);
	if (!m->p)
		fail("no memory");
	mem_fill(m, 0, SIZE, POISON);
	err = ops->mem_register(m->p, SIZE, WEFT_MEM_CUDA, &m->mem);
	if (err)
		fail("mem_register: %s", strerror(-err));
}

void mem_close(struct memory *m)
{
	ops->mem_release(m->mem);
	gpumem_free(kinds[m->kind], m->p, SIZE);
}

void mem_stays_clear(struct memory *m, const char *what)
{
	mem_fill(m, 0, SIZE, POISON);
	sched_yield();
	mem_check(m, 0, SIZE, POISON, what);
}

void mem_renew(struct memory *m)
{
	int err;

	ops->mem_release(m->mem);
	m->mem = NULL;
	mem_stays_clear(m, "after release");
	err = ops->mem_register(m->p, SIZE, WEFT_MEM_CUDA, &m->mem);
	if (err)
		fail("mem_register: %s", strerror(-err));
}

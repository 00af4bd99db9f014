/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake driver's IPC handles, and the memory of cuMemAlloc() that they are
 * for: files of a folder, FAKE_CUDA_IPC, that all processes of a test see.
 * Without it there are none.
 *
 * As with the driver, what is below 1 MiB shares blocks of 2 MiB, a block is
 * mapped whole and once in a context, freed memory lives on while it is, and
 * what took its place is not mapped until it is closed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/cuda/fake_cuda_int.h"

#define SMALL	(1ul << 20)
#define ALIGN	512ul
#define MAGIC	0x43504965736b6166ull
#define IMPORTS 1024

struct block {
	uint64_t name, base;
	size_t size, next; /* free from there on */
	unsigned int used;
};

/* CUipcMemHandle; the driver's own form is known in `pid` alone. */
struct ipc_handle {
	uint64_t magic;
	uint32_t pid; /* at byte 8 */
	int32_t phys;
	uint64_t block, offset, id, maker;
	uint64_t at; /* the block's address there */
	uint64_t zero;
};
_Static_assert(sizeof(struct ipc_handle) == sizeof(struct weft_cu_ipc),
	       "CUipcMemHandle");

static struct block *small[GPUS]; /* that small ones come of */

static struct import {
	struct object *object; /* NULL: free */
	uint64_t block, maker, at;
	unsigned int opens;
} imports[IMPORTS];

static uint64_t draw(void)
{
	uint64_t n;

	if (getrandom(&n, sizeof(n), 0) != sizeof(n))
		abort();
	return n;
}

static uint64_t own_maker(void)
{
	static uint64_t maker;

	if (!maker)
		maker = draw();
	return maker;
}

static bool path_of(char path[4200], uint64_t name)
{
	const char *folder = getenv(FAKE_CUDA_IPC);

	if (!folder || !*folder)
		return false;
	snprintf(path, 4200, "%s/%016llx", folder, (unsigned long long)name);
	return true;
}

/* Under fake_lock, all that follow. */

/* The last block that was freed: the next one of its size has its address. */
static struct {
	void *base;
	size_t size;
} freed;

static void keep_address(void *base, size_t size)
{
	if (freed.base)
		munmap(freed.base, freed.size);
	if (mmap(base, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		 -1, 0) == MAP_FAILED)
		abort();
	freed.base = base;
	freed.size = size;
}

static uint64_t map_file(const char *path, int flags, size_t *size)
{
	bool again;
	int fd = open(path, flags | O_RDWR | O_CLOEXEC, 0600);
	struct stat st;
	void *p;

	if (fd < 0)
		return 0;
	if ((flags & O_CREAT) && ftruncate(fd, (off_t)*size))
		abort();
	if (fstat(fd, &st))
		abort();
	*size = (size_t)st.st_size;
	again = (flags & O_CREAT) && freed.base && freed.size == *size;
	p = mmap(again ? freed.base : NULL, *size, PROT_READ | PROT_WRITE,
		 MAP_SHARED | (again ? MAP_FIXED : 0), fd, 0);
	if (p == MAP_FAILED)
		abort();
	if (again)
		freed.base = NULL;
	close(fd);
	return (uintptr_t)p;
}

static struct block *new_block(size_t size)
{
	struct block *b = calloc(1, sizeof(*b));
	char path[4200];

	b->name = draw();
	b->size = (size + PAGE_2M - 1) & ~(PAGE_2M - 1);
	path_of(path, b->name);
	b->base = map_file(path, O_CREAT | O_EXCL, &b->size);
	if (!b->base)
		abort();
	return b;
}

struct object *fake_ipc_alloc(int ordinal, size_t size)
{
	const size_t room = (size + ALIGN - 1) & ~(ALIGN - 1);
	struct block *b;
	struct object *o;
	char path[4200];

	if (!path_of(path, 0))
		return NULL;
	b = size < SMALL ? small[ordinal] : NULL;
	if (!b || b->size - b->next < room)
		b = new_block(size);
	if (size < SMALL)
		small[ordinal] = b;
	o = fake_add(MALLOC, b->base + b->next, size, ordinal);
	o->block = b;
	b->next += room;
	b->used++;
	return o;
}

void fake_ipc_free(struct object *o)
{
	struct block *b = o->block;
	char path[4200];

	o->kind = FREE;
	/* the next one has the address again */
	if (o->base + ((o->size + ALIGN - 1) & ~(ALIGN - 1)) ==
	    b->base + b->next)
		b->next = o->base - b->base;
	if (--b->used)
		return;
	if (small[o->ordinal] == b)
		small[o->ordinal] = NULL;
	keep_address((void *)(uintptr_t)b->base, b->size);
	if (path_of(path, b->name))
		unlink(path);
	free(b);
}

EXPORT int cuIpcGetMemHandle(struct weft_cu_ipc *handle, uint64_t ptr)
{
	struct ipc_handle h = { .magic = MAGIC, .pid = (uint32_t)getpid() };
	struct object *o;
	int err = WEFT_CU_INVALID_VALUE;

	GATE(0);
	pthread_mutex_lock(&fake_lock);
	o = fake_find(ptr, 1);
	if (o && o->kind == MALLOC && o->block) {
		h.phys = fake_phys_of[o->ordinal];
		h.block = o->block->name;
		h.offset = o->base - o->block->base;
		h.id = o->id;
		h.maker = own_maker();
		h.at = o->block->base;
		memcpy(handle, &h, sizeof(h));
		err = 0;
	} else if (o && o->kind == MALLOC && o->ctx) {
		err = WEFT_CU_NOT_SUPPORTED;
	}
	pthread_mutex_unlock(&fake_lock);
	return err;
}

static int gpu_here(int phys)
{
	int i = 0;

	while (i < fake_gpus && fake_phys_of[i] != phys)
		i++;
	return i < fake_gpus ? i : -1;
}

/* 0: none yet; a CUresult where another context has it or its like. */
static int find_open(const struct ipc_handle *h, struct import **out)
{
	struct context *c = fake_current(), *of;
	struct import *im;

	*out = NULL;
	for (im = imports; im < imports + IMPORTS; im++) {
		if (!im->object || im->maker != h->maker)
			continue;
		of = im->object->ctx;
		if (of != c && of->ordinal == c->ordinal)
			return WEFT_CU_INVALID_CONTEXT;
		if (of == c && im->block == h->block)
			*out = im;
		else if (of == c && h->at >= im->at &&
			 h->at - im->at < im->object->size)
			return WEFT_CU_ALREADY_MAPPED;
	}
	return 0;
}

static int import_block(const struct ipc_handle *h, struct import **out)
{
	struct context *c = fake_current();
	struct import *im = imports;
	char path[4200];
	uint64_t base;
	size_t size;

	while (im < imports + IMPORTS && im->object)
		im++;
	if (im == imports + IMPORTS || !path_of(path, h->block))
		return WEFT_CU_INVALID_VALUE;
	base = map_file(path, 0, &size);
	if (!base)
		return WEFT_CU_INVALID_VALUE; /* freed */
	im->object = fake_add(IMPORTED, base, size, gpu_here(h->phys));
	im->object->ctx = c;
	im->object->access = BIT(c->ordinal);
	im->block = h->block;
	im->maker = h->maker;
	im->at = h->at;
	im->opens = 0;
	*out = im;
	return 0;
}

EXPORT int cuIpcOpenMemHandle_v2(uint64_t *ptr, struct weft_cu_ipc handle,
				 unsigned int flags)
{
	struct import *im;
	struct ipc_handle h;
	int err;

	GATE(CONTEXT | UNSAFE);
	memcpy(&h, &handle, sizeof(h));
	if (flags != WEFT_CU_IPC_LAZY_PEER_ACCESS || h.magic != MAGIC)
		return WEFT_CU_INVALID_VALUE;
	if (h.pid == (uint32_t)getpid())
		return WEFT_CU_INVALID_CONTEXT;
	pthread_mutex_lock(&fake_lock);
	if (h.maker == own_maker())
		err = WEFT_CU_INVALID_CONTEXT;
	else if (gpu_here(h.phys) < 0 || fake_mig())
		err = WEFT_CU_INVALID_VALUE; /* no device node here */
	else
		err = find_open(&h, &im);
	if (!err && !im)
		err = import_block(&h, &im);
	if (!err) {
		im->opens++;
		fake_live.imports++;
		*ptr = im->object->base + h.offset;
	}
	pthread_mutex_unlock(&fake_lock);
	return err;
}

EXPORT int cuIpcCloseMemHandle(uint64_t ptr)
{
	struct import *im = imports;
	int err = 0;

	GATE(CONTEXT | UNSAFE);
	pthread_mutex_lock(&fake_lock);
	while (im < imports + IMPORTS &&
	       (!im->object || ptr < im->object->base ||
		ptr >= im->object->base + im->object->size))
		im++;
	if (im == imports + IMPORTS) {
		err = WEFT_CU_INVALID_VALUE; /* not open */
	} else if (im->object->ctx != fake_current()) {
		err = WEFT_CU_INVALID_CONTEXT;
	} else {
		fake_live.imports--;
		if (!--im->opens) {
			munmap((void *)(uintptr_t)im->object->base,
			       im->object->size);
			im->object->kind = FREE;
			im->object = NULL;
		}
	}
	pthread_mutex_unlock(&fake_lock);
	return err;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl_net/introduce/slots.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#define IS_SLOT(type)                                                   \
	((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT || \
	 (type) == R_X86_64_64)
#elif defined(__aarch64__)
#define IS_SLOT(type)                                                     \
	((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT || \
	 (type) == R_AARCH64_ABS64)
#elif defined(__powerpc64__) && _CALL_ELF == 2 /* else: descriptors */
#define IS_SLOT(type) ((type) == R_PPC64_JMP_SLOT || (type) == R_PPC64_ADDR64)
#else
#define IS_SLOT(type) ((void)(type), false)
#define NO_SLOTS
#endif

#define MAX 64u /* libnccl has eight */

struct found {
	void **at;
	void *to, *was;
};

struct object {
	uintptr_t inside;
	uintptr_t base;
	const ElfW(Dyn) * dynamic;
	uintptr_t relro, relro_end; /* whole pages */
	const ElfW(Sym) * symbols;
	const char *names;
	struct found found[MAX];
	unsigned int n, groups;
	bool too_many;
};

static bool contains_address(const struct dl_phdr_info *info, uintptr_t address)
{
	const ElfW(Phdr) *p = info->dlpi_phdr;
	unsigned int i;

	for (i = 0; i < info->dlpi_phnum; i++, p++)
		if (p->p_type == PT_LOAD &&
		    address - info->dlpi_addr - p->p_vaddr < p->p_memsz)
			return true;
	return false;
}

static int visit_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	const ElfW(Phdr) *p = info->dlpi_phdr;
	struct object *o = arg;
	unsigned int i;

	if (!contains_address(info, o->inside))
		return 0;
	o->base = info->dlpi_addr;
	for (i = 0; i < info->dlpi_phnum; i++, p++) {
		if (p->p_type == PT_DYNAMIC)
			o->dynamic = (const void *)(o->base + p->p_vaddr);
		if (p->p_type != PT_GNU_RELRO)
			continue;
		/*
		 * the dynamic linker rounds both down: a last page may stay
		 * writable
		 */
		o->relro = (o->base + p->p_vaddr) & -page;
		o->relro_end = (o->base + p->p_vaddr + p->p_memsz) & -page;
	}
	return 1;
}

/*
 * An address in the dynamic section, which some dynamic linkers do not
 * relocate.
 */
static const void *object_address(const struct object *o, ElfW(Addr) value)
{
	return (const void *)(value < o->base ? value + o->base : value);
}

static const void *dynamic_entry(const struct object *o, ElfW(Sxword) tag)
{
	const ElfW(Dyn) * d;

	for (d = o->dynamic; d->d_tag != DT_NULL; d++)
		if (d->d_tag == tag)
			return object_address(o, d->d_un.d_ptr);
	return NULL;
}

static size_t dynamic_value(const struct object *o, ElfW(Sxword) tag)
{
	const ElfW(Dyn) * d;

	for (d = o->dynamic; d->d_tag != DT_NULL; d++)
		if (d->d_tag == tag)
			return d->d_un.d_val;
	return 0;
}

static void record_slot(struct object *o, const struct weft_slot *slot,
			uintptr_t at)
{
	if (o->n == MAX) {
		o->too_many = true;
		return;
	}
	o->found[o->n].at = (void **)at;
	o->found[o->n++].to = slot->to;
	o->groups |= slot->group;
}

/* REL and RELA entries begin with the same two members. */
static void scan_relocations(struct object *o, const char *table, size_t size,
			     size_t each, const struct weft_slot *slots,
			     size_t n)
{
	const char *end = table + size, *name;
	const ElfW(Rel) * r;
	size_t i;

	for (; table && table + each <= end; table += each) {
		r = (const ElfW(Rel) *)table;
		if (!IS_SLOT(ELF64_R_TYPE(r->r_info)) ||
		    !ELF64_R_SYM(r->r_info))
			continue;
		name = o->names + o->symbols[ELF64_R_SYM(r->r_info)].st_name;
		for (i = 0; i < n; i++)
			if (!strcmp(name, slots[i].name))
				record_slot(o, &slots[i],
					    o->base + r->r_offset);
	}
}

static void scan_object(struct object *o, const struct weft_slot *slots,
			size_t n)
{
	const size_t each = dynamic_value(o, DT_PLTREL) == DT_REL
				    ? sizeof(ElfW(Rel))
				    : sizeof(ElfW(Rela));

	scan_relocations(o, dynamic_entry(o, DT_JMPREL),
			 dynamic_value(o, DT_PLTRELSZ), each, slots, n);
	scan_relocations(o, dynamic_entry(o, DT_RELA),
			 dynamic_value(o, DT_RELASZ), sizeof(ElfW(Rela)), slots,
			 n);
	scan_relocations(o, dynamic_entry(o, DT_REL),
			 dynamic_value(o, DT_RELSZ), sizeof(ElfW(Rel)), slots,
			 n);
}

static int write_slot(const struct object *o, void **at, void *to)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *start = (void *)((uintptr_t)at & -page);
	const bool locked =
		(uintptr_t)at >= o->relro && (uintptr_t)at < o->relro_end;

	if (__atomic_load_n(at, __ATOMIC_RELAXED) == to)
		return 0;
	if (locked && mprotect(start, page, PROT_READ | PROT_WRITE))
		return -errno;
	__atomic_store_n(at, to, __ATOMIC_RELEASE);
	if (locked)
		mprotect(start, page, PROT_READ);
	return 0;
}

static int write_all_slots(struct object *o)
{
	unsigned int i;
	int err = 0;

	for (i = 0; i < o->n && !err; i++) {
		o->found[i].was = *o->found[i].at;
		err = write_slot(o, o->found[i].at, o->found[i].to);
	}
	/*
	 * an unbound slot holds the address that binds it, which is valid again
	 */
	while (err && i--)
		write_slot(o, o->found[i].at, o->found[i].was);
	return err;
}

static int find_slots(struct object *o, const void *inside,
		      const struct weft_slot *slots, size_t n,
		      unsigned int groups)
{
	*o = (struct object){ .inside = (uintptr_t)inside };
#ifdef NO_SLOTS
	return -EOPNOTSUPP;
#endif
	if (!dl_iterate_phdr(visit_object, o) || !o->dynamic)
		return -ENOENT;
	o->symbols = dynamic_entry(o, DT_SYMTAB);
	o->names = dynamic_entry(o, DT_STRTAB);
	if (!o->symbols || !o->names)
		return -ENOENT;
	scan_object(o, slots, n);
	if ((o->groups & groups) != groups)
		return -ENOSYS;
	return o->too_many ? -E2BIG : 0;
}

int weft_slots_find(const void *inside, const struct weft_slot *slots, size_t n,
		    unsigned int groups)
{
	struct object o;

	return find_slots(&o, inside, slots, n, groups);
}

int weft_slots_write(const void *inside, const struct weft_slot *slots,
		     size_t n, unsigned int groups)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct object o;
	int err;

	err = find_slots(&o, inside, slots, n, groups);
	if (err)
		return err;
	pthread_mutex_lock(&lock);
	err = write_all_slots(&o);
	pthread_mutex_unlock(&lock);
	return err;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Import slots of libraries linked in each way that there is. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nccl_net/introduce/slots.h"

static int my_pid(void)
{
	return -1;
}

static int my_parent(void)
{
	return -2;
}

#define PID    1u
#define PARENT 2u
#define OTHER  4u
static const struct weft_slot slots[] = {
	{ "getpid", my_pid, PID },
	{ "getppid", my_parent, PARENT },
	{ "getpgid", my_parent, OTHER },
};

static void *lib;
static int (*pid)(void), (*parent)(void), (*by_pointer)(void);

static void *find(const char *name)
{
	void *f = dlsym(lib, name);

	cr_assert(f != NULL);
	return f;
}

static void load(const char *kind)
{
	char path[4096];

	cr_assert(getenv("WEFT_BUILD") != NULL, "run it by make check");
	snprintf(path, sizeof(path),
		 "%s/tests/unit/nccl_net/.libs/libslots_%s.so",
		 getenv("WEFT_BUILD"), kind);
	lib = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	cr_assert(lib != NULL, "%s", dlerror());
	*(void **)&pid = find("lib_pid");
	*(void **)&parent = find("lib_parent");
	*(void **)&by_pointer = find("lib_parent_by_pointer");
}

static int write_all(unsigned int groups)
{
	return weft_slots_write((const void *)pid, slots, 3, groups);
}

/* The protection of the page at @address, as "rw-p". */
static void protection(uintptr_t address, char text[5])
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long start, end;
	char line[4352];

	strcpy(text, "");
	cr_assert(maps != NULL);
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %4s", &start, &end, line) == 3 &&
		    address >= start && address < end)
			memcpy(text, line, 5);
	fclose(maps);
}

static int relro_of(struct dl_phdr_info *info, size_t size, void *arg)
{
	uintptr_t *found = arg;
	int i;

	if (!strstr(info->dlpi_name, "libslots_"))
		return 0;
	for (i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO)
			*found = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
	return 1;
}

static char kinds[][8] = { "lazy", "now", "open" };

ParameterizedTestParameters(slots, lead_elsewhere)
{
	return cr_make_param_array(char[8], kinds, 3);
}

ParameterizedTest(char (*kind)[8], slots, lead_elsewhere)
{
	uintptr_t relro = 0;
	char before[5], after[5];

	load(*kind);
	cr_expect(eq(int, pid(), getpid()));
	dl_iterate_phdr(relro_of, &relro);
	if (relro)
		protection(relro, before);
	cr_assert(zero(int, write_all(PID | PARENT)));
	cr_expect(eq(int, pid(), -1));
	/* this one was never called, so a lazy slot was never bound */
	cr_expect(eq(int, parent(), -2));
	cr_expect(eq(int, by_pointer(), -2));
	/* no other object is affected */
	cr_expect(ne(int, getpid(), -1));
	cr_expect(ne(int, getppid(), -2));
	cr_expect(zero(int, write_all(PID)), "a second time");
	cr_expect(eq(int, pid(), -1));
	if (relro) {
		protection(relro, after);
		cr_expect(eq(str, after, before), "%s", *kind);
	}
}

Test(slots, missing_import_changes_nothing)
{
	load("lazy");
	cr_expect(eq(int, write_all(PID | OTHER), -ENOSYS));
	cr_expect(eq(int, pid(), getpid()), "nothing is half done");
	cr_expect(eq(int,
		     weft_slots_find((const void *)pid, slots, 3, PID | OTHER),
		     -ENOSYS));
	cr_expect(zero(int, weft_slots_find((const void *)pid, slots, 3, PID)));
	cr_expect(eq(int, pid(), getpid()));
}

Test(slots, address_outside_any_object_is_enoent)
{
	int here;

	cr_expect(eq(int, weft_slots_write(&here, slots, 3, PID), -ENOENT));
	cr_expect(eq(int, weft_slots_write(NULL, slots, 3, PID), -ENOENT));
}

/* From now on no page can be made writable. */
static void forbid_mprotect(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { 4, code };

	cr_assert(zero(int, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)));
	cr_assert(
		zero(int, prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)));
}

Test(slots, unwritable_slots_are_eacces)
{
	load("now");
	forbid_mprotect();
	cr_expect(eq(int, write_all(PID | PARENT), -EACCES));
	cr_expect(eq(int, pid(), getpid()));
	cr_expect(eq(int, parent(), getppid()));
}

/* ... where some can be written: these are as before, bound or not. */
Test(slots, one_unwritable_slot_leaves_all_unchanged)
{
	load("lazy");
	forbid_mprotect();
	cr_expect(eq(int, write_all(PID | PARENT), -EACCES));
	cr_expect(eq(int, pid(), getpid()));
	cr_expect(eq(int, parent(), getppid()));
	cr_expect(eq(int, by_pointer(), getppid()));
}

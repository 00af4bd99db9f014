/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * refuse CALL COMMAND...: runs COMMAND where a security profile answers CALL
 * with EPERM.  Of mprotect() that is what makes a few pages writable: those of
 * a library's import table, and not a thread's stack.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOAD(field) \
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
/* goes on behind @skip more instructions where it is not so */
#define EQUAL(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)
#define ABOVE(value, skip) BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, value, skip, 0)

static const struct {
	const char *name;
	unsigned int number;
} calls[] = {
	{ "bind", __NR_bind },		 { "flock", __NR_flock },
	{ "fallocate", __NR_fallocate }, { "mprotect", __NR_mprotect },
	{ "openat", __NR_openat },	 { "socket", __NR_socket },
};

static int install(struct sock_filter *code, unsigned short n)
{
	struct sock_fprog prog = { .len = n, .filter = code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

static int refuse(unsigned int call)
{
	struct sock_filter code[] = {
		LOAD(nr),
		EQUAL(call, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_filter pages[] = {
		LOAD(nr),
		EQUAL(call, 5),
		LOAD(args[2]),
		EQUAL(PROT_READ | PROT_WRITE, 3),
		LOAD(args[1]),
		ABOVE(65536, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	return call == __NR_mprotect
		       ? install(pages, sizeof(pages) / sizeof(*pages))
		       : install(code, sizeof(code) / sizeof(*code));
}

int main(int argc, char **argv)
{
	size_t i;

	for (i = 0; argc > 2 && i < sizeof(calls) / sizeof(*calls); i++) {
		if (strcmp(argv[1], calls[i].name))
			continue;
		if (refuse(calls[i].number))
			perror("seccomp");
		else
			execvp(argv[2], argv + 2);
		return 125;
	}
	return 2;
}

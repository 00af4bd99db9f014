/* SPDX-License-Identifier: BSD-3-Clause */
/* A sandbox that refuses a system call, as the profiles of containers do. */
#ifndef WEFT_TESTS_REFUSE_H
#define WEFT_TESTS_REFUSE_H

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/*
 * From now on @call fails with @err in this process and its children; @command
 * is the second argument with which it does, -1 is any.  0 or -1.
 */
static inline int refuse_call(unsigned int call, int command, unsigned int err)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)command, 1,
			 0),
		/* any, or this one; else it is allowed */
		BPF_JUMP(BPF_JMP | BPF_JA, command == -1 ? 0 : 1, 0, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(*code), code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0,
		     0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)
		       ? -1
		       : 0;
}

static inline int refuse_memfd(unsigned int err)
{
	return refuse_call(SYS_memfd_create, -1, err);
}

static inline int refuse_seals(unsigned int err)
{
	return refuse_call(SYS_fcntl, F_ADD_SEALS, err);
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An NCCL without GPUs: an object of that name which makes its calls, in its
 * order, to find out who is on its host and to pass memory among them.
 * rank.c drives it.
 */
#ifndef WEFT_TESTS_INTRODUCE_NCCL_H
#define WEFT_TESTS_INTRODUCE_NCCL_H

#include <stddef.h>
#include <stdint.h>

struct nccl_place { /* equal: NCCL's own transports */
	uint64_t host, shm_dev;
};

#define NCCL_SUFFIX 6 /* of /dev/shm/nccl-XXXXXX */

struct nccl_calls {
	/* What comes with a communicator, and what goes with the last. */
	int (*load)(void);
	void (*unload)(void);
	int (*place)(struct nccl_place *);
	/* Memory of a name: @suffix is written, or read. */
	void *(*shm_make)(char *suffix, size_t size);
	void *(*shm_open)(const char *suffix, size_t size);
	int (*shm_unlink)(const char *suffix);
	/* Descriptors, by a socket that each names after itself. */
	int (*ipc_open)(int rank, uint64_t hash);
	int (*ipc_send)(int sock, int fd, int rank, uint64_t hash);
	int (*ipc_recv)(int sock);
	void (*ipc_close)(int sock, int rank, uint64_t hash);
	/* The same calls for names that are not NCCL's: 0, or the line. */
	int (*others)(void);
};

/* The only symbol beside NCCL's own. */
extern const struct nccl_calls nccl_calls;

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL's files and sockets of introduced processes, in the shared folder.
 *
 *   NCCL's name                     here
 *   /dev/shm                        the folder itself
 *   /dev/shm/nccl-XXXXXX            nccl-XXXXXX
 *   \0tmp/nccl-socket-<r>-<hash>,   n-<hash of the name, keyed with the host
 * id> /tmp/nccl-socket-<r>-<hash>
 *
 * NCCL removes its files, but not those of killed processes, and it never
 * removes a socket whose name was abstract.  A bound socket exists as long as a
 * process has it, and connect() shows that; a file of NCCL's is flocked from
 * when it is made or opened until it is closed and unmapped.  So each process
 * removes its own sockets once NCCL has closed them, when it binds the next one
 * and at its end, and at its start what the dead have left.
 *
 * All but the first do what libc's function of that name does, also to errno,
 * and nothing else for names that are not NCCL's.
 */
#ifndef WEFT_NCCL_NET_INTRODUCE_FILES_H
#define WEFT_NCCL_NET_INTRODUCE_FILES_H

#include <sys/socket.h>
#include <sys/types.h>

#include "host/samehost.h"

/* From now on names are translated; @host must live as long as the process. */
void weft_nccl_files_begin(const struct weft_samehost *host);
/* "/dev/shm" or its replacement. */
const char *weft_nccl_stat_path(const char *path);
int weft_nccl_open(const char *path, int flags, mode_t mode);
int weft_nccl_mkstemp(char *path);
int weft_nccl_unlink(const char *path);
int weft_nccl_bind(int fd, const struct sockaddr *sa, socklen_t len);
ssize_t weft_nccl_sendmsg(int fd, const struct msghdr *msg, int flags);

#endif

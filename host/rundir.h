/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The run folder, which containers share: WEFT_RUN_DIR, else /run/weft, else
 * /dev/shm.
 *
 * In it, a folder "weft-<uid>" of this user alone (0700, checked each time), or
 * "weft-<uid>.1" to ".7" if other users have taken the names before; in that
 *   cookie      random bytes: who reads the same ones shares the folder
 *   c-          counters of living processes, flocked (stats/page.c)
 *   s-, l-      sockets of interfaces (devices/local/folder.c)
 *   p-          ranges of process ids, flocked (tools/pids.c)
 *   n-, nccl-   NCCL's own, of introduced processes
 * (nccl_net/introduce/files.c) Other users cannot write here (0700).
 */
#ifndef WEFT_HOST_RUNDIR_H
#define WEFT_HOST_RUNDIR_H

#include <stddef.h>
#include <stdint.h>

struct weft_rundir {
	int fd;		/* of that folder; -1 */
	uint64_t id;	/* of the folder and host, never 0 */
	char path[200]; /* the folder tried last */
};

/*
 * Open the folder, creating what is missing.  0, or -errno of the folder tried
 * last; logged are -EPERM: others have access or took all names, and -EBADMSG:
 * its cookie is not one of weft's.
 */
int weft_rundir_open(struct weft_rundir *dir);
void weft_rundir_close(struct weft_rundir *dir);

/* The same without warnings, and without what @id takes, which stays 0. */
int weft_rundir_make(struct weft_rundir *dir);

/*
 * The same as weft_rundir_open() without creating anything: 0, or -errno if it
 * cannot be used
 * (-EPERM: as above).  Always sets @path.
 */
int weft_rundir_check(char *path, size_t len);

/*
 * For readers: the @i-th folder, from 0, in which processes of this user may
 * meet.  0; -ERANGE: there are no more; -ENOENT: it is not created yet; else
 * why it cannot be used.  Creates and logs nothing, and leaves @id 0.
 */
int weft_rundir_find(unsigned int i, struct weft_rundir *dir);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Process ids that no other container of this host has.
 *
 * A handle of CUDA IPC carries its maker's getpid(), and the driver refuses one
 * that carries the opener's (CUDA 12 and 13, driver 580: cuIpcOpenMemHandle()
 * says CUDA_ERROR_INVALID_CONTEXT).  Containers with PID namespaces of their
 * own start counting at 1, so programs of one image meet that by chance.
 */
#ifndef WEFT_TOOLS_PIDS_H
#define WEFT_TOOLS_PIDS_H

/*
 * In a container with a GPU and a PID namespace of its own: takes a range of
 * ids that no other `weft run` in the same run folder has, for as long as this
 * process lives, and has the kernel start the next process in it.  May take
 * some hundred ms.  0; -ENOENT: none is needed; else why there is none, logged.
 */
int pids_take_range(void);

/*
 * Starts @argv in a process of its own, passes signals on, reaps what is left
 * to us if we are the namespace's first process, and returns the exit code that
 * a shell would: the program's, 128 + N if signal N ended it, 127 if it was not
 * found, 126 if it could not be started.
 */
int pids_start(char **argv);

#endif

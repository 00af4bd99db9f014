/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A language's binding: its last call is a jump, so that the function it calls
 * sees the program as the caller, which knows nothing of UCX.
 */
#define VISIBLE __attribute__((visibility("default")))

unsigned int ucp_worker_progress(void *worker);

VISIBLE unsigned int wrap(void *worker);
VISIBLE unsigned int wrap(void *worker)
{
	return ucp_worker_progress(worker);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A plugin with one planted fault: the real one of $WEFT_TEST_PLUGIN behind a
 * v9 table, and $WEFT_TEST_FAULT says what goes wrong.  Each check of nccl_perf
 * must notice the fault that it is there for.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "nccl_net/abi/net.h"

struct request {
	void *real;
	char *data; /* of a receive */
	size_t size;
	time_t born;
};

static void *lib;
static struct nccl_net_v9 *real;
static atomic_int accepts, connects, inits, regs, active;
static atomic_bool torn; /* one closed beside requests */

static bool fault(const char *name)
{
	const char *f = getenv("WEFT_TEST_FAULT");

	return f && !strcmp(f, name);
}

static enum nccl_result init(nccl_logger log)
{
	if (fault("one-init") && inits++)
		return NCCL_INTERNAL_ERROR;
	if (fault("leak") && open("/dev/null", O_RDONLY) < 0)
		return NCCL_SYSTEM_ERROR;
	return real->init(log);
}

static enum nccl_result get_properties(int dev, struct nccl_props_v9 *p)
{
	enum nccl_result r = real->get_properties(dev, p);

	if (fault("no-host"))
		p->ptr_support = NCCL_PTR_CUDA;
	return r;
}

static enum nccl_result connect(int dev, void *handle, void **comm,
				void **offload)
{
	if (fault("few-comms") && connects > 20)
		return NCCL_SYSTEM_ERROR;
	enum nccl_result r = real->connect(dev, handle, comm, offload);

	connects += *comm != NULL;
	return r;
}

static enum nccl_result accept(void *listener, void **comm, void **offload)
{
	*comm = NULL;
	if (fault("one-accept") && accepts)
		return NCCL_SUCCESS;
	enum nccl_result r = real->accept(listener, comm, offload);

	accepts += *comm != NULL;
	return r;
}

static enum nccl_result reg(void *comm, void *data, size_t size, int type,
			    void **mr)
{
	if (fault("reg-fails") && ++regs % 50 == 0)
		return NCCL_SYSTEM_ERROR;
	return real->reg(comm, data, size, type, mr);
}

static void *wrap(void *req, void *data, size_t size)
{
	struct request *r;

	if (!req)
		return NULL;
	r = calloc(1, sizeof(*r));
	*r = (struct request){ req, data, size, time(NULL) };
	active++;
	return r;
}

static enum nccl_result isend(void *comm, void *data, size_t size, int tag,
			      void *mr, void **request)
{
	enum nccl_result r;

	if (fault("truncate") && size > 1 << 20)
		size = 1 << 20;
	r = real->isend(comm, data, size, tag, mr, request);
	*request = wrap(*request, NULL, size);
	return r;
}

static enum nccl_result irecv(void *comm, int n, void **data, size_t *sizes,
			      int *tags, void **mrs, void **request)
{
	enum nccl_result r =
		real->irecv(comm, n, data, sizes, tags, mrs, request);

	*request = wrap(*request, data[0], sizes[0]);
	return r;
}

static enum nccl_result test(void *request, int *done, int *sizes)
{
	struct request *q = request;
	int size = 0;
	enum nccl_result r = real->test(q->real, done, &size);

	if (r && fault("deaf")) {
		*done = 0;
		return NCCL_SUCCESS;
	}
	if (fault("impatient") && !*done && time(NULL) > q->born + 3)
		return NCCL_REMOTE_ERROR;
	if (!*done || r)
		return r;
	if (q->data && (fault("flip") || torn) && size)
		q->data[size - 1] ^= 1;
	if (q->data && fault("beyond"))
		q->data[q->size] = 0;
	if (q->data && fault("size"))
		size = (int)q->size;
	if (sizes)
		*sizes = size;
	active--;
	free(q);
	return NCCL_SUCCESS;
}

static enum nccl_result close_send(void *comm)
{
	while (fault("close-hangs") && active)
		usleep(1000);
	return real->close_send(comm);
}

static void *stay(void *arg)
{
	while (pause() < 0)
		;
	return NULL;
}

/* Its code stays, too: the thread may not have begun when this is unloaded. */
static bool leave_thread(void)
{
	pthread_t t;
	Dl_info me;

	return dladdr((void *)(uintptr_t)stay, &me) &&
	       dlopen(me.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE) &&
	       !pthread_create(&t, NULL, stay, NULL);
}

static enum nccl_result close_recv(void *comm)
{
	if (fault("torn") && active)
		torn = true;
	if (fault("thread") && !leave_thread())
		return NCCL_SYSTEM_ERROR;
	return real->close_recv(comm);
}

extern struct nccl_net_v9 ncclNetPlugin_v9;
__attribute__((visibility("default"))) struct nccl_net_v9 ncclNetPlugin_v9;

/* The real table, but for what may go wrong. */
__attribute__((constructor)) static void load(void)
{
	struct nccl_net_v9 *faulty = &ncclNetPlugin_v9;

	lib = dlopen(getenv("WEFT_TEST_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
	real = lib ? dlsym(lib, "ncclNetPlugin_v9") : NULL;
	if (!real) {
		fprintf(stderr, "WEFT_TEST_PLUGIN: %s\n", dlerror());
		abort();
	}
	*faulty = *real;
	faulty->name = "faulty";
	faulty->init = init;
	faulty->get_properties = get_properties;
	faulty->connect = connect;
	faulty->accept = accept;
	faulty->reg = reg;
	faulty->isend = isend;
	faulty->irecv = irecv;
	faulty->test = test;
	faulty->close_send = close_send;
	faulty->close_recv = close_recv;
}

__attribute__((destructor)) static void unload(void)
{
	dlclose(lib);
}

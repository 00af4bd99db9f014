/* SPDX-License-Identifier: BSD-3-Clause */
/* NCCL's entry points, and the thread of each communicator. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tests/e2e/double/double.h"

#define EXPORT	__attribute__((visibility("default")))
#define LATE_MS 20 /* how long a collective is held back */

struct op {
	struct op *next;
	const double *send;
	double *recv;
	size_t count;
	reduce_fn reduce;
	int root; /* -1: everybody gets the result */
	cudaStream_t stream;
};

struct ncclComm {
	struct ncclComm *next;
	struct ring *ring;
	int rank, nranks;
	pthread_t thread;
	pthread_cond_t wake;
	struct op *ops;	    /* the first may be under way */
	bool leave;	    /* once nothing is left to do */
	volatile bool stop; /* at once */
	ncclResult_t error;
};

/* Communicators, their queues and flags; not what the ring does. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t finished = PTHREAD_COND_INITIALIZER;
static struct ncclComm *comms;
static _Thread_local int device;

/* ---- what stands for CUDA, called by the double of CuPy ----------------- */

EXPORT void doubleSetDevice(int number);
EXPORT void doubleSetDevice(int number)
{
	device = number;
}

static bool busy(cudaStream_t stream)
{
	struct ncclComm *c;
	struct op *op;

	for (c = comms; c; c = c->next)
		for (op = c->ops; op; op = op->next)
			if (op->stream == stream)
				return true;
	return false;
}

EXPORT int doubleStreamDone(cudaStream_t stream);
EXPORT int doubleStreamDone(cudaStream_t stream)
{
	bool done;

	pthread_mutex_lock(&lock);
	done = !busy(stream);
	pthread_mutex_unlock(&lock);
	return done;
}

EXPORT void doubleStreamSynchronize(cudaStream_t stream);
EXPORT void doubleStreamSynchronize(cudaStream_t stream)
{
	pthread_mutex_lock(&lock);
	while (busy(stream))
		pthread_cond_wait(&finished, &lock);
	pthread_mutex_unlock(&lock);
}

/* --- collectives ---------------------------------------------------------- */

static void sum(double *acc, const double *more, size_t n)
{
	while (n--)
		acc[n] += more[n];
}

static void largest(double *acc, const double *more, size_t n)
{
	while (n--)
		acc[n] = fmax(acc[n], more[n]);
}

static void smallest(double *acc, const double *more, size_t n)
{
	while (n--)
		acc[n] = fmin(acc[n], more[n]);
}

/* On a copy: what is sent must stay, what is received must look unready. */
static ncclResult_t perform(struct ncclComm *c, const struct op *op)
{
	static const struct timespec late = { .tv_nsec = LATE_MS * 1000000l };
	size_t bytes = op->count * sizeof(double);
	double *acc = malloc(bytes + !bytes);
	ncclResult_t result = ncclSuccess;

	if (!acc)
		return ncclSystemError;
	nanosleep(&late, NULL);
	memcpy(acc, op->send, bytes);
	if (c->nranks > 1)
		result = op->root < 0 ? ring_all_reduce(c->ring, acc, op->count,
							op->reduce)
				      : ring_reduce(c->ring, acc, op->count,
						    op->reduce, op->root);
	if (result == ncclSuccess && (op->root < 0 || op->root == c->rank))
		memcpy(op->recv, acc, bytes);
	free(acc);
	return result;
}

/*
 * After an error nothing completes any more, until the communicator is aborted:
 * the kernels of the real one spin.
 */
static void *work(void *arg)
{
	struct ncclComm *c = arg;
	ncclResult_t result;
	struct op *op;

	pthread_mutex_lock(&lock);
	while (!c->stop && (c->ops || !c->leave)) {
		if (!c->ops || c->error != ncclSuccess) {
			pthread_cond_wait(&c->wake, &lock);
			continue;
		}
		pthread_mutex_unlock(&lock);
		result = perform(c, c->ops);
		pthread_mutex_lock(&lock);
		if (result != ncclSuccess) {
			c->error = result;
			continue;
		}
		op = c->ops;
		c->ops = op->next;
		free(op);
		pthread_cond_broadcast(&finished);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static ncclResult_t enqueue(ncclComm_t c, struct op new, ncclDataType_t type,
			    ncclRedOp_t redop)
{
	struct op *op, **end;

	if (!c || !new.send || !new.recv || new.root >= c->nranks) {
		double_warn("a communicator, a buffer or the root is missing");
		return ncclInvalidArgument;
	}
	if (type != ncclFloat64) {
		double_warn("this double reduces ncclFloat64 alone");
		return ncclInvalidArgument;
	}
	switch (redop) {
	case ncclSum:
		new.reduce = sum;
		break;
	case ncclMax:
		new.reduce = largest;
		break;
	case ncclMin:
		new.reduce = smallest;
		break;
	default:
		double_warn("this double has ncclSum, ncclMax and ncclMin");
		return ncclInvalidArgument;
	}
	op = malloc(sizeof(*op));
	if (!op)
		return ncclSystemError;
	*op = new;
	if (op->recv != op->send && (op->root < 0 || op->root == c->rank))
		memset(op->recv, 0xff, op->count * sizeof(double)); /* NaN */
	pthread_mutex_lock(&lock);
	for (end = &c->ops; *end; end = &(*end)->next)
		;
	*end = op;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&lock);
	return ncclSuccess;
}

EXPORT ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count,
				  ncclDataType_t type, ncclRedOp_t op,
				  ncclComm_t comm, cudaStream_t stream)
{
	return enqueue(comm,
		       (struct op){ .send = send,
				    .recv = recv,
				    .count = count,
				    .root = -1,
				    .stream = stream },
		       type, op);
}

EXPORT ncclResult_t ncclReduce(const void *send, void *recv, size_t count,
			       ncclDataType_t type, ncclRedOp_t op, int root,
			       ncclComm_t comm, cudaStream_t stream)
{
	if (comm && comm->rank != root && !recv)
		recv = (void *)send; /* is not written there */
	if (root < 0)
		return ncclInvalidArgument;
	return enqueue(comm,
		       (struct op){ .send = send,
				    .recv = recv,
				    .count = count,
				    .root = root,
				    .stream = stream },
		       type, op);
}

/* --- communicators -------------------------------------------------------- */

EXPORT ncclResult_t ncclGetVersion(int *version)
{
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

EXPORT const char *ncclGetErrorString(ncclResult_t result)
{
	static const char *const text[] = {
		"no error",
		"unhandled cuda error",
		"unhandled system error",
		"internal error",
		"invalid argument",
		"invalid usage",
		"remote process exited or there was a network error",
	};

	return (size_t)result < sizeof(text) / sizeof(*text)
		       ? text[result]
		       : "unknown result code";
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	return id ? meet_new_id(id) : ncclInvalidArgument;
}

EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks,
				     ncclUniqueId id, int rank)
{
	ncclResult_t result;
	struct ncclComm *c;

	if (!comm || nranks < 1 || rank < 0 || rank >= nranks) {
		double_warn("there is no rank %d of %d", rank, nranks);
		return ncclInvalidArgument;
	}
	c = calloc(1, sizeof(*c));
	if (!c)
		return ncclSystemError;
	c->rank = rank;
	c->nranks = nranks;
	pthread_cond_init(&c->wake, NULL);
	result = ring_open(&c->ring, &id, rank, nranks, device, &c->stop);
	if (result == ncclSuccess &&
	    pthread_create(&c->thread, NULL, work, c)) {
		ring_close(c->ring);
		result = ncclSystemError;
	}
	if (result != ncclSuccess) {
		pthread_cond_destroy(&c->wake);
		free(c);
		return result;
	}
	pthread_mutex_lock(&lock);
	c->next = comms;
	comms = c;
	pthread_mutex_unlock(&lock);
	*comm = c;
	return ncclSuccess;
}

static ncclResult_t end(ncclComm_t c, bool at_once)
{
	struct ncclComm **at;
	struct op *op;

	if (!c)
		return ncclInvalidArgument;
	pthread_mutex_lock(&lock);
	c->leave = true;
	c->stop = at_once || c->error != ncclSuccess;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&lock);
	pthread_join(c->thread, NULL);

	pthread_mutex_lock(&lock);
	for (at = &comms; *at != c; at = &(*at)->next)
		;
	*at = c->next;
	pthread_cond_broadcast(&finished);
	pthread_mutex_unlock(&lock);
	while ((op = c->ops)) {
		c->ops = op->next;
		free(op);
	}
	ring_close(c->ring);
	pthread_cond_destroy(&c->wake);
	free(c);
	return ncclSuccess;
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	return end(comm, false);
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	return end(comm, true);
}

EXPORT ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
	if (!comm || !count)
		return ncclInvalidArgument;
	*count = comm->nranks;
	return ncclSuccess;
}

EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
	if (!comm || !rank)
		return ncclInvalidArgument;
	*rank = comm->rank;
	return ncclSuccess;
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
	if (!comm || !error)
		return ncclInvalidArgument;
	pthread_mutex_lock(&lock);
	*error = comm->error;
	pthread_mutex_unlock(&lock);
	return ncclSuccess;
}

/* --- what raft-dask's bindings are linked with besides ------------------- */

#define ABSENT(name)                                      \
	EXPORT ncclResult_t name(void);                   \
	EXPORT ncclResult_t name(void)                    \
	{                                                 \
		double_warn("this double has no " #name); \
		return ncclInvalidUsage;                  \
	}
ABSENT(ncclAllGather)
ABSENT(ncclBroadcast)
ABSENT(ncclCommCuDevice)
ABSENT(ncclCommSplit)
ABSENT(ncclGroupEnd)
ABSENT(ncclGroupStart)
ABSENT(ncclRecv)
ABSENT(ncclReduceScatter)
ABSENT(ncclSend)

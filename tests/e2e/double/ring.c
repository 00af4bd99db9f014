/* SPDX-License-Identifier: BSD-3-Clause */
/* The network plugin, and reductions around a ring of its connections. */
#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include "tests/e2e/double/double.h"

#define SLICE	     (256 * 1024) /* bytes of one message at most */
#define DEPTH	     4		  /* messages in flight each way */
#define POISON	     0xa5
#define MEET_SECONDS 60

struct ring {
	void *ctx, *send, *recv;
	void *send_mr, *recv_mr;
	char *send_buf, *recv_buf; /* DEPTH slices each */
	int rank, nranks;
	const volatile bool *stop;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nccl_net_v11 *net;
static void *library;
static int users;

void double_warn(const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "test double of NCCL: WARN %s\n", text);
}

static void logger(enum nccl_log_level level, unsigned long subsys,
		   const char *file, int line, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	if (level != NCCL_LOG_WARN)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	double_warn("%s:%d %s", file, line, text);
}

static enum nccl_result profiler(void **event, int type, void *parent,
				 int64_t plugin, void *data)
{
	return NCCL_SUCCESS;
}

static bool ok(enum nccl_result r, const char *call)
{
	if (r != NCCL_SUCCESS)
		double_warn("%s of the network plugin: result %d", call, r);
	return r == NCCL_SUCCESS;
}

/*
 * NCCL_NET_PLUGIN as it is, then libnccl-net-NAME.so; unset: libnccl-net.so.
 * NCCL_NET names the network that it must be (plugin_open.cc and net.cc of
 * NCCL 2.28).  There are no sockets here to fall back to.
 */
static bool load(void)
{
	const char *name = getenv("NCCL_NET_PLUGIN"),
		   *want = getenv("NCCL_NET");
	char file[512];

	snprintf(file, sizeof(file), "libnccl-net%s%s.so", name ? "-" : "",
		 name ? name : "");
	if (name)
		library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		double_warn("no network plugin '%s': %s", name ? name : file,
			    dlerror());
		return false;
	}
	net = dlsym(library, "ncclNetPlugin_v11");
	if (net && (!want || !strcasecmp(want, net->name)))
		return true;
	double_warn("the network plugin '%s' has no interface v11, or is not "
		    "NCCL_NET",
		    name ? name : file);
	return false;
}

static void unload(void)
{
	if (library)
		dlclose(library);
	library = NULL;
	net = NULL;
}

/* The context of one communicator. */
static bool context(struct ring *r, uint64_t id)
{
	struct nccl_config_v10 config = { .traffic_class = NCCL_ID_UNDEF };
	bool good;

	pthread_mutex_lock(&lock);
	good = (users || load()) &&
	       ok(net->init(&r->ctx, id, &config, logger, profiler), "init");
	if (good)
		users++;
	else if (!users)
		unload();
	pthread_mutex_unlock(&lock);
	return good;
}

/* NCCL asks for the devices once a context is there. */
static bool takes_host_memory(void)
{
	struct nccl_props_v11 props;
	int devices = 0;

	return ok(net->devices(&devices), "devices") && devices > 0 &&
	       ok(net->get_properties(0, &props), "getProperties") &&
	       (props.ptr_support & NCCL_PTR_HOST);
}

static char *buffer(void)
{
	void *buf;

	if (posix_memalign(&buf, 4096, (size_t)DEPTH * SLICE))
		return NULL;
	return memset(buf, POISON, (size_t)DEPTH * SLICE);
}

/* Calls connect and accept in turn, as neither may block. */
static bool establish(struct ring *r, void *listener, char *handle)
{
	time_t end = time(NULL) + MEET_SECONDS;
	void *offload = NULL;

	while (!r->send || !r->recv) {
		if (!r->send &&
		    !ok(net->connect(r->ctx, 0, handle, &r->send, &offload),
			"connect"))
			return false;
		if (!r->recv &&
		    !ok(net->accept(listener, &r->recv, &offload), "accept"))
			return false;
		if (*r->stop || time(NULL) > end) {
			double_warn("rank %d has no neighbour", r->rank);
			return false;
		}
		sched_yield();
	}
	r->send_buf = buffer();
	r->recv_buf = buffer();
	return r->send_buf && r->recv_buf &&
	       ok(net->reg(r->send, r->send_buf, (size_t)DEPTH * SLICE,
			   NCCL_PTR_HOST, &r->send_mr),
		  "regMr") &&
	       ok(net->reg(r->recv, r->recv_buf, (size_t)DEPTH * SLICE,
			   NCCL_PTR_HOST, &r->recv_mr),
		  "regMr");
}

ncclResult_t ring_open(struct ring **ring, const ncclUniqueId *id, int rank,
		       int nranks, int device, const volatile bool *stop)
{
	char mine[NCCL_HANDLE_SIZE] = { 0 }, next[NCCL_HANDLE_SIZE];
	struct ring *r = calloc(1, sizeof(*r));
	ncclResult_t result = ncclSystemError;
	void *listener = NULL;
	uint64_t comm_id;

	if (!r)
		return ncclSystemError;
	r->rank = rank;
	r->nranks = nranks;
	r->stop = stop;
	memcpy(&comm_id, id->internal + sizeof(comm_id), sizeof(comm_id));
	if (!context(r, comm_id)) {
		free(r);
		return ncclSystemError;
	}
	if (!takes_host_memory() ||
	    !ok(net->listen(r->ctx, 0, mine, &listener), "listen"))
		goto out;
	result = meet(id, rank, nranks, device, mine, next);
	if (result == ncclSuccess && nranks > 1 &&
	    !establish(r, listener, next))
		result = ncclSystemError;
	ok(net->close_listen(listener), "closeListen");
out:
	if (result == ncclSuccess)
		*ring = r;
	else
		ring_close(r);
	return result;
}

void ring_close(struct ring *r)
{
	if (r->send_mr)
		ok(net->dereg(r->send, r->send_mr), "deregMr");
	if (r->recv_mr)
		ok(net->dereg(r->recv, r->recv_mr), "deregMr");
	if (r->send)
		ok(net->close_send(r->send), "closeSend");
	if (r->recv)
		ok(net->close_recv(r->recv), "closeRecv");
	pthread_mutex_lock(&lock);
	ok(net->finalize(r->ctx), "finalize");
	if (!--users)
		unload();
	pthread_mutex_unlock(&lock);
	free(r->send_buf);
	free(r->recv_buf);
	free(r);
}

/* --- transfers ------------------------------------------------------------ */

/* One direction of an exchange: slices, posted and completed in order. */
struct flow {
	size_t bytes, slices, posted, done;
	void *request[DEPTH];
};

static struct flow flow(size_t count)
{
	size_t bytes = count * sizeof(double);

	return (struct flow){ .bytes = bytes,
			      .slices = (bytes + SLICE - 1) / SLICE };
}

static size_t slice_len(const struct flow *f, size_t i)
{
	return i + 1 < f->slices ? SLICE : f->bytes - i * SLICE;
}

static bool may_post(const struct flow *f)
{
	return f->posted < f->slices && f->posted - f->done < DEPTH;
}

/* 1: a slice more is done; @size is what the plugin says of it */
static int look(struct flow *f, int *size)
{
	int done = 0;

	if (f->done == f->posted)
		return 0;
	if (!ok(net->test(f->request[f->done % DEPTH], &done, size), "test"))
		return -1;
	f->done += done != 0;
	return done != 0;
}

static bool post_send(struct ring *r, struct flow *f, const double *from)
{
	size_t i = f->posted, len = slice_len(f, i);
	char *at = r->send_buf + i % DEPTH * SLICE;

	memcpy(at, (const char *)from + i * SLICE, len);
	f->request[i % DEPTH] = NULL;
	if (!ok(net->isend(r->send, at, len, 0, r->send_mr, NULL,
			   &f->request[i % DEPTH]),
		"isend"))
		return false;
	f->posted += f->request[i % DEPTH] != NULL; /* NULL: the wire is full */
	return true;
}

static bool post_recv(struct ring *r, struct flow *f)
{
	void *at = r->recv_buf + f->posted % DEPTH * SLICE, *phandle = NULL;
	void **request = &f->request[f->posted % DEPTH];
	size_t size = SLICE; /* what is sent may be less */
	int tag = 0;

	*request = NULL;
	if (!ok(net->irecv(r->recv, 1, &at, &size, &tag, &r->recv_mr, &phandle,
			   request),
		"irecv"))
		return false;
	f->posted += *request != NULL;
	return true;
}

/* Puts a slice that has come into @to, or adds it with @reduce. */
static bool take(struct ring *r, const struct flow *f, size_t i, int size,
		 double *to, reduce_fn reduce)
{
	char *from = r->recv_buf + i % DEPTH * SLICE;
	char *into = (char *)to + i * SLICE;
	size_t len = slice_len(f, i);

	if ((size_t)size != len) {
		double_warn("rank %d got a size of %d bytes instead of %zu",
			    r->rank, size, len);
		return false;
	}
	if (reduce)
		reduce((double *)into, (double *)from, len / sizeof(double));
	else
		memcpy(into, from, len);
	memset(from, POISON, SLICE);
	return true;
}

/* Sends @out to the next rank while @in comes from the one before. */
static ncclResult_t exchange(struct ring *r, const double *out, size_t out_n,
			     double *in, size_t in_n, reduce_fn reduce)
{
	struct flow tx = flow(out_n), rx = flow(in_n);
	int size = 0, got;

	while (tx.done < tx.slices || rx.done < rx.slices) {
		if (*r->stop)
			return ncclSystemError;
		if (may_post(&rx) && !post_recv(r, &rx))
			return ncclRemoteError;
		if (may_post(&tx) && !post_send(r, &tx, out))
			return ncclRemoteError;
		got = look(&rx, &size);
		if (got < 0)
			return ncclRemoteError;
		if (got && !take(r, &rx, rx.done - 1, size, in, reduce))
			return ncclInternalError;
		if (look(&tx, &size) < 0)
			return ncclRemoteError;
		if (!got)
			sched_yield();
	}
	return ncclSuccess;
}

/* Part @i, counted around the ring, of @count values. */
static size_t part(const struct ring *r, size_t count, int i, size_t *n)
{
	size_t k = (size_t)((i + 2 * r->nranks) % r->nranks);
	size_t from = count * k / (size_t)r->nranks;

	*n = count * (k + 1) / (size_t)r->nranks - from;
	return from;
}

ncclResult_t ring_all_reduce(struct ring *r, double *acc, size_t count,
			     reduce_fn reduce)
{
	ncclResult_t result = ncclSuccess;
	size_t out, out_n, in, in_n;
	int step, turn;

	/* Once around to add up the parts, again to hand them out. */
	for (turn = 0; turn < 2; turn++)
		for (step = 0; step < r->nranks - 1; step++) {
			out = part(r, count, r->rank + turn - step, &out_n);
			in = part(r, count, r->rank + turn - step - 1, &in_n);
			result = exchange(r, acc + out, out_n, acc + in, in_n,
					  turn ? NULL : reduce);
			if (result != ncclSuccess)
				return result;
		}
	return result;
}

/* Along the ring, from the rank behind the root to the root. */
ncclResult_t ring_reduce(struct ring *r, double *acc, size_t count,
			 reduce_fn reduce, int root)
{
	int place = (r->rank - root - 1 + 2 * r->nranks) % r->nranks;
	ncclResult_t result = ncclSuccess;

	if (place > 0)
		result = exchange(r, NULL, 0, acc, count, reduce);
	if (result == ncclSuccess && place < r->nranks - 1)
		result = exchange(r, acc, count, NULL, 0, NULL);
	return result;
}

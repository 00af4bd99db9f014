/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A network plugin that has nothing of weft's: one socket per connection over
 * loopback, as plain as NCCL's interface allows, in versions 8 and 11.
 * nccl_perf has to find it good, and to measure it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "nccl_net/abi/net.h"

#define SLOTS 32

struct request {
	struct comm *comm;
	char *data;
	uint64_t size, moved; /* the size: posted, then true */
	size_t head;	      /* bytes of the size that crossed */
	uint64_t told;	      /* as the sender says it */
	enum { IDLE, QUEUED, DONE } state;
};

struct comm {
	int fd;
	int send;
	enum nccl_result broken;
	unsigned int first, last; /* requests not done */
	struct request req[SLOTS];
};

static enum nccl_result devices(int *n)
{
	*n = 1;
	return NCCL_SUCCESS;
}

static enum nccl_result listen_at(void *handle, void **listener)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int *fd = malloc(sizeof(*fd));

	*fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (bind(*fd, (void *)&a, len) || listen(*fd, 1024) ||
	    getsockname(*fd, (void *)&a, &len))
		return NCCL_SYSTEM_ERROR;
	memcpy(handle, &a, sizeof(a));
	*listener = fd;
	return NCCL_SUCCESS;
}

static struct comm *comm_new(int fd, int send)
{
	struct comm *c = calloc(1, sizeof(*c));
	int i;

	c->fd = fd;
	c->send = send;
	for (i = 0; i < SLOTS; i++)
		c->req[i].comm = c;
	return c;
}

/* Loopback answers at once. */
static enum nccl_result connect_to(void *handle, void **comm)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*comm = NULL;
	if (fd < 0 || connect(fd, handle, sizeof(struct sockaddr_in)))
		return NCCL_SYSTEM_ERROR;
	*comm = comm_new(fd, 1);
	return NCCL_SUCCESS;
}

static enum nccl_result accept_from(void *listener, void **comm, void **offload)
{
	int fd = accept4(*(int *)listener, NULL, NULL, SOCK_CLOEXEC);

	*comm = fd < 0 ? NULL : comm_new(fd, 0);
	return fd < 0 && errno != EAGAIN ? NCCL_SYSTEM_ERROR : NCCL_SUCCESS;
}

static enum nccl_result reg(void *comm, void *data, size_t size, int type,
			    void **mr)
{
	*mr = data;
	return type == NCCL_PTR_HOST ? NCCL_SUCCESS : NCCL_INVALID_ARGUMENT;
}

static enum nccl_result dereg(void *comm, void *mr)
{
	return NCCL_SUCCESS;
}

/* @n bytes of what begins at @buf, from *@at on.  0: all of them are over. */
static int move(struct comm *c, void *buf, uint64_t n, uint64_t *at)
{
	ssize_t ret;

	while (*at < n) {
		ret = c->send ? send(c->fd, (char *)buf + *at, n - *at,
				     MSG_DONTWAIT | MSG_NOSIGNAL)
			      : recv(c->fd, (char *)buf + *at, n - *at,
				     MSG_DONTWAIT);
		if (ret < 0 && errno == EAGAIN)
			return -EAGAIN;
		if (ret <= 0)
			return -EIO;
		*at += ret;
	}
	return 0;
}

static int step(struct comm *c, struct request *r)
{
	uint64_t head = r->head;
	int ret;

	if (c->send)
		r->told = r->size;
	ret = move(c, &r->told, sizeof(r->told), &head);
	r->head = head;
	if (ret)
		return ret;
	if (r->told > r->size)
		return -EMSGSIZE;
	r->size = r->told;
	return move(c, r->data, r->size, &r->moved);
}

static void progress(struct comm *c)
{
	int ret = 0;

	while (!c->broken && !ret && c->first != c->last) {
		ret = step(c, &c->req[c->first % SLOTS]);
		if (!ret)
			c->req[c->first++ % SLOTS].state = DONE;
		else if (ret != -EAGAIN)
			c->broken = ret == -EMSGSIZE ? NCCL_INVALID_USAGE
						     : NCCL_REMOTE_ERROR;
	}
	if (c->broken)
		shutdown(c->fd, SHUT_RDWR);
}

static enum nccl_result post(struct comm *c, void *data, size_t size,
			     void **request)
{
	struct request *r = &c->req[c->last % SLOTS];

	*request = NULL;
	if (c->broken)
		return c->broken;
	if (r->state != IDLE)
		return NCCL_SUCCESS;
	*r = (struct request){
		.comm = c, .data = data, .size = size, .state = QUEUED
	};
	c->last++;
	*request = r;
	progress(c);
	return NCCL_SUCCESS;
}

static enum nccl_result test(void *request, int *done, int *sizes)
{
	struct request *r = request;

	progress(r->comm);
	*done = r->state == DONE;
	if (!*done)
		return r->comm->broken;
	if (sizes)
		*sizes = (int)r->size;
	r->state = IDLE;
	return NCCL_SUCCESS;
}

static enum nccl_result close_comm(void *comm)
{
	close(((struct comm *)comm)->fd);
	free(comm);
	return NCCL_SUCCESS;
}

static enum nccl_result close_listen(void *listener)
{
	close(*(int *)listener);
	free(listener);
	return NCCL_SUCCESS;
}

/* ---- version 8 ---------------------------------------------------------- */

static enum nccl_result init_v8(nccl_logger log)
{
	return log ? NCCL_SUCCESS : NCCL_INVALID_ARGUMENT;
}

static enum nccl_result properties_v8(int dev, struct nccl_props_v8 *p)
{
	static char name[] = "plain";

	*p = (struct nccl_props_v8){ .name = name,
				     .ptr_support = NCCL_PTR_HOST,
				     .speed = 10000 + dev,
				     .max_comms = 1024,
				     .max_recvs = 1 };
	return NCCL_SUCCESS;
}

static enum nccl_result listen_v8(int dev, void *handle, void **listener)
{
	return dev ? NCCL_INVALID_ARGUMENT : listen_at(handle, listener);
}

static enum nccl_result connect_v8(int dev, void *handle, void **comm,
				   void **offload)
{
	return dev ? NCCL_INVALID_ARGUMENT : connect_to(handle, comm);
}

static enum nccl_result isend_v8(void *comm, void *data, int size, int tag,
				 void *mr, void **request)
{
	return post(comm, data, (size_t)size, request);
}

static enum nccl_result irecv_v8(void *comm, int n, void **data, int *sizes,
				 int *tags, void **mrs, void **request)
{
	return n != 1 ? NCCL_INVALID_ARGUMENT
		      : post(comm, data[0], (size_t)sizes[0], request);
}

#define SAME_IN_BOTH                                                        \
	.name = "plain", .devices = devices, .accept = accept_from,         \
	.reg = reg, .dereg = dereg, .test = test, .close_send = close_comm, \
	.close_recv = close_comm, .close_listen = close_listen

extern struct nccl_net_v8 ncclNetPlugin_v8;
__attribute__((visibility("default"))) struct nccl_net_v8 ncclNetPlugin_v8 = {
	SAME_IN_BOTH,
	.init = init_v8,
	.get_properties = properties_v8,
	.listen = listen_v8,
	.connect = connect_v8,
	.isend = isend_v8,
	.irecv = irecv_v8,
};

/* ---- version 11: contexts ----------------------------------------------- */

static enum nccl_result init_v11(void **ctx, uint64_t comm_id,
				 struct nccl_config_v10 *config,
				 nccl_logger log, nccl_profiler profiler)
{
	*ctx = malloc(1);
	return *ctx && config && log && profiler ? NCCL_SUCCESS
						 : NCCL_INVALID_ARGUMENT;
}

static enum nccl_result properties_v11(int dev, struct nccl_props_v11 *p)
{
	static char name[] = "plain";

	*p = (struct nccl_props_v11){ .name = name,
				      .ptr_support = NCCL_PTR_HOST,
				      .speed = 10000 + dev,
				      .max_comms = 1024,
				      .max_recvs = 1,
				      .vprops = { .ndevs = 1 },
				      .max_p2p_bytes = NCCL_MAX_SIZE,
				      .max_coll_bytes = NCCL_MAX_SIZE };
	return NCCL_SUCCESS;
}

static enum nccl_result listen_v11(void *ctx, int dev, void *handle,
				   void **listener)
{
	return ctx ? listen_v8(dev, handle, listener) : NCCL_INVALID_ARGUMENT;
}

static enum nccl_result connect_v11(void *ctx, int dev, void *handle,
				    void **comm, void **offload)
{
	return ctx ? connect_v8(dev, handle, comm, offload)
		   : NCCL_INVALID_ARGUMENT;
}

static enum nccl_result isend_v11(void *comm, void *data, size_t size, int tag,
				  void *mr, void *phandle, void **request)
{
	return post(comm, data, size, request);
}

static enum nccl_result irecv_v11(void *comm, int n, void **data, size_t *sizes,
				  int *tags, void **mrs, void **phandles,
				  void **request)
{
	return n != 1 ? NCCL_INVALID_ARGUMENT
		      : post(comm, data[0], sizes[0], request);
}

static enum nccl_result finalize(void *ctx)
{
	free(ctx);
	return NCCL_SUCCESS;
}

extern struct nccl_net_v11 ncclNetPlugin_v11;
__attribute__((visibility("default"))) struct nccl_net_v11 ncclNetPlugin_v11 = {
	SAME_IN_BOTH,
	.init = init_v11,
	.get_properties = properties_v11,
	.listen = listen_v11,
	.connect = connect_v11,
	.isend = isend_v11,
	.irecv = irecv_v11,
	.finalize = finalize,
};

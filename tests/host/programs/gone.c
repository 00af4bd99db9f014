/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A worker is destroyed, and its peer's endpoint was never closed:
 *	gone KIND LENGTH [cold] [back]
 * KIND is idle, am, tag, put or get.  Sends of LENGTH are under way, and one
 * more comes after; cold: nothing was sent before those.  back: the worker that
 * goes has an endpoint, too, and has sent over it.  All of this has to fail at
 * once; UCX's own keepalive must be off.
 *
 * KIND freed: no process ends, but the target memory of puts is freed.  UCX
 * keeps its registration until it learns of that.  (If puts or gets are
 * messages, UCX accesses the memory itself, unchecked: before 1.16 and 1.20.)
 *
 *	gone lost LENGTH tag|am source|target LOSS [unhandled]
 * No process ends, but the second half of what is sent, or of where it goes,
 * cannot be accessed: LOSS is unmapped, read-only, truncated or, of a target,
 * a folder whose file system is too small.  Neither side may report a success.
 * unhandled: of endpoints that handle no errors.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "tests/host/programs/host.h"
#include "tests/host/programs/sides.h"

#define N      8
#define SOON_S 10

static struct side stays, goes;
/* What came by active messages, and the last rendezvous. */
static struct arrival {
	unsigned int received;
	void *offered;
} at_stays, at_goes;
static const char *kind;
static size_t len;
static void *buf, *target;
static ucp_mem_h mem;
static ucp_rkey_h rkey;
static void *packed;

static ucs_status_t on_am(void *arg, const void *header, size_t header_len,
			  void *data, size_t length,
			  const ucp_am_recv_param_t *param)
{
	struct arrival *at = arg;

	at->received++;
	/* a rendezvous that is fetched by lost() alone */
	if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV))
		return UCS_OK;
	at->offered = data;
	return UCS_INPROGRESS;
}

static void open_for(struct side *s, struct arrival *at)
{
	ucp_am_handler_param_t am = {
		.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
			      UCP_AM_HANDLER_PARAM_FIELD_CB |
			      UCP_AM_HANDLER_PARAM_FIELD_ARG,
		.id = 0,
		.cb = on_am,
		.arg = at,
	};

	side_open(s, UCP_FEATURE_AM | UCP_FEATURE_RMA);
	check(ucp_worker_set_am_recv_handler(s->worker, &am), "handler");
}

static void progress(void)
{
	ucp_worker_progress(stays.worker);
	if (goes.worker)
		ucp_worker_progress(goes.worker);
}

#define wait_until(cond)                                                      \
	do {                                                                  \
		const time_t end_ = time(NULL) + SOON_S;                      \
		while (!(cond)) {                                             \
			progress();                                           \
			if (time(NULL) > end_)                                \
				die("%s %zu: no '%s' within %d s", kind, len, \
				    #cond, SOON_S);                           \
		}                                                             \
	} while (0)

static void nothing(void *request, ucs_status_t status, void *arg)
{
}

static ucs_status_ptr_t start(struct side *s, const char *what, size_t n)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK,
		.cb.send = nothing,
	};

	if (!strcmp(what, "put"))
		return ucp_put_nbx(s->ep, buf, n, (uintptr_t)target, rkey,
				   &param);
	if (!strcmp(what, "get"))
		return ucp_get_nbx(s->ep, buf, n, (uintptr_t)target, rkey,
				   &param);
	if (!strcmp(what, "tag"))
		return ucp_tag_send_nbx(s->ep, buf, n, 1, &param);
	return ucp_am_send_nbx(s->ep, 0, NULL, 0, buf, n, &param);
}

static ucs_status_t end(ucs_status_ptr_t request)
{
	ucs_status_t status;

	if (!UCS_PTR_IS_PTR(request))
		return UCS_PTR_STATUS(request);
	wait_until((status = ucp_request_check_status(request)) !=
		   UCS_INPROGRESS);
	ucp_request_free(request);
	return status;
}

static ucs_status_t flush(struct side *s)
{
	ucp_request_param_t param = { 0 };

	return end(ucp_ep_flush_nbx(s->ep, &param));
}

static ucp_mem_h map(void *address)
{
	ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
			      UCP_MEM_MAP_PARAM_FIELD_LENGTH,
		.address = address,
		.length = len,
	};
	ucp_mem_h memh;

	check(ucp_mem_map(goes.context, &params, &memh), "map");
	return memh;
}

static void expose(void)
{
	size_t size;

	mem = map(target);
	check(ucp_rkey_pack(goes.context, mem, &packed, &size), "pack");
	check(ucp_ep_rkey_unpack(stays.ep, packed, &rkey), "unpack");
}

static void close_by_force(struct side *s)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = UCP_EP_CLOSE_FLAG_FORCE,
	};

	end(ucp_ep_close_nbx(s->ep, &param));
}

static void *pages(int protection, int flags)
{
	void *at = mmap(target, len, protection,
			flags | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED || (target && at != target))
		die("mmap");
	return at;
}

/* It ends both endpoints; the next ones know the same key. */
static void must_fail(const char *when)
{
	if (end(start(&stays, "put", len)) == UCS_OK)
		die("a put succeeds %s", when);
	wait_until(stays.errors && goes.errors);
	if (stays.errors != 1 || goes.errors != 1)
		die("told of the error %u and %u times", stays.errors,
		    goes.errors);
	stays.errors = goes.errors = 0;
	ucp_rkey_destroy(rkey);
	close_by_force(&stays);
	close_by_force(&goes);
	check(connect_to(&stays, &goes), "endpoint");
	check(connect_to(&goes, &stays), "endpoint");
	check(ucp_ep_rkey_unpack(stays.ep, packed, &rkey), "unpack");
}

static void freed(void)
{
	ucp_request_param_t param = { 0 };
	ucs_status_ptr_t received;
	void *source = buf;
	const char *p;

	check(end(start(&stays, "put", len)), "put");
	/* UCX registers it again, for a rendezvous */
	check(connect_to(&goes, &stays), "endpoint");
	received = ucp_tag_recv_nbx(stays.worker, source, len, 1, 0, &param);
	buf = target;
	check(end(start(&goes, "tag", len)), "send");
	check(end(received), "receive");
	buf = source;
	ucp_mem_unmap(goes.context, mem);
	munmap(target, len);
	pages(PROT_NONE, MAP_FIXED);
	must_fail("where nothing is");

	/* UCX looks at what has been freed whenever it registers */
	ucp_mem_unmap(goes.context, map(buf));
	pages(PROT_READ | PROT_WRITE, MAP_FIXED);
	memset(buf, 1, len);
	must_fail("where something else is");
	for (p = target; p < (char *)target + len; p++)
		if (*p)
			die("and writes there");
	check(end(start(&stays, "am", 1)), "message");
	check(flush(&stays), "flush");
}

/* ---- memory that is lost ------------------------------------------------- */

/* A file of @length bytes in @folder, or in memory; its mapping. */
static void *map_file(const char *folder, size_t length, int *fd)
{
	void *at;

	*fd = folder ? open(folder, O_TMPFILE | O_RDWR, 0600)
		     : memfd_create("lost", MFD_CLOEXEC);
	if (*fd < 0 || ftruncate(*fd, length))
		die("no file: %m");
	at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (at == MAP_FAILED)
		die("mmap");
	return at;
}

static void lose(char *at, int fd, const char *loss)
{
	const size_t half = len / 2 & ~4095ul;

	if (!strcmp(loss, "unmapped"))
		mprotect(at + half, len - half, PROT_NONE);
	else if (!strcmp(loss, "read-only"))
		mprotect(at + half, len - half, PROT_READ);
	else if (!strcmp(loss, "truncated") && ftruncate(fd, half))
		die("ftruncate");
}

static ucs_status_ptr_t receive(const char *op, void *at)
{
	ucp_request_param_t param = { 0 };

	if (!strcmp(op, "tag"))
		return ucp_tag_recv_nbx(goes.worker, at, len, 1, -1, &param);
	wait_until(at_goes.offered || goes.errors || stays.errors);
	if (!at_goes.offered)
		return UCS_STATUS_PTR(UCS_ERR_CONNECTION_RESET);
	return ucp_am_recv_data_nbx(goes.worker, at_goes.offered, at, len,
				    &param);
}

static ucs_status_t status_of(ucs_status_ptr_t request)
{
	return UCS_PTR_IS_PTR(request) ? ucp_request_check_status(request)
				       : UCS_PTR_STATUS(request);
}

/* UCX ends the requests of one side, and those of the other never. */
static void unhandled(ucs_status_ptr_t sends, ucs_status_ptr_t receives)
{
	wait_until(status_of(sends) != UCS_INPROGRESS ||
		   status_of(receives) != UCS_INPROGRESS);
	for (unsigned int i = 0; i < 10000; i++)
		progress();
	if (status_of(sends) == UCS_OK || status_of(receives) == UCS_OK)
		die("a side reports a success");
	printf("lost: sent '%s', received '%s'\n",
	       ucs_status_string(status_of(sends)),
	       ucs_status_string(status_of(receives)));
}

static void lost(char **argv)
{
	const char *op = argv[0], *loss = argv[2];
	const bool at_target = !strcmp(argv[1], "target");
	ucs_status_ptr_t sends, receives, behind, last;
	ucp_request_param_t param = { 0 };
	ucs_status_t sent, received;
	char *from, *to, c = 0;
	int from_fd, to_fd;

	from = map_file(NULL, len, &from_fd);
	to = map_file(*loss == '/' ? loss : NULL, len, &to_fd);
	memset(from, 5, len);
	check(end(start(&goes, "am", 1)), "first message back");
	wait_until(at_stays.received);
	lose(at_target ? to : from, at_target ? to_fd : from_fd, loss);
	receives = !strcmp(op, "tag") ? receive(op, to) : NULL;
	behind = ucp_tag_recv_nbx(goes.worker, &c, 1, 2, -1, &param);
	buf = from;
	sends = start(&stays, op, len);
	if (!receives)
		receives = receive(op, to);
	if (stays.err_mode == UCP_ERR_HANDLING_MODE_NONE) {
		unhandled(sends, receives);
		return;
	}
	received = end(receives);
	sent = end(sends);
	if (received == UCS_OK)
		die("the receiver reports a success");
	/* what is sent behind it is refused, or lost */
	last = ucp_tag_send_nbx(stays.ep, "b", 1, 2, &param);
	end(last);
	wait_until(stays.errors && goes.errors);
	for (unsigned int i = 0; i < 1000; i++)
		progress();
	if (stays.errors != 1 || goes.errors != 1)
		die("told of the error %u and %u times", stays.errors,
		    goes.errors);
	if (c || ucp_request_check_status(behind) == UCS_OK)
		die("the message behind it came");
	printf("lost: sent '%s', received '%s'\n", ucs_status_string(sent),
	       ucs_status_string(received));
}

int main(int argc, char **argv)
{
	ucs_status_ptr_t under_way[N + 1];
	unsigned int n = 0, i, before;
	bool cold = false, back = false;
	ucs_status_t status;

	if (argc < 3)
		die("gone KIND LENGTH [cold] [back]");
	kind = argv[1];
	len = strtoul(argv[2], NULL, 0);
	for (i = 3; i < (unsigned int)argc; i++) {
		cold |= !strcmp(argv[i], "cold");
		back |= !strcmp(argv[i], "back");
	}
	alarm(6 * SOON_S);
	buf = calloc(1, len);
	target = pages(PROT_READ | PROT_WRITE, 0);
	open_for(&stays, &at_stays);
	open_for(&goes, &at_goes);
	if (argc > 6 && !strcmp(argv[6], "unhandled"))
		stays.err_mode = goes.err_mode = UCP_ERR_HANDLING_MODE_NONE;
	check(connect_to(&stays, &goes), "endpoint");
	if (back || !strcmp(kind, "lost"))
		check(connect_to(&goes, &stays), "endpoint");
	expose();
	if (!cold) {
		check(end(start(&stays, "am", 1)), "first message");
		wait_until(at_goes.received);
		check(flush(&stays), "first flush");
	}
	if (!strcmp(kind, "lost")) {
		lost(argv + 3);
		return 0;
	}
	if (!strcmp(kind, "freed")) {
		freed();
		printf("freed\n");
		return 0;
	}
	if (strcmp(kind, "idle")) {
		for (; n < N; n++) {
			under_way[n] = start(&stays, kind, len);
			if (back && n == N / 2)
				start(&goes, "am", 1);
			ucp_worker_progress(stays.worker);
		}
	}
	before = stays.errors;
	ucp_mem_unmap(goes.context, mem);
	ucp_worker_destroy(goes.worker);
	goes.worker = NULL;
	if (before)
		die("told of an error before there was one");
	if (n)
		under_way[n++] = start(&stays, kind, len);
	if (n)
		flush(&stays);
	wait_until(stays.errors);
	/* the last is how a dial ends without a listener */
	if (stays.error != UCS_ERR_CONNECTION_RESET &&
	    stays.error != UCS_ERR_ENDPOINT_TIMEOUT &&
	    (!cold || stays.error != UCS_ERR_UNREACHABLE))
		die("the error is '%s'", ucs_status_string(stays.error));
	for (i = 0; i < n; i++)
		end(under_way[i]);
	status = end(start(&stays, "am", 1));
	if (status == UCS_OK)
		die("an endpoint whose peer has gone still sends");
	if (flush(&stays) == UCS_OK)
		die("and its flush says that all is there");
	for (i = 0; i < 1000; i++)
		progress();
	if (stays.errors != 1)
		die("told of the error %u times", stays.errors);
	ucp_rkey_destroy(rkey);
	ucp_rkey_buffer_release(packed);
	close_by_force(&stays);
	ucp_worker_destroy(stays.worker);
	ucp_cleanup(stays.context);
	ucp_cleanup(goes.context);
	printf("gone: %s\n", ucs_status_string(stays.error));
	return 0;
}

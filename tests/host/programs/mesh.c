/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * As many processes as asked for, each connected to each over real UCX with
 * error handling, as Dask's workers are: what that takes.
 *
 *   mesh PROCESSES [BYTES]
 *
 * Each sends each a message of BYTES (8), compares every byte, and keeps its
 * connections until all have.  Prints a line of JSON: the seconds from the
 * first endpoint until the last process has its messages; the most descriptors
 * that a process has; and, in KiB, what all processes have mapped (Pss of
 * proc(5)), and by how much the host's shared memory has grown: a ring counts
 * there whether it was touched or not.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <ucp/api/ucp.h>
#include "tests/lib/fds.h"

struct side {
	size_t address_len;
	uint8_t address[1024];
	unsigned int fds;
	long pss;
	double met;
};

static struct all {
	unsigned int arrived;
	double begun;
	long shared;
	struct side sides[];
} * all;
static unsigned int n, self;
static size_t len = 8;
static ucp_worker_h worker;

static void __attribute__((noreturn)) die(const char *what, const char *why)
{
	fprintf(stderr, "mesh: %u: %s: %s\n", self, what, why);
	kill(0, SIGTERM);
	exit(1);
}

static void check(ucs_status_t status, const char *what)
{
	if (status != UCS_OK)
		die(what, ucs_status_string(status));
}

static void wait_for(ucs_status_ptr_t request, const char *what)
{
	if (UCS_PTR_IS_ERR(request))
		check(UCS_PTR_STATUS(request), what);
	if (!request)
		return;
	while (ucp_request_check_status(request) == UCS_INPROGRESS)
		if (!ucp_worker_progress(worker))
			sched_yield();
	check(ucp_request_check_status(request), what);
	ucp_request_free(request);
}

/* Peers may need this process to get here. */
static void meet(void)
{
	static unsigned int times;

	times++;
	__atomic_add_fetch(&all->arrived, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&all->arrived, __ATOMIC_SEQ_CST) < times * n)
		if (!ucp_worker_progress(worker))
			sched_yield();
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint8_t byte_of(unsigned int from, unsigned int to, size_t i)
{
	return (uint8_t)(from * 31 + to * 17 + i * 7 + (i >> 8));
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	die("an endpoint", ucs_status_string(status));
}

static void connect_all(ucp_ep_h *eps)
{
	ucp_ep_params_t p = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler.cb = on_error,
	};

	for (unsigned int i = 0; i < n; i++) {
		if (i == self)
			continue;
		p.address = (ucp_address_t *)all->sides[i].address;
		check(ucp_ep_create(worker, &p, &eps[i]), "endpoint");
	}
}

static void exchange(ucp_ep_h *eps)
{
	const ucp_request_param_t none = { 0 };
	ucs_status_ptr_t *out = calloc(n, sizeof(*out));
	ucs_status_ptr_t *in = calloc(n, sizeof(*in));
	uint8_t *to = malloc(n * len), *from = calloc(n, len);
	unsigned int i;
	size_t k;

	for (i = 0; i < n; i++) {
		if (i == self)
			continue;
		for (k = 0; k < len; k++)
			to[i * len + k] = byte_of(self, i, k);
		in[i] = ucp_tag_recv_nbx(worker, from + i * len, len, i,
					 UINT64_MAX, &none);
		out[i] = ucp_tag_send_nbx(eps[i], to + i * len, len, self,
					  &none);
	}
	for (i = 0; i < n; i++) {
		wait_for(in[i], "receive");
		wait_for(out[i], "send");
		for (k = 0; k < len && i != self; k++)
			if (from[i * len + k] != byte_of(i, self, k))
				die("a message", "has a wrong byte");
	}
	free(out);
	free(in);
	free(to);
	free(from);
}

/* The figure of that line of a file of /proc; 0: there is none. */
static long read_kib(const char *path, const char *name)
{
	FILE *file = fopen(path, "re");
	long kib = 0;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			kib = strtol(line + strlen(name), NULL, 10);
	if (file)
		fclose(file);
	return kib;
}

static void count(struct side *me)
{
	/* but ".", "..", and the folder's own */
	me->fds = count_fds() - 3;
	me->pss = read_kib("/proc/self/smaps_rollup", "Pss:");
	if (!self)
		all->shared = read_kib("/proc/meminfo", "Shmem:") - all->shared;
}

static void disconnect_all(ucp_ep_h *eps)
{
	const ucp_request_param_t force = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = UCP_EP_CLOSE_FLAG_FORCE,
	};

	for (unsigned int i = 0; i < n; i++)
		if (i != self)
			wait_for(ucp_ep_close_nbx(eps[i], &force), "close");
}

static void run(void)
{
	const ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES,
				      .features = UCP_FEATURE_TAG };
	const ucp_worker_params_t wparams = { 0 };
	struct side *me = &all->sides[self];
	ucp_ep_h *eps = calloc(n, sizeof(*eps));
	ucp_address_t *address;
	ucp_context_h context;

	check(ucp_init(&params, NULL, &context), "context");
	check(ucp_worker_create(context, &wparams, &worker), "worker");
	check(ucp_worker_get_address(worker, &address, &me->address_len),
	      "address");
	if (me->address_len > sizeof(me->address))
		die("address", "too long");
	memcpy(me->address, address, me->address_len);
	meet();
	if (!self)
		all->begun = now();
	meet();
	connect_all(eps);
	exchange(eps);
	me->met = now();
	meet();
	count(me);
	meet();
	disconnect_all(eps);
	meet();
	ucp_worker_release_address(worker, address);
	ucp_worker_destroy(worker);
	ucp_cleanup(context);
	free(eps);
}

static void report(void)
{
	long pss = 0;
	unsigned int fds = 0;
	double met = 0;

	for (unsigned int i = 0; i < n; i++) {
		const struct side *s = &all->sides[i];

		pss += s->pss;
		fds = s->fds > fds ? s->fds : fds;
		met = s->met > met ? s->met : met;
	}
	printf("{\"processes\":%u,\"bytes\":%zu,\"seconds\":%.3f,"
	       "\"descriptors\":%u,\"memory_kib\":%ld,\"shared_kib\":%ld}\n",
	       n, len, met - all->begun, fds, pss, all->shared);
}

int main(int argc, char **argv)
{
	const struct rlimit many = { 1u << 16, 1u << 16 };
	int status, failed = 0;
	size_t size;

	if (argc < 2 || argc > 3)
		die("usage", "mesh PROCESSES [BYTES]");
	n = (unsigned int)strtoul(argv[1], NULL, 0);
	if (argc > 2)
		len = strtoul(argv[2], NULL, 0);
	/* what the host allows, if less */
	setrlimit(RLIMIT_NOFILE, &many);
	size = sizeof(*all) + n * sizeof(all->sides[0]);
	all = mmap(NULL, size, PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED)
		die("mmap", "no memory");
	all->shared = read_kib("/proc/meminfo", "Shmem:");
	setpgid(0, 0);
	for (self = 0; self < n; self++)
		if (!fork()) {
			run();
			return 0;
		}
	while (wait(&status) > 0)
		failed |= status;
	if (failed)
		return 1;
	report();
	return 0;
}

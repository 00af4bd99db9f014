/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many workers join one scheduler over real UCX, all at once, as Dask's do:
 * what that takes, and what they cost it while they are silent.
 *
 *   join WORKERS [PROCESSES [poll]]
 *
 * Each worker has an endpoint, sends a message and gets an answer; PROCESSES
 * (8) have them all.  All sleep on UCP's descriptor, and the scheduler has a
 * listener and error handling.  With "poll" it spins, and has neither, which
 * UCX's shared memory lacks.
 *
 * Prints a line of JSON: seconds from the first endpoint until the last worker
 * has its answer, and of the scheduler's CPU; the most descriptors that the
 * scheduler and that a process of workers had; how much memory (private, KiB)
 * the scheduler has gained for each; nanoseconds of a call of
 * ucp_worker_progress() with all of them silent (poll), or how long the
 * scheduler takes to notice that all were killed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "bench/memory.h"

enum { HELLO, ANSWER };
enum { LIMIT = 300, POLLS = 20000, TURNS = 30, MAX_PROCESSES = 64 };

static struct all { /* shared by all processes */
	unsigned int ready, joined, gone;
	double last;
	struct sockaddr_in listener;
	size_t address_len;
	uint8_t address[1024];
} * all;
static unsigned int n, processes = 8;
static int poll_only;
static ucp_context_h context;
static ucp_ep_h *eps; /* the scheduler's */
static unsigned int neps;

static void __attribute__((noreturn)) die(const char *what, const char *why)
{
	fprintf(stderr, "join: %s: %s\n", what, why);
	fflush(NULL); /* what UCX has logged */
	kill(0, SIGTERM);
	exit(1);
}

static void check(ucs_status_t status, const char *what)
{
	if (status != UCS_OK)
		die(what, ucs_status_string(status));
}

static double clock_of(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static unsigned int load(const unsigned int *at)
{
	return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}

static void add(unsigned int *at)
{
	__atomic_add_fetch(at, 1, __ATOMIC_SEQ_CST);
}

static ucp_worker_h new_worker(void)
{
	const ucp_worker_params_t params = { 0 };
	ucp_worker_h worker;

	check(ucp_worker_create(context, &params, &worker), "worker");
	return worker;
}

static void open_context(void)
{
	const ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES,
		.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
	};

	check(ucp_init(&params, NULL, &context), "context");
}

static void handle(ucp_worker_h worker, unsigned int id, void *arg,
		   ucp_am_recv_callback_t cb)
{
	const ucp_am_handler_param_t params = {
		.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
			      UCP_AM_HANDLER_PARAM_FIELD_CB |
			      UCP_AM_HANDLER_PARAM_FIELD_ARG,
		.id = id,
		.cb = cb,
		.arg = arg,
	};

	check(ucp_worker_set_am_recv_handler(worker, &params), "handler");
}

static void send_one(ucp_ep_h ep, unsigned int id, unsigned int flags)
{
	static const char bytes[64];
	const ucp_request_param_t params = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = flags,
	};
	ucs_status_ptr_t request =
		ucp_am_send_nbx(ep, id, NULL, 0, bytes, sizeof(bytes), &params);

	if (UCS_PTR_IS_ERR(request))
		check(UCS_PTR_STATUS(request), "send");
	if (request)
		ucp_request_free(request); /* when it is done */
}

static int watch(int epfd, ucp_worker_h worker)
{
	struct epoll_event e = { .events = EPOLLIN, .data.ptr = worker };
	int fd;

	check(ucp_worker_get_efd(worker, &fd), "descriptor");
	return epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &e);
}

/* Until nothing is under way, and its descriptor will tell. */
static void run_worker(ucp_worker_h worker)
{
	ucs_status_t status;

	do {
		while (ucp_worker_progress(worker))
			;
		status = ucp_worker_arm(worker);
	} while (status == UCS_ERR_BUSY);
	check(status, "arm");
}

static void sleep_and_run(int epfd)
{
	struct epoll_event e[64];
	int i, got = epoll_wait(epfd, e, 64, 100);

	for (i = 0; i < got; i++)
		run_worker(e[i].data.ptr);
}

/* ---- workers ------------------------------------------------------------- */

static ucs_status_t on_answer(void *arg, const void *header, size_t header_len,
			      void *data, size_t len,
			      const ucp_am_recv_param_t *params)
{
	const double now = clock_of(CLOCK_MONOTONIC);

	/* the figure is of the last one, and only this one can be that */
	all->last = now;
	add(&all->joined);
	return UCS_OK;
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	if (arg)
		die("a worker's endpoint", ucs_status_string(status));
	add(&all->gone);
}

static ucp_ep_h dial(ucp_worker_h worker)
{
	ucp_ep_params_t p = {
		.field_mask = UCP_EP_PARAM_FIELD_FLAGS |
			      UCP_EP_PARAM_FIELD_SOCK_ADDR |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
		.sockaddr.addr = (struct sockaddr *)&all->listener,
		.sockaddr.addrlen = sizeof(all->listener),
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = { on_error, all },
	};
	ucp_ep_h ep;

	if (poll_only) {
		p.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
		p.address = (ucp_address_t *)all->address;
	}
	check(ucp_ep_create(worker, &p, &ep), "endpoint");
	return ep;
}

/* Ends by a signal. */
static void __attribute__((noreturn)) be_workers(unsigned int count)
{
	ucp_worker_h *workers = calloc(count, sizeof(*workers));
	int epfd = epoll_create1(EPOLL_CLOEXEC);
	unsigned int i;

	open_context();
	for (i = 0; i < count; i++) {
		workers[i] = new_worker();
		handle(workers[i], ANSWER, NULL, on_answer);
		if (watch(epfd, workers[i]))
			die("epoll_ctl", strerror(errno));
	}
	add(&all->ready);
	while (load(&all->ready) <= processes)
		usleep(1000);
	for (i = 0; i < count; i++) {
		send_one(dial(workers[i]), HELLO, UCP_AM_SEND_FLAG_REPLY);
		run_worker(workers[i]);
	}
	for (;;)
		sleep_and_run(epfd);
}

/* ---- the scheduler ------------------------------------------------------- */

static ucs_status_t on_hello(void *arg, const void *header, size_t header_len,
			     void *data, size_t len,
			     const ucp_am_recv_param_t *params)
{
	send_one(params->reply_ep, ANSWER, 0);
	return UCS_OK;
}

static void on_request(ucp_conn_request_h request, void *worker)
{
	const ucp_ep_params_t p = {
		.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.conn_request = request,
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = { on_error, NULL },
	};

	if (neps == n)
		die("the listener", "more endpoints than workers");
	check(ucp_ep_create(worker, &p, &eps[neps++]), "endpoint");
}

static void listen_on(ucp_worker_h worker)
{
	struct sockaddr_in any = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const ucp_listener_params_t params = {
		.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
			      UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
		.sockaddr = { (struct sockaddr *)&any, sizeof(any) },
		.conn_handler = { on_request, worker },
	};
	ucp_listener_attr_t attr = { .field_mask =
					     UCP_LISTENER_ATTR_FIELD_SOCKADDR };
	ucp_listener_h listener;

	check(ucp_listener_create(worker, &params, &listener), "listener");
	check(ucp_listener_query(listener, &attr), "listener");
	memcpy(&all->listener, &attr.sockaddr, sizeof(all->listener));
}

/* One that never ends is the caller's failure. */
static void until(ucp_worker_h worker, int epfd, const unsigned int *at,
		  const char *what)
{
	const double end = clock_of(CLOCK_MONOTONIC) + LIMIT;

	while (load(at) < n) {
		if (poll_only)
			ucp_worker_progress(worker);
		else
			sleep_and_run(epfd);
		if (clock_of(CLOCK_MONOTONIC) > end)
			die(what, "some are missing");
	}
}

/* The best of several turns: others use this machine, too. */
static double poll_ns(ucp_worker_h worker)
{
	double best = 1e9, begun, took;
	unsigned int turn, i;

	for (turn = 0; turn < TURNS; turn++) {
		begun = clock_of(CLOCK_THREAD_CPUTIME_ID);
		for (i = 0; i < POLLS; i++)
			ucp_worker_progress(worker);
		took = clock_of(CLOCK_THREAD_CPUTIME_ID) - begun;
		best = took < best ? took : best;
	}
	return best / POLLS * 1e9;
}

static void be_scheduler(const pid_t *pids)
{
	ucp_worker_h worker;
	ucp_address_t *address;
	double begun, joined, cpu;
	int epfd = epoll_create1(EPOLL_CLOEXEC);
	unsigned int i;
	long memory;

	open_context();
	worker = new_worker();
	handle(worker, HELLO, NULL, on_hello);
	check(ucp_worker_get_address(worker, &address, &all->address_len),
	      "address");
	if (all->address_len > sizeof(all->address))
		die("address", "too long");
	memcpy(all->address, address, all->address_len);
	if (!poll_only) {
		listen_on(worker);
		if (watch(epfd, worker))
			die("epoll_ctl", strerror(errno));
		run_worker(worker);
	}
	while (load(&all->ready) < processes)
		usleep(1000);
	memory = private_kib();
	begun = clock_of(CLOCK_MONOTONIC);
	cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID);
	add(&all->ready);
	until(worker, epfd, &all->joined, "joining");
	joined = all->last - begun;
	cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	printf("{\"workers\":%u,\"seconds\":%.3f,\"cpu_seconds\":%.3f,"
	       "\"kib_each\":%.1f,",
	       n, joined, cpu, (double)(private_kib() - memory) / n);
	if (poll_only) {
		printf("\"poll_ns\":%.1f,", poll_ns(worker));
		return;
	}
	begun = clock_of(CLOCK_MONOTONIC);
	for (i = 0; i < processes; i++)
		kill(pids[i], SIGKILL);
	until(worker, epfd, &all->gone, "noticing that they were killed");
	printf("\"gone_seconds\":%.3f,", clock_of(CLOCK_MONOTONIC) - begun);
}

/* Since Linux 6.2 that is the size of the folder. */
static unsigned int descriptors(pid_t pid)
{
	struct stat st;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	return stat(path, &st) ? 0 : (unsigned int)st.st_size;
}

static void watch_peak(pid_t pid, unsigned int *peak)
{
	const unsigned int now = descriptors(pid);

	*peak = now > *peak ? now : *peak;
}

static pid_t start(void (*run)(const pid_t *), unsigned int workers,
		   const pid_t *pids)
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork", strerror(errno));
	if (!pid && run) {
		run(pids);
		fflush(stdout);
		_exit(0);
	}
	if (!pid)
		be_workers(workers);
	return pid;
}

int main(int argc, char **argv)
{
	unsigned int peak = 0, others = 0, i, before;
	pid_t pids[MAX_PROCESSES], scheduler;
	int status;

	n = argc > 1 ? (unsigned int)strtoul(argv[1], NULL, 0) : 0;
	if (argc > 2)
		processes = (unsigned int)strtoul(argv[2], NULL, 0);
	poll_only = argc > 3 && !strcmp(argv[3], "poll");
	if (processes > n)
		processes = n;
	if (!n || !processes || processes > MAX_PROCESSES || argc > 4)
		die("usage", "join WORKERS [PROCESSES [poll]]");
	eps = calloc(n, sizeof(*eps));
	all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED || !eps)
		die("mmap", strerror(errno));
	setpgid(0, 0);
	for (i = 0; i < processes; i++) {
		before = n * i / processes;
		pids[i] = start(NULL, n * (i + 1) / processes - before, NULL);
	}
	scheduler = start(be_scheduler, 0, pids);
	while (!waitpid(scheduler, &status, WNOHANG)) {
		watch_peak(scheduler, &peak);
		for (i = 0; i < processes; i++)
			watch_peak(pids[i], &others);
		usleep(10000);
	}
	for (i = 0; i < processes; i++)
		kill(pids[i], SIGKILL);
	if (!status)
		printf("\"descriptors\":%u,\"descriptors_of_workers\":%u}\n",
		       peak, others);
	return status != 0;
}

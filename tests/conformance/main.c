/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One list of behaviours, run against every device.
 *   conformance [-d DEVICE] [-t PART-OF-A-NAME]
 * TAP on stdout.  Each test runs in a process of its own, bounded in time.
 */
#include "config.h"
#include "tests/conformance/pair.h"
#include "tests/lib/cuda/fake_cuda.h"
#ifdef HAVE_VERBS_H
#include "tests/lib/verbs/fake_verbs.h"
#endif

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/util.h"

#define LIMIT_S	  120
#define TESTS_MAX 200 /* of a row */

/* The device's, but who calls for messages is a test that is skipped. */
static struct weft_dev_ops blocks_ops;

static int no_message(struct weft_ep *ep, uint8_t id, const struct iovec *iov,
		      unsigned int n)
{
	skip_test("the device has no messages");
}

static ssize_t no_message_pack(struct weft_ep *ep, uint8_t id,
			       size_t (*pack)(void *dest, void *arg), void *arg)
{
	(void)pack;
	return no_message(ep, id, NULL, 0);
}

static int put_quietly(struct weft_ep *ep, const struct weft_iov *iov,
		       unsigned int n, uint64_t addr, const void *key,
		       const struct weft_notify *notify, struct weft_op *op)
{
	if (notify)
		skip_test("the device has no notifications");
	return weft_nvlink_ops.put(ep, iov, n, addr, key, NULL, op);
}

static struct device_row rows[] = {
	{ "memory", &memory_ops, "memory", AF_UNSPEC, .in_process = true },
	{ "tcp", &weft_tcp_ops, "lo", AF_INET, .sockets = true },
	{ "tcp over IPv6", &weft_tcp_ops, "lo", AF_INET6, .sockets = true },
	{ "shm", &weft_shm_ops, "shm", AF_UNSPEC },
	{ "shm, GPU memory", &weft_shm_ops, "shm", AF_UNSPEC, .gpu = true },
	{ "nvlink", &blocks_ops, "nvl", AF_UNSPEC, .own_keys = true,
	  .gpu = true, .blocks = true },
#ifdef HAVE_VERBS_H
	{ "ib", &weft_ib_ops, "fake0:1", AF_INET, .other = "fake1:1",
	  .one_socket = true, .own_keys = true },
#endif
};

/* On which all memory is a GPU's. */
static void use_fake_driver(bool on)
{
	static const char *const names[] = { "WEFT_LIBCUDA", "WEFT_LIBNVML" };
	const char *build = getenv("WEFT_BUILD");
	char path[4200];
	unsigned int i;

	snprintf(path, sizeof(path), "%s/tests/lib/.libs/libfake_cuda.so",
		 build ? build : ".");
	for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (on)
			setenv(names[i], path, 1);
		else
			unsetenv(names[i]);
	}
	setenv(FAKE_NVML, "1", 1);
	setenv(FAKE_CUDA_ALL, "1", 1);
}

/*
 * The InfiniBand row runs on a fake adapter, or on WEFT_TEST_IB=DEVICE,DEVICE,
 * which are then Soft-RoCE in an emulated machine.
 */
static void prepare_row(struct device_row *r)
{
	const char *sanitized = getenv("WEFT_SANITIZED");
#ifdef HAVE_VERBS_H
	char *names = getenv("WEFT_TEST_IB"), *comma;
#endif

	/* ThreadSanitizer is the slowest of all */
	r->slow = sanitized && strstr(sanitized, "thread");
	if (r->gpu)
		use_fake_driver(true);
	if (r->blocks) {
		blocks_ops = weft_nvlink_ops;
		blocks_ops.message = no_message;
		blocks_ops.message_pack = no_message_pack;
		blocks_ops.put = put_quietly;
	}
#ifdef HAVE_VERBS_H
	if (r->ops != &weft_ib_ops)
		return;
	if (!names) {
		fake_verbs_begin();
		/*
		 * sanitizers are slow, and find what they find in fewer rounds
		 */
		r->slow = sanitized && *sanitized;
		return;
	}
	comma = strchr(names, ',');
	if (comma)
		*comma = '\0';
	r->netdev = names;
	r->other = comma ? comma + 1 : NULL;
	r->slow = r->soft_roce = true;
#endif
}

static void leave_row(const struct device_row *r)
{
	if (r->gpu)
		use_fake_driver(false);
#ifdef HAVE_VERBS_H
	if (r->ops == &weft_ib_ops && !getenv("WEFT_TEST_IB"))
		fake_verbs_end();
#endif
}

static const struct conformance_test *const lists[] = {
	message_tests, put_tests,   order_tests,    stall_tests,  end_tests,
	killed_tests,  meet_tests,  unproven_tests, port_tests,	  wait_tests,
	stream_tests,  cheat_tests, greedy_tests,   skew_tests,	  leave_tests,
	exit_tests,    limit_tests, fail_tests,	    outage_tests, fork_tests,
};

/* Those that move blocks: where they lie changes no others. */
static bool moves_blocks(const struct conformance_test *list)
{
	return list == put_tests || list == order_tests || list == end_tests ||
	       list == killed_tests || list == leave_tests ||
	       list == exit_tests || list == wait_tests || list == fail_tests;
}

/* Messages are emulated where they are no more than a sign of life. */
static bool applies(const struct conformance_test *list)
{
	if (row->blocks)
		return list != message_tests;
	return !row->gpu || moves_blocks(list);
}

struct running {
	pid_t pid; /* 0: not begun */
	char *skip_reason;
};

static void begin_test(const struct conformance_test *t, struct running *r)
{
	r->skip_reason = mmap(NULL, SKIP_REASON_MAX, PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(r->skip_reason != MAP_FAILED, "out of memory");
	fflush(NULL);
	r->pid = fork();
	if (!r->pid) {
		skip_reason = r->skip_reason;
		alarm(LIMIT_S);
		t->run();
		exit(0);
	}
}

/* Waits for its end; returns whether it is right. */
static bool end_test(struct running *r, char *why, size_t len)
{
	int status;

	while (waitpid(r->pid, &status, 0) < 0 && errno == EINTR)
		;
	why[0] = '\0';
	if (WIFSIGNALED(status))
		snprintf(why, len, " killed by signal %d", WTERMSIG(status));
	else if (WEXITSTATUS(status) == 77)
		snprintf(why, len, " # SKIP %s", r->skip_reason);
	munmap(r->skip_reason, SKIP_REASON_MAX);
	r->pid = 0;
	return WIFEXITED(status) &&
	       (!WEXITSTATUS(status) || WEXITSTATUS(status) == 77);
}

/*
 * Those of the row that apply, in order.  Where processes share no adapter
 * those that mostly wait begin before the others.
 */
static void run_row(const char *part, unsigned int *n, unsigned int *failed)
{
	static struct running running[TESTS_MAX];
	const struct conformance_test *tests[TESTS_MAX];
	char why[SKIP_REASON_MAX + 32];
	unsigned int count = 0, i, k;
	bool ok;

	for (i = 0; i < ARRAY_SIZE(lists); i++)
		for (k = 0; applies(lists[i]) && lists[i][k].name; k++)
			if (!part || strstr(lists[i][k].name, part)) {
				check(count < TESTS_MAX, "TESTS_MAX");
				tests[count++] = &lists[i][k];
			}
	for (i = 0; i < count && row->sockets; i++)
		if (tests[i]->waits)
			begin_test(tests[i], &running[i]);
	for (i = 0; i < count; i++) {
		if (!running[i].pid)
			begin_test(tests[i], &running[i]);
		ok = end_test(&running[i], why, sizeof(why));
		*failed += !ok;
		printf("%s %u - %s: %s%s\n", ok ? "ok" : "not ok", ++*n,
		       row->name, tests[i]->name, why);
	}
}

int main(int argc, char **argv)
{
	const char *dev = NULL, *part = NULL;
	unsigned int n = 0, failed = 0, i;
	int opt;

	while ((opt = getopt(argc, argv, "d:t:")) != -1) {
		if (opt == 'd')
			dev = optarg;
		else if (opt == 't')
			part = optarg;
		else
			return 2;
	}
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		row = &rows[i];
		if (dev && strcmp(dev, row->name))
			continue;
		prepare_row(&rows[i]);
		run_row(part, &n, &failed);
		leave_row(&rows[i]);
	}
	printf("1..%u%s\n", n, n ? "" : " # SKIP weft was built without it");
	return failed != 0;
}

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

#define LIMIT_S 120

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

static const char *run_one(const struct conformance_test *t, bool *ok)
{
	static char why[SKIP_REASON_MAX + 8];
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		alarm(LIMIT_S);
		t->run();
		exit(0);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	*ok = WIFEXITED(status) &&
	      (!WEXITSTATUS(status) || WEXITSTATUS(status) == 77);
	if (WIFSIGNALED(status)) {
		snprintf(why, sizeof(why), "killed by signal %d",
			 WTERMSIG(status));
		return why;
	}
	if (WEXITSTATUS(status) != 77)
		return NULL;
	snprintf(why, sizeof(why), "# SKIP %s", skip_reason);
	return why;
}

int main(int argc, char **argv)
{
	const char *dev = NULL, *part = NULL, *why;
	unsigned int n = 0, failed = 0, i, j, k;
	bool ok;
	int opt;

	while ((opt = getopt(argc, argv, "d:t:")) != -1) {
		if (opt == 'd')
			dev = optarg;
		else if (opt == 't')
			part = optarg;
		else
			return 2;
	}
	skip_reason = mmap(NULL, SKIP_REASON_MAX, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (skip_reason == MAP_FAILED)
		return 2;
	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		row = &rows[i];
		if (dev && strcmp(dev, row->name))
			continue;
		prepare_row(&rows[i]);
		for (j = 0; j < sizeof(lists) / sizeof(*lists); j++) {
			if (!applies(lists[j]))
				continue;
			for (k = 0; lists[j][k].name; k++) {
				if (part && !strstr(lists[j][k].name, part))
					continue;
				why = run_one(&lists[j][k], &ok);
				failed += !ok;
				printf("%s %u - %s: %s%s%s\n",
				       ok ? "ok" : "not ok", ++n, row->name,
				       lists[j][k].name, why ? " " : "",
				       why ? why : "");
			}
		}
		leave_row(&rows[i]);
	}
	printf("1..%u%s\n", n, n ? "" : " # SKIP weft was built without it");
	return failed != 0;
}

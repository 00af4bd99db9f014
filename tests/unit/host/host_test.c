/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/host.h"
#include "host/route.h"
#include "tests/lib/caught.h"
#include "tests/lib/fds.h"
#include "tests/lib/proc.h"

Test(host, ids_are_stable)
{
	const uint64_t host = weft_host_id(), ns = weft_netns_id();
	uint64_t again;

	cr_expect(eq(u64, weft_host_id(), host));
	cr_expect(eq(u64, weft_netns_id(), ns));
	cr_expect(ne(u64, host, ns));
	cr_expect(ne(u64, ns, 0));
	/* no descriptor is left to ask with */
	allow_fds(false);
	again = weft_netns_id();
	allow_fds(true); /* Criterion has a socket */
	cr_expect(eq(u64, again, ns));
}

/* What @fn says in a child. */
static uint64_t ask_child(bool leave, uint64_t (*fn)(void))
{
	uint64_t id = 0;
	int fds[2];
	pid_t pid;

	cr_assert(zero(int, pipe(fds)));
	pid = fork();
	if (!pid) {
		if (!leave || !unshare(CLONE_NEWNET)) {
			id = fn();
			if (write(fds[1], &id, sizeof(id)) < 0)
				_exit(1);
		}
		_exit(0);
	}
	close(fds[1]);
	if (read(fds[0], &id, sizeof(id)) != sizeof(id))
		id = 0;
	close(fds[0]);
	waitpid(pid, NULL, 0);
	return id;
}

Test(host, processes_of_one_host_agree)
{
	cr_expect(eq(u64, ask_child(false, weft_host_id), weft_host_id()));
	cr_expect(eq(u64, ask_child(false, weft_netns_id), weft_netns_id()));
}

Test(host, another_network_namespace_has_another_id)
{
	const uint64_t here = weft_netns_id();
	const uint64_t there = ask_child(true, weft_netns_id);

	if (!there)
		cr_skip_test("no right to make a network namespace");
	cr_expect(ne(u64, there, here));
	cr_expect(eq(u64, ask_child(true, weft_host_id), weft_host_id()));
}

/* Two processes of this host would then be of two, which is logged. */
Test(host, host_without_proc_is_unknown_and_says_so)
{
	uint64_t id;

	hidden = "/proc/";
	catch_log();
	id = weft_host_id();
	cr_expect(not(weft_host_known()));
	cr_expect(eq(u64, weft_host_id(), id), "to itself it is one");
	cr_expect(eq(int, caught.count, 1));
	cr_expect(eq(int, (int)caught.level, WEFT_LOG_WARN));
	expect_caught("boot_id' cannot be read (No such");
	expect_caught("mount /proc");
}

static const char *why_not(void)
{
	const struct weft_route route = { .kind = WEFT_ROUTE_LOCAL };
	struct weft_address remote = { .wire_min = WEFT_WIRE_MIN,
				       .wire_max = WEFT_WIRE_MAX,
				       .ns_id = 1 };
	struct weft_netif local = { 0 };
	const char *why = "";

	local.addr.sa.sa_family = remote.sa.sa.sa_family = AF_INET;
	cr_expect(not(
		weft_route_reaches(&local, &remote, 2, false, &route, &why)));
	return why;
}

Test(host, peer_of_an_unknown_host_is_refused_for_that)
{
	catch_log();
	hidden = "/proc/";
	cr_expect(eq(str, (char *)why_not(), (char *)weft_host_unknown));
}

Test(host, peer_of_this_host_is_refused_for_its_address)
{
	cr_expect(eq(str, (char *)why_not(), "its address means this host"));
}

Test(host, host_is_known)
{
	cr_expect(weft_host_known());
}

static uint64_t seen_by_thread;

static void *leave_and_ask(void *arg)
{
	if (!unshare(CLONE_NEWNET))
		seen_by_thread = weft_netns_id();
	return NULL;
}

/* A namespace is a thread's, and an earlier answer may no longer hold. */
Test(host, netns_id_follows_the_thread)
{
	const uint64_t here = weft_netns_id();
	pthread_t t;

	cr_assert(zero(int, pthread_create(&t, NULL, leave_and_ask, NULL)));
	pthread_join(t, NULL);
	if (!seen_by_thread)
		cr_skip_test("no right to make a network namespace");
	cr_expect(ne(u64, seen_by_thread, here));
	cr_expect(eq(u64, weft_netns_id(), here));
}

Test(host, processors_follow_the_affinity)
{
	cpu_set_t one;
	const unsigned int all = weft_host_cpus();
	int cpu;

	cr_expect(ge(uint, all, 1));
	cr_expect(le(uint, all, (unsigned int)sysconf(_SC_NPROCESSORS_CONF)));
	cpu = sched_getcpu();
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	cr_assert(zero(int, sched_setaffinity(0, sizeof(one), &one)));
	cr_expect(eq(uint, weft_host_cpus(), 1));
}

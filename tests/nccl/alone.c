/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * alone API PLUGIN: a process connects to itself, as NCCL would, and looks what
 * of the plugin's is left once its last comm is closed, and once it is
 * unloaded.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "tests/lib/fds.h"
#include "tests/nccl/perf/plugin.h"

#define LEN    (4u << 20)
#define CYCLES 3

static struct perf_plugin plugin;

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

static void need(enum nccl_result r, const char *call)
{
	if (r)
		fail(call, perf_last_warning());
}

/* A thread that was joined is listed for a moment longer. */
static void expect(const char *path, int want, const char *when)
{
	const struct timespec t = { 0, 1000000 };
	int i, n = count_entries(path);

	for (i = 0; i < 2000 && n > want; i++) {
		nanosleep(&t, NULL);
		n = count_entries(path);
	}
	if (n <= want)
		return;
	fprintf(stderr, "%s %s: %d instead of %d\n", path, when, n, want);
	exit(1);
}

static void transfer(void *send, void *recv)
{
	char *out = malloc(LEN), *in = malloc(LEN);
	int done[2] = { 0, 0 }, got = 0, tag = 0;
	void *req[2] = { NULL, NULL }, *mr[2], *data = in;
	const size_t size = LEN;
	size_t i;

	for (i = 0; i < LEN; i++)
		out[i] = (char)(i * 7 + (i >> 9));
	memset(in, 0x5a, LEN);
	need(perf_reg(&plugin, send, out, LEN, NCCL_PTR_HOST, &mr[0]), "regMr");
	need(perf_reg(&plugin, recv, in, LEN, NCCL_PTR_HOST, &mr[1]), "regMr");
	while (!done[0] || !done[1]) {
		if (!req[1])
			need(perf_irecv(&plugin, recv, 1, &data, &size, &tag,
					&mr[1], &req[1]),
			     "irecv");
		if (!req[0])
			need(perf_isend(&plugin, send, out, LEN, 0, mr[0],
					&req[0]),
			     "isend");
		if (req[0] && !done[0])
			need(perf_test(&plugin, req[0], &done[0], NULL),
			     "test");
		if (req[1] && !done[1])
			need(perf_test(&plugin, req[1], &done[1], &got),
			     "test");
	}
	if (got != LEN || memcmp(in, out, LEN))
		fail("transfer", "wrong bytes");
	need(perf_dereg(&plugin, send, mr[0]), "deregMr");
	need(perf_dereg(&plugin, recv, mr[1]), "deregMr");
	free(out);
	free(in);
}

/* From the first listen to the last close. */
static void live(void)
{
	char handle[NCCL_HANDLE_SIZE] = { 0 };
	void *listener, *send = NULL, *recv = NULL;

	need(perf_listen(&plugin, handle, &listener), "listen");
	while (!send || !recv) {
		if (!send)
			need(perf_connect(&plugin, handle, &send), "connect");
		if (!recv)
			need(perf_accept(&plugin, listener, &recv), "accept");
	}
	need(perf_close_listen(&plugin, listener), "closeListen");
	transfer(send, recv);
	need(perf_close_send(&plugin, send), "closeSend");
	need(perf_close_recv(&plugin, recv), "closeRecv");
}

static void load(const char *path, int api)
{
	char why[512];

	if (!perf_plugin_open(&plugin, path, api, why, sizeof(why)) ||
	    !perf_plugin_init(&plugin, why, sizeof(why)))
		fail(path, why);
}

static void *nothing(void *arg)
{
	return arg;
}

int main(int argc, char **argv)
{
	int fds, threads, idle_fds, idle_threads, i, k;
	pthread_t t;

	if (argc != 3)
		return 2;
	alarm(120);
	/* a sanitizer has a thread of its own from the first one on */
	if (!pthread_create(&t, NULL, nothing, NULL))
		pthread_join(t, NULL);
	fds = count_entries("/proc/self/fd");
	threads = count_entries("/proc/self/task");
	for (i = 0; i < CYCLES; i++) {
		load(argv[2], atoi(argv[1]));
		idle_fds = count_entries("/proc/self/fd");
		idle_threads = count_entries("/proc/self/task");
		for (k = 0; k < CYCLES; k++) {
			live();
			expect("/proc/self/task", idle_threads,
			       "after the last close");
			expect("/proc/self/fd", idle_fds,
			       "after the last close");
		}
		perf_plugin_close(&plugin);
		expect("/proc/self/task", threads, "after dlclose");
		expect("/proc/self/fd", fds, "after dlclose");
	}
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A child that is forked amid traffic, and that destroys what it inherited of
 * UCX when it exits, as ucxx's destructors do: the traffic goes on.
 *	fork poll|sleep exit|destroy|_exit
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <signal.h>
#include "tests/host/programs/host.h"
#include "tests/host/programs/sides.h"

static pid_t parent;

/* @b stands for another process. */
static void destroy(void)
{
	ucp_request_param_t none = { 0 };
	ucs_status_ptr_t r;

	if (getpid() == parent)
		return;
	r = ucp_ep_close_nbx(a.ep, &none);
	while (UCS_PTR_IS_PTR(r) &&
	       ucp_request_check_status(r) == UCS_INPROGRESS)
		ucp_worker_progress(a.worker);
	if (UCS_PTR_IS_PTR(r))
		ucp_request_free(r);
	ucp_worker_destroy(a.worker);
	ucp_cleanup(a.context);
}

static void be_child(const char *how)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(PATIENCE_S);
	if (!strcmp(how, "_exit"))
		_exit(0);
	if (!strcmp(how, "destroy"))
		atexit(destroy);
	exit(0);
}

int main(int argc, char **argv)
{
	uint64_t features = 0;
	unsigned int i;
	int status;
	pid_t pid;

	if (argc != 3)
		die("fork poll|sleep exit|destroy|_exit");
	if (!strcmp(argv[1], "sleep"))
		features = UCP_FEATURE_WAKEUP;
	alarm(4 * PATIENCE_S);
	parent = getpid();
	side_open(&a, features);
	side_open(&b, features);
	check(connect_to(&a, &b), "endpoint");
	check(connect_to(&b, &a), "endpoint");
	both_ways(SIDE_LEN);
	for (i = 0; i < 4; i++) {
		pid = fork();
		if (!pid)
			be_child(argv[2]);
		/* every second one has nothing beside it */
		while (!waitpid(pid, &status, i % 2 ? 0 : WNOHANG))
			both_ways(i % 4 ? SIDE_LEN : 100);
		if (status)
			die("the child ended with %x", (unsigned int)status);
		both_ways(SIDE_LEN);
		both_ways(100);
	}
	close_ep(&a);
	close_ep(&b);
	ucp_worker_destroy(a.worker);
	ucp_worker_destroy(b.worker);
	ucp_cleanup(a.context);
	ucp_cleanup(b.context);
	printf("went on\n");
	return 0;
}

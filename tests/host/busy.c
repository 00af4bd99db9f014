/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Meeting with what a process has too little of, in one process:
 *	busy time         one worker makes no progress for MS after it has given
 *	                  its address away, several times WEFT_CONNECT_TIMEOUT:
 *	                  both ways arrive
 *	busy descriptors  none is left when an endpoint is made, and that fails;
 *	                  with some again, another one works
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "tests/host/host.h"
#include "tests/host/sides.h"

#define MS  5000
#define LEN 100000

static void wait_ms(struct side *s, unsigned int ms)
{
	while (ms--) {
		ucp_worker_progress(s->worker);
		usleep(1000);
	}
}

static void without_time(void)
{
	ucp_request_param_t none = { 0 };
	ucs_status_ptr_t r;

	check(connect_to(&b, &a), "endpoint");
	check(connect_to(&a, &b), "endpoint");
	r = ucp_tag_send_nbx(a.ep, "", 1, 2, &none);
	wait_ms(&a, MS);
	both_ways(LEN);
	if (UCS_PTR_IS_PTR(r)) {
		check(ucp_request_check_status(r), "the first send");
		ucp_request_free(r);
	}
}

static void without_descriptors(void)
{
	struct rlimit old, none;
	unsigned int i;

	if (getrlimit(RLIMIT_NOFILE, &old))
		die("no limit");
	for (i = 0; i < 3; i++) {
		none = old;
		none.rlim_cur = dup(0); /* the lowest that is free */
		close((int)none.rlim_cur);
		if (setrlimit(RLIMIT_NOFILE, &none))
			die("no limit");
		if (connect_to(&a, &b) == UCS_OK)
			die("an endpoint without a descriptor");
		wait_ms(&a, 300);
		if (setrlimit(RLIMIT_NOFILE, &old))
			die("no limit");
	}
	check(connect_to(&a, &b), "endpoint");
	check(connect_to(&b, &a), "endpoint");
	both_ways(LEN);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		die("busy time|descriptors");
	alarm(3 * PATIENCE_S);
	side_open(&a, 0);
	side_open(&b, 0);
	if (!strcmp(argv[1], "time"))
		without_time();
	else
		without_descriptors();
	printf("met\n");
	return 0;
}

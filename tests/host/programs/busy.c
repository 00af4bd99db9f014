/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Meeting with what a process has too little of, in one process:
 *	busy time         one worker makes no progress for MS after it has given
 *	                  its address away, several times WEFT_CONNECT_TIMEOUT:
 *	                  both ways arrive
 *	busy descriptors  none is left when an endpoint is made, and that fails;
 *	                  with some again, another one works
 *	busy workers      many have two descriptors each, and two for each
 *	                  connection, which is what UCX's tcp takes
 *	busy endpoints    one after the other is closed, without FORCE: one
 *	                  socket of each stays on either side
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "tests/host/programs/host.h"
#include "tests/host/programs/sides.h"
#include "tests/lib/fds.h"

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
	unsigned int i;

	for (i = 0; i < 3; i++) {
		allow_fds(false);
		if (connect_to(&a, &b) == UCS_OK)
			die("an endpoint without a descriptor");
		wait_ms(&a, 300);
		allow_fds(true);
	}
	check(connect_to(&a, &b), "endpoint");
	check(connect_to(&b, &a), "endpoint");
	both_ways(LEN);
}

struct sender {
	ucp_worker_h worker;
	ucp_ep_h ep;
	ucs_status_ptr_t sent, received;
	uint8_t in[LEN];
};

static void sender_open(struct sender *s, uint64_t tag)
{
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
	};
	ucp_request_param_t none = { 0 };
	ucp_address_t *address;
	size_t address_len;

	check(ucp_worker_get_address(a.worker, &address, &address_len),
	      "address");
	params.address = address;
	check(ucp_ep_create(s->worker, &params, &s->ep), "endpoint");
	ucp_worker_release_address(a.worker, address);
	s->received = ucp_tag_recv_nbx(a.worker, s->in, LEN, tag, -1, &none);
	s->sent = ucp_tag_send_nbx(s->ep, b.out, LEN, tag, &none);
}

static void with_few_descriptors(void)
{
	enum { N = 40, SPARE = 16 };
	static struct sender s[N];
	const time_t end = time(NULL) + PATIENCE_S;
	ucp_worker_params_t params = { 0 };
	struct rlimit limit;
	unsigned int i, n;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		die("no limit");
	limit.rlim_cur = count_fds() + 4 * N + SPARE;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		die("no limit");
	fill(b.out, LEN, 3);
	for (i = 0; i < N; i++)
		check(ucp_worker_create(a.context, &params, &s[i].worker),
		      "worker");
	for (i = 0; i < N; i++)
		sender_open(&s[i], i);
	for (n = 0; n < N && time(NULL) <= end;) {
		ucp_worker_progress(a.worker);
		for (i = 0; i < N; i++)
			ucp_worker_progress(s[i].worker);
		if (ucp_request_check_status(s[n].received) == UCS_OK)
			n++;
	}
	for (i = 0; i < n; i++)
		if (wrong(s[i].in, LEN, 3))
			die("wrong bytes");
	if (n < N)
		die("%u of %u are served", n, N);
}

/* UCP keeps an endpoint after a rendezvous, and with it the message stream. */
static void with_many_endpoints(void)
{
	enum { ROUNDS = 40, FIRST = 10, STREAMS = 60 };
	unsigned int i, before = 0, now;

	for (i = 0; i < ROUNDS; i++) {
		check(connect_to(&a, &b), "endpoint");
		check(connect_to(&b, &a), "endpoint");
		both_ways(SIDE_LEN);
		close_ep(&a);
		close_ep(&b);
		wait_ms(&a, 3);
		wait_ms(&b, 3);
		if (i == FIRST)
			before = count_fds();
	}
	now = count_fds();
	if (now > before + 2 * (ROUNDS - FIRST) + STREAMS)
		die("%u descriptors have become %u", before, now);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		die("busy time|descriptors|workers|endpoints");
	alarm(3 * PATIENCE_S);
	side_open(&a, 0);
	side_open(&b, 0);
	if (!strcmp(argv[1], "time"))
		without_time();
	else if (!strcmp(argv[1], "workers"))
		with_few_descriptors();
	else if (!strcmp(argv[1], "endpoints"))
		with_many_endpoints();
	else
		without_descriptors();
	printf("met\n");
	return 0;
}

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

#define MS	   5000
#define PATIENCE_S 60
#define LEN	   100000

struct side {
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_ep_h ep;
	unsigned int errors;
	uint8_t out[LEN], in[LEN];
};

static struct side a, b;

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	struct side *s = arg;

	(void)ep;
	fprintf(stderr, "%s: %s\n", s == &a ? "a" : "b",
		ucs_status_string(status));
	s->errors++;
}

static void side_open(struct side *s)
{
	ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES,
		.features = UCP_FEATURE_TAG,
	};
	ucp_worker_params_t worker = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SINGLE,
	};

	check(ucp_init(&params, NULL, &s->context), "ucp_init");
	check(ucp_worker_create(s->context, &worker, &s->worker), "worker");
	fill(s->out, LEN, s == &a);
}

static ucs_status_t connect_to(struct side *s, struct side *to)
{
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = { on_error, s },
	};
	ucp_address_t *address;
	size_t address_len;
	ucs_status_t status;

	check(ucp_worker_get_address(to->worker, &address, &address_len),
	      "address");
	params.address = address;
	status = ucp_ep_create(s->worker, &params, &s->ep);
	ucp_worker_release_address(to->worker, address);
	return status;
}

static void both_ways(void)
{
	struct side *s[] = { &a, &b };
	ucs_status_ptr_t r[4];
	ucp_request_param_t none = { 0 };
	const time_t end = time(NULL) + PATIENCE_S;
	ucs_status_t status;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		r[i] = ucp_tag_recv_nbx(s[i]->worker, s[i]->in, LEN, 1, -1,
					&none);
		r[2 + i] = ucp_tag_send_nbx(s[i]->ep, s[i]->out, LEN, 1, &none);
	}
	for (i = 0; i < 4; i++) {
		status = UCS_PTR_STATUS(r[i]);
		while (UCS_PTR_IS_PTR(r[i]) &&
		       (status = ucp_request_check_status(r[i])) ==
			       UCS_INPROGRESS) {
			ucp_worker_progress(a.worker);
			ucp_worker_progress(b.worker);
			if (time(NULL) > end)
				die("request %u does not end", i);
		}
		check(status, i < 2 ? "receive" : "send");
		if (UCS_PTR_IS_PTR(r[i]))
			ucp_request_free(r[i]);
	}
	if (wrong(a.in, LEN, 0) || wrong(b.in, LEN, 1))
		die("wrong bytes");
	if (a.errors || b.errors)
		die("an endpoint has failed");
}

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
	both_ways();
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
	both_ways();
}

int main(int argc, char **argv)
{
	if (argc != 2)
		die("busy time|descriptors");
	alarm(3 * PATIENCE_S);
	side_open(&a);
	side_open(&b);
	if (!strcmp(argv[1], "time"))
		without_time();
	else
		without_descriptors();
	printf("met\n");
	return 0;
}

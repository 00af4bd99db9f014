/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/host/programs/sides.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "tests/host/programs/host.h"

struct side a, b;

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	struct side *s = arg;

	fprintf(stderr, "%s: %s\n", s == &a ? "a" : "b",
		ucs_status_string(status));
	s->errors++;
	s->error = status;
}

void side_open(struct side *s, uint64_t features)
{
	ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES,
		.features = UCP_FEATURE_TAG | features,
	};
	ucp_worker_params_t worker = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SINGLE,
	};

	check(ucp_init(&params, NULL, &s->context), "ucp_init");
	check(ucp_worker_create(s->context, &worker, &s->worker), "worker");
	s->err_mode = UCP_ERR_HANDLING_MODE_PEER;
	s->efd = -1;
	if (features & UCP_FEATURE_WAKEUP)
		check(ucp_worker_get_efd(s->worker, &s->efd), "event fd");
}

ucs_status_t connect_to(struct side *s, struct side *to)
{
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.err_mode = s->err_mode,
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

/* Sleeps only while neither side has anything to do. */
static void progress_both(void)
{
	struct pollfd fds[] = { { a.efd, POLLIN, 0 }, { b.efd, POLLIN, 0 } };

	if (ucp_worker_progress(a.worker) + ucp_worker_progress(b.worker) ||
	    a.efd < 0 || ucp_worker_arm(a.worker) != UCS_OK ||
	    ucp_worker_arm(b.worker) != UCS_OK)
		return;
	if (!poll(fds, 2, PATIENCE_S * 1000 / 2))
		die("nothing wakes the two");
}

/* It is flushed, for which the other side is asked. */
void close_ep(struct side *s)
{
	ucp_request_param_t none = { 0 };
	ucs_status_ptr_t r = ucp_ep_close_nbx(s->ep, &none);

	while (UCS_PTR_IS_PTR(r) &&
	       ucp_request_check_status(r) == UCS_INPROGRESS)
		progress_both();
	if (UCS_PTR_IS_PTR(r))
		ucp_request_free(r);
}

void both_ways(size_t len)
{
	struct side *s[] = { &a, &b };
	ucs_status_ptr_t r[4];
	ucp_request_param_t none = { 0 };
	const time_t end = time(NULL) + PATIENCE_S;
	ucs_status_t status;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		fill(s[i]->out, len, !i);
		memset(s[i]->in, 0, len);
		r[i] = ucp_tag_recv_nbx(s[i]->worker, s[i]->in, len, 1, -1,
					&none);
		r[2 + i] = ucp_tag_send_nbx(s[i]->ep, s[i]->out, len, 1, &none);
	}
	for (i = 0; i < 4; i++) {
		status = UCS_PTR_STATUS(r[i]);
		while (UCS_PTR_IS_PTR(r[i]) &&
		       (status = ucp_request_check_status(r[i])) ==
			       UCS_INPROGRESS) {
			progress_both();
			if (time(NULL) > end)
				die("request %u does not end", i);
		}
		check(status, i < 2 ? "receive" : "send");
		if (UCS_PTR_IS_PTR(r[i]))
			ucp_request_free(r[i]);
	}
	if (wrong(a.in, len, 0) || wrong(b.in, len, 1))
		die("wrong bytes");
	if (a.errors || b.errors)
		die("an endpoint has failed");
}

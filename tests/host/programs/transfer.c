/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/host/programs/transfer.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#define AM_ID	   3
#define KILL_ROUND 4

static const char am_header[] = "head";

uint64_t seed_of(int side, unsigned int kind, uint64_t round)
{
	return ((uint64_t)side << 40) + ((uint64_t)kind << 32) +
	       round * 1000003;
}

void tag_both(struct host *h, ucp_ep_h ep, const void *out, void *in,
	      size_t len, uint64_t tag)
{
	ucp_request_param_t param = { 0 };
	ucs_status_ptr_t recv, send;

	recv = ucp_tag_recv_nbx(h->worker, in, len, tag, UINT64_MAX, &param);
	send = ucp_tag_send_nbx(ep, out, len, tag, &param);
	check(host_wait(h, send), "tag send");
	check(host_wait(h, recv), "tag receive");
}

/* ---- active messages ----------------------------------------------------- */

static struct {
	void (*eager)(const void *data, size_t len);
	size_t len;
	void *data; /* of a rendezvous */
	bool came, rendezvous;
} am;

static ucs_status_t on_am(void *arg, const void *header, size_t header_len,
			  void *data, size_t len,
			  const ucp_am_recv_param_t *param)
{
	if (header_len != sizeof(am_header) ||
	    memcmp(header, am_header, sizeof(am_header)))
		die("active message: wrong header");
	am.len = len;
	am.came = true;
	if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
		am.rendezvous = true;
		am.data = data;
		return UCS_INPROGRESS;
	}
	am.eager(data, len);
	return UCS_OK;
}

void am_setup(struct host *h, void (*eager)(const void *data, size_t len))
{
	ucp_am_handler_param_t param = {
		.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
			      UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
			      UCP_AM_HANDLER_PARAM_FIELD_CB,
		.id = AM_ID,
		.flags = UCP_AM_FLAG_WHOLE_MSG,
		.cb = on_am,
	};

	am.eager = eager;
	check(ucp_worker_set_am_recv_handler(h->worker, &param), "am handler");
	barrier(h);
}

bool am_both(struct host *h, ucp_ep_h ep, const void *out, void *in, size_t len)
{
	ucp_request_param_t param = { 0 };
	ucs_status_ptr_t send;

	am.came = am.rendezvous = false;
	barrier(h); /* what comes now is this message */
	send = ucp_am_send_nbx(ep, AM_ID, am_header, sizeof(am_header), out,
			       len, &param);
	while (!am.came)
		host_progress(h);
	if (am.len != len)
		die("active message: %zu bytes instead of %zu", am.len, len);
	if (am.rendezvous)
		check(host_wait(h, ucp_am_recv_data_nbx(h->worker, am.data, in,
							len, &param)),
		      "active message data");
	check(host_wait(h, send), "active message send");
	return am.rendezvous;
}

/* ---- puts and gets ------------------------------------------------------- */

ucp_mem_h window_open(struct host *h, void *base, size_t len, void *at,
		      struct window *w)
{
	ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
			      UCP_MEM_MAP_PARAM_FIELD_LENGTH,
		.address = base,
		.length = len,
	};
	ucp_mem_h mem;
	void *rkey;

	check(ucp_mem_map(h->context, &params, &mem), "ucp_mem_map");
	check(ucp_rkey_pack(h->context, mem, &rkey, &w->rkey_len), "rkey");
	if (w->rkey_len > sizeof(w->rkey))
		die("a key of %zu bytes", w->rkey_len);
	w->addr = (uintptr_t)at;
	memcpy(w->rkey, rkey, w->rkey_len);
	ucp_rkey_buffer_release(rkey);
	return mem;
}

void rma_both(struct host *h, ucp_ep_h ep, const struct rma *r)
{
	ucp_request_param_t param = { 0 };
	struct window mine, theirs;
	ucp_rkey_h rkey;
	ucp_mem_h mem;

	mem = window_open(h, r->base, r->size, r->put ? r->in : (void *)r->out,
			  &mine);
	oob_send(h, &mine, sizeof(mine));
	oob_recv(h, &theirs, sizeof(theirs));
	check(ucp_ep_rkey_unpack(ep, theirs.rkey, &rkey), "unpack");
	if (r->put) {
		check(host_wait(h, ucp_put_nbx(ep, r->out, r->len, theirs.addr,
					       rkey, &param)),
		      "put");
		check(host_flush(h, ep), "flush after put");
	} else {
		check(host_wait(h, ucp_get_nbx(ep, r->in, r->len, theirs.addr,
					       rkey, &param)),
		      "get");
	}
	barrier(h);
	ucp_rkey_destroy(rkey);
	check(ucp_mem_unmap(h->context, mem), "ucp_mem_unmap");
}

/* ---- an end -------------------------------------------------------------- */

void transfer_until_killed(struct host *h, const void *out, void *in,
			   size_t len, void (*end)(struct host *h))
{
	ucp_request_param_t param = { 0 };
	ucs_status_ptr_t recv, send;
	ucs_status_t status;

	for (unsigned int round = 1;; round++) {
		recv = ucp_tag_recv_nbx(h->worker, in, len, round, UINT64_MAX,
					&param);
		send = ucp_tag_send_nbx(h->eps[0], out, len, round, &param);
		if (h->side && round == KILL_ROUND) {
			end(h);
			/* as SIGKILL, which a pod's first process ignores */
			_exit(128 + SIGKILL);
		}
		status = host_wait(h, send);
		while (status == UCS_OK && !h->errors &&
		       ucp_request_check_status(recv) == UCS_INPROGRESS)
			host_progress(h);
		if (status != UCS_OK || h->errors)
			break;
		ucp_request_free(recv);
	}
	while (!h->errors)
		host_progress(h);
	if (h->errors != 1)
		die("%u error callbacks", h->errors);
	/*
	 * UCX 1.18 leaves this request open forever, with any transport; the
	 * others end it.  Either way nothing of the dead may land any more.
	 */
	ucp_request_cancel(h->worker, recv);
	for (int i = 0;
	     i < 200 && ucp_request_check_status(recv) == UCS_INPROGRESS; i++)
		host_rest(h, 1);
	ucp_request_free(recv);
}

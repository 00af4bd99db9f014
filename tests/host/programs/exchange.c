/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two of these exchange data through UCP, each way at once, and check every
 * byte: tagged messages, active messages, streams, puts and gets.  Modes:
 *   all      every kind of transfer, every size (the default)
 *   connect  nothing but the connection; prints the lanes of the endpoint
 *   large    tagged messages of 1 MiB and more only
 *   headers  active messages with the longest header that UCP allows
 *   fence    puts, a fence, a put: the last one lands last
 *   late     after a full exchange one side leaves; the other gets an error,
 *	      if it has a handler, and its flush then ends, with or without
 *   killed   one side is killed in mid-transfer; the other must get an error.
 *	      EXCHANGE_GONE=/proc/sysrq-trigger ends its kernel with it
 *   alive    nothing for a while, then one side is busy for a while: both live
 *   vanished the command in EXCHANGE_VANISH cuts them off from each other: both
 *	      must get an error
 * EXCHANGE_LOOK is a command that one side runs when all is sent and counted;
 * for it, both block.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/host/programs/transfer.h"

#define GUARD	64 /* poisoned bytes around a buffer */
#define POISON	0xa5
#define MAX_LEN ((16u << 20) + 1)

static const size_t all_sizes[] = {
	0,
	1,
	7,
	8,
	63,
	256,
	1000,
	4096,
	8191,
	8193,
	32768,
	65535,
	65541,
	262144,
	(1u << 20) - 1,
	(1u << 20) + 1,
	MAX_LEN,
};
static const size_t large_sizes[] = { 1u << 20, 4u << 20, MAX_LEN };

static char *send_buf, *recv_buf; /* with room for guards and offsets */
static unsigned long transfers;

static char *am_into;

/* Where a buffer of @len starts: at any alignment. */
static char *place(char *room, unsigned int round)
{
	return room + GUARD + round % 8;
}

static void poison(char *buf, size_t len)
{
	memset(buf - GUARD, POISON, len + 2 * GUARD);
}

static void verify(struct host *h, const char *what, char *buf, size_t len,
		   unsigned int kind, unsigned int round)
{
	const char *bad = wrong(buf, len, seed_of(!h->side, kind, round));

	if (bad)
		die("%s of %zu bytes, round %u: byte %zu is wrong (0x%02x)",
		    what, len, round, (size_t)(bad - buf), (unsigned char)*bad);
	for (int i = 0; i < GUARD; i++)
		if ((unsigned char)buf[-1 - i] != POISON ||
		    (unsigned char)buf[len + (size_t)i] != POISON)
			die("%s of %zu bytes, round %u: wrote outside", what,
			    len, round);
	transfers++;
}

static void tag_round(struct host *h, ucp_ep_h ep, size_t len,
		      unsigned int round)
{
	char *out = place(send_buf, round), *in = place(recv_buf, round + 3);

	fill(out, len, seed_of(h->side, 1, round));
	poison(in, len);
	tag_both(h, ep, out, in, len, round);
	verify(h, "tagged message", in, len, 1, round);
}

static void stream_round(struct host *h, ucp_ep_h ep, size_t len,
			 unsigned int round)
{
	char *out = place(send_buf, round), *in = place(recv_buf, round + 3);
	ucp_request_param_t param = { 0 };
	ucs_status_ptr_t recv, send;
	size_t got = 0;

	if (!len)
		return; /* a stream has no empty messages */
	fill(out, len, seed_of(h->side, 2, round));
	poison(in, len);
	send = ucp_stream_send_nbx(ep, out, len, &param);
	param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
	param.flags = UCP_STREAM_RECV_FLAG_WAITALL;
	recv = ucp_stream_recv_nbx(ep, in, len, &got, &param);
	check(host_wait(h, send), "stream send");
	check(host_wait(h, recv), "stream receive");
	verify(h, "stream", in, len, 2, round);
}

static void take_eager(const void *data, size_t len)
{
	memcpy(am_into, data, len);
}

static void am_round(struct host *h, ucp_ep_h ep, size_t len,
		     unsigned int round)
{
	char *out = place(send_buf, round);

	fill(out, len, seed_of(h->side, 3, round));
	am_into = place(recv_buf, round + 3);
	poison(am_into, len);
	am_both(h, ep, out, am_into, len);
	verify(h, "active message", am_into, len, 3, round);
}

static void rma_round(struct host *h, ucp_ep_h ep, size_t len,
		      unsigned int round, bool put)
{
	const unsigned int kind = put ? 4 : 5;
	char *out = place(send_buf, round), *in = place(recv_buf, round + 3);
	const struct rma r = { .out = out,
			       .in = in,
			       .len = len,
			       .base = put ? in : out,
			       .size = len,
			       .put = put };

	if (!len)
		return; /* nothing to map */
	fill(out, len, seed_of(h->side, kind, round));
	poison(in, len);
	rma_both(h, ep, &r);
	verify(h, put ? "put" : "get", in, len, kind, round);
	barrier(h); /* the other side has looked, too */
}

static void exchange_all(struct host *h)
{
	unsigned int round = 1;

	am_setup(h, take_eager);
	for (size_t i = 0; i < sizeof(all_sizes) / sizeof(*all_sizes); i++) {
		size_t len = all_sizes[i];
		int times = len > (1u << 20) ? 1 : 3;

		for (int k = 0; k < times; k++, round++) {
			ucp_ep_h ep = h->eps[round % h->n_eps];

			tag_round(h, ep, len, round);
			am_round(h, ep, len, round);
			stream_round(h, ep, len, round);
			rma_round(h, ep, len, round, true);
			rma_round(h, ep, len, round, false);
		}
	}
}

static void exchange_large(struct host *h)
{
	unsigned int round = 1;

	for (size_t i = 0; i < 3; i++)
		for (int k = 0; k < 4; k++, round++)
			tag_round(h, h->eps[round % h->n_eps], large_sizes[i],
				  round);
}

static struct {
	char *data;	       /* of every message; the header is of @allowed */
	size_t allowed, came;  /* bytes; messages */
	uint64_t header, body; /* seeds */
} headers;

static ucs_status_t take_header(void *arg, const void *header,
				size_t header_len, void *data, size_t len,
				const ucp_am_recv_param_t *param)
{
	if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)
		die("a message that was sent eagerly came by rendezvous");
	if (header_len != headers.allowed ||
	    wrong(header, header_len, headers.header))
		die("a header of %zu bytes before %zu came wrong",
		    headers.allowed, len);
	if (wrong(data, len, headers.body))
		die("%zu bytes behind a header of %zu came wrong", len,
		    headers.allowed);
	headers.came++;
	transfers++;
	return UCS_OK;
}

/* Several at once: UCP keeps a copy of each header until it is sent. */
static void headers_round(struct host *h, size_t len, unsigned int flags)
{
	enum { AT_ONCE = 32 };
	char *header = place(recv_buf, 0), *out = place(send_buf, 0);
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = flags | UCP_AM_SEND_FLAG_EAGER,
	};
	ucs_status_ptr_t sends[AT_ONCE];

	fill(header, headers.allowed, seed_of(h->side, 7, len));
	fill(out, len, seed_of(h->side, 8, len));
	headers.header = seed_of(!h->side, 7, len);
	headers.body = seed_of(!h->side, 8, len);
	headers.came = 0;
	barrier(h);
	for (int i = 0; i < AT_ONCE; i++)
		sends[i] = ucp_am_send_nbx(h->eps[0], 1, header,
					   headers.allowed, out, len, &param);
	for (int i = 0; i < AT_ONCE; i++)
		check(host_wait(h, sends[i]), "active message with a header");
	while (headers.came < AT_ONCE)
		host_progress(h);
	barrier(h);
}

static void exchange_headers(struct host *h)
{
	static const size_t sizes[] = { 0, 1, 5000, 20000, 60000, 300000 };
	ucp_am_handler_param_t param = {
		.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
			      UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
			      UCP_AM_HANDLER_PARAM_FIELD_CB,
		.id = 1,
		.flags = UCP_AM_FLAG_WHOLE_MSG,
		.cb = take_header,
	};
	ucp_worker_attr_t attr = {
		.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER,
	};

	check(ucp_worker_set_am_recv_handler(h->worker, &param), "am handler");
	check(ucp_worker_query(h->worker, &attr), "ucp_worker_query");
	headers.allowed = attr.max_am_header;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		headers_round(h, sizes[i], 0);
		headers_round(h, sizes[i], UCP_AM_SEND_FLAG_REPLY);
	}
}

/* Many puts of one buffer, then a fence, then a flag at its end. */
static void exchange_fence(struct host *h)
{
	enum { LEN = 300001, PUTS = 40, ROUNDS = 20 };
	char *in = place(recv_buf, 0), *out = place(send_buf, 0);
	volatile char *flag = in + LEN - 1;
	ucp_request_param_t param = { 0 };
	ucs_status_ptr_t puts[PUTS + 1];
	struct window mine, theirs;
	ucp_rkey_h rkey;
	ucp_mem_h mem;

	mem = window_open(h, in, LEN, in, &mine);
	oob_send(h, &mine, sizeof(mine));
	oob_recv(h, &theirs, sizeof(theirs));
	check(ucp_ep_rkey_unpack(h->eps[0], theirs.rkey, &rkey), "unpack");
	for (unsigned int round = 1; round <= ROUNDS; round++) {
		fill(out, LEN - 1, seed_of(h->side, 6, round));
		memset(in, 0, LEN);
		out[LEN - 1] = 0;
		barrier(h);
		for (int i = 0; i < PUTS; i++)
			puts[i] = ucp_put_nbx(h->eps[0], out, LEN, theirs.addr,
					      rkey, &param);
		check(ucp_worker_fence(h->worker), "ucp_worker_fence");
		puts[PUTS] = ucp_put_nbx(h->eps[0], "\1", 1,
					 theirs.addr + LEN - 1, rkey, &param);
		while (!*flag)
			host_progress(h);
		/* what lands behind the flag would take it away again */
		for (int i = 0; i <= PUTS; i++)
			check(host_wait(h, puts[i]), "put");
		barrier(h);
		if (!*flag || wrong(in, LEN - 1, seed_of(!h->side, 6, round)))
			die("round %u: a put passed the fence", round);
		transfers += PUTS;
		barrier(h);
	}
	ucp_rkey_destroy(rkey);
	check(ucp_mem_unmap(h->context, mem), "ucp_mem_unmap");
}

/* One leaves; as with UCX's own tcp the other gets an error. */
static void exchange_late(struct host *h)
{
	ucs_status_t status;

	exchange_large(h);
	barrier(h);
	if (h->side)
		return; /* closes and leaves */
	while (!oob_closed(h))
		host_rest(h, 1);
	/* soon, and once */
	for (int i = 0; i < 5000 && h->errors != h->peer_errors; i++)
		host_rest(h, 1);
	host_rest(h, 500);
	if (h->errors != h->peer_errors)
		die("told %u times that the other side left", h->errors);
	status = host_flush(h, h->eps[0]);
	if (status != UCS_OK && status != UCS_ERR_CONNECTION_RESET &&
	    status != UCS_ERR_ENDPOINT_TIMEOUT) /* 1.13's word for it */
		check(status, "flush after the other side left");
}

static void end_here(struct host *h)
{
	const char *trigger = getenv("EXCHANGE_GONE");
	FILE *f = trigger ? fopen(trigger, "w") : NULL;

	/* as a power cut: without any close */
	if (f && fputc('b', f) != EOF)
		fclose(f);
}

/* The one that comes is killed while both send; the other must learn of it. */
static void exchange_killed(struct host *h)
{
	char *out = place(send_buf, 0), *in = place(recv_buf, 0);

	transfer_until_killed(h, out, in, MAX_LEN, end_here);
	fill(in, MAX_LEN, 99);
	host_rest(h, LINGER_MS);
	if (wrong(in, MAX_LEN, 99))
		die("bytes landed after the error was reported");
	printf("exchange: told: %s\n", ucs_status_string(h->error));
}

/* UCX's keepalive has both to itself, then one that does not answer. */
static void exchange_alive(struct host *h)
{
	tag_round(h, h->eps[0], 1000, 1);
	host_rest(h, 300);
	barrier(h);
	if (h->side)
		usleep(400000); /* computes, say */
	else
		host_rest(h, 400);
	if (h->errors)
		die("told of a peer that lives: %s",
		    ucs_status_string(h->error));
	tag_round(h, h->eps[0], MAX_LEN, 2);
	barrier(h);
}

static void exchange_vanished(struct host *h)
{
	const char *command = getenv("EXCHANGE_VANISH");

	tag_round(h, h->eps[0], 1000, 1);
	barrier(h);
	if (!h->side && system(command))
		die("cannot run '%s'", command);
	while (!h->errors)
		host_rest(h, 1);
	host_rest(h, 100);
	if (h->errors != 1)
		die("%u error callbacks", h->errors);
}

/*
 * All is sent, and nothing is closed.  Counters are written four times a
 * second, and before a program sleeps for longer.
 */
static void look(struct host *h)
{
	const char *command = getenv("EXCHANGE_LOOK");

	if (!command)
		return;
	for (int ms = 0; ms < 600; ms += 5) {
		while (ucp_worker_arm(h->worker) == UCS_ERR_BUSY)
			ucp_worker_progress(h->worker);
		usleep(5000);
		ucp_worker_progress(h->worker);
	}
	barrier(h);
	if (!h->side && system(command))
		die("'%s' fails", command);
	barrier(h);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 3 ? argv[argc - 1] : "all";
	struct host h;

	alarm(getenv("EXCHANGE_ALARM") ? atoi(getenv("EXCHANGE_ALARM")) : 60);
	send_buf = malloc(MAX_LEN + 2 * GUARD + 16);
	recv_buf = malloc(MAX_LEN + 2 * GUARD + 16);
	if (!send_buf || !recv_buf)
		die("no memory");
	memset(send_buf, 0, MAX_LEN);
	host_open(&h, argc, argv);
	host_connect(&h);
	if (!strcmp(mode, "connect")) {
		tag_round(&h, h.eps[0], 1, 1); /* lanes are final behind it */
		ucp_ep_print_info(h.eps[0], stdout);
	} else if (!strcmp(mode, "large"))
		exchange_large(&h);
	else if (!strcmp(mode, "headers"))
		exchange_headers(&h);
	else if (!strcmp(mode, "fence"))
		exchange_fence(&h);
	else if (!strcmp(mode, "late"))
		exchange_late(&h);
	else if (!strcmp(mode, "killed"))
		exchange_killed(&h);
	else if (!strcmp(mode, "alive"))
		exchange_alive(&h);
	else if (!strcmp(mode, "vanished"))
		exchange_vanished(&h);
	else
		exchange_all(&h);
	if (h.errors && strcmp(mode, "killed") && strcmp(mode, "vanished") &&
	    strcmp(mode, "late"))
		die("%u error callbacks: %s", h.errors,
		    ucs_status_string(h.error));
	if (strcmp(mode, "late") && strcmp(mode, "killed"))
		barrier(&h);
	look(&h);
	host_close(&h);
	printf("exchange: %lu transfers\n", transfers);
	return 0;
}

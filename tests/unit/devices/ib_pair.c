/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/devices/ib_pair.h"

#include <pthread.h>
#include <stdio.h>

#include "util/log.h"

const struct weft_dev_ops *const ib = &weft_ib_ops;

struct side a, b;
char logged[4096];
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void catch (void *arg, enum weft_level level, const char *file, int line,
		   const char *text)
{
	size_t n;

	(void)arg;
	(void)level;
	(void)file;
	(void)line;
	pthread_mutex_lock(&log_lock);
	n = strlen(logged);
	snprintf(logged + n, sizeof(logged) - n, "%s\n", text);
	pthread_mutex_unlock(&log_lock);
}

static void on_message(void *arg, uint8_t id, void *data, size_t len)
{
	struct side *s = arg;
	uint32_t n;

	(void)id;
	if (len != sizeof(n)) {
		s->disorder = true;
		return;
	}
	memcpy(&n, data, sizeof(n));
	s->disorder |= n != s->messages;
	s->last = n;
	s->messages++;
	if (s->told)
		s->told(n);
}

void on_notify(void *arg, uint64_t tag, uint64_t size)
{
	struct side *s = arg;

	if (s->notified)
		s->notified(tag, size);
}

void on_error(void *arg, struct weft_ep *ep, void *user, int err)
{
	struct side *s = arg;

	(void)ep;
	(void)user;
	s->errors++;
	s->error = err;
}

void on_ready(void *arg, struct weft_ep *ep, void *user)
{
	(void)arg;
	(void)ep;
	(void)user;
}

void op_done(struct weft_op *op, int status)
{
	struct wait_op *w = (struct wait_op *)op;

	w->done = true;
	w->status = status;
}

int open_side(struct side *s, const char *name)
{
	struct weft_iface_cb cb = {
		.arg = s,
		.on_message = on_message,
		.on_notify = on_notify,
		.on_error = on_error,
		.on_ready = on_ready,
	};
	const struct weft_iface_params params = {
		.netdev = name,
		.family = AF_INET,
		.cb = &cb,
	};

	memset(s, 0, sizeof(*s));
	return ib->iface_open(&params, &s->iface);
}

int connect_side(struct side *s, struct side *to)
{
	struct weft_iface_attr attr;

	ib->iface_query(to->iface, &attr);
	return ib->ep_create(s->iface, &attr.addr, NULL, &s->ep);
}

void close_side(struct side *s)
{
	if (s->ep)
		ib->ep_destroy(s->ep);
	if (s->iface)
		ib->iface_close(s->iface);
	s->ep = NULL;
	s->iface = NULL;
}

void turn(void)
{
	if (a.iface)
		ib->progress(a.iface);
	if (b.iface)
		ib->progress(b.iface);
}

void hear_anew(void)
{
	logged[0] = '\0';
	weft_log_set_sink(catch, NULL);
}

void begin(void)
{
	clearenv();
	setenv("PATH", "/bin:/usr/bin", 1);
	weft_settings_reset();
	hear_anew();
	fake_verbs_begin();
}

void end(void)
{
	fake_verbs_end();
}

void nothing_lives(const char *when)
{
	struct fake_verbs_live l;

	fake_verbs_live(&l);
	cr_expect(
		l.contexts + l.pds + l.mrs + l.channels + l.cqs + l.qps == 0,
		"after %s: %u contexts, %u PDs, %u MRs, %u channels, %u CQs, %u QPs",
		when, l.contexts, l.pds, l.mrs, l.channels, l.cqs, l.qps);
}

void pair_up(void)
{
	cr_assert(zero(int, open_side(&a, "fake0:1")));
	cr_assert(zero(int, open_side(&b, "fake1:1")));
	cr_assert(zero(int, connect_side(&a, &b)));
	cr_assert(zero(int, connect_side(&b, &a)));
	cr_assert(until(ib->ready(a.ep) && ib->ready(b.ep)));
}

void pair_down(void)
{
	close_side(&a);
	close_side(&b);
	nothing_lives("closing");
}

int send_number(struct side *s, uint32_t n)
{
	struct iovec iov = { &n, sizeof(n) };

	return ib->message(s->ep, 1, &iov, 1, NULL);
}

uint8_t *buffer(uint8_t value)
{
	uint8_t *p = malloc(LEN);

	memset(p, value, LEN);
	return p;
}

int put_all(uint8_t *src, uint8_t *dst, struct weft_mem *mem)
{
	struct weft_iov iov = { src, LEN, NULL };
	struct wait_op w = { .op.done = op_done };
	uint8_t key[WEFT_RKEY_MAX];
	int ret;

	ib->mem_pack(mem, &key);
	if (!until(ib->ready(a.ep)))
		return -ETIME;
	ret = ib->put(a.ep, &iov, 1, (uintptr_t)dst, &key, NULL, &w.op);
	if (ret != -EINPROGRESS)
		return ret;
	return until(w.done) ? w.status : -ETIME;
}

bool unneeded(const char *call)
{
	return !strcmp(call, "create_qp");
}

bool survived(const char *call)
{
	static const char *const calls[] = {
		"close_device",		"dealloc_pd", "dereg_mr",
		"destroy_comp_channel", "destroy_cq", "destroy_qp",
		"modify_qp to ERR",
	};
	size_t i;

	for (i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		if (!strcmp(calls[i], call))
			return true;
	return unneeded(call);
}

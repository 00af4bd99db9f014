/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/lib/pair.h"

#include <poll.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "util/bytes.h"
#include "util/log.h"

uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ull + ts.tv_nsec / 1000000;
}

/* ---- sides --------------------------------------------------------------- */

static void on_message(void *arg, uint8_t id, void *data, size_t len)
{
	struct side *s = arg;
	struct inbox_message *m;

	/* a test may read it in another thread */
	__atomic_fetch_add(&s->messages, 1, __ATOMIC_RELAXED);
	if (s->hook) {
		s->hook(s, id, data, len);
		return;
	}
	m = malloc(sizeof(*m) + len);
	check(m, "out of memory");
	m->next = NULL;
	m->id = id;
	m->len = len;
	memcpy(m->data, data, len);
	*s->last = m;
	s->last = &m->next;
}

static void on_notify(void *arg, uint64_t tag, uint64_t size)
{
	struct side *s = arg;

	s->notifies++;
	s->notify_tag = tag;
	s->notify_size = size;
	if (s->notify_hook)
		s->notify_hook(tag, size);
}

static void on_error(void *arg, struct weft_ep *ep, void *user, int err)
{
	struct side *s = arg;

	s->errors++;
	s->error = err;
	s->error_user = user;
}

static void on_ready(void *arg, struct weft_ep *ep, void *user)
{
	struct side *s = arg;

	s->readies++;
}

int side_init(struct side *s, const struct weft_dev_ops *ops,
	      const char *netdev, int family)
{
	const struct weft_iface_cb cb = {
		.arg = s,
		.on_message = on_message,
		.on_notify = on_notify,
		.on_error = on_error,
		.on_ready = on_ready,
	};
	const struct weft_iface_params params = {
		.netdev = netdev,
		.family = family,
		.cb = &cb,
	};
	int ret;

	memset(s, 0, sizeof(*s));
	s->ops = ops;
	s->last = &s->first;
	ret = ops->iface_open(&params, &s->iface);
	if (ret)
		s->iface = NULL;
	else
		ops->iface_query(s->iface, &s->attr);
	return ret;
}

void side_close(struct side *s)
{
	struct inbox_message *m;

	if (s->ep)
		s->ops->ep_destroy(s->ep);
	if (s->iface)
		s->ops->iface_close(s->iface);
	s->ep = NULL;
	s->iface = NULL;
	while ((m = s->first)) {
		s->first = m->next;
		free(m);
	}
}

int side_dial(struct side *from, const struct side *to)
{
	return from->ops->ep_create(from->iface, &to->attr.addr, NULL,
				    &from->ep);
}

bool side_is_woken(struct side *s, int ms)
{
	struct pollfd p = { s->ops->event_fd(s->iface), POLLIN, 0 };

	return poll(&p, 1, ms) == 1;
}

void side_progress(struct side *s)
{
	s->ops->progress(s->iface);
}

void both_progress(struct side *a, struct side *b)
{
	if (a && a->iface)
		side_progress(a);
	if (b && b->iface)
		side_progress(b);
}

struct inbox_message *side_take(struct side *s)
{
	struct inbox_message *m = s->first;

	if (m) {
		s->first = m->next;
		if (!s->first)
			s->last = &s->first;
	}
	return m;
}

void leave_cpu(uint64_t begin)
{
	if (now_ms() - begin > BUSY_MS)
		usleep(100);
}

void run_for(struct side *a, struct side *b, unsigned int ms)
{
	const uint64_t begin = now_ms();

	while (now_ms() - begin < ms) {
		both_progress(a, b);
		if (now_ms() - begin > BUSY_MS)
			usleep(1000);
	}
}

void wait_op_done(struct weft_op *op, int status)
{
	struct wait_op *w = (struct wait_op *)op;

	w->done++;
	w->status = status;
	if (w->hook)
		w->hook(w);
}

void wait_op_init(struct wait_op *w)
{
	*w = (struct wait_op)WAIT_OP;
}

/* ---- the log ------------------------------------------------------------- */

char logged[16384];
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void keep_line(void *arg, enum weft_level level, const char *file,
		      int line, const char *text)
{
	size_t have;

	if (level > WEFT_LOG_WARN)
		return;
	pthread_mutex_lock(&log_lock);
	have = strlen(logged);
	check(have + strlen(text) + 2 <= sizeof(logged), "too many lines: %s",
	      text);
	sprintf(logged + have, "%s\n", text);
	pthread_mutex_unlock(&log_lock);
}

void log_keep(void)
{
	logged[0] = '\0';
	weft_log_set_sink(keep_line, NULL);
}

unsigned int log_lines(const char *part)
{
	const char *at, *line;
	unsigned int n = 0;

	pthread_mutex_lock(&log_lock);
	for (line = logged; *line; line = strchr(line, '\n') + 1) {
		at = strstr(line, part);
		n += at && at <= strchr(line, '\n');
	}
	pthread_mutex_unlock(&log_lock);
	return n;
}

/* ---- patterns ------------------------------------------------------------ */

static uint32_t pattern_word(size_t i, unsigned int seed)
{
	const uint32_t x = (uint32_t)i * 2654435761u + seed * 40503u;

	return x ^ x >> 15;
}

uint8_t pattern_byte(size_t off, unsigned int seed)
{
	return pattern_word(off >> 2, seed) >> (8 * (off & 3));
}

void pattern_fill(void *p, size_t len, unsigned int seed)
{
	uint8_t *b = p;
	size_t i;

	for (i = 0; i + 4 <= len; i += 4)
		weft_put_le32(b + i, pattern_word(i >> 2, seed));
	for (; i < len; i++)
		b[i] = pattern_byte(i, seed);
}

void pattern_check(const char *what, const void *p, size_t len,
		   unsigned int seed)
{
	const uint8_t *b = p;
	size_t i;

	for (i = 0; i < len; i++)
		if (i % 4 == 0 && len - i >= 4 &&
		    weft_get_le32(b + i) == pattern_word(i >> 2, seed))
			i += 3;
		else
			check(b[i] == pattern_byte(i, seed),
			      "%s: byte %zu of %zu is %02x, not %02x", what, i,
			      len, b[i], pattern_byte(i, seed));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows: memory through which GPUs of two processes pass bytes, one for each
 * direction.  The writer requests one from its reader and leaves it after a
 * long idle time, both with records, so that each side knows what the other
 * uses.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "devices/local/frame.h"
#include "devices/common/memfd.h"
#include "devices/shm/shm_break.h"
#include "devices/shm/shm_ring.h"
#include "devices/shm/shm_window.h"
#include "util/clock.h"
#include "util/log.h"

struct shm_tune shm_tune = {
	.chunk = 1u << 20,
	.idle_ms = 30000,
};

static uint64_t align_up(uint64_t at)
{
	return (at + SHM_CHUNK_ALIGN - 1) & ~(uint64_t)(SHM_CHUNK_ALIGN - 1);
}

/* ---- one that is read ---------------------------------------------------- */

static int make(struct shm_conn *conn, size_t size)
{
	struct shm_window *w = calloc(1, sizeof(*w));
	void *p;
	int fd;

	if (!w)
		return -ENOMEM;
	fd = weft_memfd_make("weft-window", size, &p);
	if (fd < 0) {
		free(w);
		return fd;
	}
	w->map = p;
	w->size = size;
	conn->in = w;
	conn->offer_fd = fd;
	shm_conn_attend(conn);
	conn->iface->nwindows += size == SHM_WINDOW;
	return 0;
}

int shm_window_offer(struct shm_conn *conn)
{
	int err = -ENOMEM;

	if (conn->in)
		return -EPROTO;
	if (conn->iface->nwindows < SHM_WINDOWS)
		err = make(conn, SHM_WINDOW);
	if (err)
		err = make(conn, SHM_WINDOW_SMALL);
	if (err)
		return weft_fail(
			err,
			"cannot set up %u KiB of shared memory for GPU memory of a peer on this host",
			SHM_WINDOW_SMALL >> 10);
	atomic_store(&conn->rx.shared->window, 0);
	shm_window_send(conn);
	return 0;
}

unsigned int shm_window_send(struct shm_conn *conn)
{
	const struct shm_frame f = { SHM_FRAME_MAGIC, SHM_FRAME_WINDOW,
				     conn->in->size };
	const int err =
		weft_frame_send(conn->fd, &f, sizeof(f), conn->offer_fd);

	/* a full socket: the peer has enough to read, and wakes */
	if (err == -EAGAIN)
		return 0;
	close(conn->offer_fd);
	conn->offer_fd = -1;
	if (err && err != -EPIPE && err != -ECONNRESET)
		shm_conn_break(conn, err);
	return 1;
}

struct shm_chunk *shm_window_claim(struct shm_conn *conn,
				   const struct shm_place *place)
{
	struct shm_window *w = conn->in;
	struct shm_chunk *c;
	uint64_t end;

	if (!w || w->in - w->out == SHM_CHUNKS ||
	    place->pos % SHM_CHUNK_ALIGN || place->pos < w->pos ||
	    place->pos > w->freed + w->size || !place->len ||
	    place->len > w->size || place->pos % w->size + place->len > w->size)
		return NULL;
	end = align_up(place->pos + place->len);
	if (end - w->freed > w->size)
		return NULL;
	c = &w->chunks[w->in++ % SHM_CHUNKS];
	c->pos = place->pos;
	c->len = place->len;
	c->end = w->pos = end;
	c->left = 0;
	weft_count_owned(conn->stats, wire_rx_bytes, c->len);
	return c;
}

void shm_window_free(struct shm_conn *conn)
{
	struct shm_window *w = conn->in;
	const uint64_t before = w->freed;

	while (w->out != w->in && !w->chunks[w->out % SHM_CHUNKS].left)
		w->freed = w->chunks[w->out++ % SHM_CHUNKS].end;
	if (w->freed == before || !shm_conn_is_open(conn))
		return;
	atomic_store_explicit(&conn->rx.shared->window, w->freed,
			      memory_order_release);
	shm_ring_wake_writer(conn);
}

/* ---- one that is written ------------------------------------------------- */

int shm_window_take(struct shm_conn *conn, size_t size, int fd)
{
	struct shm_window *w = NULL;
	void *p;
	int err = -EPROTO;

	if (conn->wanted && !conn->out &&
	    (size == SHM_WINDOW || size == SHM_WINDOW_SMALL))
		err = weft_memfd_map(fd, size, PROT_READ | PROT_WRITE, &p);
	close(fd);
	if (err)
		return err;
	w = calloc(1, sizeof(*w));
	if (!w) {
		munmap(p, size);
		return -ENOMEM;
	}
	w->map = p;
	w->size = size;
	w->used_ms = weft_now_ms();
	conn->out = w;
	weft_events_wake_at(&conn->iface->base.events,
			    w->used_ms + shm_tune.idle_ms);
	return 0;
}

/* Reads what the reader has freed. */
static void read_freed(struct shm_conn *conn)
{
	struct shm_window *w = conn->out;
	const uint64_t freed = atomic_load_explicit(&conn->tx.shared->window,
						    memory_order_acquire);
	uint64_t most = w->freed;

	if (w->out == w->sent)
		return;
	most = w->chunks[(w->sent - 1) % SHM_CHUNKS].end;
	if (freed > most) {
		weft_error(
			"a peer on this host reports more bytes of its window read than were sent");
		shm_conn_break(conn, -EPROTO);
		return;
	}
	while (w->out != w->sent && w->chunks[w->out % SHM_CHUNKS].end <= freed)
		w->freed = w->chunks[w->out++ % SHM_CHUNKS].end;
}

/* Where @len bytes in one piece begin. */
static uint64_t next_pos(const struct shm_window *w, size_t len)
{
	const size_t to_end = w->size - w->pos % w->size;

	return to_end < len ? w->pos + to_end : w->pos;
}

static bool fits(const struct shm_window *w, size_t len)
{
	return w->in - w->out < SHM_CHUNKS &&
	       next_pos(w, len) + len - w->freed <= w->size;
}

bool shm_window_has_room(struct shm_conn *conn, size_t len)
{
	if (fits(conn->out, len))
		return true;
	read_freed(conn);
	return fits(conn->out, len);
}

struct shm_chunk *shm_window_take_room(struct shm_conn *conn, size_t len)
{
	struct shm_window *w = conn->out;
	struct shm_chunk *c;

	if (!shm_window_has_room(conn, len))
		return NULL;
	c = &w->chunks[w->in++ % SHM_CHUNKS];
	c->start = w->pos;
	c->pos = next_pos(w, len);
	c->len = len;
	c->end = w->pos = align_up(c->pos + len);
	c->status = 0;
	c->left = 0;
	w->used_ms = weft_now_ms();
	return c;
}

/* ---- the end of windows -------------------------------------------------- */

static void free_window(struct shm_window *w)
{
	struct weft_cuda_scope s;

	/* a context that its owner has destroyed took the registration along */
	if (w->pinned && !weft_cuda_enter_kept(&s, &w->ctx)) {
		s.cu->host_unregister(w->map);
		weft_cuda_leave(&s);
	}
	munmap(w->map, w->size);
	free(w);
}

static void close_in(struct shm_conn *conn)
{
	if (!conn->in)
		return;
	conn->iface->nwindows -= conn->in->size == SHM_WINDOW;
	free_window(conn->in);
	conn->in = NULL;
	if (conn->offer_fd >= 0)
		close(conn->offer_fd);
	conn->offer_fd = -1;
}

static void close_out(struct shm_conn *conn)
{
	if (conn->out)
		free_window(conn->out);
	conn->out = NULL;
	conn->wanted = false;
}

void shm_window_close(struct shm_conn *conn)
{
	close_in(conn);
	close_out(conn);
}

int shm_window_left(struct shm_conn *conn)
{
	if (!conn->in || conn->offer_fd >= 0 || conn->in->in != conn->in->out)
		return -EPROTO;
	close_in(conn);
	return 0;
}

void shm_window_tick(struct shm_conn *conn, uint64_t now)
{
	struct shm_window *w = conn->out;
	uint64_t due;

	if (!w || !shm_conn_is_open(conn))
		return;
	read_freed(conn);
	due = w->used_ms + shm_tune.idle_ms;
	if (now < due || w->in != w->out || conn->nstaging ||
	    !shm_ring_has_room(conn, 0)) {
		weft_events_wake_at(&conn->iface->base.events,
				    now < due ? due : now + shm_tune.idle_ms);
		return;
	}
	shm_ring_begin(conn, 0);
	shm_ring_end(conn, (struct shm_record){ .kind = SHM_LEAVE });
	shm_ring_wake(conn);
	close_out(conn);
}

/* ---- engines ------------------------------------------------------------- */

void shm_window_pin(struct shm_window *w, const struct weft_engine *engine)
{
	struct weft_cuda_scope s;
	int r;

	if (w->pin_tried || weft_cuda_enter_kept(&s, &engine->ctx))
		return;
	r = s.cu->host_register(w->map, w->size, WEFT_CU_HOSTREGISTER_PORTABLE);
	weft_cuda_leave(&s);
	w->pin_tried = true;
	w->pinned = !r;
	w->ctx = engine->ctx;
	if (r)
		weft_warn_once(
			"shared memory for GPU memory cannot be registered with CUDA (%s), which makes copies slow: raise the limit on locked memory",
			weft_cuda_error_name(r));
}

void shm_window_cancel(struct shm_conn *conn)
{
	/* while it is open, what the peer puts and gets goes on */
	weft_copy_cancel(&conn->iface->engines, conn, !shm_conn_is_open(conn));
}

void shm_window_stop(struct shm_conn *conn)
{
	if (!conn->copies)
		return;
	shm_window_cancel(conn);
	weft_copy_stop(&conn->iface->engines, &conn->copies);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The peer's memory that is mapped here, from its first use until its owner has
 * no registration of it, or others need the room.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "devices/nvlink/nvl_conn.h"
#include "devices/nvlink/nvl_import.h"
#include "devices/nvlink/nvl_life.h"
#include "devices/nvlink/nvl_op.h"
#include "devices/nvlink/nvl_unmap.h"
#include "util/log.h"

/*
 * Addresses that one peer may have reserved here: 16 GPUs, as many as any host
 * with NVLink has (HGX-2), with 512 GiB each; a B300 has 288 GB (NVIDIA's data
 * sheets).  A process has 128 TiB of them (x86-64, four levels of tables).
 */
#define IMPORT_BYTES ((uint64_t)8 << 40)

/*
 * What is open by a handle, of all interfaces: each may have to close another
 * one's, whose thread need not run.  An import's mapping is closed by others
 * with the lock and while it has no users; only its owner gives it some, and
 * takes the lock for it.
 */
static pthread_mutex_t opened_lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_list opened = { &opened, &opened };

void nvl_import_forget(void)
{
	opened_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	weft_list_init(&opened);
}

/* ---- the end of one ------------------------------------------------------ */

/* With the lock. */
static void close_mapping(struct nvl_import *im)
{
	weft_list_del(&im->opened_link);
	nvl_map_close(&im->map);
}

static void free_import(struct nvl_conn *conn, struct nvl_import *im)
{
	weft_table_del(&conn->by_id, &im->entry);
	weft_list_del(&im->link);
	conn->nimports--;
	conn->npending -= im->pending;
	conn->imported -= im->size;
	pthread_mutex_lock(&opened_lock);
	close_mapping(im);
	pthread_mutex_unlock(&opened_lock);
	free(im);
}

/* While its parts are on their way they need a place. */
static bool nvl_is_idle(const struct nvl_import *im)
{
	return !im->users && !im->pending;
}

static bool is_dead(const struct nvl_conn *conn, const struct nvl_import *im)
{
	return im->err || !nvl_is_alive(conn->table, &im->whole);
}

void nvl_import_put(struct nvl_conn *conn, struct nvl_import *im)
{
	pthread_mutex_lock(&opened_lock);
	im->users--;
	pthread_mutex_unlock(&opened_lock);
	if (nvl_is_idle(im) && is_dead(conn, im))
		free_import(conn, im);
}

static void drop_dead(struct nvl_conn *conn)
{
	struct nvl_import *im, *tmp;

	weft_list_for_each (im, tmp, &conn->imports, link)
		if (nvl_is_idle(im) && is_dead(conn, im))
			free_import(conn, im);
}

void nvl_import_tick(struct nvl_conn *conn)
{
	const uint32_t ended =
		atomic_load_explicit(&conn->table->ended, memory_order_acquire);

	if (ended == conn->ended)
		return;
	conn->ended = ended;
	drop_dead(conn);
}

void nvl_import_close(struct nvl_conn *conn)
{
	struct nvl_import *im, *tmp;

	weft_list_for_each (im, tmp, &conn->imports, link)
		free_import(conn, im);
	weft_table_free(&conn->by_id);
}

/* Unmaps the least recently used one; false: all are in use. */
static bool drop_oldest(struct nvl_conn *conn)
{
	struct nvl_import *im, *tmp;

	weft_list_for_each (im, tmp, &conn->imports, link)
		if (nvl_is_idle(im)) {
			free_import(conn, im);
			return true;
		}
	return false;
}

static bool nvl_make_room(struct nvl_conn *conn, uint64_t size)
{
	if (size > IMPORT_BYTES)
		return false;
	while (conn->nimports == NVL_IMPORTS ||
	       size > IMPORT_BYTES - conn->imported)
		if (!drop_oldest(conn))
			return false;
	return true;
}

/* ---- mapping ------------------------------------------------------------- */

/*
 * The driver opens no handle of its own process, whose memory needs no mapping.
 */
static bool is_own(const struct nvl_key *key)
{
	return key->kind == NVL_KEY_HANDLE && key->process == nvl_process();
}

/* The driver maps such pieces as a whole: CUDA's granularity. */
#define PIECE ((uint64_t)2 << 20)

/* Lie both in the same pieces of their owner's addresses? */
static bool shares_place(const struct nvl_import *im, const struct nvl_key *key)
{
	const uint64_t first = key->base / PIECE;
	const uint64_t last = (key->base + key->size - 1) / PIECE;

	return im->base / PIECE <= last &&
	       (im->base + im->size - 1) / PIECE >= first;
}

static bool is_same_life(const struct nvl_life *a, const struct nvl_life *b)
{
	return a->slot == b->slot && a->serial == b->serial;
}

/*
 * What is mapped of the place where @key's memory is now.  That of another
 * allocation there is opened again when it is used again.
 */
static void close_replaced(const struct nvl_key *key)
{
	struct nvl_import *im, *tmp;

	pthread_mutex_lock(&opened_lock);
	weft_list_for_each (im, tmp, &opened, opened_link)
		if (!im->users && im->process == key->process &&
		    !is_same_life(&im->whole, &key->whole) &&
		    shares_place(im, key))
			close_mapping(im);
	pthread_mutex_unlock(&opened_lock);
	nvl_unmap_drain();
}

/*
 * New memory may have the address of older memory that is still mapped here,
 * and the driver maps an address once (CUDA_ERROR_ALREADY_MAPPED; UCX's
 * cuda_ipc has the same problem).
 */
static int open_handle(struct nvl_import *im, const struct nvl_key *key)
{
	int r = nvl_map_handle(&im->map, im->engine, key->handle, im->size);

	if (r) {
		close_replaced(key);
		r = nvl_map_handle(&im->map, im->engine, key->handle, im->size);
	}
	if (r) {
		weft_debug("memory of a peer's GPU is not mapped (%s)",
			   weft_cuda_error_name(r));
		/* freed meanwhile, as a rule: no better than a bad key */
		return -EACCES;
	}
	pthread_mutex_lock(&opened_lock);
	weft_list_add_tail(&opened, &im->opened_link);
	pthread_mutex_unlock(&opened_lock);
	return 0;
}

static int fetch_parts(struct nvl_conn *conn, struct nvl_import *im,
		       const struct nvl_key *key)
{
	struct nvl_frame f = { .type = NVL_FRAME_FETCH,
			       .id = key->id,
			       .token = key->token };
	int err = nvl_map_reserve(&im->map, im->engine, im->size);

	if (err)
		return err;
	im->pending = true;
	conn->npending++;
	nvl_conn_send(conn, &f);
	return 0;
}

static int map_import(struct nvl_conn *conn, struct nvl_import *im,
		      const struct nvl_key *key)
{
	if (is_own(key)) {
		nvl_map_own(&im->map, key->base);
		return 0;
	}
	return key->kind == NVL_KEY_HANDLE ? open_handle(im, key)
					   : fetch_parts(conn, im, key);
}

static bool is_sane(const struct nvl_key *key)
{
	return (key->kind == NVL_KEY_HANDLE || key->kind == NVL_KEY_PARTS) &&
	       key->size && key->addr >= key->base && key->len <= key->size &&
	       key->addr - key->base <= key->size - key->len;
}

static struct nvl_import *add_import(struct nvl_conn *conn,
				     const struct nvl_key *key,
				     struct weft_engine *engine, int *err)
{
	struct nvl_import *im;

	*err = -EACCES;
	if (!is_sane(key))
		return NULL;
	*err = -ENOSPC;
	if (!nvl_make_room(conn, key->size))
		return NULL;
	*err = -ENOMEM;
	im = calloc(1, sizeof(*im));
	if (!im)
		return NULL;
	weft_list_init(&im->waiting);
	weft_list_init(&im->opened_link);
	im->users = 1;
	im->process = key->process;
	im->engine = engine;
	im->base = key->base;
	im->size = key->size;
	im->whole = key->whole;
	if (weft_table_add(&conn->by_id, &im->entry, key->id)) {
		free(im);
		return NULL;
	}
	weft_list_add_tail(&conn->imports, &im->link);
	conn->nimports++;
	conn->imported += im->size;
	*err = map_import(conn, im, key);
	if (!*err)
		return im;
	free_import(conn, im);
	return NULL;
}

/*
 * The driver opens a handle for one context alone, so memory that several GPUs
 * here copy is mapped for each.
 */
static bool is_for(const struct nvl_import *im,
		   const struct weft_engine *engine)
{
	return im->engine == engine || im->map.kind == NVL_MAP_OWN ||
	       im->map.kind == NVL_MAP_PARTS;
}

/* With the lock. */
static struct nvl_import *find_import(const struct nvl_conn *conn,
				      const struct nvl_key *key,
				      const struct weft_engine *engine)
{
	struct weft_entry *e = weft_table_find(&conn->by_id, key->id);
	struct nvl_import *im;

	for (; e; e = weft_table_next(e)) {
		im = container_of(e, struct nvl_import, entry);
		if (!im->err && im->base == key->base &&
		    im->size == key->size &&
		    is_same_life(&im->whole, &key->whole) && is_for(im, engine))
			return im;
	}
	return NULL;
}

struct nvl_import *nvl_import_get(struct nvl_conn *conn,
				  const struct nvl_key *key,
				  struct weft_engine *engine, int *err)
{
	struct nvl_import *im;
	bool closed;

	pthread_mutex_lock(&opened_lock);
	im = find_import(conn, key, engine);
	closed = im && im->map.kind == NVL_MAP_NONE; /* by another interface */
	if (im && !closed)
		im->users++;
	pthread_mutex_unlock(&opened_lock);
	if (closed)
		free_import(conn, im);
	if (!im || closed)
		return add_import(conn, key, engine, err);
	weft_list_del(&im->link);
	weft_list_add_tail(&conn->imports, &im->link);
	return im;
}

/* ---- the peer's replies -------------------------------------------------- */

/* Everything has arrived, or will not; im->err tells the operations. */
static void end_fetch(struct nvl_conn *conn, struct nvl_import *im, int err)
{
	struct nvl_op *o;

	im->pending = false;
	im->err = err;
	conn->npending--;
	im->users++; /* keeps it */
	while (!weft_list_empty(&im->waiting)) {
		o = weft_list_first(&im->waiting, struct nvl_op, wait_link);
		weft_list_del(&o->wait_link);
		nvl_op_go(o);
	}
	nvl_import_put(conn, im);
}

static struct nvl_import *find_pending(const struct nvl_conn *conn, uint64_t id)
{
	struct weft_entry *e = weft_table_find(&conn->by_id, id);
	struct nvl_import *im;

	for (; e; e = weft_table_next(e)) {
		im = container_of(e, struct nvl_import, entry);
		if (im->pending)
			return im;
	}
	return NULL;
}

/* They come one behind the other, and all of them or NONE. */
static int handle_part(struct nvl_conn *conn, struct nvl_import *im,
		       const struct nvl_frame *f, int fd)
{
	int err = 0;

	if (!f->len || f->len > im->size - im->mapped ||
	    im->nparts++ == NVL_PARTS)
		return -EPROTO;
	if (!im->err)
		err = fd < 0 ? -EMFILE
			     : nvl_map_part(&im->map, im->mapped, fd, f->len);
	if (!im->err)
		im->err = err;
	im->mapped += f->len;
	if (im->mapped == im->size)
		end_fetch(conn, im, im->err);
	return 0;
}

/* An operation that ends with it has failed, and the connection with it. */
static bool is_failure(int err)
{
	return err < 0 && err != -EINPROGRESS && err != -ECANCELED;
}

int nvl_import_frame(struct nvl_conn *conn, const struct nvl_frame *f, int fd)
{
	struct nvl_import *im = find_pending(conn, f->id);

	if (!im)
		return -EPROTO;
	if (f->type == NVL_FRAME_PART)
		return handle_part(conn, im, f, fd);
	end_fetch(conn, im, is_failure(f->err) ? f->err : -EACCES);
	return 0;
}

/* ---- reach --------------------------------------------------------------- */

/*
 * Processes whose handles the driver opens here: once it has opened one, do not
 * try others, which costs as much as mapping the memory.
 */
#define PROVEN 1024u

static pthread_mutex_t proven_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t proven[PROVEN];
static unsigned int nproven;

static bool is_proven(uint32_t process)
{
	bool found = false;
	unsigned int i;

	pthread_mutex_lock(&proven_lock);
	for (i = 0; i < weft_min(nproven, PROVEN) && !found; i++)
		found = proven[i] == process;
	pthread_mutex_unlock(&proven_lock);
	return found;
}

static void note_proven(uint32_t process)
{
	pthread_mutex_lock(&proven_lock);
	proven[nproven++ % PROVEN] = process;
	pthread_mutex_unlock(&proven_lock);
}

/* A key of freed memory, or a refusal, proves nothing: try the next one. */
static int try_handle(const struct nvl_key *key)
{
	int r = nvl_map_try(key->handle);

	if (!r) {
		note_proven(key->process);
		return 0;
	}
	weft_debug("the driver does not open a peer's IPC handle (%s)",
		   weft_cuda_error_name(r));
	return -EHOSTUNREACH;
}

int nvl_import_reaches(const void *rkey)
{
	struct nvl_key key;

	memcpy(&key, rkey, sizeof(key));
	if (!is_sane(&key))
		return -EHOSTUNREACH;
	if (key.kind == NVL_KEY_PARTS || is_own(&key) || is_proven(key.process))
		return 0;
	return try_handle(&key);
}

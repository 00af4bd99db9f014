/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The peer's memory that is mapped here.  A key is queried when it is used for
 * the second time; the ring serves until the reply has come and all is mapped.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/settings.h"
#include "devices/memfd.h"
#include "devices/nvlink/nvl_direct.h"
#include "devices/nvlink/nvl_sock.h"
#include "util/clock.h"
#include "util/log.h"

/*
 * Addresses that one peer may have reserved here: 16 GPUs, as many as any host
 * with NVLink has (HGX-2), with 512 GiB each; a B300 has 288 GB (NVIDIA's data
 * sheets).  A process has 128 TiB of them (x86-64, four levels of tables).
 */
#define IMPORT_BYTES ((uint64_t)8 << 40)

/* ---- mappings ------------------------------------------------------------ */

static struct nvl_import *find_import(struct nvl_conn *conn, uint64_t id)
{
	struct nvl_import *im, *tmp;

	weft_list_for_each (im, tmp, &conn->imports, link)
		if (im->id == id)
			return im;
	return NULL;
}

static void free_import(struct nvl_conn *conn, struct nvl_import *im)
{
	weft_list_del(&im->link);
	conn->nimports--;
	conn->imported -= im->map.size;
	/* the thread is for unmapping alone, which waits for kernels */
	if (!conn->iface->unmapper)
		nvl_unmap_begin(conn->iface);
	nvl_map_close(conn->iface, &im->map);
	free(im);
}

static void check_import(struct nvl_conn *conn, struct nvl_import *im)
{
	/* while its parts are on their way they need a place */
	if (!im->views && !im->copies && (im->ready || im->failed))
		free_import(conn, im);
}

void nvl_import_put(struct nvl_conn *conn, struct nvl_import *im)
{
	im->copies--;
	check_import(conn, im);
}

static void drop_view(struct nvl_conn *conn, struct nvl_view *v)
{
	struct nvl_import *im = v->import;

	weft_table_del(&conn->views, &v->entry);
	weft_list_del(&v->link);
	free(v);
	if (im) {
		im->views--;
		check_import(conn, im);
	}
}

static bool is_live(const struct nvl_conn *conn, const struct nvl_view *v)
{
	return atomic_load_explicit(&conn->tx.head->live[v->slot],
				    memory_order_acquire) == v->serial;
}

/* Of what is mapped in the same way no more is. */
static bool *path_refused(struct nvl_conn *conn, uint8_t loc, bool by_handle)
{
	struct nvl_route *p = &conn->paths[loc];

	return by_handle ? &p->not_by_handle : &p->not_direct;
}

static void refuse_path(struct nvl_conn *conn, const struct nvl_view *v)
{
	*path_refused(conn, v->loc, v->by_handle) = true;
}

/*
 * Nor will it be: all that goes there goes over the ring, unless it was freed
 * meanwhile.
 */
static void give_up(struct nvl_conn *conn, struct nvl_import *im, int err,
		    const char *why)
{
	struct nvl_view *v, *tmp;

	weft_debug("memory of a peer's GPU is not mapped (%s): it goes "
		   "over a ring",
		   why);
	im->failed = true;
	im->views++; /* keeps it */
	weft_list_for_each (v, tmp, &conn->view_list, link) {
		if (v->import != im)
			continue;
		if (err != -EACCES && is_live(conn, v))
			refuse_path(conn, v);
		drop_view(conn, v);
	}
	im->views--;
}

/* ---- keys ---------------------------------------------------------------- */

static struct nvl_view *find_view(struct nvl_conn *conn,
				  const struct weft_rkey *key)
{
	struct weft_entry *e = weft_table_find(&conn->views, key->token);
	struct nvl_view *v;

	for (; e; e = weft_table_next(e)) {
		v = container_of(e, struct nvl_view, entry);
		if (weft_rkey_same(&v->key, key))
			return v;
	}
	return NULL;
}

static void send_frame(struct nvl_conn *conn, struct nvl_frame *f, int fd)
{
	int err = nvl_sock_send(conn, f, fd);

	if (err)
		nvl_conn_break(conn, err);
}

static void send_key(struct nvl_conn *conn, uint8_t type,
		     const struct weft_rkey *key, uint64_t id)
{
	struct nvl_frame f = { .type = type,
			       .id = id,
			       .slot = key->slot,
			       .generation = key->generation,
			       .token = key->token };

	send_frame(conn, &f, -1);
}

/*
 * Has it been used before?  To export and map an allocation takes the drivers
 * 80 us and more (580, H200), which what is used once does not bring in.  Of
 * more keys than there are places some are forgotten.
 */
static bool was_used(struct nvl_conn *conn, const struct weft_rkey *key)
{
	unsigned int i;

	for (i = 0; i < NVL_VIEWS; i++)
		if (conn->used[i] == key->token)
			return true;
	/* anywhere: were it the oldest, keys by turns would all be forgotten */
	conn->used[(key->token + conn->nused++) % NVL_VIEWS] = key->token;
	return false;
}

/* A process opens no handle of its own.  Seen from here no two have one pid. */
static bool is_own_process(const struct nvl_conn *conn)
{
	struct ucred peer = { 0 };
	socklen_t len = sizeof(peer);

	return !getsockopt(conn->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) &&
	       peer.pid == getpid();
}

static void query_key(struct nvl_conn *conn, const struct weft_rkey *key,
		      uint8_t loc, struct weft_engine *gpu)
{
	const bool by_handle = loc & NVL_LOC_HANDLE;
	struct nvl_frame marks = { .type = NVL_FRAME_MARKS };
	struct nvl_view *v;

	loc &= ~NVL_LOC_HANDLE;
	if (loc >= NVL_LOCS || *path_refused(conn, loc, by_handle) ||
	    conn->views.n >= NVL_VIEWS || !was_used(conn, key))
		return;
	if (by_handle && is_own_process(conn)) {
		*path_refused(conn, loc, true) = true;
		return;
	}
	v = calloc(1, sizeof(*v));
	if (!v || weft_table_add(&conn->views, &v->entry, key->token)) {
		free(v);
		return;
	}
	v->key = *key;
	v->loc = loc;
	v->by_handle = by_handle;
	v->gpu = gpu;
	weft_list_add_tail(&conn->view_list, &v->link);
	if (!conn->marks_sent)
		send_frame(conn, &marks, conn->iface->engines.marks_fd);
	conn->marks_sent = true;
	if (conn->base.state == WEFT_CONN_OPEN)
		send_key(conn, NVL_FRAME_MAP_WANT, key, 0);
}

/* A refusal is final: no call of the driver's for every copy. */
static bool can_reach(struct nvl_import *im, struct weft_engine *gpu)
{
	if (im->by_handle)
		return im->map.ctx == gpu->ctx;
	if (gpu->ordinal >= NVL_ORDINALS || (im->refused & BIT(gpu->ordinal)))
		return false;
	if (nvl_map_reach(&im->map, gpu))
		im->refused |= BIT(gpu->ordinal);
	return !(im->refused & BIT(gpu->ordinal));
}

struct nvl_view *nvl_import_find(struct nvl_conn *conn,
				 const struct weft_rkey *key, uint8_t loc,
				 struct weft_engine *gpu, uint64_t addr,
				 size_t len)
{
	struct nvl_view *v = find_view(conn, key);

	if (!v) {
		query_key(conn, key, loc, gpu);
		return NULL;
	}
	if (!v->import || !v->import->ready)
		return NULL;
	if (!is_live(conn, v)) {
		drop_view(conn, v);
		return NULL; /* the owner of the key says what it is worth */
	}
	if (addr < v->addr || len > v->len || addr - v->addr > v->len - len ||
	    !can_reach(v->import, gpu))
		return NULL;
	return v;
}

/* ---- the peer's replies -------------------------------------------------- */

static struct nvl_import *add_import(struct nvl_conn *conn,
				     const struct nvl_view *v,
				     const struct nvl_frame *f)
{
	struct nvl_import *im;

	/* also those whose views are gone and whose parts have yet to come */
	if (conn->nimports == NVL_VIEWS ||
	    f->size > IMPORT_BYTES - conn->imported)
		return NULL;
	im = calloc(1, sizeof(*im));
	if (!im)
		return NULL;
	im->by_handle = v->by_handle;
	im->map = (struct nvl_mapping){ .kind = NVL_RING_CUDA,
					.size = f->size,
					.fd = -1 };
	if (!im->by_handle && nvl_map_cuda_reserve(&im->map, v->gpu, f->size)) {
		free(im);
		return NULL;
	}
	im->id = f->id;
	im->base = f->base;
	im->gpu = v->gpu;
	weft_list_add_tail(&conn->imports, &im->link);
	conn->nimports++;
	conn->imported += f->size;
	send_key(conn, NVL_FRAME_MAP_FETCH, &v->key, f->id);
	return im;
}

static bool is_within(uint64_t addr, uint64_t len, uint64_t base, uint64_t size)
{
	return addr >= base && len <= size && addr - base <= size - len;
}

static int handle_grant(struct nvl_conn *conn, const struct nvl_frame *f)
{
	const struct weft_rkey key = { f->slot, f->generation, f->token };
	struct nvl_view *v = find_view(conn, &key);
	struct nvl_import *im;

	if (!v || v->replied)
		return -EPROTO;
	v->replied = true;
	if (f->err) {
		/* no room for more: those that have some keep it */
		if (f->err != -EACCES)
			refuse_path(conn, v);
		drop_view(conn, v);
		return 0;
	}
	if (f->view >= NVL_VIEWS || !f->size ||
	    !is_within(f->addr, f->len, f->base, f->size))
		return -EPROTO;
	im = find_import(conn, f->id);
	if (im && (im->base != f->base || im->map.size != f->size ||
		   im->by_handle != v->by_handle))
		return -EPROTO;
	if (!im)
		im = add_import(conn, v, f);
	if (!im || im->failed) {
		refuse_path(conn, v);
		drop_view(conn, v);
		return 0;
	}
	v->addr = f->addr;
	v->len = f->len;
	v->slot = f->view;
	v->serial = f->serial;
	v->import = im;
	im->views++;
	return 0;
}

/* They come one behind the other, and all of them or MAP_NONE. */
static int handle_part(struct nvl_conn *conn, const struct nvl_frame *f, int fd)
{
	struct nvl_import *im = find_import(conn, f->id);
	int err = 0;

	if (!im || im->ready || im->by_handle || !f->len ||
	    f->addr != im->base + im->mapped ||
	    f->len > im->map.size - im->mapped || im->nparts == NVL_PARTS)
		return -EPROTO;
	if (!im->failed)
		err = fd < 0 ? -EMFILE
			     : nvl_map_cuda_part(&im->map, im->mapped, fd,
						 f->len);
	im->nparts++;
	im->mapped += f->len;
	if (!err && !im->failed && im->mapped == im->map.size)
		err = nvl_map_reach(&im->map, im->gpu);
	if (err)
		give_up(conn, im, err, strerror(-err));
	if (im->mapped < im->map.size)
		return 0;
	im->ready = !im->failed;
	check_import(conn, im);
	return 0;
}

static int handle_handle(struct nvl_conn *conn, const struct nvl_frame *f)
{
	struct nvl_import *im = find_import(conn, f->id);
	int r;

	if (!im || im->ready || !im->by_handle || f->addr != im->base ||
	    f->len != im->map.size)
		return -EPROTO;
	r = nvl_map_cuda_handle(&im->map, im->gpu, f->handle, f->len);
	if (r)
		give_up(conn, im, weft_cuda_errno(r), weft_cuda_error_name(r));
	else
		im->ready = true;
	check_import(conn, im);
	return 0;
}

static int handle_none(struct nvl_conn *conn, const struct nvl_frame *f)
{
	struct nvl_import *im = find_import(conn, f->id);
	int err;

	if (!im || im->ready)
		return -EPROTO;
	err = f->err < 0 ? f->err : -EIO;
	give_up(conn, im, err, strerror(-err));
	check_import(conn, im);
	return 0;
}

int nvl_import_frame(struct nvl_conn *conn, const struct nvl_frame *f, int fd)
{
	switch (f->type) {
	case NVL_FRAME_MAP_GRANT:
		return handle_grant(conn, f);
	case NVL_FRAME_MAP_PART:
		return handle_part(conn, f, fd);
	case NVL_FRAME_MAP_HANDLE:
		return handle_handle(conn, f);
	default:
		return handle_none(conn, f);
	}
}

/* ---- the end ------------------------------------------------------------- */

void nvl_import_tick(struct nvl_conn *conn)
{
	const uint32_t revoked = atomic_load_explicit(&conn->tx.head->revoked,
						      memory_order_acquire);
	struct nvl_view *v, *tmp;

	if (revoked == conn->revoked)
		return;
	conn->revoked = revoked;
	weft_list_for_each (v, tmp, &conn->view_list, link)
		if (v->import && !is_live(conn, v))
			drop_view(conn, v);
}

void nvl_import_close_all(struct nvl_conn *conn)
{
	struct nvl_import *im, *next;
	struct nvl_view *v, *tmp;

	weft_list_for_each (v, tmp, &conn->view_list, link)
		drop_view(conn, v);
	weft_list_for_each (im, next, &conn->imports, link)
		free_import(conn, im);
	weft_table_free(&conn->views);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers that the peer may map: exported once per allocation, as a
 * descriptor, and copied to directly.  Both sides count an allocation's
 * regions in the order of the frames, so both forget it at the same frame.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/settings.h"
#include "devices/nvlink/nvl.h"
#include "devices/nvlink.h"
#include "util/log.h"

#define ALLOC_MAX	(1ul << 42)	/* bytes; a peer that says more, lies */
#define REGIONS_MAX	65536u		/* per pair */
#define LATE_MAX	64u		/* descriptors kept of a peer's */

/* An allocation that both sides know by its number. */
struct nvl_alloc {
	struct nvl_alloc *next;
	uint64_t id;
	unsigned int regions;
	/* ours */
	uint64_t base, buffer_id;
	size_t size;
	/* the peer's */
	struct nvl_mapping map;
	int err;
	int fd;				/* till there is a GPU to map it; -1 */
};

/* A region in it. */
struct nvl_exposed {
	struct nvl_exposed *next;
	struct nvl_alloc *alloc;
	uint32_t slot, generation;
	bool gone;			/* peer's: unexposed, its number stays */
	bool answered;			/* ours: the peer has mapped it, or not */
	uint64_t addr, offset;
	size_t len;
};

/* Slots are small numbers, given out in turn: few share a chain. */
static struct nvl_exposed **chain(struct nvl_regions *r, uint32_t slot)
{
	return &r->chain[slot % NVL_REGION_CHAINS];
}

static struct nvl_exposed *region_find(struct nvl_regions *r, uint32_t slot)
{
	struct nvl_exposed *e = *chain(r, slot);

	while (e && e->slot != slot)
		e = e->next;
	return e;
}

static struct nvl_exposed *region_add(struct nvl_regions *r, uint32_t slot)
{
	struct nvl_exposed *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->slot = slot;
	e->gone = true;			/* till its owner says otherwise */
	e->next = *chain(r, slot);
	*chain(r, slot) = e;
	r->n++;
	return e;
}

static struct nvl_alloc *alloc_find(struct nvl_alloc *list, uint64_t id)
{
	while (list && list->id != id)
		list = list->next;
	return list;
}

static void alloc_unlink(struct nvl_alloc **list, struct nvl_alloc *a)
{
	while (*list != a)
		list = &(*list)->next;
	*list = a->next;
}

/* ---- ours ---------------------------------------------------------------- */

static void cannot(const struct weft_mem *mem, struct weft_nvl_export *x, int r)
{
	x->size = 0;
	weft_info("GPU memory at %p cannot be mapped by peers (%s): it goes "
		  "through a ring", mem->addr, weft_cuda_error_name(r));
}

void weft_nvl_export_find(const struct weft_mem *mem, struct weft_nvl_export *x)
{
	struct weft_cuda_ptr where;
	struct weft_cuda_scope s;
	int r;

	*x = (struct weft_nvl_export){ .fd = -1 };
	if (mem->kind != WEFT_MEM_CUDA ||
	    weft_settings()->nvl_direct == WEFT_OFF ||
	    weft_cuda_query(mem->addr, &where) ||
	    where.where != WEFT_CUDA_DEVICE ||
	    !nvl_share_allowed(where.ordinal) || weft_cuda_enter(&s, where.ctx))
		return;
	r = s.cu->address_range(&x->base, &x->size, (uintptr_t)mem->addr);
	weft_cuda_leave(&s);
	x->buffer_id = where.buffer_id;
	if (!r && (uintptr_t)mem->addr + mem->len > x->base + x->size)
		r = WEFT_CU_NOT_SUPPORTED;	/* spans several allocations */
	if (r)
		cannot(mem, x, r);
}

void weft_nvl_export_open(const struct weft_mem *mem, struct weft_nvl_export *x)
{
	unsigned long long handle;
	struct weft_cuda_ptr where;
	struct weft_cuda_scope s;
	int r;

	if (!x->size || x->fd >= 0)
		return;
	if (weft_cuda_query(mem->addr, &where) ||
	    weft_cuda_enter(&s, where.ctx)) {
		cannot(mem, x, WEFT_CU_INVALID_CONTEXT);
		return;
	}
	r = s.cu->mem_retain(&handle, mem->addr);
	if (!r) {
		r = s.cu->mem_export(&x->fd, handle, WEFT_CU_HANDLE_POSIX_FD,
				     0);
		s.cu->mem_release(handle);
	}
	weft_cuda_leave(&s);
	if (!r)
		return;
	x->fd = -1;
	cannot(mem, x, r);
}

void weft_nvl_export_close(struct weft_nvl_export *x)
{
	if (x->fd >= 0)
		close(x->fd);
	x->fd = -1;
}

/* What the peer has of it already; NULL: nothing. */
static struct nvl_alloc *own_alloc(struct nvl_conn *conn,
				   const struct weft_nvl_export *x)
{
	struct nvl_alloc *a = conn->own_allocs;

	while (a && (a->base != x->base || a->size != x->size ||
		     a->buffer_id != x->buffer_id))
		a = a->next;
	return a;
}

static struct nvl_alloc *own_alloc_new(struct nvl_conn *conn,
				       const struct weft_nvl_export *x)
{
	struct nvl_alloc *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->fd = -1;
	a->base = x->base;
	a->size = x->size;
	a->buffer_id = x->buffer_id;
	a->id = ++conn->next_alloc;
	a->next = conn->own_allocs;
	conn->own_allocs = a;
	return a;
}

static void drop_region(struct nvl_alloc **list, struct nvl_exposed *e)
{
	struct nvl_alloc *a = e->alloc;

	e->alloc = NULL;
	e->gone = true;
	if (a && !--a->regions && !a->map.dev) {
		alloc_unlink(list, a);
		free(a);
	}
}

static int expose(struct nvl_conn *conn, struct weft_mem *mem,
		  const struct weft_nvl_export *x)
{
	struct nvl_exposed *e = region_find(&conn->exposed, mem->rkey.slot);
	struct nvl_alloc *a = own_alloc(conn, x);
	struct nvl_frame f = { .type = NVL_FRAME_EXPOSE };
	const bool known = a;
	int err;

	if (!known && x->fd < 0)
		return -ENODATA;
	if (!e)
		e = region_add(&conn->exposed, mem->rkey.slot);
	if (!e)
		return -ENOMEM;
	if (!known)
		a = own_alloc_new(conn, x);
	if (!a)
		return -ENOMEM;
	f.slot = mem->rkey.slot;
	e->generation = f.generation = mem->rkey.generation;
	e->alloc = a;
	e->answered = e->gone = false;
	a->regions++;
	f.alloc = a->id;
	f.size = a->size;
	f.offset = (uintptr_t)mem->addr - a->base;
	f.region_addr = (uintptr_t)mem->addr;
	f.region_len = mem->len;
	err = nvl_sock_send(conn, &f, &x->fd, !known);
	if (err)
		drop_region(&conn->own_allocs, e);	/* the peer has nothing */
	return err;
}

static int offer_ring(struct nvl_conn *conn, const struct weft_mem *mem)
{
	struct weft_cuda_ptr where;

	if (weft_cuda_query(mem->addr, &where) ||
	    where.where != WEFT_CUDA_DEVICE)
		return 0;
	nvl_loc_learn(&where);
	return nvl_ring_offer(conn, NVL_LOC_GPU(where.ordinal), true);
}

int weft_nvl_expose(struct weft_ep *base, struct weft_mem *mem,
		    const struct weft_nvl_export *x, struct weft_rkey *rkey)
{
	struct nvl_conn *conn = nvl_ep(base)->conn;
	int err;

	if (!conn)
		return nvl_ep(base)->err;
	if (conn->state != NVL_CONN_OPEN)
		return -EAGAIN;
	weft_nvlink_ops.mem_pack(mem, rkey);
	if (conn->peer_id == conn->iface->my_id)
		return 0;	/* of a pair with itself, the other end sends */
	if (!x->size)
		return offer_ring(conn, mem);
	err = expose(conn, mem, x);
	if (!err)
		rkey->slot |= NVL_SLOT_EXPOSED;
	return err;
}

void weft_nvl_unexpose(struct weft_ep *base, struct weft_mem *mem)
{
	struct nvl_frame f = { .type = NVL_FRAME_UNEXPOSE,
			       .slot = mem->rkey.slot,
			       .generation = mem->rkey.generation };
	struct nvl_conn *conn = nvl_ep(base)->conn;
	struct nvl_exposed *e;
	int err;

	e = conn ? region_find(&conn->exposed, mem->rkey.slot) : NULL;
	if (!e || e->gone || e->generation != mem->rkey.generation)
		return;
	drop_region(&conn->own_allocs, e);
	if (conn->state != NVL_CONN_OPEN)
		return;
	err = nvl_sock_send(conn, &f, NULL, 0);
	if (err)
		nvl_pair_break(conn, err);
}

static int on_mapped(struct nvl_conn *conn, const struct nvl_frame *f)
{
	struct nvl_exposed *e = region_find(&conn->exposed, f->slot);
	struct nvl_alloc *a;
	int err;

	if (!e || e->generation != f->generation || e->gone)
		return 0;		/* unexposed meanwhile */
	e->answered = true;
	a = e->alloc;
	if (!f->err || a->err)
		return 0;
	/* the peer cannot map it: what it sends comes through a ring */
	a->err = f->err;
	for (err = 1; err < (int)NVL_LOCS; err++) {
		struct weft_cuda_ptr w, m;

		if (nvl_loc_where(err, &w) &&
		    !weft_cuda_query((void *)(uintptr_t)a->base, &m) &&
		    m.ordinal == w.ordinal)
			return nvl_ring_offer(conn, err, true);
	}
	return 0;
}

/* ---- the peer's ---------------------------------------------------------- */

static void late_end(struct nvl_conn *conn, struct nvl_alloc *a)
{
	if (a->fd < 0)
		return;
	close(a->fd);
	a->fd = -1;
	conn->nlate--;
}

/* Unmaps what no region needs, as soon as no engine can be writing there. */
static void sweep(struct nvl_conn *conn)
{
	struct nvl_alloc **at = &conn->peer_allocs, *a;

	if (conn->copies)
		return;
	while ((a = *at)) {
		if (a->regions) {
			at = &a->next;
			continue;
		}
		*at = a->next;
		late_end(conn, a);
		nvl_map_close(conn->iface, &a->map);
		free(a);
	}
}

static struct nvl_alloc *peer_alloc(struct nvl_conn *conn,
				    const struct nvl_frame *f, int fd)
{
	struct nvl_alloc *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->id = f->alloc;
	a->size = f->size;
	a->err = -ENODEV;
	a->fd = -1;
	if (weft_list_empty(&conn->iface->gpus)) {
		if (conn->nlate < LATE_MAX)
			a->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		conn->nlate += a->fd >= 0;
	} else {
		a->err = nvl_map_cuda_import(&a->map,
					     weft_list_first(&conn->iface->gpus,
							     struct nvl_gpu,
							     link),
					     fd, f->size);
	}
	a->next = conn->peer_allocs;
	conn->peer_allocs = a;
	return a;
}

static int on_expose(struct nvl_conn *conn, const struct nvl_frame *f, int fd)
{
	struct nvl_frame answer = { .type = NVL_FRAME_MAPPED, .slot = f->slot,
				    .generation = f->generation };
	struct nvl_exposed *m = region_find(&conn->mapped, f->slot);
	struct nvl_alloc *a;

	sweep(conn);
	a = alloc_find(conn->peer_allocs, f->alloc);
	if (!f->size || f->size > ALLOC_MAX || f->offset > f->size ||
	    f->region_len > f->size - f->offset || (fd < 0) == !a ||
	    (a && a->size != f->size) || (m && !m->gone))
		return weft_fail(EPROTO, "a peer on this host exposes memory "
				 "that cannot be");
	if (!m && conn->mapped.n == REGIONS_MAX)
		return -EPROTO;
	if (!m)
		m = region_add(&conn->mapped, f->slot);
	if (!m)
		return -ENOMEM;
	if (!a)
		a = peer_alloc(conn, f, fd);
	if (!a)
		return -ENOMEM;
	a->regions++;
	m->alloc = a;
	m->generation = f->generation;
	m->gone = false;
	m->addr = f->region_addr;
	m->offset = f->offset;
	m->len = f->region_len;
	answer.err = a->err;
	return nvl_sock_send(conn, &answer, NULL, 0);
}

static int on_unexpose(struct nvl_conn *conn, const struct nvl_frame *f)
{
	struct nvl_exposed *m = region_find(&conn->mapped, f->slot);

	if (!m || m->gone || m->generation != f->generation)
		return -EPROTO;
	m->alloc->regions--;
	m->alloc = NULL;
	m->gone = true;
	sweep(conn);
	return 0;
}

int nvl_direct_frame(struct nvl_conn *conn, struct nvl_frame *f, int *fds)
{
	switch (f->type) {
	case NVL_FRAME_EXPOSE:
		return on_expose(conn, f, fds[0]);
	case NVL_FRAME_MAPPED:
		return on_mapped(conn, f);
	case NVL_FRAME_UNEXPOSE:
		return on_unexpose(conn, f);
	default:
		return -EPROTO;
	}
}

/*
 * Is [addr, addr+len) of the peer mapped here, and where?  *@gpu is one that
 * can write there.  A key can overtake the frame that exposes its region.
 */
enum nvl_direct nvl_direct_find(struct nvl_conn *conn,
				const struct weft_rkey *key, uint64_t addr,
				size_t len, uint64_t *dev,
				struct nvl_gpu **gpu)
{
	struct nvl_gpu *g, *tmp;
	struct nvl_exposed *m;

	m = region_find(&conn->mapped, key->slot & NVL_SLOT_MASK);
	if (!m || m->generation < key->generation)
		return NVL_DIRECT_WAIT;
	if (m->gone || m->generation != key->generation || m->alloc->err ||
	    addr < m->addr || len > m->len || addr - m->addr > m->len - len)
		return NVL_DIRECT_NO;
	*dev = m->alloc->map.dev + m->offset + (addr - m->addr);
	weft_list_for_each(g, tmp, &conn->iface->gpus, link) {
		if (nvl_map_allows(&m->alloc->map, g)) {
			*gpu = g;
			return NVL_DIRECT_YES;
		}
	}
	return NVL_DIRECT_NO;
}

bool nvl_direct_allows(struct nvl_conn *conn, const struct weft_rkey *key,
		       const struct nvl_gpu *gpu)
{
	struct nvl_exposed *m;

	m = region_find(&conn->mapped, key->slot & NVL_SLOT_MASK);
	return nvl_map_allows(&m->alloc->map, gpu);
}

/*
 * As early as can be: once NCCL's kernels run, no access may be granted any
 * more.  Where it cannot be, puts from this GPU go through a ring.
 */
void nvl_direct_admit(struct nvl_gpu *gpu)
{
	struct nvl_conn *conn, *tmp;
	struct nvl_alloc *a;

	weft_list_for_each(conn, tmp, &gpu->iface->conns, link)
		for (a = conn->peer_allocs; a; a = a->next)
			if (!a->err)
				nvl_map_reach(&a->map, gpu);
}

void nvl_direct_catch_up(struct nvl_conn *conn, struct nvl_gpu *gpu)
{
	struct nvl_alloc *a;

	for (a = conn->peer_allocs; a && conn->nlate; a = a->next) {
		if (a->fd < 0)
			continue;
		a->err = nvl_map_cuda_import(&a->map, gpu, a->fd, a->size);
		late_end(conn, a);
	}
}

bool nvl_direct_settled(struct nvl_conn *conn)
{
	struct nvl_exposed *e;
	unsigned int i;

	for (i = 0; i < NVL_REGION_CHAINS; i++)
		for (e = conn->exposed.chain[i]; e; e = e->next)
			if (!e->gone && !e->answered)
				return false;
	return true;
}

static void regions_free(struct nvl_regions *r)
{
	struct nvl_exposed *e;
	unsigned int i;

	for (i = 0; i < NVL_REGION_CHAINS; i++) {
		while ((e = r->chain[i])) {
			r->chain[i] = e->next;
			free(e);
		}
	}
}

void nvl_direct_close(struct nvl_conn *conn)
{
	struct nvl_alloc *a;

	regions_free(&conn->exposed);
	regions_free(&conn->mapped);
	while ((a = conn->own_allocs)) {
		conn->own_allocs = a->next;
		free(a);
	}
	for (a = conn->peer_allocs; a; a = a->next)
		a->regions = 0;
	sweep(conn);
}

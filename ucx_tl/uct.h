/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the files of ucx_tl.  There is one struct weft_uct per copy of UCX
 * in the process: components, memory domains, interfaces and endpoints of one
 * copy never use the symbols of another.
 */
#ifndef WEFT_UCX_TL_UCT_H
#define WEFT_UCX_TL_UCT_H

#include <stdarg.h>
#include <stdatomic.h>
#include "config.h"
#include "devices/device.h"
#include "ucx_tl/abi.h"
#include "util/list.h"

#define WEFT_UCT_MAX_HEADER 256 /* of am_zcopy */
#define WEFT_UCT_MAX_IOV    16
#define WEFT_UCT_MAX_SHORT  ((size_t)8192)
#define WEFT_UCT_MAX_BCOPY  ((size_t)65536)
#define WEFT_UCT_SEG_SIZE   ((size_t)8192) /* UCX_SEG_SIZE, by default */

/* Found in one copy of libuct and libucs; all of them exist since 1.13. */
struct weft_uct_symbols {
	void (*component_register)(void *component);
	void (*tl_register)(void *component, void *tl);
	enum weft_ucs_status (*component_query)(
		void *component, struct weft_uct_component_attr *attr);
	enum weft_ucs_status (*base_iface_init)(
		void *self, void *cls, int *count, weft_uct_fn *ops,
		weft_uct_fn *internal_ops, void *md, void *worker,
		const void *params, const void *config, void *stats_parent,
		const char *name); /* --enable-stats */
	void *base_iface_class;
	void (*base_iface_query)(void *iface, struct weft_uct_iface_attr *attr);
	enum weft_ucs_status (*base_estimate_perf)(
		void *iface, struct weft_uct_perf_attr *attr);
	void (*progress_enable)(void *iface, unsigned int flags);
	void (*progress_disable)(void *iface, unsigned int flags);
	enum weft_ucs_status (*handle_ep_err)(void *iface, void *ep,
					      enum weft_ucs_status status);
	void *md_config_table, *iface_config_table;
	struct weft_ucs_link *components; /* all registered ones */
	void *(*calloc)(size_t n, size_t size, const char *name);
	void (*class_cleanup)(void *cls, void *obj, int limit);
	/* these may be missing */
	weft_uct_fn base_query_v2; /* 1.20, 1.22 */
	void (*log_dispatch)(const char *file, unsigned int line,
			     const char *function, int level,
			     const void *component, const char *format, ...)
		__attribute__((format(printf, 6, 7)));
	const void *global_opts;
	/* ucs_log_func_t: 0 ends the message there, 1 passes it on */
	void (*log_push_handler)(int (*handler)(
		const char *file, unsigned int line, const char *function,
		int level, const void *component, const char *format,
		va_list args));
};

struct weft_uct;

/* One transport; with a component and memory domain of the same name. */
struct weft_uct_tl {
	const char *name; /* at most 9 characters */
	const struct weft_dev_ops *dev;
	const char *config_prefix;
	unsigned int minor_min; /* UCX 1.x from which it is offered */
	unsigned int mem_kinds; /* BIT() of the memory for which puts and gets
				   may be offered */
	/*
	 * May GPU memory be among it in this process?  NULL: it is for GPU
	 * memory alone.
	 */
	bool (*may_use_gpus)(const struct weft_uct *uct);
	bool needs_memh; /* puts and gets need registered memory */
	bool am_zcopy;	 /* large messages go without a copy */
	bool same_host;	 /* reaches peers of this host alone */
	/* bytes/s to report to UCP; 0: the device's own figure */
	double lane_bandwidth;
	/* Sets both on success only; no device is no error. */
	enum weft_ucs_status (*devices)(const struct weft_uct *uct,
					struct weft_uct_tl_device **out,
					unsigned int *count);
	/*
	 * The bandwidth, in bytes/s, of a better weft transport that is offered
	 * on the same port as @device; 0, or NULL: there is none.
	 */
	double (*better_bandwidth)(const char *device);
	/* added to the iface's figures for UCP */
	double message_copy;		   /* bytes/s; 0: no cost */
	double put_copy;		   /* of gets, too; 0: none */
	double put_overhead, get_overhead; /* s */
	/* the same where GPU memory is one of many kinds; 0: as above */
	double gpu_copy, gpu_get_overhead;
};

#ifdef HAVE_VERBS_H
#define WEFT_UCT_TLS 4
#else
#define WEFT_UCT_TLS 3
#endif
extern const struct weft_uct_tl weft_uct_tls[WEFT_UCT_TLS];
/* Is any weft transport requested? */
bool weft_uct_asked_for_any(void);

/* A transport in one copy of UCX, which keeps pointers into it forever. */
struct weft_uct_part {
	struct weft_uct *uct;
	const struct weft_uct_tl *tl;
	/* aligned for their contents */
	char component[WEFT_UCT_COMPONENT_MAX] __attribute__((aligned(16)));
	char blob[WEFT_UCT_TL_MAX] __attribute__((aligned(16)));
};

/* One copy of UCX. */
struct weft_uct {
	struct weft_uct *next;
	const struct weft_uct_abi *abi;
	struct weft_uct_symbols sym;
	const void *libuct; /* its base address */
	weft_uct_fn internal_ops[WEFT_INTERNAL_MAX];
	weft_uct_fn md_ops[WEFT_UCT_MD_OPS];
	struct weft_uct_part parts[WEFT_UCT_TLS];
};

struct weft_uct_memory_domain {
	struct weft_uct_md base;
	struct weft_uct *uct;
	const struct weft_uct_tl *tl;
	unsigned int mem_kinds; /* BIT(enum weft_mem_kind) */
	/* open ifaces that are not loopback, of all workers */
	atomic_uint wide_ifaces;
};

/* An operation that the device has in progress. */
struct weft_uct_op {
	struct weft_op op;
	struct weft_uct_iface *iface;
	struct weft_uct_op *next;	  /* while it is free */
	struct weft_uct_completion *comp; /* the caller's; may be NULL */
	struct weft_uct_ep *rma;	  /* of a put or get, else NULL */
};

struct weft_uct_iface {
	struct weft_uct_base_iface base; /* first: UCX sees only this */
	struct weft_uct *uct;
	struct weft_uct_memory_domain *md;
	const struct weft_uct_tl *tl;
	struct weft_iface *iface;
	struct weft_iface_attr attr;
	bool loopback;
	char device[sizeof(((struct weft_uct_tl_device *)0)->name)];
	bool deprioritized;   /* another iface serves the same peers better */
	struct weft_list all; /* of the process */
	void *worker;	      /* UCT's */
	bool active;	      /* UCP calls it */
	/*
	 * An interface of the same worker without messages, or NULL.  UCP 1.23
	 * progresses it only while the worker itself uses it, but peers use it
	 * as well: so progress of this interface calls it.
	 */
	struct weft_uct_iface *guest;
	int epfd; /* the events of both; -1: none */
	struct weft_list eps;
	struct weft_list waiting; /* eps with pending requests */
	struct weft_list ended; /* eps whose end was not reported to UCX yet */
	struct weft_uct_op *free_ops;
};

struct weft_uct_ep {
	struct weft_uct_iface *iface; /* first: uct_ep_t */
	struct weft_ep *ep;
	struct weft_list link;	   /* in iface->eps */
	struct weft_list pending;  /* requests, oldest first */
	struct weft_list waiting;  /* in iface->waiting */
	struct weft_list ended;	   /* in iface->ended */
	uint64_t report_ms;	   /* when to report it */
	bool dispatching;	   /* requests of it run */
	bool turn;		   /* the running request may send once */
	unsigned int rma_out;	   /* puts and gets in progress */
	bool fenced;		   /* ep_fence() was the last operation */
	bool rma_waits;		   /* new ones wait until rma_out is 0 */
	int err;		   /* 0, or why it is dead */
	uint8_t key[WEFT_KEY_LEN]; /* of the peer */
};

/* component.c */
struct weft_uct_part *weft_uct_tl_of(void *component);
/*
 * The number of memory domains of component @name, of weft or of that copy of
 * UCX.  -ENOENT: there is no such component.
 */
int weft_uct_component_mds(const struct weft_uct *uct, const char *name);
void weft_uct_register(struct weft_uct *uct);

/* md.c */
void weft_uct_md_ops(struct weft_uct *uct);
enum weft_ucs_status weft_uct_md_open(void *component, const char *name,
				      const void *config, void **md);
weft_uct_fn weft_uct_rkey_unpack(const struct weft_uct *uct);
enum weft_ucs_status weft_uct_rkey_release(void *component, uintptr_t rkey,
					   void *handle);
enum weft_ucs_status weft_uct_rkey_compare(void *component, uintptr_t a,
					   uintptr_t b, const void *params,
					   int *result);

/* iface.c */
void weft_uct_internal_ops(struct weft_uct *uct);
enum weft_ucs_status
weft_uct_iface_open(struct weft_uct_memory_domain *md, void *worker,
		    const struct weft_uct_iface_params *params,
		    const void *config, void **iface);
/* perf.c */
enum weft_ucs_status weft_uct_estimate_perf(struct weft_uct_iface *iface,
					    struct weft_uct_perf_attr *attr);
void weft_uct_iface_scores(const struct weft_uct_iface *iface,
			   struct weft_uct_iface_attr *attr);

/* uclog.c: this thread's last is_reachable(); true for a new endpoint */
void weft_uct_log_reach(bool reached);

/* op.c */
struct weft_uct_op *weft_uct_op_get(struct weft_uct_iface *iface,
				    struct weft_uct_completion *comp);
void weft_uct_op_put(struct weft_uct_op *op);
void weft_uct_op_free_all(struct weft_uct_iface *iface);

/* ep.c */
void weft_uct_ep_ops(weft_uct_fn *ops);
void weft_uct_ep_error(void *arg, struct weft_ep *ep, void *user, int err);
/* Report orderly closes that are due to UCX; returns their number. */
unsigned int weft_uct_ep_report(struct weft_uct_iface *iface);

/* pending.c */
enum weft_ucs_status weft_uct_pending_add(struct weft_uct_ep *ep,
					  struct weft_uct_pending *req,
					  unsigned int flags);
void weft_uct_pending_purge(struct weft_uct_ep *ep,
			    void (*cb)(struct weft_uct_pending *req, void *arg),
			    void *arg);
/* Order later operations after earlier ones, including queued requests. */
void weft_uct_fence_all(struct weft_uct_ep *ep);
void weft_uct_pending_ready(void *arg, struct weft_ep *ep, void *user);
/* Would any queued request of @iface make progress? */
bool weft_uct_pending_runnable(struct weft_uct_iface *iface);
unsigned int weft_uct_pending_run_all(struct weft_uct_iface *iface);

/*
 * A new send must wait behind the queue.  The running request may pass it with
 * one operation; sends from its completion may not.
 */
static inline bool weft_uct_must_queue(const struct weft_uct_ep *ep)
{
	return !ep->turn && !weft_list_empty(&ep->pending);
}

/*
 * The device orders messages after the puts before a fence, but not puts after
 * puts.  If UCX needs that, hold later ones back until the earlier ones are
 * complete.
 */
static inline bool weft_uct_rma_waits(struct weft_uct_ep *ep)
{
	if (!ep->rma_out)
		ep->rma_waits = false;
	return ep->rma_waits;
}

/* For slots of any type: wide enough for ssize_t, int and status. */
int64_t weft_uct_unsupported(void);
int64_t weft_uct_ok(void);

#endif

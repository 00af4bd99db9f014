/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/drivers/verbs.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "util/log.h"
#include "util/util.h"

#define LIBRARY "libibverbs.so.1"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_verbs loaded;
static const struct weft_verbs *_Atomic in_use;
static bool tried;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	return ibv_post_send(qp, wr, bad);
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	return ibv_post_recv(qp, wr, bad);
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return ibv_poll_cq(cq, n, wc);
}

static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
	return ibv_req_notify_cq(cq, solicited);
}

static const struct weft_verbs *load_verbs(void)
{
	/* never closed: the program may use the same one */
	void *lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	const char *missing = NULL;

	if (!lib) {
		weft_info("InfiniBand is not used: cannot load '%s' (%s)",
			  LIBRARY, dlerror());
		return NULL;
	}
#define X(field, symbol, type, args)                   \
	*(void **)&loaded.field = dlsym(lib, #symbol); \
	if (!loaded.field)                             \
		missing = #symbol;
	WEFT_VERBS_CALLS(X)
#undef X
#define X(field, type, args) loaded.field = field;
	WEFT_VERBS_INLINE(X)
#undef X
	if (missing) {
		weft_warn(
			"InfiniBand is not used: '%s' has no '%s'; install rdma-core 17 or newer",
			LIBRARY, missing);
		return NULL;
	}
	/* after a fork, pages of registered memory stay with the parent */
	loaded.fork_init();
	return &loaded;
}

const struct weft_verbs *weft_verbs(void)
{
	const struct weft_verbs *v = atomic_load(&in_use);

	if (v)
		return v;
	pthread_mutex_lock(&lock);
	if (!tried) {
		tried = true;
		atomic_store(&in_use, load_verbs());
	}
	pthread_mutex_unlock(&lock);
	return atomic_load(&in_use);
}

void weft_verbs_set(const struct weft_verbs *table)
{
	pthread_mutex_lock(&lock);
	tried = table != NULL;
	atomic_store(&in_use, table);
	pthread_mutex_unlock(&lock);
}

/* The texts of ibv_wc_status_str(3), which old libraries lack. */
const char *weft_wc_name(enum ibv_wc_status status)
{
	static const char *const names[] = {
		[IBV_WC_SUCCESS] = "success",
		[IBV_WC_LOC_LEN_ERR] = "local length error",
		[IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
		[IBV_WC_LOC_EEC_OP_ERR] = "local EE context operation error",
		[IBV_WC_LOC_PROT_ERR] = "local protection error",
		[IBV_WC_WR_FLUSH_ERR] = "work request flushed",
		[IBV_WC_MW_BIND_ERR] = "memory window bind error",
		[IBV_WC_BAD_RESP_ERR] = "bad response error",
		[IBV_WC_LOC_ACCESS_ERR] = "local access error",
		[IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
		[IBV_WC_REM_ACCESS_ERR] = "remote access error",
		[IBV_WC_REM_OP_ERR] = "remote operation error",
		[IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
		[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
		[IBV_WC_FATAL_ERR] = "fatal error",
		[IBV_WC_RESP_TIMEOUT_ERR] = "response timeout",
		[IBV_WC_GENERAL_ERR] = "general error",
	};

	return (size_t)status < ARRAY_SIZE(names) && names[status]
		       ? names[status]
		       : "unknown error";
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Any NCCL network plugin, of any version from 6 to 12, behind one face. */
#ifndef WEFT_TOOLS_PERF_PLUGIN_H
#define WEFT_TOOLS_PERF_PLUGIN_H

#include <stdbool.h>
#include "nccl_net/abi/net.h"

#define PERF_API_MIN 6
#define PERF_API_MAX 12

struct perf_plugin {
	void *lib;
	int api;
	void *table;		     /* struct nccl_net_v<api> */
	void *ctx;		     /* v11 and later */
	struct nccl_props_v12 props; /* of device 0; what is newer: 0 */
	int devices;
};

/*
 * @path: a file or a name as in NCCL_NET_PLUGIN ("weft", "libnccl-net-x.so").
 * @api: 0 takes the newest that it has, as NCCL does.  On failure false, with
 * the reason in @why.
 */
bool perf_plugin_open(struct perf_plugin *p, const char *path, int api,
		      char *why, size_t len);
/* The versions it has, as bits. */
unsigned int perf_plugin_versions(const char *path, char *why, size_t len);
bool perf_plugin_init(struct perf_plugin *p, char *why, size_t len);
/* A context more, as each communicator makes one. */
enum nccl_result perf_plugin_context(struct perf_plugin *p, void **ctx);
enum nccl_result perf_plugin_finalize(struct perf_plugin *p, void *ctx);
/* finalize where there is one, and dlclose. */
void perf_plugin_close(struct perf_plugin *p);

enum nccl_result perf_listen(struct perf_plugin *p, void *handle, void **l);
enum nccl_result perf_connect(struct perf_plugin *p, void *handle, void **comm);
enum nccl_result perf_accept(struct perf_plugin *p, void *l, void **comm);
enum nccl_result perf_reg(struct perf_plugin *p, void *comm, void *data,
			  size_t size, int type, void **mr);
enum nccl_result perf_dereg(struct perf_plugin *p, void *comm, void *mr);
enum nccl_result perf_isend(struct perf_plugin *p, void *comm, void *data,
			    size_t size, int tag, void *mr, void **req);
/* At most 8 at once; @req as it goes in may be 1 (early completion is fine). */
enum nccl_result perf_irecv(struct perf_plugin *p, void *comm, int n,
			    void **data, const size_t *sizes, int *tags,
			    void **mrs, void **req);
enum nccl_result perf_test(struct perf_plugin *p, void *req, int *done,
			   int *sizes);
enum nccl_result perf_close_send(struct perf_plugin *p, void *comm);
enum nccl_result perf_close_recv(struct perf_plugin *p, void *comm);
enum nccl_result perf_close_listen(struct perf_plugin *p, void *l);

const char *perf_result_text(enum nccl_result r);

/* What the plugin last warned about, "" if nothing; this thread's copy. */
const char *perf_last_warning(void);
void perf_set_verbose(bool verbose);

#endif

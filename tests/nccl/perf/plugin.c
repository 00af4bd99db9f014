/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "tests/nccl/perf/plugin.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last_warning[512];
static bool say_all;

static void logger(enum nccl_log_level level, unsigned long subsys,
		   const char *file, int line, const char *fmt, ...)
{
	char text[sizeof(last_warning)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (level == NCCL_LOG_WARN) {
		pthread_mutex_lock(&lock);
		memcpy(last_warning, text, sizeof(text));
		pthread_mutex_unlock(&lock);
	}
	if (say_all)
		fprintf(stderr, "%s:%d %s\n", file, line, text);
}

static enum nccl_result profiler(void **event, int type, void *parent,
				 int64_t plugin, void *data)
{
	return NCCL_SUCCESS;
}

const char *perf_last_warning(void)
{
	static _Thread_local char copy[sizeof(last_warning)];

	pthread_mutex_lock(&lock);
	memcpy(copy, last_warning, sizeof(copy));
	pthread_mutex_unlock(&lock);
	return copy;
}

void perf_set_verbose(bool verbose)
{
	say_all = verbose;
}

const char *perf_result_text(enum nccl_result r)
{
	static const char *const text[] = {
		"success",	  "unhandled CUDA error", "system error",
		"internal error", "invalid argument",	  "invalid usage",
		"remote error",	  "in progress",
	};

	return (unsigned int)r < sizeof(text) / sizeof(*text)
		       ? text[r]
		       : "unknown result";
}

/* As NCCL looks for it: the name as it is, then libnccl-net-<name>.so. */
static void *open_lib(const char *path, char *why, size_t len)
{
	char name[512];
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (lib)
		return lib;
	snprintf(why, len, "%s", dlerror());
	if (strchr(path, '/'))
		return NULL;
	snprintf(name, sizeof(name), "libnccl-net-%s.so", path);
	lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		snprintf(why, len, "%s", dlerror());
	return lib;
}

static void *table_of(void *lib, int api)
{
	char name[32];

	snprintf(name, sizeof(name), "ncclNetPlugin_v%d", api);
	return dlsym(lib, name);
}

unsigned int perf_plugin_versions(const char *path, char *why, size_t len)
{
	void *lib = open_lib(path, why, len);
	unsigned int found = 0;
	int api;

	if (!lib)
		return 0;
	for (api = PERF_API_MIN; api <= PERF_API_MAX; api++)
		if (table_of(lib, api))
			found |= 1u << api;
	if (!found)
		snprintf(why, len,
			 "'%s' has no ncclNetPlugin_v%d to v%d: it "
			 "is no network plugin of NCCL 2.13 or later",
			 path, PERF_API_MIN, PERF_API_MAX);
	dlclose(lib);
	return found;
}

bool perf_plugin_open(struct perf_plugin *p, const char *path, int api,
		      char *why, size_t len)
{
	int v;

	memset(p, 0, sizeof(*p));
	p->lib = open_lib(path, why, len);
	if (!p->lib)
		return false;
	for (v = PERF_API_MAX; v >= PERF_API_MIN && !p->table; v--) {
		if (api && v != api)
			continue;
		p->table = table_of(p->lib, v);
		p->api = v;
	}
	if (p->table)
		return true;
	snprintf(why, len, "'%s' has no ncclNetPlugin_v%d", path,
		 api ? api : PERF_API_MAX);
	dlclose(p->lib);
	return false;
}

#define T(v) ((struct nccl_net_v##v *)p->table)
#define AS(v, member) \
	case v:       \
		return T(v)->member

/* Members of one type in all versions. */
#define SAME(member, ...)                                  \
	do {                                               \
		switch (p->api) {                          \
			AS(6, member)(__VA_ARGS__);        \
			AS(7, member)(__VA_ARGS__);        \
			AS(8, member)(__VA_ARGS__);        \
			AS(9, member)(__VA_ARGS__);        \
			AS(10, member)(__VA_ARGS__);       \
			AS(11, member)(__VA_ARGS__);       \
		default:                                   \
			return T(12)->member(__VA_ARGS__); \
		}                                          \
	} while (0)

#define COPY(src)                                     \
	do {                                          \
		out->name = (src).name;               \
		out->pci_path = (src).pci_path;       \
		out->guid = (src).guid;               \
		out->ptr_support = (src).ptr_support; \
		out->speed = (src).speed;             \
		out->port = (src).port;               \
		out->latency = (src).latency;         \
		out->max_comms = (src).max_comms;     \
		out->max_recvs = (src).max_recvs;     \
	} while (0)

#define PROPS(v, member)                                  \
	case v:                                           \
		r = T(v)->get_properties(dev, &u.member); \
		COPY(u.member);                           \
		return r

static enum nccl_result get_properties(struct perf_plugin *p, int dev,
				       struct nccl_props_v12 *out)
{
	union {
		struct nccl_props_v6 v6;
		struct nccl_props_v7 v7;
		struct nccl_props_v8 v8;
		struct nccl_props_v9 v9;
		struct nccl_props_v11 v11;
	} u;
	enum nccl_result r;

	memset(&u, 0, sizeof(u));
	memset(out, 0, sizeof(*out));
	switch (p->api) {
		PROPS(6, v6);
		PROPS(7, v7);
		PROPS(8, v8);
		PROPS(9, v9);
		PROPS(10, v9);
		PROPS(11, v11);
	default:
		return T(12)->get_properties(dev, out);
	}
}

static enum nccl_result devices(struct perf_plugin *p, int *n)
{
	SAME(devices, n);
}

enum nccl_result perf_plugin_context(struct perf_plugin *p, void **ctx)
{
	static uint64_t comm_id = 0x77656674;
	struct nccl_config_v10 config = { -1 };

	*ctx = NULL;
	switch (p->api) {
	case 6:
		return T(6)->init(logger);
	case 7:
		return T(7)->init(logger);
	case 8:
		return T(8)->init(logger);
	case 9:
		return T(9)->init(logger);
	case 10:
		return T(10)->init(logger, profiler);
	case 11:
		return T(11)->init(ctx, comm_id++, &config, logger, profiler);
	default:
		return T(12)->init(ctx, comm_id++, &config, logger, profiler);
	}
}

enum nccl_result perf_plugin_finalize(struct perf_plugin *p, void *ctx)
{
	if (p->api < 11)
		return NCCL_SUCCESS;
	return p->api == 11 ? T(11)->finalize(ctx) : T(12)->finalize(ctx);
}

bool perf_plugin_init(struct perf_plugin *p, char *why, size_t len)
{
	enum nccl_result r = perf_plugin_context(p, &p->ctx);
	const char *step = "init", *warning;

	if (!r) {
		step = "devices";
		r = devices(p, &p->devices);
	}
	if (!r && p->devices > 0) {
		step = "getProperties";
		r = get_properties(p, 0, &p->props);
	}
	if (!r && p->devices > 0)
		return true;
	warning = perf_last_warning();
	if (r)
		snprintf(why, len, "%s: %s%s%s", step, perf_result_text(r),
			 *warning ? ": " : "", warning);
	else
		snprintf(why, len, "the plugin finds no device here");
	return false;
}

void perf_plugin_close(struct perf_plugin *p)
{
	if (p->ctx)
		perf_plugin_finalize(p, p->ctx);
	dlclose(p->lib);
	memset(p, 0, sizeof(*p));
}

enum nccl_result perf_listen(struct perf_plugin *p, void *handle, void **l)
{
	switch (p->api) {
		AS(6, listen)(0, handle, l);
		AS(7, listen)(0, handle, l);
		AS(8, listen)(0, handle, l);
		AS(9, listen)(0, handle, l);
		AS(10, listen)(0, handle, l);
		AS(11, listen)(p->ctx, 0, handle, l);
	default:
		return T(12)->listen(p->ctx, 0, handle, l);
	}
}

enum nccl_result perf_connect(struct perf_plugin *p, void *handle, void **comm)
{
	struct nccl_config_v10 config = { -1 };
	void *offload = NULL;

	switch (p->api) {
		AS(6, connect)(0, handle, comm);
		AS(7, connect)(0, handle, comm, &offload);
		AS(8, connect)(0, handle, comm, &offload);
		AS(9, connect)(0, handle, comm, &offload);
		AS(10, connect)(0, &config, handle, comm, &offload);
		AS(11, connect)(p->ctx, 0, handle, comm, &offload);
	default:
		return T(12)->connect(p->ctx, 0, handle, comm, &offload);
	}
}

enum nccl_result perf_accept(struct perf_plugin *p, void *l, void **comm)
{
	void *offload = NULL;

	switch (p->api) {
		AS(6, accept)(l, comm);
		AS(7, accept)(l, comm, &offload);
		AS(8, accept)(l, comm, &offload);
		AS(9, accept)(l, comm, &offload);
		AS(10, accept)(l, comm, &offload);
		AS(11, accept)(l, comm, &offload);
	default:
		return T(12)->accept(l, comm, &offload);
	}
}

enum nccl_result perf_reg(struct perf_plugin *p, void *comm, void *data,
			  size_t size, int type, void **mr)
{
	*mr = NULL;
	SAME(reg, comm, data, size, type, mr);
}

enum nccl_result perf_dereg(struct perf_plugin *p, void *comm, void *mr)
{
	SAME(dereg, comm, mr);
}

enum nccl_result perf_isend(struct perf_plugin *p, void *comm, void *data,
			    size_t size, int tag, void *mr, void **req)
{
	*req = NULL;
	switch (p->api) {
		AS(6, isend)(comm, data, (int)size, tag, mr, req);
		AS(7, isend)(comm, data, (int)size, tag, mr, req);
		AS(8, isend)(comm, data, (int)size, tag, mr, req);
		AS(9, isend)(comm, data, size, tag, mr, req);
		AS(10, isend)(comm, data, size, tag, mr, NULL, req);
		AS(11, isend)(comm, data, size, tag, mr, NULL, req);
	default:
		return T(12)->isend(comm, data, size, tag, mr, NULL, req);
	}
}

enum nccl_result perf_irecv(struct perf_plugin *p, void *comm, int n,
			    void **data, const size_t *sizes, int *tags,
			    void **mrs, void **req)
{
	size_t copy[8];
	int small[8], i;
	void *phandles[8] = { NULL };

	for (i = 0; i < n; i++) {
		copy[i] = sizes[i];
		small[i] = (int)sizes[i];
	}
	switch (p->api) {
		AS(6, irecv)(comm, n, data, small, tags, mrs, req);
		AS(7, irecv)(comm, n, data, small, tags, mrs, req);
		AS(8, irecv)(comm, n, data, small, tags, mrs, req);
		AS(9, irecv)(comm, n, data, copy, tags, mrs, req);
		AS(10, irecv)(comm, n, data, copy, tags, mrs, phandles, req);
		AS(11, irecv)(comm, n, data, copy, tags, mrs, phandles, req);
	default:
		return T(12)->irecv(comm, n, data, copy, tags, mrs, phandles,
				    req);
	}
}

enum nccl_result perf_test(struct perf_plugin *p, void *req, int *done,
			   int *sizes)
{
	SAME(test, req, done, sizes);
}

enum nccl_result perf_close_send(struct perf_plugin *p, void *comm)
{
	SAME(close_send, comm);
}

enum nccl_result perf_close_recv(struct perf_plugin *p, void *comm)
{
	SAME(close_recv, comm);
}

enum nccl_result perf_close_listen(struct perf_plugin *p, void *l)
{
	SAME(close_listen, l);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compiled against real headers of NCCL's plugin interfaces: do our structures
 * and functions agree with theirs?  -DHAVE_v6 ... say which versions there are.
 *
 * Functions are compared by their shape.  Each of the prototypes below takes
 * the types that have names of their own, ours (struct nccl_props_v6) or theirs
 * (ncclNetProperties_v6_t), and both members must be of the type so made.
 */
#include <stddef.h>
#include <nccl_net.h>
#include <tuners.h>
#ifdef HAVE_common
enum {
	THEIR_WARN = NCCL_LOG_WARN,
	THEIR_INFO = NCCL_LOG_INFO,
	THEIR_TRACE = NCCL_LOG_TRACE
};
#endif
/* Both have these names. */
#define NCCL_LOG_NONE	 OURS_LOG_NONE
#define NCCL_LOG_VERSION OURS_LOG_VERSION
#define NCCL_LOG_WARN	 OURS_LOG_WARN
#define NCCL_LOG_INFO	 OURS_LOG_INFO
#define NCCL_LOG_ABORT	 OURS_LOG_ABORT
#define NCCL_LOG_TRACE	 OURS_LOG_TRACE
enum {
	THEIR_HOST = NCCL_PTR_HOST,
	THEIR_CUDA = NCCL_PTR_CUDA,
	THEIR_DMABUF = NCCL_PTR_DMABUF
};
#undef NCCL_PTR_HOST
#undef NCCL_PTR_CUDA
#undef NCCL_PTR_DMABUF
#include "nccl_net/abi/env.h"
#include "nccl_net/abi/net.h"
#include "nccl_net/abi/tuner.h"

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
#define SAME_SIZE(ours, theirs)                               \
	_Static_assert(sizeof(struct ours) == sizeof(theirs), \
		       "size of " #theirs)
#define SAME_AT(ours, m, theirs, n)                                       \
	_Static_assert(offsetof(struct ours, m) == offsetof(theirs, n) && \
			       sizeof(((struct ours *)0)->m) ==           \
				       sizeof(((theirs *)0)->n),          \
		       #n " of " #theirs)
#define IS(type, member, ...)                                                 \
	_Static_assert(                                                       \
		__builtin_types_compatible_p(__typeof__(((type *)0)->member), \
					     __typeof__(__VA_ARGS__)),        \
		"type of " #member " of " #type)
/* A slot: its place, and its shape with our names and with theirs. */
#define SLOT(ours, m, theirs, n, shape_ours, shape_theirs) \
	SAME_AT(ours, m, theirs, n);                       \
	IS(struct ours, m, shape_ours);                    \
	IS(theirs, n, shape_theirs)

typedef enum nccl_result R;
typedef ncclResult_t T;

/* ---- what all versions have in common ----------------------------------- */

SAME(NCCL_SUCCESS, ncclSuccess);
SAME(NCCL_CUDA_ERROR, ncclUnhandledCudaError);
SAME(NCCL_SYSTEM_ERROR, ncclSystemError);
SAME(NCCL_INTERNAL_ERROR, ncclInternalError);
SAME(NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME(NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME(NCCL_REMOTE_ERROR, ncclRemoteError);
SAME(NCCL_PTR_HOST, THEIR_HOST);
SAME(NCCL_PTR_CUDA, THEIR_CUDA);
SAME(NCCL_PTR_DMABUF, THEIR_DMABUF);
SAME(NCCL_HANDLE_SIZE, NCCL_NET_HANDLE_MAXSIZE);
#ifdef HAVE_common
SAME(NCCL_LOG_WARN, THEIR_WARN);
SAME(NCCL_LOG_INFO, THEIR_INFO);
SAME(NCCL_LOG_TRACE, THEIR_TRACE);
SAME(NCCL_SUBSYS_INIT, NCCL_INIT);
SAME(NCCL_SUBSYS_NET, NCCL_NET);
SAME(NCCL_SUBSYS_ENV, NCCL_ENV);
SAME(NCCL_DEVICE_HOST, NCCL_NET_DEVICE_HOST);
#define LOGGER(level) \
	(void (*)(level, unsigned long, const char *, int, const char *, ...))0
#define IS_TYPE(type, ...)                                                   \
	_Static_assert(                                                      \
		__builtin_types_compatible_p(type, __typeof__(__VA_ARGS__)), \
		#type)
IS_TYPE(nccl_logger, LOGGER(enum nccl_log_level));
IS_TYPE(ncclDebugLogger_t, LOGGER(ncclDebugLogLevel));
#endif

#define NO_ARGUMENT(r) (r(*)(void))0
#define DEVICES(r)     (r(*)(int *))0
#define GET(r, props)  (r(*)(int, props *))0
#define REG(r, size)   (r(*)(void *, void *, size, int, void **))0
#define DMABUF(r)      (r(*)(void *, void *, size_t, int, uint64_t, int, void **))0
#define DEREG(r)       (r(*)(void *, void *))0
#define ISEND(r, size) (r(*)(void *, void *, size, int, void *, void **))0
#define ISEND_PROF(r) \
	(r(*)(void *, void *, size_t, int, void *, void *, void **))0
#define IRECV(r, size) \
	(r(*)(void *, int, void **, size *, int *, void **, void **))0
#define IRECV_PROF(r)                                                  \
	(r(*)(void *, int, void **, size_t *, int *, void **, void **, \
	      void **))0
#define FLUSH(r)		  (r(*)(void *, int, void **, int *, void **, void **))0
#define TEST(r)			  (r(*)(void *, int *, int *))0
#define ONE(r)			  (r(*)(void *))0
#define LISTEN(r)		  (r(*)(int, void *, void **))0
#define LISTEN_CTX(r)		  (r(*)(void *, int, void *, void **))0
#define CONNECT(r)		  (r(*)(int, void *, void **))0
#define CONNECT_DEV(r, d)	  (r(*)(int, void *, void **, d **))0
#define CONNECT_CONF(r, c, d)	  (r(*)(int, c *, void *, void **, d **))0
#define CONNECT_CTX(r, d)	  (r(*)(void *, int, void *, void **, d **))0
#define ACCEPT(r)		  (r(*)(void *, void **))0
#define ACCEPT_DEV(r, d)	  (r(*)(void *, void **, d **))0
#define INIT(r, log)		  (r(*)(log))0
#define INIT_PROF(r, log, prof)	  (r(*)(log, prof))0
#define INIT_CTX(r, c, log, prof) (r(*)(void **, uint64_t, c *, log, prof))0
#define DEVICE_MR(r)		  (r(*)(void *, void *, void **))0
#define CONSUMED(r)		  (r(*)(void *, int, void *))0
#define VDEVICE(r, props)	  (r(*)(int *, props *))0
#define ATTR(r, attr)		  (r(*)(void *, attr *))0

/* A slot of version @v, of a shape that takes nothing but the result. */
#define PLAIN(v, m, n, shape) \
	SLOT(nccl_net_v##v, m, ncclNet_v##v##_t, n, shape(R), shape(T))
#define SIZED(v, m, n, shape, size)                                 \
	SLOT(nccl_net_v##v, m, ncclNet_v##v##_t, n, shape(R, size), \
	     shape(T, size))
#define NAMED(v, m, n, shape, ours, theirs)                         \
	SLOT(nccl_net_v##v, m, ncclNet_v##v##_t, n, shape(R, ours), \
	     shape(T, theirs))

#define ALL(v, props, size)                                        \
	SAME_SIZE(nccl_net_v##v, ncclNet_v##v##_t);                \
	SAME_AT(nccl_net_v##v, name, ncclNet_v##v##_t, name);      \
	PLAIN(v, devices, devices, DEVICES);                       \
	NAMED(v, get_properties, getProperties, GET, struct props, \
	      ncclNetProperties_v##v##_t);                         \
	SIZED(v, reg, regMr, REG, size);                           \
	PLAIN(v, reg_dmabuf, regMrDmaBuf, DMABUF);                 \
	PLAIN(v, dereg, deregMr, DEREG);                           \
	PLAIN(v, iflush, iflush, FLUSH);                           \
	PLAIN(v, test, test, TEST);                                \
	PLAIN(v, close_send, closeSend, ONE);                      \
	PLAIN(v, close_recv, closeRecv, ONE);                      \
	PLAIN(v, close_listen, closeListen, ONE)
#define FROM_7(v)                                        \
	NAMED(v, accept, accept, ACCEPT_DEV, void,       \
	      ncclNetDeviceHandle_v##v##_t);             \
	PLAIN(v, get_device_mr, getDeviceMr, DEVICE_MR); \
	PLAIN(v, irecv_consumed, irecvConsumed, CONSUMED)
#define TO_9(v, size)                                               \
	NAMED(v, init, init, INIT, nccl_logger, ncclDebugLogger_t); \
	PLAIN(v, listen, listen, LISTEN);                           \
	SIZED(v, isend, isend, ISEND, size);                        \
	SIZED(v, irecv, irecv, IRECV, size)
#define FROM_7_TO_9(v)                                \
	NAMED(v, connect, connect, CONNECT_DEV, void, \
	      ncclNetDeviceHandle_v##v##_t)
#define FROM_9(v)                                          \
	NAMED(v, make_vdevice, makeVDevice, VDEVICE, void, \
	      ncclNetVDeviceProps_v##v##_t)
#define FROM_10(v)                                                          \
	PLAIN(v, isend, isend, ISEND_PROF);                                 \
	PLAIN(v, irecv, irecv, IRECV_PROF);                                 \
	SAME_SIZE(nccl_config_v10, ncclNetCommConfig_v##v##_t);             \
	SAME_AT(nccl_config_v10, traffic_class, ncclNetCommConfig_v##v##_t, \
		trafficClass)
#define FROM_11(v)                                                            \
	SLOT(nccl_net_v##v, init, ncclNet_v##v##_t, init,                     \
	     INIT_CTX(R, struct nccl_config_v10, nccl_logger, nccl_profiler), \
	     INIT_CTX(T, ncclNetCommConfig_v##v##_t, ncclDebugLogger_t,       \
		      ncclProfilerCallback_t));                               \
	PLAIN(v, listen, listen, LISTEN_CTX);                                 \
	NAMED(v, connect, connect, CONNECT_CTX, void,                         \
	      ncclNetDeviceHandle_v##v##_t);                                  \
	PLAIN(v, finalize, finalize, ONE);                                    \
	NAMED(v, set_attr, setNetAttr, ATTR, struct nccl_attr_v11,            \
	      ncclNetAttr_v##v##_t);                                          \
	SAME_SIZE(nccl_attr_v11, ncclNetAttr_v##v##_t);                       \
	SAME_AT(nccl_attr_v11, send, ncclNetAttr_v##v##_t, sendCommAttr);     \
	SAME_AT(nccl_attr_v11, recv, ncclNetAttr_v##v##_t, recvCommAttr);     \
	SAME_AT(nccl_attr_v11, op, ncclNetAttr_v##v##_t, op);                 \
	SAME_AT(nccl_attr_v11, algo, ncclNetAttr_v##v##_t, algo);             \
	SAME_AT(nccl_attr_v11, proto, ncclNetAttr_v##v##_t, proto)

/* ---- properties: weft's @o, NCCL's @v ----------------------------------- */

#define PROP(o, m, v, n) \
	SAME_AT(nccl_props_v##o, m, ncclNetProperties_v##v##_t, n)
#define PROPS(o, v)                                             \
	SAME_SIZE(nccl_props_v##o, ncclNetProperties_v##v##_t); \
	PROP(o, name, v, name);                                 \
	PROP(o, pci_path, v, pciPath);                          \
	PROP(o, guid, v, guid);                                 \
	PROP(o, ptr_support, v, ptrSupport);                    \
	PROP(o, speed, v, speed);                               \
	PROP(o, port, v, port);                                 \
	PROP(o, latency, v, latency);                           \
	PROP(o, max_comms, v, maxComms);                        \
	PROP(o, max_recvs, v, maxRecvs)
#define PROPS7(o, v)                            \
	PROP(o, device_type, v, netDeviceType); \
	PROP(o, device_version, v, netDeviceVersion)
#define PROPS8(o, v)  \
	PROPS7(o, v); \
	PROP(o, reg_is_global, v, regIsGlobal)
#define PROPS9(o, v, vprops_o)                                         \
	PROPS8(o, v);                                                  \
	PROP(o, force_flush, v, forceFlush);                           \
	PROP(o, vprops, v, vProps);                                    \
	PROP(o, max_p2p_bytes, v, maxP2pBytes);                        \
	PROP(o, max_coll_bytes, v, maxCollBytes);                      \
	SAME_SIZE(vprops_o, ncclNetVDeviceProps_v##v##_t);             \
	SAME_AT(vprops_o, ndevs, ncclNetVDeviceProps_v##v##_t, ndevs); \
	SAME_AT(vprops_o, devs, ncclNetVDeviceProps_v##v##_t, devs)

#ifdef HAVE_v6
PROPS(6, 6);
ALL(6, nccl_props_v6, int);
TO_9(6, int);
PLAIN(6, connect, connect, CONNECT);
PLAIN(6, accept, accept, ACCEPT);
#endif
#ifdef HAVE_v7
PROPS(7, 7);
PROPS7(7, 7);
ALL(7, nccl_props_v7, int);
FROM_7(7);
TO_9(7, int);
FROM_7_TO_9(7);
#endif
#ifdef HAVE_v8
PROPS(8, 8);
PROPS8(8, 8);
ALL(8, nccl_props_v8, size_t);
FROM_7(8);
TO_9(8, int);
FROM_7_TO_9(8);
#endif
#ifdef HAVE_v9
PROPS(9, 9);
PROPS9(9, 9, nccl_vprops_v9);
ALL(9, nccl_props_v9, size_t);
FROM_7(9);
TO_9(9, size_t);
FROM_7_TO_9(9);
FROM_9(9);
#endif
#ifdef HAVE_v10
PROPS(9, 10);
PROPS9(9, 10, nccl_vprops_v9);
ALL(10, nccl_props_v9, size_t);
FROM_7(10);
FROM_9(10);
FROM_10(10);
SLOT(nccl_net_v10, init, ncclNet_v10_t, init,
     INIT_PROF(R, nccl_logger, nccl_profiler),
     INIT_PROF(T, ncclDebugLogger_t, ncclProfilerCallback_t));
PLAIN(10, listen, listen, LISTEN);
SLOT(nccl_net_v10, connect, ncclNet_v10_t, connect,
     CONNECT_CONF(R, struct nccl_config_v10, void),
     CONNECT_CONF(T, ncclNetCommConfig_v10_t, ncclNetDeviceHandle_v10_t));
#endif
#ifdef HAVE_v11
PROPS(11, 11);
PROPS9(11, 11, nccl_vprops_v9);
PROP(11, max_multi_request, 11, maxMultiRequestSize);
ALL(11, nccl_props_v11, size_t);
FROM_7(11);
FROM_9(11);
FROM_10(11);
FROM_11(11);
#endif
#ifdef HAVE_v12
PROPS(12, 12);
PROPS9(12, 12, nccl_vprops_v12);
PROP(12, max_multi_request, 12, maxMultiRequestSize);
PROP(12, rail_id, 12, railId);
PROP(12, plane_id, 12, planeId);
ALL(12, nccl_props_v12, size_t);
FROM_7(12);
FROM_9(12);
FROM_10(12);
FROM_11(12);
#endif

/* ---- tuners ------------------------------------------------------------- */

#define TUNER(v, end)                                             \
	SAME_SIZE(nccl_tuner_v##v, ncclTuner_v##v##_t);           \
	SAME_AT(nccl_tuner_v##v, name, ncclTuner_v##v##_t, name); \
	SLOT(nccl_tuner_v##v, end, ncclTuner_v##v##_t, end, ONE(R), ONE(T))
#define TUNER_INIT(r, log) (r(*)(size_t, size_t, log, void **))0
#define TUNER_CTX(r, log, domains, constants) \
	(r(*)(void **, uint64_t, size_t, size_t, log, domains *, constants *))0
#define COLL2(r, f) \
	(r(*)(void *, f, size_t, int, int, int, int *, int *, int *))0
#define COLL3(r, f) (r(*)(void *, f, size_t, int, float **, int, int, int *))0
#define COLL4(r, f) \
	(r(*)(void *, f, size_t, int, float **, int, int, int, int *))0
#define CHUNK(r, f) (r(*)(void *, f, size_t, int, int, int, size_t *))0
#define TUNER_SLOT(v, m, n, shape, ours, theirs)                        \
	SLOT(nccl_tuner_v##v, m, ncclTuner_v##v##_t, n, shape(R, ours), \
	     shape(T, theirs))
#define TUNER_5(v)                                                       \
	SLOT(nccl_tuner_v##v, init, ncclTuner_v##v##_t, init,            \
	     TUNER_CTX(R, nccl_logger, struct nccl_nvl_domains_v5,       \
		       struct nccl_tuner_constants_v5),                  \
	     TUNER_CTX(T, ncclDebugLogger_t, ncclNvlDomainInfo_v##v##_t, \
		       ncclTunerConstants_v##v##_t));                    \
	TUNER_SLOT(v, get_coll, getCollInfo, COLL4, int, ncclFunc_t)

#ifdef HAVE_tuner_v2
TUNER(2, destroy);
TUNER_SLOT(2, init, init, TUNER_INIT, nccl_logger, ncclDebugLogger_t);
TUNER_SLOT(2, get_coll, getCollInfo, COLL2, int, ncclFunc_t);
#endif
#ifdef HAVE_tuner_v3
TUNER(3, destroy);
TUNER_SLOT(3, init, init, TUNER_INIT, nccl_logger, ncclDebugLogger_t);
TUNER_SLOT(3, get_coll, getCollInfo, COLL3, int, ncclFunc_t);
#endif
#ifdef HAVE_tuner_v4
TUNER(4, destroy);
TUNER_SLOT(4, init, init, TUNER_INIT, nccl_logger, ncclDebugLogger_t);
TUNER_SLOT(4, get_coll, getCollInfo, COLL4, int, ncclFunc_t);
#endif
#ifdef HAVE_tuner_v5
TUNER(5, finalize);
TUNER_5(5);
#endif
#ifdef HAVE_tuner_v6
TUNER(6, finalize);
TUNER_5(6);
TUNER_SLOT(6, get_chunk, getChunkSize, CHUNK, int, ncclFunc_t);
#endif

/* ---- settings ----------------------------------------------------------- */

#define ENV_INIT(r, ...) \
	(r(*)(uint8_t, uint8_t, uint8_t, const char *, ##__VA_ARGS__))0
#define ENV(v)                                                    \
	SAME_SIZE(nccl_env_v##v, ncclEnv_v##v##_t);               \
	SAME_AT(nccl_env_v##v, name, ncclEnv_v##v##_t, name);     \
	SLOT(nccl_env_v##v, finalize, ncclEnv_v##v##_t, finalize, \
	     NO_ARGUMENT(R), NO_ARGUMENT(T));                     \
	SLOT(nccl_env_v##v, get_env, ncclEnv_v##v##_t, getEnv,    \
	     (const char *(*)(const char *))0,                    \
	     (const char *(*)(const char *))0)
#ifdef HAVE_env_v1
ENV(1);
SLOT(nccl_env_v1, init, ncclEnv_v1_t, init, ENV_INIT(R), ENV_INIT(T));
#endif
#ifdef HAVE_env_v2
ENV(2);
SLOT(nccl_env_v2, init, ncclEnv_v2_t, init, ENV_INIT(R, nccl_logger),
     ENV_INIT(T, ncclDebugLogger_t));
#endif

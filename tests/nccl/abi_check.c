/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compiled against a real nccl_net.h: does our layout agree with it?
 * -DHAVE_v6 ... say which versions that header has.
 */
#include <stddef.h>
#include <nccl_net.h>
#include <tuners.h>
/* Both have enumerators of these names. */
#define NCCL_LOG_NONE	 OURS_LOG_NONE
#define NCCL_LOG_VERSION OURS_LOG_VERSION
#define NCCL_LOG_WARN	 OURS_LOG_WARN
#define NCCL_LOG_INFO	 OURS_LOG_INFO
#define NCCL_LOG_ABORT	 OURS_LOG_ABORT
#define NCCL_LOG_TRACE	 OURS_LOG_TRACE
#include "nccl_net/abi/net.h"
#include "nccl_net/abi/tuner.h"

#define SAME_SIZE(ours, theirs)						\
	_Static_assert(sizeof(struct ours) == sizeof(theirs),		\
		       "size of " #theirs)
#define SAME_AT(ours, m, theirs, n)					\
	_Static_assert(offsetof(struct ours, m) == offsetof(theirs, n) && \
		       sizeof(((struct ours *)0)->m) ==			\
		       sizeof(((theirs *)0)->n), #n " of " #theirs)

#define TABLE(v)							\
	SAME_SIZE(nccl_net_v##v, ncclNet_v##v##_t);			\
	SAME_AT(nccl_net_v##v, init, ncclNet_v##v##_t, init);		\
	SAME_AT(nccl_net_v##v, get_properties, ncclNet_v##v##_t,	\
		getProperties);						\
	SAME_AT(nccl_net_v##v, listen, ncclNet_v##v##_t, listen);	\
	SAME_AT(nccl_net_v##v, connect, ncclNet_v##v##_t, connect);	\
	SAME_AT(nccl_net_v##v, accept, ncclNet_v##v##_t, accept);	\
	SAME_AT(nccl_net_v##v, reg, ncclNet_v##v##_t, regMr);		\
	SAME_AT(nccl_net_v##v, reg_dmabuf, ncclNet_v##v##_t, regMrDmaBuf); \
	SAME_AT(nccl_net_v##v, isend, ncclNet_v##v##_t, isend);		\
	SAME_AT(nccl_net_v##v, irecv, ncclNet_v##v##_t, irecv);		\
	SAME_AT(nccl_net_v##v, iflush, ncclNet_v##v##_t, iflush);	\
	SAME_AT(nccl_net_v##v, test, ncclNet_v##v##_t, test);		\
	SAME_AT(nccl_net_v##v, close_listen, ncclNet_v##v##_t, closeListen)

#define PROPS(o, v)							\
	SAME_SIZE(nccl_props_v##o, ncclNetProperties_v##v##_t);		\
	SAME_AT(nccl_props_v##o, name, ncclNetProperties_v##v##_t, name); \
	SAME_AT(nccl_props_v##o, pci_path, ncclNetProperties_v##v##_t,	\
		pciPath);						\
	SAME_AT(nccl_props_v##o, guid, ncclNetProperties_v##v##_t, guid); \
	SAME_AT(nccl_props_v##o, ptr_support, ncclNetProperties_v##v##_t, \
		ptrSupport);						\
	SAME_AT(nccl_props_v##o, speed, ncclNetProperties_v##v##_t, speed); \
	SAME_AT(nccl_props_v##o, port, ncclNetProperties_v##v##_t, port); \
	SAME_AT(nccl_props_v##o, latency, ncclNetProperties_v##v##_t,	\
		latency);						\
	SAME_AT(nccl_props_v##o, max_comms, ncclNetProperties_v##v##_t,	\
		maxComms);						\
	SAME_AT(nccl_props_v##o, max_recvs, ncclNetProperties_v##v##_t,	\
		maxRecvs)
#define PROPS7(o, v)							\
	SAME_AT(nccl_props_v##o, device_type, ncclNetProperties_v##v##_t, \
		netDeviceType)
#define PROPS8(o, v)							\
	SAME_AT(nccl_props_v##o, reg_is_global, ncclNetProperties_v##v##_t, \
		regIsGlobal)
#define PROPS9(o, v)							\
	SAME_AT(nccl_props_v##o, force_flush, ncclNetProperties_v##v##_t, \
		forceFlush);						\
	SAME_AT(nccl_props_v##o, vprops, ncclNetProperties_v##v##_t,	\
		vProps);						\
	SAME_AT(nccl_props_v##o, max_p2p_bytes, ncclNetProperties_v##v##_t, \
		maxP2pBytes)

#ifdef HAVE_v6
TABLE(6);
PROPS(6, 6);
#endif
#ifdef HAVE_v7
TABLE(7);
PROPS(7, 7);
PROPS7(7, 7);
#endif
#ifdef HAVE_v8
TABLE(8);
PROPS(8, 8);
PROPS7(8, 8);
PROPS8(8, 8);
#endif
#ifdef HAVE_v9
TABLE(9);
PROPS(9, 9);
PROPS9(9, 9);
#endif
#ifdef HAVE_v10
TABLE(10);
PROPS(9, 10);
PROPS9(9, 10);
#endif
#ifdef HAVE_v11
TABLE(11);
PROPS(11, 11);
PROPS9(11, 11);
SAME_AT(nccl_props_v11, max_multi_request, ncclNetProperties_v11_t,
	maxMultiRequestSize);
SAME_AT(nccl_net_v11, finalize, ncclNet_v11_t, finalize);
#endif
#ifdef HAVE_v12
TABLE(12);
PROPS(12, 12);
PROPS9(12, 12);
SAME_AT(nccl_props_v12, rail_id, ncclNetProperties_v12_t, railId);
SAME_AT(nccl_props_v12, plane_id, ncclNetProperties_v12_t, planeId);
SAME_AT(nccl_net_v12, finalize, ncclNet_v12_t, finalize);
SAME_AT(nccl_net_v12, set_attr, ncclNet_v12_t, setNetAttr);
#endif

#define TUNER(v, end)							\
	SAME_SIZE(nccl_tuner_v##v, ncclTuner_v##v##_t);			\
	SAME_AT(nccl_tuner_v##v, init, ncclTuner_v##v##_t, init);	\
	SAME_AT(nccl_tuner_v##v, get_coll, ncclTuner_v##v##_t,		\
		getCollInfo);						\
	SAME_AT(nccl_tuner_v##v, end, ncclTuner_v##v##_t, end)
#ifdef HAVE_tuner_v2
TUNER(2, destroy);
#endif
#ifdef HAVE_tuner_v3
TUNER(3, destroy);
#endif
#ifdef HAVE_tuner_v4
TUNER(4, destroy);
#endif
#ifdef HAVE_tuner_v5
TUNER(5, finalize);
#endif
#ifdef HAVE_tuner_v6
TUNER(6, finalize);
SAME_AT(nccl_tuner_v6, get_chunk, ncclTuner_v6_t, getChunkSize);
#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Every offset as NCCL's headers have it (x86-64, aarch64), and the tables. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stddef.h>
#include "nccl_net/abi/env.h"
#include "nccl_net/abi/net.h"
#include "nccl_net/abi/tuner.h"

extern struct nccl_net_v6 ncclNetPlugin_v6;
extern struct nccl_net_v7 ncclNetPlugin_v7;
extern struct nccl_net_v8 ncclNetPlugin_v8;
extern struct nccl_net_v9 ncclNetPlugin_v9;
extern struct nccl_net_v10 ncclNetPlugin_v10;
extern struct nccl_net_v11 ncclNetPlugin_v11;
extern struct nccl_net_v12 ncclNetPlugin_v12;

#define AT(v, member, want) \
	cr_expect(eq(sz, offsetof(struct nccl_props_v##v, member), want))
#define SIZE(type, want) cr_expect(eq(sz, sizeof(struct type), want))
#define SLOT(v, member, want) \
	cr_expect(eq(sz, offsetof(struct nccl_net_v##v, member), 8 * want))

Test(abi, properties)
{
	AT(6, ptr_support, 24);
	AT(6, speed, 28);
	AT(6, port, 32);
	AT(6, latency, 36);
	AT(6, max_comms, 40);
	AT(6, max_recvs, 44);
	SIZE(nccl_props_v6, 48);
	AT(7, speed, 28);
	AT(7, max_recvs, 44);
	AT(7, device_type, 48);
	AT(7, device_version, 52);
	SIZE(nccl_props_v7, 56);
	AT(8, ptr_support, 24);
	AT(8, reg_is_global, 28);
	AT(8, speed, 32);
	AT(8, latency, 40);
	AT(8, device_version, 56);
	SIZE(nccl_props_v8, 64);
	AT(9, force_flush, 32);
	AT(9, speed, 36);
	AT(9, device_type, 56);
	AT(9, vprops, 64);
	AT(9, max_p2p_bytes, 88);
	AT(9, max_coll_bytes, 96);
	SIZE(nccl_props_v9, 104);
	AT(11, vprops, 64);
	AT(11, max_p2p_bytes, 88);
	AT(11, max_multi_request, 104);
	SIZE(nccl_props_v11, 112);
	AT(12, vprops, 64);
	AT(12, max_p2p_bytes, 104);
	AT(12, max_coll_bytes, 112);
	AT(12, max_multi_request, 120);
	AT(12, rail_id, 124);
	AT(12, plane_id, 126);
	SIZE(nccl_props_v12, 128);
	SIZE(nccl_attr_v11, 44);
}

Test(abi, tables)
{
	SLOT(6, reg, 7);
	SLOT(6, isend, 10);
	SLOT(6, close_listen, 16);
	SIZE(nccl_net_v6, 17 * 8);
	SLOT(7, close_listen, 16);
	SLOT(7, get_device_mr, 17);
	SIZE(nccl_net_v7, 19 * 8);
	SIZE(nccl_net_v8, 19 * 8);
	SLOT(9, make_vdevice, 19);
	SIZE(nccl_net_v9, 20 * 8);
	SIZE(nccl_net_v10, 20 * 8);
	SLOT(11, test, 13);
	SLOT(11, finalize, 20);
	SLOT(11, set_attr, 21);
	SIZE(nccl_net_v11, 22 * 8);
	SIZE(nccl_net_v12, 22 * 8);
	SIZE(nccl_env_v1, 4 * 8);
	SIZE(nccl_env_v2, 4 * 8);
	SIZE(nccl_tuner_v2, 4 * 8);
	SIZE(nccl_tuner_v3, 4 * 8);
	SIZE(nccl_tuner_v4, 4 * 8);
	SIZE(nccl_tuner_v5, 4 * 8);
	SIZE(nccl_tuner_v6, 5 * 8);
	cr_expect(eq(sz, offsetof(struct nccl_tuner_v6, get_chunk), 4 * 8));
}

/*
 * NCCL calls all of these without looking whether they are there, but for
 * reg_dmabuf, which its own sockets lack, too.
 */
#define FILLED(v)                                                        \
	do {                                                             \
		struct nccl_net_v##v *t = &ncclNetPlugin_v##v;           \
                                                                         \
		cr_expect(eq(str, (char *)t->name, "weft"));             \
		cr_expect(t->init && t->devices && t->get_properties);   \
		cr_expect(t->listen && t->connect && t->accept);         \
		cr_expect(t->reg && !t->reg_dmabuf && t->dereg);         \
		cr_expect(t->isend && t->irecv && t->iflush && t->test); \
		cr_expect(t->close_send && t->close_recv);               \
		cr_expect(t->close_listen != NULL);                      \
	} while (0)

Test(abi, tables_are_filled)
{
	FILLED(6);
	FILLED(7);
	FILLED(8);
	FILLED(9);
	FILLED(10);
	FILLED(11);
	FILLED(12);
	cr_expect(ncclNetPlugin_v11.finalize && ncclNetPlugin_v12.finalize);
}

#define PROPERTIES(v, pv)                                                     \
	do {                                                                  \
		struct nccl_props_v##pv got;                                  \
                                                                              \
		memset(&got, 0xff, sizeof(got));                              \
		cr_assert(eq(int, ncclNetPlugin_v##v.get_properties(0, &got), \
			     NCCL_SUCCESS));                                  \
		cr_expect(eq(str, got.name, "weft"));                         \
		cr_expect(got.pci_path == NULL);                              \
		cr_expect(eq(int, got.ptr_support, NCCL_PTR_HOST));           \
		cr_expect(gt(int, got.speed, 0));                             \
		cr_expect(gt(int, got.max_comms, 1000));                      \
		cr_expect(eq(int, got.max_recvs, 1));                         \
		cr_expect(ne(int, ncclNetPlugin_v##v.get_properties(1, &got), \
			     NCCL_SUCCESS));                                  \
	} while (0)

Test(abi, properties_of_all_versions)
{
	struct nccl_props_v12 p;
	struct nccl_props_v9 p9;

	PROPERTIES(6, 6);
	PROPERTIES(7, 7);
	PROPERTIES(8, 8);
	PROPERTIES(9, 9);
	PROPERTIES(10, 9);
	PROPERTIES(11, 11);
	PROPERTIES(12, 12);
	ncclNetPlugin_v9.get_properties(0, &p9);
	cr_expect(eq(int, p9.vprops.ndevs, 1));
	cr_expect(p9.max_p2p_bytes > 0 && p9.max_p2p_bytes <= NCCL_MAX_SIZE);
	ncclNetPlugin_v12.get_properties(0, &p);
	cr_expect(eq(int, p.vprops.ndevs, 1));
	cr_expect(eq(int, p.vprops.devs[0], 0));
	cr_expect(eq(int, p.rail_id, -1));
	cr_expect(eq(int, p.device_type, NCCL_DEVICE_HOST));
	cr_expect(p.max_coll_bytes > 0 && p.max_coll_bytes <= NCCL_MAX_SIZE);
}

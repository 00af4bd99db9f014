/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Performance estimates, from which UCP chooses lanes and protocols.
 *
 * Only the proportions matter: UCP compares the figures with each other (short,
 * bcopy, zcopy, rendezvous), with its estimate of a memory copy (UCX_BCOPY_BW),
 * and with the other transports in UCX_TLS.
 */
#include "ucx_tl/uct.h"

/*
 * Deprioritize loopback beside another interface: both reach peers of this
 * host, and two rails over the same cores halve each other.  Likewise weft_tcp
 * beside weft_ib on one port: it adds no bandwidth, and its share of a message
 * would arrive last.  UCX drops a rail that is more than four times slower
 * than the best one (UCX_MULTI_LANE_MAX_RATIO), and uses the lane with the
 * lowest latency.
 */
#define LOW_PRIORITY_BANDWIDTH 8
#define LOW_PRIORITY_LATENCY   20e-6

void weft_uct_iface_scores(const struct weft_uct_iface *iface,
			   struct weft_uct_iface_attr *attr)
{
	attr->overhead = iface->attr.overhead;
	attr->bandwidth.dedicated = 0;
	attr->bandwidth.shared = iface->tl->lane_bandwidth > 0
					 ? iface->tl->lane_bandwidth
					 : iface->attr.bandwidth;
	attr->latency.c = iface->attr.latency;
	attr->latency.m = 0;
	attr->dev_num_paths = 1;
	if (iface->deprioritized) {
		attr->bandwidth.shared /= LOW_PRIORITY_BANDWIDTH;
		attr->latency.c += LOW_PRIORITY_LATENCY;
	}
}

/*
 * Costs of an operation besides the wire, measured over loopback.  A message is
 * copied again at the receiver, so that rendezvous pays off for a long one. The
 * order is short, zcopy, bcopy, other things being equal.  tls.c has the
 * figures per transport.
 */
#define ZCOPY_OVERHEAD 0.4e-6 /* s */
#define BCOPY_OVERHEAD 0.2e-6
/*
 * If zcopy is offered, bcopy sends a long message in pieces of a segment
 * (iface.c), each a frame and a system call at both ends: 64 KiB take 40 to
 * 55 us, by zcopy 12 to 22.  For "fast completion" (MPI_Send) UCP takes a piece
 * for the copy alone, but zcopy for the whole time on the wire, of which it
 * gives each process of a host a part.  In fact zcopy completes at once.  So
 * the cost of a piece is larger than that time.
 *
 * UCP charges it for each control message of a rendezvous as well, which thus
 * begins at 79 KiB where many messages follow each other and at 356 KiB where
 * one is waited for.  By measurement, 16 cores: in a row eager is the faster
 * one up to 64 KiB (3.9 against 2.3 GB/s) and rendezvous from 96 KiB on (6.4
 * against 4.9), alone eager up to 384 KiB.
 */
#define PIECE_OVERHEAD 80e-6

struct cost {
	double copy;	 /* s per byte */
	double overhead; /* s */
};

/* Is memory of a GPU at either end? */
static bool is_gpu(const struct weft_uct_perf_attr *attr)
{
	for (unsigned int i = 0; i < 2; i++)
		if (attr->field_mask & (WEFT_UCT_PERF_LOCAL_MEMORY << i) &&
		    attr->memory[i] == WEFT_UCS_MEMORY_CUDA)
			return true;
	return false;
}

static struct cost get_cost(const struct weft_uct_tl *tl,
			    const struct weft_uct_perf_attr *attr)
{
	const bool gpu = tl->gpu_copy > 0 && is_gpu(attr);
	const double speed = gpu ? tl->gpu_copy : tl->put_copy;
	const double put_copy = speed > 0 ? 1 / speed : 0;
	const double copy = tl->message_copy > 0 ? 1 / tl->message_copy : 0;

	switch (attr->operation) {
	case WEFT_EP_OP_PUT_ZCOPY:
		return (struct cost){ put_copy, tl->put_overhead };
	case WEFT_EP_OP_GET_ZCOPY:
		return (struct cost){ put_copy, gpu ? tl->gpu_get_overhead
						    : tl->get_overhead };
	case WEFT_EP_OP_AM_ZCOPY:
		return (struct cost){ copy, ZCOPY_OVERHEAD };
	case WEFT_EP_OP_AM_BCOPY:
		return (struct cost){ copy, tl->am_zcopy ? PIECE_OVERHEAD
							 : BCOPY_OVERHEAD };
	default:
		return (struct cost){ copy, 0 };
	}
}

static void add_copy_cost(struct weft_uct_bandwidth *bandwidth, double copy)
{
	bandwidth->shared = 1 / (1 / bandwidth->shared + copy);
}

enum weft_ucs_status weft_uct_estimate_perf(struct weft_uct_iface *iface,
					    struct weft_uct_perf_attr *attr)
{
	const struct weft_uct_abi *abi = iface->uct->abi;
	enum weft_ucs_status status;
	struct cost cost;

	/* fills the requested fields, equal for all operations */
	status = iface->uct->sym.base_estimate_perf(iface, attr);
	if (status || !(attr->field_mask & WEFT_UCT_PERF_OPERATION))
		return status;
	cost = get_cost(iface->tl, attr);
	if (attr->field_mask & WEFT_UCT_PERF_PRE)
		attr->send_pre_overhead += cost.overhead;
	if (attr->field_mask & WEFT_UCT_PERF_BANDWIDTH)
		add_copy_cost(&attr->bandwidth, cost.copy);
	if (abi->perf.path_bandwidth &&
	    (attr->field_mask & WEFT_UCT_PERF_PATH_BANDWIDTH))
		add_copy_cost(
			(struct weft_uct_bandwidth *)((char *)attr +
						      abi->perf.path_bandwidth),
			cost.copy);
	return WEFT_UCS_OK;
}

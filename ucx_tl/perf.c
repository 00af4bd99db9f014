/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What UCP is told about speed, from which it chooses lanes and protocols.
 *
 * The figures only have to be right in proportion: UCP compares them with each
 * other (short, bcopy, zcopy, rendezvous), with its own guess of a memory copy
 * (UCX_BCOPY_BW), and with the other transports in UCX_TLS.
 */
#include "ucx_tl/uct.h"

/*
 * A loopback beside another interface: peers of this host are reached by both,
 * and two rails over the same cores halve each other.  The same of weft_tcp
 * beside weft_ib on one port: it adds no wire, and its share of a message would
 * be the last to arrive.  UCX leaves out a rail that is more than four times
 * slower than the best one (UCX_MULTI_LANE_MAX_RATIO), and takes the lane with
 * the least latency.
 */
#define NARROW_BANDWIDTH 8
#define NARROW_LATENCY	 20e-6

void weft_uct_iface_scores(const struct weft_uct_iface *iface,
			   struct weft_uct_iface_attr *attr)
{
	attr->overhead = iface->attr.overhead;
	attr->bandwidth.dedicated = 0;
	attr->bandwidth.shared = iface->attr.bandwidth;
	attr->latency.c = iface->attr.latency;
	attr->latency.m = 0;
	attr->dev_num_paths = 1;
	if (iface->narrow) {
		attr->bandwidth.shared /= NARROW_BANDWIDTH;
		attr->latency.c += NARROW_LATENCY;
	}
}

/*
 * What an operation costs beyond the wire, from measurements over loopback.
 * A message is copied once more on its way to the user, so that a rendezvous
 * pays from 100 to 200 KiB on.  Short before bcopy before zcopy, as long as
 * nothing else speaks against it.  tls.c has the figures per transport.
 */
#define ZCOPY_OVERHEAD 0.4e-6 /* s */
#define BCOPY_OVERHEAD 0.2e-6
/*
 * A long message goes by bcopy in pieces of a segment where it can go by zcopy,
 * too (iface.c).  UCP believes that they overlap and gain; here each costs both
 * ends this much more, on the same cores often.
 */
#define PIECE_OVERHEAD 2.5e-6

struct cost {
	double copy;	 /* s per byte */
	double overhead; /* s */
};

static struct cost cost_of(const struct weft_uct_tl *tl, uint32_t operation)
{
	switch (operation) {
	case WEFT_EP_OP_PUT_ZCOPY:
		return (struct cost){ 0, tl->put_overhead };
	case WEFT_EP_OP_GET_ZCOPY:
		return (struct cost){ 0, tl->get_overhead };
	case WEFT_EP_OP_AM_ZCOPY:
		return (struct cost){ 1 / tl->message_copy, ZCOPY_OVERHEAD };
	case WEFT_EP_OP_AM_BCOPY:
		return (struct cost){ 1 / tl->message_copy +
					      tl->am_zcopy * PIECE_OVERHEAD /
						      WEFT_UCT_SEG_SIZE,
				      BCOPY_OVERHEAD };
	default:
		return (struct cost){ 1 / tl->message_copy, 0 };
	}
}

static void slow(struct weft_uct_bandwidth *bandwidth, double copy)
{
	bandwidth->shared = 1 / (1 / bandwidth->shared + copy);
}

enum weft_ucs_status weft_uct_estimate_perf(struct weft_uct_iface *iface,
					    struct weft_uct_perf_attr *attr)
{
	const struct weft_uct_abi *abi = iface->uct->abi;
	enum weft_ucs_status status;
	struct cost cost;

	/* fills what is asked for, all operations alike */
	status = iface->uct->sym.base_estimate_perf(iface, attr);
	if (status || !(attr->field_mask & WEFT_UCT_PERF_OPERATION))
		return status;
	cost = cost_of(iface->tl, attr->operation);
	if (attr->field_mask & WEFT_UCT_PERF_PRE)
		attr->send_pre_overhead += cost.overhead;
	if (attr->field_mask & WEFT_UCT_PERF_BANDWIDTH)
		slow(&attr->bandwidth, cost.copy);
	if (abi->perf.path_bandwidth &&
	    (attr->field_mask & WEFT_UCT_PERF_PATH_BANDWIDTH))
		slow((struct weft_uct_bandwidth *)((char *)attr +
						   abi->perf.path_bandwidth),
		     cost.copy);
	return WEFT_UCS_OK;
}

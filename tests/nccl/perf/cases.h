/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEFT_TOOLS_PERF_CASES_H
#define WEFT_TOOLS_PERF_CASES_H

#include "tests/nccl/perf/perf.h"

/* cases_data.c: bytes and sizes */
void case_properties(struct perf *p);
void case_sizes(struct perf *p);
void case_unaligned(struct perf *p);
void case_in_flight(struct perf *p);
void case_both_ways(struct perf *p);
void case_late_receive(struct perf *p);
void case_late_send(struct perf *p);
void case_early_completion(struct perf *p);
void case_grouped(struct perf *p);
void case_too_large(struct perf *p);
void case_register_beside(struct perf *p);

/* cases_life.c: comms and processes */
void case_listen_reuse(struct perf *p);
void case_many_comms(struct perf *p);
void case_two_contexts(struct perf *p);
void case_threads(struct perf *p);
void case_connect_beside(struct perf *p);
void case_self(struct perf *p);
void case_ring(struct perf *p);
void case_close_in_flight(struct perf *p);
void case_peer_killed(struct perf *p);
void case_peer_busy(struct perf *p);
void case_peer_stopped(struct perf *p);
void case_reload(struct perf *p);

#endif

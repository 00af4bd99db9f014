/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every rank of rapidsmpf's UCXX communicator sends a message of each SIZE to
 * every rank, itself included, and checks each byte that it gets.  Host memory:
 * anything more of rapidsmpf takes CUDA streams, so a GPU.
 *
 * usage: alltoall SIZE...
 */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ostream>

#if __GNUC__ < 13
/* rapidsmpf's logger writes the time so, as C++20 has it, but not GCC 12. */
namespace std::chrono
{
static inline ostream &operator<<(ostream &out, system_clock::time_point at)
{
	return out << at.time_since_epoch().count();
}
} // namespace std::chrono
#endif

#include <rapidsmpf/bootstrap/ucxx.hpp>
#include <rapidsmpf/communicator/ucxx.hpp>

using namespace rapidsmpf;
using Bytes = std::vector<std::uint8_t>;

static void fill(Bytes &data, Rank from, Rank to)
{
	std::uint32_t x = 1 + from * 31 + to * 1009 + data.size();

	for (auto &byte : data) {
		x = x * 1664525 + 1013904223;
		byte = x >> 24;
	}
}

static std::unique_ptr<Bytes> block(std::size_t size, Rank from, Rank to)
{
	auto data = std::make_unique<Bytes>(size);

	fill(*data, from, to);
	return data;
}

int main(int argc, char **argv)
{
	config::Options options{ config::get_environment_variables() };
	auto comm = bootstrap::create_ucxx_comm(
		std::make_shared<ProgressThread>(),
		bootstrap::BackendType::AUTO, options,
		Logger::from_options(options));
	const Rank me = comm->rank(), ranks = comm->nranks();
	unsigned long got = 0;

	for (int i = 1; i < argc; ++i) {
		const std::size_t size = std::strtoul(argv[i], nullptr, 10);
		const Tag tag{ static_cast<OpID>(i), 0 };
		std::vector<std::unique_ptr<Communicator::Future>> sends;

		for (Rank to = 0; to < ranks; ++to)
			sends.push_back(
				comm->send(block(size, me, to), to, tag));
		for (Rank from = 0; from < ranks;) {
			auto data = comm->recv_from(from, tag);

			if (!data)
				continue;
			if (*data != *block(size, from, me)) {
				std::printf(
					"rank %d: %zu bytes of %d are wrong\n",
					me, size, from);
				return 1;
			}
			got += size;
			++from;
		}
		while (!sends.empty())
			comm->test_some(sends);
	}
	comm->barrier();
	std::printf("rank %d of %d got %lu bytes\n", me, ranks, got);
}

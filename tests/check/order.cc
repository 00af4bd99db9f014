// SPDX-License-Identifier: BSD-3-Clause
// The protocol of devices/shm/shm_ring.c and shm_ring.h, for Relacy, which runs two
// threads in each order with at most four changes at will between them, and lets each
// load see each value that C11 allows but for loads that see the future.  What it shows:
// no byte is read before it is written or after it is overwritten, none is written while
// it is read, and neither side sleeps beside work.  What it does not: that longer runs
// do the same, that compilers keep to C11, and that the sources are this.  A message by
// itself is released without a fence, and its writer has a timer: not modelled.
// tests/check/order.sh compares the orders in both; write_byte() and what read_record()
// asserts are the caller's.
#include <relacy/relacy.hpp>
#include <cstdlib>
using namespace rl;

// The order in the line that the argument names is as if it were relaxed.
static int weak_line;

static memory_order in_line(int line, memory_order order)
{
	return line == weak_line ? mo_relaxed : order;
}

#undef memory_order_acquire
#undef memory_order_release
#undef memory_order_seq_cst
#define memory_order_acquire in_line(__LINE__, mo_acquire), $
#define memory_order_release in_line(__LINE__, mo_release), $
#define memory_order_seq_cst in_line(__LINE__, mo_seq_cst), $

// Words of the ring; a record is a header and as many words as that says.
enum { RING = 7, MOST = 2, RECORDS = 4 };

// The bytes of records are no atomics, but a word of the ring may be a header in the
// next turn.  So each is written twice: `word` shows what is too old or too new, `byte`
// what is written and read at the same time.
#define bytes mo_relaxed

struct ring : test_suite<ring, 2> {
	enum { WRITER, READER };
	atomic<unsigned> word[RING], head, wants, sleeping[2], socket[2];
	var<unsigned> byte[RING];
	// the writer's, and the reader's
	unsigned tail, seen_head, next, written, seen;
	bool asleep[2];

	static unsigned len_of(unsigned n) { return (n + MOST) % (MOST + 1); }
	// not 0, and different for each record
	static unsigned header_of(unsigned n) { return n * (MOST + 1) + len_of(n) + 1; }

	void before()
	{
		for (unsigned i = 0; i < RING; i++)
			word[i].store(0, bytes, $);
		head.store(0, bytes, $);
		wants.store(0, bytes, $);
		for (unsigned i = 0; i < 2; i++) {
			sleeping[i].store(0, bytes, $);
			socket[i].store(0, bytes, $);
			asleep[i] = false;
		}
		tail = seen_head = next = written = seen = 0;
	}

	void wake(unsigned peer)
	{
		atomic_thread_fence(memory_order_seq_cst);
		if (!sleeping[peer].load(memory_order_relaxed) ||
		    !sleeping[peer].exchange(0, mo_seq_cst, $))
			return;
		socket[peer].fetch_add(1, bytes, $);
	}

	void wake_writer()
	{
		atomic_thread_fence(memory_order_seq_cst);
		if (is_wanted())
			wake(WRITER);
	}

	void sleep(unsigned self, bool on)
	{
		if (self == WRITER)
			wants.store(on, memory_order_relaxed);
		sleeping[self].store(on, memory_order_relaxed);
		atomic_thread_fence(memory_order_seq_cst);
	}

	// Has the peer written to the socket?  If not, it sleeps to the end.
	bool is_woken(unsigned self)
	{
		if (!socket[self].load(bytes, $)) {
			asleep[self] = true;
			return false;
		}
		socket[self].fetch_add(-1, bytes, $);
		return true;
	}

	void read_head()
	{
		seen_head = head.load(memory_order_acquire);
		RL_ASSERT(seen_head <= tail);
	}

	bool has_room(unsigned n)
	{
		// and the word of 0 behind it
		if (tail - seen_head + 1 + len_of(n) + 1 <= RING)
			return true;
		read_head();
		return tail - seen_head + 1 + len_of(n) + 1 <= RING;
	}

	void write_byte(unsigned at, unsigned to)
	{
		word[at % RING].store(to, bytes, $);
		byte[at % RING]($) = to;
	}

	void read_byte(unsigned at, unsigned expected)
	{
		RL_ASSERT(word[at % RING].load(bytes, $) == expected);
		RL_ASSERT(byte[at % RING]($) == expected);
	}

	void clear(unsigned at)
	{
		word[at % RING].store(0, memory_order_relaxed);
	}

	bool has_next()
	{
		return word[next % RING].load(memory_order_relaxed);
	}

	void write_record(unsigned n)
	{
		const unsigned at = tail;

		for (unsigned i = 1; i <= len_of(n); i++)
			write_byte(at + i, header_of(n) + 100 * i);
		tail += 1 + len_of(n);
		clear(tail);
		word[at % RING].store(header_of(n), memory_order_release);
	}

	bool read_record(unsigned n)
	{
		const unsigned header = word[next % RING].load(memory_order_acquire);

		if (!header)
			return false;
		RL_ASSERT(header == header_of(n));
		for (unsigned i = 1; i <= len_of(n); i++)
			read_byte(next + i, header + 100 * i);
		return true;
	}

	bool is_wanted()
	{
		return wants.load(memory_order_relaxed);
	}

	void release(unsigned n)
	{
		next += 1 + len_of(n);
		head.store(next, memory_order_release);
		wake_writer();
	}

	void write_all()
	{
		for (unsigned n = 0; n < RECORDS; n++) {
			while (!has_room(n)) {
				sleep(WRITER, true);
				if (!has_room(n) && !is_woken(WRITER))
					return;
				sleep(WRITER, false);
			}
			write_record(n);
			wake(READER);
			written++;
		}
	}

	void read_all()
	{
		for (unsigned n = 0; n < RECORDS; n++) {
			while (!read_record(n)) {
				sleep(READER, true);
				if (!has_next() && !is_woken(READER))
					return;
				sleep(READER, false);
			}
			release(n);
			seen++;
		}
	}

	// neither sleeps beside work without being woken
	void after()
	{
		if (asleep[READER] && seen < written)
			RL_ASSERT(socket[READER].load(bytes, $));
		if (asleep[WRITER] && has_room(written))
			RL_ASSERT(socket[WRITER].load(bytes, $));
	}

	void thread(unsigned self)
	{
		if (self == WRITER)
			write_all();
		else
			read_all();
	}
};

int main(int argc, char **argv)
{
	test_params params;

	weak_line = argc > 1 ? atoi(argv[1]) : 0;

	params.search_type = fair_context_bound_scheduler_type;
	params.context_bound = 4;
	params.iteration_count = 100000000;
	return !simulate<ring>(params);
}

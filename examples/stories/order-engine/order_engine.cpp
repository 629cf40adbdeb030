// SPDX-License-Identifier: Apache-2.0 OR MIT
// A small order engine: orders come in, are checked and matched against a book. Events of every type of field say what it does. Prints what it has
// done as JSON, so that the recording can be compared with it (run).
#include <rtscope/rtscope.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

enum class Side : char { buy = 'B', sell = 'S' };
RTSCOPE_ENUM(Side, { Side::buy, "buy" }, { Side::sell, "sell" });

constexpr int LEVELS = 3;

struct Order {
	std::uint64_t id;
	std::string symbol;
	Side side;
	double price;
	std::int32_t quantity;
};

struct Totals {
	std::uint64_t orders = 0, rejected = 0, fills = 0;
	std::int64_t quantity = 0;
	double notional = 0;
};

class Book
{
      public:
	explicit Book(std::string_view symbol) : symbol_(symbol)
	{
	}

	void match(const Order &order, Totals &totals)
	{
		RTSCOPE_SPAN(oms, match, rtscope_u64(id, order.id), rtscope_str(symbol, symbol_));
		const std::int32_t sign = order.side == Side::buy ? 1 : -1;

		for (int level = 0; level < LEVELS; level++) {
			depth_[level] += sign * order.quantity / (level + 1);
			weights_[level] = static_cast<float>(order.price) / static_cast<float>(level + 1);
		}
		RTSCOPE_EVENT(oms, book, rtscope_str(symbol, symbol_), rtscope_array_s32(depth, depth_, LEVELS),
			      rtscope_span_f32(weights, weights_), rtscope_array_f64(last, last_, 2));
		last_ = { last_[1], order.price };
		totals.fills++;
		totals.quantity += order.quantity;
		totals.notional += order.price * order.quantity;
	}

      private:
	const std::string_view symbol_;
	std::int32_t depth_[LEVELS] = {};
	std::vector<float> weights_ = std::vector<float>(LEVELS);
	std::array<double, 2> last_ = { { 0, 0 } };
};

static void emit_types(const Order &order)
{
	const std::uint16_t route[] = { 7, 8, 9 };

	RTSCOPE_EVENT(oms, types, rtscope_u8(u8, 8), rtscope_u16(u16, 16), rtscope_u32(u32, 32), rtscope_u64(u64, 64),
		      rtscope_s8(s8, -8), rtscope_s16(s16, -16), rtscope_s32(s32, -32), rtscope_s64(s64, -64),
		      rtscope_x32(flags, 0xbeef), rtscope_bool(urgent, order.quantity > 90), rtscope_f32(f32, 0.5F),
		      rtscope_f64(f64, 0.1), rtscope_enum(side, Side, order.side),
		      rtscope_strn(currency, order.symbol, 3), rtscope_seq_u16(route, route, 3),
		      rtscope_bytes(raw, "\x01\x02", 2));
}

static void trade(std::uint64_t orders, Totals &totals)
{
	const std::string_view symbols[] = { "EURUSD", "USDJPY" };
	Book books[] = { Book(symbols[0]), Book(symbols[1]) };

	rtscope_thread_init(); // before the first order, so that none waits for the buffer
	for (std::uint64_t id = 1; id <= orders; id++) {
		const Order order = { id, std::string(symbols[id % 2]), id % 3 ? Side::buy : Side::sell,
				      100 + static_cast<double>(id % 50) / 4, static_cast<std::int32_t>(id * 7 % 100) };

		totals.orders++;
		RTSCOPE_EVENT(oms, order, rtscope_u64(id, order.id), rtscope_str(symbol, order.symbol),
			      rtscope_enum(side, Side, order.side), rtscope_f64(price, order.price),
			      rtscope_s32(quantity, order.quantity));
		if (order.quantity == 0) {
			totals.rejected++;
			RTSCOPE_PRINTF_LEVEL(
				RTSCOPE_WARNING, oms, rejected, "order %llu of %s rejected: %s (price %.2f)",
				static_cast<unsigned long long>(order.id), order.symbol, "no quantity", order.price);
			continue;
		}
		books[id % 2].match(order, totals);
		if (id == 1)
			emit_types(order);
	}
}

int main(int, char **argv)
{
	Totals totals;
	const std::uint64_t orders = argv[1] ? std::strtoull(argv[1], nullptr, 10) : 1000;

	std::thread matcher([&] { trade(orders, totals); });
	matcher.join();
	RTSCOPE_EVENT(oms, done, rtscope_str(note, std::string(300, '.')));
	std::printf("{\"orders\":%llu,\"rejected\":%llu,\"fills\":%llu,\"quantity\":%lld,\"notional\":%.2f}\n",
		    static_cast<unsigned long long>(totals.orders), static_cast<unsigned long long>(totals.rejected),
		    static_cast<unsigned long long>(totals.fills), static_cast<long long>(totals.quantity),
		    totals.notional);
	return 0;
}

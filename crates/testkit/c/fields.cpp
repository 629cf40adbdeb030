/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What C++ programs hand to events: texts and ranges of the standard library, enumerations with a scope, constants as counts; texts that readers
 * make; and spans. Each instance of a template has types and constants of its own. With RTSCOPE_DISABLE it is the same program.
 */
#include <rtscope/rtscope.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

enum class Side : char { buy = 'B', sell = 'S' };
RTSCOPE_ENUM(Side, { Side::buy, "buy" }, { Side::sell, "sell" });
enum class Flag : uint32_t { none = 0, last = 0x80000000U, all = 0xffffffffU };
RTSCOPE_ENUM(Flag, { Flag::none, "none" }, { Flag::last, "last" }, { Flag::all, "all" });

constexpr int LENGTH = 3;

struct Order {
	volatile int quantity = 5;
	unsigned lots : 3;
	const std::string &symbol() const
	{
		return symbol_;
	}

      private:
	std::string symbol_ = "EURUSD";
};

template <class Price, int Count> inline void quote(Price price, const Price (&depth)[Count])
{
	RTSCOPE_SPAN(test, quote, rtscope_s32(count, Count));
	RTSCOPE_PRINTF(test, quoted, "%g of %d, %s\n", price, Count, std::string("new"));
	RTSCOPE_EVENT(test, depth, rtscope_array_s32(all, reinterpret_cast<const int *>(depth), Count));
}

int main()
{
	const std::string symbol = "EURUSD", longest(255, 'x'), longer = longest + "y";
	const std::string umlauts = std::string(251, 'x') + "\xc3\xa4\xc3\xa4\xc3\xa4";
	std::string_view part = symbol;
	const std::vector<float> weights = { 1, 2.5F };
	const std::array<double, 2> limits = { { -1, 0.1 } };
	const int values[LENGTH] = { 1, 2, 3 };
	const float floats[2] = { 1.5F, -2 };
	Order order;

	order.lots = 2;
	part.remove_suffix(3);
	RTSCOPE_EVENT(test, texts, rtscope_str(symbol, symbol), rtscope_str(part, part),
		      rtscope_str(made, symbol + "/" + std::string(part)), rtscope_strn(three, symbol, 3),
		      rtscope_str(empty, std::string_view()), rtscope_str(plain, "plain"));
	RTSCOPE_EVENT(test, cut, rtscope_str(longest, longest), rtscope_str(longer, longer),
		      rtscope_str(umlauts, umlauts), rtscope_str(of_c, longer.c_str()));
	RTSCOPE_EVENT(test, ranges, rtscope_span_f32(weights, weights), rtscope_array_f64(limits, limits, 2),
		      rtscope_seq_f32(first, weights, 1), rtscope_array_s32(values, values, LENGTH),
		      rtscope_span_x8(bytes, std::string_view("az")), rtscope_enum(side, Side, Side::sell),
		      rtscope_enum(flag, Flag, Flag::last), rtscope_enum(flags, Flag, Flag::all));
	RTSCOPE_PRINTF(test, says, "%s %c %s %lu %d %u %p %5.2f|", symbol, Side::buy, part, sizeof(int), order.quantity,
		       order.lots + 0U, static_cast<void *>(nullptr), limits[1]);
	RTSCOPE_PRINTF_LEVEL(RTSCOPE_WARNING, test, says_less, "100 %%");
	{
		RTSCOPE_SPAN(test, outer);
		quote(1, values);
		quote(2.5F, floats);
	}
	return order.symbol() == symbol ? 0 : 1;
}

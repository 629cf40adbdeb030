// SPDX-License-Identifier: Apache-2.0 OR MIT
// Events in templates, inline functions and lambdas: one description each, however often the compiler copies the code.
#include <rtscope/rtscope.h>

#include <cstdio>

RTSCOPE_ENUM(mode, { 0, "idle" }, { 7, "run" });

template <typename T> struct box {
	T value;
	void say() const
	{
		RTSCOPE_EVENT(test, box, rtscope_u64(size, sizeof(T)), rtscope_s64(value, value));
	}
};

inline void in_line(int n)
{
	RTSCOPE_EVENT(test, in_line, rtscope_s32(n, n), rtscope_enum(m, mode, 7));
}

int main()
{
	const auto lambda = [](auto x) { RTSCOPE_EVENT(test, lambda, rtscope_f64(x, x)); };

	RTSCOPE_EVENT(test, empty);
	box<int>{ 1 }.say();
	box<char>{ 2 }.say();
	box<long>{ 3 }.say();
	in_line(1);
	in_line(2);
	lambda(1);
	lambda(2.5F);
	std::puts("emitted 8");
}

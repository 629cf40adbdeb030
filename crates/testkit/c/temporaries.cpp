// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Values of events that are in temporaries of C++, as many fields have them; for AddressSanitizer.
 */
#include <rtscope/rtscope.h>

#include <cstdio>
#include <string>
#include <vector>

static std::string text(unsigned number)
{
	return std::string(40, static_cast<char>('a' + number % 26));
}

static std::vector<uint32_t> values(unsigned number)
{
	return std::vector<uint32_t>(20, number);
}

int main()
{
	for (unsigned i = 0; i < 26; i++)
		RTSCOPE_EVENT(test, temporaries, rtscope_str(path, text(i).c_str()), rtscope_u32(path_bytes, i),
			      rtscope_seq_u32(items, values(i).data(), values(i).size()),
			      rtscope_array_u32(some, values(i).data(), 4));
	std::puts("emitted 26");
}

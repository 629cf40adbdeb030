/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The events of vectors/user_events.json by the C header; src/bin/rtscope-vectors.rs emits the same by the Rust macro. Prints
 * "ready", waits for a line, and emits each once.
 */
#include <rtscope/rtscope.h>

#include <stdio.h>
#include <string.h>

RTSCOPE_ENUM(vectors_mode, { 0, "idle" }, { 1, "run fast" }, { -7, "stopped" });

/* Events of numbers, and with as many fields as an event can have. */
static void numbers(void)
{
	RTSCOPE_EVENT(vectors, unsigned_numbers, rtscope_u8(a, 0xfe), rtscope_u16(b, 0xfedc),
		      rtscope_u32(c, 0xfedcba98), rtscope_u64(d, 0xfedcba9876543210));
	RTSCOPE_EVENT(vectors, signed_numbers, rtscope_s8(a, -2), rtscope_s16(b, -300), rtscope_s32(c, -70000),
		      rtscope_s64(d, -5000000000));
	RTSCOPE_EVENT(vectors, hex_numbers, rtscope_x8(a, 0xfe), rtscope_x16(b, 0xfedc), rtscope_x32(c, 0xfedcba98),
		      rtscope_x64(d, 0xfedcba9876543210));
	RTSCOPE_EVENT(vectors, other_numbers, rtscope_bool(yes, 1), rtscope_bool(no, 0), rtscope_f32(f, 1.5f),
		      rtscope_f64(g, -0.1));
	RTSCOPE_EVENT(vectors, names, rtscope_enum(a, vectors_mode, 1), rtscope_enum(b, vectors_mode, -7),
		      rtscope_enum(c, vectors_mode, 5));
	RTSCOPE_EVENT(vectors, nothing);
	RTSCOPE_EVENT_LEVEL(RTSCOPE_ERR, vectors, loud, rtscope_u8(code, 9));
	RTSCOPE_EVENT(vectors, sixteen, rtscope_u8(a, 1), rtscope_u8(b, 2), rtscope_u8(c, 3), rtscope_u8(d, 4),
		      rtscope_u8(e, 5), rtscope_u8(f, 6), rtscope_u8(g, 7), rtscope_u8(h, 8), rtscope_u8(i, 9),
		      rtscope_u8(j, 10), rtscope_u8(k, 11), rtscope_u8(l, 12), rtscope_u8(m, 13), rtscope_u8(n, 14),
		      rtscope_u8(o, 15), rtscope_u8(p, 16));
}

/* Events of texts, also such that are cut. */
static void texts(void)
{
	char text[301];
	uint16_t many[600];

	RTSCOPE_EVENT(vectors, texts, rtscope_str(plain, "hello"), rtscope_str(empty, ""),
		      rtscope_strn(cut, "cut off here", 5),
		      rtscope_str(umlauts, "gr\xc3\xbc\xc3\x9f"
					   "e"));
	memset(text, 'x', 300);
	text[300] = 0;
	for (int i = 0; i < 600; i++)
		many[i] = (uint16_t)i;
	RTSCOPE_EVENT(vectors, cut, rtscope_str(text, text), rtscope_seq_u16(many, many, 600));
}

/* Events of arrays and sequences of every type. */
static void arrays(void)
{
	static const uint8_t u8[] = { 1, 2, 3 };
	static const uint16_t u16[] = { 0x102, 0x304 };
	static const uint32_t u32[] = { 0x1020304, 0x5060708 };
	static const uint64_t u64[] = { 0x102030405060708 };
	static const int8_t s8[] = { -1, 2, -3 };
	static const int16_t s16[] = { -1, 300 };
	static const int32_t s32[] = { -1, 70000 };
	static const int64_t s64[] = { -5000000000 };

	RTSCOPE_EVENT(vectors, arrays, rtscope_array_u8(a, u8, 3), rtscope_array_u16(b, u16, 2),
		      rtscope_array_u32(c, u32, 2), rtscope_array_u64(d, u64, 1), rtscope_array_s8(e, s8, 3),
		      rtscope_array_s16(f, s16, 2), rtscope_array_s32(g, s32, 2), rtscope_array_s64(h, s64, 1),
		      rtscope_array_x8(i, u8, 3), rtscope_array_x16(j, u16, 2), rtscope_array_x32(k, u32, 2),
		      rtscope_array_x64(l, u64, 1));
	RTSCOPE_EVENT(vectors, sequences, rtscope_seq_u8(a, u8, 3), rtscope_seq_u16(b, u16, 2),
		      rtscope_seq_u32(c, u32, 2), rtscope_seq_u64(d, u64, 1), rtscope_seq_s8(e, s8, 3),
		      rtscope_seq_s16(f, s16, 2), rtscope_seq_s32(g, s32, 2), rtscope_seq_s64(h, s64, 1),
		      rtscope_seq_x8(i, u8, 3), rtscope_seq_x16(j, u16, 2), rtscope_seq_x32(k, u32, 2),
		      rtscope_seq_x64(l, u64, 1), rtscope_bytes(m, "raw", 3), rtscope_seq_u64(n, u64, 0));
}

static void floats(void)
{
	static const float f32[] = { 1.5f, -0.25f }, more[] = { 1, 2, -3 };
	static const double f64[] = { 0.1 }, large[] = { -1e100 };
	enum { COUNT = 2 };

	RTSCOPE_EVENT(vectors, floats, rtscope_array_f32(a, f32, COUNT), rtscope_array_f64(b, f64, COUNT - 1),
		      rtscope_seq_f32(c, more, 3), rtscope_seq_f64(d, large, 1), rtscope_seq_f64(e, f64, 0));
}

int main(void)
{
	puts("ready");
	fflush(stdout);
	getchar();
	numbers();
	texts();
	arrays();
	floats();
	puts("emitted 13");
	return 0;
}

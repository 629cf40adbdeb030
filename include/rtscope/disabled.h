/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Events when they are switched off: arguments are looked at by the compiler, so that nothing is called unused, and are never
 * evaluated.
 */
#ifndef RTSCOPE_DISABLED_H
#define RTSCOPE_DISABLED_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#if defined(__cplusplus)
template <class... Values> static inline void rtscope__use(const char *, const Values &...)
{
}
#else
static inline void rtscope__use(const char *event, ...)
{
	(void)event;
}
#endif

#define RTSCOPE__USE(event, ...) rtscope__use(#event, __VA_ARGS__)
#define RTSCOPE_EVENT(provider, ...) RTSCOPE_EVENT_LEVEL(0, provider, __VA_ARGS__)
#define RTSCOPE_EVENT_LEVEL(level, provider, ...)     \
	do {                                          \
		if (0)                                \
			RTSCOPE__USE(__VA_ARGS__, 0); \
	} while (0)
#define RTSCOPE_PRINTF(provider, ...) RTSCOPE_EVENT_LEVEL(0, provider, __VA_ARGS__)
#define RTSCOPE_PRINTF_LEVEL(level, provider, ...) RTSCOPE_EVENT_LEVEL(level, provider, __VA_ARGS__)
#define RTSCOPE_SPAN(provider, ...) RTSCOPE_EVENT_LEVEL(0, provider, __VA_ARGS__)
#define RTSCOPE_SPAN_LEVEL(level, provider, ...) RTSCOPE_EVENT_LEVEL(level, provider, __VA_ARGS__)
#define RTSCOPE_ENUM(name, ...) struct rtscope__nothing

#define rtscope_u8(name, value) (value)
#define rtscope_u16(name, value) (value)
#define rtscope_u32(name, value) (value)
#define rtscope_u64(name, value) (value)
#define rtscope_s8(name, value) (value)
#define rtscope_s16(name, value) (value)
#define rtscope_s32(name, value) (value)
#define rtscope_s64(name, value) (value)
#define rtscope_x8(name, value) (value)
#define rtscope_x16(name, value) (value)
#define rtscope_x32(name, value) (value)
#define rtscope_x64(name, value) (value)
#define rtscope_bool(name, value) (value)
#define rtscope_f32(name, value) (value)
#define rtscope_f64(name, value) (value)
#define rtscope_enum(name, enumeration, value) (value)
#define rtscope_str(name, value) (value)
#define rtscope_strn(name, value, max) (value), (max)
#define rtscope_array_u8(name, value, count) (value), (count)
#define rtscope_array_u16(name, value, count) (value), (count)
#define rtscope_array_u32(name, value, count) (value), (count)
#define rtscope_array_u64(name, value, count) (value), (count)
#define rtscope_array_s8(name, value, count) (value), (count)
#define rtscope_array_s16(name, value, count) (value), (count)
#define rtscope_array_s32(name, value, count) (value), (count)
#define rtscope_array_s64(name, value, count) (value), (count)
#define rtscope_array_x8(name, value, count) (value), (count)
#define rtscope_array_x16(name, value, count) (value), (count)
#define rtscope_array_x32(name, value, count) (value), (count)
#define rtscope_array_x64(name, value, count) (value), (count)
#define rtscope_array_f32(name, value, count) (value), (count)
#define rtscope_array_f64(name, value, count) (value), (count)
#define rtscope_seq_u8(name, value, count) (value), (count)
#define rtscope_seq_u16(name, value, count) (value), (count)
#define rtscope_seq_u32(name, value, count) (value), (count)
#define rtscope_seq_u64(name, value, count) (value), (count)
#define rtscope_seq_s8(name, value, count) (value), (count)
#define rtscope_seq_s16(name, value, count) (value), (count)
#define rtscope_seq_s32(name, value, count) (value), (count)
#define rtscope_seq_s64(name, value, count) (value), (count)
#define rtscope_seq_x8(name, value, count) (value), (count)
#define rtscope_seq_x16(name, value, count) (value), (count)
#define rtscope_seq_x32(name, value, count) (value), (count)
#define rtscope_seq_x64(name, value, count) (value), (count)
#define rtscope_seq_f32(name, value, count) (value), (count)
#define rtscope_seq_f64(name, value, count) (value), (count)
#if defined(__cplusplus)
#define rtscope_span_u8(name, value) (value)
#define rtscope_span_u16(name, value) (value)
#define rtscope_span_u32(name, value) (value)
#define rtscope_span_u64(name, value) (value)
#define rtscope_span_s8(name, value) (value)
#define rtscope_span_s16(name, value) (value)
#define rtscope_span_s32(name, value) (value)
#define rtscope_span_s64(name, value) (value)
#define rtscope_span_x8(name, value) (value)
#define rtscope_span_x16(name, value) (value)
#define rtscope_span_x32(name, value) (value)
#define rtscope_span_x64(name, value) (value)
#define rtscope_span_f32(name, value) (value)
#define rtscope_span_f64(name, value) (value)
#endif
#define rtscope_bytes(name, value, bytes) (value), (bytes)

#endif

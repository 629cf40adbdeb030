/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The fields that an event may have, and what is done with each kind.
 *
 * A field is a tuple (kind, "name", variable, value, extra). For each kind there are five macros: how it is described, which
 * local variable holds it (so that arguments are evaluated once, and only when somebody records), how many bytes it has, how
 * they are written, and what a USDT probe is given. A value that is of no such kind is refused in one sentence.
 */
#ifndef RTSCOPE_FIELDS_H
#define RTSCOPE_FIELDS_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "life.h"
#include "text.h"

/* ---- fields -------------------------------------------------------------------------------------------------------- */

/* Tables, a line for each field. */
/* clang-format off */
#define rtscope_u8(name, value) (rtscope_k_int, "u8", #name, rtscope__v_##name, value, uint8_t) /* 8 bits, unsigned */
#define rtscope_u16(name, value) (rtscope_k_int, "u16", #name, rtscope__v_##name, value, uint16_t) /* 16 bits, unsigned */
#define rtscope_u32(name, value) (rtscope_k_int, "u32", #name, rtscope__v_##name, value, uint32_t) /* 32 bits, unsigned */
#define rtscope_u64(name, value) (rtscope_k_int, "u64", #name, rtscope__v_##name, value, uint64_t) /* 64 bits, unsigned */
#define rtscope_s8(name, value) (rtscope_k_int, "s8", #name, rtscope__v_##name, value, int8_t) /* 8 bits, signed */
#define rtscope_s16(name, value) (rtscope_k_int, "s16", #name, rtscope__v_##name, value, int16_t) /* 16 bits, signed */
#define rtscope_s32(name, value) (rtscope_k_int, "s32", #name, rtscope__v_##name, value, int32_t) /* 32 bits, signed */
#define rtscope_s64(name, value) (rtscope_k_int, "s64", #name, rtscope__v_##name, value, int64_t) /* 64 bits, signed */
#define rtscope_x8(name, value) (rtscope_k_int, "x8", #name, rtscope__v_##name, value, uint8_t) /* 8 bits, unsigned, shown in hexadecimal */
#define rtscope_x16(name, value) (rtscope_k_int, "x16", #name, rtscope__v_##name, value, uint16_t) /* 16 bits, unsigned, shown in hexadecimal */
#define rtscope_x32(name, value) (rtscope_k_int, "x32", #name, rtscope__v_##name, value, uint32_t) /* 32 bits, unsigned, shown in hexadecimal */
#define rtscope_x64(name, value) (rtscope_k_int, "x64", #name, rtscope__v_##name, value, uint64_t) /* 64 bits, unsigned, shown in hexadecimal */
#define rtscope_bool(name, value) (rtscope_k_int, "bool", #name, rtscope__v_##name, !!(value), uint8_t)
#define rtscope_f32(name, value) (rtscope_k_float, "f32", #name, rtscope__v_##name, value, float)
#define rtscope_f64(name, value) (rtscope_k_float, "f64", #name, rtscope__v_##name, value, double)
/* A value of RTSCOPE_ENUM(enumeration, ...); 32 bits, signed. */
#define rtscope_enum(name, enumeration, value) \
	(rtscope_k_int, "enum " #enumeration, #name, rtscope__v_##name, value, int32_t)
/*
 * Text up to its NUL, of at most 255 bytes or `max`; NULL becomes "(null)". C++: also anything with data() and size(), such as std::string and
 * std::string_view. What rtscope_str cuts ends in U+2026. What rtscope_strn cuts does not: the text may fill an array of `max` bytes, and nothing
 * behind it is read.
 */
#define rtscope_str(name, value) (rtscope_k_text, "str", #name, rtscope__v_##name, value, (RTSCOPE__TEXT_MAX, 1))
#define rtscope_strn(name, value, max) (rtscope_k_text, "str", #name, rtscope__v_##name, value, (max, 0))
/* `count` elements: a constant expression, whatever its form. C++: `value` may also be what has data(), such as std::array. */
#define rtscope_array_u8(name, value, count) (rtscope_k_array, "array u8 %c[rtscope__v_" #name "]", #name, rtscope__v_##name, value, (uint8_t, count))
#define rtscope_array_u16(name, value, count) (rtscope_k_array, "array u16 %c[rtscope__v_" #name "]", #name, rtscope__v_##name, value, (uint16_t, count))
#define rtscope_array_u32(name, value, count) (rtscope_k_array, "array u32 %c[rtscope__v_" #name "]", #name, rtscope__v_##name, value, (uint32_t, count))
#define rtscope_array_u64(name, value, count) (rtscope_k_array, "array u64 %c[rtscope__v_" #name "]", #name, rtscope__v_##name, value, (uint64_t, count))
#define rtscope_array_s8(name, value, count) (rtscope_k_array, "array s8 %c[rtscope__v_" #name "]", #name, rtscope__v_##name, value, (int8_t, count))
#define rtscope_array_s16(name, value, count) (rtscope_k_array, "array s16 %c[rtscope__v_" #name "]", #name, rtscope__v_##name, value, (int16_t, count))
#define rtscope_array_s32(name, value, count) (rtscope_k_array, "array s32 %c[rtscope__v_" #name "]", #name, rtscope__v_##name, value, (int32_t, count))
#define rtscope_array_s64(name, value, count) (rtscope_k_array, "array s64 %c[rtscope__v_" #name "]", #name, rtscope__v_##name, value, (int64_t, count))
#define rtscope_array_x8(name, value, count) (rtscope_k_array, "array x8 %c[rtscope__v_" #name "]", #name, rtscope__v_##name, value, (uint8_t, count))
#define rtscope_array_x16(name, value, count) (rtscope_k_array, "array x16 %c[rtscope__v_" #name "]", #name, rtscope__v_##name, value, (uint16_t, count))
#define rtscope_array_x32(name, value, count) (rtscope_k_array, "array x32 %c[rtscope__v_" #name "]", #name, rtscope__v_##name, value, (uint32_t, count))
#define rtscope_array_x64(name, value, count) (rtscope_k_array, "array x64 %c[rtscope__v_" #name "]", #name, rtscope__v_##name, value, (uint64_t, count))
#define rtscope_array_f32(name, value, count) (rtscope_k_array, "array f32 %c[rtscope__v_" #name "]", #name, rtscope__v_##name, value, (float, count))
#define rtscope_array_f64(name, value, count) (rtscope_k_array, "array f64 %c[rtscope__v_" #name "]", #name, rtscope__v_##name, value, (double, count))
/* `count` elements, known when it happens; more than 1024 bytes of them are cut off. */
#define rtscope_seq_u8(name, value, count) (rtscope_k_sequence, "seq u8", #name, rtscope__v_##name, value, (uint8_t, count))
#define rtscope_seq_u16(name, value, count) (rtscope_k_sequence, "seq u16", #name, rtscope__v_##name, value, (uint16_t, count))
#define rtscope_seq_u32(name, value, count) (rtscope_k_sequence, "seq u32", #name, rtscope__v_##name, value, (uint32_t, count))
#define rtscope_seq_u64(name, value, count) (rtscope_k_sequence, "seq u64", #name, rtscope__v_##name, value, (uint64_t, count))
#define rtscope_seq_s8(name, value, count) (rtscope_k_sequence, "seq s8", #name, rtscope__v_##name, value, (int8_t, count))
#define rtscope_seq_s16(name, value, count) (rtscope_k_sequence, "seq s16", #name, rtscope__v_##name, value, (int16_t, count))
#define rtscope_seq_s32(name, value, count) (rtscope_k_sequence, "seq s32", #name, rtscope__v_##name, value, (int32_t, count))
#define rtscope_seq_s64(name, value, count) (rtscope_k_sequence, "seq s64", #name, rtscope__v_##name, value, (int64_t, count))
#define rtscope_seq_x8(name, value, count) (rtscope_k_sequence, "seq x8", #name, rtscope__v_##name, value, (uint8_t, count))
#define rtscope_seq_x16(name, value, count) (rtscope_k_sequence, "seq x16", #name, rtscope__v_##name, value, (uint16_t, count))
#define rtscope_seq_x32(name, value, count) (rtscope_k_sequence, "seq x32", #name, rtscope__v_##name, value, (uint32_t, count))
#define rtscope_seq_x64(name, value, count) (rtscope_k_sequence, "seq x64", #name, rtscope__v_##name, value, (uint64_t, count))
#define rtscope_seq_f32(name, value, count) (rtscope_k_sequence, "seq f32", #name, rtscope__v_##name, value, (float, count))
#define rtscope_seq_f64(name, value, count) (rtscope_k_sequence, "seq f64", #name, rtscope__v_##name, value, (double, count))
#if defined(__cplusplus)
/* The same of what has data() and size(): std::span, std::vector, std::array. */
#define rtscope_span_u8(name, value) (rtscope_k_span, "seq u8", #name, rtscope__v_##name, value, uint8_t)
#define rtscope_span_u16(name, value) (rtscope_k_span, "seq u16", #name, rtscope__v_##name, value, uint16_t)
#define rtscope_span_u32(name, value) (rtscope_k_span, "seq u32", #name, rtscope__v_##name, value, uint32_t)
#define rtscope_span_u64(name, value) (rtscope_k_span, "seq u64", #name, rtscope__v_##name, value, uint64_t)
#define rtscope_span_s8(name, value) (rtscope_k_span, "seq s8", #name, rtscope__v_##name, value, int8_t)
#define rtscope_span_s16(name, value) (rtscope_k_span, "seq s16", #name, rtscope__v_##name, value, int16_t)
#define rtscope_span_s32(name, value) (rtscope_k_span, "seq s32", #name, rtscope__v_##name, value, int32_t)
#define rtscope_span_s64(name, value) (rtscope_k_span, "seq s64", #name, rtscope__v_##name, value, int64_t)
#define rtscope_span_x8(name, value) (rtscope_k_span, "seq x8", #name, rtscope__v_##name, value, uint8_t)
#define rtscope_span_x16(name, value) (rtscope_k_span, "seq x16", #name, rtscope__v_##name, value, uint16_t)
#define rtscope_span_x32(name, value) (rtscope_k_span, "seq x32", #name, rtscope__v_##name, value, uint32_t)
#define rtscope_span_x64(name, value) (rtscope_k_span, "seq x64", #name, rtscope__v_##name, value, uint64_t)
#define rtscope_span_f32(name, value) (rtscope_k_span, "seq f32", #name, rtscope__v_##name, value, float)
#define rtscope_span_f64(name, value) (rtscope_k_span, "seq f64", #name, rtscope__v_##name, value, double)
#endif
/* clang-format on */
/* `bytes` bytes of memory. */
#define rtscope_bytes(name, value, bytes) rtscope_seq_x8(name, value, bytes)

/*
 * An enumeration's labels, at file scope: RTSCOPE_ENUM(mode, { 0, "idle" }, { MODE_RUN, "run" });  In C++ a value may be of an enumeration with
 * a scope: { Mode::run, "run" }. Values have 32 bits: C++ refuses others, and events of C with such an enumeration are not recorded, and told.
 */
#define RTSCOPE_ENUM(name, ...)                                                                                   \
	static RTSCOPE__LABELS rtscope__label_type rtscope__labels_##name[] = { __VA_ARGS__ };                    \
	static const struct rtscope__enumeration rtscope__enumeration_##name = {                                  \
		#name, rtscope__labels_##name, sizeof(rtscope__labels_##name) / sizeof(rtscope__labels_##name[0]) \
	};                                                                                                        \
	static const struct rtscope__enumeration *const rtscope__enumeration_place_##name                         \
		__attribute__((used, section(RTSCOPE__ENUMS_SECTION))) = &rtscope__enumeration_##name

#if defined(__cplusplus)
#define RTSCOPE__LABELS constexpr
/* Compilers show its name where it is called in a constant. */
static inline int64_t rtscope__the_value_of_a_label_has_at_most_32_bits(void)
{
	return 0;
}
struct rtscope__label_type : rtscope__label {
	template <class Value>
	constexpr rtscope__label_type(Value number, const char *text)
	    : rtscope__label{ (int64_t)number >= INT32_MIN && (int64_t)number <= (int64_t)UINT32_MAX ?
				      (int64_t)number :
				      rtscope__the_value_of_a_label_has_at_most_32_bits(),
			      text }
	{
	}
};
#else
#define RTSCOPE__LABELS const
typedef struct rtscope__label rtscope__label_type;
#endif

/* ---- each kind: description, variable, size, writing, USDT's argument ------------------------------------------------ */

/*
 * What C takes and nobody means; C++ refuses it by itself. Values are not evaluated. Used before all others: a compiler shows its name
 * for a field that none of the macros above has made.
 */
#define RTSCOPE__NO_SUCH_KIND_OF_FIELD(kind, type, name, variable, value, extra) \
	RTSCOPE__PASTE(RTSCOPE__CHECK_, kind)(value, extra)
#if defined(__cplusplus)
#define RTSCOPE__CHECK_rtscope_k_int(value, type)
#define RTSCOPE__CHECK_rtscope_k_text(value, extra)
#define RTSCOPE__CHECK_rtscope_k_array(value, extra)
#define RTSCOPE__CHECK_rtscope_k_sequence(value, extra)
#define RTSCOPE__ELEMENTS(value, extra) rtscope__elements<RTSCOPE__FIRST(extra)>(value)
#else
/* As an argument has it: an array is a pointer, a bit-field an integer. */
#define RTSCOPE__IS_POINTER(value) \
	(__builtin_classify_type(1 ? (value) : (value)) == __builtin_classify_type((char *)0))
#define RTSCOPE__CHECK_rtscope_k_int(value, type)                                                         \
	RTSCOPE__ASSERT(sizeof(type) >= sizeof(void *) || !RTSCOPE__IS_POINTER(value),                    \
			"this field is an integer, and its value a pointer: rtscope_str() is for texts, " \
			"rtscope_x64() has room for an address");
#define RTSCOPE__CHECK_rtscope_k_text(value, extra) \
	RTSCOPE__ASSERT(RTSCOPE__IS_POINTER(value), "this field is a text, and its value is none");
/* A pointer to elements of this type: any of that size and kind, or of no type. */
#define RTSCOPE__POINTS_AT(value, type) __builtin_types_compatible_p(__typeof__(*(value)), type)
#define RTSCOPE__IS_FLOAT(type) \
	(__builtin_types_compatible_p(type, float) || __builtin_types_compatible_p(type, double))
#define RTSCOPE__CHECK_ELEMENTS(value, type)                                                               \
	RTSCOPE__ASSERT(RTSCOPE__IS_POINTER(value), "this field is an array, and its value is none");      \
	RTSCOPE__ASSERT(RTSCOPE__POINTS_AT(value, void) ||                                                 \
				(sizeof(*(value)) == sizeof(type) &&                                       \
				 (RTSCOPE__POINTS_AT(value, type) ||                                       \
				  !(RTSCOPE__IS_FLOAT(type) || RTSCOPE__IS_FLOAT(__typeof__(*(value)))))), \
			"the elements have another type than the field");
#define RTSCOPE__CHECK_rtscope_k_array(value, extra) RTSCOPE__CHECK_ELEMENTS(value, RTSCOPE__FIRST(extra))
#define RTSCOPE__CHECK_rtscope_k_sequence(value, extra) RTSCOPE__CHECK_ELEMENTS(value, RTSCOPE__FIRST(extra))
#define RTSCOPE__ELEMENTS(value, extra) ((const RTSCOPE__FIRST(extra) *)(const void *)(value))
#endif
#define RTSCOPE__CHECK_rtscope_k_float(value, extra)
#define RTSCOPE__CHECK_rtscope_k_span(value, extra)
#define RTSCOPE__DESCRIBE(kind, type, name, variable, value, extra) type " " name "\\n"
#define RTSCOPE__DECLARE(kind, type, name, variable, value, extra) \
	RTSCOPE__PASTE(RTSCOPE__DECLARE_, kind)(variable, extra)
#define RTSCOPE__SET(kind, type, name, variable, value, extra) \
	RTSCOPE__PASTE(RTSCOPE__SET_, kind)(variable, value, extra),
#define RTSCOPE__SIZE(kind, type, name, variable, value, extra) +RTSCOPE__PASTE(RTSCOPE__SIZE_, kind)(variable, extra)
#define RTSCOPE__WRITE(kind, type, name, variable, value, extra) RTSCOPE__PASTE(RTSCOPE__WRITE_, kind)(variable, extra)
#define RTSCOPE__ARGUMENT(kind, type, name, variable, value, extra) RTSCOPE__PASTE(RTSCOPE__ARGUMENT_, kind)(variable)
/* Constants that the description needs, and that the compiler knows rather than the preprocessor. */
#define RTSCOPE__OPERAND(kind, type, name, variable, value, extra) \
	RTSCOPE__PASTE(RTSCOPE__OPERAND_, kind)(variable, value, extra)
/* The same in a label: an instance of a template may have other constants than the next. */
#define RTSCOPE__SUFFIX(kind, type, name, variable, value, extra) RTSCOPE__PASTE(RTSCOPE__SUFFIX_, kind)(variable)
#define RTSCOPE__SUFFIX_rtscope_k_int(variable) ""
#define RTSCOPE__SUFFIX_rtscope_k_float(variable) ""
#define RTSCOPE__SUFFIX_rtscope_k_text(variable) ""
#define RTSCOPE__SUFFIX_rtscope_k_sequence(variable) ""
#define RTSCOPE__SUFFIX_rtscope_k_span(variable) ""
#define RTSCOPE__SUFFIX_rtscope_k_array(variable) "_%c[" #variable "]"
#define RTSCOPE__OPERAND_rtscope_k_int(variable, value, extra)
#define RTSCOPE__OPERAND_rtscope_k_float(variable, value, extra)
#define RTSCOPE__OPERAND_rtscope_k_text(variable, value, extra)
#define RTSCOPE__OPERAND_rtscope_k_sequence(variable, value, extra)
#define RTSCOPE__OPERAND_rtscope_k_span(variable, value, extra)

#define RTSCOPE__DECLARE_rtscope_k_int(variable, type) type variable;
#define RTSCOPE__SET_rtscope_k_int(variable, value, type) variable = (type)(value)
#define RTSCOPE__SIZE_rtscope_k_int(variable, type) sizeof(type)
#define RTSCOPE__WRITE_rtscope_k_int(variable, type) rtscope__at = rtscope__write(rtscope__at, &variable, sizeof(type));
#define RTSCOPE__ARGUMENT_rtscope_k_int(variable) , "nor"((int64_t)variable)

#define RTSCOPE__DECLARE_rtscope_k_float(variable, type) type variable;
#define RTSCOPE__SET_rtscope_k_float(variable, value, type) variable = (type)(value)
#define RTSCOPE__SIZE_rtscope_k_float(variable, type) sizeof(type)
#define RTSCOPE__WRITE_rtscope_k_float(variable, type) \
	rtscope__at = rtscope__write(rtscope__at, &variable, sizeof(type));
/* USDT has no floating point that all tools read: its address. */
#define RTSCOPE__ARGUMENT_rtscope_k_float(variable) , "nor"((int64_t)(uintptr_t)&variable)

#define RTSCOPE__DECLARE_rtscope_k_text(variable, extra) struct rtscope__text variable;
#define RTSCOPE__SET_rtscope_k_text(variable, value, extra)                                                     \
	variable = rtscope__text_of(                                                                            \
		value, (size_t)(RTSCOPE__FIRST(extra)) < 4096 ? (size_t)(RTSCOPE__FIRST(extra)) : (size_t)4096, \
		RTSCOPE__SECOND(extra))
#define RTSCOPE__SIZE_rtscope_k_text(variable, extra) variable.bytes + 1
#define RTSCOPE__WRITE_rtscope_k_text(variable, extra) rtscope__at = rtscope__write_text(rtscope__at, variable);
#define RTSCOPE__ARGUMENT_rtscope_k_text(variable) , "nor"((int64_t)(uintptr_t)variable.at)

#define RTSCOPE__FIRST(tuple) RTSCOPE__FIRST_ tuple
#define RTSCOPE__FIRST_(first, second) first
#define RTSCOPE__SECOND(tuple) RTSCOPE__SECOND_ tuple
#define RTSCOPE__SECOND_(first, second) second

#define RTSCOPE__DECLARE_rtscope_k_array(variable, extra)                                                              \
	RTSCOPE__ASSERT(                                                                                               \
		__builtin_constant_p(RTSCOPE__SECOND(extra)),                                                          \
		"the count of an array is a constant; rtscope_seq_... takes one that is known when the program runs"); \
	RTSCOPE__ASSERT((RTSCOPE__SECOND(extra)) > 0 &&                                                                \
				(RTSCOPE__SECOND(extra)) <= RTU_RECORD_BYTES_MAX / sizeof(RTSCOPE__FIRST(extra)),      \
			"an array has at least 1 element, and fits into an event of 8184 bytes");                      \
	const RTSCOPE__FIRST(extra) * variable;
#define RTSCOPE__SET_rtscope_k_array(variable, value, extra) variable = RTSCOPE__ELEMENTS(value, extra)
#define RTSCOPE__OPERAND_rtscope_k_array(variable, value, extra) , [variable] "i"((int)(RTSCOPE__SECOND(extra)))
#define RTSCOPE__SIZE_rtscope_k_array(variable, extra) sizeof(RTSCOPE__FIRST(extra)) * (RTSCOPE__SECOND(extra))
#define RTSCOPE__WRITE_rtscope_k_array(variable, extra) \
	rtscope__at = rtscope__write(rtscope__at, variable, RTSCOPE__SIZE_rtscope_k_array(variable, extra));
#define RTSCOPE__ARGUMENT_rtscope_k_array(variable) , "nor"((int64_t)(uintptr_t)variable)

#define RTSCOPE__DECLARE_rtscope_k_sequence(variable, extra) \
	const RTSCOPE__FIRST(extra) * variable;              \
	uint32_t RTSCOPE__PASTE(rtscope__count_of_, variable);
#define RTSCOPE__SET_rtscope_k_sequence(variable, value, extra) \
	variable = RTSCOPE__ELEMENTS(value, extra),             \
	RTSCOPE__PASTE(rtscope__count_of_, variable) =          \
		rtscope__cut((int64_t)(RTSCOPE__SECOND(extra)), 1024 / sizeof(RTSCOPE__FIRST(extra)))
#define RTSCOPE__SIZE_rtscope_k_sequence(variable, extra) \
	4 + (uint64_t)RTSCOPE__PASTE(rtscope__count_of_, variable) * sizeof(RTSCOPE__FIRST(extra))
#define RTSCOPE__WRITE_rtscope_k_sequence(variable, extra)                                           \
	rtscope__at = rtscope__write(rtscope__at, &RTSCOPE__PASTE(rtscope__count_of_, variable), 4); \
	rtscope__at = rtscope__write(rtscope__at, variable,                                          \
				     RTSCOPE__PASTE(rtscope__count_of_, variable) * sizeof(RTSCOPE__FIRST(extra)));
#define RTSCOPE__ARGUMENT_rtscope_k_sequence(variable) , "nor"((int64_t)(uintptr_t)variable)

#define RTSCOPE__DECLARE_rtscope_k_span(variable, type) struct rtscope__range<type> variable;
#define RTSCOPE__SET_rtscope_k_span(variable, value, type) variable = rtscope__range<type>::of(value)
#define RTSCOPE__SIZE_rtscope_k_span(variable, type) 4 + (uint64_t)variable.count * sizeof(type)
#define RTSCOPE__WRITE_rtscope_k_span(variable, type)                  \
	rtscope__at = rtscope__write(rtscope__at, &variable.count, 4); \
	rtscope__at = rtscope__write(rtscope__at, variable.at, variable.count * sizeof(type));
#define RTSCOPE__ARGUMENT_rtscope_k_span(variable) , "nor"((int64_t)(uintptr_t)variable.at)

#if defined(RTSCOPE__TSAN)
/*
 * A ring may lie where that of another thread was, which ended without a word to TSan. So it does not see these writes, which are in the
 * program's own functions otherwise; nor memcpy(), which it replaces.
 */
static inline __attribute__((noinline)) unsigned char *rtscope__write(unsigned char *at, const void *value,
								      size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		((volatile unsigned char *)at)[i] = ((const unsigned char *)value)[i];
	return at + bytes;
}

static inline __attribute__((noinline)) unsigned char *rtscope__write_text(unsigned char *at, struct rtscope__text text)
{
	for (size_t i = 0; i < text.bytes; i++)
		((volatile unsigned char *)at)[i] = (unsigned char)(text.at[i] ? text.at[i] : '?');
	if (text.marking && text.bytes == RTSCOPE__TEXT_MAX)
		rtscope__mark_cut(at, text);
	at[text.bytes] = 0;
	return at + text.bytes + 1;
}

static inline __attribute__((noinline)) void rtscope__write_zeros(unsigned char *at)
{
	/* ORDER: none; volatile only hides it from memset(). The word's release comes after it. */
	*(volatile uint64_t *)(void *)at = 0;
}
#else
static inline __attribute__((always_inline)) unsigned char *rtscope__write(unsigned char *at, const void *value,
									   size_t bytes)
{
	rtscope__copy(at, value, bytes);
	return at + bytes;
}

static inline __attribute__((always_inline)) unsigned char *rtscope__write_text(unsigned char *at,
										struct rtscope__text text)
{
	const char *from = text.at;
	size_t done = 0, bytes = text.bytes;

	/* GCC must not know how large the array is: it warns of words in short ones, which are not read. */
	__asm__("" : "+r"(from));
	/* The text may have changed since it was measured; a NUL in it would make what follows the next field. */
	for (; done + 8 <= bytes; done += 8) {
		uint64_t word = *(const rtscope__word *)(const void *)(from + done);

		/* Some byte is 0. */
		if (RTSCOPE__UNLIKELY((word - 0x0101010101010101ULL) & ~word & 0x8080808080808080ULL))
			break;
		*(rtscope__word *)(void *)(at + done) = word;
	}
	for (; done < bytes; done++) {
		char byte = RTSCOPE__LOAD(from[done]);

		at[done] = (unsigned char)(byte ? byte : '?');
	}
	if (RTSCOPE__UNLIKELY(text.marking && bytes == RTSCOPE__TEXT_MAX))
		rtscope__mark_cut(at, text);
	at[bytes] = 0;
	return at + bytes + 1;
}

static inline __attribute__((always_inline)) void rtscope__write_zeros(unsigned char *at)
{
	*(rtscope__word *)(void *)at = 0;
}
#endif

/* A negative number is what a function returns that has failed: nothing is there. */
static inline uint32_t rtscope__cut(int64_t count, uint64_t max)
{
	return count < 0 ? 0 : (uint32_t)((uint64_t)count < max ? (uint64_t)count : max);
}

#if defined(__cplusplus)
#include "cplusplus.h"
#endif

#endif

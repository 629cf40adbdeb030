/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * RTSCOPE_PRINTF: an event with a text that its readers make. The format is part of the description: the only label of an enumeration, whose
 * value, 0, is the last field. So any reader of the trace sees it, also one that has never heard of this. The arguments are fields, arg1 and
 * so on: numbers of 64 bits, and texts. The compiler knows their types and the preprocessor does not, so it is the assembler
 * that puts them into the description, by a number that the compiler gives it.
 */
#ifndef RTSCOPE_PRINTF_H
#define RTSCOPE_PRINTF_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "text.h"

/* Types of arguments: their names in a description, as numbers. */
#define RTSCOPE__SIGNED ('s' | '6' << 8 | '4' << 16)
#define RTSCOPE__UNSIGNED ('u' | '6' << 8 | '4' << 16)
#define RTSCOPE__FLOAT ('f' | '6' << 8 | '4' << 16)
#define RTSCOPE__TEXTUAL ('s' | 't' << 8 | 'r' << 16)
#define RTSCOPE__POINTER ('x' | '6' << 8 | '4' << 16)
#define RTSCOPE__NO_ARGUMENT (-1)

/* An argument: a text, or a word that is written as it is. */
struct rtscope__argument {
	uint64_t word;
	struct rtscope__text text;
};

static inline __attribute__((always_inline)) struct rtscope__argument rtscope__unsigned_argument(uint64_t word)
{
	struct rtscope__argument argument = { word, { 0, 0, RTSCOPE__UNMARKED } };

	return argument;
}

static inline __attribute__((always_inline)) struct rtscope__argument rtscope__signed_argument(int64_t value)
{
	return rtscope__unsigned_argument((uint64_t)value);
}

static inline __attribute__((always_inline)) struct rtscope__argument rtscope__float_argument(double value)
{
	struct rtscope__argument argument = rtscope__unsigned_argument(0);

	rtscope__copy(&argument.word, &value, sizeof(value));
	return argument;
}

static inline __attribute__((always_inline)) struct rtscope__argument rtscope__text_argument(const char *value)
{
	struct rtscope__argument argument = { 0, rtscope__text_of(value, RTSCOPE__TEXT_MAX, 1) };

	return argument;
}

static inline __attribute__((always_inline)) struct rtscope__argument
rtscope__pointer_argument(const volatile void *value)
{
	return rtscope__unsigned_argument((uint64_t)(uintptr_t)value);
}

#if defined(__cplusplus)
/* The type of an argument, and how it is taken. */
template <class Type, bool IsEnumeration> struct rtscope__argument_class;

template <class Type> struct rtscope__argument_type : rtscope__argument_class<Type, __is_enum(Type)> {
};
template <class Type> struct rtscope__argument_type<volatile Type> : rtscope__argument_type<Type> {
};

template <class Type> struct rtscope__argument_class<Type, true> {
	enum { kind = (__underlying_type(Type))-1 < 0 ? RTSCOPE__SIGNED : RTSCOPE__UNSIGNED };
	static inline __attribute__((always_inline)) rtscope__argument of(Type value)
	{
		return rtscope__signed_argument((int64_t)value);
	}
};

/* What has data() and size() is a text. */
template <class Type>
auto rtscope__is_text(const Type *text) -> decltype((void)text->size(), (const char *)text->data(), (char (*)[2])0);
char (*rtscope__is_text(const volatile void *))[1];

template <class Type> struct rtscope__argument_class<Type, false> {
	enum { kind = sizeof(*rtscope__is_text((const Type *)0)) == 2 ? RTSCOPE__TEXTUAL : RTSCOPE__NO_ARGUMENT };
	static inline __attribute__((always_inline)) rtscope__argument of(const Type &value)
	{
		return rtscope__argument{ 0, rtscope__text_of(value, RTSCOPE__TEXT_MAX, 1) };
	}
};

#define RTSCOPE__ARGUMENT_TYPE(type, number, taken)                                           \
	template <> struct rtscope__argument_type<type> {                                     \
		enum { kind = number };                                                       \
		static inline __attribute__((always_inline)) rtscope__argument of(type value) \
		{                                                                             \
			return taken;                                                         \
		}                                                                             \
	};
RTSCOPE__ARGUMENT_TYPE(bool, RTSCOPE__UNSIGNED, rtscope__signed_argument((int64_t)value))
RTSCOPE__ARGUMENT_TYPE(char, (char)-1 < 0 ? RTSCOPE__SIGNED : RTSCOPE__UNSIGNED,
		       rtscope__signed_argument((int64_t)value))
RTSCOPE__ARGUMENT_TYPE(signed char, RTSCOPE__SIGNED, rtscope__signed_argument((int64_t)value))
RTSCOPE__ARGUMENT_TYPE(short, RTSCOPE__SIGNED, rtscope__signed_argument((int64_t)value))
RTSCOPE__ARGUMENT_TYPE(int, RTSCOPE__SIGNED, rtscope__signed_argument((int64_t)value))
RTSCOPE__ARGUMENT_TYPE(long, RTSCOPE__SIGNED, rtscope__signed_argument((int64_t)value))
RTSCOPE__ARGUMENT_TYPE(long long, RTSCOPE__SIGNED, rtscope__signed_argument((int64_t)value))
RTSCOPE__ARGUMENT_TYPE(unsigned char, RTSCOPE__UNSIGNED, rtscope__signed_argument((int64_t)value))
RTSCOPE__ARGUMENT_TYPE(unsigned short, RTSCOPE__UNSIGNED, rtscope__signed_argument((int64_t)value))
RTSCOPE__ARGUMENT_TYPE(unsigned, RTSCOPE__UNSIGNED, rtscope__signed_argument((int64_t)value))
RTSCOPE__ARGUMENT_TYPE(unsigned long, RTSCOPE__UNSIGNED, rtscope__signed_argument((int64_t)value))
RTSCOPE__ARGUMENT_TYPE(unsigned long long, RTSCOPE__UNSIGNED, rtscope__signed_argument((int64_t)value))
RTSCOPE__ARGUMENT_TYPE(float, RTSCOPE__FLOAT, rtscope__float_argument((double)value))
RTSCOPE__ARGUMENT_TYPE(double, RTSCOPE__FLOAT, rtscope__float_argument((double)value))
RTSCOPE__ARGUMENT_TYPE(long double, RTSCOPE__FLOAT, rtscope__float_argument((double)value))
RTSCOPE__ARGUMENT_TYPE(char *, RTSCOPE__TEXTUAL, rtscope__text_argument(value))
RTSCOPE__ARGUMENT_TYPE(const char *, RTSCOPE__TEXTUAL, rtscope__text_argument(value))

template <class Type> struct rtscope__argument_type<Type *> {
	enum { kind = RTSCOPE__POINTER };
	static inline __attribute__((always_inline)) rtscope__argument of(const volatile void *value)
	{
		return rtscope__pointer_argument(value);
	}
};
template <unsigned long Count> struct rtscope__argument_type<char[Count]> : rtscope__argument_type<const char *> {
};

template <class Type> static inline rtscope__argument_type<Type> rtscope__type_of(const Type &);
template <class Type> static inline __attribute__((always_inline)) rtscope__argument rtscope__take(const Type &value)
{
	return rtscope__argument_type<Type>::of(value);
}

#define RTSCOPE__KIND(value) ((int)decltype(rtscope__type_of(value))::kind)
#define RTSCOPE__TAKE(value) rtscope__take(value)
#else
/* clang-format off */
#define RTSCOPE__KIND(value) \
	__extension__ _Generic((value), \
		_Bool: RTSCOPE__UNSIGNED, char: (char)-1 < 0 ? RTSCOPE__SIGNED : RTSCOPE__UNSIGNED, \
		signed char: RTSCOPE__SIGNED, short: RTSCOPE__SIGNED, int: RTSCOPE__SIGNED, long: RTSCOPE__SIGNED, \
		long long: RTSCOPE__SIGNED, unsigned char: RTSCOPE__UNSIGNED, unsigned short: RTSCOPE__UNSIGNED, \
		unsigned: RTSCOPE__UNSIGNED, unsigned long: RTSCOPE__UNSIGNED, unsigned long long: RTSCOPE__UNSIGNED, \
		float: RTSCOPE__FLOAT, double: RTSCOPE__FLOAT, long double: RTSCOPE__FLOAT, \
		char *: RTSCOPE__TEXTUAL, const char *: RTSCOPE__TEXTUAL, \
		default: __builtin_classify_type(value) == 5 ? RTSCOPE__POINTER : RTSCOPE__NO_ARGUMENT)
#define RTSCOPE__TAKE(value) \
	__extension__ _Generic((value), \
		_Bool: rtscope__unsigned_argument, char: rtscope__signed_argument, signed char: rtscope__signed_argument, \
		short: rtscope__signed_argument, int: rtscope__signed_argument, long: rtscope__signed_argument, \
		long long: rtscope__signed_argument, unsigned char: rtscope__unsigned_argument, unsigned short: rtscope__unsigned_argument, \
		unsigned: rtscope__unsigned_argument, unsigned long: rtscope__unsigned_argument, unsigned long long: rtscope__unsigned_argument, \
		float: rtscope__float_argument, double: rtscope__float_argument, \
		long double: rtscope__float_argument, char *: rtscope__text_argument, \
		const char *: rtscope__text_argument, default: rtscope__pointer_argument)(value)
/* clang-format on */
#endif

/* ---- as fields ------------------------------------------------------------------------------------------------------- */

#define RTSCOPE__CHECK_rtscope_k_argument(value, extra)
#define RTSCOPE__DECLARE_rtscope_k_argument(variable, value)                                               \
	RTSCOPE__ASSERT(RTSCOPE__KIND(value) >= 0,                                                         \
			"an argument of RTSCOPE_PRINTF is a number, a text, an enumeration or a pointer"); \
	struct rtscope__argument variable;
#define RTSCOPE__SET_rtscope_k_argument(variable, value, extra) variable = RTSCOPE__TAKE(value)
#define RTSCOPE__SIZE_rtscope_k_argument(variable, value) \
	(RTSCOPE__KIND(value) == RTSCOPE__TEXTUAL ? variable.text.bytes + 1 : 8)
#define RTSCOPE__WRITE_rtscope_k_argument(variable, value)                                                         \
	rtscope__at = RTSCOPE__KIND(value) == RTSCOPE__TEXTUAL ? rtscope__write_text(rtscope__at, variable.text) : \
								 rtscope__write(rtscope__at, &variable.word, 8);
#define RTSCOPE__ARGUMENT_rtscope_k_argument(variable) \
	, "nor"((int64_t)(variable.text.at ? (uintptr_t)variable.text.at : (uintptr_t)variable.word))
#define RTSCOPE__SUFFIX_rtscope_k_argument(variable) "_%c[" #variable "]"
#define RTSCOPE__CHECK_rtscope_k_format(value, extra)
#define RTSCOPE__SUFFIX_rtscope_k_format(variable) ""
#define RTSCOPE__OPERAND_rtscope_k_argument(variable, value, extra) , [variable] "i"(RTSCOPE__KIND(value))

/* The format: always 0, whose name it is. */
#define RTSCOPE__DECLARE_rtscope_k_format(variable, extra) const uint32_t variable = 0;
#define RTSCOPE__SET_rtscope_k_format(variable, value, extra) (void)0
#define RTSCOPE__SIZE_rtscope_k_format(variable, extra) 4
#define RTSCOPE__WRITE_rtscope_k_format(variable, extra) rtscope__at = rtscope__write(rtscope__at, &variable, 4);
#define RTSCOPE__ARGUMENT_rtscope_k_format(variable) , "nor"((int64_t)variable)
#define RTSCOPE__OPERAND_rtscope_k_format(variable, value, extra) , [variable] "i"(value)

/* What the compiler does with a constant pointer in this section; the assembler knows a section by one set of flags only. */
#if defined(__PIC__) || defined(__PIE__)
#define RTSCOPE__ENUMS_FLAGS "aw"
#else
#define RTSCOPE__ENUMS_FLAGS "a"
#endif

/* struct rtscope__enumeration with one struct rtscope__label. */
#define RTSCOPE__FORMAT_ASM(label, name)                                                                   \
	".ifndef " label "_format\n"                                                                       \
	".pushsection .data.rel.ro.rtscope,\"aw\",@progbits\n"                                             \
	".balign 8\n" label "_format: .8byte " label "_name, " label "_label, 1\n" label                   \
	"_label: .8byte 0, %c[rtscope__v_printf]\n.popsection\n"                                           \
	".pushsection " RTSCOPE__ENUMS_SECTION ",\"" RTSCOPE__ENUMS_FLAGS "\",@progbits\n"                 \
	".balign 8\n.8byte " label "_format\n.popsection\n"                                                \
	".pushsection .rodata.rtscope,\"a\",@progbits\n" label "_name: .asciz \"" name "\"\n.popsection\n" \
	".endif\n"

#define RTSCOPE__TYPE_ASM(n)                                                                            \
	"\"\n.byte %c[rtscope__v_arg" #n "]&255,(%c[rtscope__v_arg" #n "]>>8)&255,%c[rtscope__v_arg" #n \
	"]>>16\n.ascii \""

#define RTSCOPE__ARG(n, value) (rtscope_k_argument, RTSCOPE__TYPE_ASM(n), "arg" #n, rtscope__v_arg##n, value, value)

/*
 * A conversion without its argument is a sentence of the compiler: in C of -Wformat, as for printf itself. C++ has arguments that no variadic
 * function takes, so their number is compared.
 */
#if !defined(__cplusplus)
static inline __attribute__((format(printf, 1, 2))) void rtscope__as_printf(const char *format, ...)
{
	(void)format;
}
/* A literal, or a constant array. */
#define RTSCOPE__IS_CONSTANT(format) \
	(__builtin_constant_p(format) || __builtin_types_compatible_p(__typeof__(format), char[sizeof(format)]))
#define RTSCOPE__CHECK_FORMAT(event, ...)                \
	RTSCOPE__CHECK_CONSTANT(__VA_ARGS__, 0);         \
	do {                                             \
		if (0)                                   \
			rtscope__as_printf(__VA_ARGS__); \
	} while (0)
#else
template <class Type> struct rtscope__is_array {
	enum { value = 0 };
};
template <class Element, unsigned long Count> struct rtscope__is_array<Element[Count]> {
	enum { value = 1 };
};
template <class Type> struct rtscope__is_array<Type &> : rtscope__is_array<Type> {
};
#define RTSCOPE__IS_CONSTANT(format) (__builtin_constant_p(format) || rtscope__is_array<decltype(format)>::value)
#if __cplusplus >= 201402L
static inline constexpr int rtscope__conversions(const char *format)
{
	int conversions = 0;

	for (; *format; format++) {
		if (*format != '%')
			continue;
		if (format[1] == '%')
			format++;
		else
			conversions++;
	}
	return conversions;
}
#define RTSCOPE__CHECK_FORMAT(event, ...)                                                                 \
	RTSCOPE__CHECK_CONSTANT(__VA_ARGS__, 0);                                                          \
	static_assert(rtscope__conversions(RTSCOPE__HEAD(__VA_ARGS__, 0)) == RTSCOPE__COUNT(__VA_ARGS__), \
		      "the format of RTSCOPE_PRINTF has as many conversions as there are arguments")
#else
#define RTSCOPE__CHECK_FORMAT(event, ...) RTSCOPE__CHECK_CONSTANT(__VA_ARGS__, 0)
#endif
#endif
#define RTSCOPE__CHECK_CONSTANT(format, ...)          \
	RTSCOPE__ASSERT(RTSCOPE__IS_CONSTANT(format), \
			"the format of RTSCOPE_PRINTF is a literal: readers format, not the program")

/*
 * An event of RTSCOPE_INFO with a text: RTSCOPE_PRINTF(provider, event, format, arguments...), at most 12 arguments. Nothing is formatted
 * in the program. Formats are those of printf(3), without `*` and `n`.
 */
#define RTSCOPE_PRINTF(provider, ...) RTSCOPE_PRINTF_LEVEL(RTSCOPE_INFO, provider, __VA_ARGS__)
#if defined(RTSCOPE__IS_NAMELESS)
#define RTSCOPE_PRINTF_LEVEL(level, provider, ...) \
	RTSCOPE__ASSERT(                           \
		0, "RTSCOPE_PRINTF needs another code model than GCC's large one, and no HWASan: use RTSCOPE_EVENT")
#else
#define RTSCOPE_PRINTF_LEVEL(level, provider, ...)                                                        \
	do {                                                                                              \
		RTSCOPE__CHECK_FORMAT(__VA_ARGS__);                                                       \
		RTSCOPE__PASTE(RTSCOPE__PRINTF_, RTSCOPE__COUNT(__VA_ARGS__))                             \
		("rtscope_printf_" RTSCOPE__STRING(provider) "_" RTSCOPE__STRING(RTSCOPE__HEAD(           \
			 __VA_ARGS__, 0)) "_" RTSCOPE__STRING(__LINE__) "_" RTSCOPE__STRING(__COUNTER__), \
		 level, provider, __VA_ARGS__);                                                           \
	} while (0)
#endif
#define RTSCOPE__PRINTF_1(name, level, provider, event, format) \
	RTSCOPE__PRINTF(name, level, provider, event, RTSCOPE__FORMAT(name, format))
#define RTSCOPE__PRINTF_2(name, level, provider, event, format, a) \
	RTSCOPE__PRINTF(name, level, provider, event, RTSCOPE__ARG(1, a), RTSCOPE__FORMAT(name, format))
#define RTSCOPE__PRINTF_3(name, level, provider, event, format, a, b)                         \
	RTSCOPE__PRINTF(name, level, provider, event, RTSCOPE__ARG(1, a), RTSCOPE__ARG(2, b), \
			RTSCOPE__FORMAT(name, format))
#define RTSCOPE__PRINTF_4(name, level, provider, event, format, a, b, c)                                          \
	RTSCOPE__PRINTF(name, level, provider, event, RTSCOPE__ARG(1, a), RTSCOPE__ARG(2, b), RTSCOPE__ARG(3, c), \
			RTSCOPE__FORMAT(name, format))
#define RTSCOPE__PRINTF_5(name, level, provider, event, format, a, b, c, d)                                       \
	RTSCOPE__PRINTF(name, level, provider, event, RTSCOPE__ARG(1, a), RTSCOPE__ARG(2, b), RTSCOPE__ARG(3, c), \
			RTSCOPE__ARG(4, d), RTSCOPE__FORMAT(name, format))
#define RTSCOPE__PRINTF_6(name, level, provider, event, format, a, b, c, d, e)                                    \
	RTSCOPE__PRINTF(name, level, provider, event, RTSCOPE__ARG(1, a), RTSCOPE__ARG(2, b), RTSCOPE__ARG(3, c), \
			RTSCOPE__ARG(4, d), RTSCOPE__ARG(5, e), RTSCOPE__FORMAT(name, format))
#define RTSCOPE__PRINTF_7(name, level, provider, event, format, a, b, c, d, e, f)                                 \
	RTSCOPE__PRINTF(name, level, provider, event, RTSCOPE__ARG(1, a), RTSCOPE__ARG(2, b), RTSCOPE__ARG(3, c), \
			RTSCOPE__ARG(4, d), RTSCOPE__ARG(5, e), RTSCOPE__ARG(6, f), RTSCOPE__FORMAT(name, format))
#define RTSCOPE__PRINTF_8(name, level, provider, event, format, a, b, c, d, e, f, g)                              \
	RTSCOPE__PRINTF(name, level, provider, event, RTSCOPE__ARG(1, a), RTSCOPE__ARG(2, b), RTSCOPE__ARG(3, c), \
			RTSCOPE__ARG(4, d), RTSCOPE__ARG(5, e), RTSCOPE__ARG(6, f), RTSCOPE__ARG(7, g),           \
			RTSCOPE__FORMAT(name, format))
#define RTSCOPE__PRINTF_9(name, level, provider, event, format, a, b, c, d, e, f, g, h)                           \
	RTSCOPE__PRINTF(name, level, provider, event, RTSCOPE__ARG(1, a), RTSCOPE__ARG(2, b), RTSCOPE__ARG(3, c), \
			RTSCOPE__ARG(4, d), RTSCOPE__ARG(5, e), RTSCOPE__ARG(6, f), RTSCOPE__ARG(7, g),           \
			RTSCOPE__ARG(8, h), RTSCOPE__FORMAT(name, format))
#define RTSCOPE__PRINTF_10(name, level, provider, event, format, a, b, c, d, e, f, g, h, i)                       \
	RTSCOPE__PRINTF(name, level, provider, event, RTSCOPE__ARG(1, a), RTSCOPE__ARG(2, b), RTSCOPE__ARG(3, c), \
			RTSCOPE__ARG(4, d), RTSCOPE__ARG(5, e), RTSCOPE__ARG(6, f), RTSCOPE__ARG(7, g),           \
			RTSCOPE__ARG(8, h), RTSCOPE__ARG(9, i), RTSCOPE__FORMAT(name, format))
#define RTSCOPE__PRINTF_11(name, level, provider, event, format, a, b, c, d, e, f, g, h, i, j)                    \
	RTSCOPE__PRINTF(name, level, provider, event, RTSCOPE__ARG(1, a), RTSCOPE__ARG(2, b), RTSCOPE__ARG(3, c), \
			RTSCOPE__ARG(4, d), RTSCOPE__ARG(5, e), RTSCOPE__ARG(6, f), RTSCOPE__ARG(7, g),           \
			RTSCOPE__ARG(8, h), RTSCOPE__ARG(9, i), RTSCOPE__ARG(10, j), RTSCOPE__FORMAT(name, format))
#define RTSCOPE__PRINTF_12(name, level, provider, event, format, a, b, c, d, e, f, g, h, i, j, k)                 \
	RTSCOPE__PRINTF(name, level, provider, event, RTSCOPE__ARG(1, a), RTSCOPE__ARG(2, b), RTSCOPE__ARG(3, c), \
			RTSCOPE__ARG(4, d), RTSCOPE__ARG(5, e), RTSCOPE__ARG(6, f), RTSCOPE__ARG(7, g),           \
			RTSCOPE__ARG(8, h), RTSCOPE__ARG(9, i), RTSCOPE__ARG(10, j), RTSCOPE__ARG(11, k),         \
			RTSCOPE__FORMAT(name, format))
#define RTSCOPE__PRINTF_13(name, level, provider, event, format, a, b, c, d, e, f, g, h, i, j, k, l)              \
	RTSCOPE__PRINTF(name, level, provider, event, RTSCOPE__ARG(1, a), RTSCOPE__ARG(2, b), RTSCOPE__ARG(3, c), \
			RTSCOPE__ARG(4, d), RTSCOPE__ARG(5, e), RTSCOPE__ARG(6, f), RTSCOPE__ARG(7, g),           \
			RTSCOPE__ARG(8, h), RTSCOPE__ARG(9, i), RTSCOPE__ARG(10, j), RTSCOPE__ARG(11, k),         \
			RTSCOPE__ARG(12, l), RTSCOPE__FORMAT(name, format))
#define RTSCOPE__PRINTF_14(...)                                                  \
	do {                                                                     \
		RTSCOPE__ASSERT(0, "RTSCOPE_PRINTF takes at most 12 arguments"); \
	} while (0)
#define RTSCOPE__PRINTF_15 RTSCOPE__PRINTF_14
#define RTSCOPE__PRINTF_16 RTSCOPE__PRINTF_14
#define RTSCOPE__PRINTF_17 RTSCOPE__PRINTF_14

#define RTSCOPE__FORMAT(name, format) (rtscope_k_format, "enum " name, "printf", rtscope__v_printf, format, 0)
#define RTSCOPE__PRINTF(name, level, provider, event, ...)                                                             \
	RTSCOPE__PRINTF_STATEMENT(name,                                                                                \
				  RTSCOPE__LABEL                                                                       \
				  "_" name "_" RTSCOPE__LEVEL_TEXT RTSCOPE__EACH(RTSCOPE__SUFFIX, event, __VA_ARGS__), \
				  RTSCOPE__STRING(provider), RTSCOPE__STRING(event), level, event, __VA_ARGS__)
#define RTSCOPE__PRINTF_STATEMENT(name, label, provider, event, level, ...)              \
	RTSCOPE__STATEMENT(label, provider, event,                                       \
			   provider ":" event " " RTSCOPE__LEVEL_TEXT                    \
				    "\\n" RTSCOPE__EACH(RTSCOPE__DESCRIBE, __VA_ARGS__), \
			   level, RTSCOPE__FORMAT_ASM(label, name), __VA_ARGS__)

#endif

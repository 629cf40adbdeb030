/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What C++ programs have in their hands: objects with data() and size(), such as std::string, std::string_view and std::span. Whatever has
 * these two is taken, so no header of the standard library is included.
 */
#ifndef RTSCOPE_CPLUSPLUS_H
#define RTSCOPE_CPLUSPLUS_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "text.h"

#if defined(__cplusplus)
/* A text that knows its size. */
template <class Text>
static inline __attribute__((always_inline)) auto rtscope__text_of(const Text &text, size_t max, int marks)
	-> decltype((void)text.size(), rtscope__text{ text.data(), 0, RTSCOPE__UNMARKED })
{
	const size_t bytes = text.size();

	return rtscope__text{ bytes ? text.data() : "", bytes < max ? bytes : max,
			      marks && bytes > max ? RTSCOPE__MARKED : RTSCOPE__UNMARKED };
}

/* Whatever is none of what a function takes: its last overload, which says so in one sentence. */
struct rtscope__anything {
	template <class Value> rtscope__anything(const Value &);
};

template <class Size = size_t> static inline rtscope__text rtscope__text_of(rtscope__anything, size_t, int)
{
	static_assert(sizeof(Size) == 0,
		      "this field is a text, and its value is none: no char *, and nothing with data() and size()");
	return rtscope__text();
}

template <class Type> struct rtscope__is_float {
	enum { value = 0 };
};
template <> struct rtscope__is_float<float> {
	enum { value = 1 };
};
template <> struct rtscope__is_float<double> {
	enum { value = 1 };
};
template <class Type> struct rtscope__is_float<const Type> : rtscope__is_float<Type> {
};
template <class Type> struct rtscope__is_float<volatile Type> : rtscope__is_float<Type> {
};

/* A pointer to elements of this type: any of that size and kind, such as enumerations, or of no type. */
template <class Type, class Element>
static inline __attribute__((always_inline)) const Type *rtscope__pointer(const Element *at)
{
	static_assert(sizeof(Element) == sizeof(Type) &&
			      (int)rtscope__is_float<Element>::value == (int)rtscope__is_float<Type>::value,
		      "the elements have another type than the field");
	return (const Type *)(const void *)at;
}

template <class Type> static inline __attribute__((always_inline)) const Type *rtscope__pointer(const void *at)
{
	return (const Type *)at;
}

/* Where the elements of an array are: a pointer, or what has data(). */
template <class Type, class Element>
static inline __attribute__((always_inline)) const Type *rtscope__elements(Element *at)
{
	return rtscope__pointer<Type>(at);
}

template <class Type, class Range>
static inline __attribute__((always_inline)) auto rtscope__elements(const Range &range)
	-> decltype((void)range.data(), (const Type *)0)
{
	return rtscope__pointer<Type>(range.data());
}

template <class Type> static inline const Type *rtscope__elements(rtscope__anything)
{
	static_assert(sizeof(Type) == 0,
		      "this field is an array, and its value is none: no pointer, and nothing with data()");
	return 0;
}

/* A sequence: where its elements are, and how many of them are written. */
template <class Type> struct rtscope__range {
	const Type *at;
	uint32_t count;

	template <class Element>
	static inline __attribute__((always_inline)) rtscope__range of_elements(const Element *at, size_t count)
	{
		const size_t most = 1024 / sizeof(Type);

		return rtscope__range{ rtscope__pointer<Type>(at), (uint32_t)(count < most ? count : most) };
	}

	template <class Range> static inline __attribute__((always_inline)) rtscope__range of(const Range &range)
	{
		return of_elements(range.data(), range.size());
	}
};

#endif

#endif

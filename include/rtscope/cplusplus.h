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

/* Where the elements of an array are: a pointer, or what has data(). */
template <class Element> static inline __attribute__((always_inline)) Element *rtscope__elements(Element *at)
{
	return at;
}

template <class Range>
static inline __attribute__((always_inline)) auto rtscope__elements(const Range &range) -> decltype(range.data())
{
	return range.data();
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

/* A sequence: where its elements are, and how many of them are written. */
template <class Type> struct rtscope__range {
	const Type *at;
	uint32_t count;

	template <class Element>
	static inline __attribute__((always_inline)) rtscope__range of_elements(const Element *at, size_t count)
	{
		static_assert(sizeof(Element) == sizeof(Type) &&
				      (int)rtscope__is_float<Element>::value == (int)rtscope__is_float<Type>::value,
			      "the elements have another type than the field rtscope_span_...");
		const size_t most = 1024 / sizeof(Type);

		return rtscope__range{ (const Type *)(const void *)at, (uint32_t)(count < most ? count : most) };
	}

	template <class Range> static inline __attribute__((always_inline)) rtscope__range of(const Range &range)
	{
		return of_elements(range.data(), range.size());
	}
};

#endif

#endif

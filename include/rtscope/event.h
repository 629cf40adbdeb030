/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * RTSCOPE_EVENT. The macro makes three things at its place: a description in the program file's sections (made by the assembler,
 * so that it works in templates and inline functions too), a USDT probe, and the code that writes the record. Its fields are in fields.h.
 */
#ifndef RTSCOPE_EVENT_H
#define RTSCOPE_EVENT_H

#if !defined(RTSCOPE_LINT)
#pragma GCC system_header
#endif

#include "fields.h"
#include "life.h"

/* Where an asm statement cannot name an object, as is told with RTSCOPE__SOURCE. */
#if defined(__code_model_large__) && !defined(__clang__)
#define RTSCOPE__IS_NAMELESS 1
#elif defined(__has_feature)
#if __has_feature(hwaddress_sanitizer)
#define RTSCOPE__IS_NAMELESS 1
#endif
#endif

#include "printf.h"

/* ---- for each field -------------------------------------------------------------------------------------------------- */

#define RTSCOPE__STRING(x) RTSCOPE__STRING_(x)
#define RTSCOPE__STRING_(x) #x
#define RTSCOPE__PASTE(a, b) RTSCOPE__PASTE_(a, b)
#define RTSCOPE__PASTE_(a, b) a##b
/*
 * How many follow the first. Variadic macros here always get an argument, and the first (the event's name) is not counted: no
 * standard before C23 lets a macro have none.
 */
#define RTSCOPE__COUNT(...)                                                                                           \
	RTSCOPE__COUNT_(__VA_ARGS__, 17, 17, 17, 17, 17, 17, 17, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, \
			2, 1, 0, 0)
#define RTSCOPE__COUNT_(z, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, count, ...) count
#define RTSCOPE__EACH(macro, ...) RTSCOPE__PASTE(RTSCOPE__EACH_, RTSCOPE__COUNT(__VA_ARGS__))(macro, __VA_ARGS__)
#define RTSCOPE__EACH_0(macro, e)
#define RTSCOPE__EACH_1(macro, e, a) macro a
#define RTSCOPE__EACH_2(macro, e, a, ...) macro a RTSCOPE__EACH_1(macro, e, __VA_ARGS__)
#define RTSCOPE__EACH_3(macro, e, a, ...) macro a RTSCOPE__EACH_2(macro, e, __VA_ARGS__)
#define RTSCOPE__EACH_4(macro, e, a, ...) macro a RTSCOPE__EACH_3(macro, e, __VA_ARGS__)
#define RTSCOPE__EACH_5(macro, e, a, ...) macro a RTSCOPE__EACH_4(macro, e, __VA_ARGS__)
#define RTSCOPE__EACH_6(macro, e, a, ...) macro a RTSCOPE__EACH_5(macro, e, __VA_ARGS__)
#define RTSCOPE__EACH_7(macro, e, a, ...) macro a RTSCOPE__EACH_6(macro, e, __VA_ARGS__)
#define RTSCOPE__EACH_8(macro, e, a, ...) macro a RTSCOPE__EACH_7(macro, e, __VA_ARGS__)
#define RTSCOPE__EACH_9(macro, e, a, ...) macro a RTSCOPE__EACH_8(macro, e, __VA_ARGS__)
#define RTSCOPE__EACH_10(macro, e, a, ...) macro a RTSCOPE__EACH_9(macro, e, __VA_ARGS__)
#define RTSCOPE__EACH_11(macro, e, a, ...) macro a RTSCOPE__EACH_10(macro, e, __VA_ARGS__)
#define RTSCOPE__EACH_12(macro, e, a, ...) macro a RTSCOPE__EACH_11(macro, e, __VA_ARGS__)
#define RTSCOPE__EACH_13(macro, e, a, ...) macro a RTSCOPE__EACH_12(macro, e, __VA_ARGS__)
#define RTSCOPE__EACH_14(macro, e, a, ...) macro a RTSCOPE__EACH_13(macro, e, __VA_ARGS__)
#define RTSCOPE__EACH_15(macro, e, a, ...) macro a RTSCOPE__EACH_14(macro, e, __VA_ARGS__)
#define RTSCOPE__EACH_16(macro, e, a, ...) macro a RTSCOPE__EACH_15(macro, e, __VA_ARGS__)
/* Of 17 to 24: RTSCOPE__STATEMENT says that there are too many, and nothing else does. */
#define RTSCOPE__EACH_17(macro, ...)

/* ---- the probe --------------------------------------------------------------------------------------------------------- */

/*
 * struct rtscope__event, in the section where tools look for USDT's semaphores, and a pointer to it. A compiler may copy an
 * asm statement; only the first copy counts.
 *
 * The label holds line and counter, which tell the events of one source apart. Link-time optimization puts the code of several
 * sources into one assembly, where two events with the same name, line and counter would share a description. So the label
 * begins with the name of an object that each source has for itself: the compiler renames it where two of them meet. It is not a
 * constant, since equal constants may be merged. In GCC's large code model, and under clang's HWASan, an asm statement cannot name an
 * object: there each copy of a statement has a description, and there is no USDT probe, which would need to know which one; nor does
 * RTSCOPE_PRINTF have a way to its format.
 */
#if defined(RTSCOPE__IS_NAMELESS)
#define RTSCOPE__SOURCE "n"(0)
#define RTSCOPE__LABEL ".Lrtscope__source%="
#define RTSCOPE__HAS_PROBES 0
#else
static char rtscope__source __attribute__((unused));
#define RTSCOPE__LABEL ".L%c[rtscope__source]"
#define RTSCOPE__HAS_PROBES 1
/* A symbol, also in position-independent code. */
#if defined(__x86_64__)
#define RTSCOPE__SOURCE [rtscope__source] "i"(&rtscope__source)
#else
#define RTSCOPE__SOURCE [rtscope__source] "S"(&rtscope__source)
#endif
#endif

/*
 * An inline function of C with external linkage may have such an object in an asm statement: only its name is used. And clang counts the
 * characters of an asm statement, where C has no limit.
 */
#if defined(__clang__)
#define RTSCOPE__ALLOW_SOURCE                                                                       \
	_Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Wstatic-in-inline\"") \
		_Pragma("clang diagnostic ignored \"-Woverlength-strings\"")
#define RTSCOPE__ALLOWED_SOURCE _Pragma("clang diagnostic pop")
#else
#define RTSCOPE__ALLOW_SOURCE
#define RTSCOPE__ALLOWED_SOURCE
#endif

#define RTSCOPE__EVENT_ASM(label, text)                                                                      \
	".ifndef " label "\n"                                                                                \
	".pushsection .probes,\"aw\",@progbits\n"                                                            \
	".balign 8\n" label ":\n"                                                                            \
	".8byte " RTSCOPE__TEXT(rtscope__off) ", " label "_text\n"                                           \
					      ".4byte 0\n.2byte 0, 0\n"                                      \
					      ".popsection\n"                                                \
					      ".pushsection " RTSCOPE__EVENTS_SECTION ",\"awR\",@progbits\n" \
					      ".balign 8\n.8byte " label "\n"                                \
					      ".popsection\n"                                                \
					      ".pushsection .rodata.rtscope,\"a\",@progbits\n" label         \
					      "_text: .ascii \"" text "\"\n.byte 0\n"                        \
					      ".popsection\n"                                                \
					      ".endif\n"

#if defined(__x86_64__)
#define RTSCOPE__ADDRESS_ASM(label) "{leaq " label "(%%rip), %0|lea %0, " label "[rip]}\n"
#else
#define RTSCOPE__ADDRESS_ASM(label) "adrp %0, " label "\nadd %0, %0, :lo12:" label "\n"
#endif

/* A USDT probe (SystemTap's note format, version 3); the semaphore is in the event, 20 bytes from its begin. */
#define RTSCOPE__PROBE_ASM(label, provider, event, arguments)                       \
	"990: nop\n"                                                                \
	".pushsection .note.stapsdt,\"?\",\"note\"\n"                               \
	".balign 4\n.4byte 992f-991f, 994f-993f, 3\n"                               \
	"991: .asciz \"stapsdt\"\n992: .balign 4\n"                                 \
	"993: .8byte 990b, _.stapsdt.base, " label " + 20\n"                        \
	".asciz \"" provider "\"\n.asciz \"" event "\"\n.asciz \"" arguments "\"\n" \
	"994: .balign 4\n.popsection\n"                                             \
	".ifndef _.stapsdt.base\n"                                                  \
	".pushsection .stapsdt.base,\"aGR\",\"progbits\",.stapsdt.base,comdat\n"    \
	".weak _.stapsdt.base\n.hidden _.stapsdt.base\n_.stapsdt.base: .space 1\n"  \
	".size _.stapsdt.base, 1\n.popsection\n.endif\n"

#define RTSCOPE__ARGUMENTS_0 ""
#define RTSCOPE__ARGUMENTS_1 "8@%1"
#define RTSCOPE__ARGUMENTS_2 "8@%1 8@%2"
#define RTSCOPE__ARGUMENTS_3 "8@%1 8@%2 8@%3"
#define RTSCOPE__ARGUMENTS_4 "8@%1 8@%2 8@%3 8@%4"
#define RTSCOPE__ARGUMENTS_5 "8@%1 8@%2 8@%3 8@%4 8@%5"
#define RTSCOPE__ARGUMENTS_6 "8@%1 8@%2 8@%3 8@%4 8@%5 8@%6"
#define RTSCOPE__ARGUMENTS_7 "8@%1 8@%2 8@%3 8@%4 8@%5 8@%6 8@%7"
#define RTSCOPE__ARGUMENTS_8 "8@%1 8@%2 8@%3 8@%4 8@%5 8@%6 8@%7 8@%8"
#define RTSCOPE__ARGUMENTS_9 "8@%1 8@%2 8@%3 8@%4 8@%5 8@%6 8@%7 8@%8 8@%9"
#define RTSCOPE__ARGUMENTS_10 "8@%1 8@%2 8@%3 8@%4 8@%5 8@%6 8@%7 8@%8 8@%9 8@%10"
#define RTSCOPE__ARGUMENTS_11 "8@%1 8@%2 8@%3 8@%4 8@%5 8@%6 8@%7 8@%8 8@%9 8@%10 8@%11"
#define RTSCOPE__ARGUMENTS_12 "8@%1 8@%2 8@%3 8@%4 8@%5 8@%6 8@%7 8@%8 8@%9 8@%10 8@%11 8@%12"
#define RTSCOPE__ARGUMENTS_13 "8@%1 8@%2 8@%3 8@%4 8@%5 8@%6 8@%7 8@%8 8@%9 8@%10 8@%11 8@%12"
#define RTSCOPE__ARGUMENTS_14 "8@%1 8@%2 8@%3 8@%4 8@%5 8@%6 8@%7 8@%8 8@%9 8@%10 8@%11 8@%12"
#define RTSCOPE__ARGUMENTS_15 "8@%1 8@%2 8@%3 8@%4 8@%5 8@%6 8@%7 8@%8 8@%9 8@%10 8@%11 8@%12"
#define RTSCOPE__ARGUMENTS_16 "8@%1 8@%2 8@%3 8@%4 8@%5 8@%6 8@%7 8@%8 8@%9 8@%10 8@%11 8@%12"
#define RTSCOPE__ARGUMENTS_17 ""

/* An event of RTSCOPE_INFO: RTSCOPE_EVENT(provider, event, fields...), at most 16 fields. A statement. */
#define RTSCOPE_EVENT(provider, ...) RTSCOPE_EVENT_LEVEL(RTSCOPE_INFO, provider, __VA_ARGS__)

/* The same of a level: any constant from 0 on. */
#define RTSCOPE_EVENT_LEVEL(level, provider, ...) \
	RTSCOPE__EVENT(RTSCOPE__STRING(provider), RTSCOPE__STRING(RTSCOPE__HEAD(__VA_ARGS__, 0)), level, __VA_ARGS__)
#define RTSCOPE__HEAD(event, ...) event
#define RTSCOPE__EVENT(provider, event, level, ...)                                                                  \
	RTSCOPE__STATEMENT(RTSCOPE__LABEL "_" provider "_" event "_" RTSCOPE__STRING(__LINE__) "_" RTSCOPE__STRING(  \
				   __COUNTER__) "_" RTSCOPE__LEVEL_TEXT RTSCOPE__EACH(RTSCOPE__SUFFIX, __VA_ARGS__), \
			   provider, event,                                                                          \
			   provider ":" event " " RTSCOPE__LEVEL_TEXT                                                \
				    "\\n" RTSCOPE__EACH(RTSCOPE__DESCRIBE, __VA_ARGS__),                             \
			   level, "", __VA_ARGS__)
/* The compiler puts its value there, whatever expression it is: an instance of a template may have another one than the next. */
#define RTSCOPE__LEVEL_TEXT "%c[rtscope__level]"
#define RTSCOPE__LEVEL(level) [rtscope__level] "i"((int)(level))
#if defined(__cplusplus)
#define RTSCOPE__ASSERT(condition, text) static_assert(condition, text)
#else
#define RTSCOPE__ASSERT(condition, text) __extension__ _Static_assert(condition, text)
#endif
/*
 * The values are set, and the record is written, in one expression: temporaries of C++ live to its end, such as the text of
 * rtscope_str(name, object.text().c_str()).
 */
#define RTSCOPE__STATEMENT(label, provider, event, text, level, data, ...)                                           \
	do {                                                                                                         \
		RTSCOPE__ASSERT((int64_t)(level) >= 0 && (int64_t)(level) <= INT32_MAX,                              \
				"an event's level is a number from RTSCOPE_EMERG (0) on");                           \
		RTSCOPE__ASSERT(RTSCOPE__COUNT(__VA_ARGS__) <= 16, "an event has at most 16 fields");                \
		RTSCOPE__EACH(RTSCOPE__NO_SUCH_KIND_OF_FIELD, __VA_ARGS__)                                           \
		RTSCOPE__ALLOW_SOURCE                                                                                \
		struct rtscope__event *rtscope__event;                                                               \
		__asm__(RTSCOPE__EVENT_ASM(label, text) data RTSCOPE__ADDRESS_ASM(label)                             \
			: "=r"(rtscope__event)                                                                       \
			: RTSCOPE__SOURCE, RTSCOPE__LEVEL(level) RTSCOPE__EACH(RTSCOPE__OPERAND, __VA_ARGS__));      \
		if (RTSCOPE__UNLIKELY(RTSCOPE__LOAD(*RTSCOPE__LOAD(rtscope__event->enabled)) |                       \
				      RTSCOPE__LOAD(rtscope__event->semaphore))) {                                   \
			RTSCOPE__EACH(RTSCOPE__DECLARE, __VA_ARGS__)                                                 \
			(void)(RTSCOPE__EACH(RTSCOPE__SET, __VA_ARGS__) __extension__({                              \
				const uint64_t rtscope__payload = 0 RTSCOPE__EACH(RTSCOPE__SIZE, __VA_ARGS__);       \
				const uint64_t rtscope__bytes = 8 + ((rtscope__payload + 7) & ~(uint64_t)7);         \
				RTSCOPE__PROBE(label, provider, event, text, level, __VA_ARGS__);                    \
				struct rtscope__record rtscope__record =                                             \
					RTSCOPE__LIKELY(rtscope__goes_to_ring(                                       \
						RTSCOPE__LOAD(*RTSCOPE__LOAD(rtscope__event->enabled)))) ?           \
						rtscope__reserve(rtscope__tls, rtscope__event->id, rtscope__bytes) : \
						rtscope__reserve_elsewhere(RTSCOPE__LOAD(rtscope__event->enabled),   \
									   rtscope__event->id, rtscope__bytes);      \
				if (RTSCOPE__LIKELY(rtscope__record.place != 0)) {                                   \
					unsigned char *rtscope__at = rtscope__record.place;                          \
					if (rtscope__payload & 7)                                                    \
						rtscope__write_zeros(rtscope__at + rtscope__bytes - 16);             \
					RTSCOPE__EACH(RTSCOPE__WRITE, __VA_ARGS__)                                   \
					(void)rtscope__at;                                                           \
					rtscope__commit(rtscope__record);                                            \
				}                                                                                    \
				0;                                                                                   \
			}));                                                                                         \
		}                                                                                                    \
		RTSCOPE__ALLOWED_SOURCE                                                                              \
	} while (0)

/* ---- spans -------------------------------------------------------------------------------------------------------------- */

/*
 * A part of a function, from here to the end of the block: the events NAME_begin, with these fields, and NAME_end, which readers take
 * for one span. At most 16 fields. A declaration, so it needs a block. The end has no USDT probe.
 */
#define RTSCOPE_SPAN(provider, ...) RTSCOPE_SPAN_LEVEL(RTSCOPE_INFO, provider, __VA_ARGS__)
#define RTSCOPE_SPAN_LEVEL(level, provider, ...) \
	RTSCOPE__SPAN(RTSCOPE__STRING(provider), RTSCOPE__STRING(RTSCOPE__HEAD(__VA_ARGS__, 0)), level, __VA_ARGS__)
#define RTSCOPE__SPAN(provider, name, level, ...)                                                                   \
	RTSCOPE__EVENT(provider, name "_begin", level, __VA_ARGS__);                                                \
	struct rtscope__span RTSCOPE__PASTE(rtscope__span_, __COUNTER__)                                            \
		__attribute__((cleanup(rtscope__end_span), unused)) = { RTSCOPE__EVENT_ADDRESS(                     \
			RTSCOPE__LABEL "_" provider "_" name "_end_" RTSCOPE__STRING(__LINE__) "_" RTSCOPE__STRING( \
				__COUNTER__) "_" RTSCOPE__LEVEL_TEXT,                                               \
			provider ":" name "_end " RTSCOPE__LEVEL_TEXT "\\n", level) }
#define RTSCOPE__EVENT_ADDRESS(label, text, level)                                  \
	__extension__({                                                             \
		RTSCOPE__ALLOW_SOURCE                                               \
		struct rtscope__event *rtscope__event;                              \
		__asm__(RTSCOPE__EVENT_ASM(label, text) RTSCOPE__ADDRESS_ASM(label) \
			: "=r"(rtscope__event)                                      \
			: RTSCOPE__SOURCE, RTSCOPE__LEVEL(level));                  \
		RTSCOPE__ALLOWED_SOURCE                                             \
		rtscope__event;                                                     \
	})

struct rtscope__span {
	struct rtscope__event *event;
};

static inline __attribute__((always_inline)) void rtscope__end_span(struct rtscope__span *span)
{
	const uint32_t *word = RTSCOPE__LOAD(span->event->enabled), enabled = RTSCOPE__LOAD(*word);

	if (RTSCOPE__UNLIKELY(enabled)) {
		struct rtscope__record record = RTSCOPE__LIKELY(rtscope__goes_to_ring(enabled)) ?
							rtscope__reserve(rtscope__tls, span->event->id, 8) :
							rtscope__reserve_elsewhere(word, span->event->id, 8);

		if (RTSCOPE__LIKELY(record.place != 0))
			rtscope__commit(record);
	}
}

#if RTSCOPE__HAS_PROBES
#define RTSCOPE__PROBE(label, provider, event, text, level, ...)                                                      \
	RTSCOPE__PROBE_(RTSCOPE__EVENT_ASM(label, text)                                                               \
				RTSCOPE__PROBE_ASM(label, provider, event,                                            \
						   RTSCOPE__PASTE(RTSCOPE__ARGUMENTS_, RTSCOPE__COUNT(__VA_ARGS__))), \
			RTSCOPE__SOURCE RTSCOPE__EACH(RTSCOPE__ARGUMENT, __VA_ARGS__),                                \
			RTSCOPE__LEVEL(level) RTSCOPE__EACH(RTSCOPE__OPERAND, __VA_ARGS__))
#define RTSCOPE__PROBE_(code, ...) __asm__ __volatile__(code : : __VA_ARGS__)
#else
#define RTSCOPE__PROBE(label, provider, event, text, level, ...) (void)0
#endif

#endif

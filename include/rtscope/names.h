/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The names that the linker sees. They carry the version of what is in them (RTSCOPE__SHARED_VERSION): sources that were compiled with
 * another version of this header, as in a static library of somebody else, may be linked into the same program. Each version then
 * has its own variables, its own list of events, and its own files; with common names the linker would take either's.
 */
#ifndef RTSCOPE_NAMES_H
#define RTSCOPE_NAMES_H

/* Once in each program or library, and seen there only: variables, and functions. */
#define RTSCOPE__HIDDEN __attribute__((weak, visibility("hidden")))
#define RTSCOPE__HIDDEN_FUNCTION RTSCOPE__HIDDEN RTSCOPE__BARE
/* The same for one that no event calls again and again. */
#define RTSCOPE__SELDOM RTSCOPE__HIDDEN_FUNCTION RTSCOPE__COLD

/* A macro's value as text. */
#define RTSCOPE__TEXT(x) RTSCOPE__TEXT_(x)
#define RTSCOPE__TEXT_(x) #x

/* The sections in which a program's events and enumerations are listed. crates/probe/src/lib.rs has these names, too. */
#define RTSCOPE__EVENTS_SECTION "rtscope_events_2"
#define RTSCOPE__ENUMS_SECTION "rtscope_enums_2"
#define __start_rtscope_events __start_rtscope_events_2
#define __stop_rtscope_events __stop_rtscope_events_2
#define __start_rtscope_enums __start_rtscope_enums_2
#define __stop_rtscope_enums __stop_rtscope_enums_2

/*
 * Everything that is RTSCOPE__HIDDEN, RTSCOPE__HIDDEN_FUNCTION or RTSCOPE__SELDOM. crates/probe/src/private/header.rs has the first, too. What takes or returns
 * something else than in an earlier header of this version has a letter.
 */
#define rtscope__off rtscope__off_2
#define rtscope__add rtscope__add_2b
#define rtscope__after_fork rtscope__after_fork_2b
#define rtscope__before_fork rtscope__before_fork_2c
#define rtscope__clock_function rtscope__clock_function_2
#define rtscope__commit_slowly rtscope__commit_slowly_2
#define rtscope__end_ring rtscope__end_ring_2b
#define rtscope__end_thread rtscope__end_thread_2b
#define rtscope__ended rtscope__ended_2b
#define rtscope__find rtscope__find_2b
#define rtscope__forking rtscope__forking_2c
#define rtscope__has_ptwrite rtscope__has_ptwrite_2
#define rtscope__home rtscope__home_2
#define rtscope__in_child rtscope__in_child_2d
#define rtscope__in_setup rtscope__in_setup_2b
#define rtscope__last_user rtscope__last_user_2
#define rtscope__lead rtscope__lead_2d
#define rtscope__leader rtscope__leader_2
#define rtscope__lost rtscope__lost_2
#define rtscope__no_cpu rtscope__no_cpu_2
#define rtscope__none rtscope__none_2b
#define rtscope__object rtscope__object_2
#define rtscope__offset rtscope__offset_2
#define rtscope__own rtscope__own_2b
#define rtscope__own_space rtscope__own_space_2d
#define rtscope__pageless rtscope__pageless_2
#define rtscope__ptwrite_state rtscope__ptwrite_state_2
#define rtscope__remove rtscope__remove_2b
#define rtscope__reserve_slowly rtscope__reserve_slowly_2c
#define rtscope__roots_file rtscope__roots_file_2d
#define rtscope__send rtscope__send_2d
#define rtscope__shared rtscope__shared_2
#define rtscope__sleeps_long rtscope__sleeps_long_2
#define rtscope__slow rtscope__slow_2
#define rtscope__stage rtscope__stage_2d
#define rtscope__stale_works rtscope__stale_works_2
#define rtscope__started rtscope__started_2e
#define rtscope__thread_page rtscope__thread_page_2d
#define rtscope__unlocks rtscope__unlocks_2
#define rtscope__wait rtscope__wait_2

#endif

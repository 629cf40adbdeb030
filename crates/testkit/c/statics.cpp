/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A library with events in the constructors and destructors of its static objects, for tests (life.c). */
#include <rtscope/rtscope.h>

namespace
{

struct Object {
	Object()
	{
		RTSCOPE_EVENT(test, constructed);
	}
	~Object()
	{
		RTSCOPE_EVENT(test, destroyed);
	}
};

/* Constructed before objects without a priority, also those of other sources. */
__attribute__((init_priority(200))) Object first;
Object second;

__attribute__((destructor)) void at_unload()
{
	RTSCOPE_EVENT(test, unloaded);
}

} // namespace

extern "C" void library_emits()
{
	(void)&first;
	(void)&second;
	RTSCOPE_EVENT(test, library);
}

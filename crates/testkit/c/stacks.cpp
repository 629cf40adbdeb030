// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * A thread that waits in nested functions, some of them inlined, until another one lets it in: one round for each line of standard input. Prints
 * "ready" when it waits for the first time, and "round N" after each.
 *
 *   stacks ROUNDS [DEPTH [end]]
 *
 * `end`: the process ends as soon as the last round is over, without a system call between that can be waited for.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace shop
{

struct gate {
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
	bool is_open = false;

	__attribute__((always_inline)) inline void wait_for_it()
	{
		pthread_mutex_lock(&mutex);
		while (!is_open)
			pthread_cond_wait(&opened, &mutex);
		is_open = false;
		pthread_mutex_unlock(&mutex);
	}
	__attribute__((noinline)) int let_in();
};

/* Calls that are not the last thing, so that no function takes the place of its caller. */
static volatile int done;

int gate::let_in()
{
	pthread_mutex_lock(&mutex);
	is_open = true;
	pthread_cond_signal(&opened);
	done = pthread_mutex_unlock(&mutex);
	return done + 1;
}

struct guest {
	gate *at;

	template <class amount> __attribute__((noinline)) int pays(amount how_much)
	{
		volatile char purse[300];

		purse[0] = 1;
		at->wait_for_it();
		return purse[0] + (int)how_much;
	}
};

__attribute__((noinline)) int queue(guest &who, int before)
{
	volatile char place[100];
	int said;

	place[0] = 0;
	said = before > 0 ? queue(who, before - 1) : who.pays<long>(2);

	done = said;
	return done + 1;
}

} // namespace shop

static shop::gate door;

static void *keeper(void *)
{
	char byte;

	while (read(0, &byte, 1) == 1) {
		if (byte == '\n')
			shop::done = door.let_in();
	}
	exit(0);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 1, depth = argc > 2 ? atoi(argv[2]) : 3;
	bool ends = argc > 3 && !strcmp(argv[3], "end");
	shop::guest guest{ &door };
	pthread_t thread;

	setvbuf(stdout, NULL, _IONBF, 0);
	pthread_create(&thread, NULL, keeper, NULL);
	puts("ready");
	for (int round = 0; round < rounds; round++) {
		shop::done = shop::queue(guest, depth);
		if (ends && round == rounds - 1)
			_exit(0);
		printf("round %d\n", round);
	}
	/* It ends when nobody has anything to say any more. */
	pthread_join(thread, NULL);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The C side of a queue, for tests/it: MODE FD COUNT [EVENTFD]. A MODE that begins with a capital letter seals the queue.
 */
#include <rtscope/queue.h>

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct element {
	uint64_t number;
	uint32_t check;
	uint32_t zero;
};

static struct element element_of(uint64_t number)
{
	struct element element = { number, (uint32_t)(number * 2654435761u), 0 };

	return element;
}

/* Pushes all, one by one or in batches, and waits while the queue is full; wakes `event` unless it is -1. Returns the exit code. */
static int produce(struct rtscope_queue *queue, uint64_t count, uint64_t batch, int event)
{
	struct element elements[64];

	for (uint64_t number = 0; number < count && !queue->broken;) {
		uint64_t wanted = count - number < batch ? count - number : batch, done;

		for (uint64_t i = 0; i < wanted; i++)
			elements[i] = element_of(number + i);
		done = rtscope_queue_push_some(queue, elements, wanted);
		number += done;
		if (event >= 0)
			rtscope_queue_wake(queue, event);
	}
	return queue->broken ? 3 : 0;
}

/* As real-time work does: what does not fit is lost. Every second element is written in place. Returns the exit code. */
static int flood(struct rtscope_queue *queue, uint64_t count)
{
	for (uint64_t number = 0; number < count; number++) {
		struct element element = element_of(number), *place;

		if (number & 1) {
			rtscope_queue_push(queue, &element);
			continue;
		}
		place = (struct element *)rtscope_queue_reserve(queue);
		if (place) {
			*place = element;
			rtscope_queue_commit(queue);
		} else {
			rtscope_queue_push(queue, &element);
		}
	}
	printf("lost %" PRIu64 "\n", rtscope_queue_lost(queue));
	return 0;
}

static int consume(struct rtscope_queue *queue, uint64_t count)
{
	for (uint64_t number = 0; number < count; number++) {
		const struct element *found, wanted = element_of(number);
		struct element copy;

		if (!rtscope_queue_wait(queue, -1, 20000000000, 100000))
			return 4;
		found = (const struct element *)rtscope_queue_front(queue);
		if (!found || found->number != wanted.number || found->check != wanted.check)
			return 5;
		if (number % 3 == 0) {
			if (!rtscope_queue_pop(queue, &copy) || copy.number != number)
				return 6;
		} else {
			rtscope_queue_release(queue);
		}
	}
	printf("consumed %" PRIu64 ", high water %" PRIu64 "\n", count, rtscope_queue_high_water(queue));
	return 0;
}

/* Takes elements, sleeping on an eventfd without an end. */
static int sleep_on(struct rtscope_queue *queue, uint64_t count, int event)
{
	struct element copy;

	for (uint64_t number = 0; number < count; number++) {
		if (!rtscope_queue_wait(queue, event, -1, INT64_MAX))
			return 4;
		if (!rtscope_queue_pop(queue, &copy) || copy.number != number)
			return 6;
	}
	return 0;
}

/* Waits with what cannot be waited for: it finds out, and does not ask again and again. */
static int wait_badly(struct rtscope_queue *queue)
{
	const struct element element = element_of(7);
	struct rtscope_queue producer;

	/* Empty: no descriptor, no period. */
	if (rtscope_queue_wait(queue, 9999, 50000000, 10000000) || rtscope_queue_wait(queue, -1, 1000000, 0))
		return 7;
	if (rtscope_queue_attach(&producer, queue->memory, queue->bytes, sizeof(element) + 8, RTSCOPE_QUEUE_PRODUCER) !=
		    RTSCOPE__EPROTO ||
	    rtscope_queue_attach(&producer, queue->memory, queue->bytes, sizeof(element), RTSCOPE_QUEUE_PRODUCER) ||
	    !rtscope_queue_push(&producer, &element))
		return 8;
	/* The end of all times. */
	return rtscope_queue_wait(queue, -1, INT64_MAX, INT64_MAX) ? 0 : 9;
}

int main(int argc, char **argv)
{
	struct rtscope_queue queue;
	enum rtscope_queue_side side;
	uint64_t count;
	char mode;
	int error, result;

	if (argc < 4)
		return 2;
	count = strtoull(argv[3], NULL, 10);
	mode = (char)tolower((unsigned char)argv[1][0]);
	side = strchr("cws", mode) ? RTSCOPE_QUEUE_CONSUMER : RTSCOPE_QUEUE_PRODUCER;
	error = mode == argv[1][0] ? rtscope_queue_open(&queue, atoi(argv[2]), sizeof(struct element), side) :
				     rtscope_queue_open_sealed(&queue, atoi(argv[2]), sizeof(struct element), side);
	if (error) {
		printf("error %d\n", error);
		return 2;
	}
	switch (mode) {
	case 'c':
		result = consume(&queue, count);
		break;
	case 's':
		result = sleep_on(&queue, count, argc > 4 ? atoi(argv[4]) : -1);
		break;
	case 'w':
		result = wait_badly(&queue);
		break;
	case 'f':
		result = flood(&queue, count);
		break;
	default:
		result = produce(&queue, count, mode == 'b' ? 64 : 1, argc > 4 ? atoi(argv[4]) : -1);
	}
	rtscope_queue_close(&queue);
	return result;
}

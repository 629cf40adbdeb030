// SPDX-License-Identifier: Apache-2.0 OR MIT
// A program with branches of all kinds, for decoders of instruction traces: loops, recursion, calls through pointers, a table of jumps,
// and the C library's sorting and formatting. Its argument says how often. Compiled statically, so that all of it is in one file.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned state = 1;

static unsigned next(void)
{
	state = state * 1664525u + 1013904223u;
	return state >> 8;
}

static int ascending(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;
	return (x > y) - (x < y);
}

struct node {
	struct node *left, *right;
	unsigned key;
};

static struct node *insert(struct node *tree, struct node *node)
{
	if (!tree)
		return node;
	if (node->key < tree->key)
		tree->left = insert(tree->left, node);
	else
		tree->right = insert(tree->right, node);
	return tree;
}

static unsigned depth(const struct node *tree)
{
	if (!tree)
		return 0;
	unsigned left = depth(tree->left), right = depth(tree->right);
	return 1 + (left > right ? left : right);
}

// An interpreter: the compiler makes a table of jumps of it.
static unsigned interpret(const unsigned char *code, unsigned length)
{
	unsigned a = 0, b = 1;
	for (unsigned at = 0; at < length; at++) {
		switch (code[at] & 7) {
		case 0:
			a += b;
			break;
		case 1:
			b ^= a;
			break;
		case 2:
			a <<= 1;
			break;
		case 3:
			b -= a;
			break;
		case 4:
			a = a * 3 + 1;
			break;
		case 5:
			b = a > b ? a : b + 1;
			break;
		case 6:
			if (a & 1)
				at++;
			break;
		default:
			a ^= b >> 3;
			break;
		}
	}
	return a ^ b;
}

int main(int argc, char **argv)
{
	static struct node nodes[64];
	static int numbers[64];
	static unsigned char code[256];
	unsigned sum = 0, rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
	for (unsigned round = 0; round < rounds; round++) {
		struct node *tree = NULL;
		for (int at = 0; at < 64; at++) {
			numbers[at] = (int)next();
			nodes[at] = (struct node){ NULL, NULL, next() };
			tree = insert(tree, &nodes[at]);
		}
		for (int at = 0; at < 256; at++)
			code[at] = (unsigned char)next();
		qsort(numbers, 64, sizeof numbers[0], ascending);
		char text[64];
		snprintf(text, sizeof text, "%u %x %s", depth(tree), numbers[0], "branches");
		sum += interpret(code, sizeof code) + (unsigned)strlen(text);
	}
	printf("%u\n", sum);
	return 0;
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
/* OpenCSD's decoder of ETMv4 on a trace in formatter frames, with the program's code: what `bench hardware` compares with.
 *
 * opencsd CODE TRACE ADDRESS: prints how many ranges of instructions there are. */

#include <opencsd/c_api/opencsd_c_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t ranges, sum;

static ocsd_datapath_resp_t element(const void *context, const ocsd_trc_index_t index, const uint8_t id,
				    const ocsd_generic_trace_elem *elem)
{
	(void)context;
	(void)index;
	(void)id;
	if (elem->elem_type == OCSD_GEN_TRC_ELEM_INSTR_RANGE) {
		ranges++;
		sum += elem->st_addr + elem->num_instr_range;
	}
	return OCSD_RESP_CONT;
}

static uint8_t *content(const char *path, size_t *size)
{
	FILE *file = fopen(path, "rb");
	if (!file || fseek(file, 0, SEEK_END))
		exit(1);
	*size = (size_t)ftell(file);
	rewind(file);
	uint8_t *bytes = malloc(*size);
	if (!bytes || fread(bytes, 1, *size, file) != *size)
		exit(1);
	fclose(file);
	return bytes;
}

int main(int count, char **words)
{
	if (count != 4)
		return 2;
	size_t code_size, trace_size;
	uint8_t *code = content(words[1], &code_size), *trace = content(words[2], &trace_size);
	dcd_tree_handle_t tree = ocsd_create_dcd_tree(OCSD_TRC_SRC_FRAME_FORMATTED, OCSD_DFRMTR_FRAME_MEM_ALIGN);
	ocsd_etmv4_cfg config;
	memset(&config, 0, sizeof config);
	config.reg_idr0 = 0x28000EA1;
	config.reg_idr1 = 0x4100F403;
	config.reg_idr2 = 0x488;
	config.reg_traceidr = 0x10;
	config.arch_ver = ARCH_V8;
	config.core_prof = profile_CortexA;
	unsigned char id;
	int failed = ocsd_dt_create_decoder(tree, OCSD_BUILTIN_DCD_ETMV4I, OCSD_CREATE_FLG_FULL_DECODER, &config, &id);
	failed |= ocsd_dt_add_buffer_mem_acc(tree, strtoull(words[3], 0, 0), OCSD_MEM_SPACE_ANY, code,
					     (uint32_t)code_size);
	failed |= ocsd_dt_set_gen_elem_outfn(tree, element, 0);
	if (failed)
		return 1;
	for (size_t place = 0; place < trace_size;) {
		uint32_t used = 0, size = trace_size - place > 1 << 20 ? 1 << 20 : (uint32_t)(trace_size - place);
		if (ocsd_dt_process_data(tree, OCSD_OP_DATA, place, size, trace + place, &used) >= OCSD_RESP_WAIT ||
		    !used)
			return 1;
		place += used;
	}
	uint32_t none;
	ocsd_dt_process_data(tree, OCSD_OP_EOT, 0, 0, 0, &none);
	printf("%llu %llu\n", (unsigned long long)ranges, (unsigned long long)sum);
	return 0;
}

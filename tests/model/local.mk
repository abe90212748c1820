# SPDX-License-Identifier: MIT

UNIT_TESTS += \
	tests/model/test_outer \
	tests/model/test_arch \
	tests/model/test_data \
	tests/model/test_device \
	tests/model/test_formats \
	tests/model/test_golden \
	tests/model/test_graph \
	tests/model/test_loader \
	tests/model/test_npy \
	tests/model/test_ops \
	tests/model/test_pool \
	tests/model/test_safetensors \
	tests/model/test_stats \
	tests/model/test_tokens

TSAN_TESTS += \
	tests/model/test_graph \
	tests/model/test_loader \
	tests/model/test_pool \
	tests/model/test_tokens

EXTRA_DIST += tests/model/data_folder.h tests/model/graph_run.h tests/model/ops_fixture.h

# SPDX-License-Identifier: MIT

UNIT_TESTS += \
	tests/net/test_admission \
	tests/net/test_aead \
	tests/net/test_budget \
	tests/net/test_bulk \
	tests/net/test_bulk_lattice \
	tests/net/test_bulk_stream \
	tests/net/test_certificate \
	tests/net/test_convert \
	tests/net/test_datagram \
	tests/net/test_frame \
	tests/net/test_identity \
	tests/net/test_lattice \
	tests/net/test_lists \
	tests/net/test_noise \
	tests/net/test_transport \
	tests/net/test_strangers \
	tests/net/test_transport_addrs \
	tests/net/test_transport_kept \
	tests/net/test_transport_certificates \
	tests/net/test_transport_settings \
	tests/net/test_verify_budget \
	tests/net/test_wire \
	tests/net/test_wire_exchange \
	tests/net/test_wire_signed \
	tests/net/test_wire_versions

TSAN_TESTS += tests/net/test_bulk
tests_net_test_bulk_LDADD = $(NET_LIBS) $(CMOCKA_LIBS)
tests_net_test_bulk_lattice_LDADD = $(NET_LIBS) $(CMOCKA_LIBS)
tests_net_test_bulk_stream_LDADD = $(NET_LIBS) $(CMOCKA_LIBS)
tests_net_test_certificate_LDADD = $(NET_LIBS) $(CMOCKA_LIBS)
tests_net_test_convert_LDADD = $(NET_LIBS) $(CMOCKA_LIBS)
tests_net_test_admission_LDADD = $(NET_LIBS) $(CMOCKA_LIBS)
tests_net_test_aead_LDADD = $(NET_LIBS) $(CMOCKA_LIBS)
tests_net_test_identity_LDADD = $(NET_LIBS) $(CMOCKA_LIBS)
tests_net_test_noise_LDADD = $(NET_LIBS) $(CMOCKA_LIBS)
tests_net_test_budget_LDADD = $(NET_LIBS) $(CMOCKA_LIBS)
tests_net_test_datagram_LDADD = $(NET_LIBS) $(CMOCKA_LIBS)
tests_net_test_frame_LDADD = $(NET_LIBS) $(CMOCKA_LIBS)
tests_net_test_lattice_LDADD = $(NET_LIBS) $(CMOCKA_LIBS)
tests_net_test_lists_LDADD = $(NET_LIBS) $(CMOCKA_LIBS)
tests_net_test_verify_budget_LDADD = $(NET_LIBS) $(CMOCKA_LIBS)
tests_net_test_strangers_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=calloc
tests_net_test_wire_LDADD = $(NET_LIBS) $(CMOCKA_LIBS)
tests_net_test_wire_exchange_LDADD = $(NET_LIBS) $(CMOCKA_LIBS)
tests_net_test_wire_signed_LDADD = $(NET_LIBS) $(CMOCKA_LIBS)
tests_net_test_wire_versions_LDADD = $(NET_LIBS) $(CMOCKA_LIBS)

EXTRA_DIST += \
	tests/net/bulk_fixture.h \
	tests/net/frame_push.h \
	tests/net/transport_pair.h \
	tests/net/wire_fill.h

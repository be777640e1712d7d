# machine: one-node
# proves: --verify can fail here: a guest under nested KVM finds one byte that is not zero, and the next run is clean
# tests: --package prezero --bin prezero

passes prezero commands::run::tests::a_byte_on_a_hugepage_is_found_and_the_pages_come_back

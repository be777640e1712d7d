# machine: two-nodes
# proves: a page that is moved to another node between populate and check ends a bound run with exit code 3
# pending: the hook between populate and check is not built
# tests: --package prezero --bin prezero

passes prezero commands::run::tests::a_page_on_another_node_is_an_error_under_bind

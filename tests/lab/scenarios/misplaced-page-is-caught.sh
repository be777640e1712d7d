# machine: two-nodes
# proves: a page that is moved to another node between populate and check ends a bound run, and is counted otherwise
# tests: --package prezero --bin prezero

for test in the_check_catches_a_page_on_another_node \
    a_page_beyond_a_preference_is_counted_and_the_guest_runs \
    the_check_catches_a_hugepage_on_another_node \
    a_hugepage_out_of_turn_is_counted_and_the_guest_runs \
    a_page_moved_to_where_it_is_changes_nothing; do
    passes prezero "commands::run::tests::placement::$test"
done

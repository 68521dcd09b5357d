//! Checks in the crates of the kernel, by crate, module and function.

use crate::Class::*;
use crate::{Mutant, m};

pub(crate) const CHECKS: &[Mutant] = &[
    m(
        "check/space::copy::locate::permission",
        Permission,
        "pages are copied from and to as their permissions say",
        &["core/unit/host::resolve_tests::copies_fault_pages_in_and_check_every_page"],
    ),
    m(
        "check/core::entry::fast_invoke::forget",
        Contents,
        "who is invoked finds nothing of the caller in floating-point registers",
        &["core/unit/host::fp_tests::invocations_carry_nothing_either_way"],
    ),
    m(
        "check/core::entry::fast_return::forget",
        Contents,
        "who is returned to finds nothing of the callee in floating-point registers",
        &["core/unit/host::fp_tests::invocations_carry_nothing_either_way"],
    ),
    m(
        "check/core::fp::bring_back::copy",
        Contents,
        "what a fault has interrupted goes on with its floating-point registers",
        &[
            "core/unit/host::fp_tests::what_a_fault_interrupts_goes_on_with_its_own",
            "core/unit/host::fp_tests::threads_that_end_by_a_fault_keep_theirs",
        ],
    ),
    m(
        "check/core::fp::keep::one",
        Contents,
        "a handler that faults does not take the place of what it handles",
        &["core/unit/host::fp_tests::threads_that_end_by_a_fault_keep_theirs"],
    ),
    m(
        "check/core::fp::load::short_way",
        Contents,
        "a thread with floating-point registers in its frame does not go the short way",
        &["core/unit/host::fp_tests::invocations_carry_nothing_either_way"],
    ),
    m(
        "check/core::fp::put_away::save",
        Contents,
        "a thread finds no floating-point registers of the one before, and its own later",
        &[
            "core/unit/host::fp_tests::threads_that_take_turns_keep_their_own",
            "core/unit/host::fp_tests::each_isa_has_its_own",
        ],
    ),
    m(
        "check/core::fp::set_used::short_way",
        Contents,
        "a thread with floating-point registers in the CPU does not go the short way",
        &[
            "core/unit/host::fp_tests::invocations_carry_nothing_either_way",
            "core/unit/host::fp_tests::what_a_fault_interrupts_goes_on_with_its_own",
        ],
    ),
    m(
        "check/core::crossing::arrive::fp",
        Contents,
        "a call that crosses finds nothing in floating-point registers but its arguments",
        &["core/unit/host::fp_tests::crossing_calls_find_nothing_of_before"],
    ),
    m(
        "check/space::evacuate::copy_frame",
        Contents,
        "a page that is moved has its contents",
        &["core/unit/host::evacuate_tests::pages_are_moved_with_what_is_in_them"],
    ),
    m(
        "check/space::evacuate::move_parked::usable",
        Contents,
        "a page that somebody may write is not copied",
        &["core/unit/host::evacuate_tests::a_page_that_is_shown_again_is_not_moved"],
    ),
    m(
        "check/space::evacuate::unpark::moved",
        State,
        "a page that one table has at its new frame is usable there, and nowhere else",
        &["recovery/unit/tests::evacuation::a_page_that_a_dead_node_was_moving_has_one_place"],
    ),
    m(
        "check/core::handover::arrive_failed::fp",
        Contents,
        "a thread that comes back from a dead node has nothing in floating-point registers",
        &["recovery/unit/tests::threads::faults_further_in_are_over"],
    ),
    m(
        "check/space::mapping::map_reserved::type",
        State,
        "only pages of reserved frames are mapped without a reference",
        &["core/unit/host::between_tests::pages_of_the_system_are_those_of_reserved_frames"],
    ),
    m(
        "check/space::mapping::tables::pin_both::stamp",
        Stamp,
        "a table is linked again once all nodes have been quiet",
        &["core/unit/host::space_tests::tables_hang_at_one_place_and_leave_it_empty"],
    ),
    m(
        "check/space::mapping::quick::map::stamp",
        Stamp,
        "an entry is used again once all nodes have been quiet",
        &["core/unit/host::view_tests::pages_come_change_and_go_by_the_short_way"],
    ),
    m(
        "check/space::mapping::quick::resolve_quickly::stamp",
        Stamp,
        "faults show pages in entries that are quiet",
        &["core/unit/host::between_tests::a_fault_shows_nothing_where_a_page_has_just_been"],
    ),
    m(
        "check/space::mapping::quick::resolve_quickly::write",
        Permission,
        "what one ISA may not write, another may not",
        &["core/unit/host::view_tests::faults_are_resolved_from_the_other_table_by_the_short_way"],
    ),
    m(
        "check/space::mapping::tables::unlink::second-look",
        References,
        "a table that has got an entry meanwhile stays",
        &["core/unit/host::between_tests::a_page_comes_or_its_table_goes"],
    ),
    m(
        "check/core::ops::call::right",
        Permission,
        "a capability that is remembered permits what its rights say",
        &["core/unit/ktest::ops_known::known_capabilities_permit_no_other_operation_on_hosts"],
    ),
    m(
        "check/core::short::copy::right",
        Permission,
        "what is remembered is copied with the right to copy",
        &["core/unit/ktest::ops_known::known_sources_need_the_right_to_copy_on_hosts"],
    ),
    m(
        "check/machine::view::copied::narrow",
        Permission,
        "a copy of what is remembered permits no more",
        &["core/unit/ktest::ops_captbl::rights_that_a_copy_has_lost_do_not_come_back_on_hosts"],
    ),
    m(
        "check/machine::lookup::check::guard",
        Permission,
        "a guarded capability is good while its guard is alive",
        &[
            "core/unit/ktest::ops_captbl::revocation_kills_all_copies_and_nothing_else_on_hosts",
            "core/unit/ktest::ops_guards::what_guarded_memory_activates_is_revoked_with_it_on_hosts",
        ],
    ),
    m(
        "check/machine::lookup::check::version",
        Version,
        "a capability is good while its object has the same version",
        &[
            "core/unit/ktest::ops_memory::retype_untyped_kills_all_capabilities_at_once_on_hosts",
            "core/unit/ktest::ops_captbl::copies_need_the_right_to_copy_and_a_living_source_on_hosts",
        ],
    ),
    m(
        "check/core::ops::component::change_part::unpin",
        References,
        "what a component consisted of is given back",
        &["core/unit/ktest::ops_component::components_consist_of_a_root_and_a_space_on_hosts"],
    ),
    m(
        "check/core::ops::component::dispatch::handler",
        Version,
        "a component whose fault handler has been changed has another generation",
        &["core/unit/ktest::ops_component::faults_go_to_the_handler_that_there_is_now_on_hosts"],
    ),
    m(
        "check/core::ops::component::set_parts::generation",
        Version,
        "a component that has been changed has another generation",
        &[
            "core/unit/ktest::ops_views::known_components_are_entered_with_their_present_table_on_hosts",
        ],
    ),
    m(
        "check/core::ops::hardware::dispatch::node",
        Permission,
        "hardware is used on its own node",
        &[
            "core/unit/ktest::ops_hardware::hardware_of_other_nodes_is_not_touched_from_here_on_hosts",
        ],
    ),
    m(
        "check/core::ops::look_up::right",
        Permission,
        "operations need their rights",
        &[
            "core/unit/ktest::ops_memory::memory_operations_need_their_rights_on_hosts",
            "core/unit/ktest::ops_thread::operations_on_threads_need_their_rights_on_hosts",
            "core/unit/ktest::ops_hardware::operations_on_hardware_need_their_rights_on_hosts",
        ],
    ),
    m(
        "check/core::ops::memory::block_within::range",
        Permission,
        "a block lies within the capability as a whole",
        &[
            "core/unit/ktest::ops_memory::retype_untyped_refuses_blocks_that_are_partly_others_on_hosts",
        ],
    ),
    m(
        "check/core::ops::memory::claim::zero",
        Contents,
        "blocks that have been used are zeroed, and no more of them at once than is bounded",
        &[
            "core/unit/ktest::ops_memory::used_blocks_larger_than_the_bound_are_not_zeroed_in_one_step_on_hosts",
        ],
    ),
    m(
        "check/core::ops::memory::dispatch::guard",
        Permission,
        "what guarded memory activates is guarded",
        &["core/unit/ktest::ops_guards::what_guarded_memory_activates_is_revoked_with_it_on_hosts"],
    ),
    m(
        "check/core::ops::memory::dispatch::range",
        Permission,
        "a block that is made lies within the capability",
        &["core/unit/ktest::ops_memory::retype_user_refuses_blocks_beyond_the_capability_on_hosts"],
    ),
    m(
        "check/machine::lookup::operand::right",
        Permission,
        "operands that are remembered need their rights",
        &["core/unit/ktest::ops_known::known_operands_need_their_rights_on_hosts"],
    ),
    m(
        "check/machine::lookup::operand::type",
        Permission,
        "operands are of the type that is asked for",
        &["core/unit/ktest::ops_thread::configure_refuses_bad_operands_on_hosts"],
    ),
    m(
        "check/machine::lookup::operand_slowly::right",
        Permission,
        "operands need their type and rights",
        &[
            "core/unit/ktest::ops_thread::configure_refuses_bad_operands_on_hosts",
            "core/unit/ktest::ops_hardware::interrupts_go_to_sending_ends_on_hosts",
        ],
    ),
    m(
        "check/core::ops::space::rights::write",
        Permission,
        "a page is mapped writable by whoever may write it",
        &["core/unit/ktest::ops_known::pages_are_writable_by_who_may_write_on_hosts"],
    ),
    m(
        "check/space::mapping::not_mapped::pruned",
        State,
        "a table that is taken out behind a walk is no fault of the program",
        &[
            "core/unit/host::space_tests::a_table_that_is_pruned_behind_a_walk_is_no_fault_of_the_program",
        ],
    ),
    m(
        "check/space::mapping::not_mapped::given-back",
        References,
        "the row that drops the last reference to an unlinked table gives the table back",
        &["core/unit/host::reclaim_tests::a_refused_page_gives_the_table_back_that_it_has_pinned"],
    ),
    m(
        "check/core::ops::stop::stop::depth",
        State,
        "a thread is not cut off within an invocation",
        &[
            "core/unit/host::stop_tests::a_thread_that_is_stopped_in_a_service_stops_when_it_leaves",
            "core/unit/host::stop_tests::a_stop_ends_the_waiting_of_a_service",
        ],
    ),
    m(
        "check/core::ops::inside::inside::lose",
        State,
        "a thread whose locks a service gives to others does not go on there",
        &["core/unit/ktest::ops_stop::services_are_told_which_invocations_are_over_on_hosts"],
    ),
    m(
        "check/core::ops::stop::give_back::node",
        State,
        "a thread that was taken while its node was recovered is not left there",
        &["core/unit/host::stop_tests::a_thread_that_is_stopped_on_a_dead_node_is_not_left_there"],
    ),
    m(
        "check/core::invoke::leave::nowhere",
        State,
        "a thread without an invocation is in its own component",
        &[
            "core/unit/host::stop_tests::a_thread_whose_component_is_gone_does_not_stay_in_the_service",
        ],
    ),
    m(
        "check/core::invoke::leave_specially::stop",
        State,
        "a request to stop takes effect on the outermost return",
        &[
            "core/unit/host::stop_tests::a_thread_that_is_stopped_in_a_service_stops_when_it_leaves",
            "core/unit/host::stop_tests::a_thread_that_is_stopped_in_its_fault_handler_keeps_its_registers",
        ],
    ),
    m(
        "check/core::handover::takes_stop::stop",
        State,
        "a request to stop takes effect where a crossed invocation returns to",
        &[
            "core/unit/host::stop_tests::a_thread_that_is_stopped_in_a_service_elsewhere_stops_where_it_comes_back",
        ],
    ),
    m(
        "check/core::linger::is_awaited::node",
        State,
        "a CPU that lingers does not take a thread once its node is dead",
        &[
            "core/unit/host::linger_tests::a_thread_is_not_left_with_a_cpu_that_lingers_on_a_dead_node",
        ],
    ),
    m(
        "check/core::dispatch::end_thread::lose",
        State,
        "a thread that has ended in a service does not go on there",
        &["core/unit/host::stop_tests::a_thread_that_ends_in_a_service_is_not_resumed_there"],
    ),
    m(
        "check/core::ops::thread::others::self",
        Permission,
        "a thread yields, migrates and exits by itself",
        &[
            "core/unit/ktest::ops_thread::yield_exit_migrate_and_jump_are_for_the_caller_itself_on_hosts",
        ],
    ),
    m(
        "check/core::ops::registers::access::state",
        State,
        "registers of stopped threads are read and written",
        &[
            "core/unit/ktest::ops_thread::registers_of_stopped_threads_are_read_and_written_on_hosts",
        ],
    ),
    m(
        "check/core::ops::registers::register::depth",
        Permission,
        "registers of a service are not the client's",
        &[
            "core/unit/ktest::ops_authority::registers_of_a_service_are_neither_read_nor_written_on_hosts",
        ],
    ),
    m(
        "check/core::dispatch::place::can_go_on::depth",
        Permission,
        "a service is not taken to another node",
        &[
            "core/unit/ktest::ops_authority::cpus_are_not_started_with_threads_that_cannot_go_on_there_on_hosts",
        ],
    ),
    m(
        "check/core::dispatch::place::can_go_on::home",
        Permission,
        "a thread goes on where its component may run",
        &["core/unit/ktest::ops_authority::threads_go_on_where_their_component_may_run_on_hosts"],
    ),
    m(
        "check/core::dispatch::budget::reserve",
        Permission,
        "time that a thread may use is in no budget",
        &["core/unit/ktest::ops_authority::time_in_use_is_nobody_elses_on_hosts"],
    ),
    m(
        "check/core::ops::thread::scheduler_of::lines",
        Permission,
        "a part of the lines is no way to the others",
        &[
            "core/unit/ktest::ops_authority::schedulers_hear_of_threads_at_all_their_lines_or_at_none_on_hosts",
        ],
    ),
    m(
        "check/core::ops::captbl::dispatch::cons",
        Permission,
        "a leaf is hung in only by a capability that permits what the root may do to it",
        &["core/unit/ktest::ops_captbl::cons_refuses_what_is_no_leaf_and_where_one_is_on_hosts"],
    ),
    m(
        "check/core::ops::thread::id_of::range",
        Permission,
        "ids are given by the component that has them",
        &["core/unit/ktest::ops_authority::ids_are_given_by_those_who_have_them_on_hosts"],
    ),
    m(
        "check/object::ids::claim::unique",
        Permission,
        "two live threads have two ids",
        &["core/unit/ktest::ops_authority::an_id_belongs_to_one_live_thread_on_hosts"],
    ),
    m(
        "check/machine::lookup::unguarded::guard",
        Permission,
        "nobody keeps what a guarded capability refers to",
        &["core/unit/ktest::ops_guards::guarded_capabilities_are_not_kept_for_later_on_hosts"],
    ),
    m(
        "check/core::quiet::flush_tlb::tlb",
        Flush,
        "a round drops translations",
        &["core/unit/host::ktests::rounds_drop_translations"],
    ),
    m(
        "check/core::quiet::flush_tlb::views",
        Stamp,
        "a round forgets what a CPU remembers",
        &["core/unit/ktest::ops_views::known_ways_are_forgotten_in_rounds_on_hosts"],
    ),
    m(
        "check/core::quiet::revalidate::captbl",
        Stamp,
        "a round gives a component its present table",
        &["core/unit/ktest::ops_known::rounds_give_a_component_its_present_table_on_hosts"],
    ),
    m(
        "check/recovery::adrift::tell",
        State,
        "schedulers are told of what a dead node may have had in hand",
        &[
            "recovery/unit/tests::waking::who_was_just_being_woken_is_woken",
            "recovery/unit/tests::waking::sleepers_are_told_of_again_and_waiters_wait_on",
        ],
    ),
    m(
        "check/recovery::adrift::wake",
        State,
        "who was taken off an endpoint by a dead node is woken",
        &["recovery/unit/tests::waking::who_was_just_being_woken_is_woken"],
    ),
    m(
        "check/recovery::begin::first",
        State,
        "the first live node recovers",
        &["recovery/unit/tests::nodes::the_first_live_node_recovers_and_one_at_a_time"],
    ),
    m(
        "check/recovery::between::wait",
        References,
        "recovery waits for rows that may not have seen the freeze",
        &["recovery/unit/tests::rows::recovery_waits_for_rows_of_live_nodes"],
    ),
    m(
        "check/recovery::endpoints::piece::vouch",
        State,
        "threads on lists are not taken for lost",
        &[
            "recovery/unit/tests::events::a_thread_that_a_dead_node_was_putting_on_a_list_is_put_there",
        ],
    ),
    m(
        "check/recovery::endpoints::waiter::news",
        State,
        "who waits at an endpoint with something in it is woken",
        &["recovery/unit/tests::waking::who_was_just_being_woken_is_woken"],
    ),
    m(
        "check/recovery::freeze::count",
        References,
        "references are frozen and counted anew",
        &[
            "recovery/unit/tests::rows::half_mapped_pages_are_taken_out_and_those_of_faults_stay",
            "recovery/unit/tests::rows::every_row_is_repaired_wherever_its_cpu_dies",
        ],
    ),
    m(
        "check/recovery::rows::page_entry::owned",
        State,
        "pages that a fault has put there stay",
        &["recovery/unit/tests::rows::half_mapped_pages_are_taken_out_and_those_of_faults_stay"],
    ),
    m(
        "check/recovery::rows::page_entry::stamp",
        Stamp,
        "entries that recovery empties are stamped",
        &["recovery/unit/tests::intents::entries_that_recovery_empties_are_stamped"],
    ),
    m(
        "check/recovery::rows::place::version",
        Version,
        "entries are repaired in the table that the intent names",
        &["recovery/unit/tests::intents::entries_of_a_table_that_has_been_made_since_stay"],
    ),
    m(
        "check/recovery::rows::repair::version",
        Version,
        "slots are repaired in what still is a leaf",
        &["recovery/unit/tests::intents::what_looks_like_a_slot_in_user_memory_stays"],
    ),
    m(
        "check/recovery::threads::place_for::home",
        Permission,
        "a thread goes on where its component may run",
        &[
            "recovery/unit/tests::threads::a_ready_thread_without_a_node_for_it_is_stopped_or_returns",
        ],
    ),
    m(
        "check/recovery::threads::repair::owner",
        State,
        "threads of the dead incarnation are repaired, and no others",
        &["recovery/unit/tests::threads::a_thread_that_was_leaving_the_dead_node_arrives"],
    ),
    m(
        "check/space::resolve::allows::write",
        Permission,
        "read-only pages are not written",
        &[
            "core/unit/host::resolve_tests::only_accesses_that_a_region_allows_are_resolved",
            "core/unit/host::resolve_tests::copies_fault_pages_in_and_check_every_page",
        ],
    ),
    m(
        "check/space::resolve::fill::write",
        Permission,
        "faults fill as the region allows",
        &["core/unit/host::resolve_tests::only_accesses_that_a_region_allows_are_resolved"],
    ),
    m(
        "check/space::resolve::resolve_slowly::execute",
        Permission,
        "what one ISA executes is not shown to another",
        &[
            "core/unit/host::resolve_tests::what_one_isa_may_not_write_or_has_to_itself_the_other_does_not_get",
        ],
    ),
    m(
        "check/space::shootdown::flush_here::tlb",
        Flush,
        "a shootdown drops translations",
        &[
            "core/unit/host::space_tests::a_shootdown_is_over_when_every_cpu_that_is_awake_has_dropped_its_tlb",
        ],
    ),
    m(
        "check/space::shootdown::has_flushed_everywhere::wait",
        Flush,
        "a shootdown is over once every CPU that takes part has dropped its translations",
        &[
            "core/unit/host::space_tests::a_shootdown_is_over_when_every_cpu_that_is_awake_has_dropped_its_tlb",
        ],
    ),
    m(
        "check/space::shootdown::make_executable::wait",
        Flush,
        "new code is executed once nobody has translations of the old",
        &[
            "core/unit/host::space_tests::code_is_executable_once_all_that_ran_older_code_there_have_rewritten_it",
        ],
    ),
    m(
        "check/machine::view::slot::entry",
        Version,
        "a capability is remembered while its leaf is where it was",
        &["core/unit/ktest::ops_captbl::leaves_hang_into_roots_and_come_out_on_hosts"],
    ),
    m(
        "check/machine::view::slot::header",
        Version,
        "a capability is remembered while its slot says the same",
        &["core/unit/ktest::ops_known::known_capabilities_that_are_deactivated_are_gone_on_hosts"],
    ),
    m(
        "check/machine::view::called::version",
        Version,
        "a capability is remembered while its object has the same version",
        &[
            "core/unit/ktest::ops_memory::retype_untyped_kills_all_capabilities_at_once_on_hosts",
            "core/unit/ktest::ops_captbl::frame_capabilities_die_with_their_block_on_hosts",
        ],
    ),
    m(
        "check/machine::view::holds::generation",
        Version,
        "a component is remembered while its generation is the same",
        &[
            "core/unit/ktest::ops_views::known_callers_are_returned_to_with_their_present_table_on_hosts",
        ],
    ),
    m(
        "check/machine::view::invoke::entry",
        Version,
        "an endpoint is remembered while its leaf is where it was",
        &["core/unit/ktest::ops_views::known_endpoints_go_with_their_leaf_on_hosts"],
    ),
    m(
        "check/machine::view::invoke::header",
        Version,
        "an endpoint is remembered while its slot says the same",
        &["core/unit/ktest::ops_views::known_endpoints_that_are_deactivated_are_gone_on_hosts"],
    ),
    m(
        "check/machine::platform::breathe_within::timer",
        State,
        "a timer that fires within an operation interrupts user mode at once",
        &[
            "core/unit/host::resolve_tests::a_timer_that_fires_within_a_copy_interrupts_user_mode_at_once",
        ],
    ),
    m(
        "check/machine::view::leaf::slot::entry",
        Version,
        "a leaf is remembered while its table leads to it",
        &["core/unit/host::view_tests::a_leaf_that_has_been_taken_out_gets_no_capability"],
    ),
    m(
        "check/machine::view::learn_capability::guard",
        Permission,
        "guarded capabilities are not remembered",
        &[
            "core/unit/ktest::ops_guards::sending_ends_of_a_guarded_endpoint_are_revoked_with_it_on_hosts",
            "core/unit/ktest::ops_endpoint::guarded_ends_are_mute_after_revocation_on_hosts",
        ],
    ),
    m(
        "check/core::short::syscall::right",
        Permission,
        "short ways permit what the rights of a capability say",
        &["core/unit/ktest::ops_known::known_capabilities_permit_no_other_operation_on_hosts"],
    ),
    m(
        "check/core::dispatch::wait::wake_receiver::place",
        State,
        "who is woken where it does not wait any more takes nothing from there",
        &["core/unit/ktest::ops_endpoint::messages_stay_for_those_who_wait_there_on_hosts"],
    ),
    m(
        "check/core::dispatch::wait::sleep_at::look",
        State,
        "who has been taken off an endpoint while it still ran does not sleep",
        &["core/unit/host::race_tests::messages_that_come_while_a_thread_goes_to_sleep_wake_it"],
    ),
    m(
        "check/core::dispatch::wait::make_ready::number",
        Version,
        "a thread is woken from the wait in which it was found, and from no later one",
        &["core/unit/host::race_tests::a_thread_found_waiting_is_woken_from_that_wait_only"],
    ),
    m(
        "check/core::short::receive::range",
        Permission,
        "a receiving end is for its own endpoints, by the short way too",
        &["core/unit/ktest::ops_endpoint::known_receiving_ends_are_for_their_endpoints_on_hosts"],
    ),
    m(
        "check/core::short::send::waiter",
        State,
        "who waits at an endpoint is woken by the short way too",
        &["core/unit/ktest::ops_endpoint::known_sending_ends_wake_who_waits_on_hosts"],
    ),
    m(
        "check/core::short::map_in::right",
        Permission,
        "the short way maps a page as its capability permits",
        &["core/unit/ktest::ops_known::pages_are_writable_by_who_may_write_on_hosts"],
    ),
];

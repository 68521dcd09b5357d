//! Fences and orders: places that matter where memory is weakly ordered.

use crate::Class::*;
use crate::{Mutant, m};

pub(crate) const ORDERS: &[Mutant] = &[
    m(
        "order/captbl::table::found::load_permitted",
        Release,
        "the load acquires",
        &[
            "captbl/loom_slots/a_slot_is_filled_again_after_a_round_and_not_before",
            "captbl/loom_slots/whoever_finds_a_capability_sees_all_of_it",
        ],
    ),
    m(
        "order/captbl::table::leaf_at::load_permitted",
        Release,
        "the load acquires",
        &["captbl/loom_edges/a_new_leaf_is_seen_with_its_slots"],
    ),
    m(
        "order/pgtbl::driver::read::load_fresh",
        Release,
        "the load acquires",
        &[
            "pgtbl/loom_tables/of_two_mappings_one_wins_and_no_frame_is_lost",
            "pgtbl/loom_tables/tables_are_zero_before_they_are_seen",
        ],
    ),
    m(
        "order/pgtbl::driver::unmap::fence",
        Fence,
        "what comes before is ordered before what comes after",
        &["pgtbl/loom_tables/stamps_cover_every_cpu_that_may_use_the_translation"],
    ),
    m(
        "order/retype::pins::may_unpin::fence",
        Fence,
        "what comes before is ordered before what comes after",
        &["retype/loom_recovery/a_row_that_gives_references_back_is_seen_or_refused_by_a_recount"],
    ),
    m(
        "order/retype::recover::freeze::fence",
        Fence,
        "what comes before is ordered before what comes after",
        &["retype/loom_recovery/a_row_that_gives_references_back_is_seen_or_refused_by_a_recount"],
    ),
    m(
        "order/retype::table::word::load",
        Release,
        "the load acquires",
        &["retype/loom_frames/contents_come_before_the_type"],
    ),
    m(
        "order/ring::spsc::pop::load_fresh",
        Release,
        "the load acquires",
        &[
            "ring/loom_ring/message_numbers_wrap",
            "ring/loom_ring/messages_arrive_once_whole_and_in_order",
        ],
    ),
    m(
        "order/ring::spsc::push::store_through",
        Release,
        "the store releases",
        &[
            "ring/loom_ring/message_numbers_wrap",
            "ring/loom_ring/messages_arrive_once_whole_and_in_order",
        ],
    ),
    m(
        "order/ring::sleep::begin::fence",
        Fence,
        "a thread that becomes the waiter sees the news that came before",
        &[
            "ring/loom_sleep/a_thread_that_goes_to_sleep_misses_no_message",
            "ring/loom_sleep/one_of_two_senders_wakes_a_thread",
        ],
    ),
    m(
        "order/ring::sleep::post::fence",
        Fence,
        "a sender sees the waiter that has not seen its news",
        &[
            "ring/loom_sleep/a_thread_that_goes_to_sleep_misses_no_message",
            "ring/loom_sleep/one_of_two_senders_wakes_a_thread",
        ],
    ),
    m(
        "order/ring::sleep::still_waits::fence",
        Fence,
        "a thread that sleeps sees that it has been taken off",
        &[
            "ring/loom_sleep/a_thread_that_goes_to_sleep_misses_no_message",
            "ring/loom_sleep/one_of_two_senders_wakes_a_thread",
        ],
    ),
    m(
        "order/ring::sleep::find_asleep::fence",
        Fence,
        "a sender sees that the thread that it has taken off sleeps",
        &[
            "ring/loom_sleep/a_thread_that_goes_to_sleep_misses_no_message",
            "ring/loom_sleep/one_of_two_senders_wakes_a_thread",
        ],
    ),
    m(
        "order/ring::linger::is_awaited::fence",
        Fence,
        "what comes before is ordered before what comes after",
        &[
            "ring/loom_linger/a_thread_that_is_handed_over_is_not_lost",
            "ring/loom_linger/a_thread_runs_once",
        ],
    ),
    m(
        "order/ring::linger::stop::fence",
        Fence,
        "what comes before is ordered before what comes after",
        &[
            "ring/loom_linger/a_thread_that_is_handed_over_is_not_lost",
            "ring/loom_linger/a_thread_runs_once",
        ],
    ),
    m(
        "order/ring::wake::notify::fence",
        Fence,
        "what comes before is ordered before what comes after",
        &[
            "ring/loom_wake/a_cpu_in_user_mode_is_interrupted",
            "ring/loom_wake/a_sleeper_is_woken",
        ],
    ),
    m(
        "order/ring::wake::prepare::fence",
        Fence,
        "what comes before is ordered before what comes after",
        &[
            "ring/loom_wake/a_cpu_in_user_mode_is_interrupted",
            "ring/loom_wake/a_sleeper_is_woken",
        ],
    ),
    m(
        "order/quiesce::idle::recheck::fence",
        Fence,
        "what comes before is ordered before what comes after",
        &["quiesce/loom_quiesce/work_is_not_slept_through"],
    ),
    m(
        "order/quiesce::idle::wake::fence",
        Fence,
        "what comes before is ordered before what comes after",
        &[
            "quiesce/loom_quiesce/a_cpu_that_sleeps_beside_others_needs_not_acknowledge",
            "quiesce/loom_quiesce/a_cpu_that_wakes_up_during_a_request_hears_of_it",
        ],
    ),
    m(
        "order/quiesce::intent::begin::store_line",
        Release,
        "the store releases",
        &["quiesce/loom_quiesce/whoever_dies_in_a_row_leaves_its_intent"],
    ),
    m(
        "order/quiesce::intent::clear::store_through",
        Release,
        "the store releases",
        &["quiesce/loom_quiesce/whoever_dies_in_a_row_leaves_its_intent"],
    ),
    m(
        "order/quiesce::intent::read::load",
        Release,
        "the load acquires",
        &["quiesce/loom_quiesce/whoever_dies_in_a_row_leaves_its_intent"],
    ),
    m(
        "order/quiesce::known::quiet_below::fence",
        Fence,
        "what comes before is ordered before what comes after",
        &["quiesce/loom_known/a_stamp_of_a_node_that_has_woken_up_is_not_taken_for_an_older_one"],
    ),
    m(
        "order/quiesce::life::join::fence",
        Fence,
        "what comes before is ordered before what comes after",
        &["quiesce/loom_quiesce/a_node_that_joins_counts_before_it_uses_anything"],
    ),
    m(
        "order/quiesce::log::head::load_fresh",
        Release,
        "the load acquires",
        &["quiesce/loom_quiesce/what_is_logged_before_the_stamp_is_dropped_by_rounds_that_count"],
    ),
    m(
        "order/quiesce::log::read::load_fresh",
        Release,
        "the load acquires",
        &["quiesce/loom_quiesce/an_overwritten_entry_is_not_taken_for_another"],
    ),
    m(
        "order/quiesce::log::record::store_through",
        Release,
        "the store releases",
        &["quiesce/loom_quiesce/an_overwritten_entry_is_not_taken_for_another"],
    ),
    m(
        "order/quiesce::log::record::store_through#2",
        Release,
        "the store releases",
        &["quiesce/loom_quiesce/what_is_logged_before_the_stamp_is_dropped_by_rounds_that_count"],
    ),
    m(
        "order/quiesce::round::has_acknowledged::load_fresh",
        Release,
        "the load acquires",
        &["quiesce/loom_quiesce/acknowledgements_of_another_cpu_are_enough"],
    ),
    m(
        "order/quiesce::round::request::fence",
        Fence,
        "what comes before is ordered before what comes after",
        &["quiesce/loom_quiesce/a_cpu_that_wakes_up_during_a_request_hears_of_it"],
    ),
    m(
        "order/quiesce::words::advance::fence",
        Fence,
        "what comes before is ordered before what comes after",
        &["quiesce/loom_quiesce/what_is_logged_before_the_stamp_is_dropped_by_rounds_that_count"],
    ),
    m(
        "order/quiesce::words::now::fence",
        Fence,
        "what comes before is ordered before what comes after",
        &[
            "quiesce/loom_quiesce/a_node_that_joins_counts_before_it_uses_anything",
            "quiesce/loom_quiesce/a_node_that_sleeps_is_quiet_and_one_that_wakes_is_not",
        ],
    ),
    m(
        "order/quiesce::words::publication::load_fresh",
        Release,
        "the load acquires",
        &[
            "quiesce/loom_quiesce/a_node_that_sleeps_is_quiet_and_one_that_wakes_is_not",
            "quiesce/loom_quiesce/a_round_keeps_reuse_away_from_users",
        ],
    ),
];

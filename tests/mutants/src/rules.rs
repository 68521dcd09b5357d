//! Rules of frame and capability tables.

use crate::Class::*;
use crate::{Mutant, m};

pub(crate) const RULES: &[Mutant] = &[
    m(
        "check/retype::pins::pin::version",
        Version,
        "A reference is taken only if the version is the one the capability was made for (M1)",
        &[
            "retype/mutants/an_old_capability_maps_nothing",
            "retype/loom_frames/a_frame_is_mapped_or_given_up",
            "retype/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/retype::pins::pin::use",
        State,
        "A reference is taken only if the frame is used for what is wanted",
        &[
            "retype/mutants/kernel_objects_are_not_mapped",
            "retype/rows/a_mapping_takes_both_references_or_none",
            "retype/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/retype::pins::pin::frozen",
        State,
        "A frame whose references are being counted gets none",
        &[
            "retype/mutants/frozen_frames_get_no_references",
            "retype/rows/frozen_frames_take_no_references_but_give_them_back",
            "retype/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/retype::row::pinnable::room",
        References,
        "No reference is taken if there is no room for it",
        &[
            "retype/mutants/references_do_not_run_over",
            "retype/loom_frames/one_of_two_gets_the_last_reference",
        ],
    ),
    m(
        "check/retype::pins::not_frozen",
        References,
        "No row that gives a reference back begins while the frame is frozen",
        &[
            "retype/loom_recovery/a_row_that_gives_references_back_is_seen_or_refused_by_a_recount",
            "retype/rows/frozen_frames_take_no_references_but_give_them_back",
        ],
    ),
    m(
        "check/retype::retype::given_up::references",
        References,
        "Frames are given up only without references",
        &[
            "retype/loom_frames/a_frame_is_mapped_or_given_up",
            "retype/rows/a_frame_goes_round",
            "retype/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/retype::row::give_up::stamp",
        Stamp,
        "A frame that is given up is stamped",
        &[
            "retype/mutants/given_up_frames_wait_for_a_round",
            "retype/mutants/halves_of_blocks_wait_as_the_block",
            "retype/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/retype::row::give_up::log",
        Log,
        "A kernel object that is given up is logged, and the word that says so",
        &["retype/given_up/objects_that_are_given_up_are_forgotten"],
    ),
    m(
        "check/retype::row::give_up::log-after-cas",
        Log,
        "It is logged after the compare-and-swap that ends the old use",
        &["retype/given_up/objects_that_are_given_up_are_forgotten"],
    ),
    m(
        "check/retype::row::give_up::log-before-stamp",
        Log,
        "It is logged before the stamp is read",
        &["retype/given_up/objects_that_are_given_up_are_forgotten"],
    ),
    m(
        "check/retype::row::give_up::stamp-after-cas",
        Stamp,
        "The stamp is read after the compare-and-swap that ends the old use (A1c, A1d)",
        &[
            "retype/loom_frames/a_frame_is_not_reused_under_a_stale_translation",
            "retype/given_up/objects_that_are_given_up_are_forgotten",
        ],
    ),
    m(
        "check/retype::retype::given_up::version",
        Version,
        "A frame that is given up gets a new version",
        &[
            "retype/mutants/an_old_capability_maps_nothing",
            "retype/mutants/old_references_die",
            "retype/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/retype::row::claim::whole-word",
        Version,
        "A claim replaces the word that was read before the stamp was, not a newer one",
        &["retype/loom_frames/a_claim_does_not_outlive_the_word_it_was_made_for"],
    ),
    m(
        "check/retype::row::claim::stamp",
        Stamp,
        "A claim waits until every node has been quiet since the stamp",
        &[
            "retype/one_frame/what_is_not_quiet_is_refused_and_stays",
            "core/unit/host::frame_tests::frames_that_were_used_are_put_to_use_zeroed_and_once_everybody_has_been_quiet",
            "retype/mutants/given_up_frames_wait_for_a_round",
            "retype/mutants/halves_of_blocks_wait_as_the_block",
            "retype/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/retype::plain::given_up::references",
        References,
        "A frame that is referred to is not given up, on the fast path either",
        &["retype/loom_frames/a_frame_is_mapped_or_given_up"],
    ),
    m(
        "check/retype::row::take_again::version",
        Version,
        "What has become somebody else's since it was looked at is not given up",
        &["retype/one_frame/a_frame_is_given_up_unless_others_have_changed_it"],
    ),
    m(
        "check/retype::row::put_to_use::zero",
        Contents,
        "What a frame held is not seen by its next user",
        &[
            "retype/one_frame/an_untyped_frame_is_put_to_use_and_zeroed_if_it_has_been_used",
            "core/unit/ktest::ops_known::objects_show_nothing_of_who_had_their_frame_on_hosts",
            "core/unit/host::frame_tests::frames_that_were_used_are_put_to_use_zeroed_and_once_everybody_has_been_quiet",
        ],
    ),
    m(
        "check/retype::recover::retyping::version",
        Version,
        "A frame is recovered only if it has the version that the dead node left it with",
        &["retype/loom_recovery/a_late_recoverer_takes_nothing_from_the_next_incarnation"],
    ),
    m(
        "check/retype::recover::retyping::next-version",
        Version,
        "A frame that is recovered gets a new version (D1)",
        &[
            "retype/mutants/references_die_with_the_node_that_retypes",
            "retype/loom_recovery/a_late_recoverer_takes_nothing_from_the_next_incarnation",
            "retype/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/retype::recover::retyping::stamp",
        Stamp,
        "A frame that is recovered is stamped",
        &[
            "retype/mutants/recovered_frames_wait_for_a_round",
            "retype/given_up/objects_that_are_given_up_are_forgotten",
            "retype/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/retype::recover::retyping::log",
        Log,
        "What a dead node may have given up is logged by who recovers it",
        &["retype/given_up/a_frame_is_logged_by_whoever_recovers_it_in_each_case"],
    ),
    m(
        "check/retype::block::merge::stamp",
        Stamp,
        "Two blocks become one with the newer of their stamps",
        &[
            "retype/mutants/merged_blocks_wait_for_both",
            "retype/rows/a_block_is_one_operation_on_its_head",
            "retype/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/retype::block::split::stamp",
        Stamp,
        "The new half of a block is stamped as the block was",
        &[
            "retype/mutants/halves_of_blocks_wait_as_the_block",
            "retype/rows/a_block_is_one_operation_on_its_head",
            "retype/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/captbl::slot::fill::reserve-first",
        Stamp,
        "A slot is reserved before its stamp is looked at (S3)",
        &["captbl/loom_slots/a_slot_is_not_filled_again_under_a_reader"],
    ),
    m(
        "check/captbl::slot::fill::stamp",
        Stamp,
        "A slot is filled only if every node has been quiet since its stamp",
        &[
            "core/unit/host::view_tests::slots_are_filled_and_emptied_by_the_short_way_as_by_the_long_one",
            "captbl/mutants/emptied_slots_have_a_stamp",
            "captbl/mutants/emptied_slots_wait_for_a_round",
            "captbl/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/captbl::slot::fill::contents-first",
        Release,
        "A slot has its contents before it is ACTIVE",
        &[
            "captbl/loom_slots/a_slot_is_filled_again_after_a_round_and_not_before",
            "captbl/incoherent/rows_see_memory_and_lookups_are_late_by_one_round",
        ],
    ),
    m(
        "check/captbl::slot::activate::log",
        Log,
        "A slot that has been filled is logged",
        &[
            "captbl/rows/rows_record_change_log_and_stamp_in_this_order",
            "captbl/incoherent/rows_see_memory_and_lookups_are_late_by_one_round",
        ],
    ),
    m(
        "check/captbl::edge::cons::log",
        Log,
        "An entry that has got a leaf is logged",
        &["captbl/rows/rows_record_change_log_and_stamp_in_this_order"],
    ),
    m(
        "check/captbl::slot::fill::free",
        State,
        "A slot is taken by compare-and-swap, so that one of two gets it",
        &[
            "captbl/loom_slots/one_of_two_fills_a_slot",
            "captbl/rows/who_comes_while_another_node_changes_a_slot_or_an_entry_is_told_to_come_again",
            "captbl/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/captbl::slot::close::closing",
        Stamp,
        "A slot is CLOSING until it has its stamp (C1)",
        &[
            "captbl/loom_slots/a_slot_is_not_filled_again_under_a_reader",
            "captbl/rows/a_dead_recoverers_work_is_redone",
        ],
    ),
    m(
        "check/captbl::slot::close::stamp",
        Stamp,
        "A slot that is given up is stamped",
        &[
            "captbl/mutants/emptied_slots_have_a_stamp",
            "captbl/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/captbl::edge::unlink::stamp",
        Stamp,
        "An entry that is given up is stamped",
        &[
            "captbl/mutants/emptied_entries_have_a_stamp",
            "captbl/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/captbl::slot::close::stamp-last",
        Stamp,
        "The stamp of a slot is read after the compare-and-swap that unpublishes (C1b)",
        &["captbl/loom_slots/a_slot_is_filled_again_after_a_round_and_not_before"],
    ),
    m(
        "check/captbl::edge::unlink::stamp-last",
        Stamp,
        "The stamp of an entry is read after the compare-and-swap that unpublishes (C1b)",
        &["captbl/loom_edges/another_leaf_is_hung_in_after_a_round_and_not_before"],
    ),
    m(
        "check/captbl::slot::close::log-first",
        Log,
        "A slot that has been unpublished is in the log before the stamp is taken",
        &[
            "captbl/rows/rows_record_change_log_and_stamp_in_this_order",
            "captbl/incoherent/rows_see_memory_and_lookups_are_late_by_one_round",
        ],
    ),
    m(
        "check/captbl::edge::unlink::log-first",
        Log,
        "An entry that has been unpublished is in the log before the stamp is taken",
        &["captbl/rows/rows_record_change_log_and_stamp_in_this_order"],
    ),
    m(
        "check/captbl::slot::copied::right",
        Permission,
        "Only what has the right may be copied",
        &[
            "captbl/mutants/only_what_may_be_copied_is",
            "captbl/words/copies_permit_what_both_permit",
            "captbl/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/captbl::slot::copied::rights",
        Permission,
        "A copy permits no more than its source",
        &[
            "captbl/mutants/copies_permit_no_more",
            "captbl/rows/copies_say_what_they_are_asked_for_and_no_more",
            "captbl/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/captbl::slot::copied::payload",
        Permission,
        "A copy refers to no more than its source",
        &[
            "captbl/mutants/copies_refer_to_no_more",
            "captbl/rows/copies_say_what_they_are_asked_for_and_no_more",
            "captbl/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/captbl::slot::copied::guard",
        Permission,
        "A copy of a guarded capability is guarded",
        &[
            "captbl/mutants/copies_die_with_their_source",
            "captbl/rows/copies_say_what_they_are_asked_for_and_no_more",
            "captbl/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/captbl::slot::copied::second-guard",
        Permission,
        "A guarded capability gets no other guard",
        &[
            "captbl/mutants/guards_are_not_replaced",
            "captbl/rows/copies_say_what_they_are_asked_for_and_no_more",
            "captbl/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/captbl::edge::cons::pins-first",
        References,
        "An edge is pinned before it exists (P1)",
        &[
            "captbl/mutants/failed_edges_leave_no_reference",
            "captbl/loom_edges/a_leaf_is_hung_in_or_given_up",
            "captbl/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/captbl::edge::cons::unpin",
        References,
        "An edge that could not be made gives its pins back",
        &[
            "captbl/mutants/failed_edges_leave_no_reference",
            "captbl/loom_edges/an_entry_leads_to_one_leaf_within_one_stay_in_the_kernel",
            "captbl/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/captbl::edge::link::stamp",
        Stamp,
        "An entry is used again only if every node has been quiet since its stamp",
        &[
            "captbl/mutants/emptied_entries_have_a_stamp",
            "captbl/mutants/emptied_entries_wait_for_a_round",
            "captbl/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/captbl::edge::link::compare",
        State,
        "An entry is replaced only if it has the stamp that was checked",
        &["captbl/loom_edges/an_entry_leads_to_one_leaf_within_one_stay_in_the_kernel"],
    ),
    m(
        "check/captbl::edge::decons::frozen",
        References,
        "No leaf is taken out while it or its root is being recovered",
        &["captbl/rows/nothing_is_taken_out_while_leaf_or_root_are_recovered"],
    ),
    m(
        "check/captbl::edge::decons::unpin-last",
        References,
        "An edge gives its pins back after it has been unpublished",
        &[
            "captbl/mutants/references_outlive_the_edge",
            "captbl/loom_edges/a_leaf_is_given_up_after_it_has_been_taken_out",
        ],
    ),
    m(
        "check/captbl::recover::is::incarnation",
        State,
        "Recovery takes only from the incarnation that has died",
        &[
            "captbl/mutants/the_next_incarnation_keeps_what_it_has",
            "captbl/loom_slots/recovery_does_not_touch_what_the_next_incarnation_does",
            "captbl/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/captbl::recover::slot::take-over",
        State,
        "A recoverer makes itself the owner of a slot before it stores to it",
        &[
            "captbl/loom_slots/a_late_owner_loses_the_slot",
            "captbl/rows/a_dead_recoverers_work_is_redone",
        ],
    ),
    m(
        "check/captbl::recover::slot::closing",
        State,
        "Recovery knows CLOSING besides RESERVED (D3)",
        &[
            "captbl/mutants/closing_slots_are_recovered",
            "captbl/mutants/recovered_slots_wait_for_a_round",
            "captbl/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/captbl::recover::slot::log",
        Log,
        "A slot that a dead node may have changed is logged by who recovers it",
        &["captbl/incoherent/rows_see_memory_and_lookups_are_late_by_one_round"],
    ),
    m(
        "check/captbl::recover::entry::log",
        Log,
        "An entry that a dead node may have changed is logged by who recovers it",
        &["captbl/rows/rows_record_change_log_and_stamp_in_this_order"],
    ),
    m(
        "check/captbl::liveness::check::frame",
        Version,
        "A guard is alive only as long as its frame has the version it was made with",
        &[
            "captbl/mutants/guards_die_with_their_frame",
            "captbl/rows/a_revoked_entry_kills_what_it_guards_and_nothing_else",
        ],
    ),
    m(
        "check/captbl::liveness::check::count",
        Version,
        "A guard is alive only as long as its entry has the count it was made with",
        &[
            "captbl/mutants/copies_die_with_their_source",
            "captbl/mutants/what_is_revoked_is_dead",
            "captbl/model/any_sequence_does_what_the_model_does",
        ],
    ),
    m(
        "check/captbl::liveness::revoke::log",
        Log,
        "A revocation is logged",
        &[
            "captbl/rows/a_revoked_entry_kills_what_it_guards_and_nothing_else",
            "captbl/incoherent/rows_see_memory_and_lookups_are_late_by_one_round",
        ],
    ),
    m(
        "check/mapping::row::enter::linked",
        References,
        "a page comes into tables that are still linked, once they are pinned",
        &[
            "mapping/loom_rows/a_page_comes_or_its_table_goes",
            "core/unit/host::between_tests::a_page_comes_or_its_table_goes",
        ],
    ),
    m(
        "check/mapping::row::copy::second-look",
        References,
        "a page that has been shown goes if its source has gone meanwhile",
        &[
            "mapping/loom_rows/a_page_that_is_unmapped_while_it_is_shown_does_not_stay",
            "core/unit/host::between_tests::a_page_that_is_unmapped_while_it_is_shown_does_not_stay",
        ],
    ),
    m(
        "check/mapping::row::take_out::log",
        Log,
        "pages that are unmapped are logged",
        &[
            "core/unit/host::resolve_tests::without_coherent_caches_entries_are_preset_and_changes_are_logged",
        ],
    ),
    m(
        "check/mapping::row::take_out::stamp",
        Stamp,
        "entries that become empty are stamped",
        &[
            "mapping/loom_rows/a_stamp_covers_the_last_use",
            "core/unit/host::between_tests::the_long_way_unmaps_with_a_stamp_and_nothing_that_is_frozen",
        ],
    ),
    m(
        "check/mapping::row::unmap::frozen",
        References,
        "no reference is given back while its block is counted",
        &[
            "mapping/loom_rows/no_reference_is_given_back_while_its_block_is_counted",
            "core/unit/host::between_tests::the_long_way_unmaps_with_a_stamp_and_nothing_that_is_frozen",
        ],
    ),
    m(
        "check/mapping::plain::pin::version",
        Version,
        "a block that is mapped is the one of the capability",
        &[
            "mapping/loom_rows/a_page_is_mapped_or_given_up",
            "core/unit/host::view_tests::a_block_is_that_of_the_capability_and_not_a_later_one",
        ],
    ),
];

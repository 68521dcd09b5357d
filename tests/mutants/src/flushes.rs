//! Flushes: places that matter where caches are not coherent.

use crate::Class::*;
use crate::{Mutant, m};

pub(crate) const FLUSHES: &[Mutant] = &[
    m(
        "flush/captbl::liveness::expected::load_fresh",
        Flush,
        "the word is read at memory",
        &["captbl/incoherent/rows_see_memory_and_lookups_are_late_by_one_round"],
    ),
    m(
        "flush/captbl::slot::close::set_stamp",
        Flush,
        "the stamp is written through",
        &["captbl/incoherent/rows_see_memory_and_lookups_are_late_by_one_round"],
    ),
    m(
        "flush/captbl::slot::fill::fill",
        Flush,
        "the contents are written back",
        &["captbl/incoherent/rows_see_memory_and_lookups_are_late_by_one_round"],
    ),
    m(
        "flush/captbl::slot::slot_deactivate_in::header",
        Flush,
        "the header is read at memory",
        &["captbl/incoherent/rows_see_memory_and_lookups_are_late_by_one_round"],
    ),
    m(
        "flush/captbl::table::entry_at::load_fresh",
        Flush,
        "the word is read at memory",
        &["captbl/incoherent/rows_see_memory_and_lookups_are_late_by_one_round"],
    ),
    m(
        "flush/captbl::table::header::load_fresh",
        Flush,
        "the word is read at memory",
        &["captbl/incoherent/rows_see_memory_and_lookups_are_late_by_one_round"],
    ),
    m(
        "flush/pgtbl::driver::read::load_fresh",
        Flush,
        "the word is read at memory",
        &[
            "pgtbl/incoherent/nodes_see_what_each_other_has_done_to_tables",
            "pgtbl/incoherent/of_nodes_that_map_and_unmap_the_same_pages_one_wins",
        ],
    ),
    m(
        "flush/pgtbl::driver::table_at::writeback",
        Flush,
        "what has been stored is written back",
        &["pgtbl/incoherent/nodes_see_what_each_other_has_done_to_tables"],
    ),
    m(
        "flush/retype::retype::frame_done::invalidate",
        Flush,
        "old copies are dropped",
        &["retype/incoherent/every_row_sees_what_is_so_in_memory"],
    ),
    m(
        "flush/retype::retype::from_untyped_begin::load",
        Flush,
        "the word is read at memory",
        &["retype/incoherent/every_row_sees_what_is_so_in_memory"],
    ),
    m(
        "flush/retype::retype::to_untyped::load",
        Flush,
        "the word is read at memory",
        &["retype/incoherent/every_row_sees_what_is_so_in_memory"],
    ),
    m(
        "flush/retype::table::format::invalidate",
        Flush,
        "what has been stored is written back, and no old copy stays",
        &["retype/incoherent/every_row_sees_what_is_so_in_memory"],
    ),
    m(
        "flush/retype::table::word::load",
        Flush,
        "the word is read at memory",
        &["retype/incoherent/every_row_sees_what_is_so_in_memory"],
    ),
    m(
        "flush/ring::spsc::attach_sized::load_fresh",
        Flush,
        "the word is read at memory",
        &["ring/incoherent/ends_of_a_ring_move_between_nodes"],
    ),
    m(
        "flush/ring::spsc::attach_sized::store_through",
        Flush,
        "the word is written through",
        &["ring/incoherent/ends_of_a_ring_move_between_nodes"],
    ),
    m(
        "flush/ring::spsc::pop::invalidate",
        Flush,
        "old copies are dropped",
        &[
            "ring/incoherent/ends_of_a_ring_move_between_nodes",
            "ring/incoherent/messages_arrive_whatever_the_caches_do",
        ],
    ),
    m(
        "flush/ring::spsc::pop::load_fresh",
        Flush,
        "the word is read at memory",
        &[
            "ring/incoherent/ends_of_a_ring_move_between_nodes",
            "ring/incoherent/messages_arrive_whatever_the_caches_do",
        ],
    ),
    m(
        "flush/ring::spsc::pop::store_through",
        Flush,
        "the word is written through",
        &[
            "ring/incoherent/ends_of_a_ring_move_between_nodes",
            "ring/incoherent/messages_arrive_whatever_the_caches_do",
        ],
    ),
    m(
        "flush/ring::spsc::push::load_fresh",
        Flush,
        "the word is read at memory",
        &[
            "ring/incoherent/ends_of_a_ring_move_between_nodes",
            "ring/incoherent/messages_arrive_whatever_the_caches_do",
        ],
    ),
    m(
        "flush/ring::spsc::push::store_through",
        Flush,
        "the word is written through",
        &[
            "ring/incoherent/ends_of_a_ring_move_between_nodes",
            "ring/incoherent/messages_arrive_whatever_the_caches_do",
        ],
    ),
    m(
        "flush/ring::spsc::push::writeback",
        Flush,
        "what has been stored is written back",
        &[
            "ring/incoherent/ends_of_a_ring_move_between_nodes",
            "ring/incoherent/messages_arrive_whatever_the_caches_do",
        ],
    ),
    m(
        "flush/ring::spsc::resume_sized::load_fresh",
        Flush,
        "the word is read at memory",
        &["ring/incoherent/ends_of_a_ring_move_between_nodes"],
    ),
    m(
        "flush/ring::arrivals::take_up_to::load_fresh",
        Flush,
        "the word is read at memory",
        &["ring/incoherent/threads_arrive_whatever_the_caches_do"],
    ),
    m(
        "flush/ring::wake::attentive::store_through",
        Flush,
        "the word is written through",
        &["ring/incoherent/sleepers_are_woken_whatever_the_caches_do"],
    ),
    m(
        "flush/ring::wake::notify::load_fresh",
        Flush,
        "the word is read at memory",
        &["ring/incoherent/sleepers_are_woken_whatever_the_caches_do"],
    ),
    m(
        "flush/ring::wake::prepare::load_fresh",
        Flush,
        "the word is read at memory",
        &["ring/incoherent/sleepers_are_woken_whatever_the_caches_do"],
    ),
    m(
        "flush/ring::wake::prepare::store_through",
        Flush,
        "the word is written through",
        &["ring/incoherent/sleepers_are_woken_whatever_the_caches_do"],
    ),
    m(
        "flush/quiesce::intent::begin::writeback",
        Flush,
        "what has been stored is written back",
        &["quiesce/incoherent/nothing_is_stale_after_a_round_and_no_word_of_the_protocol_ever"],
    ),
    m(
        "flush/quiesce::intent::clear::store_through",
        Flush,
        "the word is written through",
        &["quiesce/incoherent/nothing_is_stale_after_a_round_and_no_word_of_the_protocol_ever"],
    ),
    m(
        "flush/quiesce::intent::read::invalidate",
        Flush,
        "old copies are dropped",
        &["quiesce/incoherent/nothing_is_stale_after_a_round_and_no_word_of_the_protocol_ever"],
    ),
    m(
        "flush/quiesce::life::recover::load_fresh",
        Flush,
        "the word is read at memory",
        &["quiesce/incoherent/nothing_is_stale_after_a_round_and_no_word_of_the_protocol_ever"],
    ),
    m(
        "flush/quiesce::log::head::load_fresh",
        Flush,
        "the word is read at memory",
        &["quiesce/incoherent/nothing_is_stale_after_a_round_and_no_word_of_the_protocol_ever"],
    ),
    m(
        "flush/quiesce::log::read::load_fresh",
        Flush,
        "the word is read at memory",
        &["quiesce/incoherent/nothing_is_stale_after_a_round_and_no_word_of_the_protocol_ever"],
    ),
    m(
        "flush/quiesce::log::record::store_through",
        Flush,
        "the word is written through",
        &[
            "quiesce/incoherent/nothing_is_stale_after_a_round_and_no_word_of_the_protocol_ever",
            "quiesce/incoherent/objects_are_dropped_after_cpus_have_acknowledged",
        ],
    ),
    m(
        "flush/quiesce::log::record::store_through#2",
        Flush,
        "the word is written through",
        &[
            "quiesce/incoherent/nothing_is_stale_after_a_round_and_no_word_of_the_protocol_ever",
            "quiesce/incoherent/objects_are_dropped_after_cpus_have_acknowledged",
        ],
    ),
    m(
        "flush/quiesce::words::advance::load_fresh",
        Flush,
        "the word is read at memory",
        &["quiesce/incoherent/nothing_is_stale_after_a_round_and_no_word_of_the_protocol_ever"],
    ),
    m(
        "flush/quiesce::words::node::load_fresh",
        Flush,
        "the word is read at memory",
        &["quiesce/incoherent/nothing_is_stale_after_a_round_and_no_word_of_the_protocol_ever"],
    ),
    m(
        "flush/quiesce::words::now::load_fresh",
        Flush,
        "the word is read at memory",
        &["quiesce/incoherent/nothing_is_stale_after_a_round_and_no_word_of_the_protocol_ever"],
    ),
    m(
        "flush/quiesce::words::publication::load_fresh",
        Flush,
        "the word is read at memory",
        &["quiesce/incoherent/nothing_is_stale_after_a_round_and_no_word_of_the_protocol_ever"],
    ),
    m(
        "flush/quiesce::life::holds::load_fresh",
        Flush,
        "the word is read at memory",
        &["quiesce/incoherent/nothing_goes_wrong_whatever_caches_hold"],
    ),
    m(
        "flush/private-rmws",
        Flush,
        "read-modify-writes act at memory",
        &[
            "captbl/incoherent/rows_see_memory_and_lookups_are_late_by_one_round",
            "pgtbl/incoherent/of_nodes_that_map_and_unmap_the_same_pages_one_wins",
            "retype/incoherent/every_row_sees_what_is_so_in_memory",
            "ring/incoherent/sleepers_are_woken_whatever_the_caches_do",
            "ring/incoherent/threads_arrive_whatever_the_caches_do",
        ],
    ),
];

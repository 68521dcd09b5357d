//! Places that can be left out one at a time without anything going wrong.

/// Places whose loss no test can notice, and why they are there nevertheless.
#[derive(Clone, Copy, Debug)]
pub struct Spare {
    /// Their names.
    pub names: &'static [&'static str],
    /// Why nothing goes wrong without one of them.
    pub why: &'static str,
}

const fn s(names: &'static [&'static str], why: &'static str) -> Spare {
    Spare { names, why }
}

/// All of them.
pub const SPARE: &[Spare] = &[
    s(
        &["flush/captbl::recover::recover_slot::store_through"],
        "of a mutant: the protocol does not come here",
    ),
    s(
        &[
            "order/captbl::slot::fill::header",
            "order/captbl::slot::fill::header#2",
        ],
        "of a mutant: the protocol does not come here",
    ),
    s(
        &[
            "flush/retype::row::claim::load",
            "flush/retype::row::stamp::load",
            "flush/retype::table::stamp_of::load",
        ],
        "the word is on the line of the first one, which each row has just read or changed at memory",
    ),
    s(
        &[
            "flush/quiesce::log::attach::load_fresh",
            "order/quiesce::log::attach::load_fresh",
        ],
        "the only writer reads its own word, and its node has dropped old copies when it joined",
    ),
    s(
        &["flush/quiesce::round::give_up_logs::store_through"],
        "the flush that follows writes it back",
    ),
    s(
        &[
            "flush/quiesce::round::acknowledge::load_fresh",
            "flush/quiesce::round::acknowledge::store_through",
            "flush/quiesce::round::has_acknowledged::load_fresh",
            "flush/quiesce::round::request::store_through",
        ],
        "request and acknowledgement pass between CPUs of one node, whose caches are coherent",
    ),
    s(
        &[
            "order/captbl::slot::slot_deactivate_in::header",
            "order/captbl::table::entry_at::load_fresh",
            "order/captbl::table::header::load_fresh",
            "order/retype::retype::from_untyped_begin::load",
            "order/retype::retype::to_untyped::load",
            "order/retype::row::claim::load",
            "order/retype::row::put_to_use::load",
            "order/retype::table::stamp_of::load",
        ],
        "what is done because of it is a compare-and-swap of the same record or line, which acquires",
    ),
    s(
        &[
            "order/ring::spsc::attach_sized::load_fresh",
            "order/ring::spsc::attach_sized::store_through",
        ],
        "who attaches reads no message by this index before it has read the tail again",
    ),
    s(
        &[
            "order/ring::spsc::pop::store_through",
            "order/ring::spsc::push::load_fresh",
        ],
        "they keep a store from overtaking earlier loads, which loom does not explore; the test \
         mutant_slot_given_back_before_it_is_read stands for both",
    ),
    s(
        &["order/quiesce::idle::idle_beside_others::fence"],
        "the compare-and-swap that follows releases what came before",
    ),
    s(
        &["order/quiesce::known::quiet_below::load_fresh"],
        "the fence after it orders the same",
    ),
    s(
        &[
            "order/quiesce::round::acknowledge::fence",
            "order/quiesce::round::acknowledge::load_fresh",
            "order/quiesce::round::acknowledge::store_through",
        ],
        "the fence, and the acquire and the release, order the same; without all three a test fails",
    ),
    s(
        &["order/quiesce::round::request::store_through"],
        "the fence after the new epoch comes before it",
    ),
    s(
        &["order/quiesce::words::node::load_fresh"],
        "a node's fence when it joins, and that before the stamp, decide whether the stamp concerns it",
    ),
    s(
        &["order/quiesce::words::now::load_fresh"],
        "nobody looks at anything because of an epoch that has been loaded here",
    ),
];

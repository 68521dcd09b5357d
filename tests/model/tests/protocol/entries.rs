//! Page-table entries and edges of capability tables: map, map from peer, unmap, protect, cons,
//! decons.

use dyad_model_tests::Kind::{
    Map, MapPeer, Protect, TableToUntyped, TableToUser, ToKernel, ToUntyped, ToUser, Unmap,
    UnmapAll, Walk,
};
use dyad_model_tests::Weakening as W;
use dyad_model_tests::{Kind, Scenario};
use dyad_tier::size;

use crate::{
    FRAMES, HELD, MAPPED_AGAIN, MISCOUNTED, READ_ONLY, REUSE, STALE, TWICE, UNPINNED, WRONG_TYPE,
    bound, fails, holds, holds_with_reuse, mapped, needs,
};

const TABLES: &[Kind] = &[Map, Unmap, TableToUntyped, TableToUser];

#[test]
fn frames_of_two_nodes() {
    holds_with_reuse(&mapped(FRAMES, size(3, 4, 6), 4));
}

#[test]
fn frames_of_three_nodes() {
    let s = Scenario {
        nodes: 3,
        actors: bound(0b101, 0b111),
        ..mapped(REUSE, 3, bound(3, 4))
    };
    holds(&s);
}

#[test]
fn m1_map_checks_the_version() {
    let s = Scenario::new(&[Map, ToUntyped, ToUser], 3, 3);
    needs(W::M1TypeOnly, &s, &["an old capability maps a new frame"]);
}

#[test]
fn a1b_published_must_exceed_the_stamp() {
    needs(W::A1bPublishedAsMuch, &mapped(REUSE, 3, 3), STALE);
}

#[test]
fn a1c_the_stamp_of_an_entry_comes_after_it_is_closed() {
    let s = mapped(&[Map, Unmap], 3, 3);
    needs(W::A1cStampBeforeClosing, &s, TWICE);
}

#[test]
fn an_entry_is_not_used_again_before_its_old_translation_is_gone() {
    let s = mapped(&[Map, Unmap], 3, 3);
    needs(W::EmptyNotAwaited, &s, TWICE);
}

#[test]
fn entries_of_a_node_of_two_cpus() {
    let s = Scenario {
        cpus: 2,
        actors: bound(0b01, 0b11),
        ..mapped(&[Map, Unmap], 4, 3)
    };
    needs(W::OneCpuAcknowledges, &s, TWICE);
}

#[test]
fn entries_of_an_incoherent_node() {
    let s = Scenario {
        incoherent: true,
        ..mapped(&[Map, Unmap], bound(3, 5), 3)
    };
    holds(&s);
    fails(W::I5TlbBeforeCache, &s, TWICE);
    fails(W::EntryLoggedLate, &s, TWICE);
}

#[test]
fn unmap_never_swaps() {
    let s = mapped(&[Map, Unmap], 2, 2);
    needs(W::UnmapBySwap, &s, MISCOUNTED);
}

#[test]
fn a2_map_from_peer_looks_again() {
    let s = Scenario {
        actors: 0b11,
        ..mapped(&[MapPeer, UnmapAll], bound(2, 4), 3)
    };
    needs(W::A2NoSecondLook, &s, MAPPED_AGAIN);
    fails(W::A2PeersFirst, &s, MAPPED_AGAIN);
}

#[test]
fn frames_that_both_nodes_map() {
    holds_with_reuse(&Scenario {
        incoherent: crate::long(),
        roles: &[(0, MapPeer), (1, UnmapAll), (1, ToUntyped), (0, ToUser)],
        ..mapped(&[MapPeer, UnmapAll, ToUntyped, ToUser], 4, bound(3, 4))
    });
}

#[test]
fn p1_entries_pin_their_table() {
    let s = mapped(TABLES, bound(3, 5), 3);
    holds_with_reuse(&s);
    fails(W::P1TableNotPinned, &s, UNPINNED);
}

#[test]
fn narrower_rights_count_when_tlbs_have_been_flushed() {
    let s = mapped(&[Protect, Unmap, Map], 3, bound(3, 4));
    needs(W::ProtectCountsAtOnce, &s, READ_ONLY);
}

#[test]
fn the_stamp_of_narrower_rights_comes_after_the_change() {
    let s = mapped(&[Protect, Unmap], 2, 3);
    needs(W::ProtectStampsEarly, &s, READ_ONLY);
}

#[test]
fn narrower_entries_are_logged_before_their_stamp() {
    let s = Scenario {
        incoherent: true,
        ..mapped(&[Protect, Unmap], bound(2, 3), 3)
    };
    needs(W::EntryLoggedLate, &s, READ_ONLY);
}

#[test]
fn protect_never_stores() {
    let s = mapped(&[Protect, Unmap], 2, 3);
    needs(W::ProtectByStore, &s, MISCOUNTED);
}

/// Cons and decons are the rows map and unmap of an edge; there is no TLB, but every node walks.
fn edges(kinds: &'static [Kind], ops: u8) -> Scenario {
    Scenario {
        edge: true,
        kernel: true,
        ..mapped(kinds, ops, 3)
    }
}

#[test]
fn edges_of_capability_tables() {
    let kinds = &[Map, Unmap, Walk, ToUntyped, ToKernel];
    let s = edges(kinds, bound(4, 5));
    holds_with_reuse(&s);
    fails(W::AcknowledgeInKernel, &s, HELD);
}

#[test]
fn nodes_of_capability_tables_are_pinned_by_their_edges() {
    let kinds = &[Map, Unmap, Walk, TableToUntyped, TableToUser];
    let s = edges(kinds, bound(3, 5));
    holds_with_reuse(&s);
    fails(W::P1TableNotPinned, &s, UNPINNED);
}

/// Walks go by each node's copies of entries and of what they lead to.
#[test]
fn edges_of_incoherent_nodes() {
    let s = Scenario {
        incoherent: true,
        ..edges(&[Unmap, Walk, ToUntyped, ToKernel], bound(4, 5))
    };
    holds_with_reuse(&s);
    fails(W::GiveUpWithoutLog, &s, STALE);
    fails(W::FramesBeforeTlb, &s, STALE);
}

#[test]
fn edges_that_three_nodes_walk() {
    let kinds = &[Unmap, Walk, ToUntyped, ToKernel];
    let s = Scenario {
        nodes: 3,
        actors: bound(0b101, 0b111),
        ..edges(kinds, 4)
    };
    needs(W::A1bPublishedAsMuch, &s, HELD);
}

#[test]
fn pins_come_before_the_entry_and_go_after_it() {
    let s = mapped(&[Map, Unmap, ToUntyped], 3, 2);
    needs(W::UnpinBeforeClosing, &s, WRONG_TYPE);
    let s = Scenario::new(&[Map, ToUntyped], 2, 2);
    needs(W::PinsAfterEntry, &s, WRONG_TYPE);
}

//! Incoherent caches: where words are changed, what is dropped, in which order.

use dyad_model_tests::Kind::{Map, Read, ToKernel, ToUntyped, ToUser, Unmap};
use dyad_model_tests::Scenario;
use dyad_model_tests::Weakening as W;

use crate::{
    FRAMES, MISCOUNTED, REUSE, STALE, bound, fails, holds_with_reuse, mapped, needs, object,
};

fn incoherent(ops: u8, last_epoch: u8) -> Scenario {
    Scenario {
        incoherent: true,
        ..mapped(REUSE, ops, last_epoch)
    }
}

#[test]
fn frames_of_incoherent_nodes() {
    holds_with_reuse(&Scenario {
        incoherent: true,
        ..mapped(FRAMES, bound(3, 5), bound(3, 4))
    });
}

#[test]
fn i1_to_i4_entries_are_changed_in_memory() {
    let s = Scenario {
        incoherent: true,
        ..mapped(&[Unmap], 2, 2)
    };
    needs(W::I1PrivateCaches, &s, MISCOUNTED);
    fails(W::I2PrivateCaches, &s, MISCOUNTED);
    fails(W::I3PrivateCaches, &s, MISCOUNTED);
    fails(W::I4PrivateCaches, &s, MISCOUNTED);
}

#[test]
fn i5_caches_come_before_tlbs() {
    needs(W::I5TlbBeforeCache, &incoherent(3, 3), STALE);
}

#[test]
fn i6_accessed_and_dirty_bits_are_preset() {
    let s = Scenario {
        incoherent: true,
        ..mapped(&[Unmap, Map], 2, 3)
    };
    needs(W::I6AccessedNotPreset, &s, MISCOUNTED);
}

#[test]
fn unmapped_user_frames_are_dropped_after_tlbs() {
    needs(W::FramesBeforeTlb, &incoherent(3, 3), STALE);
}

#[test]
fn unmapped_user_frames_are_logged_before_they_are_given_up() {
    needs(W::LogAfterReference, &incoherent(3, 4), STALE);
}

#[test]
fn contents_are_in_memory_before_the_frame_is_in_use() {
    let expected = "a frame is in use before its contents are in memory";
    needs(W::PublishBeforeWriteBack, &incoherent(3, 3), &[expected]);
}

#[test]
fn who_initialises_a_frame_drops_its_lines() {
    let s = Scenario {
        incoherent: true,
        roles: &[(0, ToUntyped), (1, ToUser), (0, ToKernel)],
        ..Scenario::new(&[ToUntyped, ToUser, ToKernel], 4, 5)
    };
    needs(W::WriteBackKeepsLine, &s, STALE);
}

/// Objects that are read through caches, not word for word at memory.
fn cached_object() -> Scenario {
    Scenario {
        incoherent: true,
        ..object(&[Read, ToUntyped, ToKernel], 3, 4)
    }
}

#[test]
fn kernel_objects_are_logged_when_they_are_given_up() {
    needs(W::GiveUpWithoutLog, &cached_object(), STALE);
    fails(W::GiveUpLogsEarly, &cached_object(), STALE);
}

#[test]
fn kernel_objects_are_dropped_after_cpus_have_acknowledged() {
    needs(W::FramesBeforeTlb, &cached_object(), STALE);
}

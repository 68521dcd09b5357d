//! Two nodes claim the same word: with a compare-and-swap, and, in a test that is not part of any suite,
//! without. The second shows that a race which needs a turn to end between two instructions is found by
//! trying seeds of the strict order, and that the seed brings it back.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{Outcome, TestCtx, ensure, ktest};

/// Words that are claimed, one after the other: a line each, so that nothing else is on it. With more of
/// them almost every seed would find the race.
const ROUNDS: usize = 1;
/// First scratch line of the words, and of what nodes say that they have claimed.
const WORDS: usize = 16;
const CLAIMED: usize = WORDS + ROUNDS;

/// Has all nodes claim words at the same time; each word must become one node's.
fn race(cx: &TestCtx<'_>, claim: fn(&AtomicU64, u64) -> bool) -> Outcome {
    let me = cx.node.id().index();
    for round in 0..ROUNDS {
        cx.meet()?;
        let word = &cx.node.sb.scratch[WORDS + round].words[0];
        let mine = claim(word, me as u64 + 1);
        cx.node.sb.scratch[CLAIMED + me].words[round].store(mine as u64, Ordering::Release);
        cx.meet()?;
        let claims = cx.node.all().map(|n| {
            let line = &cx.node.sb.scratch[CLAIMED + n.index()];
            line.words[round].load(Ordering::Acquire)
        });
        let claims: u64 = claims.sum();
        ensure!(
            claims == 1,
            "word {round} was claimed by {claims} nodes at once"
        );
    }
    Ok(None)
}

#[ktest(pair)]
fn one_of_all_nodes_claims_a_word(cx: &TestCtx<'_>) -> Outcome {
    race(cx, |word, me| {
        word.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    })
}

/// Nodes claim a word by a load and a store instead of a compare-and-swap: two of them can claim it at once.
#[ktest(pair)]
fn seeded_race_two_nodes_claim_a_word(cx: &TestCtx<'_>) -> Outcome {
    race(cx, |word, me| {
        let free = word.load(Ordering::Acquire) == 0;
        if free {
            word.store(me, Ordering::Release);
        }
        free
    })
}

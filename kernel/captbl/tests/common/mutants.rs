//! The protocol, less one rule each.

use std::sync::LazyLock;

use dyad_captbl::{Rule, Rules};
use dyad_coherence::mutants::selected;

/// The whole protocol, unless `DYAD_MUTANT=rule/captbl::RULE` selects a rule that it lacks.
#[derive(Debug)]
pub struct Selected;

impl Rules for Selected {
    fn follow(rule: Rule) -> bool {
        static LACKS: LazyLock<Option<Rule>> = LazyLock::new(|| {
            let name = selected("rule")?.strip_prefix("captbl::")?;
            let mut all = Rule::ALL.iter().copied();
            Some(
                all.find(|r| format!("{r:?}") == name)
                    .expect("a rule of this crate"),
            )
        });
        *LACKS != Some(rule)
    }
}

macro_rules! mutants {
    ($($name:ident lacks $rule:ident;)*) => {
        $(
            #[derive(Debug)]
            pub struct $name;

            impl Rules for $name {
                fn follow(rule: Rule) -> bool {
                    rule != Rule::$rule
                }
            }
        )*
    };
}

mutants! {
    ChecksBeforeReserve lacks ReserveBeforeCheck;
    ActivateIgnoresStamp lacks ActivateChecksStamp;
    ActiveBeforeFilled lacks FillBeforeActive;
    PublishWithoutLog lacks PublishLogs;
    ActivateIgnoresState lacks ActivateChecksFree;
    FreeBeforeStamped lacks ClosingUntilStamped;
    GiveUpWithoutStamp lacks GiveUpStamps;
    StampsEarly lacks StampAfterCas;
    LogsLate lacks LogBeforeStamp;
    CopyIgnoresRight lacks CopyChecksRight;
    CopyWidensRights lacks CopyNarrowsRights;
    CopyKeepsPayload lacks CopyNarrowsPayload;
    CopyDropsGuard lacks CopyKeepsGuard;
    CopyReplacesGuard lacks CopyRefusesSecondGuard;
    EntryBeforePins lacks PinsBeforeEntry;
    FailureKeepsPins lacks FailureUnpins;
    ConsIgnoresStamp lacks ConsChecksStamp;
    ConsReplacesNewerEntry lacks ConsComparesEntry;
    UnpinsEarly lacks UnpublishBeforeUnpin;
    RecoveryIgnoresIncarnation lacks RecoveryChecksIncarnation;
    RecoveryStoresUnowned lacks RecoveryTakesOver;
    RecoveryForgetsClosing lacks RecoveryKnowsClosing;
    RecoveryWithoutLog lacks RecoveryLogs;
    GuardIgnoresFrame lacks GuardChecksFrame;
    GuardIgnoresCount lacks GuardChecksCount;
    RevokeWithoutLog lacks RevokeLogs;
}

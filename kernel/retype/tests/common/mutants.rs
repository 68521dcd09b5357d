//! The protocol, less one rule each.

use std::sync::LazyLock;

use dyad_coherence::mutants::selected;
use dyad_retype::{Rule, Rules};

/// The whole protocol, unless `DYAD_MUTANT=rule/retype::RULE` selects a rule that it lacks.
#[derive(Debug)]
pub struct Selected;

impl Rules for Selected {
    fn follow(rule: Rule) -> bool {
        static LACKS: LazyLock<Option<Rule>> = LazyLock::new(|| {
            let name = selected("rule")?.strip_prefix("retype::")?;
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
    PinIgnoresVersion lacks PinChecksVersion;
    PinIgnoresUse lacks PinChecksUse;
    PinIgnoresRoom lacks PinChecksRoom;
    GiveUpIgnoresRefs lacks GiveUpChecksRefs;
    GiveUpWithoutStamp lacks GiveUpStamps;
    GiveUpWithoutLog lacks GiveUpLogs;
    GiveUpLogsEarly lacks LogAfterCas;
    GiveUpLogsLate lacks LogBeforeStamp;
    RecoveryWithoutLog lacks RecoveryLogs;
    UnpinIgnoresFrozen lacks UnpinChecksFrozen;
    GiveUpStampsEarly lacks StampAfterCas;
    GiveUpKeepsVersion lacks GiveUpBumpsVersion;
    ClaimComparesNewerWord lacks ClaimComparesWholeWord;
    ClaimIgnoresStamp lacks ClaimChecksStamp;
    RecoveryIgnoresVersion lacks RecoveryChecksVersion;
    RecoveryKeepsVersion lacks RecoveryBumpsVersion;
    RecoveryWithoutStamp lacks RecoveryStamps;
    MergeForgetsStamp lacks MergeKeepsNewerStamp;
    SplitForgetsStamp lacks SplitCopiesStamp;
}

//! The protocol, less one rule each.

use dyad_retype::{Rule, Rules};

dyad_coherence::rule_mutants! {
    "retype";
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

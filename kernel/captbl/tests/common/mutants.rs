//! The protocol, less one rule each.

use dyad_captbl::{Rule, Rules};

dyad_coherence::rule_mutants! {
    "captbl";
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

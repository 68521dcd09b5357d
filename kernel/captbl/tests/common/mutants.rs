//! The protocol, less one rule each.

use dyad_captbl::Rules;

macro_rules! mutants {
    ($($name:ident lacks $rule:ident;)*) => {
        $(
            #[derive(Debug)]
            pub struct $name;

            impl Rules for $name {
                const $rule: bool = false;
            }
        )*
    };
}

mutants! {
    ChecksBeforeReserve lacks RESERVE_BEFORE_CHECK;
    ActivateIgnoresStamp lacks ACTIVATE_CHECKS_STAMP;
    ActiveBeforeFilled lacks FILL_BEFORE_ACTIVE;
    PublishWithoutLog lacks PUBLISH_LOGS;
    ActivateIgnoresState lacks ACTIVATE_CHECKS_FREE;
    FreeBeforeStamped lacks CLOSING_UNTIL_STAMPED;
    GiveUpWithoutStamp lacks GIVE_UP_STAMPS;
    StampsEarly lacks STAMP_AFTER_CAS;
    LogsLate lacks LOG_BEFORE_STAMP;
    CopyIgnoresRight lacks COPY_CHECKS_RIGHT;
    CopyWidensRights lacks COPY_NARROWS_RIGHTS;
    CopyKeepsPayload lacks COPY_NARROWS_PAYLOAD;
    CopyDropsGuard lacks COPY_KEEPS_GUARD;
    CopyReplacesGuard lacks COPY_REFUSES_SECOND_GUARD;
    EntryBeforePins lacks PINS_BEFORE_ENTRY;
    FailureKeepsPins lacks FAILURE_UNPINS;
    ConsIgnoresStamp lacks CONS_CHECKS_STAMP;
    ConsReplacesNewerEntry lacks CONS_COMPARES_ENTRY;
    UnpinsEarly lacks UNPUBLISH_BEFORE_UNPIN;
    RecoveryIgnoresIncarnation lacks RECOVERY_CHECKS_INCARNATION;
    RecoveryStoresUnowned lacks RECOVERY_TAKES_OVER;
    RecoveryForgetsClosing lacks RECOVERY_KNOWS_CLOSING;
    RecoveryWithoutLog lacks RECOVERY_LOGS;
    GuardIgnoresFrame lacks GUARD_CHECKS_FRAME;
    GuardIgnoresCount lacks GUARD_CHECKS_COUNT;
    RevokeWithoutLog lacks REVOKE_LOGS;
}

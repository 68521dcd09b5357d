//! The protocol, less one rule each.

use dyad_retype::Rules;

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
    PinIgnoresVersion lacks PIN_CHECKS_VERSION;
    PinIgnoresUse lacks PIN_CHECKS_USE;
    PinIgnoresRoom lacks PIN_CHECKS_ROOM;
    GiveUpIgnoresRefs lacks GIVE_UP_CHECKS_REFS;
    GiveUpWithoutStamp lacks GIVE_UP_STAMPS;
    GiveUpWithoutLog lacks GIVE_UP_LOGS;
    GiveUpLogsEarly lacks LOG_AFTER_CAS;
    GiveUpLogsLate lacks LOG_BEFORE_STAMP;
    RecoveryWithoutLog lacks RECOVERY_LOGS;
    UnpinIgnoresFrozen lacks UNPIN_CHECKS_FROZEN;
    GiveUpStampsEarly lacks STAMP_AFTER_CAS;
    GiveUpKeepsVersion lacks GIVE_UP_BUMPS_VERSION;
    ClaimComparesNewerWord lacks CLAIM_COMPARES_WHOLE_WORD;
    ClaimIgnoresStamp lacks CLAIM_CHECKS_STAMP;
    RecoveryIgnoresVersion lacks RECOVERY_CHECKS_VERSION;
    RecoveryKeepsVersion lacks RECOVERY_BUMPS_VERSION;
    RecoveryWithoutStamp lacks RECOVERY_STAMPS;
    MergeForgetsStamp lacks MERGE_KEEPS_NEWER_STAMP;
    SplitForgetsStamp lacks SPLIT_COPIES_STAMP;
}

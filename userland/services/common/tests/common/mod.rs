//! What model checks of this package have in common.

use std::panic::{UnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{Mutex, PoisonError};

/// Whether a model check finds something wrong. One check runs at a time, because the panic hook belongs to the whole process.
pub fn fails(check: impl FnOnce() + UnwindSafe) -> bool {
    static HOOK: Mutex<()> = Mutex::new(());
    let _turn = HOOK.lock().unwrap_or_else(PoisonError::into_inner);
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let failed = catch_unwind(check).is_err();
    set_hook(hook);
    failed
}

//! The attacks: what each is given, what it tries, and what is looked for besides.

mod again;
mod captbl;
mod code;
mod component;
mod endpoint;
mod generic;
mod hardware;
mod memory;
mod race;
mod service;
mod space;
mod thread;
mod time;

use dyad_abi::Result;
use dyad_abi::cap::CapType;
use dyad_services::rt::Call;

use crate::run::Scene;

/// An attack as the program plays it.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name in [`attack_list`].
    pub name: &'static str,
    /// Threads of the attacker beside its first.
    pub helpers: u64,
    /// Whether the helpers start together with the attacker.
    pub starts_helpers: bool,
    /// Whether threads of it may run on the other ISA.
    pub far: bool,
    /// Gives the attacker what the attack needs.
    pub grant: fn(&mut Scene<'_>) -> Result<()>,
    /// What its first thread does.
    pub act: fn(),
    /// What its other threads do, again and again.
    pub help: fn(u64),
    /// What the warden does when the attacker asks for its next step.
    pub step: fn(&mut Scene<'_>, u64) -> Result<()>,
    /// What the warden finds wrong when the attacker has come to its end.
    pub look: fn(&mut Scene<'_>) -> Option<&'static str>,
    /// What invocations of the attacker's own component do.
    pub serve: fn(Call) -> [u64; 4],
}

/// A case that does nothing.
const IDLE: Case = Case {
    name: "",
    helpers: 0,
    starts_helpers: true,
    far: false,
    grant: |_| Ok(()),
    act: || {},
    help: |_| crate::me::yield_now(),
    step: |_, _| Ok(()),
    look: |_| None,
    serve: |_| [0; 4],
};

/// A case of every type for what is the same for all.
macro_rules! of_types {
    ($suffix:literal, $case:ident, [$($ty:ident $name:literal),+ $(,)?]) => {
        [$(Case {
            name: concat!($name, $suffix),
            ..generic::$case::<{ CapType::$ty as u8 }>()
        }),+]
    };
}

const RIGHTS: [Case; 14] = of_types!(
    "_rights_not_held",
    rights_not_held,
    [
        Captbl "captbl", PageTable "page_table", Space "space", Component "component",
        Thread "thread", Sinv "sinv", Send "send", Receive "receive", Memory "memory",
        Frame "frame", Time "time", Hardware "hardware", Liveness "liveness",
        ThreadIds "thread_ids",
    ]
);

const STALE: [Case; 11] = of_types!(
    "_stale_after_retype",
    stale_after_retype,
    [
        Captbl "captbl", PageTable "page_table", Space "space", Component "component",
        Thread "thread", Sinv "sinv", Send "send", Receive "receive", Frame "frame",
        Time "time", Liveness "liveness",
    ]
);

const REVOKED: [Case; 14] = of_types!(
    "_revoked_by_guard",
    revoked_by_guard,
    [
        Captbl "captbl", PageTable "page_table", Space "space", Component "component",
        Thread "thread", Sinv "sinv", Send "send", Receive "receive", Memory "memory",
        Frame "frame", Time "time", Hardware "hardware", Liveness "liveness",
        ThreadIds "thread_ids",
    ]
);

const ARGUMENTS: [Case; 8] = of_types!(
    "_arguments_without_authority",
    arguments_without_authority,
    [
        Captbl "captbl", Space "space", Component "component", Thread "thread",
        Receive "receive", Memory "memory", Time "time", Hardware "hardware",
    ]
);

const COUNT: usize = RIGHTS.len()
    + STALE.len()
    + REVOKED.len()
    + ARGUMENTS.len()
    + captbl::CASES.len()
    + component::CASES.len()
    + endpoint::CASES.len()
    + hardware::CASES.len()
    + memory::CASES.len()
    + race::CASES.len()
    + code::CASES.len()
    + again::CASES.len()
    + service::CASES.len()
    + space::CASES.len()
    + thread::CASES.len()
    + time::CASES.len();

/// All of them, in the order in which they are played.
pub static CASES: [Case; COUNT] = ALL;

const ALL: [Case; COUNT] = {
    const LISTS: [&[Case]; 16] = [
        &RIGHTS,
        &STALE,
        &REVOKED,
        &ARGUMENTS,
        &captbl::CASES,
        &component::CASES,
        &endpoint::CASES,
        &hardware::CASES,
        &memory::CASES,
        &space::CASES,
        &thread::CASES,
        &service::CASES,
        &time::CASES,
        &race::CASES,
        &code::CASES,
        &again::CASES,
    ];
    let mut all = [IDLE; COUNT];
    let (mut list, mut i, mut n) = (0, 0, 0);
    while list < LISTS.len() {
        if i == LISTS[list].len() {
            (list, i) = (list + 1, 0);
            continue;
        }
        all[n] = LISTS[list][i];
        (i, n) = (i + 1, n + 1);
    }
    all
};

/// The list that the driver and the book read has these, and no other.
const _: () = {
    const fn same(a: &str, b: &str) -> bool {
        let (a, b) = (a.as_bytes(), b.as_bytes());
        let mut i = 0;
        while i < a.len() && i < b.len() && a[i] == b[i] {
            i += 1;
        }
        i == a.len() && i == b.len()
    }
    const LIST: &[attack_list::Attack] = attack_list::ATTACKS;
    let cases: &[Case] = &ALL;
    let mut i = 0;
    while i < LIST.len() {
        let mut n = 0;
        while n < cases.len() && !same(LIST[i].name, cases[n].name) {
            n += 1;
        }
        assert!(n < cases.len(), "an attack of the list is not played");
        i += 1;
    }
    assert!(LIST.len() == cases.len());
};
